"""Tests of the oracle itself: by hand where a hand can do it, else against plain definitions."""

import itertools
from typing import Any, Literal

import numpy as np
import pytest

from tests.reference.dwf_reference import (
    FloatArray,
    aggregate,
    fit,
    kfed_start,
    lloyd_step,
    local_update,
    majority_accuracy,
    mean_client_score,
    pooled_score,
)
from tests.reference.paper_data import partition, synthetic


def column(*values: float) -> FloatArray:
    """Return points or centres on a line."""
    return np.array(values, dtype=float)[:, None]


def movements(history: list[FloatArray]) -> list[float]:
    """Return how far the centres moved in each round."""
    return [float(np.linalg.norm(b - a)) for a, b in itertools.pairwise(history)]


# --- one round ---


def test_local_update_counts_at_the_received_centres() -> None:
    # Step 1: 0, 1, 2 to the centre 0 and 9 to the centre 4.5 (2 is nearer to 0). Centres 1 and 9.
    X = column(0, 1, 2, 9)
    centers, counts = local_update(X, column(0, 4.5, 50), 1, None)
    np.testing.assert_array_equal(centers, column(1, 9, 50))
    np.testing.assert_array_equal(counts, [3, 1, 0])


def test_local_update_counts_do_not_follow_the_local_steps() -> None:
    # Step 1: 0, 4 | 6, 20 -> 2, 13. Step 2: 0, 4, 6 | 20 -> 10/3, 20. The counts stay those of step 1.
    X = column(0, 4, 6, 20)
    centers, counts = local_update(X, column(4, 7), 2, None)
    np.testing.assert_allclose(centers, column(10 / 3, 20), rtol=0, atol=1e-15)
    np.testing.assert_array_equal(counts, [2, 2])


def test_local_tolerance_is_strict_and_looked_at_after_the_step() -> None:
    X = column(0, 4, 6, 20)
    first = np.hypot(2, 6)  # the first step's movement
    one_step = column(2, 13)
    stopped, _ = local_update(X, column(4, 7), 5, np.nextafter(first, np.inf))
    np.testing.assert_array_equal(stopped, one_step)
    went_on, _ = local_update(X, column(4, 7), 5, first)
    assert not np.array_equal(went_on, one_step)


def test_equally_near_centres_the_first_wins() -> None:
    _, counts = local_update(column(1), column(0, 2), 1, None)
    np.testing.assert_array_equal(counts, [1, 0])


def test_aggregate_weighs_each_centre_on_its_own() -> None:
    averaged = aggregate([column(0, 10), column(4, 20)], [np.array([3.0, 0.0]), np.array([1.0, 5.0])])
    np.testing.assert_allclose(averaged, column(1, 20), rtol=0, atol=1e-15)


def test_centre_without_weight_becomes_the_mean_of_the_participants_local_centres() -> None:
    # The centre 5.5 is nobody's at first. Client 0's second step gives it the point 3; client 1 leaves it.
    client_0 = column(-9, -9, -9, 3)
    client_1 = column(0, 0)
    start = column(1, 5.5)
    # Client 0: 3 is nearer to 1 (2 against 2.5), so all four points are; their mean is -6, the counts 4, 0.
    # Its step 2, from -6 and 5.5: 3 goes to 5.5; centres -9 and 3. Client 1: 0 and 5.5, counts 2, 0.
    centers_0, counts_0 = local_update(client_0, start, 2, None)
    np.testing.assert_array_equal(centers_0, column(-9, 3))
    np.testing.assert_array_equal(counts_0, [4, 0])
    history = fit([client_0, client_1], start, local_iter=2, tol=0, max_iter=1)
    # First centre: (4 * -9 + 2 * 0) / 6 = -6. Second: the plain mean of 3 and 5.5, not the old 5.5.
    np.testing.assert_allclose(history[1], column(-6, 4.25), rtol=0, atol=1e-14)


def test_fallback_averages_over_participants_only() -> None:
    clients = [column(0, 1), column(100, 101), column(0, 3)]
    history = fit(clients, column(0, 60), local_iter=1, tol=0, max_iter=1, schedule=[[0, 2]])
    np.testing.assert_allclose(history[1], column(1, 60), rtol=0, atol=1e-13)


def test_equal_weights_by_hand() -> None:
    # Client 0: 1, 10. Client 1: 4, and 10 without a point. EWF: 2.5, 10. DWF: (2 * 1 + 1 * 4) / 3 = 2.
    clients = [column(0, 2, 10), column(4)]
    start = column(1, 10)
    equal = fit(clients, start, weights="equal", local_iter=1, tol=0, max_iter=1)
    np.testing.assert_allclose(equal[1], column(2.5, 10), rtol=0, atol=1e-14)
    dynamic = fit(clients, start, weights="dynamic", local_iter=1, tol=0, max_iter=1)
    np.testing.assert_allclose(dynamic[1], column(2, 10), rtol=0, atol=1e-14)


def test_equation_6_by_hand() -> None:
    # One point at 8: the average is always 8. From 0 with eta 1/2, mu 1/4:
    # 4 (no momentum in the first round), 4 + 2 + 1 = 7, 7 + 1/2 + 3/4 = 8.25.
    history = fit([column(8)], column(0), local_iter=1, learning_rate=0.5, momentum=0.25, tol=0, max_iter=3)
    assert [float(c[0, 0]) for c in history] == [0, 4, 7, 8.25]


@pytest.mark.parametrize("n_clients", [1, 2, 7, 60])
def test_one_local_step_is_centralised_lloyd_over_any_partition(n_clients: int) -> None:
    rng = np.random.default_rng(n_clients)
    X = rng.normal(size=(300, 3)) + 3 * rng.integers(0, 2, size=(300, 3))
    start = rng.normal(size=(6, 3))
    owner = rng.integers(0, n_clients, size=len(X))  # sizes differ; a client may even be empty
    clients = [X[owner == i] for i in range(n_clients)]
    history = fit(clients, start, local_iter=1, tol=0, max_iter=15)
    assert len(history) == 16
    centers = start
    for t in range(1, 16):
        centers = lloyd_step(X, centers)
        np.testing.assert_allclose(history[t], centers, rtol=0, atol=1e-12)


# --- stopping ---

# With one point at 8 and the start 0 the movements are 4, 2, 1, 1/2, ... exactly.
SLOW: dict[str, Any] = {"local_iter": 1, "learning_rate": 0.5}


def test_stop_rule_is_strict() -> None:
    assert len(fit([column(8)], column(0), tol=1, max_iter=20, **SLOW)) == 5  # 1 < 1 is no stop, 1/2 is
    assert len(fit([column(8)], column(0), tol=np.nextafter(1, 2), max_iter=20, **SLOW)) == 4


def test_tolerance_zero_runs_all_rounds_even_at_rest() -> None:
    history = fit([column(8)], column(8), local_iter=1, tol=0, max_iter=6)
    assert movements(history) == [0.0] * 6


def test_no_stop_before_min_iter() -> None:
    assert len(fit([column(8)], column(8), local_iter=1, tol=1e-6, max_iter=20)) == 2
    assert len(fit([column(8)], column(8), local_iter=1, tol=1e-6, max_iter=20, min_iter=4)) == 5
    assert len(fit([column(8)], column(8), local_iter=1, tol=1e-6, max_iter=3, min_iter=4)) == 4


def test_patience() -> None:
    # Two clients take turns: each round jumps from one's point to the other's, movement 1 for ever.
    clients = [column(0), column(1)]
    turns = [[1], [0]] * 10
    settings: dict[str, Any] = {"local_iter": 1, "tol": 1e-6, "max_iter": 20, "schedule": turns}
    assert len(fit(clients, column(0), **settings)) == 21
    # The oldest of the last 3 movements is their minimum (a tie) as soon as there are 3.
    assert len(fit(clients, column(0), patience=3, **settings)) == 4
    # Movements before min_iter are not on record: rounds 5, 6, 7.
    assert len(fit(clients, column(0), patience=3, min_iter=5, **settings)) == 8


def test_patience_looks_for_the_oldest_as_the_minimum() -> None:
    # The centre jumps to the point of the round's client, so the movements are 5, 3, 1, 4, 2, 6.
    clients = [column(v) for v in (5, 2, 3, 7, 9, 3)]
    turns = [[i] for i in range(6)]
    settings: dict[str, Any] = {"local_iter": 1, "tol": 1e-6, "max_iter": 6, "schedule": turns}
    assert movements(fit(clients, column(0), **settings)) == [5, 3, 1, 4, 2, 6]
    # Windows of 3: (5 3 1), (3 1 4): no; (1 4 2): the oldest is the smallest, after round 5.
    assert len(fit(clients, column(0), patience=3, **settings)) == 6
    # Windows of 2: (5 3), (3 1): no; (1 4): after round 4.
    assert len(fit(clients, column(0), patience=2, **settings)) == 5
    # Falling movements never run out of patience.
    assert len(fit([column(8)], column(0), tol=0, max_iter=20, patience=2, **SLOW)) == 21


def test_history_begins_with_an_untouched_copy_of_the_start() -> None:
    start = column(0, 5)
    history = fit([column(1, 2, 9)], start, local_iter=2, tol=0, max_iter=3)
    np.testing.assert_array_equal(start, column(0, 5))
    np.testing.assert_array_equal(history[0], start)
    assert history[0] is not start


def test_schedule_that_ends_or_names_nobody_is_an_error() -> None:
    with pytest.raises(ValueError, match="ends before round 2"):
        fit([column(8)], column(0), local_iter=1, tol=0, max_iter=2, schedule=[[0]])
    with pytest.raises(ValueError, match="nobody takes part in round 1"):
        fit([column(8)], column(0), local_iter=1, tol=0, max_iter=2, schedule=[[]])


# --- scores ---


def test_scores_by_hand() -> None:
    clients = [column(0, 1, 2), column(10)]
    centers = column(0, 8)
    assert pooled_score(clients, centers) == pytest.approx((0 + 1 + 4 + 4) / 4)
    assert mean_client_score(clients, centers) == pytest.approx((5 / 3 + 4) / 2)


def test_several_clusters_may_share_a_label() -> None:
    assert majority_accuracy([0, 0, 0, 1, 1, 0], [0, 0, 1, 1, 1, 2]) == pytest.approx(5 / 6)
    assert majority_accuracy(["a", "b"], [7, 7]) == 0.5


# --- start and data ---


@pytest.mark.parametrize("server", ["farthest", "kmeans"])
def test_kfed_start_finds_well_separated_blobs_and_repeats(server: Literal["farthest", "kmeans"]) -> None:
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0], [0, 50], [50, 0]])
    clients = [np.concatenate([c + rng.normal(size=(9, 2)) for c in corners]) for _ in range(4)]
    clients.append(corners[:2])  # fewer points than clusters: they are sent as they are
    start = kfed_start(clients, 3, np.random.default_rng(1), server=server)
    assert start.shape == (3, 2)
    for corner in corners:
        assert np.linalg.norm(start - corner, axis=1).min() < 2
    np.testing.assert_array_equal(start, kfed_start(clients, 3, np.random.default_rng(1), server=server))


def test_papers_data() -> None:
    X, y = synthetic()
    assert X.shape == (10_100, 2)
    np.testing.assert_array_equal(np.bincount(y), [2000] * 5 + [100])
    assert np.abs(X[-100:]).max() <= 1


@pytest.mark.parametrize("kind", ["iid", "half", "non-iid"])
def test_partition_gives_every_point_to_one_client(kind: Literal["iid", "half", "non-iid"]) -> None:
    X, y = synthetic()
    points, labels = partition(X, y, kind, 3)
    assert len(points) == len(labels) == 100
    assert min(len(p) for p in points) > 0
    if kind == "iid":
        assert {len(p) for p in points} == {101}
    together = np.column_stack([np.concatenate(points), np.concatenate(labels)])
    whole = np.column_stack([X, y])
    np.testing.assert_array_equal(together[np.lexsort(together.T)], whole[np.lexsort(whole.T)])
