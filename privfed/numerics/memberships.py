"""Fuzzy memberships of rows in clusters, and local fuzzy c-means: a client's steps between two sums.

A membership says how much a row belongs to a center.
Bezdek, Ehrlich, Full: FCM, Computers & Geosciences 10, 1984. With distances d_ij and fuzzifier m > 1,

    u_ij = 1 / sum_k (d_ij / d_ik)^(2 / (m - 1)),    sum_j u_ij = 1.

Equation 5 of Stallmann and Wilbik 2022 has squared distances under that exponent. Here they are not squared,
as in the authors' code and as equation 4, the objective that these memberships minimise, requires. A row that
lies on a center has membership 1 in it; several coinciding centers share the row equally.

Local fuzzy c-means: equations 5 and 6 and step 3 of the protocol there (section 2.2.1), for many clients at
once. The paper does not state the stopping rule. As in the authors' code, memberships before and after a step
are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_number, check_whole, consecutive
from privfed.numerics.kernels.dispatch import CHOICE, Choice, distances, weighted_sums

LARGEST_FUZZIFIER = 100.0
"""Largest fuzzifier: above it u^m of two equal memberships, 2^-m, would vanish in any sum."""


def check_fuzzifier(m: float) -> None:
    """Check a fuzzifier.

    Raises:
        ArgumentError: m is not in (1, 100].
    """
    check_number("m", m, f"(1, {LARGEST_FUZZIFIER:g}]", remedy="; the papers take m=2")


def shares(distances: FloatArray, m: float) -> FloatArray:
    """Return the memberships for given squared distances, in the same shape.

    Args:
        distances: squared distances, not negative, float64 of shape (n_centers, n_rows).
        m: fuzzifier, above 1.
    """
    least = distances.min(axis=0)
    if least.min() > 0.0:
        weights: FloatArray = least / distances
    else:
        # For a row on a center the ratio is 0/0: it becomes 1 for each center that the row lies on.
        on_center = least == 0.0
        weights = np.divide(least, distances, out=np.zeros_like(distances), where=~on_center)
        weights[:, on_center] = distances[:, on_center] == 0.0
    if m != 2.0:
        np.power(weights, 1.0 / (m - 1.0), out=weights)
    # Added in sequence: NumPy's sum adds a single column in another order than several, but a row's
    # memberships must not depend on the other rows.
    weights /= reduce(np.add, weights)
    return weights


def memberships(rows: FloatArray, centers: FloatArray, m: float = 2.0) -> FloatArray:
    """Return the memberships of rows in clusters.

    Args:
        rows: float64 of shape (n_rows, n_features).
        centers: float64 of shape (n_clusters, n_features).
        m: fuzzifier, above 1. Near 1, a row belongs to its nearest center only; large values spread it.

    Returns:
        float64 of shape (n_rows, n_clusters), each row in [0, 1] with sum 1.

    Raises:
        ArgumentError: m is out of its bounds.
    """
    check_fuzzifier(m)
    return np.ascontiguousarray(shares(distances(rows, centers), m).T)


LEAST_POWERS = 1e-280
"""Sums of u^m below this are rounding errors of zero, and nothing is divided by them."""

_BLOCK = 1 << 14
"""Most memberships that are computed at once; more would not fit a core's cache."""


@dataclass(frozen=True, slots=True)
class LocalFuzzy:
    """The result of local fuzzy c-means on one client.

    Args:
        centers: local centers, float64 of shape (n_clusters, n_features).
        powers: sums of u^m that the last step divided by (eq. 6), float64 of shape (n_clusters,). Zero
            where every row lies exactly on other centers; such a center did not move in that step.
        supports: sums of the memberships u in the local centers, float64 of shape (n_clusters,).
    """

    centers: FloatArray
    powers: FloatArray
    supports: FloatArray


def check_local(local_iter: int, local_tol: float | None) -> None:
    """Check the parameters of the local stopping rule.

    Raises:
        ArgumentError: one is out of its bounds.
    """
    check_whole("local_iter", local_iter, 1, 100_000)
    check_number("local_tol", local_tol, "[0, inf)", or_none=True)


class Stack:
    """Stacked rows of several clients, with the operations of a fuzzy c-means step.

    Memberships are of shape (n_clusters, n_rows of all clients). Distances and sums are those of the kernel,
    client by client, so that a client's results do not depend on the others.

    Args:
        clients: rows of each client, float64 of shape (n_i, n_features).
        m: fuzzifier, above 1.
        choice: which kernel does the work.
    """

    def __init__(self, clients: Sequence[FloatArray], m: float, choice: Choice) -> None:
        self.clients, self.m, self._choice = clients, m, choice
        ends = np.cumsum([len(rows) for rows in clients]).tolist()
        self.spans = [slice(end - len(rows), end) for rows, end in zip(clients, ends, strict=True)]

    @classmethod
    def of(cls, clients: Sequence[FloatArray], n_clusters: int, m: float, choice: Choice = CHOICE) -> Stack:
        """Return the stack of some clients' rows, for steps with so many centers."""
        return cls(clients, m, choice.settled(sum(map(len, clients)), n_clusters, clients[0].shape[1]))

    def memberships(self, centers: FloatArray) -> FloatArray:
        """Return the memberships in each client's centers, (n_clients, n_clusters, n_features)."""
        parts = [
            distances(rows, own, choice=self._choice) for rows, own in zip(self.clients, centers, strict=True)
        ]
        return shares(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1), self.m)

    def sums(self, memberships: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return each client's sums of u^m, (n_clients, n_clusters), and of u^m x, (..., n_features)."""
        powers = memberships * memberships if self.m == 2.0 else np.power(memberships, self.m)
        each = zip(self.clients, self.spans, strict=True)
        parts = [weighted_sums(powers[:, span], rows, choice=self._choice) for rows, span in each]
        return np.stack([total for total, _ in parts]), np.stack([weighted for _, weighted in parts])

    def supports(self, memberships: FloatArray) -> FloatArray:
        """Return each client's sums of u, (n_clients, n_clusters)."""
        return np.stack([memberships[:, span].sum(axis=1) for span in self.spans])

    def changes(self, before: FloatArray, after: FloatArray) -> FloatArray:
        """Return the Frobenius norm of the change of each client's memberships, (n_clients,)."""
        return np.array([np.linalg.norm((after - before)[:, span]) for span in self.spans])

    def only(self, kept: npt.NDArray[np.intp], memberships: FloatArray) -> tuple[Stack, FloatArray]:
        """Return the stack of some of the clients, and their memberships."""
        stack = Stack([self.clients[i] for i in kept], self.m, self._choice)
        return stack, np.concatenate([memberships[:, self.spans[i]] for i in kept], axis=1)


def blocks(clients: Sequence[FloatArray], n_clusters: int) -> Iterator[Sequence[FloatArray]]:
    """Return consecutive groups of clients whose memberships fit into `_BLOCK`, or single larger clients."""
    return (clients[own] for own in consecutive((len(rows) * n_clusters for rows in clients), _BLOCK))


def local_fits(
    clients: Sequence[FloatArray],
    centers: FloatArray,
    *,
    m: float,
    local_iter: int,
    local_tol: float | None,
) -> list[LocalFuzzy]:
    """Do fuzzy c-means on each client from the same centers.

    Args:
        clients: rows of each client, float64 of shape (n_i, n_features).
        centers: global centers, float64 of shape (n_clusters, n_features).
        m: fuzzifier, above 1.
        local_iter: most steps.
        local_tol: a client stops once a step changes its memberships by less (Frobenius norm);
            None never.

    Returns:
        One fit a client, in order.
    """
    stacks = (Stack.of(piece, len(centers), m) for piece in blocks(clients, len(centers)))
    return [one for stack in stacks for one in _fits(stack, centers, local_iter, local_tol)]


def _fits(stack: Stack, centers: FloatArray, local_iter: int, local_tol: float | None) -> list[LocalFuzzy]:
    n_clients = len(stack.clients)
    own, waiting = np.repeat(centers[None], n_clients, axis=0), np.arange(n_clients)
    found: dict[int, LocalFuzzy] = {}
    current = stack.memberships(own)
    for number in range(1, local_iter + 1):
        powers, weighted = stack.sums(current)
        own = moved(own, powers, weighted, LEAST_POWERS)
        before, current = current, stack.memberships(own)
        done = np.full(len(waiting), number == local_iter)
        if local_tol is not None:
            done |= stack.changes(before, current) < local_tol
        if not done.any():
            continue
        supports = stack.supports(current)
        for i in np.flatnonzero(done):
            found[int(waiting[i])] = LocalFuzzy(own[i], powers[i], supports[i])
        if done.all():
            break
        kept = np.flatnonzero(~done)
        stack, current = stack.only(kept, current)
        own, waiting = own[kept], waiting[kept]
    return [found[i] for i in range(n_clients)]


def moved(centers: FloatArray, powers: FloatArray, weighted: FloatArray, least: float) -> FloatArray:
    """Return equation 6, sums of u^m x over sums of u^m; a center whose sum is at most `least` stays."""
    moving = powers > least
    if moving.all():
        return weighted / powers[..., None]
    return np.where(moving[..., None], weighted / np.where(moving, powers, 1.0)[..., None], centers)
