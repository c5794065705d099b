"""Who shares with whom in a cohort: everyone, or the neighbours of a circulant graph in a drawn order.

The sparse graph is the union of d/2 cycles: the members stand in a circle, in an order drawn by
AES-256-CTR under H(session, cohort), and each shares with those whose distance is among d/2 fixed
numbers. It is exactly d-regular. No party controls the order: the session is a hash over a fresh key
of everyone (who sends the last one can try many; `sizes` allows for that). It is the same for all sums
of a cohort: with another one for each sum, all of them would be known as soon as the session is, so that
more could be tried, and keys agreed on anew each time.

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
    """The neighbours of one client, in the order in which messages name them.

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
    """The graph of one cohort.

    Args:
        members: positions of its clients, ascending.
        d: neighbours of each; all others, or an even number.
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
        """Return the neighbours of some members, and where these stand among the neighbours' neighbours.

        Args:
            places: places in the cohort, of shape (n,).

        Returns:
            The neighbours' places, int64 of shape (n, d), and for each the column of its own row that
            names the member.
        """
        columns = np.arange(self._d)
        if self._is_full:
            rows = columns + (columns >= places[:, None])
            return rows, places[:, None] - (places[:, None] > rows)
        distances = circle_distances(len(self._members), self._d)
        rows = self._order[(self._circle[places][:, None] + distances) % len(self._members)]
        # Distances ascend and are symmetric, so that the way back stands as far from the other end.
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
        # Some are whole: rounded up from above the transform's last bits, in which machines may differ.
        rounded = np.ceil(eigenvalue * 1000 + 1e-6) / 1000
        found.append((rounded, attempt, np.sort(np.concatenate([half, n - half]))))
    smallest, _, distances = min(found, key=lambda one: one[:2])
    return distances, smallest


def circle_distances(n: int, d: int) -> Places:
    """Return the distances on the circle at which a client of n has its d neighbours, ascending."""
    return _distances(n, d)[0]


def second_eigenvalue(n: int, d: int) -> float:
    """Return the largest modulus of an eigenvalue of the sparse graph besides d, rounded up to 0.001."""
    return _distances(n, d)[1]


def smallest_set(n: int, d: int, t: int, c: int, colluders: int) -> int:
    """Return how many honest clients a set that opens on the sparse graph has at least.

    Let O be honest, x = |O|, each of O with t neighbours in O or among the C colluders, of whom at most c
    are its neighbours. With e(S, T) the ordered pairs of neighbours and L the second eigenvalue, the
    expander mixing lemma says (Alon & Chung, Discrete Mathematics 72, 1988; Cauchy-Schwarz for the parts
    of both indicators that are orthogonal to the constant vector)

        e(S, T) <= d |S| |T| / n + L sqrt(|S| |T| (1 - |S| / n) (1 - |T| / n)),

    so that t x <= e(O, O and C) and (t - c) x <= e(O, O) bound x from below. Besides, x >= t - c + 1.

    Args:
        n: clients.
        d: neighbours of each.
        t: threshold, above c.
        c: most colluders among a client's neighbours.
        colluders: C, those of the cohort.

    Returns:
        The smallest x for which neither is violated; the honest clients of the cohort if there is none.
    """
    x, eigenvalue = np.arange(1, n - colluders + 1) / n, second_eigenvalue(n, d)
    either = x + colluders / n
    fits = t <= d * either + eigenvalue * np.sqrt(either / x * (1 - x) * np.maximum(1 - either, 0))
    fits &= t - c <= d * x + eigenvalue * (1 - x)
    fits[: t - c] = False
    return int(np.argmax(fits)) + 1 if fits.any() else n - colluders
