"""Clients come back from every kind of file as they were written."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed import Box, DPKMeans, Privacy
from privfed.data import ClientTables, load_clients, load_features
from privfed.errors import PrivacyError
from privfed.tables.described_clients import load_described
from privfed.tables.schema import parse
from tests.raised import parameter_refused

FRAME = pl.DataFrame(
    {
        "hospital": ["north10", "north2", "north10", "south"],
        "age": [61, 35, 47, 20],
        "dose": [0.5, -1.25, 3e-7, 1e10],
        "outcome": ["well", "ill", "ill", "well"],
    }
)


def write_csv(path: Path) -> None:
    FRAME.write_csv(path)


def write_semicolons(path: Path) -> None:
    path.write_bytes(gzip.compress(FRAME.write_csv(separator=";").encode()))


def write_tabs(path: Path) -> None:
    FRAME.write_csv(path, separator="\t", line_terminator="\r\n", quote_style="always", include_bom=True)


def write_bars(path: Path) -> None:
    path.write_text("\n" + FRAME.write_csv(separator="|") + "\n\n")


def write_spaces(path: Path) -> None:
    path.write_text(FRAME.write_csv().replace(",", " , "))


def write_parquet(path: Path) -> None:
    FRAME.with_columns(pl.col("hospital").cast(pl.Categorical)).write_parquet(path)


TABLES = pytest.mark.parametrize(
    ("name", "write"),
    [
        pytest.param("t.csv", write_csv, id="csv"),
        pytest.param("t.CSV", write_csv, id="csv-capitals"),
        pytest.param("t.csv.gz", write_semicolons, id="csv.gz-semicolon"),
        pytest.param("t.csv", write_semicolons, id="gzip-without-saying"),
        pytest.param("t.tsv", write_tabs, id="tsv-bom-crlf-quotes"),
        pytest.param("t.csv", write_bars, id="bars-blank-lines"),
        pytest.param("t.csv", write_spaces, id="spaces-around-fields"),
        pytest.param("t.parquet", write_parquet, id="parquet"),
    ],
)


def rows(data: ClientTables) -> list[list[list[float]]]:
    return [array.tolist() for array in data.arrays]


def codes(data: ClientTables) -> list[list[int]]:
    assert data.labels is not None
    return [array.tolist() for array in data.labels]


@TABLES
def test_table_is_split_by_group(tmp_path: Path, name: str, write: Callable[[Path], None]) -> None:
    write(tmp_path / name)
    data = load_clients(tmp_path / name, group="hospital", label="outcome")
    assert data.names == ("north2", "north10", "south")
    assert data.columns == ("age", "dose")
    assert rows(data) == [[[35, -1.25]], [[61, 0.5], [47, 3e-7]], [[20, 1e10]]]
    assert data.label_names == ("ill", "well")
    assert codes(data) == [[0], [1, 0], [1]]


@TABLES
def test_table_without_group_is_one_client(tmp_path: Path, name: str, write: Callable[[Path], None]) -> None:
    write(tmp_path / name)
    data = load_clients(str(tmp_path / name), columns=["dose", "age"])
    assert data.names == ("t",)
    assert data.columns == ("dose", "age")
    assert rows(data) == [FRAME.select("dose", "age").to_numpy().tolist()]
    assert data.labels is None
    assert data.label_names is None


@TABLES
def test_features_for_prediction_take_the_named_columns(
    tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    write(tmp_path / name)
    features = load_features(tmp_path / name, ["dose", "age"])
    assert features.dtype == np.float64
    assert features.tolist() == FRAME.select("dose", "age").to_numpy().tolist()


def test_features_for_prediction_default_to_all_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    assert load_features(tmp_path / "t.csv").tolist() == [[1.0, 2.0]]
    np.savez(tmp_path / "t.npz", X=[[1, 2]], y=["a"])
    assert load_features(tmp_path / "t.npz", ["x1"]).tolist() == [[2.0]]


def test_separator_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b;c\n1;2\n")
    assert load_clients(tmp_path / "t.csv", separator=";").columns == ("a,b", "c")
    (tmp_path / "u.csv").write_text("a\tb\n1\t2\n")
    assert load_clients(tmp_path / "u.csv", separator="\\t").columns == ("a", "b")


def test_separator_inside_quotes_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('"a,b,c";d\n1;2\n')
    assert load_clients(tmp_path / "t.csv").columns == ("a,b,c", "d")


def test_columns_named_by_counting_are_names(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("0,1,2\n5,6,7\n")
    assert load_clients(tmp_path / "t.csv").columns == ("0", "1", "2")


def test_column_without_name_may_stand_where_columns_are_chosen(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",a\n0,5\n1,6\n")
    assert rows(load_clients(tmp_path / "t.csv", columns=["a"])) == [[[5.0], [6.0]]]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param("true\nFALSE\n", [1.0, 0.0], id="truth-values"),
        pytest.param("1e3\n-.5\n", [1000.0, -0.5], id="exponents"),
        pytest.param('"7"\n+8\n', [7.0, 8.0], id="quotes-and-signs"),
        pytest.param("1\n" * 2000 + "2.5\n", [1.0] * 2000 + [2.5], id="float-after-many-integers"),
    ],
)
def test_text_becomes_numbers(tmp_path: Path, values: str, expected: list[float]) -> None:
    (tmp_path / "t.csv").write_text("a\n" + values)
    assert load_features(tmp_path / "t.csv")[:, 0].tolist() == expected


def test_parquet_booleans_and_decimals_are_numbers(tmp_path: Path) -> None:
    frame = pl.DataFrame({"flag": [True, False], "price": pl.Series([1.25, 2.5]).cast(pl.Decimal(10, 2))})
    frame.write_parquet(tmp_path / "t.parquet")
    assert load_features(tmp_path / "t.parquet").tolist() == [[1.0, 1.25], [0.0, 2.5]]


def test_ids_in_a_csv_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,a\n7,1\n007,2\nNA,3\n1.0,4\n")
    assert load_clients(tmp_path / "t.csv", group="id").names == ("1.0", "007", "7", "NA")


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        pytest.param([10, 9, -1], ("-1", "9", "10"), id="integers"),
        pytest.param([10.0, 9.0, 1.0], ("1", "9", "10"), id="whole-floats"),
        pytest.param([1.5, 1.0, 0.25], ("0.25", "1", "1.5"), id="floats"),
        pytest.param([True, False, True], ("false", "true"), id="booleans"),
    ],
)
def test_ids_of_a_parquet_file_become_text(tmp_path: Path, ids: list[float], names: tuple[str, ...]) -> None:
    pl.DataFrame({"id": ids, "a": [1, 2, 3]}).write_parquet(tmp_path / "t.parquet")
    assert load_clients(tmp_path / "t.parquet", group="id").names == names


def test_labels_of_all_clients_share_one_code(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,10\n2,9\n")
    (tmp_path / "b.csv").write_text("y,x\n2,3\n10,4\n")
    data = load_clients(tmp_path, label="y")
    assert data.label_names == ("2", "9", "10")
    assert codes(data) == [[2, 1], [0, 2]]


def test_npz_of_rows_uses_its_default_arrays(tmp_path: Path) -> None:
    features = np.arange(8, dtype=np.uint8).reshape(4, 2)
    np.savez(tmp_path / "t.npz", X=features, y=[5.0, 1.0, 5.0, 1.0], client=[10, 9, 10, 9], more=[1])
    data = load_clients(tmp_path / "t.npz")
    assert data.names == ("9", "10")
    assert data.columns == ("x0", "x1")
    assert rows(data) == [features[1::2].tolist(), features[::2].tolist()]
    assert data.label_names == ("1", "5")
    assert codes(data) == [[0, 0], [1, 1]]


def test_npz_of_rows_takes_named_arrays_and_columns(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=np.eye(3, dtype=np.float16), writer=["b", "a", "b"], client=[1, 2, 3])
    data = load_clients(tmp_path / "t.npz", group="writer", label="client", columns=["x2", "x0"])
    assert data.names == ("a", "b")
    assert rows(data) == [[[0, 0]], [[0, 1], [1, 0]]]
    assert data.label_names == ("1", "2", "3")


def test_npz_of_rows_alone_is_one_client(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "clinic.npz", X=np.eye(2))
    data = load_clients(tmp_path / "clinic.npz")
    assert data.names == ("clinic",)
    assert data.labels is None


def test_npz_of_clients_has_one_array_each(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", c10=np.ones((1, 2)), c9=np.zeros((2, 2), dtype=bool))
    data = load_clients(tmp_path / "t.npz")
    assert data.names == ("c9", "c10")
    assert rows(data) == [[[0, 0], [0, 0]], [[1, 1]]]


def test_folder_holds_one_file_a_client(tmp_path: Path) -> None:
    (tmp_path / "c10.csv").write_text("a,b\n1,2\n")
    pl.DataFrame({"b": [4], "a": [3]}).write_parquet(tmp_path / "c2.1.parquet")
    (tmp_path / "c3.csv.gz").write_bytes(gzip.compress(b"b;a\n6;5\n"))
    (tmp_path / ".DS_Store").write_bytes(b"\x00")
    data = load_clients(tmp_path)
    assert data.names == ("c2.1", "c3", "c10")
    assert data.columns == ("b", "a")
    assert rows(data) == [[[4, 3]], [[6, 5]], [[2, 1]]]


def test_folder_of_npz_files(tmp_path: Path) -> None:
    for name in ("b", "a"):
        np.savez(tmp_path / f"{name}.npz", X=np.eye(2), y=[name, "c"], client=[1, 2])
    data = load_clients(tmp_path)
    assert data.names == ("a", "b")
    assert data.label_names == ("a", "b", "c")
    assert codes(data) == [[0, 2], [1, 2]]


def test_folder_may_differ_outside_the_chosen_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,note\n1,fine\n")
    (tmp_path / "b.csv").write_text("x\n2\n")
    assert rows(load_clients(tmp_path, columns=["x"])) == [[[1]], [[2]]]


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.floats(allow_nan=False, allow_infinity=False, width=64)), min_size=1
    )
)
def test_splitting_by_group_loses_no_row(
    tmp_path_factory: pytest.TempPathFactory, table: list[tuple[int, float]]
) -> None:
    path = tmp_path_factory.mktemp("split") / "t.csv"
    pl.DataFrame(table, schema={"g": pl.Int64, "x": pl.Float64}, orient="row").write_csv(path)
    data = load_clients(path, group="g")
    expected = {
        str(client): [[x] for g, x in table if g == client] for client in sorted({g for g, _ in table})
    }
    assert dict(zip(data.names, rows(data), strict=True)) == expected
    assert list(data.names) == list(expected)


@pytest.mark.parametrize("odd", [2.5, 1e300, float("nan")])
@pytest.mark.parametrize("kind", ["parquet", "csv", "schema"])
def test_a_rows_label_changes_no_others_code(odd: float, kind: str, tmp_path: Path) -> None:
    """One label that was none of the others moved the codes of all: a model then learnt nothing."""
    found, path = [], tmp_path / f"t.{'parquet' if kind == 'parquet' else 'csv'}"
    for last in (1.0, odd):
        frame = pl.DataFrame({"a": [0.1, 0.2, 0.3], "y": [0.0, 1.0, last], "g": [7.0, 7.0, 7.0]})
        if kind == "parquet":
            frame.write_parquet(path)
        else:
            path.write_text(f"a,y,g\n0.1,0,7\n0.2,1,7\n0.3,{last if last != 1.0 else 1},7\n")
        words = {"label": "y", "group": "g", "clients": ["7"], "private": True, "classes": ["0", "1"]}
        column = parse('[columns.a]\nkind = "number"\nlow = 0\nhigh = 1\noutside = "clip"\nmissing = 0\n')
        by_schema = kind == "schema"
        loaded = (
            load_described(path, column, **words) if by_schema else load_clients(path, **words, missing=0.0)
        )
        assert loaded.labels is not None and loaded.label_names == ("0", "1")
        found.append(loaded.labels[0].tolist())
    assert found == [[0, 1, 1], [0, 1, -1]]


def test_classes_are_declared_where_codes_would_depend_on_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,y\n0.1,sick\n0.2,well\n")
    with pytest.raises(PrivacyError, match="classes of labels must be declared"):
        load_clients(path, label="y", private=True)
    with parameter_refused("classes"):
        load_clients(path, label="y", classes=["sick", "sick"])
    claim = Privacy(
        epsilon=1.0, delta=1e-6, unit="record", domain=Box(0, 1, max_rows=9), neighbours="add-remove"
    )
    with pytest.raises(PrivacyError, match="would change the codes of all"):
        DPKMeans(2, privacy=claim, protocol="plain").fit(load_clients(path, label="y"))
    np.savez(tmp_path / "t.npz", X=np.eye(2), y=[0, 1])
    assert load_clients(tmp_path / "t.npz", private=True).labels is None
    assert load_clients(tmp_path / "t.npz", private=True).columns == ("x0", "x1")
