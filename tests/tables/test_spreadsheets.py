"""Spreadsheets are read as CSV files are, cell by cell, and written back."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from privfed.data import load_clients, load_features
from privfed.data.table_files import read_frame, write_table
from privfed.errors import DataError
from privfed.tables.described_tables import read_described
from privfed.tables.schema import parse

xlsxwriter: Any = pytest.importorskip("xlsxwriter")
pytest.importorskip("fastexcel")

HEADER = ["who", "ward", "stay", "glucose", "seen"]
SCHEMA = """
[columns.who]
kind = "id"
[columns.ward]
kind = "category"
categories = ["heart", "Øre"]
[columns.stay]
kind = "number"
[columns.glucose]
kind = "number"
low = 0
high = 40
missing = "leave-out"
outside = "clip"
[columns.seen]
kind = "date"
low = 2026-01-01
high = 2027-01-01
missing = "leave-out"
outside = "clip"
"""


def book(path: Path, rows: list[list[Any]], header: list[str] | None = None) -> Path:
    with xlsxwriter.Workbook(path, {"default_date_format": "dd-mm-yyyy"}) as file:
        sheet = file.add_worksheet("stays")
        for number, row in enumerate([header or HEADER, *rows]):
            for place, cell in enumerate(row):
                if cell == "=1/0":
                    sheet.write_formula(number, place, cell, None, "#DIV/0!")
                else:
                    sheet.write(number, place, cell)
        file.add_worksheet("notes").write(0, 0, "nothing of this is read")
    return path


def days(n: int) -> list[Any]:
    return pl.date_range(pl.date(2026, 1, 1), pl.date(2026, 1, n), eager=True).to_list()


def test_a_schema_reads_a_spreadsheet_as_the_same_csv_file(tmp_path: Path) -> None:
    seen = days(6)
    rows = [[f"00{i}", ("heart", "Øre")[i % 2], i, 5.25 + i / 8, seen[i]] for i in range(6)]
    rows[2][3], rows[4][3] = None, "=1/0"
    lines = [",".join("" if one in (None, "=1/0") else str(one) for one in row) for row in [HEADER, *rows]]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    schema = parse(SCHEMA)
    asked = read_described(book(tmp_path / "t.xlsx", rows), schema)
    wanted = read_described(tmp_path / "t.csv", schema)
    np.testing.assert_array_equal(asked.features, wanted.features)
    np.testing.assert_array_equal(asked.kept, wanted.kept)
    assert asked.frame.equals(wanted.frame) and [one.count for one in asked.findings] == [2]


@pytest.mark.parametrize("cell", ["=1/0", "ill", 1e308, "", True, None, "2026-99-99", "\N{SNOWMAN}"])
def test_no_cell_of_a_row_decides_what_becomes_of_others(cell: Any, tmp_path: Path) -> None:
    schema, seen = parse(SCHEMA.replace('kind = "number"\n[', 'kind = "id"\n[')), days(4)
    rows = [[f"p{i}", "heart", i, 6.0, seen[i]] for i in range(4)]
    plain = read_described(book(tmp_path / "plain.xlsx", rows), schema, private=True)
    for place in (0, 3, 4):
        odd = [[*row] for row in rows]
        odd[3][place] = cell
        found = read_described(book(tmp_path / f"odd{place}.xlsx", odd), schema, private=True)
        np.testing.assert_array_equal(found.features[:3], plain.features[:3])
        assert len(found.features) == 4 and found.kept[:3].all()


def test_a_column_without_any_value_is_a_column(tmp_path: Path) -> None:
    rows = [[f"p{i}", "heart", i, None, None] for i in range(3)]
    found = read_described(book(tmp_path / "t.xlsx", rows), parse(SCHEMA), private=True)
    assert found.features.shape == (3, 5) and not found.kept.any()


def test_clients_are_loaded_from_spreadsheets_and_tables_written(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    rng = np.random.default_rng(0)
    for name in ("aarhus", "odense"):
        book(tmp_path / "sites" / f"{name}.xlsx", rng.normal(size=(9, 2)).tolist(), ["a", "b"])
    tables = load_clients(tmp_path / "sites")
    assert tables.names == ("aarhus", "odense") and [one.shape for one in tables.arrays] == [(9, 2)] * 2
    write_table(tmp_path / "out.xlsx", {"a": tables.arrays[0][:, 0], "b": tables.arrays[0][:, 1]})
    np.testing.assert_allclose(load_features(tmp_path / "out.xlsx"), tables.arrays[0], rtol=1e-12)


def test_what_is_no_table_is_said_in_one_line_without_a_cell(tmp_path: Path) -> None:
    (tmp_path / "junk.xlsx").write_bytes(b"PK\x03\x04 secret")
    wrong = {
        "junk.xlsx": "cannot be read as a spreadsheet",
        book(tmp_path / "unnamed.xlsx", [[1, 2, 3]], ["a", "", "b"]).name: "a column without a name",
        book(tmp_path / "twice.xlsx", [[1, 2]], ["a", "a"]).name: "two columns 'a'",
    }
    for name, message in wrong.items():
        with pytest.raises(DataError, match=message) as raised:
            read_frame(tmp_path / name)
        assert "secret" not in str(raised.value) and "\n" not in str(raised.value)
    xlsxwriter.Workbook(tmp_path / "empty.xlsx").close()
    with pytest.raises(DataError, match="empty first sheet"):
        read_frame(tmp_path / "empty.xlsx")
