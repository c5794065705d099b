"""New places for centers that rounds find empty.

Noise alone fills a cell now and then, and k-means on the coreset makes it a cluster. Rounds count anew, with
noise of their own, and find no rows there. So the coreset's points of such centers are left out, and the
others are clustered anew, which costs no budget. A center whose points stay together keeps the place that the
rounds found for it.

Reveals nothing: it looks at noised totals only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privfed.algorithms.private.coreset import clustered
from privfed.algorithms.private.noised_rounds import State
from privfed.algorithms.private.points import BoolArray, Coreset
from privfed.algorithms.private.scale import Scale
from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels.interpreted import IntArray
from privfed.numerics.kmeans import nearest

# docs/algorithms/dp_kmeans.md, "Where the constants come from", says how these were found.
NO_ROWS, SURELY_LESS, NEGLIGIBLE, LITTLE = 0.5, 3.0, 0.05, 0.1
"""A center is empty if two things hold. Rounds found, on average, fewer rows than `NO_ROWS` standard
deviations of the noise in one round. The coreset has for it only a negligible part of an average cluster, or
more rows than were found, by `SURELY_LESS` standard deviations of the noise in that average. It is empty too
if the coreset has little for it, and rounds found none."""


@dataclass(frozen=True, slots=True)
class Seats:
    """Points of the coreset that no round has found empty.

    Args:
        coreset: the points, with about how many rows each represents.
        variance: of the error in a coordinate of a center that is a mean of such points.
        scale: noised number, centre and radius of the rows.
        counted: sum of the numbers of rows that rounds found for each center, float64 of shape (n_clusters,).
        rounds: number of these rounds, float64 of shape (n_clusters,).
    """

    coreset: Coreset
    variance: float
    scale: Scale
    counted: FloatArray
    rounds: FloatArray

    def told(self, state: State, part: float) -> Seats:
        """Return the same points, with the counts of one more round.

        Args:
            state: the state after that round.
            part: precision of its counts, in units of a round that asks of whole clusters.
        """
        return replace(self, counted=self.counted + part * state.found, rounds=self.rounds + part)

    def empty(self, asked: FloatArray, noise: float, few: float = NO_ROWS) -> BoolArray:
        """Return which of the centers that the last round asked about are empty.

        Args:
            asked: these centers.
            noise: standard deviation of the noise in the counts of a round that asks of whole clusters.
            few: below so many of these a center has few rows, and `NO_ROWS` below that none.
        """
        k, mean = len(asked), self.counted / np.maximum(self.rounds, 0.5)
        weight = np.bincount(nearest(self.coreset.points, asked), self.coreset.weights, k)
        surely_less = (weight - mean) * np.sqrt(self.rounds) > SURELY_LESS * noise
        share = weight * k / weight.sum()
        no_rows = (share < LITTLE) & (mean < (few - NO_ROWS) * noise)
        few_rows = (mean < few * noise) & (surely_less | (share < NEGLIGIBLE))
        found: BoolArray = (self.rounds > 0.0) & (few_rows | no_rows)
        return found

    def moved(self, new: BoolArray, asked: FloatArray, empty: BoolArray) -> Seats:
        """Return the seats after some centers moved; without the points of those that were empty.

        Args:
            new: which centers moved.
            asked: the centers of the last round before they moved.
            empty: which of these were empty.
        """
        left = ~(empty & new)[nearest(self.coreset.points, asked)]
        points = self.coreset.only(left) if left.any() else self.coreset
        counted, rounds = np.where(new, 0.0, self.counted), np.where(new, 0.0, self.rounds)
        return replace(self, coreset=points, counted=counted, rounds=rounds)

    def after(
        self, asked: FloatArray, state: State, rng: np.random.Generator
    ) -> tuple[Seats, State, BoolArray]:
        """Return the points that remain, the state with new places for empty centers, and which are new.

        Args:
            asked: the centers of the last round before they moved.
            state: the state after that round, which asked of whole clusters.
            rng: source of the clustering's starts.
        """
        k, told = len(asked), self.told(state, 1.0)
        empty = told.empty(asked, state.count_noise)
        left = ~empty[nearest(self.coreset.points, asked)]
        if not empty.any() or empty.all() or left.sum() < k:
            return told, state, np.zeros(k, dtype=np.bool_)
        points = self.coreset.only(left)
        found = clustered(self.scale, points, k, rng)
        held = np.flatnonzero(~empty)
        old = held[nearest(points.points, state.centers[held])]
        stays, moved = _matched(old, nearest(points.points, found), k)
        centers, variance = state.centers.copy(), state.variance.copy()
        new = np.ones(k, dtype=np.bool_)
        new[stays] = False
        centers[new] = found[moved]
        variance[new] = self.variance
        counted, rounds = np.where(new, 0.0, told.counted), np.where(new, 0.0, told.rounds)
        seats = replace(self, coreset=points, counted=counted, rounds=rounds)
        return seats, replace(state, centers=centers, variance=variance), new


def _matched(old: IntArray, labels: IntArray, n_clusters: int) -> tuple[IntArray, IntArray]:
    """Return which old clusters have exactly the points of a new one, and the new ones that have no match."""
    together = np.zeros((n_clusters, n_clusters), dtype=np.bool_)
    together[old, labels] = True
    alone = together & (together.sum(axis=0) == 1)[None] & (together.sum(axis=1) == 1)[:, None]
    stays, matched = np.nonzero(alone)
    return stays, np.setdiff1d(np.arange(n_clusters), matched)
