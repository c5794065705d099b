import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privfed.deep.clustering.distances import METRICS, Others, update_distances
from privfed.deep.clustering.sketch import TAG_SIZE, tags
from tests.reference import dcfl_reference as reference
from tests.some import some

FINITE = st.floats(-100, 100, allow_subnormal=False, width=32)
UPDATES = st.integers(2, 5).flatmap(lambda n: arrays(np.float64, (2, n, 3), elements=FINITE))


def two(a: list[float], b: list[float], c: list[float], d: list[float]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([a, c], dtype=float), np.array([b, d], dtype=float)


def divergence(starts: np.ndarray, ends: np.ndarray) -> float:
    """Return omega of two updates (equation 1)."""
    others = Others.of(starts, ends)
    return float(others.towards(ends[0], others.updates[0])[0][1])


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        (two([1, 0], [3, 0], [-1, 0], [-4, 0]), 1.0),
        (two([3, 0], [1, 0], [-4, 0], [-1, 0]), -1.0),
        (two([0, 0], [1, 0], [0, 5], [1, 5]), 0.0),
        (two([0, 0], [1, 0], [7, 7], [1, 0]), 0.0),
        (two([0, 0], [0, 0], [3, 0], [3, 0]), 0.0),
    ],
    ids=["outward", "toward", "parallel", "same-end", "both-zero"],
)
def test_the_divergence_of_the_papers_cases(updates: tuple[np.ndarray, np.ndarray], expected: float) -> None:
    assert divergence(*updates) == pytest.approx(expected, abs=1e-12)


def test_with_one_origin_and_length_the_divergence_is_that_of_the_cosine_distance() -> None:
    for angle in some(np.linspace(0.1, 3.0, 7)):
        ends = np.array([[1.0, 0.0], [math.cos(angle), math.sin(angle)]])
        expected = math.sqrt((1.0 - math.cos(angle)) / 2.0)
        assert divergence(np.zeros((2, 2)), ends) == pytest.approx(expected)


def test_distances_are_those_of_the_formula_by_its_angles() -> None:
    rng = np.random.default_rng(0)
    starts, ends = rng.normal(size=(2, 8, 20))
    complete = update_distances(starts, ends)
    for i, j in some(combinations(range(8), 2)):
        vectors = (starts[i], ends[i], starts[j], ends[j])
        assert complete[i, j] == pytest.approx(reference.distance(*vectors), rel=1e-9)


@given(UPDATES)
def test_distances_are_symmetric_bounded_and_blind_to_where_the_origin_lies(updates: np.ndarray) -> None:
    starts, ends = updates
    apart = np.linalg.norm(ends[:, None] - ends[None], axis=2)
    for metric in METRICS:
        found = update_distances(starts, ends, metric)
        assert (found == found.T).all() and (found >= 0).all() and not np.diag(found).any()
    complete = update_distances(starts, ends)
    assert (complete <= apart * math.exp(2) * (1 + 1e-9)).all()
    assert (complete >= apart * math.exp(-2) * (1 - 1e-9)).all()
    turned = update_distances(-starts[:, ::-1], -ends[:, ::-1])
    assert np.allclose(turned, complete, rtol=1e-6, atol=1e-9)


def test_two_updates_of_length_zero_are_as_far_apart_as_their_models() -> None:
    still = two([0, 0], [0, 0], [3, 4], [3, 4])
    assert update_distances(*still)[0, 1] == 5.0
    assert update_distances(*still, "cosine")[0, 1] == 0.0
    one_moves = two([0, 0], [0, 0], [3, 4], [4, 4])
    assert update_distances(*one_moves, "cosine")[0, 1] == 1.0


@given(st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_a_vector_is_the_nearest_to_its_own_tag(size: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(9, size))
    found = tags(vectors, seed)
    assert found.shape == (9, min(TAG_SIZE, size))
    for i in range(9):
        # What is summed beside a vector changes its tag by rounding alone, as the grid of a secure sum does.
        own = tags(vectors[i : i + 1] + 2.0**-30, seed)
        assert np.linalg.norm(found - own, axis=1).argmin() == i
    np.testing.assert_allclose(tags(vectors[:1] + vectors[1:2], seed), found[:1] + found[1:2], atol=1e-9)
