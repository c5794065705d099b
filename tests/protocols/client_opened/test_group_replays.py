"""Every client runs its own replay of the algorithm; the server relays, and holds no part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import FunctionType
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import DWFKMeans
from privfed.algorithms.rounds import ClusteringOutcome
from privfed.core.agreed.agreement import Agreement, Registry
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ClientData, Question
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import question_of
from privfed.core.roles.conversation import Ask, Setting, Total
from privfed.core.roles.engine import Client, client_generator
from privfed.core.roles.secure_sum import NextQuestion
from privfed.engines.in_process import InProcessEngine
from privfed.errors import IntegrityError, MessageError
from privfed.federation.request import cohort_rule
from privfed.party.state import MemoryStore
from privfed.protocols import by_name
from privfed.protocols.ckks.ckks import CkksScheme
from privfed.protocols.client_opened.group_client import GroupClient
from privfed.protocols.client_opened.relay import Relay
from privfed.protocols.client_opened.scheme import Group, Opened, Scheme, SumAttempt
from privfed.protocols.crypto.keys import Identity
from privfed.protocols.group_masked.group_masked import MaskScheme
from privfed.protocols.setup.setup_messages import Channel
from tests.some import some

FloatArray = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class OwnReplay:
    """One client's own run of the algorithm: its own generator, moved by the totals that it opened itself.

    Attributes:
        asks: what it has asked so far.
        outcome: its result, once the run has ended.
        change: what happens to a question before it is expected, for replays that are not identical.
    """

    def __init__(self, estimator: DWFKMeans, setting: Setting) -> None:
        self._conversation = estimator.make_algorithm(setting.n_features, 7).run(setting)
        self.asks: list[Ask] = [next(self._conversation)]
        self.outcome: ClusteringOutcome | None = None
        self.change: Callable[[Ask], Ask] = lambda ask: ask

    @property
    def told(self) -> int:
        return len(self.asks) - 1 if self.outcome is None else len(self.asks)

    @property
    def ended(self) -> bool:
        return self.outcome is not None

    def ask(self, index: int) -> NextQuestion:
        if index >= len(self.asks):
            raise MessageError("a sum that is not asked", sender="the coordinator", stage="collect")
        ask = self.change(self.asks[index])
        return NextQuestion(ask.question.to_bytes(), ask.cohort)

    def tell(self, index: int, total: Total) -> None:
        assert index == len(self.asks) - 1
        try:
            self.asks.append(self._conversation.send(total))
        except StopIteration as finished:
            self.outcome = finished.value


class Federates:
    """Clients with a replay each, and a relay; nothing else."""

    def __init__(self, data: list[FloatArray], estimator: DWFKMeans) -> None:
        n, protocol = len(data), by_name(str(estimator.protocol))
        self.names = tuple(str(i) for i in range(n))
        per_round = estimator.clients_per_round
        rule = cohort_rule(n, per_round, None, 7)
        self.configuration = Configuration(
            protocol=protocol.name,
            algorithm="DWF",
            clients=self.names,
            n_features=2,
            n_clusters=4,
            cohorts=rule,
            terms=protocol.terms(n, rule.smallest(n), 1000),
            seed=7,
        )
        setting = Setting(self.names, 2)
        self.replays = [OwnReplay(estimator, setting) for _ in range(n)]
        server, identities = Identity.generate(), [Identity.generate() for _ in range(n)]
        registry = Registry(tuple(one.public for one in identities), server.public)
        agreement, encrypted = Agreement(self.configuration, registry), protocol.name == "ckks"
        self.scheme: Scheme = CkksScheme(self.configuration.terms) if encrypted else MaskScheme()
        self.relay = Relay(agreement, server, self.scheme)
        self.stores = [MemoryStore() for _ in range(n)]
        self.sides = [
            GroupClient(i, agreement, identity, ClientPolicy(), self.scheme, self.replays[i])
            for i, identity in enumerate(identities)
        ]
        clients = {
            i: Client(side, self.stores[i], self.answerer(i, ClientData(data[i])))
            for i, side in enumerate(self.sides)
        }
        self.engine = InProcessEngine(clients)
        self.seen: list[bytes] = []

    def answerer(self, client: int, data: ClientData) -> Callable[[Question, int], tuple[Statistics, int]]:
        def answer(question: Question, index: int) -> tuple[Statistics, int]:
            within, moved = data.within(question.ranges)
            generator = client_generator(self.configuration.seed, self.names[client], index)
            return question.answer(within, generator), moved

        return answer

    def drive(self, steps: Any) -> Any:
        try:
            exchange = next(steps)
            while True:
                replies = self.engine.exchange(exchange)
                self.seen += [*exchange.requests.values(), *(data for _, data in replies)]
                exchange = steps.send(replies)
        except StopIteration as finished:
            return finished.value

    def run(self, sums: int) -> None:
        """Set up, relay so many sums, and deliver the last total."""
        self.drive(self.relay.open())
        for index in range(sums):
            self.drive(self.relay.sum(index))
            assert {len(replay.asks) for replay in self.replays} == {index + 1}
        self.drive(self.relay.close())


def estimator(**options: Any) -> DWFKMeans:
    return DWFKMeans(
        n_clusters=4, local_iter=2, max_iter=6, tol=0, protocol="group-masked", random_state=7, **options
    )


@pytest.mark.parametrize("per_round", [None, 6])
def test_all_replays_arrive_where_the_simulation_does(blobs: list[FloatArray], per_round: int | None) -> None:
    fitted = estimator(clients_per_round=per_round).fit(blobs)
    federates = Federates(blobs, estimator(clients_per_round=per_round))
    federates.run(len(fitted.transcript_.totals()))
    for replay in some(federates.replays):
        assert replay.outcome is not None
        np.testing.assert_array_equal(replay.outcome.centers, fitted.cluster_centers_)
        assert replay.outcome.inertia == fitted.inertia_
    # These replays state no positions.
    asked = [question_of(one).at(None).to_bytes() for one, _ in fitted.transcript_.totals()]
    for replay in federates.replays:
        assert [ask.question.to_bytes() for ask in replay.asks] == asked


def held(value: object, seen: set[int]) -> Iterator[object]:
    """Yield everything that an object leads to."""
    if id(value) in seen or isinstance(value, type | str | int | float | FunctionType):
        return
    seen.add(id(value))
    yield value
    inside: Iterable[object] = ()
    if isinstance(value, Mapping):
        inside = [*value, *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        inside = value
    else:
        names = getattr(value, "__struct_fields__", ()) or getattr(value, "__slots__", ())
        inside = [getattr(value, name, None) for name in (*names, *getattr(value, "__dict__", ()))]
    for one in inside:
        yield from held(one, seen)


def test_the_server_holds_and_sees_no_question_no_total_and_no_key(blobs: list[FloatArray]) -> None:
    federates = Federates(blobs, estimator())
    federates.run(3)
    groups = [store.load().group for store in federates.stores]
    hidden = {groups[0].secret, groups[0].head, *(key for one in groups for key in one.pairs.values())}
    for ask in federates.replays[0].asks[1:]:
        arrays = [value for value in vars(ask.question).values() if isinstance(value, np.ndarray)]
        hidden |= {array.tobytes() for array in arrays if array.size > 1}
        hidden.add(ask.question.to_bytes())
    assert len(hidden) > 20 and all(len(one) >= 16 for one in hidden)
    things = list(held(federates.relay, set()))
    texts = [one for one in things if isinstance(one, bytes)]
    # The search does find what the server has: its key with each client, and the totals it relays.
    assert sum(isinstance(one, Channel) for one in things) == 10 and len(texts) > 20
    assert not any(one in text for text in [*texts, *federates.seen] for one in hidden)
    assert not any(isinstance(one, Question | Total | Statistics | np.ndarray | Group) for one in things)


def test_the_last_bits_of_a_question_may_differ_between_machines(blobs: list[FloatArray]) -> None:
    federates = Federates(blobs, estimator())
    nudged = []

    def nudge(ask: Ask) -> Ask:
        centers = getattr(ask.question, "centers", None)
        if centers is None:
            return ask
        nudged.append(ask)
        return replace(ask, question=replace(ask.question, centers=np.nextafter(centers, np.inf)))  # type: ignore[call-arg]

    federates.replays[3].change = nudge
    federates.run(4)
    assert nudged


class Elsewhere(MaskScheme):
    """A scheme of which one client computes other integers."""

    def open(self, group: Group, attempt: SumAttempt, body: bytes) -> Opened:
        return replace(super().open(group, attempt, body), integers=b"others")


def test_a_replay_that_holds_another_total_stops_the_run_and_is_named(blobs: list[FloatArray]) -> None:
    federates = Federates(blobs, estimator())
    federates.sides[2]._scheme = Elsewhere()
    with pytest.raises(IntegrityError, match="the totals that 2 opened differ"):
        federates.run(2)


def test_a_replay_that_asks_another_cohort_stops_the_run_and_is_named(blobs: list[FloatArray]) -> None:
    federates = Federates(blobs, estimator(clients_per_round=6))
    federates.replays[4].change = lambda ask: replace(ask, cohort=ask.cohort + 1)
    with pytest.raises(IntegrityError, match="the totals that 4 opened differ"):
        federates.run(2)


def test_a_total_that_one_client_cannot_open_stops_the_run_and_ends_its_fit(blobs: list[FloatArray]) -> None:
    federates = Federates(blobs, estimator())
    federates.drive(federates.relay.open())
    federates.drive(federates.relay.sum(0))
    state = federates.stores[5].load()
    altered = msgspec.structs.replace(state.group, head=bytes(32))
    federates.stores[5].save(msgspec.structs.replace(state, group=altered))
    with pytest.raises(IntegrityError, match="the totals that 5 opened differ"):
        federates.drive(federates.relay.sum(1))
    assert federates.stores[5].load().group is None
    assert all(store.load().group is not None for store in federates.stores[:5])
