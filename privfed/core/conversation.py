"""An algorithm's side of the door: it asks, is sent totals, and returns its result."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from privfed.core.domain import Domain
from privfed.core.question import Question
from privfed.core.statistics import Statistics

EVERYONE = 0
"""Cohort label of all clients; label t >= 1 is the cohort of round t by the configuration's rule."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to a cohort.

    Args:
        question: what is asked.
        cohort: label of the cohort that is asked.
        upcoming: labels that the next asks may name, likeliest first. Secure sums make their key
            material one sum ahead, so that a cohort named here costs no further exchange.
        purpose: what the total is for, in a word, for people ("range", "start", "round", "score").
    """

    question: Question
    cohort: int = EVERYONE
    upcoming: tuple[int, ...] = (EVERYONE,)
    purpose: str = "round"


@dataclass(frozen=True, slots=True)
class Total:
    """The opened sum of a cohort's answers.

    Args:
        statistics: the sum over the contributors.
        contributors: positions of the clients in the sum, ascending.
        dropped: position -> stage in which the client was lost.
        clipped: how many entries the contributors clipped into the declared ranges, in total.
        rejected: position -> why a message of that client was thrown away.
        contributions: position -> its statistics; only where the sum shows them openly.
    """

    statistics: Statistics
    contributors: tuple[int, ...]
    dropped: Mapping[int, str] = field(default_factory=dict)
    clipped: int = 0
    rejected: Mapping[int, str] = field(default_factory=dict)
    contributions: Mapping[int, Statistics] | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """What an algorithm may know before it asks: public facts only.

    Args:
        clients: names of the clients, by position.
        n_features: number of columns, agreed on by the clients.
        domain: declared domain of the data, or None.
    """

    clients: tuple[str, ...]
    n_features: int
    domain: Domain | None = None


Outcome_co = TypeVar("Outcome_co", covariant=True)
Sending = TypeVar("Sending")
Conversation = Generator[Ask, Total, Sending]


class Algorithm(Protocol[Outcome_co]):
    """A federated algorithm. Deterministic given its own seed and the totals that it is sent."""

    @property
    def max_sums(self) -> int:
        """Most sums that a run asks for."""

    def converse(self, setting: Setting) -> Generator[Ask, Total, Outcome_co]:
        """Yield questions, receive their totals, return the outcome."""
