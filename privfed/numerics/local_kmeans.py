"""Local k-means steps of many clients at once: the clients' part of Algorithm 2 of Holzer et al.

Holzer, Jacob, Kavane: Dynamically Weighted Federated k-Means, 2023, Algorithm 2 and equation 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from privfed.core.asking.coarseness import Coarseness
from privfed.core.asking.stack import Stacked
from privfed.core.values.domain import FloatArray
from privfed.numerics.distances import squared_distances
from privfed.numerics.kernels.steps import groups, step

Flags = npt.NDArray[np.bool_]


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


class LocalUpdates(Sequence[LocalUpdate]):
    """The results of local steps on several clients.

    Args:
        centers: local centroids, float64 of shape (n_clients, n_clusters, n_features).
        counts: as of a `LocalUpdate`, float64 of shape (n_clients, n_clusters).
        received: the global centroids, float64 of shape (n_clusters, n_features).
        rows: as of a `LocalUpdate`, float64 of shape (n_clients, n_clusters).
    """

    def __init__(
        self, centers: FloatArray, counts: FloatArray, received: FloatArray, rows: FloatArray
    ) -> None:
        self.centers, self.counts, self.received, self.rows = centers, counts, received, rows

    def __len__(self) -> int:
        return len(self.centers)

    @overload
    def __getitem__(self, place: int) -> LocalUpdate: ...

    @overload
    def __getitem__(self, place: slice) -> list[LocalUpdate]: ...

    def __getitem__(self, place: int | slice) -> LocalUpdate | list[LocalUpdate]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        return LocalUpdate(self.centers[place], self.counts[place], self.received, self.rows[place])

    def coarsened(self, coarseness: Coarseness, most: float) -> LocalUpdates:
        """Return the updates with small clusters suppressed: they look like clusters without rows.

        Args:
            coarseness: which counts are shown, and how exactly.
            most: most rows that a client may hold.
        """
        counts, few = coarseness.kept(self.counts, most), coarseness.min_count
        small = ((self.rows > 0.0) & (self.rows < few)) | ((self.counts > 0.0) & (counts == 0.0))
        # A centroid without rows stays where it was received (section 2.4).
        return LocalUpdates(
            np.where(small[:, :, None], self.received, self.centers),
            np.where(small, 0.0, counts),
            self.received,
            np.where(small, 0.0, self.rows),
        )


class _Group:
    """Some stacked clients, each one's centroids, and how many rows each is the mean of."""

    def __init__(self, held: Stacked, centers: FloatArray) -> None:
        self.held, self.received = held, centers
        self.centers = np.repeat(centers[None], len(held.places), axis=0)
        self.behind = np.zeros(self.centers.shape[:2])

    def step(self, active: Flags, number: int) -> FloatArray:
        """Move the active clients' centroids to the means of their rows; return the counts of all clients.

        A centroid without rows stays where it is (section 2.4).
        """
        if active.all():
            counts, sums = step(self.held, self.centers if number else self.received[None], number=number)
            moved = counts > 0
            np.divide(sums, counts[:, :, None], out=self.centers, where=moved[:, :, None])
            self.behind = np.where(moved, counts, self.behind)
            return counts
        counts = np.zeros(self.behind.shape)
        own = self.centers[active] if number else self.received[None]
        counts[active], sums = step(self.held.only(active), own, number=number)
        held = counts > 0
        self.centers[held] = sums[held[active]] / counts[held][:, None]
        self.behind[held] = counts[held]
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
        _updates(_Group(held, centers), local_iter, local_tol, relocate_empty) for held in groups(clients)
    ]
    if len(done) == 1:
        return done[0]
    return LocalUpdates(
        np.concatenate([one.centers for one in done]),
        np.concatenate([one.counts for one in done]),
        centers,
        np.concatenate([one.rows for one in done]),
    )


def _updates(group: _Group, local_iter: int, local_tol: float | None, relocate_empty: bool) -> LocalUpdates:
    active, first_counts = np.ones(len(group.centers), dtype=np.bool_), group.behind
    for number in range(local_iter):
        before = group.centers.copy()
        counts = group.step(active, number)
        first_counts = first_counts if number else counts
        if relocate_empty:
            _relocate(group, counts, active)
        if local_tol is not None:
            moved = np.sqrt(((group.centers - before) ** 2).sum(axis=(1, 2)))
            active &= moved >= local_tol
        elif not relocate_empty and np.array_equal(group.centers, before):
            # From the same centroids, all further steps lead to the same.
            break
        if not active.any():
            break
    return LocalUpdates(group.centers, first_counts, group.received, group.behind)


def _relocate(group: _Group, counts: FloatArray, active: Flags) -> None:
    parts = group.held.parts
    for client in np.flatnonzero(active & (counts == 0).any(axis=1)).tolist():
        rows, own = parts[client], group.centers[client]
        empty = np.flatnonzero(counts[client] == 0)
        distance = squared_distances(rows, own[counts[client] > 0]).min(axis=1)
        farthest = np.argsort(-distance, kind="stable")[: len(empty)]
        own[empty[: len(farthest)]] = rows[farthest]
        group.behind[client, empty[: len(farthest)]] = 1.0
