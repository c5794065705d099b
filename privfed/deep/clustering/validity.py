"""Whether a clustering still fits the updates: the Dunn index and the rule that asks for a new one."""

from __future__ import annotations

import math

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.numerics.kernels.interpreted import IntArray


def dunn_index(distances: FloatArray, labels: IntArray) -> float:
    """Return the least distance across clusters over the greatest within one (Dunn 1974; equation 3 of DCFL).

    Where the paper is silent: 0 with one cluster, which separates nothing, and where two updates of different
    clusters are at distance 0; infinite where no cluster has two different updates (all are singletons).

    Args:
        distances: of all pairs, float64 of shape (n, n).
        labels: cluster of each update, integers of shape (n,).

    Raises:
        ArgumentError: shapes do not fit.
    """
    n = len(labels)
    if distances.shape != (n, n):
        raise ArgumentError(f"distances of shape {distances.shape} do not fit {n} labels.")
    same = labels[:, None] == labels[None, :]
    across = distances[~same]
    if not across.size or across.min() <= 0.0:
        return 0.0
    within = distances[same & ~np.eye(n, dtype=bool)]
    widest = float(within.max(initial=0.0))
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
