"""What programs write besides rows: a line that names the separator, blank lines, whole numbers as floats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from privfed.data import load_clients
from privfed.data.own import OwnFile, frame_of_lines
from privfed.errors import DataError
from privfed.tables import read_described
from privfed.tables.schema import parse

SCHEMA = parse("""
[columns.who]
kind = "id"
[columns.age]
kind = "number"
missing = 50
[columns.ward]
kind = "category"
categories = ["1", "2"]
missing = "1"
""")
TABLE = "who;age;ward\na;30;1\nb;;2\n"


@pytest.mark.parametrize("private", [False, True])
def test_a_line_that_names_the_separator_is_no_header(private: bool, tmp_path: Path) -> None:
    for name, text in (("plain", TABLE), ("named", f"sep=;\r\n{TABLE}")):
        (tmp_path / f"{name}.csv").write_text(text)
    plain, named = (
        read_described(tmp_path / f"{one}.csv", SCHEMA, private=private) for one in ("plain", "named")
    )
    assert named.frame.equals(plain.frame) and (named.features == plain.features).all()


def test_other_readers_know_that_line_too(tmp_path: Path) -> None:
    text = "sep=,\nsite,age\na,30\nb,40\n"
    (tmp_path / "t.csv").write_text(text)
    assert load_clients(tmp_path / "t.csv", group="site").names == ("a", "b")
    assert frame_of_lines(tmp_path / "t.csv", text.encode(), None).columns == ["site", "age"]


@pytest.mark.parametrize("empty", ["\n", ";;\n", " ; ;\n"])
def test_a_line_without_any_value_is_no_row_that_is_filled(empty: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{TABLE}{empty}c;60;2\n{empty}{empty}")
    found = read_described(tmp_path / "t.csv", SCHEMA)
    assert found.frame["who"].to_list() == ["a", "b", "c"] and found.kept.all()
    # Where each line is a row it is left out, so that a node has the same rows.
    private = read_described(tmp_path / "t.csv", SCHEMA, private=True)
    assert (private.features[private.kept] == found.features).all()


@pytest.mark.parametrize("missing", ["leave-out", 40.0])
@pytest.mark.parametrize("empty", ["", ","])
def test_without_a_schema_it_is_no_row_either(empty: str, missing: Any, tmp_path: Path) -> None:
    """A public number in its place would be a patient of its own."""
    for name in "abc":
        (tmp_path / f"{name}.csv").write_text(f"x,y\n1,2\n{empty}\n3,4\n{empty}\n")
    assert [len(one) for one in load_clients(tmp_path, missing=missing).arrays] == [2, 2, 2]
    assert OwnFile(path=tmp_path / "a.csv", missing=missing).read().features.tolist() == [[1, 2], [3, 4]]


def test_a_gap_in_a_file_of_one_column_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age\n30\n\n40\n")
    schema = parse('[columns.age]\nkind = "number"\nmissing = 50')
    for private in (False, True):
        found = read_described(tmp_path / "t.csv", schema, private=private)
        assert found.features.ravel().tolist() == [30.0, 50.0, 40.0] and found.kept.all()


@pytest.mark.parametrize("private", [False, True])
def test_whole_numbers_that_became_floats_by_a_gap_are_the_categories_that_they_were(
    private: bool, tmp_path: Path
) -> None:
    frame = pl.DataFrame({"who": [7.0, 8.0, 9.0], "age": [30.5, 40.0, 50.0], "ward": [1.0, None, 2.0]})
    frame.write_parquet(tmp_path / "t.parquet")
    found = read_described(tmp_path / "t.parquet", SCHEMA, private=private).checked()
    assert found.frame["who"].to_list() == ["7", "8", "9"]
    assert found.features[:, 0].tolist() == [30.5, 40.0, 50.0]
    assert (found.features[:, 1] > 0).tolist() == [True, True, False]


def test_lines_that_end_by_returns_alone_are_said_with_the_command_that_helps(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(TABLE.replace("\n", "\r").encode())
    with pytest.raises(DataError, match=r"tr '\\r' '\\n' < \S+t\.csv > lines\.csv"):
        read_described(tmp_path / "t.csv", SCHEMA)
    with pytest.raises(DataError, match="returns alone"):
        load_clients(tmp_path / "t.csv")
