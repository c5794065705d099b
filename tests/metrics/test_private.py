"""Bounds of the indices under differential privacy, in a box and in the ball inside it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.core.asking.question import ClientData
from privfed.core.values.domain import Ball, Ranges
from privfed.errors import BoundsError
from privfed.questions.bounded.bounded_metrics import (
    BoundedDistances,
    BoundedInertia,
    BoundedScatter,
    BoundedSpread,
)
from tests.default_run import examples
from tests.some import some

KINDS = {
    "inertia": lambda **words: BoundedInertia(**words),
    "distances": lambda **words: BoundedDistances(**words, power=2.0),
    "scatter": lambda **words: BoundedScatter(**words),
    "spread": lambda **words: BoundedSpread(**words),
    "spread, q=2": lambda **words: BoundedSpread(**words, q=2.0),
}


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 12), k=st.integers(1, 5))
def test_rows_of_a_ball_keep_to_tighter_bounds_unclipped(name: str, seed: int, d: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    middle, radius = rng.uniform(-3, 3, d), float(rng.uniform(0.1, 2.0))
    ball = Ball(radius, center=middle)
    ranges, centers = Ranges(*ball.bounds(d), 9), ball.clip(rng.uniform(-3, 3, (k, d)))
    within = KINDS[name](ranges=ranges, centers=centers, reach=radius)
    around = KINDS[name](ranges=ranges, centers=centers)
    # Far rows end on the ball, also where it is farthest from the mean of the centers.
    rows = ball.clip(np.vstack([rng.uniform(-9, 9, (4, d)), 2 * middle - centers.mean(axis=0)]))
    for row in some(rows):
        data, generator = ClientData(row[None]), np.random.default_rng(0)
        ours, box = within.answer(data, generator), around.answer(data, generator)
        for entry, bound in some(within.bounds.items()):
            assert bound.l2 <= around.bounds[entry].l2 * (1 + 1e-12)
            assert np.linalg.norm(ours[entry]) <= bound.l2
            np.testing.assert_allclose(ours[entry], box[entry], atol=3e-6 * around.bounds[entry].l2)


@pytest.mark.parametrize("name", KINDS)
def test_rows_beyond_a_smaller_reach_are_clipped_to_its_bounds(name: str) -> None:
    # A server that lies about the ball has answers clipped, not noise that is too small.
    ranges, centers = (
        Ranges(np.full(3, -1.0), np.full(3, 1.0), 9),
        np.array([[0.1, 0.0, 0.0], [0.0, 0.2, 0.0]]),
    )
    question = KINDS[name](ranges=ranges, centers=centers, reach=0.1)
    answer = question.answer(ClientData(np.array([[1.0, -1.0, 1.0]])), np.random.default_rng(0))
    for entry, bound in some(question.bounds.items()):
        assert np.linalg.norm(answer[entry]) <= bound.l2


@pytest.mark.parametrize("reach", [0.0, -1.0, 1e101, np.nan])
def test_a_reach_that_bounds_nothing_is_an_error(reach: float) -> None:
    with pytest.raises(BoundsError) as found:
        BoundedInertia(ranges=Ranges([0.0], [1.0], 2), centers=np.zeros((1, 1)), reach=reach)
    assert found.value.parameter == "reach"
