"""The graph of who shares secrets with whom in a cohort: complete, or circulant in a random order.

In the sparse graph the members stand on a circle, in an order drawn by AES-256-CTR under H(session,
cohort), and each shares with those at d/2 fixed distances on either side. The graph is exactly d-regular.
No party controls the order, because the session is a hash over a fresh key of every party; the party
that sends its key last can try many keys, which `sizes` allows for. One order serves all sums of a
cohort: a new order for each sum would be known in advance too, would let an adversary choose among more
graphs, and would need new key agreements.

The distances are public and the same for all graphs of (n, d): 16 sets are drawn from a hash, and the one
with the smallest second eigenvalue is kept (the eigenvalues are the Fourier transform of the distances).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from privfed.protocols.crypto.keys import digest
from privfed.protocols.crypto.keystream import keystream

Places = npt.NDArray[np.int64]
_TRIES = 16


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Lists the neighbours of one client, in the order in which messages name them.

    Args:
        clients: their positions.
        places: their places in the cohort, int64 of shape (d,).
        held: the abscissa at which the client holds a share of each neighbour's secrets.
    """

    clients: tuple[int, ...]
    places: Places
    held: tuple[int, ...]

    @property
    def abscissae(self) -> tuple[int, ...]:
        """The abscissa at which each neighbour holds a share of the client's secrets."""
        return tuple(range(1, len(self.clients) + 1))


class Graph:
    """Finds the neighbours of a cohort's members in its graph.

    Args:
        members: positions of the cohort's clients, ascending.
        d: number of neighbours of each: all others, or an even number.
        seed: 32 bytes that no party controls; only a sparse graph depends on it.
    """

    def __init__(self, members: tuple[int, ...], d: int, seed: bytes) -> None:
        self._members, self._d = members, d
        self._place = {client: place for place, client in enumerate(members)}
        self._is_full = d == len(members) - 1
        if not self._is_full:
            self._order: Places = np.argsort(keystream(seed, len(members)), kind="stable")
            self._circle = np.argsort(self._order)

    def rows(self, places: Places) -> tuple[Places, Places]:
        """Return the neighbours of some members, and each member's column in its neighbours' own rows.

        Args:
            places: the members' places in the cohort, int64 of shape (n,).

        Returns:
            The neighbours' places, int64 of shape (n, d), and for each neighbour the column of its row in
            which the member stands, int64 of shape (n, d).
        """
        columns = np.arange(self._d)
        if self._is_full:
            rows = columns + (columns >= places[:, None])
            return rows, places[:, None] - (places[:, None] > rows)
        distances = circle_distances(len(self._members), self._d)
        rows = self._order[(self._circle[places][:, None] + distances) % len(self._members)]
        # The distances ascend and are symmetric (x and n - x): the way back is the same column from the end.
        return rows, np.broadcast_to(columns[::-1], rows.shape)

    def neighbours(self, client: int) -> Neighbours:
        """Return the neighbours of one member."""
        rows, columns = self.rows(np.array([self._place[client]]))
        held = (columns[0] + 1).tolist()
        return Neighbours(tuple(self._members[place] for place in rows[0].tolist()), rows[0], tuple(held))


@lru_cache(maxsize=64)
def _distances(n: int, d: int) -> tuple[Places, float]:
    """Return the distances of a sparse graph, of shape (d,), ascending in 1..n-1, and its eigenvalue."""
    found: list[tuple[float, int, Places]] = []
    for attempt in range(_TRIES):
        drawn = keystream(digest("distances", n, d, attempt), (n - 1) // 2)
        half = np.argsort(drawn, kind="stable")[: d // 2] + 1
        on_circle = np.zeros(n)
        on_circle[half] = on_circle[n - half] = 1
        eigenvalue = float(np.abs(np.fft.rfft(on_circle)[1:]).max())
        # The transform's last bits may differ between machines. The margin makes all of them round up to
        # the same number, also where the exact eigenvalue is an integer.
        rounded = np.ceil(eigenvalue * 1000 + 1e-6) / 1000
        found.append((rounded, attempt, np.sort(np.concatenate([half, n - half]))))
    smallest, _, distances = min(found, key=lambda one: one[:2])
    return distances, smallest


def circle_distances(n: int, d: int) -> Places:
    """Return the distances on the circle from each of n clients to its d neighbours, ascending."""
    return _distances(n, d)[0]


def second_eigenvalue(n: int, d: int) -> float:
    """Return the largest modulus of an eigenvalue of the sparse graph besides d, rounded up to 0.001."""
    return _distances(n, d)[1]


def smallest_set(n: int, d: int, t: int, c: int, colluders: int) -> int:
    """Return a lower bound on the honest clients in a set that opens on the sparse graph.

    Let O be a set of x honest clients, each with at least t neighbours in O or among the C colluders, and
    with at most c neighbours among the colluders. Let e(S, T) count ordered pairs of neighbours, and let L
    be the second eigenvalue. By the expander mixing lemma (Alon & Chung, Discrete Mathematics 72, 1988;
    Cauchy-Schwarz for the parts of both indicators that are orthogonal to the constant vector)

        e(S, T) <= d |S| |T| / n + L sqrt(|S| |T| (1 - |S| / n) (1 - |T| / n)),

    so that t x <= e(O, O and C) and (t - c) x <= e(O, O) bound x from below. Besides, x >= t - c + 1.

    Args:
        n: number of clients.
        d: number of neighbours of each.
        t: threshold, above c.
        c: most colluders among a client's neighbours.
        colluders: C, the colluders in the cohort.

    Returns:
        The smallest x that satisfies all three; the number of honest clients in the cohort if none does.
    """
    x, eigenvalue = np.arange(1, n - colluders + 1) / n, second_eigenvalue(n, d)
    either = x + colluders / n
    fits = t <= d * either + eigenvalue * np.sqrt(either / x * (1 - x) * np.maximum(1 - either, 0))
    fits &= t - c <= d * x + eigenvalue * (1 - x)
    fits[: t - c] = False
    return int(np.argmax(fits)) + 1 if fits.any() else n - colluders
