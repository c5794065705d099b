"""Answering in one pass for all simulated clients is answering one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from privfed.algorithms.kmeans.weighted import WeightedCentroids
from privfed.core.domain import Ranges
from privfed.core.federation import client_generator
from privfed.core.question import AdditiveOver, ClientData, Question
from privfed.core.statistics import Entry, Statistics, StatisticsSpec
from privfed.engines.in_process import Pool
from privfed.privacy.noised import Noised
from privfed.questions.lloyd import LloydSums

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
    for index, question in enumerate(questions()):
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
            for client in members:
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
    question = Noised(ranges=RANGES, inner=Draws(ranges=RANGES), sigma=1e6 * one, limits=one, rehearsal=False)
    pool = Pool([ClientData(np.zeros((1, 2)))] * 3, ["a", "b", "c"], seed=0)
    pool.expect([0, 1, 2])
    first, second = ([pool.answerer(i)(question, 0)[0]["drawn"][0] for i in range(3)] for _ in range(2))
    assert len({*first, *second}) == 6
