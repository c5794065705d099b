"""The interface of algorithms: generators that yield questions, receive totals and return a result."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable

from privfed.core.agreed.configuration import PrivacyTerms
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics, StatisticsTable
from privfed.core.values.domain import Domain, Ranges

if TYPE_CHECKING:
    from privfed.core.asking.phases import Phases

EVERYONE = 0
"""Cohort label of all clients; label t >= 1 is the cohort of round t by the configuration's rule."""

RANGE, ROUND, SCORE = "range", "round", "score"
"""Purposes of asks that more than people go by: progress, and attacks along the rounds."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to a cohort.

    Args:
        question: what is asked.
        cohort: label of the cohort that is asked.
        upcoming: labels that the next asks may have, likeliest first. Secure sums prepare key material
            one sum ahead, so that a cohort named here costs no further exchange.
        purpose: what the total is for, in one word for people. Three have a meaning: `RANGE` (what is
            asked takes ranges from it), `ROUND` (a round of the algorithm) and `SCORE` (a restart's end).
        weights: under differential privacy, entry of the statistics -> its share of the budget, chosen
            before the question is asked; the shares of a run sum to at most 1. None otherwise.
        limits: at unit "client", entry -> L2 norm to which a client's array is clipped. None otherwise.
    """

    question: Question
    cohort: int = EVERYONE
    upcoming: tuple[int, ...] = (EVERYONE,)
    purpose: str = ROUND
    weights: Mapping[str, float] | None = None
    limits: Mapping[str, float] | None = None


def known_ranges(ask: Ask) -> Ranges | None:
    """Return the ranges that a run has found when it asks a question; None while it looks for them."""
    return None if ask.purpose == RANGE else ask.question.ranges


class Contributions(Mapping[int, Statistics]):
    """Several clients' statistics by client, in one table.

    Args:
        clients: positions of the clients, one a row of the table.
        table: returns it; called when it is first looked at.
    """

    def __init__(self, clients: tuple[int, ...], table: Callable[[], StatisticsTable]) -> None:
        self._clients, self._table = clients, table

    @cached_property
    def table(self) -> StatisticsTable:
        """The table."""
        return self._table()

    @cached_property
    def _places(self) -> dict[int, int]:
        return {client: place for place, client in enumerate(self._clients)}

    def __getitem__(self, client: int) -> Statistics:
        return self.table[self._places[client]]

    def __contains__(self, client: object) -> bool:
        return client in self._places

    def __iter__(self) -> Iterator[int]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)


@dataclass(frozen=True, slots=True)
class Total:
    """The opened sum of a cohort's answers.

    Args:
        statistics: the sum over the contributors.
        contributors: positions of the clients in the sum, ascending.
        dropped: position -> stage in which the client dropped out.
        clipped: how many rows and entries the contributors clipped into their ranges, in total.
        rejected: position -> why a message of that client was discarded.
        contributions: position -> the client's statistics; None unless the secure sum shows them.
        noise_std: entry -> standard deviation of the contributors' summed noise in each of its values;
            None without differential privacy. With it, counts may be negative or fractional.
        attempts: how often clients answered until a total was opened; each attempt is paid for.
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
    """The public facts that an algorithm may use before it asks.

    Args:
        clients: names of the clients, by position.
        n_features: number of columns, agreed on by the clients.
        domain: declared domain of the data, or None.
        privacy: the guarantee for which totals are noised, or None.
        noising: how many clients of a sum are guaranteed to add their share of the noise. With all n
            clients in a sum, its noise has n / noising times the variance that the claim needs. 1 where
            the server adds the noise.
        start: total of an earlier fit's start, where the agreement names one; None otherwise, and for whoever
            follows a program without totals.
    """

    clients: tuple[str, ...]
    n_features: int
    domain: Domain | None = None
    privacy: PrivacyTerms | None = None
    noising: int = 1
    start: Total | None = None

    @property
    def max_rows(self) -> int | None:
        """The largest declared bound on a client's rows; None where none is declared."""
        return None if self.domain is None else self.domain.most_rows


class Ledger(Protocol):
    """Adds noise to questions, and pays for them from a privacy budget."""

    def price(self, ask: Ask) -> Ask:
        """Pay for a question, and return the noised question that is asked in its place.

        Raises:
            PrivacyError: the question has no proven bound, or costs more than what is left.
        """

    def opened(self, question: Question, total: Total) -> Total:
        """Pay for the repeated attempts at a total, and return it with its noise's standard deviations."""


Outcome_co = TypeVar("Outcome_co", covariant=True)
Sending = TypeVar("Sending")
Conversation = Generator[Ask, Total, Sending]
Yielded = TypeVar("Yielded")
Sent = TypeVar("Sent")
Outcome = TypeVar("Outcome")


def driven(steps: Generator[Yielded, Sent, Outcome], answer: Callable[[Yielded], Sent]) -> Outcome:
    """Run a generator to its end: send it the answer to each thing that it yields, and return its result."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(answer(asked))
    except StopIteration as finished:
        return cast(Outcome, finished.value)


def changed(
    steps: Generator[Yielded, Sent, Outcome],
    change: Callable[[Yielded], Yielded],
    back: Callable[[Sent], Sent] = lambda sent: sent,
) -> Generator[Yielded, Sent, Outcome]:
    """Run a generator within another: change each thing that it yields, and by `back` what it is sent."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(back((yield change(asked))))
    except StopIteration as finished:
        return cast(Outcome, finished.value)


class Algorithm(Protocol[Outcome_co]):
    """A federated algorithm. It is deterministic given its own seed and the totals that it is sent.

    An algorithm whose attribute `fixed` is True asks the same number of questions, with the same layouts,
    ranges, bounds and weights, whatever totals it is sent. `Privacy(noise="server")` needs this: the server
    adds noise to sums that it cannot read, and what it must know for that may not depend on totals.
    """

    @property
    def fixed(self) -> bool:
        """Whether it asks alike whatever the totals are."""

    @property
    def max_sums(self) -> int:
        """Most sums that a run asks for."""

    def run(self, setting: Setting) -> Generator[Ask, Total, Outcome_co]:
        """Yield questions, receive their totals, return the outcome."""


@runtime_checkable
class Phased(Protocol):
    """An algorithm (or a metric) that declares what it asks."""

    def phases(self, setting: Any) -> Phases:
        """Return what may be asked, in order, given what the algorithm may know before it asks."""
