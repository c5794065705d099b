"""Points that change clusters one by one: against all clusterings, and against Lloyd steps."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.algorithms.private.coreset import exchanged
from privfed.numerics.kmeans import lloyd, nearest, weighted_kmeans


def inertia(points: np.ndarray, weights: np.ndarray, labels: np.ndarray, k: int) -> float:
    """Return the weighted squared distances to the means of given clusters."""
    total = 0.0
    for one in range(k):
        own = labels == one
        if own.any():
            mean = np.average(points[own], axis=0, weights=weights[own])
            total += float(weights[own] @ np.square(points[own] - mean).sum(axis=1))
    return total


def drawn(seed: int, n: int, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (n, d)), rng.uniform(1.0, 300.0, n)


@given(st.integers(0, 10_000), st.integers(2, 30), st.integers(1, 6))
def test_it_costs_no_more_than_before_and_rests_under_lloyd_steps(seed: int, n: int, k: int) -> None:
    """inertia(after) <= inertia(before), and a Lloyd step from the result changes no label."""
    points, weights = drawn(seed, n)
    centers = points[np.random.default_rng(seed).integers(n, size=k)]
    found, labels = exchanged(points, weights, centers)
    before = lloyd(points, weights, centers[None]).inertia
    after = inertia(points, weights, labels, k)
    assert after <= inertia(points, weights, nearest(points, centers), k) * (1.0 + 1e-9)
    own = np.square(points - found[labels]).sum(axis=1)
    assert np.allclose(own, np.square(points[:, None] - found).sum(axis=2).min(axis=1), atol=1e-6)
    again = exchanged(points, weights, lloyd(points, weights, centers[None]).centers)[1]
    assert inertia(points, weights, again, k) <= before * (1.0 + 1e-9)


@given(st.integers(0, 10_000))
def test_no_change_of_one_point_is_left_that_would_save(seed: int) -> None:
    points, weights = drawn(seed, 8)
    _, labels = exchanged(points, weights, points[:3])
    least = inertia(points, weights, labels, 3)
    for point, cluster in product(range(8), range(3)):
        other = labels.copy()
        other[point] = cluster
        if (labels == labels[point]).sum() > 1:
            assert inertia(points, weights, other, 3) >= least * (1.0 - 1e-6)


def test_heavy_points_leave_where_lloyd_steps_rest() -> None:
    """Two clusters that share a point: moving it drags its mean along, which Lloyd steps do not see."""
    points, weights = np.array([[0.0], [1.0], [2.2]]), np.array([1.0, 10.0, 10.0])
    rests = np.array([[0.0], [1.6]])
    assert np.array_equal(lloyd(points, weights, rests[None]).labels, [0, 1, 1])
    found, labels = exchanged(points, weights, rests)
    assert labels.tolist() == [0, 0, 1]
    assert found[:, 0] == pytest.approx([10 / 11, 2.2])


def test_restarts_are_beaten_where_points_are_heavy() -> None:
    better = 0
    for seed in range(20):
        points, weights = drawn(seed, 25)
        best = weighted_kmeans(points, weights, 8, np.random.default_rng(seed), n_init=5)
        labels = exchanged(points, weights, best.centers)[1]
        after = inertia(points, weights, labels, 8)
        assert after <= best.inertia * (1.0 + 1e-9)
        better += after < best.inertia * (1.0 - 1e-6)
    assert better > 0
