"""K-means on plain arrays: clients' local steps, and centralised weighted k-means. Nothing here communicates.

Local steps are the clients' part of Algorithm 2 of Holzer, Jacob, Kavane: Dynamically Weighted Federated
k-Means, 2023 (Algorithm 2 and equation 7).

The server uses weighted k-means on gathered centroids and cells, replays of clients repeat that, and a client
uses it on its own rows. Source of the seeding: Arthur and Vassilvitskii, k-means++, SODA 2007, section 2.2.
With several candidates it takes the best of them, the greedy choice of its section 5.

One last bit decides which point becomes a seed, and so the whole run. So nothing in weighted k-means calls
BLAS, or adds in an order that threads or the processor choose: distances are added feature by feature, sums
point by point. All restarts are done in one pass.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from privfed.core.asking.data import Stacked
from privfed.core.values.computed import Computed
from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels import dispatch
from privfed.numerics.kernels.dispatch import CHOICE, Assigner, Choice, groups, step
from privfed.numerics.kernels.interpreted import IntArray, cell_sums, own_squares, squared_distances, weighed

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LocalUpdate:
    """The result of local steps on one client.

    Args:
        centers: local centroids, float64 of shape (n_clusters, n_features).
        counts: number of rows assigned to each of the received global centroids (eq. 7), float64 of shape
            (n_clusters,).
        received: the global centroids that the steps started from, of the shape of `centers`.
    """

    centers: FloatArray
    counts: FloatArray
    received: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class LocalUpdates(Computed[LocalUpdate]):
    """The results of local steps on several clients.

    Args:
        centers: local centroids, float64 of shape (n_clients, n_clusters, n_features).
        counts: as of a `LocalUpdate`, float64 of shape (n_clients, n_clusters).
        received: the global centroids, float64 of shape (n_clusters, n_features).
    """

    centers: FloatArray
    counts: FloatArray
    received: FloatArray

    def __len__(self) -> int:
        return len(self.centers)

    def item(self, place: int) -> LocalUpdate:
        """Return the update of one client."""
        return LocalUpdate(self.centers[place], self.counts[place], self.received)


class _Group:
    """Some stacked clients, and each one's centroids."""

    def __init__(self, clients: Stacked, centers: FloatArray) -> None:
        self.clients, self.received = clients, centers
        self.centers = np.repeat(centers[None], len(clients.places), axis=0)

    def step(self, active: Flags, number: int) -> FloatArray:
        """Move the active clients' centroids to the means of their rows; return the counts of all clients.

        A centroid without rows stays where it is (section 2.4).
        """
        if active.all():
            counts, sums = step(self.clients, self.centers if number else self.received[None], number=number)
            np.divide(sums, counts[:, :, None], out=self.centers, where=counts[:, :, None] > 0)
            return counts
        counts = np.zeros(self.centers.shape[:2])
        counts[active], sums = step(
            self.clients.only(active), self.centers[active] if number else self.received[None], number=number
        )
        moved = counts > 0
        self.centers[moved] = sums[moved[active]] / counts[moved][:, None]
        return counts


def local_updates(
    clients: Stacked,
    centers: FloatArray,
    *,
    local_iter: int,
    local_tol: float | None = None,
    relocate_empty: bool = False,
) -> LocalUpdates:
    """Do at most `local_iter` k-means steps on each client from the same centroids.

    Args:
        clients: the clients' rows.
        centers: global centroids, float64 of shape (n_clusters, n_features).
        local_iter: most steps.
        local_tol: a client stops once its centroids move by less (Frobenius norm); None never.
        relocate_empty: move a centroid without rows onto the client's row that is farthest from its own
            centroid, as centralised libraries do (Figure 1 of the paper warns of this).

    Returns:
        The updates, in the order of the clients.
    """
    done = [
        _updates(_Group(some, centers), local_iter, local_tol, relocate_empty) for some in groups(clients)
    ]
    if len(done) == 1:
        return done[0]
    return LocalUpdates(
        np.concatenate([one.centers for one in done]),
        np.concatenate([one.counts for one in done]),
        centers,
    )


def _updates(group: _Group, local_iter: int, local_tol: float | None, relocate_empty: bool) -> LocalUpdates:
    active, first_counts = np.ones(len(group.centers), dtype=np.bool_), np.zeros(group.centers.shape[:2])
    for number in range(local_iter):
        before = group.centers.copy()
        counts = group.step(active, number)
        first_counts = first_counts if number else counts
        if relocate_empty:
            _relocate(group, counts, active)
        if local_tol is not None:
            active &= np.sqrt(((group.centers - before) ** 2).sum(axis=(1, 2))) >= local_tol
        elif not relocate_empty and np.array_equal(group.centers, before):
            # From the same centroids, all further steps lead to the same.
            break
        if not active.any():
            break
    return LocalUpdates(group.centers, first_counts, group.received)


def _relocate(group: _Group, counts: FloatArray, active: Flags) -> None:
    parts = group.clients.parts
    for client in np.flatnonzero(active & (counts == 0).any(axis=1)).tolist():
        rows, own = parts[client], group.centers[client]
        empty = np.flatnonzero(counts[client] == 0)
        farthest = np.argsort(-squared_distances(rows, own[counts[client] > 0]).min(axis=1), kind="stable")[
            : len(empty)
        ]
        own[empty[: len(farthest)]] = rows[farthest]


MOST_STEPS = 300
"""Most Lloyd steps of a restart."""

MOST_DISTANCES = 1 << 22
"""Most distances in memory at once; restarts are processed in groups within this limit."""

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
    found = dispatch.distances(points, centers.reshape(-1, points.shape[1]), choice=choice)
    return found.reshape(*centers.shape[:2], len(points))


def nearest(points: FloatArray, centers: FloatArray) -> IntArray:
    """Return the index of each point's nearest center (the first of equals), shape (n_points,)."""
    return dispatch.nearest(points, centers).labels


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
            distances, sums = dispatch.joined(points, weights, points[drawn], closest)
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
        return min(
            [_lloyd(points, weights, start, max_iter) for start in starts], key=lambda one: one.inertia
        )
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
        full = total > 0.0
        centers[full] = sums[full] / total[full, None]
    return Clustering(
        centers, labels, float(weighed(own_squares(points, centers[assigner.labels(centers)]), weights))
    )


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
    moved, full = centers.reshape(size, shape[2]).copy(), total > 0.0
    for j, column in enumerate((points * weights[:, None]).T):
        sums = np.bincount(cells, np.broadcast_to(column, labels.shape).ravel(), size)
        moved[full, j] = sums[full] / total[full]
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
    return lloyd(points, weights, seeds(points, weights, n_clusters, rng, n_sets=n_init), max_iter=max_iter)


_SEED = 20_251_122


@cache
def known_answers() -> str:
    """Return the digest of what this machine computes from fixed draws, 64 hexadecimal digits.

    It shows whether two machines compute seeds to the same bits, and is compared before the first sum. Where
    clients run the algorithm themselves, one last bit of a seeding can part their runs. What only moves last
    bits
    (powers, roots) is not in it: replays compare arrays within 1e-9 of their ranges.
    """
    rng, found = np.random.default_rng(_SEED), hashlib.sha256()
    found.update(rng.integers(2**31, size=64).astype("<i8").tobytes())
    found.update(rng.random(64).astype("<f8").tobytes())
    for n_points, n_features in ((90, 2), (60, 17)):
        # Cells' means are quotients of integers; so are these points, with close ones among them.
        points = rng.integers(-999, 999, (n_points, n_features)) / rng.integers(1, 99, (n_points, 1))
        weights = rng.integers(1, 99, n_points).astype(np.float64)
        own = np.random.default_rng(int(rng.integers(2**31)))
        drawn = seeds(points, weights, 7, own, n_sets=3)
        clustered = weighted_kmeans(points, weights, 7, own, n_init=5)
        for array in (drawn, clustered.centers, np.array(clustered.inertia)):
            found.update(array.astype("<f8").tobytes())
        found.update(clustered.labels.astype("<i8").tobytes())
    return found.hexdigest()
