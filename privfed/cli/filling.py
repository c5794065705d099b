"""The work of `privfed schema fill`: what stands for missing values, learnt from all clients by sums."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from privfed.cli.declared import declared_of
from privfed.cli.described import check_several, declared_with, load, surroundings_of
from privfed.cli.output import echo
from privfed.cli.run_folder import Source, source_of, values_of, write_new
from privfed.core.values.domain import FloatArray
from privfed.data.schema import CATEGORY, DATE, ERROR, Column, Schema, parse, to_toml
from privfed.data.table import ClientTables
from privfed.errors import ArgumentError
from privfed.estimators.imputing import FederatedImputer
from privfed.privacy.claim import one_line


def fill(data: Path, out: Path, fill: tuple[str, ...] | None, **given: Any) -> None:
    """Do the work of `privfed schema fill`.

    Raises:
        ArgumentError: a column is no feature, or none is left to fill; or the file to write exists.
    """
    given |= {"label": None, "columns": (), "separator": None}
    source = source_of(data, given)
    if source.schema is None:
        raise ArgumentError("--schema is missing: it says which columns there are.")
    schema = parse(source.schema)
    chosen = _chosen(schema, fill)
    declared = declared_with(_with(source, schema, chosen, 0), declared_of(given))
    declared.check_claim(*source.undeclared)
    private = declared.epsilon is not None
    tables, others = (load(_with(source, schema, chosen, place), private=private) for place in (0, 1))
    check_several(tables, source.path, given["protocol"])
    imputer = FederatedImputer(**surroundings_of({**declared.parameters(), **values_of(given)}))
    named = [pl.DataFrame(one, schema=list(tables.columns)) for one in _gaps(tables, others)]
    imputer.fit(named, client_names=tables.names)
    filled = msgspec.structs.replace(
        schema, columns=schema.columns | dict(_filled(schema, chosen, imputer.statistics_))
    )
    text = to_toml(filled)
    parse(text, "the filled schema")
    try:
        write_new(out, text.encode())
    except FileExistsError:
        raise ArgumentError(f"{out} exists; name another file with --out.") from None
    for name in chosen:
        known = float(imputer.known_[_places(schema, name)].min())
        echo(f"{name}: missing = {filled.columns[name].missing} ({known:.1%} of all rows have a value)")
    echo(one_line(imputer.privacy_claim_))


def _chosen(schema: Schema, named: Sequence[str] | None) -> list[str]:
    features = [name for name, own in schema.columns.items() if own.is_feature]
    for name in named or ():
        if name not in features:
            raise ArgumentError(
                f"--fill names {name!r}, and the schema's features are {', '.join(features)}."
            )
    found = [name for name in features if (name in named if named else schema.columns[name].missing == ERROR)]
    if not found:
        raise ArgumentError(
            "each column says what becomes of its missing values; name those to fill anew with --fill."
        )
    return found


def _with(source: Source, schema: Schema, chosen: Sequence[str], place: int) -> Source:
    """Return the source with one of two values in the place of each gap, in the columns' units."""
    columns = {
        name: msgspec.structs.replace(own, missing=_filler(own, place)) for name, own in _of(schema, chosen)
    }
    changed = msgspec.structs.replace(schema, scale="none", columns=schema.columns | columns)
    return msgspec.structs.replace(source, schema=to_toml(changed))


def _of(schema: Schema, chosen: Sequence[str]) -> Iterator[tuple[str, Column]]:
    return ((name, schema.columns[name]) for name in chosen)


def _filler(own: Column, place: int) -> Any:
    if own.named:
        return own.categories[min(place, len(own.categories) - 1)]
    if own.kind == DATE:
        return (own.low, own.high)[place] if own.low is not None else own.origin + datetime.timedelta(place)
    return (own.low, own.high)[place] if own.low is not None else float(place)


def _places(schema: Schema, name: str) -> list[int]:
    names = list(schema.columns)
    start = sum(schema.columns[one].width for one in names[: names.index(name)])
    return list(range(start, start + schema.columns[name].width))


def _gaps(tables: ClientTables, others: ClientTables) -> Iterator[FloatArray]:
    """Yield each client's rows with NaN where the two readings differ: there is no value."""
    for one, other in zip(tables.arrays, others.arrays, strict=True):
        gap = one != other
        for block in map(list, tables.blocks):
            gap[:, block] = gap[:, block].any(axis=1, keepdims=True)
        yield np.where(gap, np.nan, one)


def _filled(schema: Schema, chosen: Sequence[str], means: FloatArray) -> Iterator[tuple[str, Column]]:
    for name, own in _of(schema, chosen):
        yield name, msgspec.structs.replace(own, missing=_value(own, means[_places(schema, name)]))


def _value(own: Column, means: FloatArray) -> Any:
    """Return the most frequent category, or the mean: of an ordinal and a date what lies nearest to it."""
    if own.kind == CATEGORY:
        return own.categories[int(means.argmax())]
    mean = float(means[0]) if own.range is None else float(np.clip(means[0], *own.range))
    if own.named:
        return own.categories[round(mean)]
    return own.origin + datetime.timedelta(round(mean)) if own.kind == DATE else mean
