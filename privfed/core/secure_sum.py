"""Secure sums: protocols that open the total of a cohort's answers, but no client's answer.

A protocol has two parts, both without sockets, threads or clocks. The session, on the coordinator, is a
generator that yields exchanges and is sent replies; the client side is a pure step function.
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
    """The coordinator's part of a secure sum; it keeps its state over all sums of a fit."""

    def open(self) -> Steps[None]:
        """Set up the session with all clients."""

    def sum(self, question: Question, index: int, cohort: int, upcoming: tuple[int, ...]) -> Steps[Total]:
        """Open the total of a cohort's answers.

        Args:
            question: what is asked.
            index: index of the sum in the run; it seeds the clients' simulation randomness.
            cohort: label of the cohort.
            upcoming: labels of the cohorts that may be asked next.

        Raises:
            ProtocolError: the sum failed; nothing was opened.
        """

    def close(self) -> Steps[None]:
        """Deliver what clients still wait for after the last sum, such as its total; more sums may follow."""


class SecureSum(Protocol):
    """A protocol that opens the total of a cohort's answers."""

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
        """Whether one client's key opens every upload, as where all clients share one key."""

    def terms(self, clients: int, smallest_cohort: int, max_sums: int) -> Terms:
        """Return the bounds that protect a client.

        Raises:
            ArgumentError: there are too few clients to protect them; the message says how many are needed.
        """

    def parties(
        self, configuration: Configuration, policies: Mapping[int, ClientPolicy]
    ) -> tuple[Session, dict[int, ClientSide]]:
        """Return a session and its clients for a simulation in one process, with fresh identities."""
