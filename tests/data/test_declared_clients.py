"""Under differential privacy the clients of a file are declared, and one of them may hold no rows."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from privfed.data import ClientTables, load_clients
from privfed.errors import DataError, PrivacyError

ROWS = {
    "a": np.array([[1.0, 2.0], [3.0, 4.0]]),
    "b": np.empty((0, 2)),
    "c": np.array([[5.0, 6.0]]),
}


def frame(name: str) -> pl.DataFrame:
    columns = {"x": ROWS[name][:, 0], "y": ROWS[name][:, 1], "sick": [True] * len(ROWS[name])}
    return pl.DataFrame(columns, schema={"x": pl.Float64, "y": pl.Float64, "sick": pl.Boolean})


def csv_folder(path: Path) -> Path:
    path.mkdir()
    for name in ROWS:
        frame(name).write_csv(path / f"{name}.csv")
    return path


def parquet_folder(path: Path) -> Path:
    path.mkdir()
    for name in ROWS:
        frame(name).write_parquet(path / f"{name}.parquet")
    return path


def npz_folder(path: Path) -> Path:
    path.mkdir()
    for name, rows in ROWS.items():
        np.savez(path / f"{name}.npz", X=rows, sick=np.ones(len(rows), dtype=np.int64))
    return path


def arrays(path: Path) -> Path:
    np.savez(path.with_suffix(".npz"), **ROWS)
    return path.with_suffix(".npz")


def whole(n_rows: int = 9) -> pl.DataFrame:
    tables = [frame(name).with_columns(pl.lit(name).alias("client")) for name in ROWS]
    table: pl.DataFrame = pl.concat(tables).head(n_rows)
    return table


def csv_table(path: Path) -> Path:
    whole().write_csv(path.with_suffix(".csv"))
    return path.with_suffix(".csv")


def npz_table(path: Path) -> Path:
    """Hold the group under the name that is taken unless another is given."""
    table, file = whole(), path.with_suffix(".npz")
    np.savez(file, X=table[["x", "y"]].to_numpy(), client=table["client"].to_numpy().astype("U1"))
    return file


FOLDERS = [csv_folder, parquet_folder, npz_folder]
TABLES = [csv_table, npz_table]


def arrays_of(tables: ClientTables) -> list[list[list[float]]]:
    return [rows.tolist() for rows in tables.arrays]


@pytest.mark.parametrize("write", FOLDERS)
@pytest.mark.parametrize("label", [None, "sick"])
def test_a_file_without_rows_is_a_client_without_rows(
    tmp_path: Path, write: Callable[[Path], Path], label: str | None
) -> None:
    path = write(tmp_path / "all")
    columns = ["x0", "x1"] if write is npz_folder else ["x", "y"]
    classes = None if label is None else ["1" if write is npz_folder else "true"]
    found = load_clients(path, columns=columns, label=label, private=True, classes=classes)
    assert found.names == ("a", "b", "c")
    assert arrays_of(found) == [ROWS[name].tolist() for name in found.names]
    if label is not None:
        assert [own.tolist() for own in found.labels or []] == [[0, 0], [], [0]]
    with pytest.raises(DataError, match="leave it out or give it data"):
        load_clients(path, columns=columns, label=label)


def test_an_array_without_rows_is_a_client_without_rows(tmp_path: Path) -> None:
    found = load_clients(arrays(tmp_path / "all"), private=True)
    assert arrays_of(found) == [ROWS[name].tolist() for name in "abc"]
    with pytest.raises(DataError, match=r"'b' .*is empty"):
        load_clients(tmp_path / "all.npz")


@pytest.mark.parametrize("write", [*FOLDERS, *TABLES, arrays])
def test_declared_clients_stand_in_their_order(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path / "all")
    words = {"group": "client"} if write is csv_table else {}
    found = load_clients(path, clients=["d", "c", "b", "a"], private=True, **words)
    assert found.names == ("d", "c", "b", "a")
    assert [len(rows) for rows in found.arrays] == [0, 1, 0, 2]
    # Under differential privacy no error tells what a column holds; files and arrays are no rows.
    if write in TABLES:
        left = load_clients(path, clients=["a", "b"], private=True, **words)
        assert [len(rows) for rows in left.arrays] == [2, 0]
    with pytest.raises(DataError, match="rows of 1 clients that clients= does not name") as caught:
        load_clients(path, clients=["a", "b"], private=write not in TABLES, missing=0.0, **words)
    assert "'c'" not in str(caught.value)
    with pytest.raises(DataError, match="leave it out or give it data"):
        load_clients(path, clients=["a", "b", "c"], **words)


@pytest.mark.parametrize("write", TABLES)
def test_a_list_of_clients_that_is_read_off_a_column_is_an_error_under_privacy(
    tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    with pytest.raises(PrivacyError, match="must be declared"):
        load_clients(write(tmp_path / "all"), group="client", private=True)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_without_rows_has_its_declared_clients(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"all.{kind}"
    whole(0).write_csv(path) if kind == "csv" else whole(0).write_parquet(path)
    found = load_clients(path, group="client", label="sick", clients=["a", "b"], classes=["0"], private=True)
    assert found.columns == ("x", "y")
    assert [rows.shape for rows in found.arrays] == [(0, 2), (0, 2)]
