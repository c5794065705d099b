"""How many neighbours, colluders among them and shares a cohort of n clients has.

Every party computes these numbers for itself, from the cohort's size and the signed terms. Up to
`FULL_GRAPH` clients everyone shares with everyone. Above, each shares with d others on a sparse graph
(Bell et al.: Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS 2020, section 3):

- *Colluders.* The graph's labels are drawn without regard to who colludes, so that a client's d
  neighbours are d of the n - 1 others: the colluders among them are hypergeometric. c is the smallest
  number with n P[Hyp(n - 1, C, d) > c] <= 2^-100, for C colluders in the cohort. The server and its
  clients may try keys until they have seen 2^60 graphs, and fail with probability 1 - 2^-40.
- *Losses.* With at most a share `dropouts` of the cohort lost, no client loses more than d - t
  neighbours, but for one sum in 2^20: n P[Hyp(n - 1, floor(dropouts n), d) > d - t] <= 2^-20.
- *Threshold.* 2t > d + c, as on the full graph: nobody gets both secrets of a client.
- *Size of an opened sum.* Each honest client of an opened set O gave shares with t of its neighbours, who
  are in O or collude. `graph.smallest_set` bounds |O| from the graph's second eigenvalue; that bound has
  to reach the honest clients that the terms promise, and more than half of those there are, so that at
  most one set of a number opens.

d is the smallest even number for which all four can hold, t the smallest threshold. A number of clients
that must be left (`Terms.threshold`) is kept by the clients on the full graph, by the coordinator above.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

from privfed.core.configuration import Terms
from privfed.errors import ArgumentError
from privfed.protocols.crypto.shamir import MAX_HOLDERS
from privfed.protocols.setup.graph import smallest_set

FULL_GRAPH = 200
"""Largest cohort in which everyone shares with everyone."""

COLLUSION_BITS = 100
LOSS_BITS = 20


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of a cohort (notation of docs/protocols/masked.md).

    Args:
        clients: n.
        neighbours: d, with whom each client shares.
        colluders: c, most colluders among the neighbours of a client.
        threshold: t, shares that open a secret.
        honest: fewest honest clients in an opened sum.
        needed: with fewer clients left no sum opens.
    """

    clients: int
    neighbours: int
    colluders: int
    threshold: int
    honest: int
    needed: int


def default_colluders(n: int) -> int:
    """Return floor(n / 10), one more where n + c is odd: on the full graph this costs nothing."""
    return n // 10 + (n + n // 10) % 2


def colluders_in(n: int, terms: Terms) -> int:
    """Return the colluders C that a cohort of n must withstand.

    The terms name those of the smallest cohort. A larger one withstands at least the default of its
    size: with cohorts of 10 of 100 clients, a tenth of all are ten when everyone is asked.
    """
    return terms.colluders if n <= terms.min_clients else max(terms.colluders, default_colluders(n))


def tail(n: int, marked: int, d: int, bits: int) -> int:
    """Return the smallest x with n P[Hyp(n - 1, marked, d) > x] <= 2^-bits, in exact integers."""
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
        ArgumentError: no graph with at most 254 neighbours withstands so many colluders and losses.
    """
    return _full(n, terms) if n <= FULL_GRAPH else _sparse(n, terms)


def _full(n: int, terms: Terms) -> Sizes:
    """Return t = max(floor((d + c) / 2) + 1, m + c - 1), raised to what the terms ask for."""
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
