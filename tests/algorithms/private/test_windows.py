"""Windows of neighbouring cells show clusters that no cell shows alone, and seldom what noise alone makes."""

import numpy as np
import pytest

from privfed.algorithms.private.points import Counted, Kept, beyond_doubt, with_neighbours
from privfed.core.values.domain import Ranges
from privfed.questions.bounded.bounded_sums import GridSums

NOISE = 10.0


def grid(per_axis: int, d: int, counts: np.ndarray) -> Counted:
    question = GridSums(ranges=Ranges([-1.0] * d, [1.0] * d, 1000), per_axis=per_axis, radius=2.0)
    return Counted(question, counts, np.zeros((len(counts), d)), NOISE, 1.0)


def kept_of(total: Counted) -> Kept:
    level = beyond_doubt(len(total.counts)) * NOISE
    cells = np.flatnonzero(total.counts > 0.9 * level)
    points, n = total.question.middles()[cells], len(cells)
    return Kept(cells, points, total.counts[cells], np.zeros(n), np.full(n, level), np.full(n, NOISE))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_few_rows_in_several_neighbouring_cells_are_beyond_doubt_together(d: int) -> None:
    counts = np.zeros((8,) * d)
    counts[(slice(2, 5),) * d], counts[(3,) * d] = 0.85, 0.95
    counts *= beyond_doubt(8**d) * NOISE
    total = grid(8, d, counts.ravel())
    before = kept_of(total)
    assert len(before.points) == 1 and before.weights < before.least
    after = with_neighbours(before, total)
    assert after.least.tolist() == [0.0, 0.0] and after.weights.sum() == pytest.approx(counts.sum())
    middle = total.question.middles()[before.cells[0]]
    np.testing.assert_allclose(after.points, [middle, middle], atol=1e-12)


def test_cells_far_apart_stay_doubtful_and_so_does_a_window_of_few_rows() -> None:
    counts = np.zeros((8, 8))
    counts[[0, 0, 7, 7], [0, 7, 0, 7]], counts[3:5, 3:5] = 0.95, 0.4
    counts *= beyond_doubt(64) * NOISE
    total = grid(8, 2, counts.ravel())
    before = kept_of(total)
    after = with_neighbours(before, total)
    assert len(after.points) == len(before.points) == 4 and (after.weights < after.least).all()


def test_a_window_of_few_rows_is_doubtful_and_says_where_they_are() -> None:
    counts = np.zeros((8, 8))
    counts[2, 3:5] = 18.0
    total = grid(8, 2, counts.ravel())
    after = with_neighbours(kept_of(total), total)
    doubts = after.windows
    assert doubts is not None and not len(after.points) and doubts.rows.tolist() == [36.0]
    np.testing.assert_allclose(doubts.above, 36.0 / (NOISE * np.sqrt(2.0)))
    middles = total.question.middles().reshape(8, 8, 2)
    np.testing.assert_allclose(doubts.points[0], middles[2, 3:5].mean(axis=0))


def test_noise_alone_seldom_makes_a_point() -> None:
    made = 0
    for seed in range(300):
        total = grid(10, 2, NOISE * np.random.default_rng(seed).standard_normal(100))
        before = kept_of(total)
        after = with_neighbours(before, total)
        made += len(after.points) > len(before.points)
    # About one tenth of an empty window is expected a grid; 60 of 300 are six standard deviations more.
    assert made < 60
