"""The work of `privfed schema` and `privfed check`: what columns mean, found and checked at home."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
import polars as pl

from privfed.cli.output import answer, echo, table
from privfed.core.stored.files import write_new
from privfed.data.described_tables import Finding, numbers_in, read_described, text_frame
from privfed.data.schema import DATE, ORDINAL, Column, File, Schema, parse, read_schema, to_toml
from privfed.data.table import same_but_for_spelling
from privfed.data.table_files import files_of, is_folder, stem
from privfed.errors import ArgumentError, DataError

Known = TypeVar("Known")

_CODES = ("?", "na", "n/a", "nan", "none", "null")
_DAYS = ("%Y-%m-%d", "%d.%m.%Y", "%d-%m-%Y", "%d/%m/%Y", "%m/%d/%Y")
_TIMES = tuple(f"{day}{time}" for day in _DAYS for time in (" %H:%M", " %H:%M:%S%.f", "T%H:%M:%S%.f"))
_NINES = "^(-?9{2,}|-1)([.,]0*)?$"
_MOST_CATEGORIES = 300
_ROWS_LIKE_IDS = 20
"""Fewer rows may differ in a whole number by chance."""


def draft(data: Path, out: Path | None, **written: Any) -> None:
    """Do the work of `privfed schema draft`."""
    file = msgspec.convert({name: one for name, one in written.items() if one is not None}, File)
    frame = text_frame(data, file)
    columns, dates = dict[str, Column](), dict[str, str]()
    for name in frame.columns:
        found = _guess(str(data), name, frame[name], file)
        if found is not None:
            # Each site writes dates in its way: how stands with the file, so that drafts agree on the column.
            dates |= {} if found.format == Column(kind=DATE).format else {name: found.format}
            columns[name] = msgspec.structs.replace(found, format=Column(kind=DATE).format)
    file = msgspec.structs.replace(file, dates=dates)
    files = {} if file == File() else {stem(data): file}
    text = to_toml(Schema(columns=columns, files=files))
    parse(text, f"the draft of {data}")
    echo(
        "privfed: read the draft before you pass it on: its categories and codes are this table's.", err=True
    )
    _write(out, text)


def merge_schemas(files: tuple[Path, ...], out: Path | None) -> None:
    """Do the work of `privfed schema merge`.

    Raises:
        ArgumentError: there are fewer than two files, or two contradict each other; the message names them.
    """
    if len(files) < 2:
        raise ArgumentError(f"{files[0]} alone is merged with nothing; name two files or more.")
    schemas = [read_schema(one) for one in files]
    whole = schemas[0]
    for path, one in zip(files[1:], schemas[1:], strict=True):
        try:
            whole = merge(whole, one)
        except ArgumentError as error:
            raise ArgumentError(f"{path} and those before it: {error}") from None
    text = to_toml(whole)
    parse(text, "the merged schema")
    lacking: dict[str, list[str]] = {}
    for name in whole.columns:
        without = [str(path) for path, one in zip(files, schemas, strict=True) if name not in one.columns]
        if without:
            lacking.setdefault(", ".join(without), []).append(repr(name))
    for places, names in lacking.items():
        echo(f"privfed: not in {places}: {', '.join(names)}.", err=True)
    if lacking:
        echo(
            "privfed: remove what not all have; or where it has another name, give the column's name in the "
            "draft, and names = {...} in its [files].",
            err=True,
        )
    _write(out, text)


def merge(first: Schema, second: Schema) -> Schema:
    """Return one schema of two: all columns, categories, codes and files; ranges hold both.

    Raises:
        ArgumentError: they contradict each other; the message names where.
    """
    columns = dict(first.columns)
    for name, own in second.columns.items():
        columns[name] = _merged(name, columns[name], own) if name in columns else own
    for name in first.files.keys() & second.files.keys():
        _same(f"file {name!r}", first.files[name], second.files[name])
    return Schema(
        scale=_same("scale", first.scale, second.scale),
        columns=columns,
        files={**first.files, **second.files},
    )


def _merged(name: str, a: Column, b: Column) -> Column:
    fields, others = msgspec.structs.asdict(a), msgspec.structs.asdict(b)
    for field in ("kind", "unit", "weight", "missing", "outside", "format", "origin", "shift", "spread"):
        _same(f"{field} of column {name!r}", fields[field], others[field])
    for unit in a.units.keys() & b.units.keys():
        _same(f"factor of {unit!r} of column {name!r}", a.units[unit], b.units[unit])
    if a.kind == ORDINAL:
        _same(f"order of column {name!r}", a.categories, b.categories)
    if (a.low is None) != (b.low is None):
        raise ArgumentError(
            f"one schema has a range of column {name!r}, the other has none; agree on it first."
        )
    return msgspec.structs.replace(
        a,
        units={**a.units, **b.units},
        categories=tuple(dict.fromkeys((*a.categories, *b.categories))),
        codes=tuple(dict.fromkeys((*a.codes, *b.codes))),
        exact=a.exact or b.exact,
        low=None if a.low is None or b.low is None else min(a.low, b.low, key=a.number),
        high=None if a.high is None or b.high is None else max(a.high, b.high, key=a.number),
    )


def _same(what: str, a: Known, b: Known) -> Known:
    if a != b:
        raise ArgumentError(
            f"the schemas differ in {what}: {a!r} and {b!r}; agree on one and write it in both."
        )
    return a


def check(data: Path, schema: Path, as_json: bool) -> None:
    """Do the work of `privfed check`; the exit code is 1 where a file cannot be used as it is."""
    described = read_schema(schema)
    paths = sorted(files_of(data)) if is_folder(data) else [data]
    findings = list[Finding]()
    for path in paths:
        found = read_described(path, described)
        if not len(found.kept):
            findings.append(
                Finding(str(path), "", "are in the file", 0, "export it anew, or leave the client out", True)
            )
        findings += [*found.findings, *_telling_little(str(path), found.frame, described)]
    pairs = same_but_for_spelling([stem(one) for one in paths])
    lines = ((one.file, one.column, str(one.count), one.what, one.remedy) for one in findings)
    shown = table(("file", "column", "rows", "what", "remedy"), lines)
    answer(findings, as_json, shown if findings else f"{data}: nothing is clipped, dropped or imputed")
    for a, b in pairs:
        echo(
            f"privfed: files {a!r} and {b!r} differ in spelling only; is it one client? If not, fit takes "
            "both with --clients.",
            err=True,
        )
    if any(one.mistake for one in findings):
        raise click.exceptions.Exit(1)


def _telling_little(path: str, frame: pl.DataFrame, schema: Schema) -> Iterator[Finding]:
    """Yield the features that look like ids, and those with one value."""
    for name in schema.of("number"):
        if _is_id(frame[name]):
            said = "hold whole numbers that all differ"
            yield Finding(path, name, said, frame.height, 'is it an id? Give kind = "id"')
    for name, own in schema.columns.items():
        if own.is_feature and frame.height >= _ROWS_LIKE_IDS and frame[name].n_unique() == 1:
            remedy = "if others have the same, take it out of the schema"
            yield Finding(path, name, "hold one value", frame.height, remedy)


def _is_id(text: pl.Series) -> bool:
    """Say whether all values are whole numbers or texts that differ."""
    whole = text.str.contains(r"^[^.,]*$").fill_null(False).all()
    return len(text) >= _ROWS_LIKE_IDS and bool(whole) and text.n_unique() == len(text)


def _guess(path: str, name: str, text: pl.Series, file: File) -> Column | None:
    present = text.drop_nulls()
    lower = present.str.to_lowercase()
    codes = tuple(sorted(present.filter(lower.is_in(_CODES)).unique()))
    present = present.filter(~lower.is_in(_CODES))
    if not len(present):
        echo(f"privfed: {path}: column {name!r} holds no value; it is left out.", err=True)
        return None
    known = _TIMES if ":" in str(present[0]) else _DAYS
    formats = [one for one in known if present.str.to_date(one, strict=False).null_count() == 0]
    if not formats and _is_id(text):
        return Column(kind="id", codes=codes)
    read = numbers_in(present, file.decimal, file.thousands)
    odd = present.filter(read.is_null())
    _hint_codes(path, name, present, read)
    _hint_thousands(path, name, present, file)
    if 2 * len(odd) < len(present) and odd.n_unique() <= 3:
        return Column(kind="number", codes=(*codes, *sorted(odd.unique())))
    signed = present.str.contains(r"^[+-]?[0-9]+([.,][0-9]+)*[.,][0-9]+$").sum()
    if len(formats) == 1:
        return Column(kind="date", format=formats[0], codes=codes)
    if not formats and 2 * signed > len(present):
        raise DataError(
            f"{path}: column {name!r}: {signed} rows have commas or points that may stand before decimals or "
            "thousands; say which with --decimal and --thousands."
        )
    if formats or present.n_unique() > min(_MOST_CATEGORIES, len(present) // 2):
        what = "dates whose day may be a month" if formats else "free text"
        echo(
            f"privfed: {path}: column {name!r} holds {what}; it is left out, add it if it matters.", err=True
        )
        return None
    return Column(kind="category", categories=tuple(sorted(present.unique())), codes=codes)


def _hint_codes(path: str, name: str, text: pl.Series, read: pl.Series) -> None:
    """Say which values look like codes for missing ones: nines or -1, in some rows, beyond all others."""
    coded = text.str.contains(_NINES) & read.is_not_null()
    others = read.filter(~coded).drop_nulls()
    for value in sorted(text.filter(coded).unique()) if len(others) else []:
        rows, number = int((text == value).sum()), float(read.filter(text == value)[0])
        if rows > 1 and not float(others.min()) <= number <= float(others.max()):  # type: ignore[arg-type]
            echo(
                f"privfed: {path}: column {name!r} is {value} in {rows} rows, beyond all other values; if it "
                "stands for a missing one, add it to codes.",
                err=True,
            )


def _hint_thousands(path: str, name: str, text: pl.Series, file: File) -> None:
    """Say where the decimal sign stands before three digits in all rows, as between thousands."""
    sign = file.decimal
    signed = text.filter(text.str.contains(sign, literal=True))
    if len(signed) and signed.str.contains(rf"^[+-]?[1-9][0-9]{{0,2}}[{sign}][0-9]{{3}}$").all():
        other = "," if sign == "." else "."
        echo(
            f"privfed: {path}: column {name!r} has {sign!r} before three digits in all {len(signed)} rows "
            f"that have it, read as a decimal sign; if it stands between thousands, give "
            f"--decimal '{other}' --thousands '{sign}'.",
            err=True,
        )


def _write(out: Path | None, text: str) -> None:
    if out is None:
        click.echo(text, nl=False)
        return
    write_new(out, text.encode())
