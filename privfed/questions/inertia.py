"""The k-means objective (inertia) as a question.

Reveals to whoever opens the total: the sum of squared distances to the nearest centroid, and the
number of rows, each over the whole cohort.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.asking.question import AdditiveOver, ClientData, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.values.domain import FloatArray, Ranges
from privfed.numerics.kernels.dispatch import nearest
from privfed.questions.lloyd import RESOLUTION, AtCenters

SLACK = 1.0 + 2.0**-30
"""Factor by which bounds exceed what exact arithmetic gives, for rounding."""

TINY = 2.0**-1000
"""Smallest quantisation step of values that may all be zero."""


def largest_distances(centers: FloatArray, ranges: Ranges) -> FloatArray:
    """Return bounds above 0 on a row's squared distance to each center, float64 of shape (n_clusters,)."""
    corner = np.maximum(np.abs(centers - ranges.low), np.abs(centers - ranges.high))
    with np.errstate(over="ignore"):  # The entry refuses a bound that is not finite.
        farthest: FloatArray = np.maximum(np.square(corner).sum(axis=1), np.finfo(np.float64).tiny)
    return farthest


def sum_entry(name: str, shape: tuple[int, ...], largest: FloatArray | float, rows: int) -> Entry:
    """Return the entry for a sum of values in [0, largest], one value a row."""
    most = np.asarray(largest)
    return Entry(name, shape, 0.0, rows * most * SLACK, np.maximum(most * RESOLUTION, TINY))


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Inertia(AtCenters):
    """Ask for the sum of squared distances to the nearest centroid.

    Statistics: `inertia` (1,), `rows` (1,).
    """

    row_counts: ClassVar[tuple[str, ...]] = ("rows",)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most the rows of a client, each at most as far as a corner of the ranges."""
        farthest = largest_distances(self.centers, self.ranges).min()
        return StatisticsSpec(
            sum_entry("inertia", (1,), farthest, self.ranges.rows),
            Entry("rows", (1,), 0.0, self.ranges.rows, RESOLUTION),
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> Sequence[Statistics]:
        """Answer for several clients."""
        inertia = [nearest(client.features, self.centers).squares.sum() for client in clients]
        rows = np.array([[float(client.n_rows)] for client in clients])
        return self.spec.tabled(inertia=np.array(inertia)[:, None], rows=rows)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClientScores(AtCenters):
    """Ask for the sum of the clients' own mean scores, for Algorithm 4 of Holzer et al. 2023.

    Every client has the same weight, however many rows it has. Statistics: `score` (1,), `clients` (1,).
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS

    @cached_property
    def spec(self) -> StatisticsSpec:
        """A mean distance of at most that of a corner of the ranges; one client."""
        farthest = largest_distances(self.centers, self.ranges).min()
        return StatisticsSpec(
            sum_entry("score", (1,), farthest, 1),
            Entry("clients", (1,), 0.0, 1.0, RESOLUTION),
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> Sequence[Statistics]:
        """Answer for several clients."""
        score = [nearest(client.features, self.centers).squares.mean() for client in clients]
        return self.spec.tabled(score=np.array(score)[:, None], clients=np.ones((len(clients), 1)))
