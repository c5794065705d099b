"""A party's own table: what a row becomes depends on that row alone, and no row makes the reading fail."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from privfed import Box
from privfed.data import load_clients
from privfed.data.own import OwnFile
from privfed.data.table import NO_LABEL, Missing, missing_rule
from privfed.errors import ArgumentError, DataError

FIELDS = [
    "1",
    "0.5",
    "-2",
    "1e400",
    "nan",
    "inf",
    "",
    "?",
    "abc",
    "true",
    "1,5",
    '"3"',
    '"',
    '"a,b"',
    "é",
    "1_0",
    "5\r",
    '"5"0""',
]
ODD = ["0.5", "1.5", "-1", "1e9", "7", "", "kind", "3.0"]
EXTRA = ["", "1", "1,2,3,4,5,6", '"', '","', "\x00,1,1", ",,", '1,"2\r', "\u2028,1,0", "  ", '1,2,"x"y']
LINES = st.lists(st.builds(",".join, st.tuples(*[st.sampled_from(FIELDS)] * 2, st.sampled_from(ODD)))
                 | st.sampled_from(EXTRA), max_size=8)  # fmt: skip
RULES = st.sampled_from(["leave-out", 0.25])


def table(folder: Path, lines: list[str], missing: Missing) -> tuple[np.ndarray, np.ndarray]:
    path = folder / "rows.csv"
    # A last line of one more row keeps blank lines from being the end of the file.
    path.write_bytes("\n".join(["a,b,y", *lines, "9,9,1"]).encode())
    found = OwnFile(path=path, label="y", n_classes=3, missing=missing).read()
    assert found.labels is not None and len(found.labels) == len(found.features)
    return found.features[:-1], found.labels[:-1]


@example(lines=["1,1,5,0.5", ",,"], missing=0.25)
@example(lines=["", '"","",""', ' ,"",', "1,1,5,0.5"], missing=0.25)
@example(lines=["0" * 200_000 + "7,1,1", "1,1,5,0.5"], missing=0.25)
@given(lines=LINES, missing=RULES)
def test_each_line_is_read_as_if_it_were_alone(
    lines: list[str], missing: Missing, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """read(lines) == the rows of read([line]) for each line, one after the other."""
    folder = tmp_path_factory.mktemp("rows")
    whole, labels = table(folder, lines, missing)
    alone = [table(folder, [line], missing) for line in lines]
    np.testing.assert_array_equal(whole, np.concatenate([np.empty((0, 2)), *(one for one, _ in alone)]))
    assert labels.tolist() == [label for _, one in alone for label in one.tolist()]
    assert np.isfinite(whole).all() and set(labels.tolist()) <= {NO_LABEL, 0, 1, 2}


@pytest.mark.parametrize("line", ["5\r,6,1", '"5"0"",6,1', '"2"",3"",1"', "\r7,8,1", '"5",6,1', "5,,1"])
def test_a_line_with_an_open_quote_changes_no_other(line: str, tmp_path: Path) -> None:
    """It has all lines read one by one, which read a return, and quotes within a field, otherwise."""
    without, labels = table(tmp_path, [line], "leave-out")
    beside, _ = table(tmp_path, [line, '"9,9,1'], "leave-out")
    np.testing.assert_array_equal(beside, without)
    assert len(labels) == len(without)


@pytest.mark.parametrize(
    ("written", "code"),
    [("2", 2), ("2.0", 2), ("0", 0), ("3", -1), ("-1", -1), ("1.5", -1), ("1e9", -1), ("", -1), ("b", -1)],
)
def test_a_label_that_is_no_class_is_none_and_its_row_stays(written: str, code: int, tmp_path: Path) -> None:
    features, labels = table(tmp_path, [f"1,2,{written}"], "leave-out")
    assert features.tolist() == [[1.0, 2.0]] and labels.tolist() == [code]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz", ".csv.gz"])
def test_all_kinds_of_files_are_read_by_the_same_rule(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows{suffix}"
    X, y = np.array([[1.0, np.nan], [2.0, 3.0], [np.inf, 4.0]]), np.array([0.0, 2.5, np.nan])
    frame = pl.DataFrame({"x0": X[:, 0], "x1": X[:, 1], "y": y})
    if suffix == ".npz":
        np.savez(path, X=X, y=y)
    elif suffix == ".parquet":
        frame.write_parquet(path)
    else:
        text = frame.write_csv().encode()
        path.write_bytes(gzip.compress(text) if suffix == ".csv.gz" else text)
    found = OwnFile(path=path, label="y", missing=-1.0).read()
    assert found.columns == ("x0", "x1") and found.labels is not None
    assert found.features.tolist() == [[1.0, -1.0], [2.0, 3.0], [-1.0, 4.0]]
    assert found.labels.tolist() == [0, -1, -1]
    left = OwnFile(path=path, columns=("x1",), label="y").read()
    assert left.features.tolist() == [[3.0], [4.0]]


@pytest.mark.parametrize("content", ["a,b,y\n", "a,b,y", "a,b,y\n\n\n"])
def test_a_table_without_rows_is_one(content: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(content)
    found = OwnFile(path=tmp_path / "rows.csv", label="y").read()
    assert found.features.shape == (0, 2) and found.labels is not None and found.labels.shape == (0,)


def test_a_blank_line_of_one_column_is_a_missing_value(tmp_path: Path) -> None:
    for content, rows in (
        ("a\n", []),
        ("a\n\n", [0.0]),
        ("a\n1\n\n", [1.0, 0.0]),
        ('a\n1\n\n"', [1.0, 0.0, 0.0]),
    ):
        (tmp_path / "rows.csv").write_text(content)
        found = OwnFile(path=tmp_path / "rows.csv", missing=0.0).read()
        assert found.features.ravel().tolist() == rows


def test_what_is_wrong_with_a_table_as_a_whole_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    own = {"path": tmp_path / "rows.csv"}
    for words, why in (
        ({"columns": ("a", "c")}, "no column 'c'; its columns are 'a', 'b'"),
        ({"label": "y"}, "no column 'y'"),
        ({"path": tmp_path / "none.csv"}, "does not exist"),
        ({"path": tmp_path}, "is a folder"),
    ):
        with pytest.raises(DataError, match=why):
            OwnFile(**{**own, **words}).read()


def test_the_report_counts_and_quotes_no_value(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b,y\n1,31337,0\n,2,1\nabc,?,kind\n5,6,2\n")
    found = OwnFile(path=path, label="y", n_classes=2, missing=0.0).read()
    said = "\n".join(found.report(Box(-10.0, 10.0)))
    for part in (
        "4 of 4 rows are used",
        "2 of 4 rows have no number in column 'a'",
        "1 of 4 rows have no number in column 'b': given the number 0",
        "2 of 4 rows have no class",
        "1 of 4 rows lie outside",
    ):
        assert part in said
    assert "31337" not in said and "abc" not in said and "kind" not in said


@pytest.mark.parametrize(
    ("missing", "rows"), [("leave-out", [[1, 2], [9, 9]]), (7, [[1, 2], [7, 7], [9, 9]])]
)
def test_a_declared_rule_applies_to_simulated_clients_row_by_row(
    missing: Missing, rows: list[list[float]], tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("g,y,a,b\nu,k,1,2\nu,,,inf\n,k,4,4\nu,m,9,9\nv,k,3,3\n")
    with pytest.raises(DataError, match=r"without a value in the label column 'y'.*missing=\"leave-out\""):
        load_clients(path, group="g", label="y")
    found = load_clients(path, group="g", label="y", missing=missing)
    assert found.names == ("u", "v") and found.label_names == ("k", "m") and found.labels is not None
    assert found.arrays[0].tolist() == rows
    assert found.labels[0].tolist() == ([0, 1] if missing == "leave-out" else [0, -1, 1])
    names = {"clients": ["u", "w", "v"], "classes": ["m", "k"]}
    private = load_clients(path, group="g", label="y", missing=missing, private=True, **names)
    assert private.labels is not None and private.labels[0].tolist()[0] == 1
    assert [len(one) for one in private.arrays] == [len(rows), 0, 1]


@pytest.mark.parametrize("wrong", ["drop", True, None, "nan", float("inf"), [1]])
def test_a_wrong_rule_is_an_error(wrong: object) -> None:
    with pytest.raises(
        ArgumentError, match='missing must be "error", "leave-out", "keep" or a finite number'
    ):
        missing_rule(wrong)
    assert missing_rule("1.5") == 1.5
