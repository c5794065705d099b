"""Checks tables against a schema at home: what becomes of their rows, for the rows' owner alone."""

from __future__ import annotations

import datetime
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from privfed.core.values.shown import as_table
from privfed.data.own import OwnFile
from privfed.data.table_files import files_of, is_folder, stem
from privfed.tables.described_tables import Described, Finding, read_described
from privfed.tables.merging import UNITS, inverse
from privfed.tables.schema import NUMBER, Schema

_MOST_CHANGED: Final = 0.05
_FEW_ROWS: Final = 20


@dataclass(frozen=True)
class Check:
    """What a schema makes of tables; a notebook shows it as a table.

    Args:
        findings: what was found, with counts and values that stay with the rows' owner.
        rows: rows of all tables.
        left_out: how many of these are left out.
        changed: column -> rows that are clipped, left out or filled for what they hold there.
        days: column of dates -> its first and its last day.
    """

    findings: tuple[Finding, ...]
    rows: int
    left_out: int = 0
    changed: dict[str, int] = field(default_factory=dict)
    days: dict[str, tuple[datetime.date, datetime.date]] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Whether the tables can be used as they are."""
        return not any(one.mistake for one in self.findings)

    @property
    def lines(self) -> list[tuple[str, ...]]:
        """Texts of the findings, under the names of `HEAD`."""
        return [
            (
                one.file,
                one.column,
                str(one.count),
                ": ".join((one.what, *map(repr, one.values))),
                one.remedy + " (!)" * one.mistake,
            )
            for one in self.findings
        ]

    _repr_html_ = as_table(lambda self: [HEAD, *self.lines])


HEAD: Final[tuple[str, ...]] = ("file", "column", "rows", "what", "remedy")


def check_tables(data: str | os.PathLike[str], schema: Schema, *, allow: Sequence[str] = ()) -> Check:
    """Say what a schema makes of a table, or of a folder of tables. Nothing leaves this machine.

    Args:
        data: the table or folder.
        schema: what the columns mean.
        allow: columns of which more than 5 % of the rows may be clipped, left out or filled.

    Raises:
        DataError: a file cannot be read, or lacks a column.
    """
    read = {str(path): read_described(path, schema) for path in _paths(Path(data))}
    rows = sum(len(one.kept) for one in read.values())
    findings = [one for path, found in read.items() for one in _of_file(path, found, schema, allow)]
    findings += _units(read, schema)
    findings += [
        Finding(
            str(data),
            name,
            f"rest on a guess of {', '.join(own.guessed)}",
            rows,
            "if it is right, take it out of guessed in the schema",
        )
        for name, own in schema.columns.items()
        if own.guessed
    ]
    names = [name for name, own in schema.columns.items() if own.is_feature]
    ends = {name: [one.days[name] for one in read.values() if name in one.days] for name in names}
    return Check(
        tuple(findings),
        rows,
        sum(int(np.count_nonzero(~one.kept)) for one in read.values()),
        {name: sum(one.changed[name] for one in read.values()) for name in names},
        {name: (min(a for a, _ in one), max(b for _, b in one)) for name, one in ends.items() if one},
    )


def report_flat(data: str | os.PathLike[str], **given: str | None) -> list[str]:
    """Return what becomes of the rows of tables without a schema under a claim, for their owner alone.

    Args:
        data: a table with named columns, or a folder of such.
        **given: the columns `label`, `id` and `group` that are no features.
    """
    return [
        f"{path}: {one}"
        for path in _paths(Path(data))
        for one in OwnFile(path=path, label=given.get("label"), id=given.get("id")).read().report()
    ]


def _paths(data: Path) -> list[Path]:
    return sorted(files_of(data)) if is_folder(data) else [data]


def _of_file(path: str, found: Described, schema: Schema, allow: Sequence[str]) -> Iterator[Finding]:
    """Yield what was found in one file."""
    rows, wrong = len(found.kept), {one.column for one in found.findings if one.mistake}
    if not rows:
        yield Finding(path, "", "are in the file", 0, "export it anew, or leave the client out", True)
    yield from found.findings
    for name, count in found.changed.items():
        if count > _MOST_CHANGED * rows and name not in {*wrong, *allow}:
            yield Finding(
                path,
                name,
                f"are clipped, left out or filled ({count / rows:.0%}, more than 5 %)",
                count,
                f"correct the schema, or give --allow {name}",
                True,
            )
    if lost := int(np.count_nonzero(~found.kept)):
        yield Finding(path, "", "are left out for one column or more", lost, "the others are used")
    for name in found.changed if rows >= _FEW_ROWS else ():
        text, number = found.frame[name], schema.columns[name].kind == NUMBER
        if number and text.n_unique() == rows and text.str.contains("^[0-9]+$").all():
            yield Finding(
                path, name, "hold whole numbers that all differ", rows, 'is it an id? Give kind = "id"'
            )
        if text.n_unique() == 1:
            yield Finding(
                path, name, "hold one value", rows, "if others have the same, take it out of the schema"
            )
    for name, (first, last) in found.days.items():
        yield Finding(
            path, name, f"have days from {first} to {last}", rows, "are these the days that you expect?"
        )


def _units(read: dict[str, Described], schema: Schema) -> Iterator[Finding]:
    """Yield columns whose median in one file is that of the others in another usual unit."""
    for name in schema.of(NUMBER):
        place, (shift, spread) = schema.features.index(name), schema.scaling(schema.columns[name])
        medians = {
            path: float(np.median(one.features[one.kept, place])) * spread + shift
            for path, one in read.items()
            if one.kept.any()
        }
        for path, what, given in in_other_units(name, medians):
            remedy = f"if so, give the unit in [files.{stem(Path(path))}.units] and its {given}"
            yield Finding(path, name, what, len(read[path].kept), remedy)


def in_other_units(name: str, medians: Mapping[str, float]) -> Iterator[tuple[str, str, str]]:
    """Yield whose median is that of the others in another usual unit, what it is, and the conversion.

    Args:
        name: of the column.
        medians: whose -> median; of fewer than three nothing is said.
    """
    for whose, own in medians.items() if len(medians) > 2 else ():
        others = float(np.median([one for other, one in medians.items() if other != whose]))
        # Units of what the column's name says come before units of anything.
        near = [
            (pattern == "", first, second, given)
            for pattern, a, b, *both in UNITS
            for first, second, given in ((a, b, (both[0], both[1])), (b, a, inverse((both[0], both[1]))))
            if re.search(pattern, name.casefold()) and own > 0.0 and others > 0.0
            if abs(math.log(own / others)) > 0.1
            if 0.9 < (own * given[0] + given[1]) / others < 1.1
        ]
        for _, first, second, given in sorted(near)[:1]:
            offset = f" and offset, [{given[0]:.4g}, {given[1]:.4g}]" if given[1] else ""
            what = f"have a median {own / others:.3g} times that of the others, as {first} to {second}"
            yield whose, what, f"factor {given[0]:.4g}{offset}"
