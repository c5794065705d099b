"""Clients that are answered for in one pass give every byte that each would give by itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from privfed import (
    KFED,
    ClientPolicy,
    DWFKMeans,
    EWFKMeans,
    FederatedFuzzyCMeans,
    FederatedMiniBatchKMeans,
    Simulation,
)
from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.question import AdditiveOver, ClientData, Question
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec, StatisticsTable
from privfed.core.record.transcript import Exchanged
from privfed.core.roles.engine import StepsTogether
from privfed.core.values.domain import Ranges
from privfed.engines.faults import Fault
from privfed.engines.in_process import Pool
from privfed.errors import RefusedError
from privfed.party.client import Stores
from privfed.party.crowd import Crowd
from privfed.protocols.plain import Plain
from tests.some import some

BY_ITSELF = Simulation(faults=[Fault(0, sums=frozenset())], record="messages")
"""A fault that never strikes: it makes each client be asked by itself."""


def records(model: Any, rows: list[np.ndarray], engine: Simulation) -> list[object]:
    return list(model(protocol="plain", random_state=3, engine=engine).fit(rows).transcript_.records)


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize(
    "model",
    [
        lambda **words: EWFKMeans(3, max_iter=4, **words),
        lambda **words: DWFKMeans(3, local_iter=3, max_iter=4, clients_per_round=5, n_init=2, **words),
        lambda **words: FederatedMiniBatchKMeans(3, max_iter=6, **words),
        lambda **words: FederatedFuzzyCMeans(3, max_iter=3, **words),
        lambda **words: KFED(3, **words),
        lambda **words: DWFKMeans(3, max_iter=3, policy=ClientPolicy(max_answers=99), **words),
        lambda **words: DWFKMeans(3, max_iter=3, policy=ClientPolicy(min_count=3), **words),
    ],
    ids=["k-means", "dwf-sampled", "mini-batch", "fuzzy", "k-fed", "guarded", "coarse"],
)
def test_a_fit_of_a_crowd_leaves_the_same_record(blobs: list[np.ndarray], model: Any) -> None:
    together = records(model, blobs, Simulation(record="messages"))
    assert together == records(model, blobs, BY_ITSELF)
    exchanged = [one for one in together if isinstance(one, Exchanged)]
    assert all(sent.data is not None for one in some(exchanged) for sent in one.up)


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize("kind", [EWFKMeans, FederatedFuzzyCMeans])
def test_a_fit_in_one_pass_asks_no_client_by_itself(
    blobs: list[np.ndarray], monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    asked: list[int] = []
    monkeypatch.setattr("privfed.core.roles.engine.Client.handle", lambda own, request: asked.append(1))
    kind(3, init=blobs[0][:3], protocol="plain", max_iter=3, random_state=0).fit(blobs)
    assert not asked


def test_what_clients_refuse_is_refused_by_each(blobs: list[np.ndarray]) -> None:
    policy = ClientPolicy(questions=frozenset({"FeatureRanges"}))
    for engine in (Simulation(), BY_ITSELF):
        model = EWFKMeans(
            2, init=blobs[0][:2], protocol="plain", policy=policy, random_state=0, engine=engine
        )
        with pytest.raises(RefusedError) as refused:
            model.fit(blobs)
        assert set(refused.value.codes.values()) == {"policy:question"}
        assert len(refused.value.codes) == len(blobs)


RANGES = Ranges([-9.0, -9.0], [9.0, 9.0], 64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Odd(Question):
    """Ask for a number; how it is answered is in `kind`."""

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    kind: str

    @property
    def spec(self) -> StatisticsSpec:
        return StatisticsSpec(Entry("number", (1,), 0.0, 1.0, 0.01))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> Sequence[Statistics]:
        if self.kind == "fails" and any(client.features[0, 0] < 0 for client in clients):
            raise ValueError("a negative value")
        value = {"nan": np.nan, "outside": 2.0}.get(self.kind, 0.5)
        if self.kind == "layout":
            return StatisticsTable((("other", (1,)),), np.full((len(clients), 1), value))
        if self.kind == "list":
            return [Statistics(number=[value]) for _ in clients]
        return self.spec.tabled(number=np.full((len(clients), 1), value))


@pytest.mark.parametrize("kind", ["fails", "nan", "outside", "layout"])
def test_answers_that_need_care_are_left_to_each_client(kind: str) -> None:
    pool = Pool([ClientData(np.full((2, 2), one)) for one in (1.0, -1.0, 2.0)], ["a", "b", "c"], seed=0)
    question = Odd(ranges=RANGES, kind=kind)
    assert pool.together(question, 0, (0, 1, 2)) is None
    # What was found is not computed again, and each answer is used once.
    assert len(pool._answers) == 3
    for simple in ("table", "list"):
        found = pool.together(Odd(ranges=RANGES, kind=simple), 0, (0, 1, 2))
        assert found is not None and found[0].vectors.tolist() == [[0.5]] * 3


class Told:
    """A side that notes the states that it was given."""

    def __init__(self) -> None:
        self.states: list[list[int]] = []

    def initial(self) -> int:
        return 0

    def steps(self, states: Sequence[int], request: bytes, answerer: Any) -> tuple[int, list[bytes]] | None:
        self.states.append(list(states))
        if request == b"fails":
            raise ValueError("an error that may quote rows")
        return None if request == b"refused" else (len(self.states), [request] * len(states))


def test_states_change_only_where_all_answer() -> None:
    side, stores = Told(), [Stores() for _ in range(3)]
    crowd = Crowd(side, stores, None, lambda *words: None)
    assert crowd.replies(dict.fromkeys((0, 2), b"a")) == [(0, b"a"), (2, b"a")]
    assert crowd.replies(dict.fromkeys((0, 1), b"refused")) is None
    assert crowd.replies(dict.fromkeys((0, 1), b"fails")) is None
    assert crowd.replies(dict.fromkeys((2, 1, 0), b"b")) == [(2, b"b"), (1, b"b"), (0, b"b")]
    assert side.states == [[0, 0], [1, 0], [1, 0], [1, 0, 1]]
    assert crowd.replies({0: b"c", 1: b"d"}) is None and crowd.replies({}) is None


def test_only_clients_without_guard_and_ledger_are_a_crowd() -> None:
    agreed = Configuration(protocol="plain", algorithm="", clients=("a", "b"), n_features=2)
    _, sides = Plain().parties(agreed, {0: ClientPolicy(), 1: ClientPolicy()})
    assert isinstance(sides[0], StepsTogether)
    words = ([Stores(), Stores()], None, lambda *words: None, agreed)
    assert Crowd.of(sides, *words, ClientPolicy()) is not None
    assert Crowd.of(sides, *words, ClientPolicy(min_count=2)) is None
    assert Crowd.of({0: object()}, *words, ClientPolicy()) is None  # type: ignore[dict-item]
