"""k-FED: local centroids and the gathered server are the literal implementation's; sums give the same."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from privfed.algorithms.kfed import (
    LocalCentroids,
    awasthi_sheffet_start,
    farthest_start,
    split_means,
)
from privfed.core.asking.question import ClientData
from privfed.core.record.records import Asked
from privfed.core.roles.conversation import Ask, Total
from privfed.errors import DataError
from privfed.estimators.local_centers import KFED
from privfed.federation.clients import gather
from privfed.numerics.kmeans import lloyd, seeds
from privfed.questions.gathered import union
from privfed.questions.local_points import WeightedPoints
from tests.opened import opened
from tests.reference import kfed_reference as oracle
from tests.some import some

pytestmark = pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning")

Clients = list[np.ndarray]


def mixed(n_features: int, sizes: tuple[int, ...] = (40, 25, 30, 60, 22), seed: int = 0) -> Clients:
    """Return clients of two or three of five blobs each."""
    rng = np.random.default_rng((seed, n_features))
    means = rng.uniform(-9, 9, size=(5, n_features))
    return [means[rng.choice(rng.choice(5, 3), n)] + rng.normal(size=(n, n_features)) for n in sizes]


def drawn(rows: np.ndarray, k: int, seed: int) -> list[int]:
    """Return which rows become the seeds of a client's own clustering."""
    directions = np.linalg.svd(np.linalg.qr(rows, mode="r"))[2][:k].T
    rng = np.random.default_rng(seed)
    found = seeds(rows @ directions, np.ones(len(rows)), k, rng, candidates=1)[0]
    return [int(np.flatnonzero((rows @ directions == one).all(axis=1))[0]) for one in found]


def local(k: int, p: int = 2, seed: int = 3, method: str = "awasthi-sheffet") -> LocalCentroids:
    return LocalCentroids(n_clusters=k, local=method, min_cluster_size=p, seed=seed)


def sums_of(model: KFED, question: str) -> list[Any]:
    return [one for one in opened(model.transcript_).sums if type(one.question).__name__ == question]


def gathered(model: KFED) -> list[np.ndarray]:
    """Return each client's centroids as the server saw them."""
    (seen,) = sums_of(model, "GatheredPoints")
    return [answer["point"][answer["weight"] > 0] for _, answer in sorted(seen.answers.items())]


# --- a client's own clustering ---


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize(("n_features", "k"), [(1, 3), (2, 4), (2, 8), (5, 3), (11, 4), (40, 6)])
@pytest.mark.few(6)
def test_local_centroids_are_the_oracles_from_the_same_seeds(n_features: int, k: int, p: int) -> None:
    # In two dimensions with eight clusters the authors' own code fails.
    for seed, rows in some(enumerate(mixed(n_features))):
        expected = oracle.local_centroids(rows, drawn(rows, k, seed), p)
        found = local(k, p, seed).of(ClientData(rows))
        np.testing.assert_allclose(found.points, expected, rtol=0, atol=1e-12)
        assert found.weights.tolist() == [1.0] * len(expected)


@pytest.mark.parametrize(("n_features", "k"), [(2, 4), (11, 4)])
def test_start_of_the_local_steps_is_the_oracles(n_features: int, k: int) -> None:
    for seed, rows in some(enumerate(mixed(n_features))):
        expected = oracle.split_start(rows, drawn(rows, k, seed))
        found = awasthi_sheffet_start(rows, k, np.random.default_rng(seed))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_split_takes_points_a_third_as_far_as_any_other() -> None:
    points = np.array([[0.0], [0.9], [1.1], [3.0], [4.0]])
    # Between 0 and 4 a third is at 1: of the points at the border 0.9 counts and 1.1 does not.
    np.testing.assert_allclose(split_means(points, np.array([[0.0], [4.0]])), [[0.45], [3.5]])
    np.testing.assert_allclose(split_means(points, np.array([[7.0]])), [[1.8]])


def test_center_that_no_point_is_near_to_stays() -> None:
    points = np.array([[0.0], [0.1], [5.0]])
    np.testing.assert_allclose(split_means(points, np.array([[0.0], [0.1], [9.0]]))[2], [9.0])


@pytest.mark.parametrize("method", ["awasthi-sheffet", "kmeans"])
def test_separated_blobs_are_found_by_either_method(method: str) -> None:
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0, 0], [60, 0, 0], [0, 60, 0]])
    rows = np.repeat(corners, 20, axis=0) + rng.normal(size=(60, 3))
    found = local(3, method=method).of(ClientData(rows)).points
    for corner in some(corners):
        assert np.linalg.norm(found - corner, axis=1).min() < 1.5


def test_plain_local_k_means_is_about_scikit_learns() -> None:
    for rows in some(mixed(2)):
        found = local(3, 1, method="kmeans").of(ClientData(rows)).points
        inertia = float(((rows[:, None] - found) ** 2).sum(axis=2).min(axis=1).sum())
        assert inertia <= 1.02 * float(KMeans(3, n_init=10, random_state=0).fit(rows).inertia_)


@pytest.mark.parametrize("method", ["awasthi-sheffet", "kmeans"])
@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(np.zeros((3, 2)) + np.arange(3)[:, None], id="fewer-rows"),
        pytest.param(np.repeat([[0.0, 1.0], [2.0, 3.0]], 5, axis=0), id="fewer-distinct-rows"),
        pytest.param(np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]]), id="as-many-rows"),
    ],
)
def test_small_client_sends_nothing_and_never_its_rows(method: str, rows: np.ndarray) -> None:
    found = local(4, method=method).of(ClientData(rows))
    assert found.points.shape == (0, 2) and found.weights.shape == (0,)


# --- the server ---


@pytest.mark.parametrize("n_first", [1, 3, 6])
def test_farthest_start_is_the_oracles(n_first: int) -> None:
    rng = np.random.default_rng(n_first)
    centroids = [rng.normal(size=(n, 2)) for n in (3, 1, 5, 4)]
    held = [WeightedPoints(one, np.ones(len(one))) for one in centroids]
    for k in (1, 3, 7, 13):
        expected = oracle.server_start(centroids, k, n_first)
        np.testing.assert_allclose(farthest_start(held, k, n_first), expected, rtol=0, atol=1e-15)


def test_farthest_start_passes_over_clients_without_centroids_and_takes_copies_last() -> None:
    empty = WeightedPoints(np.empty((0, 1)), np.empty(0))
    own = WeightedPoints(np.array([[0.0], [0.0], [5.0], [5.0]]), np.ones(4))
    assert farthest_start([empty, own], 4, 1).ravel().tolist() == [0.0, 5.0, 0.0, 5.0]


@pytest.mark.parametrize("k_local", [None, 2, 8])
@pytest.mark.parametrize("n_features", [2, 11])
def test_gathered_run_is_the_oracles_server(n_features: int, k_local: int | None) -> None:
    clients = mixed(n_features)
    model = KFED(6, n_local_clusters=k_local, merge="gathered", protocol="plain").fit(clients)
    expected = oracle.server(gathered(model), 6, 6 if k_local is None else k_local)
    np.testing.assert_allclose(model.cluster_centers_, expected, rtol=0, atol=1e-9)
    start = oracle.server_start(gathered(model), 6, 6 if k_local is None else k_local)
    np.testing.assert_allclose(model.history_[0], start, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("protocol", "tolerance"), [("plain", 1e-9), ("masked", 1e-6)])
def test_summed_steps_are_the_gathered_ones_from_the_same_start(protocol: str, tolerance: float) -> None:
    clients, start = mixed(2), np.random.default_rng(5).uniform(-9, 9, size=(5, 2))
    one = KFED(5, init=start, merge="gathered", protocol="plain").fit(clients)
    other = KFED(5, init=start, protocol=protocol).fit(clients)
    assert one.n_iter_ == other.n_iter_ >= 2
    for ours, theirs in zip(one.history_, other.history_, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)


def test_plain_and_masked_sums_give_the_same_centers() -> None:
    plain, masked = (KFED(5, protocol=name).fit(mixed(2)) for name in ("plain", "masked"))
    np.testing.assert_allclose(masked.cluster_centers_, plain.cluster_centers_, rtol=0, atol=1e-6)


@pytest.mark.parametrize("merge", ["summed", "gathered"])
def test_result_rests_under_k_means_of_the_clients_centroids(merge: str) -> None:
    clients = mixed(2)
    seen = gathered(KFED(5, merge="gathered", protocol="plain", random_state=2).fit(clients))
    model = KFED(5, merge=merge, protocol="plain", random_state=2).fit(clients)
    held = union([WeightedPoints(one, np.ones(len(one))) for one in seen])
    again = lloyd(*held, model.cluster_centers_[None]).centers
    np.testing.assert_allclose(again, model.cluster_centers_, rtol=0, atol=1e-9)


def test_one_shot_asks_each_client_once_for_its_centroids() -> None:
    model = KFED(5, merge="gathered", protocol="plain").fit(mixed(2))
    asked = [type(one.question).__name__ for one in opened(model.transcript_).sums]
    assert asked == ["FeatureRanges", "GatheredPoints", "Inertia"]


def test_only_the_first_cohort_is_asked_for_centroids() -> None:
    clients = mixed(2, sizes=(30, 25, 40, 35, 30, 28))
    model = KFED(4, cohorts=[[1, 2, 3, 5], [0, 4]], protocol="plain").fit(clients)
    asked = model.transcript_.of(Asked)
    assert {one.clients for one in asked if one.purpose in ("start", "round")} == {(1, 2, 3, 5)}
    assert {one.clients for one in asked if one.purpose in ("range", "score")} == {tuple(range(6))}
    alone = KFED(4, protocol="plain").fit([clients[i] for i in (1, 2, 3, 5)])
    assert sums_of(model, "PointCount")[0].total["points"] == sums_of(alone, "PointCount")[0].total["points"]


def test_order_of_the_clients_changes_nothing_summed() -> None:
    clients = mixed(2)
    one, other = (KFED(5, protocol="plain").fit(own).cluster_centers_ for own in (clients, clients[::-1]))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)


def test_restart_of_the_lowest_inertia_is_kept() -> None:
    for merge in ("summed", "gathered"):
        model = KFED(5, n_init=4, merge=merge, protocol="plain").fit(mixed(2))
        found = [float(one.total["inertia"][0]) for one in sums_of(model, "Inertia")]
        assert len(found) == 4 and model.inertia_ == min(found)


@pytest.mark.parametrize("init", ["coreset", "random", "kfed"])
@pytest.mark.parametrize("merge", ["summed", "gathered"])
def test_other_starts(init: str, merge: str) -> None:
    model = KFED(4, init=init, merge=merge, protocol="plain").fit(mixed(2))
    assert model.cluster_centers_.shape == (4, 2) and model.converged_
    movements = [float(np.linalg.norm(b - a)) for a, b in pairwise(model.history_)]
    assert movements[-1] < 1e-6 and len(movements) == model.n_iter_


def test_most_steps_of_the_server() -> None:
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = KFED(4, init="random", max_iter=1, protocol="plain").fit(mixed(2))
    assert model.n_iter_ == 1 and len(model.history_) == 2 and model.converged_ is False
    assert KFED(4, tol=0.0, max_iter=9, protocol="plain").fit(mixed(2)).n_iter_ == 9


@pytest.mark.parametrize("merge", ["summed", "gathered"])
def test_fewer_centroids_than_clusters_is_an_error_that_names_the_remedy(merge: str) -> None:
    clients = [np.random.default_rng(i).normal(size=(3, 2)) for i in range(5)]
    with pytest.raises(DataError, match=r"0 local centroids .*n_clusters=4; .*fewer n_local_clusters"):
        KFED(4, merge=merge, protocol="plain").fit(clients)
    KFED(4, n_local_clusters=1, merge=merge, protocol="plain").fit(clients)


@pytest.mark.parametrize(
    "words",
    [
        {"protocol": "masked"},
        {"protocol": "masked", "clients_per_round": 5, "n_init": 2},
        {"merge": "gathered", "protocol": "plain"},
        {"protocol": "plain", "init": "coreset"},
    ],
    ids=["masked", "drawn", "gathered", "other-start"],
)
def test_sums_are_announced(words: dict[str, Any]) -> None:
    asks: list[Ask] = []

    def watch(index: int, ask: Ask, total: Total) -> None:
        asks.append(ask)

    model = KFED(4, **words)
    model.fit_clients(gather(mixed(2, sizes=(30, 25, 40, 35, 30, 28))), watch=watch)
    assert len(asks) <= model.transcript_.configuration.terms.max_sums
    for before, ask in pairwise(asks):
        # After a score comes another restart only where n_init says so.
        if before.purpose != "score":
            assert ask.cohort in before.upcoming, (before.purpose, ask.purpose)
