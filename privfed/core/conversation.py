"""An algorithm, as the server runs it: it asks, is sent totals, and returns its result."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from privfed.core.configuration import PrivacyTerms
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
        weights: under differential privacy: entry of the statistics -> its share of the budget, chosen
            before it is asked; the shares of a run sum to at most 1. Else None.
        limits: at unit "client": entry -> L2 norm that a client's array is clipped to. Else None.
    """

    question: Question
    cohort: int = EVERYONE
    upcoming: tuple[int, ...] = (EVERYONE,)
    purpose: str = "round"
    weights: Mapping[str, float] | None = None
    limits: Mapping[str, float] | None = None


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
        noise_std: entry -> standard deviation of the noise in each of its values, of all contributors
            together; None without differential privacy. Counts may then be negative or fractional.
        attempts: how often the question was answered until a total opened; each is paid for.
    """

    statistics: Statistics
    contributors: tuple[int, ...]
    dropped: Mapping[int, str] = field(default_factory=dict)
    clipped: int = 0
    rejected: Mapping[int, str] = field(default_factory=dict)
    contributions: Mapping[int, Statistics] | None = None
    noise_std: Mapping[str, float] | None = None
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Setting:
    """What an algorithm may know before it asks: public facts only.

    Args:
        clients: names of the clients, by position.
        n_features: number of columns, agreed on by the clients.
        domain: declared domain of the data, or None.
        privacy: the differential privacy that totals are noised for, or None.
        noising: how many clients of a sum are sure to add their share of the noise; with all n clients
            in a sum, its noise has n / noising times the variance that the claim needs. 1 where noise
            comes from the server, once.
    """

    clients: tuple[str, ...]
    n_features: int
    domain: Domain | None = None
    privacy: PrivacyTerms | None = None
    noising: int = 1


class Ledger(Protocol):
    """Pays for questions out of a privacy budget, and noises them."""

    def price(self, ask: Ask) -> Ask:
        """Return what is asked instead: the question with its noise. It is paid when this returns.

        Raises:
            PrivacyError: it has no proven bound, or costs more than what is left.
        """

    def opened(self, question: Question, total: Total) -> Total:
        """Return the total with the standard deviations of its noise; further attempts are paid now."""


Outcome_co = TypeVar("Outcome_co", covariant=True)
Sending = TypeVar("Sending")
Conversation = Generator[Ask, Total, Sending]


class Algorithm(Protocol[Outcome_co]):
    """A federated algorithm. Deterministic given its own seed and the totals that it is sent.

    One whose attribute `fixed` is True asks alike whatever totals it is sent: as many questions, with the
    same layouts, ranges, bounds and weights. A server that noises sums which it cannot read (`Privacy(
    noise="server")`) must know these before, and learns nothing from what it knew.
    """

    @property
    def max_sums(self) -> int:
        """Most sums that a run asks for."""

    def run(self, setting: Setting) -> Generator[Ask, Total, Outcome_co]:
        """Yield questions, receive their totals, return the outcome."""
