"""The work of `privfed schema fill` and `scale`: what a schema says of gaps and scales, learnt by sums."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from scipy.special import ndtri

from privfed.cli.declared import Declared, declared_of
from privfed.cli.described import check_several, declared_with, load, surroundings_of
from privfed.cli.output import echo
from privfed.cli.run_folder import Source, source_of, values_of
from privfed.core.stored.files import write_new
from privfed.core.values.domain import Box, FloatArray
from privfed.core.values.origin import joined, origin_under
from privfed.data.table import LEAVE_OUT, ClientTables
from privfed.errors import ArgumentError
from privfed.estimators.moments import FederatedScaler
from privfed.estimators.scaling import of_scaler
from privfed.estimators.transformers import FederatedImputer
from privfed.metrics.asked import AskedMetric
from privfed.privacy.claim import one_line
from privfed.questions.lloyd import Contingency
from privfed.tables.beside import asked_once
from privfed.tables.schema import CATEGORY, DATE, ERROR, ID, Column, Schema, parse, to_toml

FALSE_CATEGORIES = 0.1
"""How many categories that no row has are expected among those that noised counts keep."""


def fill(data: Path, out: Path, fill: tuple[str, ...] | None, **given: Any) -> None:
    """Do the work of `privfed schema fill`.

    Raises:
        ArgumentError: a column is no feature, or none is left to fill; or the file to write exists.
    """
    check_new(out)
    source, schema = _begun(data, given)
    chosen = _chosen(schema, fill)
    tables, declared = _loaded(_in_units(source, schema, chosen), given, chosen)
    imputer = FederatedImputer(**surroundings_of({**declared.parameters(), **values_of(given)})).fit(tables)
    filled = _written(
        out,
        schema,
        {
            name: msgspec.structs.replace(
                schema.columns[name],
                missing=_value(schema.columns[name], imputer.statistics_[schema.places[name]]),
                provenance=joined(schema.columns[name].provenance, origin_under(imputer.privacy_spent_)),
            )
            for name in chosen
        },
    )
    for name in chosen:
        echo(
            f"{name}: missing = {filled.columns[name].missing} "
            f"({float(imputer.known_[schema.places[name]].min()):.1%} of all rows have a value)"
        )
    echo(one_line(imputer.privacy_claim_))


def scale(data: Path, out: Path, scale: Literal["standard", "robust"], **given: Any) -> None:
    """Do the work of `privfed schema scale`.

    Raises:
        ArgumentError: the schema maps columns to their ranges; or the file to write exists.
    """
    source, schema = _begun(data, given)
    if schema.scale == "range":
        raise ArgumentError(
            'the schema says scale = "range"; take that line out of it, or keep it and do not scale.'
        )
    check_new(out)
    tables, declared = _loaded(_in_units(source, schema), given)
    options = surroundings_of({**declared.parameters(), **values_of(given)})
    write_scales(out, schema, FederatedScaler(scale, **options).fit(tables))


def categories(data: Path, out: Path, column: str, **given: Any) -> None:
    """Do the work of `privfed schema categories`.

    Raises:
        ArgumentError: the column has no categories, or noise hides all of them; or the file to write exists.
    """
    check_new(out)
    source, schema = _begun(data, given)
    own = schema.columns.get(column, Column(kind=ID))
    if own.kind != CATEGORY:
        raise ArgumentError(
            f"{column!r} is no column of categories; those are {', '.join(schema.of(CATEGORY)) or 'none'}."
        )
    tables, declared = _loaded(source, given)
    options = surroundings_of({"privacy": None, **declared.parameters(), **values_of(given), "domain": None})
    if declared.claims:
        options["privacy"] = replace(options["privacy"], domain=Box(0.0, 1.0, max_rows=declared.max_rows))
    # The fit's own reading: a gap has the category that the schema puts there.
    rows = tuple(
        replace(
            one,
            features=np.zeros((len(one.features), 1)),
            labels=one.features[:, schema.places[column]].argmax(axis=1),
        )
        for one in tables.tables
    )
    total, _, unit, noise, claim = asked_once(
        replace(tables, tables=rows, columns=(column,), label_names=own.categories, blocks=()),
        None,
        AskedMetric.about(Contingency, np.zeros((1, 1)), n_labels=own.width),
        "categories",
        **options,
    )
    std = unit * noise["table"]
    least = std * float(ndtri(1.0 - FALSE_CATEGORIES / own.width))
    counts = dict(zip(own.categories, (unit * total["table"][:, 0]).tolist(), strict=True))
    kept = tuple(one for one, count in counts.items() if count > least or one == own.missing)
    if not kept:
        raise ArgumentError(
            f"no category has more than {least:.0f} rows by these counts, so that no list is written. The "
            f"counts were asked under this claim: {one_line(claim)}"
        )
    # The others stand for a missing value from now on, wherever the schema reads a table.
    changed = msgspec.structs.replace(
        own,
        categories=kept,
        codes=(*own.codes, *(one for one in counts if one not in kept)),
        provenance=joined(own.provenance, origin_under(claim)),
    )
    _written(out, schema, {column: changed})
    for one in kept:
        echo(f"{one}: {counts[one]:.0f} rows" + f" ± {std:.2g}" * bool(std))
    echo(
        f"{own.width - len(kept)} of {own.width} categories have at most {least:.0f} rows by these counts. "
        f"They are missing values now: missing = {own.missing!r}."
    )
    echo(one_line(claim))


def write_scales(out: Path, schema: Schema, scaler: FederatedScaler) -> None:
    """Write a schema with the scales that were found, and say them."""
    found, columns = of_scaler(scaler, [list(one) for one in schema.blocks]), dict[str, Column]()
    for name, own in ((name, own) for name, own in schema.columns.items() if own.is_feature):
        shift, spread = (values[schema.places[name][0]] for values in (found.shift, found.scale))
        columns[name] = msgspec.structs.replace(
            own,
            **{"weight": own.weight / spread} if own.kind == CATEGORY else {"shift": shift, "spread": spread},
            provenance=joined(own.provenance, found.origin),
        )
    for name, own in _written(out, schema, columns).columns.items():
        if own.kind == CATEGORY:
            echo(f"{name}: weight = {own.weight:.6g}")
        elif own.is_feature:
            echo(f"{name}: shift = {own.shift:.6g}, spread = {own.spread:.6g}")
    still = [name for name in columns if not scaler.var_[schema.places[name]].any()]
    if still and scaler.privacy is None:  # Noise may leave nothing of a small variance.
        echo(f"these columns have one value in all rows, and tell no clusters apart: {', '.join(still)}.")
    echo(one_line(scaler.privacy_claim_))


def check_new(out: Path) -> None:
    """Check that a file can be written anew, before anything is asked or paid for it.

    Raises:
        ArgumentError: it exists, or has no folder.
    """
    if out.exists():
        raise ArgumentError(f"{out} exists; name another file with --out.")
    if not out.absolute().parent.is_dir():
        raise ArgumentError(f"{out.parent} is no folder; make it, or name another file with --out.")


def _begun(data: Path, given: dict[str, Any]) -> tuple[Source, Schema]:
    """Return where rows lie and what their columns mean; `given` gets what other commands have besides."""
    given |= {"label": None, "columns": (), "separator": None}
    source = source_of(data, given)
    if source.schema is None:
        raise ArgumentError("--schema is missing: it says which columns there are.")
    return source, parse(source.schema)


def _loaded(
    source: Source, given: dict[str, Any], gaps: Collection[str] = ()
) -> tuple[ClientTables, Declared]:
    """Return the clients, with NaN in the gaps of some columns, and what is declared of them."""
    declared = declared_with(source, declared_of(given))
    declared.check_claim(*source.undeclared)
    tables = load(source, private=declared.epsilon is not None, gaps=gaps)
    check_several(tables, source.path, given["protocol"])
    return tables, declared


def _written(out: Path, schema: Schema, columns: dict[str, Column]) -> Schema:
    """Write a schema with other columns to a new file, and return it."""
    changed = msgspec.structs.replace(schema, columns=schema.columns | columns)
    text = to_toml(changed)
    parse(text, "the schema with what was learnt")
    write_new(out, text.encode())
    return changed


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


def _in_units(source: Source, schema: Schema, gaps: Collection[str] = ()) -> Source:
    """Return the source with columns in their units, of which some have gaps that are no error."""
    columns = {
        name: msgspec.structs.replace(
            own, shift=0.0, spread=1.0, missing=LEAVE_OUT if name in gaps else own.missing
        )
        for name, own in schema.columns.items()
    }
    return msgspec.structs.replace(
        source, schema=to_toml(msgspec.structs.replace(schema, scale="none", columns=columns))
    )


def _value(own: Column, means: FloatArray) -> Any:
    """Return the most frequent category, or the mean: of an ordinal and a date what lies nearest to it."""
    if own.kind == CATEGORY:
        return own.categories[int(means.argmax())]
    mean = float(means[0]) if own.range is None else float(np.clip(means[0], *own.range))
    if own.named:
        return own.categories[round(mean)]
    return own.origin + datetime.timedelta(round(mean)) if own.kind == DATE else mean
