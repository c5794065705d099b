"""The k-means of points in one place is scikit-learn's, from the same starts and in quality."""

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from privfed.numerics.kernels.dispatch import CHOICE, Compiled, load
from privfed.numerics.kmeans import lloyd, many_distances, nearest, seeds, weighted_kmeans
from tests.default_run import examples


def cloud(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return 4 * rng.integers(0, 3, size=(n, d)) + rng.normal(size=(n, d)), rng.integers(1, 9, n).astype(float)


@pytest.mark.parametrize("d", [1, 2, 8, 9, 40])
def test_distances_are_the_differences_squares(d: int) -> None:
    points, _ = cloud(30, d)
    centers = np.random.default_rng(1).normal(size=(3, 4, d)) + 1e4
    expected = ((centers[:, :, None] - points) ** 2).sum(axis=3)
    np.testing.assert_allclose(many_distances(points, centers), expected, rtol=1e-9)
    np.testing.assert_array_equal(nearest(points, centers[0]), expected[0].argmin(axis=0))


@pytest.mark.parametrize("d", [1, 2, 11])
@pytest.mark.parametrize("n_starts", [1, 7])
def test_lloyd_from_given_starts_is_scikit_learns(d: int, n_starts: int) -> None:
    points, weights = cloud(120, d)
    draw = np.random.default_rng(5)
    starts = np.stack([points[draw.choice(120, 5, replace=False)] for _ in range(n_starts)])
    found = lloyd(points, weights, starts)
    fits = [KMeans(5, init=one, n_init=1, tol=0).fit(points, sample_weight=weights) for one in starts]
    best = min(fits, key=lambda one: float(one.inertia_))
    np.testing.assert_allclose(found.centers, best.cluster_centers_, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.labels, best.labels_)
    assert found.inertia == pytest.approx(best.inertia_, rel=1e-12)


def test_groups_of_restarts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    points, weights = cloud(50, 3)
    starts = seeds(points, weights, 4, np.random.default_rng(0), n_sets=6)
    together = lloyd(points, weights, starts)
    monkeypatch.setattr("privfed.numerics.kmeans.MOST_DISTANCES", 300)
    apart = lloyd(points, weights, starts)
    np.testing.assert_array_equal(together.centers, apart.centers)
    assert together.inertia == pytest.approx(apart.inertia, rel=1e-12)


def test_center_without_points_stays_and_weights_of_zero_do_not_count() -> None:
    points, weights = np.array([[0.0], [2.0], [50.0]]), np.array([1.0, 3.0, 0.0])
    found = lloyd(points, weights, np.array([[[1.0], [40.0], [-90.0]]]))
    np.testing.assert_array_equal(found.centers, [[1.5], [40.0], [-90.0]])


def test_one_step_is_one_step() -> None:
    points, weights = cloud(60, 2)
    start = points[:4]
    labels = nearest(points, start)
    expected = [np.average(points[labels == j], axis=0, weights=weights[labels == j]) for j in range(4)]
    np.testing.assert_allclose(lloyd(points, weights, start[None], max_iter=1).centers, expected, atol=1e-13)


@pytest.mark.parametrize("n_points", [80, 800])
def test_restarts_are_about_as_good_as_scikit_learns(n_points: int) -> None:
    points, weights = cloud(n_points, 2, seed=3)
    ours = [weighted_kmeans(points, weights, 9, np.random.default_rng(s)).inertia for s in range(8)]
    theirs = [
        float(KMeans(9, n_init=10, random_state=s).fit(points, sample_weight=weights).inertia_)
        for s in range(8)
    ]
    assert np.mean(ours) <= 1.01 * np.mean(theirs)


# --- seeds ---


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 4), st.integers(0, 2**32))
def test_seeds_are_distinct_points_while_there_are_any(n: int, k: int, n_sets: int, seed: int) -> None:
    points = np.random.default_rng(seed).integers(0, 6, size=(n, 2)).astype(float)
    found = seeds(points, np.ones(n), k, np.random.default_rng(seed), n_sets=n_sets)
    assert found.shape == (n_sets, k, 2)
    distinct = len(np.unique(points, axis=0))
    for one in found:
        assert {tuple(row) for row in one.tolist()} <= {tuple(row) for row in points.tolist()}
        assert len(np.unique(one, axis=0)) == min(k, distinct)


def test_point_of_weight_zero_is_never_a_seed_where_others_are_left() -> None:
    points, weights = np.arange(10.0)[:, None], np.tile([1.0, 0.0], 5)
    found = seeds(points, weights, 5, np.random.default_rng(0), n_sets=50)
    assert set(found.ravel().tolist()) == {0.0, 2.0, 4.0, 6.0, 8.0}


def test_plain_seeds_follow_the_squared_distance() -> None:
    # The first seed is a point of weight w with chance w; the second one at distance D with chance w D^2.
    points, weights = np.array([[0.0], [1.0], [3.0]]), np.array([1.0, 2.0, 1.0])
    found = seeds(points, weights, 2, np.random.default_rng(1), n_sets=40_000, candidates=1)[:, :, 0]
    for first, chance in ((0.0, 0.25), (1.0, 0.5), (3.0, 0.25)):
        assert np.mean(found[:, 0] == first) == pytest.approx(chance, abs=0.01)
    after = found[found[:, 0] == 0.0][:, 1]
    assert np.mean(after == 3.0) == pytest.approx(9 / 11, abs=0.02)


def test_same_generator_gives_the_same_clusters() -> None:
    points, weights = cloud(40, 2)
    one, other = (weighted_kmeans(points, weights, 5, np.random.default_rng(4)) for _ in range(2))
    np.testing.assert_array_equal(one.centers, other.centers)


# --- the kernel ---


@pytest.mark.parametrize("compiled", [False, True])
@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), d=st.sampled_from([1, 2, 7, 9, 20]), lattice=st.booleans())
def test_starts_alone_give_the_bits_of_starts_together(
    compiled: bool, seed: int, d: int, lattice: bool
) -> None:
    """Seeds and steps are the same whether compiled, with bounds or as one table; ties and copies too."""
    if compiled and find_spec("numba") is None:
        pytest.skip("needs numba")
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 3, (60, d)).astype(float) if lattice else rng.normal(size=(60, d)) * 10.0**d
    weights, k = rng.integers(0, 4, 60) / 3.0 + (rng.random(60) < 0.5), int(rng.integers(1, 8))
    weights[0] = 1.0

    def found(alone: int, kernel: Compiled | None) -> list[bytes]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("privfed.numerics.kmeans.ALONE", alone)
            patch.setattr(CHOICE, "_loaded", True)
            patch.setattr(CHOICE, "_compiled", kernel)
            own = np.random.default_rng(seed)
            drawn = seeds(points, weights, k, own, n_sets=2)
            clustered = weighted_kmeans(points, weights, k, own, n_init=3, max_iter=int(own.integers(1, 20)))
        inertia = np.float64(clustered.inertia).tobytes()
        return [drawn.tobytes(), clustered.centers.tobytes(), clustered.labels.tobytes(), inertia]

    expected = found(1 << 60, None)
    assert found(0, load() if compiled else None) == expected
    assert found(1 << 60, load() if compiled else None) == expected
