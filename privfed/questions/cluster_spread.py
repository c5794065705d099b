"""Compactness and separation of clusters of nearest centers: distances, silhouettes, scatter and profiles.

Each row belongs to the cluster of its nearest center.

Sources: Davies and Bouldin, A Cluster Separation Measure, PAMI 1979; Calinski and Harabasz, A Dendrite
Method for Cluster Analysis, 1974; Vendramin, Campello and Hruschka, Relative Clustering Validity
Criteria, 2010 (simplified silhouette); Triebe and Rajagopal, Federated K-Means, 2019 (mean distance).

Reveals to whoever opens the totals, over all clients, how many rows each cluster has, and further sums:
of their distances (`ClusterDistances`); of their silhouettes (`ClusterSilhouettes`); of the rows themselves
and of their squared distances (`ClusterScatter`); of the rows and their squares, column by column
(`ClusterProfiles`). `ClusterPairs` reveals how many rows lie in each pair of clusters of two fits. A cluster
or a pair can hold a single row. `ClusterClients` reveals how many clients have rows in
each cluster, and nothing of how many rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.asking.declaration import Declaration
from privfed.core.asking.question import AdditiveOver, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec, Within
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_number, check_whole
from privfed.numerics.kernels.dispatch import nearest, two_nearest
from privfed.numerics.kernels.interpreted import IntArray, cell_sums
from privfed.questions.lloyd import (
    RESOLUTION,
    ROUNDING,
    TINY,
    AtCenters,
    check_centers,
    largest_distances,
    sum_entry,
)

LARGEST_POWER = 8.0
"""Largest q of the Davies-Bouldin index; with higher powers, small distances lose too many digits."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterQuestion(AtCenters):
    """Questions about the rows nearest to each center."""

    row_counts: ClassVar[tuple[str, ...]] = ("count",)

    @property
    def farthest(self) -> float:
        """A bound on the distance of a row to its nearest center."""
        return float(np.sqrt(largest_distances(self.centers, self.ranges).min()))

    def per_cluster(self, name: str, largest: float) -> Entry:
        """Return the entry for each cluster's sum of values in [0, largest], one value a row."""
        return sum_entry(name, (len(self.centers),), largest, self.ranges.rows, "count")

    @property
    def count(self) -> Entry:
        """The entry for the number of rows nearest to each center."""
        return Entry("count", (len(self.centers),), 0.0, self.ranges.rows, RESOLUTION)

    @property
    def offset(self) -> Entry:
        """The entry for the sum of rows minus their center, of rows inside the ranges."""
        low, high = self.ranges.low - self.centers, self.ranges.high - self.centers
        rows = self.ranges.rows * ROUNDING
        return Entry(
            "offset",
            self.centers.shape,
            rows * np.minimum(low, 0.0),
            rows * np.maximum(high, 0.0),
            np.maximum(np.maximum(np.abs(low), np.abs(high)) * RESOLUTION, TINY),
            Within("count", low, high),
        )

    def summed(self, labels: IntArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return each cluster's number of rows and the sum of their values."""
        count, total = cell_sums(values[:, None], labels, len(self.centers))
        return count, total[:, 0]


@dataclass(frozen=True, kw_only=True, eq=False)
class ValueQuestion(ClusterQuestion):
    """Questions for each cluster's number of rows, and the sum of one value in [0, largest] a row."""

    value: ClassVar[str]
    """Name of the entry of sums."""

    @property
    @abstractmethod
    def largest(self) -> float:
        """The largest value of a row."""

    @abstractmethod
    def placed(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's nearest center, and its value."""

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Counts of at most the rows of a client; sums of at most that many values."""
        return StatisticsSpec(self.count, self.per_cluster(self.value, self.largest))

    def of_rows(self, rows: FloatArray) -> Statistics:
        """Answer for one client's rows."""
        count, total = self.summed(*self.placed(rows))
        return Statistics(**{"count": count, self.value: total})


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterDistances(ValueQuestion):
    """Ask for sums of distances to the nearest center.

    Statistics: `count` (n_clusters,), `distance` (n_clusters,).

    Args:
        power: exponent of each distance, q of Davies and Bouldin.
    """

    value: ClassVar[str] = "distance"
    power: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("power", self.power, f"[1, {LARGEST_POWER}]")

    @property
    def largest(self) -> float:
        """The distance of a corner of the ranges, to the power."""
        with np.errstate(over="ignore"):  # The entry refuses a bound that is not finite.
            return float(np.float64(self.farthest) ** self.power)

    def placed(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's nearest center, and its distance to it, to the power."""
        labels, squares = nearest(rows, self.centers)
        return labels, np.minimum(np.sqrt(squares), self.farthest) ** self.power


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterSilhouettes(ValueQuestion):
    """Ask for sums of simplified silhouettes: 1 - a/b, with the distances a, b to the two nearest centers.

    Statistics: `count` (n_clusters,), `silhouette` (n_clusters,).
    """

    value: ClassVar[str] = "silhouette"
    largest = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("n_centers", len(self.centers), 2)

    def placed(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's nearest center, and its silhouette."""
        labels, *squares = two_nearest(rows, self.centers)
        own, other = np.sqrt(squares)
        # (b - a) / b; for a row on two coinciding centers both are zero, and so is its silhouette.
        return labels, 1.0 - np.divide(own, other, out=np.ones_like(own), where=other > 0)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterScatter(ValueQuestion):
    """Ask how the rows scatter around their nearest centers.

    Statistics: `count` (n_clusters,), `offset` (n_clusters, n_features), the sum of rows minus their
    center, and `square` (n_clusters,), the sum of squared distances.
    """

    value: ClassVar[str] = "square"

    @property
    def largest(self) -> float:
        """The squared distance of a corner of the ranges."""
        return self.farthest**2

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most the rows of a client, each inside the ranges."""
        return StatisticsSpec(self.count, self.offset, self.per_cluster("square", self.largest))

    def placed(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's nearest center, and its squared distance to it."""
        labels, squares = nearest(rows, self.centers)
        return labels, np.minimum(np.sqrt(squares), self.farthest) ** 2

    def of_rows(self, rows: FloatArray) -> Statistics:
        """Answer for one client's rows."""
        labels, squares = self.placed(rows)
        # Offsets from centers are short, even where the data lies far from the origin.
        count, offset = cell_sums(rows - self.centers[labels], labels, len(self.centers))
        return Statistics(count=count, offset=offset, square=self.summed(labels, squares)[1])


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterProfiles(ClusterQuestion):
    """Ask for the moments of each column in each cluster.

    Statistics: `count` (n_clusters,), `offset` and `square` (n_clusters, n_features), the sums of rows minus
    their center, and of the squares of these, column by column.
    """

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most the rows of a client, each inside the ranges."""
        longest = np.maximum(np.abs(self.ranges.low - self.centers), np.abs(self.ranges.high - self.centers))
        with np.errstate(over="ignore"):  # The entry refuses a bound that is not finite.
            squares = np.square(longest)
        most, step = self.ranges.rows * ROUNDING * squares, np.maximum(squares * RESOLUTION, TINY)
        return StatisticsSpec(
            self.count,
            self.offset,
            Entry("square", self.centers.shape, 0.0, most, step, Within("count", 0.0, squares)),
        )

    def of_rows(self, rows: FloatArray) -> Statistics:
        """Answer for one client's rows."""
        labels, _ = nearest(rows, self.centers)
        offsets = rows - self.centers[labels]
        count, offset = cell_sums(offsets, labels, len(self.centers))
        _, square = cell_sums(np.square(offsets), labels, len(self.centers))
        return Statistics(count=count, offset=offset, square=square)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterClients(ClusterQuestion):
    """Ask how many clients have rows in each cluster.

    Statistics: `clients` (n_clusters,), for one client 1 where it has a row and 0 where it has none.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    row_counts: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def spec(self) -> StatisticsSpec:
        """A client counts once."""
        return StatisticsSpec(Entry("clients", (len(self.centers),), 0.0, 1.0, RESOLUTION))

    def of_rows(self, rows: FloatArray) -> Statistics:
        """Answer for one client's rows."""
        labels, _ = nearest(rows, self.centers)
        return Statistics(clients=np.bincount(labels, minlength=len(self.centers)) > 0)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterPairs(ClusterQuestion):
    """Ask how many rows are nearest to each center, and to each of other centers.

    Statistics: `table` (n_clusters, n_others).

    Args:
        others: the other centers, float64 of shape (n_others, n_features).
    """

    row_counts: ClassVar[tuple[str, ...]] = ("table",)
    others: FloatArray

    def __post_init__(self) -> None:
        for points in (self.centers, self.others):
            check_centers(points, self.ranges)

    @property
    def declaration(self) -> Declaration:
        """Pairs count rows."""
        return Declaration(self.row_counts, (self.centers, self.others))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Counts of at most the rows of a client."""
        return StatisticsSpec(
            Entry("table", (len(self.centers), len(self.others)), 0.0, self.ranges.rows, RESOLUTION)
        )

    def of_rows(self, rows: FloatArray) -> Statistics:
        """Answer for one client's rows."""
        table = np.zeros((len(self.centers), len(self.others)))
        np.add.at(table, (nearest(rows, self.centers)[0], nearest(rows, self.others)[0]), 1.0)
        return Statistics(table=table)


def moments_of(
    total: Mapping[str, FloatArray], centers: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return means and variances of each cluster, then mean and variance of all rows, column by column.

    They are around the centers, so that nothing is lost where the data lies far from the origin.

    Args:
        total: of `ClusterProfiles`; counts may be of each column, (n_clusters, n_features).
        centers: those of the question.
    """
    count = total["count"] if total["count"].ndim == 2 else total["count"][:, None]
    rows = np.maximum(count.sum(axis=0), 1.0)
    shift = total["offset"] / np.where(count > 0.0, count, 1.0)
    variances = np.maximum(total["square"] / np.where(count > 0.0, count, 1.0) - np.square(shift), 0.0)
    mean = (count * centers + total["offset"]).sum(axis=0) / rows
    # Linear in the totals, so that noise in those of a small cluster weighs no more than that of others.
    away = centers - mean
    whole = (total["square"] + 2.0 * away * total["offset"] + count * np.square(away)).sum(axis=0) / rows
    return centers + shift, variances, mean, np.maximum(whole, 0.0)


def scatters(
    count: FloatArray, offset: FloatArray, square: FloatArray, centers: FloatArray
) -> tuple[float, float]:
    """Return numerator and denominator of the Calinski-Harabasz index.

    They are the scatter between clusters over its degrees of freedom, times those of the scatter within,
    and the scatter within.

    Args:
        count: rows of each cluster, float64 of shape (n_clusters,).
        offset: sums of rows minus their center, float64 of shape (n_clusters, n_features).
        square: sums of squared distances, float64 of shape (n_clusters,).
        centers: float64 of shape (n_clusters, n_features).
    """
    n, shift = float(count.sum()), offset / count[:, None]
    within = float((square - count * np.square(shift).sum(axis=1)).sum())
    # Means are taken relative to one of the centers, which avoids cancellation far from the origin.
    means = centers - centers[0] + shift
    return float(count @ np.square(means - count @ means / n).sum(axis=1)) * (n - len(count)) / (
        len(count) - 1
    ), within
