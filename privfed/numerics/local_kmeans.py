"""Local k-means steps of many clients at once: the clients' part of Algorithm 2 of Holzer et al.

Holzer, Jacob, Kavane: Dynamically Weighted Federated k-Means, 2023, Algorithm 2 and equation 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from privfed.core.asking.coarseness import Coarseness
from privfed.core.values.domain import FloatArray
from privfed.numerics.distances import FEW_FEATURES, IntArray, assign, cell_sums, nearest, squared_distances


@dataclass(frozen=True, slots=True)
class LocalUpdate:
    """The result of local steps on one client.

    Args:
        centers: local centroids, float64 of shape (n_clusters, n_features).
        counts: number of rows assigned to each of the received global centroids (eq. 7), float64 of shape
            (n_clusters,).
        received: the global centroids that the steps started from, of the shape of `centers`.
        rows: number of rows whose mean each local centroid is, float64 of shape (n_clusters,); zero where it
            never moved.
    """

    centers: FloatArray
    counts: FloatArray
    received: FloatArray
    rows: FloatArray

    def coarsened(self, coarseness: Coarseness, most: float) -> LocalUpdate:
        """Return the update with small clusters suppressed: they look like clusters without rows.

        Args:
            coarseness: which counts are shown, and how exactly.
            most: most rows that a client may hold.
        """
        counts, few = coarseness.kept(self.counts, most), coarseness.min_count
        small = ((self.rows > 0.0) & (self.rows < few)) | ((self.counts > 0.0) & (counts == 0.0))
        # A centroid without rows stays where it was received (section 2.4).
        return replace(
            self,
            centers=np.where(small[:, None], self.received, self.centers),
            counts=np.where(small, 0.0, counts),
            rows=np.where(small, 0.0, self.rows),
        )


class _Stack:
    """Stacked rows of several clients, each client's centroids, and how many rows each is the mean of."""

    def __init__(self, clients: Sequence[FloatArray], centers: FloatArray) -> None:
        self.clients = clients
        self.rows = clients[0] if len(clients) == 1 else np.concatenate(clients)
        self.owner = np.repeat(np.arange(len(clients)), [len(rows) for rows in clients])
        self.n_clusters = len(centers)
        self.centers = np.repeat(centers[None], len(clients), axis=0)
        self.behind = np.zeros(self.centers.shape[:2])

    def assign(self) -> IntArray:
        """Return each row's nearest centroid among its client's own."""
        if self.rows.shape[1] > FEW_FEATURES:
            return np.concatenate(
                [assign(rows, own) for rows, own in zip(self.clients, self.centers, strict=True)]
            )
        distances = np.empty((len(self.rows), self.n_clusters))
        for j in range(self.n_clusters):
            difference = self.rows - self.centers[self.owner, j]
            np.einsum("nd,nd->n", difference, difference, out=distances[:, j])
        return nearest(distances)

    def step(self, active: np.ndarray) -> FloatArray:
        """Move the active clients' centroids to the means of their rows; return the counts of all clients.

        A centroid without rows stays where it is (section 2.4).
        """
        labels = self.assign()
        counts, sums = cell_sums(
            self.rows, self.owner * self.n_clusters + labels, self.centers.shape[0] * self.n_clusters
        )
        counts = counts.reshape(self.centers.shape[:2])
        held = (counts > 0) & active[:, None]
        means = sums.reshape(self.centers.shape)[held] / counts[held][:, None]
        self.centers[held] = means
        self.behind[held] = counts[held]
        return counts


def local_updates(
    clients: Sequence[FloatArray],
    centers: FloatArray,
    *,
    local_iter: int,
    local_tol: float | None = None,
    relocate_empty: bool = False,
) -> list[LocalUpdate]:
    """Do at most `local_iter` k-means steps on each client from the same centroids.

    Args:
        clients: rows of each client, float64 of shape (n_i, n_features).
        centers: global centroids, float64 of shape (n_clusters, n_features).
        local_iter: most steps.
        local_tol: a client stops once its centroids move by less (Frobenius norm); None never.
        relocate_empty: move a centroid without rows onto the client's row that is farthest from its own
            centroid, as centralised libraries do (Figure 1 of the paper warns of this).

    Returns:
        One update a client, in order.
    """
    stack = _Stack(clients, centers)
    active = np.ones(len(clients), dtype=bool)
    first_counts = None
    for _ in range(local_iter):
        before = stack.centers.copy()
        counts = stack.step(active)
        first_counts = counts if first_counts is None else first_counts
        if relocate_empty:
            _relocate(stack, counts, active)
        if local_tol is not None:
            moved = np.sqrt(((stack.centers - before) ** 2).sum(axis=(1, 2)))
            active &= moved >= local_tol
            if not active.any():
                break
    if first_counts is None:
        raise ValueError("local_iter is at least 1")
    parts = zip(stack.centers, first_counts, stack.behind, strict=True)
    return [LocalUpdate(own, held, centers, behind) for own, held, behind in parts]


def _relocate(stack: _Stack, counts: FloatArray, active: np.ndarray) -> None:
    for client in np.flatnonzero(active & (counts == 0).any(axis=1)).tolist():
        rows, own = stack.clients[client], stack.centers[client]
        empty = np.flatnonzero(counts[client] == 0)
        distance = squared_distances(rows, own[counts[client] > 0]).min(axis=1)
        farthest = np.argsort(-distance, kind="stable")[: len(empty)]
        own[empty[: len(farthest)]] = rows[farthest]
        stack.behind[client, empty[: len(farthest)]] = 1.0
