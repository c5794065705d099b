"""Centralised weighted k-means, with all restarts in one pass: the same bits on every machine.

The server uses it on gathered centroids and cells, replicas repeat that, a client uses it on its own rows;
nothing here communicates. Source of the seeding: Arthur and Vassilvitskii, k-means++, SODA 2007, section
2.2, with the greedy choice among several candidates of its section 5 where `candidates` is above one.

One last bit decides which point becomes a seed, and so the whole run. So nothing here calls BLAS, or adds in
an order that threads or the processor choose: distances are added feature by feature, sums point by point.
These are the laws of `privfed.numerics.kernels`, which does the work where there is enough of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.numerics.distances import IntArray
from privfed.numerics.kernels import by_law
from privfed.numerics.kernels.by_law import own_squares, weighed
from privfed.numerics.kernels.choice import CHOICE, Choice
from privfed.numerics.kernels.interpreted import cell_sums
from privfed.numerics.kernels.steps import Assigner

MOST_STEPS = 300
"""Most Lloyd steps of a restart."""

MOST_DISTANCES = 1 << 22
"""Most distances that are held at once; restarts are processed in groups within this limit."""

ALONE = 1 << 13
"""Distances of a step from which restarts are done one after the other, each with bounds of its own."""


class Clustering(NamedTuple):
    """The result of k-means.

    Attributes:
        centers: float64 of shape (n_clusters, n_features).
        labels: cluster of each point in the last step, intp of shape (n_points,).
        inertia: weighted sum of squared distances to the nearest center.
    """

    centers: FloatArray
    labels: IntArray
    inertia: float


def many_distances(points: FloatArray, centers: FloatArray, *, choice: Choice = CHOICE) -> FloatArray:
    """Return squared distances of (n_points, d) to (n_sets, n_centers, d): (n_sets, n_centers, n_points)."""
    found = by_law.distances(points, centers.reshape(-1, points.shape[1]), choice=choice)
    return found.reshape(*centers.shape[:2], len(points))


def nearest(points: FloatArray, centers: FloatArray) -> IntArray:
    """Return the index of each point's nearest center (the first of equals), shape (n_points,)."""
    return by_law.nearest(points, centers).labels


def seeds(
    points: FloatArray,
    weights: FloatArray,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    n_sets: int = 1,
    candidates: int | None = None,
) -> FloatArray:
    """Draw k-means++ seeds among the points: float64 of shape (n_sets, n_clusters, n_features).

    Args:
        points: float64 of shape (n_points, n_features).
        weights: float64 of shape (n_points,), not negative, not all zero.
        n_clusters: number of seeds a set. With fewer distinct points than that, seeds repeat.
        rng: source of the draws.
        n_sets: number of sets.
        candidates: number of draws of which the best becomes a seed; None for 2 + log(n_clusters), 1 for
            plain k-means++.
    """
    tries = 2 + int(np.log(n_clusters)) if candidates is None else candidates
    sets, found = np.arange(n_sets), np.empty((n_sets, n_clusters, points.shape[1]))
    uniform = rng.random((n_clusters, n_sets, tries))
    chances, closest = np.repeat(weights[None], n_sets, axis=0), np.full((n_sets, len(points)), np.inf)
    # Few points are drawn repeatedly: their distances are computed once.
    known = many_distances(points, points[None])[0] if len(points) < n_sets * n_clusters else None
    for seed in range(n_clusters):
        # The first seed is a single draw by weight: all candidates for it would be equally good.
        drawn = _draw(chances, weights, uniform[seed] if seed else uniform[seed, :, :1])
        if known is None:
            distances, sums = by_law.joined(points, weights, points[drawn], closest)
        else:
            distances = np.minimum(known[drawn], closest[:, None])
            sums = weighed(distances, weights)
        best = sums.argmin(axis=1)
        found[:, seed], closest = points[drawn[sets, best]], distances[sets, best]
        chances = weights * closest
    return found


def _draw(chances: FloatArray, otherwise: FloatArray, uniform: FloatArray) -> IntArray:
    """Return positions of points, drawn for each set in proportion to its row of `chances`.

    Args:
        chances: float64 of shape (n_sets, n_points), not negative.
        otherwise: chances for a set whose own are all zero, float64 of shape (n_points,).
        uniform: numbers in [0, 1), one a draw, float64 of shape (n_sets, n_draws).
    """
    cumulated = chances.cumsum(axis=1)
    if cumulated[:, -1].min() <= 0.0:
        cumulated[cumulated[:, -1] <= 0.0] = otherwise.cumsum()
    drawn = np.empty(uniform.shape, dtype=np.intp)
    for own, wanted, places in zip(cumulated, uniform, drawn, strict=True):
        # The first above, strictly: a position of chance zero never is.
        places[:] = own.searchsorted(wanted * own[-1], side="right")
    # None is above where the sum overflowed.
    return np.where(drawn < chances.shape[1], drawn, 0)


def lloyd(
    points: FloatArray, weights: FloatArray, starts: FloatArray, *, max_iter: int = MOST_STEPS
) -> Clustering:
    """Do Lloyd steps from each start until labels stay; return the clustering of the lowest inertia.

    A center without points stays where it is.

    Args:
        points: float64 of shape (n_points, n_features).
        weights: float64 of shape (n_points,), not negative.
        starts: float64 of shape (n_starts, n_clusters, n_features).
        max_iter: most steps.
    """
    if len(points) * starts.shape[1] >= ALONE:
        each = [_lloyd(points, weights, start, max_iter) for start in starts]
        return min(each, key=lambda one: one.inertia)
    group = max(1, MOST_DISTANCES // max(1, len(points) * starts.shape[1]))
    found = [
        _lloyd_group(points, weights, starts[first : first + group], max_iter)
        for first in range(0, len(starts), group)
    ]
    return min(found, key=lambda one: one.inertia)


def _lloyd(points: FloatArray, weights: FloatArray, start: FloatArray, max_iter: int) -> Clustering:
    """Do the Lloyd steps of one start, with bounds on distances kept between them."""
    assigner, weighted = Assigner(points), points * weights[:, None]
    centers, labels = start.copy(), np.full(len(points), -1, dtype=np.intp)
    for _ in range(max_iter):
        before, labels = labels, assigner.labels(centers)
        if np.array_equal(labels, before):
            break
        total = np.bincount(labels, weights, len(centers))
        _, sums = cell_sums(weighted, labels, len(centers))
        held = total > 0.0
        centers[held] = sums[held] / total[held, None]
    nearest_now = centers[assigner.labels(centers)]
    inertia = weighed(own_squares(points, nearest_now), weights)
    return Clustering(centers, labels, float(inertia))


def _lloyd_group(points: FloatArray, weights: FloatArray, starts: FloatArray, max_iter: int) -> Clustering:
    centers, running = starts.copy(), np.arange(len(starts))
    labels = np.full((len(starts), len(points)), -1, dtype=np.intp)
    for _ in range(max_iter):
        assigned = many_distances(points, centers[running]).argmin(axis=1)
        moving = (assigned != labels[running]).any(axis=1)
        labels[running] = assigned
        # The same labels give the same means: a restart whose labels stay has converged.
        running = running[moving]
        if not running.size:
            break
        centers[running] = _means(points, weights, labels[running], centers[running])
    inertia = weighed(many_distances(points, centers).min(axis=1), weights)
    best = int(inertia.argmin())
    return Clustering(centers[best], labels[best], float(inertia[best]))


def _means(points: FloatArray, weights: FloatArray, labels: IntArray, centers: FloatArray) -> FloatArray:
    """Return each cluster's weighted mean under each set of labels; an empty cluster keeps its center."""
    shape = centers.shape
    cells = (labels + shape[1] * np.arange(shape[0])[:, None]).ravel()
    size, repeated = shape[0] * shape[1], np.broadcast_to(weights, labels.shape).ravel()
    total = np.bincount(cells, repeated, size)
    moved, held = centers.reshape(size, shape[2]).copy(), total > 0.0
    for j, column in enumerate((points * weights[:, None]).T):
        sums = np.bincount(cells, np.broadcast_to(column, labels.shape).ravel(), size)
        moved[held, j] = sums[held] / total[held]
    return moved.reshape(shape)


def weighted_kmeans(
    points: FloatArray,
    weights: FloatArray,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    n_init: int = 10,
    max_iter: int = MOST_STEPS,
) -> Clustering:
    """Run weighted k-means from `n_init` greedy k-means++ starts; return the one of the lowest inertia.

    Args:
        points: float64 of shape (n_points, n_features), n_points >= n_clusters.
        weights: float64 of shape (n_points,), not negative, not all zero.
        n_clusters: number of clusters.
        rng: source of the starts.
        n_init: number of starts.
        max_iter: most Lloyd steps of each.
    """
    starts = seeds(points, weights, n_clusters, rng, n_sets=n_init)
    return lloyd(points, weights, starts, max_iter=max_iter)
