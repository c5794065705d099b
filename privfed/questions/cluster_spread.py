"""Compactness and separation of clusters: distances, silhouettes, scatter, and the fuzzy index.

**Clusters of nearest centers.** Questions about the compactness and separation of clusters: distances,
silhouettes, scatter.

Each row belongs to the cluster of its nearest center.

Sources: Davies and Bouldin, A Cluster Separation Measure, PAMI 1979; Calinski and Harabasz, A Dendrite
Method for Cluster Analysis, 1974; Vendramin, Campello and Hruschka, Relative Clustering Validity
Criteria, 2010 (simplified silhouette); Triebe and Rajagopal, Federated K-Means, 2019 (mean distance).

Reveals to whoever opens the totals, over all clients, how many rows each cluster has, and further sums:
of their distances (`ClusterDistances`); of their silhouettes (`ClusterSilhouettes`); of the rows themselves
and of their squared distances (`ClusterScatter`); of the rows and their squares, column by column
(`ClusterProfiles`). A cluster can hold a single row. `ClusterClients` reveals how many clients have rows in
each cluster, and nothing of how many rows.

**Fuzzy clusters.** Questions for the fuzzy objective and the fuzzy Davies-Bouldin index.

Stallmann and Wilbik 2022 (FedFuzzDB), equations 4 and 7 to 13; Vergani and Binaghi 2018. A cluster's spread
is over all rows, S_i = U_i (mean ||x - c_i||^q)^(1/q) with U_i the mean membership, and the index is
the mean over i of the largest (S_i + S_j) / M_ij over j != i; a smaller index is better.

Reveals to whoever opens the total, over all clients: for each center, the sum of all rows' distances to
it to the power q, the sum of their memberships, and the number of rows. The paper proposes to hide each
client's number of rows N_l, since spread, memberships and N_l give equations for its rows. Here no client's
own values are seen. Hiding N_l alone would not help: the memberships of a row add up to 1, so that N_l
equals the sum of the client's memberships over all clusters.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.asking.question import AdditiveOver, ClientData, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.numerics.kernels.dispatch import distances, nearest, two_nearest
from privfed.numerics.kernels.interpreted import IntArray, cell_sums
from privfed.numerics.memberships import check_fuzzifier, shares
from privfed.questions.lloyd import RESOLUTION, ROUNDING, TINY, AtCenters, largest_distances, sum_entry

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
        return sum_entry(name, (len(self.centers),), largest, self.ranges.rows)

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
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [self._one(client.features) for client in clients]

    @abstractmethod
    def _one(self, rows: FloatArray) -> Statistics:
        """Answer for one client."""

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

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most the rows of a client, each at most as far as a corner of the ranges."""
        with np.errstate(over="ignore"):  # The entry refuses a bound that is not finite.
            largest = float(np.float64(self.farthest) ** self.power)
        return StatisticsSpec(self.count, self.per_cluster("distance", largest))

    def placed(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's nearest center, and its distance to it, to the power."""
        labels, squares = nearest(rows, self.centers)
        return labels, np.minimum(np.sqrt(squares), self.farthest) ** self.power

    def _one(self, rows: FloatArray) -> Statistics:
        count, total = self.summed(*self.placed(rows))
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

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Values of at most 1 a row."""
        return StatisticsSpec(self.count, self.per_cluster("silhouette", 1.0))

    def placed(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's nearest center, and its silhouette."""
        labels, *squares = two_nearest(rows, self.centers)
        own, other = np.sqrt(squares)
        # (b - a) / b; for a row on two coinciding centers both are zero, and so is its silhouette.
        ratio = np.divide(own, other, out=np.ones_like(own), where=other > 0)
        return labels, 1.0 - ratio

    def _one(self, rows: FloatArray) -> Statistics:
        count, total = self.summed(*self.placed(rows))
        return Statistics(count=count, silhouette=total)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterScatter(ClusterQuestion):
    """Ask how the rows scatter around their nearest centers.

    Statistics: `count` (n_clusters,), `offset` (n_clusters, n_features), the sum of rows minus their
    center, and `square` (n_clusters,), the sum of squared distances.
    """

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most the rows of a client, each inside the ranges."""
        return StatisticsSpec(self.count, self.offset, self.per_cluster("square", self.farthest**2))

    def _one(self, rows: FloatArray) -> Statistics:
        labels, squares = nearest(rows, self.centers)
        # Offsets from centers are short, even where the data lies far from the origin.
        count, offset = cell_sums(rows - self.centers[labels], labels, len(self.centers))
        distance = np.minimum(np.sqrt(squares), self.farthest)
        return Statistics(count=count, offset=offset, square=self.summed(labels, distance**2)[1])


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
        return StatisticsSpec(self.count, self.offset, Entry("square", self.centers.shape, 0.0, most, step))

    def _one(self, rows: FloatArray) -> Statistics:
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

    def _one(self, rows: FloatArray) -> Statistics:
        labels, _ = nearest(rows, self.centers)
        return Statistics(clients=np.bincount(labels, minlength=len(self.centers)) > 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fuzzy(AtCenters):
    """Questions about the memberships of rows in clusters.

    Args:
        m: fuzzifier, above 1.
    """

    m: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fuzzifier(self.m)

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [self._from(distances(client.features, self.centers)) for client in clients]

    def _from(self, distances: FloatArray) -> Statistics:
        """Return the answer, given squared distances, float64 of shape (n_clusters, n_rows)."""
        raise NotImplementedError


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class FuzzyObjective(_Fuzzy):
    """Ask for the fuzzy c-means objective (eq. 4), and for the inertia of hard assignments.

    Statistics: `objective` (1,) = sum of u^m ||x - c||^2, `inertia` (1,), `rows` (1,).
    """

    row_counts: ClassVar[tuple[str, ...]] = ("rows",)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Each row adds at most the squared distance of a corner: the objective never exceeds the inertia."""
        farthest = largest_distances(self.centers, self.ranges).min()
        return StatisticsSpec(
            sum_entry("objective", (1,), farthest, self.ranges.rows),
            sum_entry("inertia", (1,), farthest, self.ranges.rows),
            Entry("rows", (1,), 0.0, self.ranges.rows, RESOLUTION),
        )

    def _from(self, distances: FloatArray) -> Statistics:
        objective = np.power(shares(distances, self.m), self.m) * distances
        nearest = distances.min(axis=0)
        return Statistics(objective=[objective.sum()], inertia=[nearest.sum()], rows=[len(nearest)])


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class FuzzySpread(_Fuzzy):
    """Ask for the sums of equations 12 and 13.

    Statistics: `spread` (n_clusters,) = sum of ||x - c||^q over all rows, `membership` (n_clusters,) =
    sum of u, `rows` (1,).

    Args:
        q: power of the distances, at least 1.
    """

    q: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1.0 <= self.q <= 64.0:
            raise ArgumentError(f"q must lie in [1, 64], got q={self.q}; the paper takes q=1.")
        if not np.isfinite(self._largest()).all():
            raise ArgumentError(f"q={self.q} is too large for distances in these ranges; take a smaller one.")

    def _largest(self) -> FloatArray:
        with np.errstate(over="ignore"):
            powers: FloatArray = largest_distances(self.centers, self.ranges) ** (self.q / 2.0)
        return np.maximum(powers, TINY)

    row_counts: ClassVar[tuple[str, ...]] = ("membership",)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Each row adds at most the distance of a corner of the ranges, and a membership of 1."""
        k, rows = len(self.centers), self.ranges.rows
        return StatisticsSpec(
            sum_entry("spread", (k,), self._largest(), rows),
            sum_entry("membership", (k,), 1.0, rows),
            Entry("rows", (1,), 0.0, rows, RESOLUTION),
        )

    def _from(self, distances: FloatArray) -> Statistics:
        spread = np.power(distances, self.q / 2.0).sum(axis=1)
        membership = shares(distances, self.m).sum(axis=1)
        return Statistics(spread=spread, membership=membership, rows=[distances.shape[1]])


def index_from(total: Statistics, centers: FloatArray, p: float, q: float) -> float:
    """Return the index (eq. 7 to 9 with the spread of eq. 12) from a total of `FuzzySpread`.

    It is infinite where two centers coincide, since they are then one cluster.

    Args:
        total: total of `FuzzySpread`.
        centers: the question's centers, float64 of shape (n_clusters, n_features).
        p: order of the norm of differences of centers.
        q: power of the distances in the question.
    """
    rows = max(float(total["rows"][0]), 1.0)
    spread = total["membership"] / rows * (total["spread"] / rows) ** (1.0 / q)
    apart = np.linalg.norm(centers[:, None] - centers[None], ord=p, axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(apart > 0.0, (spread[:, None] + spread) / apart, np.inf)
    np.fill_diagonal(ratio, -np.inf)
    return float(ratio.max(axis=1).mean())


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
    mean = count @ means / n
    between = float(count @ np.square(means - mean).sum(axis=1))
    return between * (n - len(count)) / (len(count) - 1), within
