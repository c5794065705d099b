"""A summary of all rows, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.table import Table

from privfed.cli.display.output import printed
from privfed.cli.folder.claim import to_json
from privfed.estimators.summary import FederatedSummary
from privfed.privacy.claim import one_line

ENDS = "lowest, highest: ends of the declared domain, else of public bins around all rows"


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one column's histogram."""

    edges: list[float]
    counts: list[float]
    below: float
    above: float


class ColumnSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is known of one column."""

    name: str
    mean: float
    std: float
    low: float
    high: float
    histogram: Histogram | None = None


class Summarized(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what `privfed summary --json` prints."""

    rows: int
    columns: list[ColumnSummary]
    noise_std_of_counts: float | None
    privacy: dict[str, object] | None


def summarized(found: FederatedSummary, columns: Sequence[str]) -> Summarized:
    """Return a fitted summary with the names of its columns."""
    histograms: list[Any] = [None] * len(columns)
    if found.bins is not None:
        each = zip(found.edges_, found.histograms_, found.below_, found.above_, strict=True)
        histograms = [
            Histogram(edges=edges.tolist(), counts=counts.tolist(), below=float(below), above=float(above))
            for edges, counts, below, above in each
        ]
    ends = (found.mean_, found.std_, found.data_min_, found.data_max_)
    numbers = zip(columns, *(one.tolist() for one in ends), histograms, strict=True)
    return Summarized(
        rows=found.n_samples_seen_,
        columns=[
            ColumnSummary(name=name, mean=mean, std=std, low=low, high=high, histogram=histogram)
            for name, mean, std, low, high, histogram in numbers
        ],
        noise_std_of_counts=None if found.bins is None else found.noise_std_,
        privacy=to_json(found.privacy_claim_),
    )


def print_summary(found: FederatedSummary, columns: Sequence[str]) -> None:
    """Print a fitted summary as tables."""
    shown = summarized(found, columns)
    for table in _tables(shown):
        printed(table)
    if shown.noise_std_of_counts:
        print(f"standard deviation of the noise in a count: {shown.noise_std_of_counts:.3g} rows")
    print(one_line(found.privacy_claim_))


def _tables(shown: Summarized) -> Iterator[Table]:
    """Yield a table of all columns, then one for each histogram."""
    table = Table("column", "mean", "std", "lowest", "highest")
    table.title, table.title_justify = f"{shown.rows} rows", "left"
    table.caption, table.caption_justify = ENDS, "left"
    for one in shown.columns:
        numbers = (one.mean, one.std, one.low, one.high)
        table.add_row(one.name, *(f"{number:.6g}" for number in numbers))
    yield table
    for one in shown.columns:
        if one.histogram is not None:
            yield _bins(one.name, one.histogram)


def _bins(name: str, own: Histogram) -> Table:
    table = Table(name, "rows")
    table.columns[1].justify = "right"
    bins = [f"{low:.6g} to {high:.6g}" for low, high in zip(own.edges, own.edges[1:], strict=False)]
    for where, count in zip(bins, own.counts, strict=True):
        table.add_row(where, f"{count:.6g}")
    for where, count in ((f"below {own.edges[0]:.6g}", own.below), (f"above {own.edges[-1]:.6g}", own.above)):
        if count:
            table.add_row(where, f"{count:.6g}")
    return table
