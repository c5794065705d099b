"""A party's own table, read row by row: no row makes the reading fail, or changes what another row becomes.

A table may be wrong as a whole (no such file, no such column, a column of dates), which is an error. What a
row contains is never an error: whoever asks would learn of it, as of a row that is left out because of
another one. A line of a text file is a row, also where it ends within a quoted field.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from privfed.core.values.domain import Domain, FloatArray
from privfed.core.values.origin import Origin
from privfed.data.conversion import any_codes, any_numbers, rows_frame, text_column
from privfed.data.table import LEAVE_OUT, NO_LABEL, LabelArray, Missing, filled, listed, marked
from privfed.data.table_files import (
    are_rows,
    columns_of,
    content_of,
    from_header,
    is_folder,
    is_text,
    names_in,
    read_arrays,
    separator_in,
    suffix,
)
from privfed.errors import ColumnsError, DataError

Ids = npt.NDArray[np.object_]
"""Id of each row, None for none."""


@dataclass(frozen=True, kw_only=True)
class OwnFile:
    """Where a party's rows lie, and how they are read.

    Args:
        path: a CSV, TSV or Parquet file with named columns, or an .npz file with an array X of rows, whose
            columns are called x0, x1, ...
        columns: feature columns; None for all but the label's and the ids'.
        label: column (in an .npz file: array) with each row's class, a whole number from 0; None for none.
        id: column (in an .npz file: array) with whose each row is; None where each stands for itself.
        n_classes: labels are below it; None for any.
        separator: between the fields of a CSV file; None to find it.
        missing: what becomes of rows without a number in some feature column; never an error.
    """

    path: Path
    columns: tuple[str, ...] | None = None
    label: str | None = None
    id: str | None = None
    n_classes: int | None = None
    separator: str | None = None
    missing: Missing = LEAVE_OUT

    @property
    def leaves_out(self) -> bool:
        """Whether rows are left out for what they hold: without a number, or without an id."""
        return self.missing == LEAVE_OUT or self.id is not None

    @property
    def origin(self) -> Origin:
        """Where that comes from which says how it is read."""
        return Origin.DECLARED

    @property
    def named(self) -> bool:
        """Whether the file names its columns; arrays do not."""
        return suffix(self.path) != ".npz"

    def read(self, agreed: Sequence[str] | None = None, gaps: Sequence[float] | FloatArray = ()) -> ReadRows:
        """Read the rows.

        Args:
            agreed: names of the columns that all parties agreed on, in order; None where they have none.
            gaps: numbers that stand for missing values of the last columns, one a column, before any rule.

        Raises:
            ColumnsError: the file, or its owner in `columns`, lacks an agreed column. Columns are found by
                name, whatever their order, and others are not read; arrays have no names.
            DataError: the file is missing or unreadable, or lacks a column. No row is the cause.
        """
        frame = self._frame()
        frame = frame.filter(are_rows(frame))
        names: Sequence[str] = [one for one in frame.columns if one not in (self.label, self.id)]
        names = names if self.columns is None else self.columns
        if agreed is not None and self.named:
            self._compare(names, agreed)
            names = agreed
        self._check(names, frame.columns)
        features = [any_numbers(frame[name], str(self.path)) for name in names]
        labels, ids = self._labels_and_ids(frame)
        table = np.stack(features, axis=1).reshape(frame.height, len(names))
        table = marked(np.where(np.isinf(table), np.nan, table), gaps)
        return ReadRows(tuple(names), table, labels, self.missing, ids)

    def _labels_and_ids(self, frame: pl.DataFrame) -> tuple[LabelArray | None, Ids | None]:
        """Return each row's class and its id, where columns have them."""
        labels, ids = None, None
        if self.label is not None:
            self._check([self.label], frame.columns)
            labels = any_codes(frame[self.label], str(self.path), self.n_classes)
        if self.id is not None:
            self._check([self.id], frame.columns)
            ids = np.array(
                text_column(frame[self.id], str(self.path), "id", missing=True).to_list(), dtype=object
            )
        return labels, ids

    def check(self) -> None:
        """Check what the rows hold, for their owner alone: numbers or not, without a schema all is well."""

    def _compare(self, own: Sequence[str], agreed: Sequence[str]) -> None:
        if not set(agreed) <= set(own):
            whose = f"{self.path} has" if self.columns is None else "its owner lists"
            raise ColumnsError(f"the agreed columns are {listed(agreed)}; {whose} {listed(own)}.")

    def _check(self, wanted: Sequence[str], there: Sequence[str]) -> None:
        if not wanted:
            raise DataError(f"{self.path} has no feature columns; its columns are {listed(there)}.")
        if lacking := [one for one in wanted if one not in there]:
            raise DataError(f"{self.path} has no column {lacking[0]!r}; its columns are {listed(there)}.")

    def _frame(self) -> pl.DataFrame:
        """Return all columns; those of a CSV file as text."""
        if is_folder(self.path):
            raise DataError(f"{self.path} is a folder; a node's table is one file.")
        if not self.named:
            return rows_frame(self.path, read_arrays(self.path), (self.label, self.id), empty=True)
        return frame_by_rows(self.path, self.separator)


def frame_by_rows(path: Path, separator: str | None) -> pl.DataFrame:
    """Return all columns of a file that names them, those of a CSV file as text; no row makes it fail.

    Raises:
        DataError: the file is missing or unreadable, or its header is none.
    """
    content = content_of(path)
    if not is_text(path):
        return columns_of(path, content)
    # A byte that is no UTF-8 spoils its own field only.
    content = content.removeprefix(codecs.BOM_UTF8).decode("utf-8", errors="replace").encode()
    return frame_of_lines(path, content, separator)


MOST_OF_A_LINE = 1 << 16
"""Bytes from which on a line is read by itself: `csv` refuses long fields, which polars reads."""


def frame_of_lines(path: Path, content: bytes, separator: str | None) -> pl.DataFrame:
    """Return all columns of a CSV file as text; each line is a row, whatever the others hold.

    Args:
        path: names the file in errors.
        content: UTF-8 text, from the header on.
        separator: of fields; None to take the header's.

    Raises:
        DataError: its header is none.
    """
    content = from_header(content)
    header, _, rest = content.partition(b"\n")
    separator = separator_in(content, separator)
    names = names_in(path, header, separator)
    # Blank lines at the end are no rows, except in a file of one column, where they are missing values.
    body = rest.rstrip(b"\r\n") if len(names) > 1 else rest
    # A return within a line is a blank: the two ways to fields below read it otherwise.
    body = body.replace(b"\r\n", b"\n").replace(b"\r", b" ")
    body += b"\n" if body and not body.endswith(b"\n") else b""
    if not _odd(body, separator):
        # Some line may be none of a table; then each is read by itself, to the same fields.
        with suppress(pl.exceptions.PolarsError):
            frame = pl.read_csv(header + b"\n" + body, separator=separator, infer_schema=False)
            frame.columns = names
            return frame
    rows = [_fields(line, separator, len(names)) for line in body.decode().split("\n")[:-1]]
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")


def _odd(body: bytes, separator: str) -> bool:
    """Say whether the two ways to fields may differ: on long lines, and quotes that are no whole fields."""
    if re.search(rb"^[^\n]{%d}" % min(csv.field_size_limit(), MOST_OF_A_LINE), body, re.MULTILINE):
        return True
    if b'"' not in body:
        return False
    one = rf'(?:"(?:[^"]++|"")*+"|[^"{re.escape(separator)}]*+)'
    whole = re.compile(rf"{one}(?:{re.escape(separator)}{one})*+")
    return any('"' in line and not whole.fullmatch(line) for line in body.decode().split("\n"))


def _fields(line: str, separator: str, n: int) -> list[str | None]:
    """Return a line's fields; nothing but missing values for a line that has too many, or is none."""
    try:
        found: list[str | None] = list(next(csv.reader([line], delimiter=separator), []))
    except csv.Error:
        found = []
    return [*found, *[None] * (n - len(found))] if len(found) <= n else [None] * n


@dataclass(frozen=True, eq=False)
class ReadRows:
    """What was read, and what becomes of it.

    Args:
        columns: names of the feature columns.
        table: float64 of shape (n_rows, n_columns), with NaN or infinity where no number is written.
        codes: class of each row, `NO_LABEL` for none, int64 of shape (n_rows,); None without a label column.
        missing: the rule for rows without a number somewhere.
        texts: id of each row, None for none, object of shape (n_rows,); None without an id column.
        said: what a schema's reading found, in place of counts of rows without a number; None without one.
    """

    columns: tuple[str, ...]
    table: FloatArray
    codes: LabelArray | None
    missing: Missing
    texts: Ids | None = None
    said: tuple[str, ...] | None = None

    @property
    def kept(self) -> npt.NDArray[np.bool_]:
        """Which rows are used, bool of shape (n_rows,): those with an id, where there are any."""
        kept = filled(self.table, self.missing)[1]
        return kept if self.texts is None else kept & np.array([one is not None for one in self.texts], bool)

    @property
    def features(self) -> FloatArray:
        """Rows that are used, float64 of shape (n_used, n_columns), finite."""
        return filled(self.table, self.missing)[0][self.kept]

    @property
    def ids(self) -> tuple[str, ...] | None:
        """Whose each used row is."""
        return None if self.texts is None else tuple(self.texts[self.kept])

    @property
    def labels(self) -> LabelArray | None:
        """Classes of the rows that are used, int64 of shape (n_used,)."""
        return None if self.codes is None else self.codes[self.kept]

    def problems(self) -> list[str]:
        """Return how many rows lack a number or a class, as texts for the rows' owner alone."""
        used = "left out" if self.missing == LEAVE_OUT else f"given the number {self.missing:g}"
        counts = np.count_nonzero(~np.isfinite(self.table), axis=0)
        found = list(self.said or ())
        found += (
            []
            if self.said is not None
            else [
                f"{count} of {len(self.table)} rows have no number in column {name!r}: {used}"
                for name, count in zip(self.columns, counts.tolist(), strict=True)
                if count
            ]
        )
        if self.texts is not None and (count := sum(one is None for one in self.texts)):
            found.append(f"{count} of {len(self.texts)} rows have no id: left out")
        if self.codes is not None and (count := int((self.codes == NO_LABEL).sum())):
            what = "no class (a whole number from 0, below the number of classes)"
            found.append(
                f"{count} of {len(self.codes)} rows have {what}: in no training, and in no count of labels"
            )
        return found

    def report(self, domain: Domain | None = None) -> list[str]:
        """Return what the rows are, as texts with counts for the rows' owner alone.

        Args:
            domain: the declared domain, where one is known.
        """
        used = self.features
        said = [f"{len(used)} of {len(self.table)} rows are used, of columns {', '.join(self.columns)}"]
        said += self.problems()
        if domain is not None and (outside := int((~domain.contains(used)).sum())):
            said.append(f"{outside} of {len(used)} rows lie outside the agreed domain: moved to its border")
        return said
