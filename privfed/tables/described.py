"""What commands of the core ask of schemas; they find this module by name (`privfed.core.names.PARTS`)."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from privfed.cli.declared import Declared
from privfed.cli.predicting import ALL, KeptColumns
from privfed.cli.run_folder import IN_UNITS, TABLE
from privfed.core.values.domain import FloatArray
from privfed.data.table import ClientTables
from privfed.errors import ArgumentError
from privfed.tables.checking import in_other_units
from privfed.tables.described_clients import in_units, load_described, units_of
from privfed.tables.described_tables import read_described
from privfed.tables.schema import DATE, ID, Schema, parse, read_schema, schema_text

__all__ = [
    "check_meaning",
    "declared_by",
    "facts_of",
    "in_files",
    "in_units",
    "load_described",
    "parse",
    "read_schema",
    "rows_of",
    "schema_text",
    "units_between",
    "units_of",
]


def declared_by(schema: Schema, declared: Declared) -> Declared:
    """Return what is declared, with a schema's ranges as its domain where it has all.

    Raises:
        PrivacyError: differential privacy is claimed, and a row could cause an error.
    """
    if declared.claims:
        schema.check_private()
    ends = schema.domain()
    return declared if ends is None else msgspec.structs.replace(declared, low=ends[0], high=ends[1])


def in_files(text: str, centers: FloatArray) -> dict[str, dict[str, Any]]:
    """Return the tables of centers that a run's folder holds, by name: numbers, and as people read them."""
    schema = parse(text)
    shift, factor = units_of(schema)
    return {
        TABLE: dict(zip(schema.features, (shift + centers * factor + 0.0).T, strict=True)),
        IN_UNITS: in_units(schema, centers),
    }


def facts_of(schema: Schema, columns: Sequence[str]) -> list[tuple[str | None, datetime.date | None]]:
    """Return the unit of each feature, and of a date the day that its number counts from."""
    return [
        (None if own is None or date else own.unit, own.origin if own is not None and date else None)
        for own, date in [
            (own, own is not None and own.kind == DATE) for own in map(schema.columns.get, columns)
        ]
    ]


def units_between(tables: ClientTables, schema: Schema | None) -> list[str]:
    """Return whose rows seem to be in another unit, by medians of the tables at hand, which no sum tells."""
    shift, factor = (
        (np.zeros(len(tables.columns)), np.ones(len(tables.columns))) if schema is None else units_of(schema)
    )
    return [
        f"{whose}: in {name} its rows at hand {what}: {given}."
        for j, name in enumerate(tables.columns)
        for whose, what, given in in_other_units(
            name,
            {
                one.name: float(np.median(one.features[:, j]) * factor[j] + shift[j])
                for one in tables.tables
                if len(one.features)
            },
        )
    ]


def check_meaning(own: Schema, given: Schema, folder: Path, path: Path) -> None:
    """Check that columns mean in a schema what they mean in that of a run.

    Raises:
        ArgumentError: one means something else.
    """
    for name in own.columns:
        if _meaning(own, name) != _meaning(given, name):
            raise ArgumentError(
                f"column {name!r} has another unit, scale, weight, origin or kind in {path} than in "
                f"{folder}; take them from the schema that it was fitted with."
            )


def _meaning(schema: Schema, name: str) -> tuple[Any, ...] | None:
    """Return what makes a number of a column's value, but for how a file writes it; None for no feature."""
    own = schema.columns.get(name)
    if own is None or not own.is_feature:
        return None
    return own.kind, own.unit, own.categories, own.weight, own.origin, schema.scaling(own)


def rows_of(
    data: Path, schema: Schema, keep: tuple[str, ...] | None
) -> tuple[FloatArray, NDArray[np.bool_], KeptColumns]:
    """Return rows as a schema describes them, which are kept, and its ids with the columns to keep."""
    read = read_described(data, schema, also=None if keep == ALL else keep or ()).checked()
    wanted = read.frame.columns if keep == ALL else (*schema.of(ID), *(keep or ()))
    there = [name for name in dict.fromkeys(wanted) if name in read.frame.columns]
    return read.features, read.kept, {name: read.frame[name].to_numpy() for name in there}
