"""Answering in one pass for all simulated clients is answering one by one."""

import numpy as np
import pytest

from privfed.algorithms.lloyd import LloydSums
from privfed.algorithms.weighted import WeightedCentroids
from privfed.core.domain import Ranges
from privfed.core.question import ClientData, Question
from privfed.engines.in_process import Pool

RANGES = Ranges([-3.0, -3.0], [9.0, 9.0], 64)


def questions() -> list[Question]:
    centers = np.array([[0.0, 0.0], [6.0, 6.0]])
    return [
        LloydSums(ranges=RANGES, centers=centers),
        WeightedCentroids(ranges=RANGES, centers=centers, local_iter=3),
        LloydSums(ranges=RANGES, centers=centers + 1.0),
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
