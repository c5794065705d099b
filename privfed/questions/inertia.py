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

from privfed.core.asking.declaration import Declaration
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.values.domain import FloatArray, Ranges
from privfed.numerics.kernels.dispatch import nearest
from privfed.questions.lloyd import RESOLUTION, check_centers

SLACK = 1.0 + 2.0**-30
"""Factor by which bounds exceed what exact arithmetic gives, for rounding."""


def largest_distance(centers: FloatArray, ranges: Ranges) -> float:
    """Return a bound on the squared distance of a row in `ranges` to its nearest center."""
    corner = np.maximum(np.abs(centers - ranges.low), np.abs(centers - ranges.high))
    return float(np.square(corner).sum(axis=1).min())


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Inertia(Question):
    """Ask for the sum of squared distances to the nearest centroid.

    Statistics: `inertia` (1,), `rows` (1,).

    Args:
        centers: float64 of shape (n_clusters, n_features).
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS
    centers: FloatArray

    def __post_init__(self) -> None:
        check_centers(self.centers, self.ranges)

    @property
    def declaration(self) -> Declaration:
        """The number of a client's rows, and the sum over the same rows."""
        return Declaration(("rows",), (self.centers,))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most the rows of a client, each at most as far as a corner of the ranges."""
        farthest = max(largest_distance(self.centers, self.ranges), np.finfo(np.float64).tiny)
        return StatisticsSpec(
            Entry(
                "inertia",
                (1,),
                0.0,
                self.ranges.rows * farthest * SLACK,
                max(farthest * RESOLUTION, 2.0**-1000),
            ),
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
class ClientScores(Question):
    """Ask for the sum of the clients' own mean scores, for Algorithm 4 of Holzer et al. 2023.

    Every client has the same weight, however many rows it has. Statistics: `score` (1,), `clients` (1,).

    Args:
        centers: float64 of shape (n_clusters, n_features).
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    centers: FloatArray

    def __post_init__(self) -> None:
        check_centers(self.centers, self.ranges)

    @property
    def declaration(self) -> Declaration:
        """No row counts: the entries are a mean over all rows of a client, and a count of clients."""
        return Declaration(centers=(self.centers,))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """A mean distance of at most that of a corner of the ranges; one client."""
        farthest = max(largest_distance(self.centers, self.ranges), np.finfo(np.float64).tiny)
        return StatisticsSpec(
            Entry("score", (1,), 0.0, farthest * SLACK, max(farthest * RESOLUTION, 2.0**-1000)),
            Entry("clients", (1,), 0.0, 1.0, RESOLUTION),
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> Sequence[Statistics]:
        """Answer for several clients."""
        score = [nearest(client.features, self.centers).squares.mean() for client in clients]
        return self.spec.tabled(score=np.array(score)[:, None], clients=np.ones((len(clients), 1)))
