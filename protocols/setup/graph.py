"""The graph of who shares secrets with whom in a cohort: complete, or circulant in a random order.

In the sparse graph the members stand on a circle, in an order drawn by AES-256-CTR under H(session,
cohort), and each shares with those at d/2 fixed distances on either side. The graph is exactly d-regular.
No party controls the order, because the session is a hash over a fresh key of every party; the party
that sends its key last can try many keys, which `sizes` allows for. One order serves all sums of a
cohort: a new order for each sum would be known in advance too, would let an adversary choose among more
graphs, and would need new key agreements.

The distances are public and the same for all graphs of (n, d): 16 sets are drawn from a hash, and the one
with the smallest second eigenvalue is kept (the eigenvalues are the Fourier transform of the distances).

Every party computes the numbers of neighbours, colluders and shares for itself (`sizes`), from the cohort's
size and the signed terms. Up to `FULL_GRAPH` clients everyone shares with everyone. Above, each shares with d
others on a sparse graph (Bell et al.: Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS
2020, section 3):

- *Colluders.* The graph is drawn independently of who colludes. So a client's d neighbours are a random d of
  the n - 1 others, and the number of colluders among them is hypergeometric. c is the smallest number with n
  P[Hyp(n - 1, C, d) > c] <= 2^-100, for C colluders in the cohort. A server and colluders who try keys until
  they have seen 2^60 graphs still fail with probability 1 - 2^-40.
- *Dropouts.* If at most a share `dropouts` of the cohort is lost, no client loses more than d - t
  neighbours, except in one sum in 2^20: n P[Hyp(n - 1, floor(dropouts n), d) > d - t] <= 2^-20.
- *Threshold.* 2t > d + c, as on the full graph: nobody can open both secrets of a client.
- *Size of an opened sum.* Each honest client of an opened set O released its shares together with t of its
  neighbours, each of them in O or a colluder. `graph.smallest_set` bounds |O| from the graph's second
  eigenvalue. The bound must reach the number of honest clients that the terms promise. It must exceed half of
  the cohort's honest clients, so that at most one set opens for each number of a sum.

d is the smallest even number for which all four can hold, and t the smallest threshold for that d. The
least number of clients left (`Terms.threshold`) is enforced by the clients on the full graph, and by the
coordinator on a sparse one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
import numpy.typing as npt

from privfed.core.agreed.configuration import Terms
from privfed.errors import ArgumentError
from privfed.protocols.crypto.keys import digest
from privfed.protocols.crypto.keystream import keystream
from privfed.protocols.crypto.shamir import MAX_HOLDERS

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
        distances, _ = circle(len(self._members), self._d)
        rows = self._order[(self._circle[places][:, None] + distances) % len(self._members)]
        # The distances ascend and are symmetric (x and n - x): the way back is the same column from the end.
        return rows, np.broadcast_to(columns[::-1], rows.shape)

    def neighbours(self, client: int) -> Neighbours:
        """Return the neighbours of one member."""
        rows, columns = self.rows(np.array([self._place[client]]))
        held = (columns[0] + 1).tolist()
        return Neighbours(tuple(self._members[place] for place in rows[0].tolist()), rows[0], tuple(held))


@lru_cache(maxsize=64)
def circle(n: int, d: int) -> tuple[Places, float]:
    """Return what the sparse graph of n clients with d neighbours each is.

    Returns:
        The distances on the circle from each client to its neighbours, of shape (d,), ascending in 1..n-1.
        The largest modulus of an eigenvalue besides d, rounded up to 0.001.
    """
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


def smallest_set(n: int, d: int, t: int, c: int, colluders: int) -> int:
    """Return a lower bound on the honest clients in a set that opens on the sparse graph.

    Let O be a set of x honest clients. Each has at least t neighbours in O or among the C colluders, and at
    most c neighbours among the colluders. Let e(S, T) count ordered pairs of neighbours, and let L be the
    second eigenvalue. By the expander mixing lemma (Alon & Chung, Discrete Mathematics 72, 1988;
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
    x, eigenvalue = np.arange(1, n - colluders + 1) / n, circle(n, d)[1]
    either = x + colluders / n
    fits = t <= d * either + eigenvalue * np.sqrt(either / x * (1 - x) * np.maximum(1 - either, 0))
    fits &= t - c <= d * x + eigenvalue * (1 - x)
    fits[: t - c] = False
    return int(np.argmax(fits)) + 1 if fits.any() else n - colluders


FULL_GRAPH = 200
"""Largest cohort in which everyone shares with everyone."""

COLLUSION_BITS = 100
LOSS_BITS = 20


@dataclass(frozen=True, slots=True)
class Sizes:
    """Holds the numbers of a cohort (notation of docs/protocols/masked.md).

    Args:
        clients: n, clients in the cohort.
        neighbours: d, clients with whom each client shares.
        colluders: c, most colluders among the neighbours of a client.
        threshold: t, shares that open a secret.
        honest: fewest honest clients in an opened sum.
        needed: fewest clients that must be left for a sum to open.
    """

    clients: int
    neighbours: int
    colluders: int
    threshold: int
    honest: int
    needed: int


def default_colluders(n: int) -> int:
    """Return c = floor(n / 10), raised by one if n + c is odd, which costs nothing on the full graph."""
    return n // 10 + (n + n // 10) % 2


def colluders_in(n: int, terms: Terms) -> int:
    """Return the colluders C that a cohort of n must withstand.

    The terms name the number for the smallest cohort. A larger cohort withstands at least the default for
    its own size: a fit with cohorts of 10 that at times asks all 100 clients withstands 10 colluders there.
    """
    return terms.colluders if n <= terms.min_clients else max(terms.colluders, default_colluders(n))


def tail(n: int, marked: int, d: int, bits: int) -> int:
    """Return the smallest x with n P[Hyp(n - 1, marked, d) > x] <= 2^-bits, computed in exact integers."""
    whole, above, x = comb(n - 1, d), 0, min(marked, d)
    while x > 0:
        above += comb(marked, x) * comb(n - 1 - marked, d - x)
        if (above * n) << bits > whole:
            break
        x -= 1
    return x


@lru_cache(maxsize=64)
def sizes(n: int, terms: Terms) -> Sizes:
    """Return the numbers of a cohort of n clients.

    Raises:
        ArgumentError: no graph with at most 254 neighbours withstands so many colluders and dropouts.
    """
    return _full(n, terms) if n <= FULL_GRAPH else _sparse(n, terms)


def _full(n: int, terms: Terms) -> Sizes:
    """Return the full graph's numbers: t = max(floor((d + c) / 2) + 1, m + c - 1), or more if asked for."""
    d, c = n - 1, colluders_in(n, terms)
    t = max((d + c) // 2 + 1, terms.honest + c - 1, terms.threshold - 1)
    return Sizes(n, d, c, t, t - c + 1, t + 1)


def _sparse(n: int, terms: Terms) -> Sizes:
    in_all, lost = colluders_in(n, terms), int(n * terms.dropouts)
    honest = max(terms.honest, (n - in_all) // 2 + 1)
    for d in range(2, min(n - 1, MAX_HOLDERS), 2):
        c = tail(n, in_all, d, COLLUSION_BITS)
        lowest, highest = (d + c) // 2 + 1, d - tail(n, lost, d, LOSS_BITS)
        if lowest > highest or smallest_set(n, d, highest, c, in_all) < honest:
            continue
        t = next(t for t in range(lowest, highest + 1) if smallest_set(n, d, t, c, in_all) >= honest)
        opened = smallest_set(n, d, t, c, in_all)
        return Sizes(n, d, c, t, opened, max(opened, terms.threshold))
    raise ArgumentError(
        f"no graph of {MAX_HOLDERS - 1} neighbours or fewer withstands {in_all} colluders and {lost} lost "
        f"clients of {n} with {honest} honest ones in a sum. Assume fewer colluders or dropouts, or ask at "
        f"most {FULL_GRAPH} clients a round."
    )
