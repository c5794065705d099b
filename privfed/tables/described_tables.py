"""Reads tables as a schema describes them: text to numbers, column by column, with what was found on the way.

A mistake names file, column, count and remedy, and never quotes a value. What `findings` tells stays with the
owner of the rows; under differential privacy no row causes an error.
"""

from __future__ import annotations

import codecs
import datetime
import difflib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from privfed.core.values.domain import FloatArray
from privfed.data.conversion import as_text
from privfed.data.own import frame_of_lines
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
from privfed.tables.dates import days_in
from privfed.tables.schema import CATEGORY, DATE, ERROR, Column, File, Schema

_SHOWN = 3
"""Most values of a finding that its owner is shown."""

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
        values: some of the values that cannot be read, for their owner alone: no message quotes them.
    """

    file: str
    column: str
    what: str
    count: int
    remedy: str
    mistake: bool = False
    values: tuple[str, ...] = ()

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
        changed: column -> rows that are clipped, left out or filled for what they hold there.
        days: column of dates -> its first and its last day.
    """

    frame: pl.DataFrame
    features: FloatArray
    kept: Flags
    findings: tuple[Finding, ...]
    changed: dict[str, int] = field(default_factory=dict)
    days: dict[str, tuple[datetime.date, datetime.date]] = field(default_factory=dict)

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


def text_frame(
    path: Path, file: File, *, private: bool = False, content: bytes | None = None
) -> pl.DataFrame:
    """Return all columns of a file as text, blanks around it removed, an empty field as null.

    Args:
        path: a CSV, TSV, Parquet or .xlsx file.
        file: how it is written.
        private: whether no row may cause an error; then a line is a row, also within quotes.
        content: what is in it, where it has been read.

    Raises:
        ArgumentError: its encoding is unknown.
        DataError: it is missing, or no table; or it is no UTF-8 and no encoding is given.
    """
    if suffix(path) == ".npz":
        raise DataError(
            f"{path} holds arrays, whose columns have no names; a schema needs a CSV, Parquet or .xlsx file."
        )
    content = content_of(path) if content is None else content
    if not is_text(path):
        frame = columns_of(path, content)
    elif private:
        frame = frame_of_lines(path, _utf8(path, content, file.encoding, private), file.separator)
    else:
        frame = csv_columns(path, _utf8(path, content, file.encoding, private), file.separator)
    frame = as_text(path, frame)
    frame = frame if private else frame.filter(are_rows(frame))
    return wide(path, frame, file) if file.long else frame


def wide(path: Path, frame: pl.DataFrame, file: File) -> pl.DataFrame:
    """Return one row for each person of a long table, in the order of ids (`File.long`).

    Raises:
        DataError: the file lacks a column.
    """
    of = {role: one for role, one in file.long.items() if role != "take"}
    if lacking := [one for one in of.values() if one not in frame.columns]:
        raise DataError(f"{path} has no column {lacking[0]!r}; correct long in [files.{stem(path)}].")
    # Names are the schema's from here on, so that two of the file's may be one of them.
    frame = frame.with_columns(pl.col(of["name"]).replace(file.names))
    given = pl.all_horizontal(pl.col(of["id"], of["name"], of["value"]).is_not_null())
    frame = frame.filter(given & ~pl.col(of["name"]).is_in([of["id"], file.names.get(of["id"], "")]))
    if "date" in of:
        days = days_in(frame[of["date"]], file.dates.get(of["date"], "%Y-%m-%d"))
        order = days if days.null_count() < len(days) else frame[of["date"]]
        frame = frame.with_columns(order.alias("")).sort("", maintain_order=True).drop("")
    kept = frame.unique(
        [of["id"], of["name"]],
        keep="first" if file.long.get("take") == "first" else "last",
        maintain_order=True,
    )
    return kept.pivot(of["name"], index=of["id"], values=of["value"]).sort(of["id"])


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
    gaps: Collection[str] = (),
) -> Described:
    """Read one file as a schema describes it; its columns are found by name, others are left out.

    Property: without mistakes, what becomes of a row depends on that row and the schema alone.

    Args:
        path: a CSV, TSV, Parquet or .xlsx file.
        schema: what its columns mean.
        private: whether no row may cause an error; an unreadable value is then a missing one.
        also: further columns to keep, such as the one of the clients; None for all of the file.
        gaps: columns in which a missing value is NaN, whatever becomes of it otherwise.

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
    if file.long:  # Which names occur depends on rows.
        frame = frame.with_columns(pl.lit(None, pl.String).alias(one) for one in {*wanted} - {*frame.columns})
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
    changed, days = dict[str, int](), dict[str, tuple[datetime.date, datetime.date]]()
    for name in wanted:
        reading = _Reading(str(path), stem(path), name, schema.columns[name], file, private, name in gaps)
        values, own_kept = reading.read(frame[name], *schema.scaling(schema.columns[name]))
        parts.append(values)
        kept &= own_kept
        findings += reading.findings
        changed[name] = int(np.count_nonzero(reading.changed))
        if reading.days is not None:
            days[name] = reading.days
    return Described(
        frame.select(
            list(dict.fromkeys([name for name in (*schema.columns, *also) if name in frame.columns]))
        ),
        np.concatenate(parts, axis=1),
        kept,
        tuple(findings),
        changed,
        days,
    )


class _Reading:
    """Reads one column of one file."""

    def __init__(
        self, path: str, name: str, column: str, own: Column, file: File, private: bool, gaps: bool
    ) -> None:
        self._path, self._name, self._column, self._own, self._file = path, name, column, own, file
        self._private, self._signs, self._gaps = private, (file.decimal, file.thousands), gaps
        self.findings = list[Finding]()
        self.changed = self._outside = np.zeros(1, dtype=np.bool_)
        self.days: tuple[datetime.date, datetime.date] | None = None

    def _found(
        self, rows: Flags, what: str, remedy: str, mistake: bool = False, text: pl.Series | None = None
    ) -> None:
        if count := int(np.count_nonzero(rows)):
            shown = () if text is None or self._private else tuple(text.filter(rows).unique().sort()[:_SHOWN])
            self.findings.append(
                Finding(self._path, self._column, what, count, remedy, mistake and not self._private, shown)
            )

    def read(self, text: pl.Series, shift: float, spread: float) -> tuple[FloatArray, Flags]:
        """Return finite values, float64 of shape (n_rows, n_features of the column), and the rows to keep."""
        own = self._own
        if meant := self._file.values.get(self._column):
            text = text.replace(meant)
        # Codes know no case, but a category's own text is none for being another one's in other case.
        coded = text.is_null() | (
            text.is_in(own.codes)
            | text.str.to_lowercase().is_in([one.lower() for one in own.codes]) & ~text.is_in(own.categories)
        ).fill_null(False)
        absent = np.array(coded.to_numpy(), dtype=np.bool_)
        values, bounds = self._values(text)
        bounds &= ~absent
        remedy = {
            ERROR: 'give censored = "bound" to take the bound, or "missing"',
            "bound": "the bound is taken",
            "missing": "they become missing",
        }[own.censored]
        self._found(
            bounds, "hold a bound, such as < or +, and no number", remedy, own.censored == ERROR, text
        )
        if own.censored != "bound":
            values[bounds] = np.nan
        unread = np.isnan(values) & ~absent
        self._unreadable(unread & ~bounds, text)
        absent |= unread
        changed = absent | bounds
        if own.kind != CATEGORY:
            factor, offset = own.conversion(self._file.units.get(self._column, ""))
            values = values * factor + offset
            lost = self._clipped(values, absent)
            changed, absent = changed | self._outside, absent | lost
        self.changed = changed
        kept = self._filled(values, absent, absent & ~unread)
        if own.kind == CATEGORY:
            places = np.arange(len(own.categories), dtype=np.float64)
            return np.where(values[:, None] == places, own.weight, 0.0 * values[:, None]), kept
        return (values[:, None] - shift) / spread, kept

    def _values(self, text: pl.Series) -> tuple[FloatArray, Flags]:
        """Return numbers, days, or positions of categories, NaN where there is none; and which are bounds."""
        own, bounds = self._own, np.zeros(len(text), dtype=np.bool_)
        if own.named:
            known = {name: float(place) for place, name in enumerate(own.categories)}
            found = text.replace_strict(known, default=None, return_dtype=pl.Float64)
        elif own.kind == DATE:
            days = days_in(text, self._file.dates.get(self._column, own.format), own.pivot)
            if days.null_count() < len(days):
                self.days = (days.min(), days.max())  # type: ignore[assignment]
            found = (days - pl.Series([own.origin])).dt.total_days().cast(pl.Float64)
        else:
            bare = without_unit(text, self._file.units.get(self._column) or own.unit)
            found, bound = numbers_in(bare, *self._signs), bounds_in(bare, *self._signs)
            bounds = (found.is_null() & bound.is_not_null()).to_numpy().copy()
            found = found.fill_null(bound)
        return np.array(found.fill_null(np.nan).to_numpy(), dtype=np.float64), bounds

    def _unreadable(self, unread: Flags, text: pl.Series) -> None:
        kind = self._own.kind
        if self._own.named:
            remedy = "add theirs to its categories or codes, or say what they mean in values of its file"
            self._found(unread, "have a category that the schema does not name", remedy, True, text)
        elif kind == DATE:
            remedy = f"correct its format or, in [files.{self._name}], dates; or add codes"
            self._found(unread, "have no date in its format", remedy, True, text)
        else:
            odd = "," if self._file.decimal == "." else "."
            signed = text.str.contains(odd, literal=True).fill_null(False).to_numpy() & unread
            sign = {",": "comma", ".": "point"}[odd]
            self._found(
                signed,
                f"have a {sign}, which may stand before decimals or thousands",
                f'say which with decimal = "{odd}" or thousands = "{odd}" in [files.{self._name}]',
                True,
                text,
            )
            self._found(unread & ~signed, "hold no number", "add their texts to its codes", True, text)

    def _clipped(self, values: FloatArray, absent: Flags) -> Flags:
        """Clip values to the range in place; return which become missing."""
        ends, rule = self._own.range, self._own.outside
        if ends is None:
            return self._outside
        self._outside = outside = ~absent & ((values < ends[0]) | (values > ends[1]))
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
        if self._gaps:
            values[absent] = np.nan
            return np.ones(len(values), dtype=np.bool_)
        if rule in (ERROR, LEAVE_OUT):
            values[absent] = 0.0 if own.range is None or own.kind == CATEGORY else own.range[0]
            remedy = "give missing to say that they are left out, or what is put in their place"
            self._found(
                told, "have no value", "they are left out" if rule == LEAVE_OUT else remedy, rule == ERROR
            )
            return ~absent
        values[absent] = own.categories.index(str(rule)) if own.named else own.number(rule)
        self._found(told, "have no value", "the declared value is put in")
        return np.ones(len(values), dtype=np.bool_)


def without_unit(text: pl.Series, unit: str | None) -> pl.Series:
    """Return texts without the unit at their end, where they have it."""
    return text if unit is None else text.str.strip_suffix(unit).str.strip_chars_end()


def bounds_in(text: pl.Series, decimal: str, thousands: str) -> pl.Series:
    """Return the bounds that are written as `<5`, `>= 5`, `5+` or the like as float64; null where none is."""
    below, above = text.str.extract(r"^[<>≤≥]=?\s*(.+)$"), text.str.extract(r"^(.+?)\s*\+$")
    return numbers_in(below.fill_null(above), decimal, thousands)


def numbers_in(text: pl.Series, decimal: str, thousands: str) -> pl.Series:
    """Return the numbers that are written with these signs as float64; null where none is."""
    # Spreadsheets write blanks that do not break, and a minus of its own.
    point, gap = ({".": "\\.", " ": "[ \u00a0\u202f]"}.get(one, one) for one in (decimal, thousands))
    text = text.str.replace("^\u2212", "-")
    plain = rf"[0-9]+({point}[0-9]*)?([eE][+-]?[0-9]+)?|{point}[0-9]+"
    grouped = rf"|[0-9]{{1,3}}({gap}[0-9]{{3}})+({point}[0-9]*)?" if thousands else ""
    fits = text.str.contains(f"^[+-]?({plain}{grouped})$").fill_null(False)
    cleaned = text.str.replace_all(gap, "") if thousands else text
    found = cleaned.str.replace(decimal, ".", literal=True).cast(pl.Float64, strict=False)
    return pl.select(
        pl.when(fits & found.is_finite().fill_null(False)).then(found).otherwise(None)
    ).to_series()
