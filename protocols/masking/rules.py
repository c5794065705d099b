"""The numbers and bindings of masked sums, computed by every client for itself.

Notation of docs/protocols/masked.md: n clients in a cohort, d neighbours, c colluders among them,
m honest clients at least in an opened sum, t shares open a secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from privfed.core.configuration import Configuration, Terms
from privfed.errors import ArgumentError
from privfed.protocols.masking.keys import Registry, bound_prefix, digest, with_numbers

MAX_COHORT = 200
"""Above, every client would share with every other at a cost that grows with the square."""


def default_terms(n: int, *, colluders: int | None, honest: int | None) -> tuple[int, int]:
    """Return c and m for the smallest cohort.

    By default c = floor(n / 10), raised by one if n + c is odd, and m = floor((n - 1 - c) / 2) + 2,
    the largest that does not raise the threshold.

    Raises:
        ArgumentError: fewer than three clients, or c and m do not fit into the cohort.
    """
    if n < 3:
        raise ArgumentError(
            f"a masked sum needs at least 3 clients in every cohort, got {n}: of two, each would learn the "
            'other\'s answer. Ask more clients a round, or use protocol="plain", which hides nothing.'
        )
    c = n // 10 + (n + n // 10) % 2 if colluders is None else colluders
    m = (n - 1 - c) // 2 + 2 if honest is None else honest
    if c < 0 or m < 2 or m + c > n:
        raise ArgumentError(
            f"colluders={c} and honest={m} do not fit into a cohort of {n}: honest must be at least 2, and "
            f"honest + colluders at most {n}. Assume fewer colluders, or ask more clients a round."
        )
    return c, m


def threshold(neighbours: int, terms: Terms) -> int:
    """Return t = max(floor((d + c) / 2) + 1, m + c - 1), raised to what the configuration asks for."""
    smallest = max((neighbours + terms.colluders) // 2 + 1, terms.honest + terms.colluders - 1)
    return max(smallest, terms.threshold - 1)


def needed_to_open(n: int, terms: Terms) -> int:
    """Return how many clients of a cohort of n must answer both exchanges: t others for each of them."""
    return threshold(n - 1, terms) + 1


def check_cohort(n: int, terms: Terms) -> None:
    """Check that a cohort of n can open a sum at all.

    Raises:
        ArgumentError: it cannot.
    """
    if n > MAX_COHORT:
        raise ArgumentError(
            f"a masked sum is for cohorts of at most {MAX_COHORT} clients, got {n}; ask fewer a round."
        )
    if needed_to_open(n, terms) > n:
        raise ArgumentError(
            f"a cohort of {n} cannot keep a threshold of {needed_to_open(n, terms)} clients (colluders="
            f"{terms.colluders}, honest={terms.honest}); lower the threshold, or ask more clients a round."
        )


@dataclass(frozen=True)
class Agreement:
    """What a party was given before the fit: configuration and registry.

    Raises:
        ArgumentError: the registry is not of the configuration's clients.
    """

    configuration: Configuration
    registry: Registry

    def __post_init__(self) -> None:
        clients, keys = len(self.configuration.clients), len(self.registry.clients)
        if clients != keys:
            raise ArgumentError(f"a registry of {keys} clients does not fit a configuration of {clients}.")

    @property
    def digest(self) -> bytes:
        """What advertisements are signed over."""
        return _agreement_digest(self.configuration, self.registry)

    def neighbours(self, client: int, label: int) -> tuple[int, ...]:
        """Return a client's neighbours in a cohort, ascending: all others."""
        return tuple(i for i in self.configuration.cohort(label) if i != client)

    def threshold(self, client: int, label: int) -> int:
        """Return how many shares open a secret of a client in a cohort."""
        return threshold(len(self.neighbours(client, label)), self.configuration.terms)


@lru_cache(maxsize=8)
def _agreement_digest(configuration: Configuration, registry: Registry) -> bytes:
    return digest("agreement", configuration.digest(), registry.digest())


def bitmap(members: tuple[int, ...], chosen: set[int] | frozenset[int]) -> bytes:
    """Return which of `members` are chosen, one byte each."""
    return bytes(i in chosen for i in members)


def from_bitmap(members: tuple[int, ...], chosen: bytes) -> frozenset[int] | None:
    """Return the chosen members; None if `chosen` is not one byte 0 or 1 a member."""
    if len(chosen) != len(members) or not set(chosen) <= {0, 1}:
        return None
    return frozenset(i for i, flag in zip(members, chosen, strict=True) if flag)


def cohort_digest(label: int, members: tuple[int, ...]) -> bytes:
    """Return H(Q) of a cohort."""
    return digest("cohort", label, *members)


def sum_header(
    session: bytes, number: int, index: int, question: bytes, cohort: bytes, prepared: bytes
) -> bytes:
    """Return H, which every mask, receipt and answer of a sum is bound to."""
    return digest("sum", session, number, index, question, cohort, prepared)


def box_binding(
    session: bytes,
    number: int,
    sender: int,
    holder: int,
    t: int,
    abscissa: int,
    cohort: bytes,
    mask_key: bytes,
    seed_hash: bytes,
) -> bytes:
    """Return the associated data of a box of shares."""
    binding = bound_prefix("box data", session, number, t, cohort)
    return with_numbers(binding, sender, holder, abscissa) + mask_key + seed_hash
