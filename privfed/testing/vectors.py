"""A federation whose clients answer what a test gives them: for tests of secure sums.

`Vectors` is a question whose answer is arbitrary; `Sums` is a federation of clients in this process behind
any secure sum, whose faults and answers can be changed between two sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from privfed.core.agreed.assumptions import answer_stages
from privfed.core.agreed.configuration import CohortRule, Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.federation import Federation
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import EVERYONE, Ask, Total
from privfed.core.roles.engine import Answerer, Carrier, Client, Exchange, Replies, StateStore
from privfed.core.roles.secure_sum import SecureSum
from privfed.core.values.domain import FloatArray, Ranges
from privfed.engines.faults import Fault
from privfed.engines.in_process import InProcessEngine
from privfed.party.state import MemoryStore

ANY_DATA = Ranges(np.zeros(1), np.ones(1), 1)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Vectors(Question):
    """Asks each client for the vector that the test gave it: one number, and the rest.

    Args:
        low: smallest value of each entry, float64 of shape (size,), size >= 2.
        high: largest value of each entry.
        resolution: coarsest step of each entry.
        round: distinguishes questions of the same ranges.
    """

    additive_over = AdditiveOver.CLIENTS
    low: FloatArray
    high: FloatArray
    resolution: FloatArray
    round: int = 0

    @property
    def spec(self) -> StatisticsSpec:
        """One number, and the rest."""
        low, high, resolution = self.low, self.high, self.resolution
        return StatisticsSpec(
            Entry("number", (), low[0], high[0], resolution[0]),
            Entry("rest", (len(low) - 1,), low[1:], high[1:], resolution[1:]),
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer nothing: clients hold their answers."""
        raise NotImplementedError


def vectors(
    size: int = 3, low: Any = -10.0, high: Any = 10.0, resolution: Any = 2.0**-20, round: int = 0
) -> Vectors:
    """Return a question with the same range for every entry, or with one each."""
    whole = [np.broadcast_to(np.asarray(one, dtype=np.float64), size) for one in (low, high, resolution)]
    return Vectors(ranges=ANY_DATA, low=whole[0], high=whole[1], resolution=whole[2], round=round)


def wide_vectors(size: int = 5) -> Vectors:
    """Return a question whose entries are too wide for 64 bits in turns, and reach below zero."""
    high = np.where(np.arange(size) % 2, 2.0**80, 3.0)
    return vectors(size, -high, high, 2.0**-20)


class Recorder:
    """An engine that keeps all that passes, and lets a test change it.

    Attributes:
        log: every exchange with the replies that the session got.
        before: called with every exchange before it happens.
        change_request: (exchange, client, request) -> what reaches the client, None for nothing.
        change_replies: (exchange, replies) -> what reaches the session.
    """

    def __init__(self, engine: Carrier) -> None:
        self._engine = engine
        self.log: list[tuple[Exchange, Replies]] = []
        self.before: Callable[[Exchange], None] | None = None
        self.change_request: Callable[[Exchange, int, bytes], bytes | None] | None = None
        self.change_replies: Callable[[Exchange, Replies], Replies] | None = None

    def exchange(self, exchange: Exchange, timeout: float | None = None) -> Replies:
        """Pass one exchange through."""
        if self.before is not None:
            self.before(exchange)
        inner = exchange
        if self.change_request is not None:
            changed = {i: self.change_request(exchange, i, one) for i, one in exchange.requests.items()}
            kept = {i: one for i, one in changed.items() if one is not None}
            inner = Exchange(exchange.stage, exchange.number, kept)
        replies = self._engine.exchange(inner, timeout)
        if self.change_replies is not None:
            replies = self.change_replies(exchange, replies)
        self.log.append((exchange, replies))
        return replies


@dataclass
class Sums:
    """A federation whose clients hold vectors.

    Args:
        protocol: the secure sum.
        n: number of clients, named clinic-0, clinic-1, ...
        rounds: lists of positions, the cohorts of labels 1, 2, ...; none for everyone.
        max_sums: most sums of the fit.
        record: what the transcript keeps.
        folder: where the transcript is kept; None for memory only.
        policy: of every client.
        policies: of single clients.
        store: makes the state store of a client.
        seed: of the vectors.

    Attributes:
        faults: what goes wrong; may change between sums.
        values: what each client answers, by position.
        moved: how many rows each client says that it clipped.
    """

    protocol: SecureSum
    n: int
    rounds: tuple[tuple[int, ...], ...] = ()
    max_sums: int = 1 << 16
    record: Any = "digests"
    folder: Path | None = None
    policy: ClientPolicy = field(default_factory=ClientPolicy)
    policies: Mapping[int, ClientPolicy] = field(default_factory=dict)
    store: Callable[[int], StateStore] = lambda client: MemoryStore()
    seed: int = 0

    def __post_init__(self) -> None:
        rule = CohortRule(kind="schedule", rounds=self.rounds) if self.rounds else CohortRule()
        smallest = min(self.n, rule.smallest(self.n))
        self.configuration = Configuration(
            protocol=self.protocol.name,
            algorithm="tests",
            clients=tuple(names(self.n)),
            n_features=1,
            cohorts=rule,
            terms=self.protocol.terms(self.n, smallest, self.max_sums),
        )
        policies = {i: self.policies.get(i, self.policy) for i in range(self.n)}
        self.session, self.sides = self.protocol.parties(self.configuration, policies)
        self.stores = {i: self.store(i) for i in range(self.n)}
        self.clients = {i: Client(self.sides[i], self.stores[i], self.answerer(i)) for i in range(self.n)}
        self.faults: list[Fault] = []
        self.engine = Recorder(InProcessEngine(self.clients, None, self.faults))
        self.transcript = Transcript(self.folder, self.record)
        self.federation = Federation(
            self.configuration,
            self.session,
            self.engine,
            self.transcript,
            opens_to=self.protocol.opens_to,
            reveals=self.protocol.reveals,
            answer_stages=answer_stages(self.protocol.stages),
        )
        self.rng = np.random.default_rng(self.seed)
        self.values: dict[int, FloatArray] = {}
        self.moved = dict.fromkeys(range(self.n), 0)

    def answerer(self, client: int) -> Answerer:
        """Return the answerer of one client: it gives the client's vector."""

        def answer(question: Question, index: int) -> tuple[Statistics, int]:
            return question.spec.unflatten(self.values[client]), self.moved[client]

        return answer

    def draw(self, question: Vectors) -> None:
        """Give every client a vector inside the question's ranges, some of it at their ends."""
        for client in range(self.n):
            inside = self.rng.uniform(-1, 1, len(question.low))
            inside = np.where(self.rng.random(len(inside)) < 0.2, np.sign(inside), inside)
            self.values[client] = np.clip(
                (question.low + question.high) / 2 + inside * (question.high / 2 - question.low / 2),
                question.low,
                question.high,
            )

    def ask(
        self,
        question: Vectors | None = None,
        cohort: int = EVERYONE,
        upcoming: tuple[int, ...] = (EVERYONE,),
        *faults: Fault,
    ) -> Total:
        """Give the clients fresh vectors and open one sum, with faults for this sum only."""
        question = vectors() if question is None else question
        self.draw(question)
        return self.open(question, cohort, upcoming, *faults)

    def open(
        self,
        question: Vectors,
        cohort: int = EVERYONE,
        upcoming: tuple[int, ...] = (EVERYONE,),
        *faults: Fault,
    ) -> Total:
        """Open one sum of the vectors that clients hold, with faults for this sum only."""
        self.faults[:] = faults
        return self.federation.ask(Ask(question, cohort, upcoming))

    @property
    def exchanges(self) -> int:
        """Exchanges so far."""
        return self.federation.traffic.exchanges

    def state(self, client: int) -> Any:
        """Return what a client remembers."""
        with self.stores[client].transaction() as transaction:
            return transaction.load()

    def assert_sum(self, total: Total, question: Vectors) -> None:
        """Assert that a total is its contributors' sum, each answer rounded to a step of the resolution."""
        answers = [self.values[i] for i in total.contributors]
        inside = [np.clip(np.nan_to_num(one), question.low, question.high) for one in answers]
        found = question.spec.flatten(total.statistics)
        most = len(inside) * question.resolution / 2 + 1e-12 * np.abs(inside).sum(axis=0)
        assert (np.abs(found - np.sum(inside, axis=0)) <= most).all(), (found, total.contributors)
        entries = sum(int(np.count_nonzero(a != b)) for a, b in zip(answers, inside, strict=True))
        assert total.clipped == entries + sum(self.moved[i] for i in total.contributors)


def names(n: int) -> list[str]:
    """Return the clients' names."""
    return [f"clinic-{i}" for i in range(n)]
