"""The agreement that a party of masked sums has before the fit, and the numbers that follow from it.

Notation of docs/protocols/masked.md: a cohort has n clients, each with d neighbours, at most c of them
colluders; an opened sum has at least m honest clients; t shares open a secret. `sizes` computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from privfed.core.agreed.agreement import Agreement
from privfed.core.agreed.configuration import Terms
from privfed.core.stored.encoding import digest
from privfed.errors import ArgumentError
from privfed.protocols.setup.graph import Graph, Neighbours, default_colluders, sizes

BLOCK = 8
"""Numbers in a block, where everyone is asked each time: one box a neighbour brings the shares for all."""

_RECENT = 16
"""Cohorts and graphs that a party caches; a session uses few labels at a time."""


def default_terms(n: int, *, colluders: int | None, honest: int | None) -> tuple[int, int]:
    """Return c and m for the smallest cohort.

    By default c = floor(n / 10), raised by one if n + c is odd, and m = floor((n - 1 - c) / 2) + 2,
    the largest m that does not raise the threshold of the full graph.

    Raises:
        ArgumentError: there are fewer than three clients, or c and m do not fit into the cohort.
    """
    if n < 3:
        raise ArgumentError(
            f"a masked sum needs at least 3 clients in every cohort, got {n}: of two, each would learn the "
            "other's answer. Take more clients, or draw more of them for a round, or use "
            'protocol="plain", which hides nothing.'
        )
    c = default_colluders(n) if colluders is None else colluders
    m = (n - 1 - c) // 2 + 2 if honest is None else honest
    if c < 0 or m < 2 or m + c > n:
        raise ArgumentError(
            f"colluders={c} and honest={m} do not fit into a cohort of {n}: honest must be at least 2, and "
            f"honest + colluders at most {n}. Assume fewer colluders, or ask more clients a round."
        )
    return c, m


def threshold(n: int, terms: Terms) -> int:
    """Return t, the number of shares that open a secret, for a cohort of n clients."""
    return sizes(n, terms).threshold


def needed_to_open(n: int, terms: Terms) -> int:
    """Return how many clients of a cohort of n must answer both exchanges for a sum to open."""
    return sizes(n, terms).needed


def check_cohort(n: int, terms: Terms) -> None:
    """Check that a cohort of n has enough clients to open a sum.

    Raises:
        ArgumentError: more clients are needed than the cohort has.
    """
    if needed_to_open(n, terms) > n:
        raise ArgumentError(
            f"a cohort of {n} cannot keep a threshold of {needed_to_open(n, terms)} clients (colluders="
            f"{sizes(n, terms).colluders}, honest={terms.honest}); lower the threshold, or ask more clients "
            "a round."
        )


@dataclass(frozen=True)
class Cohort:
    """Names the clients that a label stands for.

    Args:
        members: their positions, ascending.
        place: position -> place among the members.
        digest: H(Q), the hash of label and members.
    """

    members: tuple[int, ...]
    place: Mapping[int, int]
    digest: bytes


class Rules(Agreement):
    """Adds to an agreement the blocks, cohorts, thresholds and graphs that follow from it; caches the latter.

    A block is numbers of sums in a row that are prepared together: block b has n (b - 1) + 1, ..., n b, where
    n is `block_size`.
    """

    @cached_property
    def block_size(self) -> int:
        """How many numbers a block has: cohorts that are drawn once are prepared one by one."""
        return BLOCK if self.configuration.cohorts.kind == "all" else 1

    def block_of(self, number: int) -> int:
        """Return the block of a number, which is at least 1."""
        return (number - 1) // self.block_size + 1

    def numbers(self, block: int) -> range:
        """Return the numbers of a block."""
        return range(self.block_size * (block - 1) + 1, self.block_size * block + 1)

    @classmethod
    def of(cls, agreement: Agreement) -> Rules:
        """Return an agreement as `Rules`; unchanged if it is one already."""
        if isinstance(agreement, cls):
            return agreement
        return cls(agreement.configuration, agreement.registry, agreement.part)

    def threshold(self, label: int) -> int:
        """Return how many shares open a secret of one of the cohort's clients."""
        return threshold(len(self.cohort(label).members), self.configuration.terms)

    def neighbours(self, session: bytes, label: int, client: int) -> Neighbours:
        """Return the neighbours of a client in a cohort."""
        return self.graph(session, label).neighbours(client)

    @cached_property
    def cohort(self) -> Callable[[int], Cohort]:
        """Return the cohort of a label."""
        return lru_cache(maxsize=_RECENT)(self._cohort)

    def _cohort(self, label: int) -> Cohort:
        members = self.configuration.cohort(label)
        return Cohort(members, {client: i for i, client in enumerate(members)}, cohort_digest(label, members))

    @cached_property
    def graph(self) -> Callable[[bytes, int], Graph]:
        """Return the graph of a session's cohort; labels with the same members have the same graph."""
        return lru_cache(maxsize=_RECENT)(self._graph)

    def _graph(self, session: bytes, label: int) -> Graph:
        members = self.cohort(label).members
        degree = sizes(len(members), self.configuration.terms).neighbours
        return Graph(members, degree, digest("graph", session, *members))


def bitmap(members: tuple[int, ...], chosen: set[int] | frozenset[int]) -> bytes:
    """Encode which of `members` are chosen, as one byte 0 or 1 for each."""
    return bytes([i in chosen for i in members])


def from_bitmap(members: tuple[int, ...], chosen: bytes) -> frozenset[int] | None:
    """Decode which of `members` are chosen; None if `chosen` is not one byte 0 or 1 for each."""
    if not is_bitmap(chosen, len(members)):
        return None
    return frozenset(i for i, flag in zip(members, chosen, strict=True) if flag)


def is_bitmap(chosen: bytes, n: int) -> bool:
    """Say whether `chosen` has n bytes, each 0 or 1."""
    return len(chosen) == n and not chosen.strip(b"\0\1")


def cohort_digest(label: int, members: tuple[int, ...]) -> bytes:
    """Return H(Q), the hash of a cohort's label and members, 32 bytes."""
    return digest("cohort", label, *members)


@lru_cache(maxsize=2)
def sum_header(
    session: bytes,
    number: int,
    index: int,
    question: bytes,
    cohort: bytes,
    prepared: bytes,
    history: bytes = b"",
    head: bytes = b"",
) -> bytes:
    """Return H, the hash that every mask, receipt and answer of a sum is bound to, 32 bytes.

    `history` is the head over the entries of the sums so far, empty before the first. `head` chains the
    totals so far where clients verify them, and is empty elsewhere.
    """
    return digest("sum", session, number, index, question, cohort, prepared, history, head)
