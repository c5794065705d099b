"""The centroids of every round are those of the literal implementation of the paper."""

from typing import Any, Literal

import numpy as np
import pytest

from privfed import DWFKMeans, EWFKMeans, WFKMeans
from privfed.core.record.records import Asked
from tests.default_run import covering
from tests.reference import dwf_reference as oracle
from tests.reference.paper_data import partition, synthetic

pytestmark = [
    pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:the centers are not the means:sklearn.exceptions.ConvergenceWarning"),
]

Clients = list[np.ndarray]
Kind = Literal["iid", "half", "non-iid"]
MODELS = {"dynamic": DWFKMeans, "equal": EWFKMeans}
ROUNDS = 4


@pytest.fixture(scope="module")
def papers_clients() -> dict[str, Clients]:
    """Return a fifth of the paper's data, spread over its 100 clients in its three ways."""
    X, y = synthetic()
    kinds: tuple[Kind, ...] = ("iid", "half", "non-iid")
    return {kind: partition(X[::5], y[::5], kind, 11)[0] for kind in kinds}


def start_in_the_box(k: int, seed: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, size=(k, 2))


def schedule(n_clients: int, a_round: int, rounds: int, seed: int = 8) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [sorted(rng.choice(n_clients, a_round, replace=False).tolist()) for _ in range(rounds)]


def assert_same_history(ours: list[np.ndarray], theirs: list[np.ndarray], tolerance: float = 1e-9) -> None:
    assert len(ours) == len(theirs)
    for t, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance, err_msg=f"round {t}")


def compare(
    clients: Clients,
    start: np.ndarray,
    *,
    weights: Literal["dynamic", "equal"] = "dynamic",
    cohorts: list[list[int]] | None = None,
    protocol: str = "plain",
    tolerance: float = 1e-9,
    **words: Any,
) -> DWFKMeans:
    """Fit ours and the oracle with the same words, compare every round, and return ours."""
    words = {"local_iter": 5, "tol": 0.0, "max_iter": ROUNDS, **words}
    expected = oracle.fit(clients, start, weights=weights, schedule=cohorts, **words)
    model = MODELS[weights](len(start), init=start, cohorts=cohorts, protocol=protocol, **words).fit(clients)
    assert_same_history(model.history_, expected, tolerance)
    np.testing.assert_allclose(model.cluster_centers_, expected[-1], rtol=0, atol=tolerance)
    assert model.n_iter_ == len(expected) - 1
    return model


def fallbacks(model: DWFKMeans) -> int:
    """Return in how many rounds a centroid had a total weight of zero."""
    return sum(record.purpose == "fallback" for record in model.transcript_.of(Asked))


# --- the paper's settings ---


@pytest.mark.parametrize(
    ("kind", "weights", "local_iter", "a_round", "step"),
    covering(
        ["iid", "half", "non-iid"],
        ["dynamic", "equal"],
        [1, 5],
        [100, 4],
        [{}, {"learning_rate": 0.01, "momentum": 0.8}],
    ),
)
@pytest.mark.few(3)
def test_history_is_the_oracles(
    papers_clients: dict[str, Clients],
    kind: Kind,
    weights: Literal["dynamic", "equal"],
    local_iter: int,
    a_round: int,
    step: dict[str, float],
) -> None:
    compare(
        papers_clients[kind],
        start_in_the_box(5),
        weights=weights,
        local_iter=local_iter,
        cohorts=None if a_round == 100 else schedule(100, a_round, ROUNDS),
        **step,
    )


def test_history_is_the_oracles_over_every_protocol(blobs: Clients, protocol: str) -> None:
    start = np.array([[0.0, 1.0], [5.0, 5.0], [9.0, -3.0], [30.0, 30.0]])
    tolerance = 1e-9 if protocol == "plain" else 1e-6
    model = compare(blobs, start, protocol=protocol, tolerance=tolerance, momentum=0.2)
    assert fallbacks(model) > 0


# The paper's rounds ask other clients each time, and do not come to rest.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_papers_configuration_for_many_rounds(papers_clients: dict[str, Clients]) -> None:
    words = {"learning_rate": 0.01, "momentum": 0.8, "tol": 1e-8, "min_iter": 17, "patience": 300}
    compare(
        papers_clients["non-iid"], start_in_the_box(5), cohorts=schedule(100, 5, 60), max_iter=60, **words
    )


# --- centroids without weight ---


@pytest.mark.parametrize("local_iter", [1, 5])
def test_centroids_without_weight_follow_equation_4(
    papers_clients: dict[str, Clients], local_iter: int
) -> None:
    clients, cohorts = papers_clients["non-iid"], schedule(100, 2, 12)
    model = compare(clients, start_in_the_box(5), cohorts=cohorts, max_iter=12, local_iter=local_iter)
    unweighted = 0
    for before, members in zip(model.history_, cohorts, strict=False):
        counts = sum(oracle.local_update(clients[i], before, 1, None)[1] for i in members)
        unweighted += int(np.count_nonzero(counts == 0))
    # It really happened. After one local step it needs no second sum: such a centroid has not moved.
    assert unweighted >= 10
    assert (fallbacks(model) > 0) == (local_iter > 1)


def test_centroid_without_weight_that_later_local_steps_moved_is_the_mean_of_local_ones(
    protocol: str,
) -> None:
    # Nobody's row is nearest to 5.5 at first; a later step gives it client 0's row 3.
    clients = [np.array([[-9.0], [-9.0], [-9.0], [3.0]]), np.zeros((2, 1)), np.zeros((2, 1))]
    start = np.array([[1.0], [5.5]])
    tolerance = 1e-9 if protocol == "plain" else 1e-6
    model = compare(clients, start, local_iter=2, max_iter=1, protocol=protocol, tolerance=tolerance)
    assert fallbacks(model) == 1
    np.testing.assert_allclose(model.cluster_centers_, [[-4.5], [(3.0 + 5.5 + 5.5) / 3]], atol=tolerance)


def test_equal_weights_are_never_zero(papers_clients: dict[str, Clients]) -> None:
    model = compare(
        papers_clients["non-iid"], start_in_the_box(5), weights="equal", cohorts=schedule(100, 2, ROUNDS)
    )
    assert fallbacks(model) == 0


# --- words that stop ---


@pytest.mark.parametrize("local_tol", [0.0, 1e-3, 0.05, 10.0])
@pytest.mark.few(1)
def test_local_tolerance(papers_clients: dict[str, Clients], local_tol: float) -> None:
    start = start_in_the_box(5)
    model = compare(papers_clients["half"], start, local_tol=local_tol, max_iter=2)
    free = compare(papers_clients["half"], start, max_iter=2)
    # Clients that rest do not move further: only a tolerance above zero can matter.
    assert (local_tol < 0.01) == np.allclose(model.history_[1], free.history_[1], rtol=0, atol=1e-3)


def test_very_large_local_tolerance_is_one_step(papers_clients: dict[str, Clients]) -> None:
    start, clients = start_in_the_box(5), papers_clients["half"]
    many = compare(clients, start, local_tol=10.0, max_iter=2)
    assert_same_history(many.history_, compare(clients, start, local_iter=1, max_iter=2).history_)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param({"patience": 2}, id="patience-2"),
        pytest.param({"patience": 4}, id="patience-4"),
        pytest.param({"patience": 4, "min_iter": 7}, id="patience-from-min_iter-on"),
        pytest.param({"patience": 1, "min_iter": 3}, id="patience-1"),
        pytest.param({"tol": 0.4}, id="tol"),
        pytest.param({"tol": 0.4, "min_iter": 9}, id="tol-after-min_iter"),
        pytest.param({"tol": 0.4, "min_iter": 9, "patience": 3}, id="all"),
    ],
)
@pytest.mark.few(3)
def test_stop_rules_stop_where_the_oracle_stops(
    papers_clients: dict[str, Clients], words: dict[str, Any]
) -> None:
    # Cohorts of four clients keep the movement noisy.
    model = compare(
        papers_clients["non-iid"], start_in_the_box(5), cohorts=schedule(100, 4, 40), max_iter=40, **words
    )
    assert model.n_iter_ < 40
    assert model.converged_


# --- shapes of data ---


@pytest.mark.parametrize("n_features", [1, 3, 8, 9, 20])
@pytest.mark.parametrize("local_iter", [1, 4])
def test_any_number_of_features(n_features: int, local_iter: int) -> None:
    rng = np.random.default_rng(n_features)
    clients = [rng.normal(size=(n, n_features)) + rng.integers(0, 3, size=(n, 1)) for n in (1, 2, 17, 40, 9)]
    compare(clients, rng.normal(size=(4, n_features)), local_iter=local_iter)


@pytest.mark.parametrize("n_features", [2, 12])
def test_data_far_from_the_origin(n_features: int) -> None:
    # A column of time stamps in seconds beside columns of size one.
    rng = np.random.default_rng(0)
    offset = np.zeros(n_features)
    offset[0] = 1.7e9
    clients = [
        offset + rng.normal(size=(30, n_features)) + 6 * rng.integers(0, 3, size=(30, 1)) for _ in range(5)
    ]
    start = np.stack([clients[0][0], clients[1][7], clients[2][3]])
    model = compare(clients, start, tolerance=1e-6)
    assert model.inertia_ == pytest.approx(
        sum(oracle.sse(rows, model.cluster_centers_) for rows in clients), rel=1e-6
    )


def test_one_client_and_one_cluster() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 2))
    model = compare([rows], np.zeros((1, 2)))
    np.testing.assert_allclose(model.cluster_centers_[0], rows.mean(axis=0), atol=1e-12)
    assert model.inertia_ == pytest.approx(oracle.sse(rows, model.cluster_centers_))


# --- weights of the user's own ---


def at_most_three(update: Any) -> np.ndarray:
    """Count no client for more than three rows."""
    return np.minimum(update.counts, 3.0)


def test_weights_of_the_users_own(blobs: Clients) -> None:
    start = blobs[0][:4]
    model = WFKMeans(4, weights=at_most_three, init=start, max_iter=4, tol=0, protocol="plain").fit(blobs)
    centers = start
    for t in range(1, 5):
        updates = [oracle.local_update(rows, centers, 5, None) for rows in blobs]
        centers = oracle.aggregate([local for local, _ in updates], [np.minimum(c, 3.0) for _, c in updates])
        np.testing.assert_allclose(model.history_[t], centers, rtol=0, atol=1e-9)


@pytest.mark.parametrize("weights", ["dynamic", "equal"])
def test_named_weights_are_those_of_dwf_and_ewf(blobs: Clients, protocol: str, weights: str) -> None:
    words: dict[str, Any] = {"max_iter": 4, "tol": 0, "protocol": protocol, "random_state": 2}
    ours = WFKMeans(3, weights=weights, **words).fit(blobs)
    np.testing.assert_array_equal(np.stack(ours.history_), MODELS[weights](3, **words).fit(blobs).history_)


def test_two_functions_of_the_same_name_are_told_apart(blobs: Clients) -> None:
    def fitted(share: float) -> np.ndarray:
        model = WFKMeans(
            3, weights=lambda u: u.counts**share, init=blobs[0][:3], max_iter=2, tol=0, protocol="plain"
        )
        return model.fit(blobs).cluster_centers_

    assert not np.allclose(fitted(1.0), fitted(0.0))
    np.testing.assert_array_equal(fitted(1.0), fitted(1.0))
