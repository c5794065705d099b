"""Computes the numbers of neighbours, colluders and shares for a cohort of n clients.

Every party computes these numbers for itself, from the cohort's size and the signed terms. Up to
`FULL_GRAPH` clients everyone shares with everyone. Above, each shares with d others on a sparse graph
(Bell et al.: Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS 2020, section 3):

- *Colluders.* The graph is drawn independently of who colludes, so a client's d neighbours are a random
  d of the n - 1 others, and the number of colluders among them is hypergeometric. c is the smallest
  number with n P[Hyp(n - 1, C, d) > c] <= 2^-100, for C colluders in the cohort. A server and colluders
  who try keys until they have seen 2^60 graphs still fail with probability 1 - 2^-40.
- *Dropouts.* If at most a share `dropouts` of the cohort is lost, no client loses more than d - t
  neighbours, except in one sum in 2^20: n P[Hyp(n - 1, floor(dropouts n), d) > d - t] <= 2^-20.
- *Threshold.* 2t > d + c, as on the full graph: nobody can open both secrets of a client.
- *Size of an opened sum.* Each honest client of an opened set O released its shares together with t
  of its neighbours, each of them in O or a colluder. `graph.smallest_set` bounds |O| from the graph's
  second eigenvalue. The bound must reach the number of honest clients that the terms promise, and exceed
  half of the cohort's honest clients, so that at most one set opens for each number of a sum.

d is the smallest even number for which all four can hold, and t the smallest threshold for that d. The
least number of clients left (`Terms.threshold`) is enforced by the clients on the full graph, and by the
coordinator on a sparse one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

from privfed.core.agreed.configuration import Terms
from privfed.errors import ArgumentError
from privfed.protocols.crypto.shamir import MAX_HOLDERS
from privfed.protocols.setup.graph import smallest_set

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
        f"clients of {n} with {honest} honest ones in a sum; assume fewer colluders or dropouts, or ask at "
        f"most {FULL_GRAPH} clients a round."
    )
