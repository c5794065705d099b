"""Lloyd's step as a question: counts and sums of the rows nearest to each centroid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.asking.data import stacked
from privfed.core.asking.declaration import Declaration
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import ArgumentError
from privfed.numerics.kernels.dispatch import step

SLACK = 1.0 + 2.0**-26
"""Ranges of sums are widened by this factor, so that rounding in a float64 sum is never clipped."""

RESOLUTION = 2.0**-30
"""Coarsest acceptable quantisation step, relative to the range of one record's contribution."""


def check_centers(centers: FloatArray, ranges: Ranges) -> None:
    """Check the centroids of a question.

    Raises:
        ArgumentError: they are not finite, or have not one column a feature of the ranges.
    """
    if centers.ndim != 2 or len(centers) == 0 or centers.shape[1] != ranges.n_features:
        raise ArgumentError(f"centers need {ranges.n_features} columns, got shape {centers.shape}.")
    if not np.isfinite(centers).all():
        raise ArgumentError("centers must be finite.")


def sums_entry(name: str, cells: int, ranges: Ranges) -> Entry:
    """Return the entry, (cells, n_features), for sums of at most `ranges.rows` rows in each cell."""
    return box_entry(name, (cells, ranges.n_features), ranges.low, ranges.high, ranges.rows)


def box_entry(
    name: str, shape: tuple[int, ...], low: FloatArray, high: FloatArray, most: float = 1.0
) -> Entry:
    """Return the entry for points between `low` and `high`, each with a weight from 0 to `most`."""
    width = high - low
    return Entry(
        name,
        shape,
        low=np.minimum(0.0, most * low) * SLACK,
        high=np.maximum(0.0, most * high) * SLACK,
        resolution=np.where(width > 0, width, np.maximum(np.abs(high), 1.0)) * RESOLUTION,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class AtCenters(Question):
    """Questions about rows and given centers.

    Args:
        centers: float64 of shape (n_clusters, n_features).
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS
    row_counts: ClassVar[tuple[str, ...]] = ()
    """Names of the entries that count a client's rows (`Declaration`)."""
    centers: FloatArray

    def __post_init__(self) -> None:
        check_centers(self.centers, self.ranges)

    @property
    def declaration(self) -> Declaration:
        """The entries that count rows, and the centers."""
        return Declaration(self.row_counts, (self.centers,))


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class LloydSums(AtCenters):
    """Ask for counts and sums of the rows nearest to each centroid.

    Statistics: `count` (n_clusters,), `sum` (n_clusters, n_features).
    """

    row_counts: ClassVar[tuple[str, ...]] = ("count",)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Counts of at most the rows of a client; sums of at most that many rows in the ranges."""
        k = len(self.centers)
        count = Entry("count", (k,), 0.0, self.ranges.rows, RESOLUTION)
        return StatisticsSpec(count, sums_entry("sum", k, self.ranges))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> Sequence[Statistics]:
        """Answer for several clients in one pass."""
        counts, sums = step(stacked(clients), self.centers[None])
        return self.spec.tabled(count=counts, sum=sums)
