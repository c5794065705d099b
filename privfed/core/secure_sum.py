"""Secure sums: protocols that open a cohort's total and no client's answer.

A protocol is a pair of pure parts. The session, on the coordinator, is a generator that yields
exchanges and is sent replies; the client side is a pure step. No sockets, no threads, no clock.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Literal, Protocol, TypeVar

from privfed.core.configuration import Configuration, Terms
from privfed.core.conversation import Total
from privfed.core.engine import ClientSide, Exchange, Replies
from privfed.core.policy import ClientPolicy
from privfed.core.question import Question

Finished = TypeVar("Finished")
Steps = Generator[Exchange, Replies, Finished]


class Session(Protocol):
    """What lives across the sums of a fit, on the coordinator."""

    def open(self) -> Steps[None]:
        """Set up the session with all clients."""

    def sum(self, question: Question, index: int, cohort: int, upcoming: tuple[int, ...]) -> Steps[Total]:
        """Open the total of a cohort's answers.

        Args:
            question: what is asked.
            index: index of the sum in the run; keys the clients' simulation randomness.
            cohort: label of the cohort.
            upcoming: labels that may be asked next.

        Raises:
            ProtocolError: no total; nothing was opened.
        """

    def close(self) -> Steps[None]:
        """Deliver what the parties still wait for at the end of a run; more sums may follow."""


class SecureSum(Protocol):
    """A protocol by which a cohort's total is opened."""

    @property
    def name(self) -> str:
        """Its name, as users write it."""

    @property
    def opens_to(self) -> Literal["server", "clients"]:
        """Who can read a total."""

    @property
    def reveals(self) -> Literal["sums", "unlinked contributions", "contributions"]:
        """What the opener sees."""

    @property
    def one_key(self) -> bool:
        """Whether the key of one client opens every upload, as where all clients share one key."""

    def terms(self, clients: int, smallest_cohort: int, max_sums: int) -> Terms:
        """Return the numbers that protect a client.

        Raises:
            ArgumentError: so few clients cannot be protected; the message says what could be.
        """

    def parties(
        self, configuration: Configuration, policies: Mapping[int, ClientPolicy]
    ) -> tuple[Session, dict[int, ClientSide]]:
        """Return a session and its clients for a simulation in one process, with fresh identities."""
