"""Questions about the compactness and separation of clusters: distances, silhouettes, scatter.

Each row belongs to the cluster of its nearest center.

Sources: Davies and Bouldin, A Cluster Separation Measure, PAMI 1979; Calinski and Harabasz, A Dendrite
Method for Cluster Analysis, 1974; Vendramin, Campello and Hruschka, Relative Clustering Validity
Criteria, 2010 (simplified silhouette); Triebe and Rajagopal, Federated K-Means, 2019 (mean distance).

Reveals to whoever opens the totals, over all clients: how many rows each cluster has, and the sum of their
distances (`ClusterDistances`), of their silhouettes (`ClusterSilhouettes`), or of the rows themselves and of
their squared distances (`ClusterScatter`). A cluster can hold a single row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.asking.declaration import Declaration, RowCounts
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.numerics.distances import IntArray
from privfed.numerics.kernels.by_law import nearest, two_nearest
from privfed.numerics.kernels.interpreted import cell_sums
from privfed.questions.inertia import SLACK, largest_distance
from privfed.questions.lloyd import RESOLUTION, check_centers

LARGEST_POWER = 8.0
"""Largest q of the Davies-Bouldin index; with higher powers, small distances lose too many digits."""

_TINY = 2.0**-1000


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterQuestion(Question):
    """Questions about the rows nearest to each center.

    Args:
        centers: float64 of shape (n_clusters, n_features).
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS
    centers: FloatArray

    def __post_init__(self) -> None:
        check_centers(self.centers, self.ranges)

    @property
    def farthest(self) -> float:
        """A bound on the distance of a row to its nearest center."""
        return float(np.sqrt(max(largest_distance(self.centers, self.ranges), np.finfo(np.float64).tiny)))

    def per_cluster(self, name: str, largest: float) -> Entry:
        """Return the entry for each cluster's sum of values in [0, largest], one value a row."""
        high = self.ranges.rows * largest * SLACK
        return Entry(name, (len(self.centers),), 0.0, high, max(largest * RESOLUTION, _TINY))

    @property
    def count(self) -> Entry:
        """The entry for the number of rows nearest to each center."""
        return Entry("count", (len(self.centers),), 0.0, self.ranges.rows, RESOLUTION)

    def summed(self, labels: IntArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return each cluster's number of rows and the sum of their values."""
        count, total = cell_sums(values[:, None], labels, len(self.centers))
        return count, total[:, 0]


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterDistances(ClusterQuestion):
    """Ask for sums of distances to the nearest center.

    Statistics: `count` (n_clusters,), `distance` (n_clusters,).

    Args:
        power: exponent of each distance, q of Davies and Bouldin.
    """

    power: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1.0 <= self.power <= LARGEST_POWER:
            raise ArgumentError(f"power must lie in [1, {LARGEST_POWER:g}], got power={self.power}.")

    @property
    def declaration(self) -> Declaration:
        """Counts of rows, and sums of their distances."""
        return Declaration((RowCounts("count", ("distance",)),), (self.centers,))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most the rows of a client, each at most as far as a corner of the ranges."""
        with np.errstate(over="ignore"):  # The entry refuses a bound that is not finite.
            largest = float(np.float64(self.farthest) ** self.power)
        return StatisticsSpec(self.count, self.per_cluster("distance", largest))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [self._one(client.features) for client in clients]

    def _one(self, rows: FloatArray) -> Statistics:
        labels, squares = nearest(rows, self.centers)
        distance = np.minimum(np.sqrt(squares), self.farthest)
        count, total = self.summed(labels, distance**self.power)
        return Statistics(count=count, distance=total)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterSilhouettes(ClusterQuestion):
    """Ask for sums of simplified silhouettes: 1 - a/b, with the distances a, b to the two nearest centers.

    Statistics: `count` (n_clusters,), `silhouette` (n_clusters,).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.centers) < 2:
            raise ArgumentError("silhouettes need at least two centers, got one.")

    @property
    def declaration(self) -> Declaration:
        """Counts of rows, and sums of their silhouettes."""
        return Declaration((RowCounts("count", ("silhouette",)),), (self.centers,))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Values of at most 1 a row."""
        return StatisticsSpec(self.count, self.per_cluster("silhouette", 1.0))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [self._one(client.features) for client in clients]

    def _one(self, rows: FloatArray) -> Statistics:
        labels, *squares = two_nearest(rows, self.centers)
        own, other = np.sqrt(squares)
        # (b - a) / b; for a row on two coinciding centers both are zero, and so is its silhouette.
        ratio = np.divide(own, other, out=np.ones_like(own), where=other > 0)
        count, total = self.summed(labels, 1.0 - ratio)
        return Statistics(count=count, silhouette=total)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterScatter(ClusterQuestion):
    """Ask how the rows scatter around their nearest centers.

    Statistics: `count` (n_clusters,), `offset` (n_clusters, n_features), the sum of rows minus their
    center, and `square` (n_clusters,), the sum of squared distances.
    """

    @property
    def declaration(self) -> Declaration:
        """Counts of rows, and sums of their offsets and squares."""
        return Declaration((RowCounts("count", ("offset", "square")),), (self.centers,))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most the rows of a client, each inside the ranges."""
        low, high = self.ranges.low - self.centers, self.ranges.high - self.centers
        rows = self.ranges.rows * SLACK
        offset = Entry(
            "offset",
            self.centers.shape,
            rows * np.minimum(low, 0.0),
            rows * np.maximum(high, 0.0),
            np.maximum(np.maximum(np.abs(low), np.abs(high)) * RESOLUTION, _TINY),
        )
        return StatisticsSpec(self.count, offset, self.per_cluster("square", self.farthest**2))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [self._one(client.features) for client in clients]

    def _one(self, rows: FloatArray) -> Statistics:
        labels, squares = nearest(rows, self.centers)
        # Offsets from centers are short, even where the data lies far from the origin.
        count, offset = cell_sums(rows - self.centers[labels], labels, len(self.centers))
        distance = np.minimum(np.sqrt(squares), self.farthest)
        return Statistics(count=count, offset=offset, square=self.summed(labels, distance**2)[1])
