"""Reads and writes spreadsheets (.xlsx), by polars with fastexcel and XlsxWriter (extra `privfed[tables]`).

Every cell becomes text, by itself: what becomes of one row depends on no other. A cell with an error has no
value. Only the first sheet is read, whose first row that is not blank has the columns' names.
"""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl

from privfed.data.table import repeated
from privfed.errors import ArgumentError, DataError

_NOT_THERE = "install what reads and writes spreadsheets, pip install 'privfed[tables]', or take a CSV file"


def read(path: Path, content: bytes) -> pl.DataFrame:
    """Return the columns of a spreadsheet's first sheet as text; a date is YYYY-MM-DD, and its time if any.

    Raises:
        DataError: it is damaged, has no header or a column without a name, or what reads it is not there.
    """
    try:
        cells = pl.read_excel(
            io.BytesIO(content),
            engine="calamine",
            has_header=False,
            infer_schema_length=0,
            drop_empty_cols=False,
            raise_if_empty=False,
        )
    except ModuleNotFoundError:
        raise DataError(f"{path} is a spreadsheet; {_NOT_THERE}.") from None
    except Exception as error:  # fastexcel has its own, and polars others; none is told, as they quote cells.
        raise DataError(
            f"{path} cannot be read as a spreadsheet ({type(error).__name__}); save it as .xlsx or CSV anew."
        ) from None
    if not cells.height:
        raise DataError(f"{path} has an empty first sheet; put the table there, with names in its first row.")
    names = [str(one or "").strip() for one in cells.row(0)]
    while names and not names[-1]:  # Columns beyond the table, which spreadsheets keep.
        names.pop()
    if "" in names or not names:
        raise DataError(f"{path} has a column without a name in the first row of its first sheet; name it.")
    if twice := repeated(names):
        raise DataError(f"{path} has two columns {twice[0]!r}; rename one.")
    frame = cells[1:, : len(names)]
    frame.columns = names
    return frame.select(pl.all().cast(pl.String).str.replace(r"^(\d{4}-\d\d-\d\d) 00:00:00$", "$1"))


def write(path: Path, frame: pl.DataFrame) -> None:
    """Write a table as the one sheet of a file.

    Raises:
        ArgumentError: what writes it is not there.
    """
    try:
        with path.open("wb") as file:
            frame.write_excel(file)
    except ModuleNotFoundError:
        raise ArgumentError(f"no spreadsheet can be written here; {_NOT_THERE}.") from None
