"""Answering in one pass for all simulated clients is answering one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec
import numpy as np
import pytest

from privfed.algorithms.wf_kmeans import WeightedCentroids
from privfed.core.asking.declaration import Remembered
from privfed.core.asking.question import AdditiveOver, ClientData, Question
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.engine import client_generator
from privfed.core.stored.encoding import Codec
from privfed.core.values.domain import Ranges
from privfed.core.values.numbers import Integer
from privfed.engines.in_process import AnswerError, Pool
from privfed.errors import PolicyError
from privfed.privacy.noised import Noised
from privfed.questions.lloyd import LloydSums
from tests.some import some

RANGES = Ranges([-3.0, -3.0], [9.0, 9.0], 64)


def questions() -> list[Question]:
    centers = np.array([[0.0, 0.0], [6.0, 6.0]])
    return [
        LloydSums(ranges=RANGES, centers=centers),
        WeightedCentroids(ranges=RANGES, centers=centers, local_iter=3),
        LloydSums(ranges=RANGES, centers=np.array([[0.0, 5.0], [5.0, 0.0]])),
    ]


@pytest.mark.parametrize("members", [(), (0, 1, 2), (5, 2, 9)], ids=["nobody-named", "first", "others"])
def test_pool_answers_as_each_client_would(blobs: list[np.ndarray], members: tuple[int, ...]) -> None:
    pool = Pool([ClientData(rows) for rows in blobs], [str(i) for i in range(10)], seed=0)
    for index, question in some(enumerate(questions())):
        pool.expect(members)
        for client in (5, 2, 0, 9):
            answer, moved = pool.answerer(client)(question, index)
            own, own_moved = ClientData(blobs[client]).within(RANGES)
            alone = question.answer(own, np.random.default_rng(0))
            np.testing.assert_array_equal(question.spec.flatten(answer), question.spec.flatten(alone))
            assert moved == own_moved


def test_pool_counts_the_rows_that_it_clipped() -> None:
    pool = Pool([ClientData(np.array([[0.0, 0.0], [99.0, 0.0], [0.0, -99.0]]))], ["a"], seed=0)
    pool.expect([0])
    assert pool.answerer(0)(questions()[0], 0)[1] == 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws(Question):
    """Ask for a number that each client draws."""

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS

    @property
    def spec(self) -> StatisticsSpec:
        return StatisticsSpec(Entry("drawn", (1,), 0.0, 1.0, 0.01))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        return [Statistics(drawn=[generator.uniform()]) for generator in generators]


def test_clients_draw_by_seed_name_and_sum_whoever_else_is_asked() -> None:
    names, question = ["b", "a", "c"], Draws(ranges=RANGES)
    pool = Pool([ClientData(np.zeros((1, 2)))] * 3, names, seed=5)
    for members in ([0, 1, 2], [1], [2, 0]):
        pool.expect(members)
        for index in (0, 1, 0):
            for client in some(members):
                drawn = pool.answerer(client)(question, index)[0]["drawn"][0]
                assert drawn == client_generator(5, names[client], index).uniform()


def test_another_question_under_the_same_index_is_answered_anew(blobs: list[np.ndarray]) -> None:
    pool = Pool([ClientData(rows) for rows in blobs], [str(i) for i in range(10)], seed=0)
    pool.expect(range(10))
    one, _, other = questions()
    first, second = (pool.answerer(0)(question, 0)[0]["sum"] for question in (one, other))
    assert not np.array_equal(first, second)


def test_noise_is_drawn_anew_where_a_sum_is_asked_again() -> None:
    # With the same noise the totals of both attempts would differ by the answers of those lost between.
    one = np.array([1.0])
    question = Noised(ranges=RANGES, inner=Draws(ranges=RANGES), sigma=1e6 * one, limits=one)
    pool = Pool([ClientData(np.zeros((1, 2)))] * 3, ["a", "b", "c"], seed=0)
    pool.expect([0, 1, 2])
    first, second = ([pool.answerer(i)(question, 0)[0]["drawn"][0] for i in range(3)] for _ in range(2))
    assert len({*first, *second}) == 6


NUMBERS = Codec(Annotated[list[Integer], msgspec.Meta(max_length=8)], "numbers", 1)
ANSWERED: Remembered[list[int]] = Remembered("tests.answered", list, NUMBERS)


@dataclass(frozen=True, kw_only=True, eq=False)
class Fails(Draws):
    """Ask for a number that each client draws; who holds a negative first value fails, after drawing."""

    remembers: ClassVar[Remembered[list[int]]] = ANSWERED

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        answers = super().answer_all(clients, generators)
        for client in clients:
            ANSWERED.of(client.memory).append(1)
        if any(client.features[0, 0] < 0 for client in clients):
            raise PolicyError("policy:budget")
        return answers


class Kept:
    """A log that keeps errors."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def note(self, error: BaseException) -> None:
        self.errors.append(error)


def test_one_clients_error_is_not_the_others() -> None:
    rows, asked = [ClientData(np.array([[first, 0.0]])) for first in (1.0, -1.0, 2.0)], Fails(ranges=RANGES)
    pool = Pool(rows, ["a", "b", "c"], seed=5)
    pool.expect([0, 1, 2])
    for client in (0, 2):
        drawn = pool.answerer(client)(asked, 3)[0]["drawn"][0]
        assert drawn == client_generator(5, "abc"[client], 3).uniform()
        # The pass in which another failed never was.
        assert ANSWERED.of(rows[client].memory) == [1]
    # Not as its own: it might pass for a refusal of the policy, and its text for a code.
    with pytest.raises(AnswerError) as caught:
        pool.answerer(1)(asked, 3)
    assert isinstance(caught.value.__cause__, PolicyError)


@pytest.mark.parametrize("fails", ["the question", "clipping"])
def test_under_noise_every_client_answers_and_errors_go_to_its_log(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = (1.0, -1.0 if fails == "the question" else 3.0, 2.0)
    rows, logs = [ClientData(np.array([[first, 0.0]])) for first in values], [Kept() for _ in values]
    if fails == "clipping":
        within = ClientData.within
        monkeypatch.setattr(
            ClientData, "within", lambda own, ranges: within(own, ranges) if own is not rows[1] else 1 // 0
        )
    one = np.array([1.0])
    question = Noised(ranges=RANGES, inner=Fails(ranges=RANGES), sigma=one, limits=one)
    pool = Pool(rows, ["a", "b", "c"], seed=5, logs=logs, seeded=True)
    pool.expect([0, 1, 2])
    told = [pool.answerer(i)(question, 0)[0]["drawn"][0] for i in range(3)]
    alone = Pool(rows[:1] + rows[2:], ["a", "c"], seed=5, seeded=True)
    alone.expect([0, 1])
    assert [told[0], told[2]] == [alone.answerer(i)(question, 0)[0]["drawn"][0] for i in range(2)]
    # Noise of one step on nothing.
    assert abs(told[1]) <= 40 * question.steps[0] < abs(told[0])
    assert [len(log.errors) for log in logs] == [0, 1, 0]
    kind = PolicyError if fails == "the question" else ZeroDivisionError
    assert isinstance(logs[1].errors[0], kind)
