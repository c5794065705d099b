"""Validity indices of a clustering as sums: how tight and how far apart clusters are, without labels.

Each row belongs to its nearest center. A cluster without rows is left out of every index, as the
authors of federated k-means do (`nanmean`); fewer than two clusters with rows have no index.

Sources: Davies and Bouldin, A Cluster Separation Measure, PAMI 1979; Calinski and Harabasz, A Dendrite
Method for Cluster Analysis, 1974; Vendramin, Campello and Hruschka, Relative Clustering Validity
Criteria, 2010 (simplified silhouette); Triebe and Rajagopal, Federated K-Means, 2019 (mean distance).

Reveals to whoever opens the totals, over all clients: how many rows are nearest to each center, and of
each cluster's rows the sum of their distances (`ClusterDistances`), of their silhouettes
(`ClusterSilhouettes`), or the sum of them all and of their squared distances (`ClusterScatter`). A
cluster can hold a single row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics import silhouette_score

from privfed.core.declaration import Declaration, RowCounts
from privfed.core.distances import IntArray, assign, assign_alone, cell_sums, nearest, squared_differences
from privfed.core.domain import FloatArray, Ranges, frozen_array
from privfed.core.federation import Federation
from privfed.core.question import AdditiveOver, ClientData, Question, register
from privfed.core.statistics import Entry, Statistics, StatisticsSpec
from privfed.errors import ArgumentError, DataError, UndefinedIndexError
from privfed.metrics.asking import asked
from privfed.metrics.functions import _door
from privfed.metrics.score import _RESOLUTION, _SLACK, _check_centers, largest_distance
from privfed.privacy.privacy import Privacy

LARGEST_POWER = 8.0
"""Largest q of the Davies-Bouldin index: higher powers of distances lose small clusters' digits."""

_TINY = 2.0**-1000


def distances_to(rows: FloatArray, centers: FloatArray, labels: IntArray) -> FloatArray:
    """Return each row's distance to the center of its label, from differences: exact near zero too."""
    difference = rows - centers[labels]
    return np.asarray(np.sqrt(np.einsum("nd,nd->n", difference, difference)))


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterQuestion(Question):
    """Questions about the rows nearest to each center.

    Args:
        centers: float64 of shape (n_clusters, n_features).
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS
    centers: FloatArray

    def __post_init__(self) -> None:
        _check_centers(self.centers, self.ranges)

    @property
    def farthest(self) -> float:
        """Bound on the distance of a row to its nearest center."""
        return float(np.sqrt(max(largest_distance(self.centers, self.ranges), np.finfo(np.float64).tiny)))

    def per_cluster(self, name: str, largest: float) -> Entry:
        """Describe sums over clusters of values in [0, largest], one a row."""
        high = self.ranges.rows * largest * _SLACK
        return Entry(name, (len(self.centers),), 0.0, high, max(largest * _RESOLUTION, _TINY))

    @property
    def count(self) -> Entry:
        """Describe the rows nearest to each center."""
        return Entry("count", (len(self.centers),), 0.0, self.ranges.rows, _RESOLUTION)

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
        power: to which each distance is raised, q of Davies and Bouldin.
    """

    power: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1.0 <= self.power <= LARGEST_POWER:
            raise ArgumentError(f"power must lie in [1, {LARGEST_POWER:g}], got power={self.power}.")

    @property
    def declaration(self) -> Declaration:
        """Counts of rows, and sums of their distances."""
        return Declaration(row_counts=(RowCounts("count", ("distance",)),))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most the rows of a client, each at most as far as a corner of the ranges."""
        return StatisticsSpec(self.count, self.per_cluster("distance", self.farthest**self.power))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [self._one(client.features) for client in clients]

    def _one(self, rows: FloatArray) -> Statistics:
        labels = assign_alone(rows, self.centers)
        distance = np.minimum(distances_to(rows, self.centers, labels), self.farthest)
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
        return Declaration(row_counts=(RowCounts("count", ("silhouette",)),))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most one a row."""
        return StatisticsSpec(self.count, self.per_cluster("silhouette", 1.0))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [self._one(client.features) for client in clients]

    def _one(self, rows: FloatArray) -> Statistics:
        squares = squared_differences(rows, self.centers)
        labels, every = nearest(squares), np.arange(len(rows))
        own = np.sqrt(squares[every, labels])
        squares[every, labels] = np.inf
        other = np.sqrt(squares.min(axis=1))
        # (b - a) / max(a, b); both are zero for a row on two centers, whose silhouette is zero.
        larger = np.maximum(own, other)
        ratio = np.divide(np.minimum(own, other), larger, out=np.ones_like(own), where=larger > 0)
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
        return Declaration(row_counts=(RowCounts("count", ("offset", "square")),))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most the rows of a client, each inside the ranges."""
        low, high = self.ranges.low - self.centers, self.ranges.high - self.centers
        rows = self.ranges.rows * _SLACK
        offset = Entry(
            "offset",
            self.centers.shape,
            rows * np.minimum(low, 0.0),
            rows * np.maximum(high, 0.0),
            np.maximum(np.maximum(np.abs(low), np.abs(high)) * _RESOLUTION, _TINY),
        )
        return StatisticsSpec(self.count, offset, self.per_cluster("square", self.farthest**2))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [self._one(client.features) for client in clients]

    def _one(self, rows: FloatArray) -> Statistics:
        labels = assign_alone(rows, self.centers)
        # Rows relative to their centers are short, also where the data lies far from the origin.
        count, offset = cell_sums(rows - self.centers[labels], labels, len(self.centers))
        distance = np.minimum(distances_to(rows, self.centers, labels), self.farthest)
        return Statistics(count=count, offset=offset, square=self.summed(labels, distance**2)[1])


def _opened(
    clients: Any, centers: Any, privacy: Privacy | None, options: dict[str, Any], least: int = 2
) -> tuple[Federation, Ranges, FloatArray]:
    """Check the centers, then open the door."""
    try:
        checked = frozen_array(centers)
    except (TypeError, ValueError):
        raise ArgumentError("centers must be an array of numbers, (n_clusters, n_features).") from None
    if checked.ndim != 2 or len(checked) < least:
        raise ArgumentError(
            f"centers must be of shape (n_clusters, n_features), n_clusters >= {least}, got {checked.shape}."
        )
    return (*_door(clients, None, privacy, options), checked)


def _held(total: Statistics) -> IntArray:
    """Return which clusters hold rows.

    Raises:
        UndefinedIndexError: fewer than two.
    """
    held = np.flatnonzero(np.rint(total["count"]) > 0)
    if len(held) < 2:
        raise UndefinedIndexError(
            f"{len(held)} of {len(total['count'])} clusters hold rows, an index needs two; fit again from "
            "another start, or pass other centers."
        )
    return held


def davies_bouldin(
    clients: Any,
    centers: Any,
    p: float = 2.0,
    q: float = 1.0,
    *,
    privacy: Privacy | None = None,
    **options: Any,
) -> float:
    """Return the Davies-Bouldin index; the lower, the better. One sum.

    The mean over clusters i of max_j (S_i + S_j) / M_ij, where S_i is the q-th moment of the distances
    of its rows to its center and M_ij the Minkowski distance of order p between centers (eq. 7 to 11 of
    Stallmann and Wilbik 2022). With p=2, q=1 and the clusters' means as centers it is scikit-learn's.

    Args:
        clients: list of tables of shape (n_i, n_features), or a federation.
        centers: (n_clusters, n_features), at least two.
        p: at least 1.
        q: in [1, 8].
        privacy: Privacy | None, or a `privfed.Privacy` that is spent on this index (a list of tables only).
        **options: `protocol`, `domain`, `policy`, `random_state`, `groups`, `client_names` where `clients` is
            no federation.

    Raises:
        UndefinedIndexError: fewer than two clusters hold rows.
    """
    if not (np.isfinite(p) and p >= 1.0):
        raise ArgumentError(f"p must be a number of at least 1, got p={p}.")
    if not 1.0 <= q <= LARGEST_POWER:
        raise ArgumentError(f"q must lie in [1, {LARGEST_POWER:g}], got q={q}.")
    federation, ranges, checked = _opened(clients, centers, privacy, options)
    question = ClusterDistances(ranges=ranges, centers=checked, power=float(q))
    total = asked(federation, question)
    held = _held(total)
    spread = (total["distance"][held] / np.rint(total["count"][held])) ** (1.0 / q)
    between = np.linalg.norm(checked[held][:, None] - checked[held][None], ord=p, axis=-1)
    np.fill_diagonal(between, np.inf)
    sums = spread[:, None] + spread[None]
    with np.errstate(divide="ignore", over="ignore"):
        similar = np.divide(sums, between, out=np.zeros_like(sums), where=sums > 0)
    return float(similar.max(axis=1).mean())


def mean_distance(clients: Any, centers: Any, *, privacy: Privacy | None = None, **options: Any) -> float:
    """Return the mean distance of all rows to their nearest center. One sum.

    The "mean Euclidean intra-cluster distance" of Triebe and Rajagopal 2019: over rows, not clusters.
    Arguments as for `davies_bouldin`, with one center or more.

    Raises:
        UndefinedIndexError: under differential privacy, where noise hides all rows.
    """
    federation, ranges, checked = _opened(clients, centers, privacy, options, least=1)
    question = ClusterDistances(ranges=ranges, centers=checked)
    total = asked(federation, question)
    rows = float(np.rint(total["count"]).sum())
    if rows < 1.0:
        raise UndefinedIndexError("noise hides all rows; claim a larger epsilon, or pass fewer centers.")
    return float(total["distance"].sum()) / rows


def simplified_silhouette(
    clients: Any, centers: Any, *, privacy: Privacy | None = None, **options: Any
) -> float:
    """Return the mean simplified silhouette of all rows, in [0, 1]; the higher, the better.

    Distances to centers stand for mean distances to clusters (Vendramin et al. 2010).
    The row of a cluster of one has silhouette zero. One sum; a second where a center has no rows, so
    that it is nobody's next center. Arguments and errors as for `davies_bouldin`.
    """
    federation, ranges, checked = _opened(clients, centers, privacy, options)
    question = ClusterSilhouettes(ranges=ranges, centers=checked)
    total = asked(federation, question)
    held = _held(total)
    # Under differential privacy a second sum is not paid for: empty centers stay next ones.
    if len(held) < len(checked) and federation.setting.privacy is None:
        question = ClusterSilhouettes(ranges=ranges, centers=frozen_array(checked[held]))
        total = asked(federation, question)
    count = np.rint(total["count"])
    return float(total["silhouette"][count > 1].sum() / count.sum())


def calinski_harabasz(clients: Any, centers: Any, *, privacy: Privacy | None = None, **options: Any) -> float:
    """Return the Calinski-Harabasz index; the higher, the better. One sum.

    Scatter between the clusters' means over scatter around them, each over its degrees of freedom. The
    means are those of the rows nearest to each center, whatever the centers: it is scikit-learn's of
    these labels, 1 where nothing scatters. Arguments and errors as for `davies_bouldin`.
    """
    federation, ranges, checked = _opened(clients, centers, privacy, options)
    total = asked(federation, ClusterScatter(ranges=ranges, centers=checked))
    held = _held(total)
    count, n = np.rint(total["count"][held]), float(np.rint(total["count"]).sum())
    if n <= len(held):
        raise UndefinedIndexError(f"each of the {len(held)} clusters holds one row; pass fewer centers.")
    shift = total["offset"][held] / count[:, None]
    within = float((total["square"][held] - count * np.square(shift).sum(axis=1)).sum())
    # Means relative to one of the centers, so that they do not cancel far from the origin.
    means = checked[held] - checked[held[0]] + shift
    mean = count @ means / n
    between = float(count @ np.square(means - mean).sum(axis=1))
    return between * (n - len(held)) / (within * (len(held) - 1)) if within > 0 else 1.0


def silhouette(clients: Any, centers: Any) -> float:
    """Return the mean silhouette of the pooled rows (Rousseeuw 1987): for simulations only.

    It needs the distance of every pair of rows, also of two clients' rows, which no sum gives: the rows
    are put together here, past the door. `simplified_silhouette` is its counterpart through the door.

    Args:
        clients: list of tables of shape (n_i, n_features); a federation is refused.
        centers: (n_clusters, n_features).

    Raises:
        DataError: a federation is passed, or tables that do not fit together.
        UndefinedIndexError: fewer than two clusters hold rows, or each holds one.
    """
    if isinstance(clients, Federation):
        raise DataError("silhouette pools all rows, which a federation never gives; pass a list of tables.")
    try:
        rows = np.concatenate([np.asarray(one, dtype=np.float64) for one in clients])
        labels = assign(rows, frozen_array(centers))
    except (TypeError, ValueError):
        raise DataError("clients and centers must be tables of numbers with the same columns.") from None
    n_held = len(np.unique(labels))
    if not 2 <= n_held < len(rows):
        raise UndefinedIndexError(f"{n_held} clusters hold the {len(rows)} rows; pass other centers.")
    return float(silhouette_score(rows, labels))
