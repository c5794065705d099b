"""Data sets and their splits: the same for the same seed, and public rows are nobody's."""

from pathlib import Path

import numpy as np
import pytest

from privfed.errors import ArgumentError, DataError
from privfed.experiments.datasets import load_table, split
from privfed.experiments.study import Data, Partition


@pytest.mark.parametrize(
    ("source", "shape"),
    [("iris", (150, 4)), ("blobs", (10_000, 2)), ("g2", (2048, 16)), ("mixture", (1000, 2))],
)
def test_built_in_sets_have_rows_and_labels(source: str, shape: tuple[int, int]) -> None:
    table = load_table(Data(source=source), Path())
    assert table.rows.shape == shape
    assert table.labels is not None and len(table.labels) == shape[0]
    assert table.digest == load_table(Data(source=source, name="other"), Path()).digest


def test_rows_are_scaled_and_clipped_as_the_study_says() -> None:
    plain = load_table(Data(source="digits"), Path())
    scaled = load_table(Data(source="digits", center=8.0, unit=8.0, low=-0.5, high=1.0), Path())
    np.testing.assert_array_equal(scaled.rows, np.clip(plain.rows / 8 - 1, -0.5, 1.0))
    standard = load_table(Data(source="iris", standardise=True), Path()).rows
    np.testing.assert_allclose(standard.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(standard.std(axis=0), 1.0)
    assert plain.digest != scaled.digest


@pytest.mark.parametrize("kind", ["iid", "half-iid", "non-iid", "random"])
def test_clients_and_public_rows_are_all_rows_once(kind: str) -> None:
    data = Data(source="iris", public=0.2)
    table = load_table(data, Path())
    scene = split(data, table, Partition(clients=5, kind=kind), 3)
    assert len(scene.clients) == 5 and scene.public is not None and len(scene.public) == 30
    together = np.concatenate([*scene.clients, scene.public])
    order = np.lexsort(together.T), np.lexsort(table.rows.T)
    np.testing.assert_array_equal(together[order[0]], table.rows[order[1]])


def test_a_seed_gives_one_split_and_another_seed_another() -> None:
    data, how = Data(source="iris", public=0.2), Partition(clients=5)
    table = load_table(data, Path())
    first, again, other = (split(data, table, how, seed) for seed in (1, 1, 2))
    for a, b in zip(first.clients, again.clients, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(first.clients, other.clients, strict=True))


def test_a_file_names_its_clients(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "who,x,y,kind\n" + "".join(f"h{i % 3},{i},{i},{i % 2}\n" for i in range(9))
    )
    data = Data(source="a.csv", group="who", label="kind")
    scene = split(data, load_table(data, tmp_path), Partition(kind="given"), 0)
    assert [len(rows) for rows in scene.clients] == [3, 3, 3]
    assert scene.clients[0].shape[1] == 2
    assert scene.labels is not None
    with pytest.raises(DataError, match="group column"):
        split(Data(source="iris"), load_table(Data(source="iris"), Path()), Partition(kind="given"), 0)


def test_an_unknown_source_is_told(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"there is no 'nothing\.csv'"):
        load_table(Data(source="nothing.csv"), tmp_path)


def test_a_table_has_the_columns_that_a_study_names_or_its_schema_describes(tmp_path: Path) -> None:
    lines = [f"h{i % 3};p-{i};{20 + i},5;{'heart' if i % 2 else 'lung'};{i % 2}" for i in range(12)]
    (tmp_path / "t.csv").write_text("\n".join(["hospital;who;age;ward;ill", *lines]) + "\n")
    (tmp_path / "s.toml").write_text(
        '[columns.age]\nkind = "number"\n[columns.ward]\nkind = "category"\ncategories = ["heart", "lung"]\n'
        'weight = 1.0\n[columns.ill]\nkind = "label"\n[files.t]\ndecimal = ","\n'
    )
    words = {"source": "t.csv", "group": "hospital"}
    with pytest.raises(DataError, match="'who'"):
        load_table(Data(**words), tmp_path)
    assert load_table(Data(**words, columns=("ill",)), tmp_path).rows.sum() == 6.0
    table = load_table(Data(**words, label="ill", schema="s.toml"), tmp_path)
    assert table.rows.shape == (12, 3) and table.rows[0].tolist() == [20.5, 0.0, 1.0]
    assert table.owners is not None and table.labels is not None and table.labels.sum() == 6
    with pytest.raises(ArgumentError, match="give one of them"):
        Data(**words, columns=("ill",), schema="s.toml")
