"""Weighted points change clusters one by one, leaving optima that Lloyd steps rest in; it costs no budget.

A heavy point moves its cluster's mean when it leaves or joins. Lloyd steps compare its distances to means as
they are; here they are compared as they would be after the change (Hartigan 1975, "Clustering Algorithms",
chapter 4; Telgarsky and Vattani, "Hartigan's method: k-means clustering without Voronoi", AISTATS 2010). So
every result rests under Lloyd steps too, but not the other way round.

Reveals nothing: it looks at noised totals only.
"""

from __future__ import annotations

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.numerics.distances import IntArray
from privfed.numerics.weighted_kmeans import many_distances, nearest

MOST_EXCHANGES = 500
"""Most changes; each lowers the inertia."""

_LEAST_GAIN = 1e-9
"""Least gain of a change, as a share of what all points together would save by leaving their clusters."""


def exchanged(points: FloatArray, weights: FloatArray, centers: FloatArray) -> tuple[FloatArray, IntArray]:
    """Move the one point whose change of cluster saves most, until none saves anything.

    Law: no clustering that is returned has a higher inertia than the one that the centers begin with.

    Args:
        points: float64 of shape (n_points, n_features).
        weights: float64 of shape (n_points,), positive.
        centers: to begin with, float64 of shape (n_clusters, n_features).

    Returns:
        The clusters' means, a cluster without points keeping its center; and each point's cluster.
    """
    labels = nearest(points, centers)
    for _ in range(MOST_EXCHANGES):
        centers, total = _means(points, weights, labels, centers)
        squares = many_distances(points, centers[None])[0].T
        saved, added = _changes(squares, weights, labels, total)
        gain = saved - added.min(axis=1)
        point = int(gain.argmax())
        if gain[point] <= _LEAST_GAIN * saved.sum():
            break
        labels[point] = added[point].argmin()
    return _means(points, weights, labels, centers)[0], labels


def _changes(
    squares: FloatArray, weights: FloatArray, labels: IntArray, total: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return what a point saves by leaving its cluster, (n,), and adds by joining each, (n, n_clusters)."""
    own, rows = total[labels], np.arange(len(labels))
    left = own - weights
    alone = left <= 1e-9 * own
    saved = np.where(alone, 0.0, own * weights / np.where(alone, 1.0, left) * squares[rows, labels])
    added = total * weights[:, None] / (total + weights[:, None]) * squares
    added[rows, labels] = np.inf
    return saved, added


def _means(
    points: FloatArray, weights: FloatArray, labels: IntArray, centers: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return each cluster's weighted mean, or its center where it has no points; and its weight."""
    k = len(centers)
    total = np.asarray(np.bincount(labels, weights, k), dtype=np.float64)
    sums = np.stack([np.bincount(labels, weights * column, k) for column in points.T], axis=1)
    held = total > 0.0
    found = centers.copy()
    found[held] = sums[held] / total[held, None]
    return found, total
