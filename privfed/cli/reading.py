"""The work of `privfed summary`: counts, means, deviations and histograms of all rows."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from rich.table import Table

from privfed.cli.declared import declared_of
from privfed.cli.described import check_several, clipped, declared_with, schemas, surroundings_of
from privfed.cli.described import load as load_rows
from privfed.cli.output import answer, table
from privfed.cli.result import ROWS, measured_on, to_json
from privfed.cli.run_folder import source_of, values_of
from privfed.data.table import ClientTables
from privfed.estimators.moments import FederatedSummary
from privfed.privacy.claim import one_line

if TYPE_CHECKING:
    from privfed.tables.schema import Schema


def summary(data: Path, as_json: bool, bins: int | list[float] | None, between: bool, **given: Any) -> None:
    """Do the work of `privfed summary`."""
    source = source_of(data, given)
    declared = declared_with(source, declared_of(given))
    declared.check_claim(*source.undeclared)
    tables = clipped(load_rows(source, private=declared.epsilon is not None), declared)
    check_several(tables, source.path, given["protocol"])
    surroundings = surroundings_of({**declared.parameters(), **values_of(given)})
    schema = None if source.schema is None else schemas().parse(source.schema)
    found = FederatedSummary(edges_of(bins, schema), between=between, **surroundings)
    found.fit(tables)
    # Where groups stand for rows, nothing is told of the rows themselves.
    print_summary(
        found, tables.columns, schema, as_json, tables if between and measured_on(found) == ROWS else None
    )


def edges_of(bins: int | list[float] | None, schema: Schema | None) -> Any:
    """Return edges that are in the columns' units as those of each feature."""
    if schema is None or not isinstance(bins, list):
        return bins
    return [
        ((np.array(bins) - shift) / factor).tolist()
        for shift, factor in zip(*schemas().units_of(schema), strict=True)
    ]


APART = 0.5
"""Share of a column's variance between clients above which they do not look alike."""

FEW = 10
"""Rows a client below which means differ anyway."""

ENDS = "lowest, highest: ends of the declared domain, else of public bins around all rows"

NOISE = "; \u00b1: standard deviation of the noise; far rows too few to be seen above it are clipped"


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one column's histogram."""

    edges: list[float]
    counts: list[float]
    below: float
    above: float


class ColumnSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is known of one column; under a claim also the standard deviation of the noise.

    With a schema numbers are in the column's unit: shares of a category, of a date days since `origin`.
    """

    name: str
    mean: float
    std: float
    low: float
    high: float
    mean_noise: float | None = None
    std_noise: float | None = None
    between: float | None = None
    histogram: Histogram | None = None
    unit: str | None = None
    origin: datetime.date | None = None


class Summarized(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what `privfed summary --json` prints."""

    rows: int
    rows_noise: float | None
    columns: list[ColumnSummary]
    noise_std_of_counts: float | None
    privacy: dict[str, object] | None
    of: str = ROWS


def summarized(found: FederatedSummary, columns: Sequence[str], schema: Schema | None = None) -> Summarized:
    """Return a fitted summary with the names of its columns, in the units of a schema."""
    shift, factor = (
        (np.zeros(len(columns)), np.ones(len(columns))) if schema is None else schemas().units_of(schema)
    )
    histograms: list[Any] = [None] * len(columns)
    if found.bins is not None:
        each = zip(found.edges_, found.histograms_, found.below_, found.above_, shift, factor, strict=True)
        histograms = [
            Histogram(
                edges=(start + edges * width).tolist(),
                counts=counts.tolist(),
                below=float(below),
                above=float(above),
            )
            for edges, counts, below, above, start, width in each
        ]
    mean, low, high = (shift + one * factor for one in (found.mean_, found.data_min_, found.data_max_))
    ends = (mean, found.std_ * factor, low, high)
    between = found.between_.tolist() if found.between else [None] * len(columns)
    noise: list[Any] = [[None] * len(columns)] * 2
    if found.privacy is not None:
        noise = [(found.mean_error_ * factor).tolist()]
        noise += [(found.var_error_ / (2.0 * found.std_) * factor).tolist()]
    own = [(None, None)] * len(columns) if schema is None else schemas().facts_of(schema, columns)
    numbers = zip(columns, *(one.tolist() for one in ends), *noise, between, histograms, own, strict=True)
    return Summarized(
        rows=found.n_samples_seen_,
        rows_noise=None if found.privacy is None else found.rows_error_,
        columns=[
            ColumnSummary(
                name=name,
                mean=mean,
                std=std,
                low=low,
                high=high,
                mean_noise=mean_noise,
                std_noise=std_noise,
                between=share,
                histogram=histogram,
                unit=unit,
                origin=origin,
            )
            for name, mean, std, low, high, mean_noise, std_noise, share, histogram, (unit, origin) in numbers
        ],
        noise_std_of_counts=None if found.bins is None else found.noise_std_,
        privacy=to_json(found.privacy_claim_),
        of=measured_on(found),
    )


def print_summary(
    found: FederatedSummary,
    columns: Sequence[str],
    schema: Schema | None,
    as_json: bool,
    tables: ClientTables | None = None,
) -> None:
    """Print a fitted summary as tables, or as JSON; with all rows at hand, units that they may be in."""
    shown, lines = summarized(found, columns, schema), list[str]()
    if shown.noise_std_of_counts:
        lines.append(f"standard deviation of the noise in a count: {shown.noise_std_of_counts:.3g} rows")
    apart = [one.name for one in shown.columns if (one.between or 0.0) > APART]
    if apart and shown.rows >= FEW * len(found.federation_.setting.clients):
        lines += [
            f"clients do not look alike in {', '.join(apart)}: most of the variance lies between their means."
            " Is one of them in another unit? Each can compare its own rows with mean and std.",
            *([] if tables is None else schemas().units_between(tables, schema)),
        ]
    answer(shown, as_json, *_tables(shown), *lines, one_line(found.privacy_claim_))


def _tables(shown: Summarized) -> Iterator[Table]:
    """Yield a table of all columns, then one for each histogram."""
    between = any(one.between is not None for one in shown.columns)
    of = "" if shown.of == ROWS else f"; all other numbers of {shown.of}"
    # Where the number of rows is public, its noise is far below one row.
    unsure = f" \u00b1 {shown.rows_noise:.2g}" if (shown.rows_noise or 0.0) > 0.01 else ""
    noised = any(one.mean_noise is not None for one in shown.columns)
    lines = (
        (
            _titled(one),
            _place(one, one.mean, one.mean_noise),
            _with_noise(one.std, one.std_noise),
            _place(one, one.low),
            _place(one, one.high),
            *([] if one.between is None else [f"{one.between:.1%}"]),
        )
        for one in shown.columns
    )
    head = ("column", "mean", "std", "lowest", "highest", *(["between clients"] * between))
    yield table(head, lines, f"{shown.rows}{unsure} rows{of}", f"{ENDS}{NOISE if noised else ''}")
    for one in shown.columns:
        if one.histogram is not None:
            yield _bins(one, one.histogram)


def _titled(one: ColumnSummary) -> str:
    return one.name if one.unit is None else f"{one.name} [{one.unit}]"


def _place(one: ColumnSummary, number: float, noise: float | None = None) -> str:
    """Return a value of a column, of a date the day."""
    if one.origin is None:
        return _with_noise(number, noise)
    return day_of(one.origin, number) + ("" if noise is None else f" \u00b1 {noise:.2g}")


def day_of(origin: datetime.date, days: float) -> str:
    """Return a number of days after a date as YYYY-MM-DD; the number itself beyond the years 1 to 9999."""
    try:
        return (origin + datetime.timedelta(days=round(days))).isoformat()
    except OverflowError:
        return f"{days:.6g} days"


def _with_noise(number: float, noise: float | None) -> str:
    return f"{number:.6g}" if noise is None else f"{number:.6g} \u00b1 {noise:.2g}"


def _bins(one: ColumnSummary, own: Histogram) -> Table:
    edges = [_place(one, edge) for edge in own.edges]
    bins = zip((f"{low} to {high}" for low, high in pairwise(edges)), own.counts, strict=True)
    beyond = ((f"below {edges[0]}", own.below), (f"above {edges[-1]}", own.above))
    lines = [*bins, *(one for one in beyond if one[1])]
    return table((_titled(one), "rows"), ((where, f"{count:.6g}") for where, count in lines))
