"""Questions about the rows and given centers: Lloyd's step, the k-means objective, and agreement with labels.

The objective, inertia, reveals to whoever opens the total the sum of squared distances to the nearest
centroid, and the number of rows, each over the whole cohort. Labels stay with the clients: their contingency
table reveals to whoever opens it how many rows of each label are in each cluster, over the whole cohort; no
client's own counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from privfed.core.asking.data import stacked
from privfed.core.asking.declaration import Declaration
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec, Within
from privfed.core.roles.conversation import Total
from privfed.core.values.domain import FloatArray, Ranges
from privfed.core.values.numbers import check_whole
from privfed.errors import ArgumentError, UndefinedIndexError
from privfed.numerics.kernels.dispatch import assign, nearest, step
from privfed.numerics.kernels.interpreted import cell_sums

SLACK = 1.0 + 2.0**-26
"""Ranges of sums are widened by this factor, so that rounding in a float64 sum is never clipped."""

RESOLUTION = 2.0**-30
"""Coarsest acceptable quantisation step, relative to the range of one record's contribution."""


LEAST_ROWS = 0.5
"""Below it a count of rows is nobody's: honest ones are whole, and a liar may claim a part of a row."""


def least_rows(total: Total) -> float:
    """Return the count of rows up to which a mean stays where it was; with noise any above 0 moves it."""
    return LEAST_ROWS if total.noise_std is None else 0.0


def check_centers(centers: FloatArray, ranges: Ranges) -> None:
    """Check the centroids of a question.

    Raises:
        ArgumentError: they are not finite, or have not one column a feature of the ranges.
    """
    if centers.ndim != 2 or len(centers) == 0 or centers.shape[1] != ranges.n_features:
        raise ArgumentError(f"centers need {ranges.n_features} columns, got shape {centers.shape}.")
    if not np.isfinite(centers).all():
        raise ArgumentError("centers must be finite.")


def sums_entry(name: str, cells: int, ranges: Ranges, weights: str = "count") -> Entry:
    """Return the entry, (cells, n_features), for sums of at most `ranges.rows` rows in each cell."""
    return box_entry(name, (cells, ranges.n_features), ranges.low, ranges.high, ranges.rows, weights)


def box_entry(
    name: str,
    shape: tuple[int, ...],
    low: FloatArray,
    high: FloatArray,
    most: float = 1.0,
    weights: str | None = None,
) -> Entry:
    """Return the entry for points between `low` and `high`, each with a weight from 0 to `most`.

    Args:
        name: of the entry.
        shape: of the entry.
        low: float64 of shape (n_features,), or of the entry's shape.
        high: likewise.
        most: the largest weight.
        weights: name of the entry that holds the weights; None where the weights are not answered.
    """
    width = high - low
    return Entry(
        name,
        shape,
        low=np.minimum(0.0, most * low) * SLACK,
        high=np.maximum(0.0, most * high) * SLACK,
        resolution=np.where(width > 0, width, np.maximum(np.abs(high), 1.0)) * RESOLUTION,
        within=None if weights is None else Within(weights, low, high),
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


ROUNDING = 1.0 + 2.0**-30
"""Factor by which bounds exceed what exact arithmetic gives, for rounding."""

TINY = 2.0**-1000
"""Smallest quantisation step of values that may all be zero."""


def largest_distances(centers: FloatArray, ranges: Ranges) -> FloatArray:
    """Return bounds above 0 on a row's squared distance to each center, float64 of shape (n_clusters,)."""
    corner = np.maximum(np.abs(centers - ranges.low), np.abs(centers - ranges.high))
    with np.errstate(over="ignore"):  # The entry refuses a bound that is not finite.
        farthest: FloatArray = np.maximum(np.square(corner).sum(axis=1), np.finfo(np.float64).tiny)
    return farthest


def sum_entry(
    name: str, shape: tuple[int, ...], largest: FloatArray | float, rows: int, weights: str | None = None
) -> Entry:
    """Return the entry for a sum of values in [0, largest], one value a row, which `weights` counts."""
    most = np.asarray(largest)
    within = None if weights is None else Within(weights, 0.0, most)
    return Entry(name, shape, 0.0, rows * most * ROUNDING, np.maximum(most * RESOLUTION, TINY), within)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Inertia(AtCenters):
    """Ask for the sum of squared distances to the nearest centroid.

    Statistics: `inertia` (1,), `rows` (1,); with directions `count` (n_clusters,), the rows nearest to each
    centroid, and `along` (n_clusters, n_directions), the sums of their offsets from it along each direction.

    Args:
        directions: float64 of shape (n_directions, n_features); None for none.
    """

    row_counts: ClassVar[tuple[str, ...]] = ("rows", "count")
    directions: FloatArray | None = None

    def __post_init__(self) -> None:
        for points in (self.centers,) if self.directions is None else (self.centers, self.directions):
            check_centers(points, self.ranges)

    @property
    def declaration(self) -> Declaration:
        """The number of rows, in all and at each centroid."""
        return Declaration(self.row_counts[: 1 + (self.directions is not None)], (self.centers,))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most the rows of a client, each at most as far as a corner of the ranges."""
        farthest, rows = largest_distances(self.centers, self.ranges).min(), self.ranges.rows
        entries = [
            sum_entry("inertia", (1,), farthest, rows, "rows"),
            Entry("rows", (1,), 0.0, rows, RESOLUTION),
        ]
        if self.directions is not None:
            corner = np.maximum(
                np.abs(self.centers - self.ranges.low), np.abs(self.centers - self.ranges.high)
            )
            reach = corner @ np.abs(self.directions).T * ROUNDING
            along = -rows * reach, rows * reach, np.maximum(reach * RESOLUTION, TINY)
            count = Entry("count", (len(self.centers),), 0.0, rows, RESOLUTION)
            entries += [count, Entry("along", reach.shape, *along, Within("count", -reach, reach))]
        return StatisticsSpec(*entries)

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> Sequence[Statistics]:
        """Answer for several clients."""
        placed = [nearest(client.features, self.centers) for client in clients]
        found = {
            "inertia": np.array([[squares.sum()] for _, squares in placed]),
            "rows": np.array([[float(client.n_rows)] for client in clients]),
        }
        if self.directions is not None:
            each, shape = zip(clients, placed, strict=True), (len(clients), len(self.centers))
            along = [(one.features - self.centers[own]) @ self.directions.T for one, (own, _) in each]
            cells = [place * shape[1] + own for place, (own, _) in enumerate(placed)]
            sums = cell_sums(np.concatenate(along), np.concatenate(cells), shape[0] * shape[1])
            found["count"], found["along"] = sums[0].reshape(shape), sums[1].reshape(*shape, -1)
        return self.spec.tabled(**found)


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
        return StatisticsSpec(
            sum_entry("score", (1,), largest_distances(self.centers, self.ranges).min(), 1, "clients"),
            Entry("clients", (1,), 0.0, 1.0, RESOLUTION),
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> Sequence[Statistics]:
        """Answer for several clients."""
        score = [nearest(client.features, self.centers).squares.mean() for client in clients]
        return self.spec.tabled(score=np.array(score)[:, None], clients=np.ones((len(clients), 1)))


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Contingency(AtCenters):
    """Ask how many rows of each label lie in each cluster.

    Statistics: `table` (n_labels, n_clusters). A client without labels contributes zeros.

    Args:
        n_labels: number of label codes, which are 0 to n_labels - 1; rows with other codes are not counted.
    """

    row_counts: ClassVar[tuple[str, ...]] = ("table",)
    n_labels: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("n_labels", self.n_labels, 1, 1 << 20)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Counts of at most the rows of a client."""
        return StatisticsSpec(
            Entry("table", (self.n_labels, len(self.centers)), 0.0, self.ranges.rows, 2.0**-30)
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [Statistics(table=self._table(client)) for client in clients]

    def _table(self, client: ClientData) -> FloatArray:
        table = np.zeros((self.n_labels, len(self.centers)))
        if client.labels is not None:
            known = (client.labels >= 0) & (client.labels < self.n_labels)
            np.add.at(table, (client.labels[known], assign(client.features[known], self.centers)), 1.0)
        return table


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of clusters with labels.

    Args:
        accuracy: share of rows whose label is the most frequent one in their cluster; several clusters may
            have the same most frequent label (section 3.3 of Holzer et al. 2023).
        homogeneity: 1 when each cluster holds one label only.
        completeness: 1 when each label lies in one cluster only.
        v_measure: harmonic mean of homogeneity and completeness (Rosenberg and Hirschberg 2007).
        adjusted_rand_index: Rand index corrected for chance (Hubert and Arabie 1985).
    """

    accuracy: float
    homogeneity: float
    completeness: float
    v_measure: float
    adjusted_rand_index: float


def agreement(table: FloatArray) -> Agreement:
    """Return the agreement scores of a contingency table, float64 of shape (n_labels, n_clusters).

    Raises:
        UndefinedIndexError: the table holds no rows.
    """
    counts = np.rint(table).astype(np.int64)
    if counts.sum() <= 0:
        raise UndefinedIndexError(
            "the contingency table is empty: no client has labels, or noise hides all rows; pass labels to "
            "fit or load, or claim a larger epsilon."
        )
    # Of the table alone: noised counts of whole clients may add up to more rows than memory holds.
    n, labels, clusters = int(counts.sum()), counts.sum(axis=1), counts.sum(axis=0)
    of_labels, of_clusters = _entropy(labels), _entropy(clusters)
    shared = max(of_labels + of_clusters - _entropy(counts), 0.0)
    homogeneity = min(shared / of_labels, 1.0) if of_labels else 1.0
    completeness = min(shared / of_clusters, 1.0) if of_clusters else 1.0
    both = homogeneity + completeness
    # Ordered pairs of rows: alike in labels and clusters, in one of them only, in neither.
    squares = _squares(counts)
    alike, by_cluster, by_label = squares - n, _squares(clusters) - squares, _squares(labels) - squares
    apart = n * n - squares - by_cluster - by_label
    found = 2 * (alike * apart - by_label * by_cluster)
    most = (alike + by_label) * (by_label + apart) + (alike + by_cluster) * (by_cluster + apart)
    return Agreement(
        accuracy=float(counts.max(axis=0).sum() / n),
        homogeneity=homogeneity,
        completeness=completeness,
        v_measure=2.0 * homogeneity * completeness / both if both else 0.0,
        adjusted_rand_index=found / most if by_cluster or by_label else 1.0,
    )


def _entropy(counts: npt.NDArray[np.int64]) -> float:
    shares = counts[counts > 0] / counts.sum()
    return -float((shares * np.log(shares)).sum()) if len(shares) > 1 else 0.0


def _squares(counts: npt.NDArray[np.int64]) -> int:
    """Return the sum of squares, which int64 may not hold."""
    return sum(one * one for one in counts[counts > 0].tolist())
