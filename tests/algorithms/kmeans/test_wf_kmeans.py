"""Laws of weighted federated k-means: Lloyd's limit, stop rules, restarts, order of the clients."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from privfed import DWFKMeans, EWFKMeans, WFKMeans
from privfed.algorithms.private.clients import LocalMovements
from privfed.algorithms.weightings import name_of
from privfed.algorithms.wf_kmeans import WeightedCentroids
from privfed.core.asking.question import ClientData
from privfed.core.record.records import Asked
from privfed.core.roles.conversation import EVERYONE, Ask, Total
from privfed.core.values.domain import Ranges
from privfed.errors import RefusedError
from privfed.federation.clients import gather
from privfed.numerics.kmeans import LocalUpdate
from tests.opened import opened
from tests.reference import dwf_reference as oracle
from tests.some import some

Clients = list[np.ndarray]


def lloyd(rows: np.ndarray, centers: np.ndarray, steps: int) -> list[np.ndarray]:
    """Do centralised Lloyd steps; a center without rows stays."""
    history = [centers]
    for _ in range(steps):
        labels = ((rows[:, None] - history[-1][None]) ** 2).sum(axis=2).argmin(axis=1)
        moved = history[-1].copy()
        for j in np.unique(labels):
            moved[j] = rows[labels == j].mean(axis=0)
        history.append(moved)
    return history


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


def movements(model: DWFKMeans) -> list[float]:
    return [float(np.linalg.norm(b - a)) for a, b in pairwise(model.history_)]


# --- Lloyd's limit ---


@pytest.mark.parametrize("n_features", [1, 2, 11])
@pytest.mark.parametrize("n_clients", [3, 10, 30])
def test_one_local_step_of_all_clients_is_centralised_lloyd(
    n_features: int, n_clients: int, protocol: str, grid_tolerance: float
) -> None:
    rng = np.random.default_rng(n_features)
    rows = rng.normal(size=(300, n_features)) + 3 * rng.integers(0, 2, size=(300, 1))
    start = rng.normal(size=(6, n_features))
    clients = np.array_split(rows, n_clients)
    model = DWFKMeans(6, local_iter=1, init=start, tol=0, max_iter=6, protocol=protocol).fit(clients)
    for ours, theirs in some(zip(model.history_, lloyd(rows, start, 6), strict=True)):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=grid_tolerance)


def test_one_local_step_never_raises_the_inertia(blobs: Clients, protocol: str) -> None:
    model = DWFKMeans(4, local_iter=1, init="random", tol=0, max_iter=12, protocol=protocol).fit(blobs)
    scores = [oracle.pooled_score(blobs, centers) for centers in model.history_]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(scores))


# --- stop rules ---

# With one row at 8, the start 0 and half steps the movements are 4, 2, 1, 1/2, ... exactly.
HALVING: dict[str, Any] = {
    "n_clusters": 1,
    "local_iter": 1,
    "learning_rate": 0.5,
    "init": column(0),
    "max_iter": 20,
    "protocol": "plain",
}


def test_tolerance_is_strict() -> None:
    one = DWFKMeans(tol=1.0, **HALVING).fit([column(8)])
    assert movements(one) == [4.0, 2.0, 1.0, 0.5]
    assert one.converged_
    assert movements(DWFKMeans(tol=np.nextafter(1.0, 2.0), **HALVING).fit([column(8)])) == [4.0, 2.0, 1.0]


def test_tolerance_zero_runs_all_rounds_even_at_rest(blobs: Clients, protocol: str) -> None:
    model = DWFKMeans(3, tol=0, max_iter=15, protocol=protocol).fit(blobs)
    assert model.n_iter_ == 15 and len(model.history_) == 16
    assert movements(model)[-1] == 0.0
    assert model.converged_ is None


def test_default_tolerance_stops_at_rest(blobs: Clients, protocol: str) -> None:
    model = DWFKMeans(3, local_iter=1, init="random", protocol=protocol).fit(blobs)
    assert model.converged_ and model.n_iter_ < 300
    assert movements(model)[-1] < 1e-6 <= movements(model)[-2]


def test_no_stop_before_min_iter() -> None:
    words = {**HALVING, "init": column(8)}
    assert DWFKMeans(tol=1e-6, **words).fit([column(8)]).n_iter_ == 1
    assert DWFKMeans(tol=1e-6, min_iter=5, **words).fit([column(8)]).n_iter_ == 5
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        last = DWFKMeans(tol=1e-6, min_iter=5, **{**words, "max_iter": 3}).fit([column(8)])
    assert last.n_iter_ == 3 and last.converged_ is False


def test_movement_that_only_stays_the_same_runs_out_of_patience() -> None:
    words: dict[str, Any] = {**HALVING, "learning_rate": 1.0, "cohorts": [[1], [0]]}
    clients = [column(0), column(1)]
    with pytest.warns(ConvergenceWarning):
        assert DWFKMeans(tol=1e-6, plateau=None, **words).fit(clients).n_iter_ == 20
    assert DWFKMeans(tol=1e-6, patience=3, **words).fit(clients).n_iter_ == 3
    assert DWFKMeans(tol=1e-6, patience=3, min_iter=5, **words).fit(clients).n_iter_ == 7


def test_falling_movement_never_runs_out_of_patience() -> None:
    assert DWFKMeans(tol=0, patience=2, **HALVING).fit([column(8)]).n_iter_ == 20


# --- momentum ---


def test_first_round_has_no_momentum() -> None:
    words = {**HALVING, "max_iter": 3, "tol": 0, "momentum": 0.25}
    history = DWFKMeans(**words).fit([column(8)]).history_
    assert [float(centers[0, 0]) for centers in history] == [0.0, 4.0, 7.0, 8.25]


# --- restarts ---


def scores(model: DWFKMeans, question: str) -> list[tuple[float, np.ndarray]]:
    """Return each restart's score and the centers that it is of."""
    found = []
    for seen in opened(model.transcript_).sums:
        if type(seen.question).__name__ == question:
            total: Any = seen.total
            value = total["inertia"][0] if question == "Inertia" else total["score"][0] / total["clients"][0]
            found.append((float(value), seen.question.centers))  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("init", ["random", "coreset", "kfed"])
def test_restart_of_the_lowest_pooled_score_is_kept(blobs: Clients, protocol: str, init: str) -> None:
    model = EWFKMeans(5, init=init, n_init=5, max_iter=3, tol=0, protocol=protocol).fit(blobs)
    found = scores(model, "Inertia")
    assert len(found) == 5
    best, centers = min(found, key=lambda one: one[0])
    assert model.inertia_ == best
    np.testing.assert_array_equal(model.cluster_centers_, centers)
    np.testing.assert_array_equal(model.history_[-1], centers)


@pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning")
def test_restarts_begin_at_different_starts(blobs: Clients) -> None:
    for init in ("random", "coreset", "kfed"):
        model = DWFKMeans(6, init=init, n_init=4, max_iter=1, tol=0, local_iter=1, protocol="plain").fit(
            blobs
        )
        found = [centers for _, centers in scores(model, "Inertia")]
        distinct = {np.sort(centers, axis=0).round(6).tobytes() for centers in found}
        assert len(distinct) > 1, init


def test_client_mean_chooses_by_the_mean_of_the_clients_own_scores(protocol: str) -> None:
    # One large client in the middle, many small ones at the border: the two scores disagree.
    rng = np.random.default_rng(1)
    clients = [
        rng.normal(size=(400, 2)),
        *(np.array([30.0, 0.0]) + rng.normal(size=(3, 2)) for _ in range(9)),
    ]
    words: dict[str, Any] = {
        "init": "random",
        "n_init": 12,
        "max_iter": 1,
        "tol": 0,
        "learning_rate": 0.2,
        "random_state": 3,
    }
    pooled = DWFKMeans(2, protocol=protocol, **words).fit(clients)
    mean = DWFKMeans(2, protocol=protocol, restart_score="client-mean", **words).fit(clients)
    best, centers = min(scores(mean, "ClientScores"), key=lambda one: one[0])
    assert best == pytest.approx(oracle.mean_client_score(clients, mean.cluster_centers_), rel=1e-6)
    np.testing.assert_array_equal(mean.cluster_centers_, centers)
    assert not np.allclose(mean.cluster_centers_, pooled.cluster_centers_)
    assert oracle.mean_client_score(clients, mean.cluster_centers_) < oracle.mean_client_score(
        clients, pooled.cluster_centers_
    )
    assert oracle.pooled_score(clients, pooled.cluster_centers_) < oracle.pooled_score(
        clients, mean.cluster_centers_
    )


# --- relocation ---


@pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning")
def test_local_centroid_without_rows_stays_by_default_and_moves_onto_a_row_when_wanted() -> None:
    clients = [column(0, 1, 2, 10), column(0, 1, 3, 11)]
    start = column(0, 1000)
    words: dict[str, Any] = {"init": start, "local_iter": 1, "max_iter": 1, "tol": 0, "protocol": "plain"}
    stays = DWFKMeans(2, **words).fit(clients)
    assert stays.cluster_centers_[1, 0] == 1000.0
    moves = DWFKMeans(2, relocate_empty=True, **words).fit(clients)
    # Each client's farthest row from its own mean; no client had weight there, so the plain mean of both.
    np.testing.assert_allclose(moves.cluster_centers_, column(3.5, 10.5))


@pytest.mark.parametrize("model", [DWFKMeans, EWFKMeans])
def test_relocation_leaves_runs_alone_in_which_no_centroid_is_empty(
    model: type[DWFKMeans], protocol: str
) -> None:
    rng = np.random.default_rng(3)
    clients = [np.concatenate([m + rng.normal(size=(9, 2)) for m in ((0, 0), (20, 0))]) for _ in range(5)]
    words: dict[str, Any] = {"init": np.array([[1.0, 1], [19, 1]]), "max_iter": 3, "protocol": protocol}
    one, other = (model(2, relocate_empty=flag, **words).fit(clients) for flag in (False, True))
    np.testing.assert_allclose(one.history_, other.history_, rtol=0, atol=1e-12)


# --- cohorts, order, repetition ---


def by_groups(blobs: Clients, names: list[Any], order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return one table and the client of each row, clients in the given order."""
    rows = np.concatenate([blobs[i] for i in order])
    return rows, np.concatenate([np.full(len(blobs[i]), names[i]) for i in order])


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([f"site {i}" for i in range(10)], id="texts"),
        pytest.param([7, 11, 3, 100, 20, 5, 0, 42, 8, 9], id="numbers"),
    ],
)
@pytest.mark.parametrize(
    "words", [{}, {"clients_per_round": 6}, {"init": "kfed"}], ids=["all", "drawn", "kfed"]
)
def test_order_of_the_clients_changes_nothing(
    blobs: Clients, protocol: str, names: list[Any], words: dict[str, Any]
) -> None:
    def fit(order: np.ndarray) -> DWFKMeans:
        rows, groups = by_groups(blobs, names, order)
        return DWFKMeans(4, max_iter=4, tol=0, protocol=protocol, **words).fit(rows, groups=groups)

    one, other = fit(np.arange(10)), fit(np.random.default_rng(6).permutation(10))
    np.testing.assert_array_equal(np.stack(one.history_), np.stack(other.history_))
    assert one.transcript_.configuration.clients == other.transcript_.configuration.clients


def test_groups_are_the_list_of_their_rows(blobs: Clients, protocol: str) -> None:
    rows, groups = by_groups(blobs, [f"{i}" for i in range(10)], np.arange(10))
    shuffle = np.random.default_rng(0).permutation(len(rows))
    table = DWFKMeans(3, max_iter=3, protocol=protocol).fit(rows[shuffle], groups=groups[shuffle])
    listed = DWFKMeans(3, max_iter=3, protocol=protocol).fit(blobs)
    np.testing.assert_allclose(table.cluster_centers_, listed.cluster_centers_, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(table.labels_, np.concatenate(listed.labels_)[shuffle])


def test_schedule_asks_whom_it_names(blobs: Clients, protocol: str) -> None:
    cohorts = [[0, 1, 2, 3, 4, 5], [4, 5, 6, 7, 8, 9]]
    model = DWFKMeans(3, cohorts=cohorts, max_iter=5, tol=0, protocol=protocol).fit(blobs)
    rounds = [record.clients for record in model.transcript_.of(Asked) if record.purpose == "round"]
    assert rounds == [tuple(cohorts[t % 2]) for t in range(5)]
    others = [
        record.clients for record in model.transcript_.of(Asked) if record.purpose in ("range", "score")
    ]
    assert set(others) == {tuple(range(10))}


def test_drawn_cohorts_have_the_wanted_size_and_change(blobs: Clients, protocol: str) -> None:
    model = DWFKMeans(3, clients_per_round=6, max_iter=6, tol=0, protocol=protocol).fit(blobs)
    rounds = [record.clients for record in model.transcript_.of(Asked) if record.purpose == "round"]
    assert {len(members) for members in rounds} == {6}
    assert len(set(rounds)) > 2


def test_same_random_state_repeats_the_run(blobs: Clients, protocol: str) -> None:
    def fit(state: Any) -> np.ndarray:
        words: dict[str, Any] = {"init": "random", "clients_per_round": 6, "max_iter": 3, "tol": 0}
        model = DWFKMeans(3, random_state=state, protocol=protocol, **words).fit(blobs)
        return np.stack(model.history_)

    np.testing.assert_array_equal(fit(4), fit(4))
    np.testing.assert_array_equal(fit(np.random.default_rng(4)), fit(np.random.default_rng(4)))
    assert not np.array_equal(fit(4), fit(5))
    assert not np.array_equal(fit(None), fit(None))


# --- what a run asks ---

SETTINGS = [
    pytest.param({"init": "kfed", "clients_per_round": 6, "n_init": 2}, id="kfed-drawn"),
    pytest.param({"init": "coreset", "restart_score": "client-mean", "n_init": 3}, id="coreset-all"),
    pytest.param({"init": "random", "cohorts": [[0, 1, 2, 3, 4, 5]], "local_iter": 2}, id="random-schedule"),
    pytest.param({"init": np.full((4, 2), 50.0) + np.eye(4, 2), "max_iter": 2}, id="far-away"),
]


@pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("words", SETTINGS)
def test_no_run_asks_more_sums_than_it_announced(
    blobs: Clients, protocol: str, words: dict[str, Any]
) -> None:
    model = DWFKMeans(4, protocol=protocol, tol=0, **{"max_iter": 3, **words}).fit(blobs)
    assert len(model.transcript_.totals()) <= model.transcript_.configuration.terms.max_sums


@pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("words", SETTINGS)
def test_each_round_was_named_by_the_sum_before(blobs: Clients, protocol: str, words: dict[str, Any]) -> None:
    asks: list[Ask] = []

    def watch(index: int, ask: Ask, total: Total) -> None:
        asks.append(ask)

    model = DWFKMeans(4, protocol=protocol, tol=0, **{"max_iter": 3, **words})
    model.fit_clients(gather(blobs), watch=watch)
    for before, ask in pairwise(asks):
        # The first round after a score and the score itself are not foreseen: a run may stop at any round.
        if ask.purpose in ("round", "fallback") and before.purpose != "score":
            assert ask.cohort in before.upcoming, (before.purpose, ask.purpose)
    assert asks[0].cohort == EVERYONE


def test_weights_of_another_shape_open_no_sum(blobs: Clients) -> None:
    with pytest.raises(RefusedError, match="0: error"):
        WFKMeans(3, weights=lambda u: np.ones(7), protocol="plain").fit(blobs)


@pytest.mark.filterwarnings("ignore:clients clipped:UserWarning")
def test_weights_that_are_no_numbers_count_as_clipped_to_nothing(blobs: Clients, protocol: str) -> None:
    # A refusal would tell the server something about the data.
    start = blobs[0][:3]
    words = {"init": start, "max_iter": 1, "tol": 0, "protocol": protocol}
    model = WFKMeans(3, weights=lambda u: np.full(3, np.nan), **words).fit(blobs)
    clipped = [total.clipped for asked, total in model.transcript_.totals() if asked.purpose == "round"]
    assert clipped == [10 * 3 * 3]
    # Centroids without weight become the mean of the local ones.
    expected = np.mean([oracle.local_update(rows, start, 5, None)[0] for rows in blobs], axis=0)
    np.testing.assert_allclose(model.cluster_centers_, expected, rtol=0, atol=1e-6)


def test_weights_that_fail_for_one_client_are_an_error_that_noise_keeps_to_itself() -> None:
    def weights(update: LocalUpdate) -> np.ndarray:
        if (update.counts == 0).any():
            raise ZeroDivisionError
        return update.counts

    ranges, rng = Ranges([-1.0, -1.0], [1.0, 1.0], 30), np.random.default_rng(0)
    both, one = rng.uniform(-1, 1, (30, 2)), rng.uniform(0.5, 1, (30, 2))
    clients = [ClientData(both), ClientData(one), ClientData(-both)]
    known = {"ranges": ranges, "centers": np.array([[-0.5, -0.5], [0.5, 0.5]]), "local_iter": 2}
    asked, plain = (
        LocalMovements(ranges=ranges, radius=1.0, steps=WeightedCentroids(weights=name, **known))
        for name in (name_of(weights), "dynamic")
    )
    # `Noised` asks one by one then, and answers zeros for the client (tests/privacy/test_noised.py).
    with pytest.raises(ZeroDivisionError):
        asked.answer_all(clients, [rng] * 3)
    expected = plain.answer_all(clients, [rng] * 3)
    for i in (0, 2):
        answer = asked.answer(clients[i], rng)
        for name in ("count", "sum"):
            np.testing.assert_array_equal(answer[name], expected[i][name])
