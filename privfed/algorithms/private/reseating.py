"""Centers that a round finds empty get another place, by what the coreset shows; this costs no budget.

Noise alone fills a cell now and then, and k-means on the coreset makes it a cluster. Rounds count anew, with
noise of their own, and find no rows there. So the coreset's points of such centers are left out, and the
others are clustered anew. A center whose points stay together keeps the place that the rounds found for it.

Reveals nothing: it looks at noised totals only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privfed.algorithms.private.coreset import clustered
from privfed.algorithms.private.points import BoolArray
from privfed.algorithms.private.rounds import State
from privfed.algorithms.private.scale import Scale
from privfed.core.values.domain import FloatArray
from privfed.numerics.distances import IntArray
from privfed.numerics.weighted_kmeans import nearest

# docs/algorithms/dp_kmeans.md, "Where the constants come from", says how these were found.
NO_ROWS, SURELY_LESS, NEGLIGIBLE = 0.5, 3.0, 0.05
"""A center is empty if rounds told, on average, fewer rows than `NO_ROWS` standard deviations of the noise in
one round; and if the coreset has for it only a negligible part of an average cluster, or more rows than were
told by `SURELY_LESS` standard deviations of the noise in that average."""


@dataclass(frozen=True, slots=True)
class Seats:
    """Points of the coreset that no round has found empty.

    Args:
        points: float64 of shape (n_points, n_features).
        weights: about how many rows each represents, float64 of shape (n_points,).
        variance: of the error in a coordinate of a center that is a mean of such points.
        scale: noised number, centre and radius of the rows.
        doubtful: whether noise alone may have made a point, bool of shape (n_points,); None if unknown.
        told: sum of the numbers of rows that rounds told of each center, float64 of shape (n_clusters,).
        rounds: number of these rounds, float64 of shape (n_clusters,).
    """

    points: FloatArray
    weights: FloatArray
    variance: float
    scale: Scale
    doubtful: BoolArray | None
    told: FloatArray
    rounds: FloatArray

    def after(
        self, asked: FloatArray, state: State, rng: np.random.Generator
    ) -> tuple[Seats, State, BoolArray]:
        """Return the points that remain, the state with new places for empty centers, and which are new.

        Args:
            asked: the centers of the last round before they moved.
            state: the state after that round.
            rng: source of the clustering's starts.
        """
        k, owner = len(asked), nearest(self.points, asked)
        told, rounds = self.told + state.found, self.rounds + 1.0
        weight = np.bincount(owner, self.weights, k)
        few = told / rounds < NO_ROWS * state.count_noise
        surely_less = weight - told / rounds > SURELY_LESS * state.count_noise / np.sqrt(rounds)
        empty = few & (surely_less | (weight < NEGLIGIBLE * weight.sum() / k))
        left = ~empty[owner]
        if not empty.any() or empty.all() or left.sum() < k:
            return replace(self, told=told, rounds=rounds), state, np.zeros(k, dtype=np.bool_)
        doubtful = None if self.doubtful is None else self.doubtful[left]
        seats = replace(self, points=self.points[left], weights=self.weights[left], doubtful=doubtful)
        found = clustered(self.scale, seats.points, seats.weights, k, rng, doubtful)
        held = np.flatnonzero(~empty)
        old = held[nearest(seats.points, state.centers[held])]
        stays, moved = _matched(old, nearest(seats.points, found), k)
        centers, variance = state.centers.copy(), state.variance.copy()
        new = np.ones(k, dtype=np.bool_)
        new[stays] = False
        centers[new] = found[moved]
        variance[new] = self.variance
        seats = replace(seats, told=np.where(new, 0.0, told), rounds=np.where(new, 0.0, rounds))
        return seats, replace(state, centers=centers, variance=variance), new


def _matched(old: IntArray, labels: IntArray, n_clusters: int) -> tuple[IntArray, IntArray]:
    """Return which old clusters have exactly the points of a new one, and the new ones that have no match."""
    together = np.zeros((n_clusters, n_clusters), dtype=np.bool_)
    together[old, labels] = True
    alone = together & (together.sum(axis=0) == 1)[None] & (together.sum(axis=1) == 1)[:, None]
    stays, matched = np.nonzero(alone)
    return stays, np.setdiff1d(np.arange(n_clusters), matched)
