"""What in a table of updates is more than noise, where the variance of the noise is public.

Of a table of n rows and d columns of noise alone, of variance v, the largest singular value is at most
sqrt(v) (sqrt(d) + sqrt(n)) in the mean (Davidson and Szarek 2001, theorem II.13). It is above that by more
than sqrt(v) t with probability at most exp(-t^2 / 2). Directions of a longer reach hold what sets clients
apart. As many clusters as k take k - 1 directions: of noise alone they explain about as many squares of that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels.interpreted import IntArray

CHANCE = 1e-4
"""That noise alone is taken for one cluster more, in one look."""

STRAYING = 2.5
"""Standard deviations of noise by which a row is nearer to another cluster before it is moved there."""

TOLD = 5.0
"""Standard deviations of noise that half way from a cluster's mean to the nearest one has at least."""

SHORTEST = 0.5
"""Least decay: means of about three updates."""


@dataclass(frozen=True, slots=True)
class MeanNoise:
    """What is known of the noise in a client's running mean.

    Args:
        mass: sum of the weights in it.
        variance: of each number of it.
    """

    mass: float = 0.0
    variance: float = 0.0

    def followed(self, variance: float, decay: float) -> MeanNoise:
        """Return what is known after one more update of a variance (`privfed.deep.training.memory`)."""
        mass = decay * self.mass + 1.0
        return MeanNoise(mass, (1.0 - 1.0 / mass) ** 2 * self.variance + variance / mass**2)


def reach(n_rows: int, n_columns: int, variance: float, chance: float = 1.0) -> float:
    """Return the singular value that noise alone exceeds with at most this chance; with 1 its mean at most.

    Args:
        n_rows: rows of the table.
        n_columns: numbers of a row.
        variance: of the noise in each number.
        chance: in (0, 1].
    """
    return math.sqrt(variance) * (
        math.sqrt(n_columns) + math.sqrt(n_rows) + math.sqrt(-2.0 * math.log(chance))
    )


def without_noise(vectors: FloatArray, variance: float) -> FloatArray:
    """Return rows in the directions that hold more than noise, around their mean, of the same shape."""
    mean = vectors.mean(axis=0)
    left, values, right = np.linalg.svd(vectors - mean, full_matrices=False)
    kept = values > reach(len(vectors) - 1, vectors.shape[1], variance)
    return np.asarray(mean + (left[:, kept] * values[kept]) @ right[kept])


def explains_more(vectors: FloatArray, labels: IntArray, found: IntArray, variance: float) -> bool:
    """Say whether new clusters fit rows better than the old ones, by more than noise makes them.

    Args:
        vectors: float64 of shape (n, size).
        labels: old cluster of each, integers of shape (n,).
        found: new cluster of each, likewise.
        variance: of the noise in each number.
    """
    shape = len(vectors) - 1, vectors.shape[1]
    more = max(0, len(np.unique(found)) - len(np.unique(labels)))
    least = (more - 1) * reach(*shape, variance) ** 2 + reach(*shape, variance, CHANCE) ** 2
    return spread_within(vectors, labels) - spread_within(vectors, found) > least


def shortest_decay(vectors: FloatArray, labels: IntArray, variance: float, of_one: float) -> float:
    """Return the least decay of running means by which noise still tells clusters apart.

    The longer the memory, the later a client that changes is found in another cluster. So means are as short
    as the distance of the two nearest clusters allows: half of it is `TOLD` standard deviations of noise.

    Args:
        vectors: running means, float64 of shape (n, size).
        labels: cluster of each, integers from 0 on of shape (n,).
        variance: of the noise in each number of a mean, positive.
        of_one: of the noise in each number of an update, positive.

    Returns:
        In (-1, 1]: 1 for one cluster, and 0 or less where single updates tell clusters apart.
    """
    places = np.unique(labels, return_inverse=True)[1]
    if not places.any():
        return 1.0
    means, shares = _means(vectors, places), 1.0 / np.bincount(places)
    squares = np.square(means[:, None] - means).sum(axis=2)
    # What the noise of both means adds to a square is known, and left out.
    squares -= vectors.shape[1] * variance * (shares[:, None] + shares)
    nearest = max(0.0, float(squares[~np.eye(len(means), dtype=bool)].min()))
    # After many rounds the variance of a mean is that of an update, times (1 - decay) / (1 + decay).
    allowed = nearest / (2.0 * TOLD) ** 2 / of_one
    return (1.0 - allowed) / (1.0 + allowed)


def never_joined(labels: IntArray, found: IntArray, n_clusters: int) -> IntArray:
    """Return new clusters in which old ones stay apart and keep their numbers, integers of shape (n,).

    Updates of clusters whose models are near their goals look alike: that is no reason to join them. Where
    a new cluster holds most rows of several old ones, its rows keep their old clusters. One that holds most
    rows of one old cluster keeps its number; others get the next numbers.

    Args:
        labels: old cluster of each row, integers in [0, n_clusters) of shape (n,).
        found: new cluster of each row, integers from 0 on, likewise.
        n_clusters: number of old clusters, those without a row included.
    """
    table = np.zeros((n_clusters, int(found.max()) + 1))
    np.add.at(table, (labels, found), 1.0)
    present = np.unique(labels)
    homes = table[present].argmax(axis=1)
    owners = np.bincount(homes, minlength=table.shape[1])
    numbers = n_clusters + np.cumsum(owners == 0) - 1
    numbers[homes] = present
    return np.asarray(np.where(owners[found] > 1, labels, numbers[found]), dtype=np.intp)


def moved(vectors: FloatArray, labels: IntArray, variance: float) -> IntArray:
    """Return clusters where rows have moved that are nearer to another one than noise explains.

    The one that is farthest beyond moves first, and then all are compared anew: else rows of two clusters of
    one kind would change places again and again. Each moves once at most.

    Args:
        vectors: float64 of shape (n, size).
        labels: cluster of each, integers from 0 on of shape (n,).
        variance: of the noise in each number; with 0 none is moved.
    """
    present, places = np.unique(labels, return_inverse=True)
    stays = np.zeros(len(vectors), dtype=bool)
    while variance and len(present) > 1:
        beyond = np.where(stays[:, None], 0.0, _beyond(vectors, places, variance))
        row, place = np.unravel_index(int(beyond.argmax()), beyond.shape)
        if beyond[row, place] <= STRAYING:
            break
        places[row], stays[row] = place, True
    return np.asarray(present[places], dtype=np.intp)


def _beyond(vectors: FloatArray, places: IntArray, variance: float) -> FloatArray:
    """Return by how many standard deviations of noise rows are nearer to other clusters than to their own.

    A row is compared with the means of all clusters, of its own one without itself: so its noise is in none
    of them. Along the line between two means noise has one dimension, however many numbers rows have. Rows
    that are alone in a cluster are nearer to none: no cluster is left without a row.
    """
    sizes, rows = np.bincount(places).astype(np.float64), np.arange(len(vectors))
    means, others = _means(vectors, places), np.maximum(sizes[places] - 1.0, 1.0)
    own = means[places] + (means[places] - vectors) / others[:, None]
    # What the noise of a mean adds to a distance is known, and left out.
    noise = vectors.shape[1] * variance
    near = np.square(vectors - own).sum(axis=1) - noise / others
    far = np.square(vectors[:, None] - means).sum(axis=2) - noise / sizes
    apart = np.sqrt(np.square(means - own[:, None]).sum(axis=2))
    found = (near[:, None] - far) / (2.0 * math.sqrt(variance) * np.where(apart > 0.0, apart, np.inf))
    found[rows, places] = 0.0
    found[sizes[places] == 1.0] = 0.0
    return np.asarray(found)


def _means(vectors: FloatArray, places: IntArray) -> FloatArray:
    totals = np.zeros((int(places.max()) + 1, vectors.shape[1]))
    np.add.at(totals, places, vectors)
    return np.asarray(totals / np.bincount(places)[:, None])


def spread_within(vectors: FloatArray, labels: IntArray) -> float:
    """Return the sum of squared distances of rows to their clusters' means.

    Args:
        vectors: float64 of shape (n, size).
        labels: cluster of each, integers of shape (n,).
    """
    places = np.unique(labels, return_inverse=True)[1]
    return float(np.square(vectors - _means(vectors, places)[places]).sum())
