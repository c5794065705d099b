"""Sums under a group mask: what users configure (docs/protocols/group-masked.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from privfed.core.configuration import Configuration, Terms
from privfed.core.engine import ClientSide
from privfed.core.policy import ClientPolicy
from privfed.core.secure_sum import Session
from privfed.errors import ArgumentError
from privfed.protocols.client_opened.bindings import needed
from privfed.protocols.client_opened.session import group_parties
from privfed.protocols.group_masked.masks import MaskScheme
from privfed.protocols.setup.rules import default_terms

MAX_CLIENTS = 200
"""Above, every client would mask with every other at a cost that grows with the square."""


class GroupMasked:
    """A sum that the clients open, and of which the server sees nothing but who took part.

    Reveals to every client: every total and every question, those of sums that it is not in included.
    Reveals to the server: who contributed, who was lost and when, message lengths and times; no
    question, no total, no answer.

    Protects answers from a server that may lie about everything, colluding with at most `colluders`
    clients of a cohort: together they read totals, each over at least `honest` honest clients, and
    differences of totals that the server makes by naming clients lost, at most `repeats` times in a
    fit. A server that colludes with no client reads nothing and changes nothing unnoticed (a wrong
    total passes with probability 2^-64). Assumes identities that the parties exchanged before (a
    registry), state that is never restored from a copy, X25519, AES-256, SHA-256 and Ed25519; it is
    not post-quantum. Any client can spoil or stop a sum. Masks of lost clients are not recovered: the
    sum is asked again without them, and they are out until the next fit. Where the server noises the
    sums (`Privacy(noise="server")`), it can also change them as it likes, but for the number of
    contributors, and one client that colludes with it sees totals without noise.

    Args:
        colluders: most clients that collude with the server, in the smallest cohort; larger ones are
            taken to hold the same share. By default a tenth, one more where that costs nothing.
        honest: fewest honest clients in a sum; by default about half of the honest ones.
        repeats: how often in a fit a sum may be asked again without clients that were lost.
    """

    name = "group-masked"
    opens_to: Literal["clients"] = "clients"
    reveals: Literal["sums"] = "sums"
    one_key = False

    def __init__(self, *, colluders: int | None = None, honest: int | None = None, repeats: int = 3) -> None:
        self.colluders, self.honest, self.repeats = colluders, honest, repeats

    def terms(self, clients: int, smallest_cohort: int, max_sums: int) -> Terms:
        """Return the numbers that protect a client.

        Raises:
            ArgumentError: so few, or so many, clients cannot be protected.
        """
        c, m = default_terms(smallest_cohort, colluders=self.colluders, honest=self.honest)
        if clients > MAX_CLIENTS:
            raise ArgumentError(
                f"a group-masked sum is for at most {MAX_CLIENTS} clients, got {clients}: each masks with "
                'every other. Use protocol="masked".'
            )
        terms = Terms(
            min_clients=smallest_cohort, colluders=c, honest=m, max_sums=max_sums, repeats=self.repeats
        )
        if needed(clients, terms) > clients:
            raise ArgumentError(
                f"{clients} clients cannot keep {m} honest ones beside the share of colluders of a cohort of "
                f"{smallest_cohort} with {c}; assume fewer colluders, or ask more clients a round."
            )
        return terms

    def parties(
        self, configuration: Configuration, policies: Mapping[int, ClientPolicy]
    ) -> tuple[Session, dict[int, ClientSide]]:
        """Return a session and its clients, with fresh identities in a registry that all were given."""
        return group_parties(configuration, policies, MaskScheme(by_server=configuration.noised_by_server))
