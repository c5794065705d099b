"""Weighted local points that clients compute from their rows, and k-means over their union.

The union of the clients' points is not a sum, but each step of k-means over it is: it asks for counts and
sums of the points nearest to each center. k-FED, FKM and fuzzy c-means with k-means averaging use this inner
k-means. A client keeps its points in its own cache; they never leave it.

Reveals to whoever opens the totals: weighted counts and sums of all clients' points in public cells,
or nearest to each center. A cell can hold a single point.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, cast

import numpy as np

from privfed.core.asking.declaration import STEP, Declaration, Effort
from privfed.core.asking.question import ClientData, Part, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.conversation import EVERYONE, Ask, Conversation
from privfed.core.stored.encoding import asdict
from privfed.core.values.domain import FloatArray, Ranges
from privfed.numerics.kernels.dispatch import assign
from privfed.numerics.kernels.interpreted import IntArray, cell_sums
from privfed.numerics.kmeans import MOST_STEPS
from privfed.numerics.memberships import moved
from privfed.questions.cells import Cells
from privfed.questions.lloyd import RESOLUTION, check_centers, least_rows, sums_entry


class WeightedPoints(NamedTuple):
    """Weighted points of one client.

    Attributes:
        points: float64 of shape (n_points, n_features), inside the ranges; may have no rows.
        weights: float64 of shape (n_points,), not negative.
    """

    points: FloatArray
    weights: FloatArray


def no_points(n_features: int) -> WeightedPoints:
    """Return the empty set of points."""
    return WeightedPoints(np.empty((0, n_features)), np.empty(0))


def kmeans_effort(n_clusters: int, n_features: int, n_starts: int) -> Effort:
    """Return what a client's own k-means takes (`privfed.numerics.kmeans.weighted_kmeans`)."""
    vectors, steps = n_starts * n_clusters, n_starts * (MOST_STEPS + n_clusters)
    return Effort(MOST_STEPS, vectors, vectors * n_features, steps * STEP)


def has_distinct(rows: FloatArray, wanted: int) -> bool:
    """Say whether there are at least `wanted` distinct rows; usually the first few rows suffice."""
    size = 4 * wanted
    while size < 2 * len(rows):
        if len(np.unique(rows[:size], axis=0)) >= wanted:
            return True
        size *= 8
    return len(np.unique(rows, axis=0)) >= wanted


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalPoints(Part, ABC):
    """A deterministic way to compute points from a client's rows, as a frozen dataclass.

    Attributes:
        counts_rows: whether weights count rows; otherwise each weight is 1.
    """

    counts_rows: ClassVar[bool] = False

    def row_counts(self, entry: str) -> tuple[str, ...]:
        """Return what a question declares about an entry that adds up weights, by its name."""
        return (entry,) if self.counts_rows else ()

    @abstractmethod
    def make(self, client: ClientData) -> WeightedPoints:
        """Compute the client's points; called once, then kept in the client's cache."""

    def prepare(self, clients: Sequence[ClientData]) -> None:
        """Put what `make` returns into each client's cache, where one pass over all clients is faster."""

    @abstractmethod
    def heaviest(self, ranges: Ranges) -> float:
        """Return the largest total weight of one client's points."""

    def key(self) -> tuple[bytes | int | float | str | None, ...]:
        """Return the values of all fields, which identify these points among others of the same class."""
        return tuple(
            value.tobytes() if isinstance(value, np.ndarray) else value for value in asdict(self).values()
        )

    def of(self, client: ClientData) -> WeightedPoints:
        """Return the client's points, from its cache if they are there."""
        kept = client.cache.get(type(self))
        if not isinstance(kept, tuple) or kept[0] != self.key():
            # The cache keeps one set of points a class: those of a new round replace the old.
            kept = (self.key(), self.make(client))
            client.cache[type(self)] = kept
        return cast(WeightedPoints, kept[1])


def weighted_cell_sums(held: WeightedPoints, cells: IntArray, n_cells: int) -> Statistics:
    """Return each cell's weight, `count` (n_cells,), and weighted sum, `sum` (n_cells, n_features)."""
    count = np.bincount(cells, weights=held.weights, minlength=n_cells)
    _, total = cell_sums(held.points * held.weights[:, None], cells, n_cells)
    return Statistics(count=count, sum=total)


def _point_spec(points: LocalPoints, ranges: Ranges, n_cells: int) -> StatisticsSpec:
    heaviest = points.heaviest(ranges)
    return StatisticsSpec(
        Entry("count", (n_cells,), 0.0, heaviest, RESOLUTION),
        sums_entry("sum", n_cells, Ranges(ranges.low, ranges.high, int(np.ceil(heaviest)))),
    )


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class PointCells(Cells):
    """Ask for weights and weighted sums of the clients' points in public cells.

    Statistics: `count` (n_cells,), `sum` (n_cells, n_features).

    Args:
        points: how clients compute their points.
    """

    points: LocalPoints

    @property
    def declaration(self) -> Declaration:
        """Weights and weighted sums, where weights count rows."""
        return Declaration(self.points.row_counts("count"), n_cells=self.n_cells)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Weights of at most a client's largest total weight; sums of that many points in the ranges."""
        return _point_spec(self.points, self.ranges, self.n_cells)

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        held = [self.points.of(client) for client in clients]
        return [weighted_cell_sums(own, self.cells(own.points), self.n_cells) for own in held]


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class PointSums(Question):
    """Ask for a Lloyd step over the clients' points: weight and weighted sum of those nearest to each center.

    Statistics: `count` (n_clusters,), `sum` (n_clusters, n_features).

    Args:
        points: how clients compute their points.
        centers: float64 of shape (n_clusters, n_features).
    """

    points: LocalPoints
    centers: FloatArray

    def __post_init__(self) -> None:
        check_centers(self.centers, self.ranges)

    @property
    def declaration(self) -> Declaration:
        """Weights and weighted sums, where weights count rows."""
        return Declaration(self.points.row_counts("count"), (self.centers,))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Weights of at most a client's largest total weight; sums of that many points in the ranges."""
        return _point_spec(self.points, self.ranges, len(self.centers))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        held, k = [self.points.of(client) for client in clients], len(self.centers)
        return [weighted_cell_sums(own, assign(own.points, self.centers), k) for own in held]


def summed_kmeans(
    points: LocalPoints,
    centers: FloatArray,
    ranges: Ranges,
    *,
    max_iter: int,
    tol: float,
    cohort: int = EVERYONE,
    upcoming: tuple[int, ...] = (EVERYONE,),
    purpose: str = "round",
) -> Conversation[FloatArray]:
    """Run weighted k-means over the union of the clients' points, one sum a step.

    The result equals k-means of the gathered points from the same start. A center without points stays where
    it is.

    Args:
        points: how clients compute their points.
        centers: start, float64 of shape (n_clusters, n_features).
        ranges: ranges of the data.
        max_iter: most steps.
        tol: stop once the centers move by at most this (Frobenius norm).
        cohort: label of the cohort that is asked.
        upcoming: labels of the cohorts that may be asked after the last step.
        purpose: what the totals are for.
    """
    for _ in range(max_iter):
        question = PointSums(ranges=ranges, points=points, centers=centers)
        total = yield Ask(question, cohort, tuple(dict.fromkeys((cohort, *upcoming))), purpose)
        before, found = centers, total.statistics
        centers = moved(centers, found["count"], found["sum"], least_rows(total))
        if np.linalg.norm(centers - before) <= tol:
            break
    return centers
