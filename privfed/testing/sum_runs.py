"""A federation whose clients answer what a test gives them, and tests of what they send in a sum.

`Vectors` is a question whose answer is arbitrary. `Sums` is a federation of clients in this process behind
any secure sum. Its faults and answers can be changed between two sums.

`told_by_bits` and `told_by_repeats` test that what clients send tells nothing of an answer beyond the total.
The same total is made of different answers. Replies to them must be alike to whoever lacks the clients' keys.
Tests of bytes prove no secrecy. They find answers in clear text, in whole or in part. They also find
masks that are fixed, used twice, shared, or drawn from so few that two of some hundred replies meet (below
2^16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privfed.core.agreed.configuration import CohortRule, Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import EVERYONE, Ask, Total
from privfed.core.roles.engine import Answerer, Carrier, Client, Exchange, Replies, StateStore
from privfed.core.roles.secure_sum import SecureSum, answer_stages
from privfed.core.values.domain import FloatArray, Ranges
from privfed.engines.in_process import Fault, InProcessEngine
from privfed.federation.driver import Federation
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
            recipient=self.protocol.recipient,
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
            state = transaction.load()
        return self.sides[client].initial() if state is None else state

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


Reply = tuple[str, int, bytes]
"""Stage, client, and what it sent."""

_QUESTION: Vectors = vectors(8)
_HALF = 32
"""Sums in which a client has one answer, and in which it has the other."""
_SURE = 8.0
"""Standard errors by which a bit may differ between two answers: no honest bit of all sums does."""
_FITS, _SUMS = 10, 16
_MOST_BYTES = 5e6
"""Bytes of replies that are compared with each other, at most: long ones are taken from fewer sums."""
_WINDOW = 8
"""Bytes that two replies share by chance once in 2^64 times."""


def told_by_bits(federation: Callable[[], Sums]) -> list[str]:
    """Return the stages in whose replies some bit depends on which of two clients has which answer.

    Args:
        federation: opens a federation over the sum, with fresh keys.
    """
    rng, found = np.random.default_rng(1), set[str]()
    one, other, *rest = _answers(rng, federation().n)
    counts: dict[tuple[str, int, int], list[npt.NDArray[np.int64]]] = {}
    asked: dict[tuple[str, int, int], list[int]] = {}
    for run in (federation(), federation()):
        for turned in rng.permutation(np.arange(_HALF) % 2).tolist():
            answers = [other, one, *rest] if turned else [one, other, *rest]
            for stage, client, data in _replies(run, answers):
                if client > 1:
                    continue
                bits = np.unpackbits(np.frombuffer(data, np.uint8))
                kind = (stage, client, len(data))
                sums = counts.setdefault(kind, [np.zeros(bits.shape, dtype=np.int64) for _ in range(2)])
                sums[turned] += bits
                asked.setdefault(kind, [0, 0])[turned] += 1
    for kind, (first, second) in counts.items():
        n, m = asked[kind]
        if n and m:
            error = np.sqrt(0.25 / n + 0.25 / m)
            if (np.abs(first / n - second / m) >= _SURE * error).any():
                found.add(kind[0])
    return sorted(found)


def told_by_repeats(federation: Callable[[], Sums]) -> list[str]:
    """Return the stages in whose replies bytes recur because answers do.

    If all clients, sums and fits have one answer, its entries all equal, then what recurs in masked replies
    is the masks. What recurs for other answers too, as names and keys do, is no mask.
    """
    rng = np.random.default_rng(2)
    n = federation().n
    equal = _tables(federation, lambda: [np.zeros(len(_QUESTION.low))] * n, _FITS, _SUMS)
    usual = _tables(federation, lambda: _answers(rng, n), 3, 4)
    found = set[str]()
    for kind in equal.keys() & usual.keys():
        # Where a byte is usually the same, the bytes beside it recur by chance.
        fixed = np.convolve(_fixed(usual[kind]), np.ones(_WINDOW))[_WINDOW - 1 :] > 0
        if (_places(equal[kind]) & ~_places(usual[kind]) & ~fixed).any():
            found.add(kind[0])
    return sorted(found)


def _answers(rng: np.random.Generator, n: int) -> list[FloatArray]:
    """Return different answers, one a client, of whole steps of the grid, that add up to zero."""
    most = int(9.0 / _QUESTION.resolution[0]) // (n - 1)
    drawn = rng.integers(-most, most, (n, len(_QUESTION.low)))
    drawn[-1] -= drawn.sum(axis=0)
    return list(drawn * _QUESTION.resolution)


def _replies(run: Sums, answers: Sequence[FloatArray]) -> Iterator[Reply]:
    """Open one sum; yield what clients sent in it."""
    run.engine.log.clear()
    run.values = dict(enumerate(answers))
    run.open(_QUESTION)
    for exchange, replies in run.engine.log:
        yield from ((exchange.stage, client, data) for client, data in replies)


def _tables(
    federation: Callable[[], Sums], answers: Callable[[], list[FloatArray]], fits: int, sums: int
) -> dict[tuple[str, int], npt.NDArray[np.uint8]]:
    """Return stage and length of replies -> their bytes, uint8 of shape (n_replies, length)."""
    kept: dict[tuple[str, int], list[npt.NDArray[np.uint8]]] = {}
    size = 0
    for fit in range(fits):
        if fit > 1 and size > _MOST_BYTES:
            break
        run = federation()
        for number in range(sums):
            if number > 1 and size > _MOST_BYTES * (fit + 1) / 2:
                break
            for stage, _, data in _replies(run, answers()):
                kept.setdefault((stage, len(data)), []).append(np.frombuffer(data, np.uint8))
                size += len(data)
    return {kind: np.stack(same) for kind, same in kept.items()}


def _fixed(table: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Say for each place whether more than half of the replies have one byte there."""
    return np.asarray((np.sort(table, axis=0)[len(table) // 2] == table).mean(axis=0) > 0.5)


def _places(table: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Say for each place whether the bytes from there on recur there in another reply, or in the same one."""
    found = np.zeros(table.shape[1], dtype=np.bool_)
    if table.shape[1] < _WINDOW:
        return found
    windows = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(table, _WINDOW, axis=1))
    values = windows.view(np.uint64)[..., 0]
    ordered = np.sort(values, axis=0)
    found[: values.shape[1]] = (ordered[1:] == ordered[:-1]).any(axis=0)
    for row in values:
        _, place, times = np.unique(row, return_inverse=True, return_counts=True)
        found[: len(row)] |= times[place] > 1
    return found
