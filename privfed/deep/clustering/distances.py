"""Distances between model updates: how far apart they end, and whether they drift apart.

Augello, Falzone, Lo Re: DCFL: Dynamic Clustered Federated Learning under Differential Privacy Settings,
PerCom Workshops 2023, doi 10.1109/PerComWorkshops56833.2023.10150285, section II-A. An update AB starts at
the model A that a client received and ends at the model B that it found. With CD another one, alpha the angle
between AB and the way from D to B, and beta that between CD and the way from B to D:

    omega = (|AB| cos alpha + |CD| cos beta) / (|AB| + |CD|)      (equation 1), in [-1, 1]
    d     = |BD| exp(2 omega)                                     (equation 2)

Property (`tests/deep/clustering/test_distances.py`): d is symmetric, no less than 0, and the same after the
plane is moved, turned or mirrored; |BD| e^-2 <= d <= |BD| e^2.

Where the paper is silent: two updates of length zero diverge by 0, so that d = |BD|; updates that end in the
same point have distance 0 by every measure but "cosine". The divergence alone (table II) is taken as exp(2
omega), which orders pairs as omega does and can be divided (`dunn_index`); with cosine, an update of length
zero is at distance 1 from every other one, and at distance 0 from another of length zero.

Whether a clustering still fits the updates: the Dunn index and the rule that asks for a new one.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels.interpreted import IntArray

Metric = Literal["complete", "divergence", "cosine", "euclidean"]
METRICS = ("complete", "divergence", "cosine", "euclidean")
"""Distances of updates, as in table II: equation 2, its factor, the angle alone, the end points alone."""


def update_distances(starts: FloatArray, ends: FloatArray, metric: str = "complete") -> FloatArray:
    """Return the distances of all pairs of updates, float64 of shape (n, n), symmetric, zero on the diagonal.

    Args:
        starts: models that clients received, float64 of shape (n, n_parameters).
        ends: models that they found, of the same shape.
        metric: one of `METRICS`.
    """
    others, table = Others.of(starts, ends), np.zeros((len(ends), len(ends)))
    for i in range(1, len(ends)):
        earlier = Others(*(one[:i] for one in others))
        table[i, :i] = table[:i, i] = earlier.distances(ends[i], others.updates[i], metric)
    return table


def distances_to(
    starts: FloatArray, ends: FloatArray, start: FloatArray, end: FloatArray, metric: str
) -> FloatArray:
    """Return the distance of one update to each of n others, float64 of shape (n,).

    Args:
        starts: of the others, float64 of shape (n, n_parameters).
        ends: of the others.
        start: of the one, float64 of shape (n_parameters,).
        end: of the one.
        metric: one of `METRICS`.
    """
    return Others.of(starts, ends).distances(end, end - start, metric)


class Others(NamedTuple):
    """Updates that one is compared with.

    Attributes:
        ends: models that they end at, float64 of shape (n, n_parameters).
        updates: of the same shape.
        lengths: of the updates, float64 of shape (n,).
    """

    ends: FloatArray
    updates: FloatArray
    lengths: FloatArray

    @classmethod
    def of(cls, starts: FloatArray, ends: FloatArray) -> Others:
        """Return updates from where they start and end."""
        updates = ends - starts
        return cls(ends, updates, np.sqrt(np.einsum("ij,ij->i", updates, updates)))

    def distances(self, end: FloatArray, update: FloatArray, metric: str) -> FloatArray:
        """Return the distance of one update to each, float64 of shape (n,)."""
        if metric == "cosine":
            return self._angles(update)
        if metric == "euclidean":
            return np.array([np.linalg.norm(end - one) for one in self.ends])
        omega, apart = self.towards(end, update)
        factor = np.exp(2.0 * omega)
        distances: FloatArray = apart * factor if metric == "complete" else np.where(apart > 0.0, factor, 0.0)
        return distances

    def towards(self, end: FloatArray, update: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return omega (equation 1) and |BD| of one update and each, float64 of shape (n,) both."""
        apart, outward = np.zeros(len(self.ends)), np.zeros(len(self.ends))
        between, other = np.empty_like(end), np.empty_like(end)
        for i, (one, own) in enumerate(zip(self.ends, self.updates, strict=True)):
            apart[i] = np.linalg.norm(np.subtract(end, one, out=between))
            # |AB| cos alpha |BD| + |CD| cos beta |BD| = AB . (B - D) + CD . (D - B).
            outward[i] = between @ np.subtract(update, own, out=other)
        both = np.linalg.norm(update) + self.lengths
        # One quotient after the other: the product of two small lengths could vanish.
        relative = np.divide(outward, apart, out=np.zeros_like(apart), where=apart > 0.0)
        omega = np.divide(relative, both, out=np.zeros_like(apart), where=both > 0.0)
        return np.clip(omega, -1.0, 1.0), apart

    def _angles(self, update: FloatArray) -> FloatArray:
        """Return 1 - cos of the angles between one update and each."""
        length, lengths = float(np.linalg.norm(update)), self.lengths
        if not length > 0.0:
            return np.where(lengths > 0.0, 1.0, 0.0)
        unit, divisors = update / length, np.where(lengths > 0.0, lengths, 1.0)
        cosines = np.array([own / by @ unit for own, by in zip(self.updates, divisors, strict=True)])
        return np.asarray(1.0 - np.clip(cosines, -1.0, 1.0))


def dunn_index(distances: FloatArray, labels: IntArray) -> float:
    """Return the least distance across clusters over the greatest within one (Dunn 1974; equation 3 of DCFL).

    Where the paper is silent: 0 with one cluster, which separates nothing, and where two updates of different
    clusters are at distance 0; infinite where no cluster has two different updates (all are singletons).

    Args:
        distances: of all pairs, float64 of shape (n, n).
        labels: cluster of each update, integers of shape (n,).
    """
    same = labels[:, None] == labels[None, :]
    across = distances[~same]
    if not across.size or across.min() <= 0.0:
        return 0.0
    widest = float(distances[same & ~np.eye(len(labels), dtype=bool)].max(initial=0.0))
    return float(across.min()) / widest if widest > 0.0 else math.inf


def outdated(distances: FloatArray, labels: IntArray, n_clusters: int) -> bool:
    """Say whether clients are to be clustered anew: |C| = 1 or DI < 1 (algorithm 1 of DCFL, line 22).

    Args:
        distances: of the pairs of updates of the round, float64 of shape (n, n).
        labels: clusters of the clients that took part, integers of shape (n,).
        n_clusters: number of clusters, those without a client in the round included. Where all who took
            part are of one cluster out of several, they say nothing about the others: nothing is done.
    """
    if n_clusters == 1:
        return True
    return len(np.unique(labels)) > 1 and dunn_index(distances, labels) < 1.0
