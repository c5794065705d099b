"""Reads tables as a schema describes them: text to numbers, column by column, with what was found on the way.

A mistake names file, column, count and remedy, and never quotes a value. What `findings` tells stays with the
owner of the rows; under differential privacy no row causes an error.
"""

from __future__ import annotations

import codecs
import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from privfed.core.values.domain import FloatArray
from privfed.data.own import frame_of_lines
from privfed.data.schema import CATEGORY, DATE, ERROR, Column, File, Schema
from privfed.data.table import LEAVE_OUT, repeated
from privfed.data.table_files import (
    are_rows,
    columns_of,
    content_of,
    csv_columns,
    is_text,
    not_utf8,
    stem,
    suffix,
)
from privfed.errors import ArgumentError, DataError

Flags = npt.NDArray[np.bool_]


class Finding(msgspec.Struct, frozen=True):
    """Says what becomes of some rows of a file, or what stands against using it.

    Args:
        file: the file.
        column: the column.
        what: what was found.
        count: number of rows.
        remedy: what helps, or what happens to them.
        mistake: whether the file cannot be used as it is.
    """

    file: str
    column: str
    what: str
    count: int
    remedy: str
    mistake: bool = False

    def __str__(self) -> str:
        return f"{self.file}: column {self.column!r}: {self.count} rows {self.what}; {self.remedy}"


@dataclass(frozen=True, eq=False)
class Described:
    """Rows of one file as a schema describes them.

    Args:
        frame: all columns of the schema that are in the file, as text, under the schema's names.
        features: float64 of shape (n_rows, n_features); rows that are not kept may hold anything finite.
        kept: bool of shape (n_rows,), the rows that are not left out.
        findings: what was found; of the owner of the rows alone.
    """

    frame: pl.DataFrame
    features: FloatArray
    kept: Flags
    findings: tuple[Finding, ...]

    def checked(self) -> Described:
        """Return this, unless there are mistakes.

        Raises:
            DataError: the first mistake, and how many more there are.
        """
        mistakes = [one for one in self.findings if one.mistake]
        if mistakes:
            more = f" ({len(mistakes) - 1} more: see privfed check)" if len(mistakes) > 1 else ""
            raise DataError(f"{mistakes[0]}{more}.")
        return self


def text_frame(path: Path, file: File, *, private: bool = False) -> pl.DataFrame:
    """Return all columns of a file as text, blanks around it removed, an empty field as null.

    Args:
        path: a CSV, TSV, Parquet or .xlsx file.
        file: how it is written.
        private: whether no row may cause an error; then a line is a row, also within quotes.

    Raises:
        ArgumentError: its encoding is unknown.
        DataError: it is missing, or no table; or it is no UTF-8 and no encoding is given.
    """
    if suffix(path) == ".npz":
        raise DataError(
            f"{path} holds arrays, whose columns have no names; a schema needs a CSV, Parquet or .xlsx file."
        )
    content = content_of(path)
    if not is_text(path):
        frame = columns_of(path, content)
    elif private:
        frame = frame_of_lines(path, _utf8(path, content, file.encoding, private), file.separator)
    else:
        frame = csv_columns(path, _utf8(path, content, file.encoding, private), file.separator)
    frame = as_text(path, frame)
    return frame if private else frame.filter(are_rows(frame))


def as_text(path: Path, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of a table as text, blanks around it removed, an empty field as null.

    A whole number is written without a point: where values are missing, programs save whole ones as floats.

    Raises:
        DataError: a column holds lists, structures or bytes.
    """
    try:
        text = frame.select(_written(pl.col(name), kind) for name, kind in frame.schema.items())
        return text.select(pl.all().str.strip_chars().replace("", None))
    except pl.exceptions.PolarsError:
        raise DataError(f"{path} has a column that is no text, number or date; leave it out.") from None


def _written(column: pl.Expr, kind: pl.DataType) -> pl.Expr:
    if not kind.is_float():
        return column.cast(pl.String)
    whole = (column == column.floor()) & (column.abs() < 2.0**53)
    digits = column.cast(pl.Int64, strict=False).cast(pl.String)
    others = column.fill_nan(None).cast(pl.String)
    return pl.when(whole).then(digits).otherwise(others).alias(column.meta.output_name())


def _utf8(path: Path, content: bytes, encoding: str | None, private: bool) -> bytes:
    if encoding is None:
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            encoding = "utf-16"
        elif not private and (wrong := not_utf8(path, content.removeprefix(codecs.BOM_UTF8))):
            remedy = (
                f'or give encoding = "latin-1" in [files.{stem(path)}] (to schema draft, --encoding latin-1)'
            )
            raise DataError(f"{str(wrong).rstrip('.')}, {remedy}.")
        else:
            encoding = "utf-8-sig"
    try:
        return content.decode(encoding, errors="replace" if private else "strict").encode()
    except LookupError:
        raise ArgumentError(
            f"{path}: {encoding!r} is no encoding; write one such as latin-1, utf-8 or utf-16."
        ) from None
    except UnicodeDecodeError:
        raise DataError(
            f"{path} is no text in {encoding}; correct encoding in [files.{stem(path)}]."
        ) from None


def read_described(
    path: str | os.PathLike[str],
    schema: Schema,
    *,
    private: bool = False,
    also: Sequence[str] | None = (),
) -> Described:
    """Read one file as a schema describes it; its columns are found by name, others are left out.

    Property: without mistakes, what becomes of a row depends on that row and the schema alone.

    Args:
        path: a CSV, TSV, Parquet or .xlsx file.
        schema: what its columns mean.
        private: whether no row may cause an error; an unreadable value is then a missing one.
        also: further columns to keep, such as the one of the clients; None for all of the file.

    Raises:
        DataError: the file cannot be read, or lacks a feature's column. What rows hold is a finding.
    """
    path = Path(path)
    file = schema.files.get(stem(path), File())
    frame = text_frame(path, file, private=private)
    named = [file.names.get(name, name) for name in frame.columns]
    if twice := repeated(named):
        raise DataError(
            f"{path}: two columns are called {twice[0]!r} once names of [files.{stem(path)}] are applied; "
            "correct names, or rename a column."
        )
    frame.columns = named
    wanted = [name for name, own in schema.columns.items() if own.is_feature]
    also = frame.columns if also is None else also
    for name in (*wanted, *also):
        if name in file.names and name not in frame.columns:
            raise DataError(
                f"{path}: column {name!r} is called {file.names[name]!r} by names of [files.{stem(path)}]; "
                "name it so."
            )
        if name not in frame.columns:
            near = difflib.get_close_matches(name.casefold(), [one.casefold() for one in frame.columns], 1)
            found = [one for one in frame.columns if one.casefold() in near]
            hint = f", whose near name is {found[0]!r}" if found else ""
            raise DataError(
                f"{path} has no column {name!r}{hint}; rename one, or give names in [files.{stem(path)}]."
            )
    findings, kept, parts = list[Finding](), are_rows(frame).to_numpy(), list[FloatArray]()
    for name in wanted:
        reading = _Reading(str(path), stem(path), name, schema.columns[name], file, private)
        values, own_kept = reading.read(frame[name], *schema.scaling(schema.columns[name]))
        parts.append(values)
        kept &= own_kept
        findings += reading.findings
    there = [name for name in (*schema.columns, *also) if name in frame.columns]
    return Described(
        frame.select(list(dict.fromkeys(there))), np.concatenate(parts, axis=1), kept, tuple(findings)
    )


class _Reading:
    """Reads one column of one file."""

    def __init__(self, path: str, name: str, column: str, own: Column, file: File, private: bool) -> None:
        self._path, self._name, self._column, self._own, self._file = path, name, column, own, file
        self._private = private
        self.findings = list[Finding]()

    def _found(self, rows: Flags, what: str, remedy: str, mistake: bool = False) -> None:
        if count := int(np.count_nonzero(rows)):
            self.findings.append(
                Finding(self._path, self._column, what, count, remedy, mistake and not self._private)
            )

    def read(self, text: pl.Series, shift: float, spread: float) -> tuple[FloatArray, Flags]:
        """Return finite values, float64 of shape (n_rows, n_features of the column), and the rows to keep."""
        own = self._own
        codes = [one.casefold() for one in own.codes]
        coded = text.is_null() | text.str.to_lowercase().is_in(codes).fill_null(False)
        absent = np.array(coded.to_numpy(), dtype=np.bool_)
        values = self._values(text)
        unread = np.isnan(values) & ~absent
        self._unreadable(unread, text)
        absent |= unread
        if own.kind != CATEGORY:
            values = values * own.units.get(self._file.units.get(self._column, ""), 1.0)
            absent |= self._clipped(values, absent)
        kept = self._filled(values, absent, absent & ~unread)
        if own.kind == CATEGORY:
            places = np.arange(len(own.categories), dtype=np.float64)
            return np.where(values[:, None] == places, own.weight, 0.0), kept
        return (values[:, None] - shift) / spread, kept

    def _values(self, text: pl.Series) -> FloatArray:
        """Return numbers, days, or positions of categories; NaN where there is none."""
        own = self._own
        if own.named:
            known = {name: float(place) for place, name in enumerate(own.categories)}
            found = text.replace_strict(known, default=None, return_dtype=pl.Float64)
        elif own.kind == DATE:
            form = self._file.dates.get(self._column, own.format)
            days = text.str.to_date(form, strict=False) - pl.Series([own.origin])
            found = days.dt.total_days().cast(pl.Float64)
        else:
            found = numbers_in(text, self._file.decimal, self._file.thousands)
        return np.array(found.fill_null(np.nan).to_numpy(), dtype=np.float64)

    def _unreadable(self, unread: Flags, text: pl.Series) -> None:
        kind = self._own.kind
        if self._own.named:
            remedy = "add theirs to its categories, or to its codes for missing values"
            self._found(unread, "have a category that the schema does not name", remedy, True)
        elif kind == DATE:
            remedy = f"correct its format or, in [files.{self._name}], dates; or add codes"
            self._found(unread, "have no date in its format", remedy, True)
        else:
            odd = "," if self._file.decimal == "." else "."
            signed = text.str.contains(odd, literal=True).fill_null(False).to_numpy() & unread
            sign = {",": "comma", ".": "point"}[odd]
            self._found(
                signed,
                f"have a {sign}, which may stand before decimals or thousands",
                f'say which with decimal = "{odd}" or thousands = "{odd}" in [files.{self._name}]',
                True,
            )
            self._found(unread & ~signed, "hold no number", "add their texts to its codes", True)

    def _clipped(self, values: FloatArray, absent: Flags) -> Flags:
        """Clip values to the range in place; return which become missing."""
        ends, rule = self._own.range, self._own.outside
        if ends is None:
            return np.zeros(len(values), dtype=np.bool_)
        outside = ~absent & ((values < ends[0]) | (values > ends[1]))
        remedy = {
            "clip": "they are clipped",
            "missing": "they become missing",
            "error": "correct the unit or range, or give outside to say that they are clipped or missing",
        }
        self._found(outside, "lie outside the declared range", remedy[rule], rule == ERROR)
        np.clip(values, *ends, out=values)
        return outside if rule == "missing" else np.zeros(len(values), dtype=np.bool_)

    def _filled(self, values: FloatArray, absent: Flags, told: Flags) -> Flags:
        """Put the declared value in place of missing ones, where not `told` before; return rows to keep."""
        own, rule = self._own, self._own.missing
        if rule in (ERROR, LEAVE_OUT):
            values[absent] = 0.0 if own.range is None or own.kind == CATEGORY else own.range[0]
            remedy = "give missing to say that they are left out, or what is put in their place"
            remedy = "they are left out" if rule == LEAVE_OUT else remedy
            self._found(told, "have no value", remedy, rule == ERROR)
            return ~absent
        place = own.categories.index(str(rule)) if own.named else own.number(rule)
        values[absent] = place
        self._found(told, "have no value", "the declared value is put in")
        return np.ones(len(values), dtype=np.bool_)


def numbers_in(text: pl.Series, decimal: str, thousands: str) -> pl.Series:
    """Return the numbers that are written with these signs as float64; null where none is."""
    point, gap = ("\\" + one if one == "." else one for one in (decimal, thousands))
    plain = rf"[0-9]+({point}[0-9]*)?([eE][+-]?[0-9]+)?|{point}[0-9]+"
    grouped = rf"|[0-9]{{1,3}}({gap}[0-9]{{3}})+({point}[0-9]*)?" if thousands else ""
    fits = text.str.contains(f"^[+-]?({plain}{grouped})$").fill_null(False)
    cleaned = text.str.replace_all(thousands, "", literal=True) if thousands else text
    found = cleaned.str.replace(decimal, ".", literal=True).cast(pl.Float64, strict=False)
    mask = fits & found.is_finite().fill_null(False)
    return pl.select(pl.when(mask).then(found).otherwise(None)).to_series()
