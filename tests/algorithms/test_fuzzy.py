"""Federated fuzzy c-means: the literal protocol's centers, laws, cycles, what a run asks and shows."""

from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest

from privfed import Box, DWFKMeans
from privfed.algorithms.fuzzy import FuzzyCMeans, movement
from privfed.algorithms.fuzzy_sums import FuzzyCentroids, FuzzySums, WeightedFuzzyCentroids
from privfed.algorithms.local_fuzzy import blocks, local_fits
from privfed.core.conversation import Ask, Total
from privfed.core.domain import Ranges
from privfed.core.question import ClientData
from privfed.core.transcript import Asked
from privfed.errors import ArgumentError, DataError
from privfed.face.clients import gather
from privfed.face.fuzzy import FederatedFuzzyCMeans
from privfed.metrics.fuzzy_index import fuzzy_davies_bouldin
from tests.reference import fuzzy_reference as oracle

Clients = list[np.ndarray]
Layout = Literal["swapped", "printed"]


@pytest.fixture(scope="module")
def papers_clients() -> Clients:
    """Return the paper's motivational example in the layout that gives its tables."""
    return oracle.motivational(0)


def random_start(k: int, seed: int, d: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).random((k, d))


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


def fitted(clients: Clients, k: int, protocol: str = "plain", **words: Any) -> FederatedFuzzyCMeans:
    return FederatedFuzzyCMeans(k, protocol=protocol, **words).fit(clients)


def sums_of(model: Any, question: str) -> list[Any]:
    return [
        seen for seen in model.transcript_.view("server").sums if type(seen.question).__name__ == question
    ]


def assert_same_history(ours: Clients, theirs: Clients, tolerance: float) -> None:
    assert len(ours) == len(theirs)
    for t, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance, err_msg=f"round {t}")


# --- weighted averaging ---


@pytest.mark.parametrize("n_features", [1, 2, 9, 20])
@pytest.mark.parametrize("m", [1.3, 2.0, 3.5])
def test_one_local_step_is_centralised_fuzzy_c_means(m: float, n_features: int) -> None:
    rng = np.random.default_rng(n_features)
    rows = rng.normal(size=(200, n_features)) + 4 * rng.integers(0, 2, size=(200, 1))
    start = rng.normal(size=(4, n_features))
    words: dict[str, Any] = {"averaging": "weighted", "local_iter": 1, "tol": 0, "max_iter": 8, "m": m}
    model = fitted(np.array_split(rows, 7), 4, init=start, **words)
    pooled = start
    for centers in model.history_[1:]:
        pooled = oracle.centers_of(rows, oracle.memberships(rows, pooled, m), m)
        np.testing.assert_allclose(centers, pooled, rtol=0, atol=1e-9)


@pytest.mark.parametrize("weight", ["u^m", "u"])
@pytest.mark.parametrize("m", [1.5, 2.0])
@pytest.mark.parametrize(("local_iter", "local_tol"), [(1, None), (4, None), (300, 1e-3), (300, 0.05)])
def test_weighted_history_is_the_oracles(
    papers_clients: Clients,
    weight: Literal["u^m", "u"],
    m: float,
    local_iter: int,
    local_tol: float | None,
) -> None:
    start, clients = random_start(4, 1), [rows[::9] for rows in papers_clients]
    words: dict[str, Any] = {
        "m": m,
        "local_iter": local_iter,
        "local_tol": local_tol,
        "max_iter": 4,
        "tol": 0,
    }
    model = fitted(clients, 4, init=start, averaging="weighted", weight=weight, **words)
    assert_same_history(model.history_, oracle.fit(clients, start, averaging=weight, **words), 1e-9)


def test_weighted_rounds_with_changing_clients(papers_clients: Clients) -> None:
    clients = [rows[i::6] for rows in papers_clients for i in (0, 1)]
    schedule, start = [[0, 3, 5], [1, 2], [4]], random_start(3, 2)
    words: dict[str, Any] = {"local_iter": 3, "local_tol": None, "max_iter": 6, "tol": 0}
    model = fitted(clients, 3, init=start, averaging="weighted", cohorts=schedule, **words)
    assert_same_history(
        model.history_, oracle.fit(clients, start, averaging="u^m", schedule=schedule, **words), 1e-9
    )


def test_default_tolerance_is_the_sum_of_movements(papers_clients: Clients) -> None:
    clients, start = [rows[::9] for rows in papers_clients], random_start(4, 5)
    model = fitted(clients, 4, init=start, averaging="weighted", local_iter=2, tol=0.01)
    theirs = oracle.fit(clients, start, averaging="u^m", local_iter=2, tol=0.01, max_iter=100)
    assert_same_history(model.history_, theirs, 1e-9)
    assert model.converged_ and not model.cycled_
    moved = [movement(b, a) for a, b in pairwise(model.history_)]
    assert moved[-1] < 0.01 <= min(moved[:-1])


def test_one_step_never_raises_the_objective(papers_clients: Clients) -> None:
    model = fitted(
        papers_clients, 5, init="random", averaging="weighted", local_iter=1, tol=0, max_iter=15, m=1.7
    )
    pooled = np.concatenate(papers_clients)
    values = [oracle.objective(pooled, centers, 1.7) for centers in model.history_]
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in pairwise(values))
    assert model.objective_ == pytest.approx(values[-1], rel=1e-9)


def test_center_without_weight_stays() -> None:
    # Every row lies on one of the first two centers: the third has no share of any.
    clients, start = [column(0, 0, 4), column(4, 4, 0)], column(0, 4, 9)
    for words in ({"local_iter": 1}, {"local_iter": 5}, {"local_iter": 5, "weight": "u"}):
        model = fitted(clients, 3, init=start, averaging="weighted", max_iter=2, **words)
        np.testing.assert_array_equal(model.cluster_centers_, start)


@pytest.mark.parametrize("over", ["plain", "masked"])
def test_center_of_next_to_no_weight_stays_inside_the_ranges(over: str) -> None:
    # With m near 1 a far center's weight is below the grid of any masked sum.
    clients = [column(0.0, 0.1, 0.2), column(1.0, 1.1), column(0.5, 0.6)]
    words: dict[str, Any] = {"averaging": "weighted", "local_iter": 1, "max_iter": 3, "m": 1.1, "tol": 0}
    model = fitted(clients, 3, over, init=column(0.1, 1.0, 40.0), **words)
    assert model.cluster_centers_[2, 0] == 40.0
    assert (model.cluster_centers_[:2] >= 0).all() and (model.cluster_centers_[:2] <= 1.1).all()


# --- k-means averaging ---


def server_start(model: FederatedFuzzyCMeans) -> np.ndarray:
    """Return where the first round's k-means began."""
    return np.asarray(sums_of(model, "PointSums")[0].question.centers)


@pytest.mark.parametrize("k", [2, 3, 5, 7])
@pytest.mark.parametrize("layout", ["swapped", "printed"])
def test_history_is_that_of_k_means_on_the_gathered_local_centers(layout: Layout, k: int) -> None:
    clients, start = [rows[::4] for rows in oracle.motivational(2, layout)], random_start(k, k)
    model = fitted(clients, k, init=start, max_iter=4, tol=0)
    theirs = oracle.fit(
        clients, start, averaging="kmeans", server_start=server_start(model), max_iter=4, tol=0
    )
    assert_same_history(model.history_, theirs, 1e-9)


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_index_is_that_of_the_literal_protocol(papers_clients: Clients, k: int) -> None:
    # Their first k-means starts from k-means++ on the gathered centers, ours on the cells' means of them.
    start = random_start(k, 100 + k)
    model = fitted(papers_clients, k, init=start)
    theirs = oracle.fit(papers_clients, start, averaging="kmeans")
    found = fuzzy_davies_bouldin(model.federation_, model.cluster_centers_)
    pooled = np.concatenate(papers_clients)
    assert found == pytest.approx(oracle.fuzzy_davies_bouldin(pooled, theirs[-1]), abs=1e-3)
    assert found == pytest.approx(oracle.fuzzy_davies_bouldin(pooled, model.cluster_centers_), rel=1e-9)
    ours, others = (
        centers[np.lexsort(centers.T.round(2))] for centers in (model.cluster_centers_, theirs[-1])
    )
    np.testing.assert_allclose(ours, others, rtol=0, atol=1e-3)


# Table 1 of the paper, "Federated".
PAPERS_TABLE = {2: 0.8179, 3: 0.6055, 4: 0.4951, 5: 0.4289}


@pytest.mark.parametrize("seed", [0, 1])
def test_papers_table_and_choice_of_five_clusters(seed: int) -> None:
    clients = oracle.motivational(seed)
    index = {}
    for k in range(2, 9):
        model = fitted(clients, k, random_state=seed)
        index[k] = fuzzy_davies_bouldin(model.federation_, model.cluster_centers_)
    assert {k: index[k] for k in PAPERS_TABLE} == pytest.approx(PAPERS_TABLE, abs=0.03)
    assert min(index, key=lambda k: index[k]) == 5


def test_local_centers_nearer_than_a_cell_are_still_told_apart() -> None:
    # Two tight far groups and five clusters: fuzzy centers crowd together, in two cells only.
    rng = np.random.default_rng(0)
    clients = [np.vstack([rng.normal(0, 0.01, (40, 2)), rng.normal(9, 0.01, (40, 2))]) for _ in range(3)]
    model = fitted(clients, 5, max_iter=5)
    near = np.linalg.norm(model.cluster_centers_[:, None] - np.array([[0.0, 0.0], [9.0, 9.0]]), axis=2)
    assert near.min(axis=1).max() < 0.1
    assert fuzzy_davies_bouldin(model.federation_, model.cluster_centers_) > 10


# --- over a masked sum ---


@pytest.mark.parametrize(
    "words",
    [
        pytest.param({}, id="kmeans"),
        pytest.param({"averaging": "weighted", "local_iter": 3}, id="weighted"),
        pytest.param({"averaging": "weighted", "local_iter": 1, "m": 1.4}, id="one-step"),
        pytest.param(
            {"averaging": "weighted", "weight": "u", "cohorts": [[0, 1, 2], [2, 3, 4]]}, id="cohorts"
        ),
    ],
)
def test_masked_run_has_the_same_centers_and_index(words: dict[str, Any]) -> None:
    clients = [rows[i::4] for rows in oracle.motivational(3) for i in (0, 1)]
    words = {"max_iter": 6, "domain": Box(-2, 3, max_rows=1024), **words}
    plain, masked = (fitted(clients, 4, over, **words) for over in ("plain", "masked"))
    assert plain.n_iter_ == masked.n_iter_
    np.testing.assert_allclose(plain.history_, masked.history_, rtol=0, atol=1e-9)
    assert plain.objective_ == pytest.approx(masked.objective_, rel=1e-9)
    index = [fuzzy_davies_bouldin(one.federation_, one.cluster_centers_) for one in (plain, masked)]
    assert index[0] == pytest.approx(index[1], rel=1e-9)


# --- cycles ---


@pytest.mark.parametrize(("seed", "start", "period"), [(1, 4, 2), (2, 5, 3)], ids=["two", "three"])
def test_cycle_stops_with_its_best_state(seed: int, start: int, period: int) -> None:
    clients = oracle.motivational(seed, "printed")
    words: dict[str, Any] = {"init": random_start(3, start), "random_state": start}
    model = fitted(clients, 3, **words)
    assert model.cycled_ and not model.converged_
    seen = [
        (float(one.total["objective"][0]), one.question.centers) for one in sums_of(model, "FuzzyObjective")
    ]
    assert len(seen) == period
    best, centers = min(seen, key=lambda one: one[0])
    assert model.objective_ == best
    np.testing.assert_array_equal(model.cluster_centers_, centers)
    np.testing.assert_array_equal(model.history_[-1], centers)
    assert model.n_iter_ == len(model.history_) - 1
    # Another round from the last state leads back to the first of them: it would never have ended.
    again = oracle.fit(
        clients, seen[0][1], averaging="kmeans", server_start=seen[0][1], max_iter=period, tol=0
    )
    np.testing.assert_allclose(again[-1], seen[0][1], atol=1e-4)
    assert movement(again[1], again[0]) > 0.05


def test_run_without_tolerance_goes_round_to_the_last_round() -> None:
    clients = oracle.motivational(1, "printed")
    model = fitted(clients, 3, init=random_start(3, 4), random_state=4, tol=0, max_iter=9)
    assert model.n_iter_ == 9 and not model.cycled_ and not model.converged_


def test_restart_of_the_lowest_objective_is_kept() -> None:
    clients = [rows[::3] for rows in oracle.motivational(0, "printed")]
    model = fitted(clients, 3, init="random", n_init=4)
    seen = [
        (float(one.total["objective"][0]), one.question.centers) for one in sums_of(model, "FuzzyObjective")
    ]
    assert len(seen) >= 4 and len({round(value, 3) for value, _ in seen}) > 1
    best, centers = min(seen, key=lambda one: one[0])
    assert model.objective_ == best
    np.testing.assert_array_equal(model.cluster_centers_, centers)


# --- what a client makes and what it shows ---


def test_local_fits_are_the_oracles_whoever_stands_beside() -> None:
    rng = np.random.default_rng(5)
    clients = [rng.normal(loc=i % 3, size=(n, 3)) for i, n in enumerate((1, 2, 9, 40, 700, 5, 33))]
    centers = rng.normal(size=(11, 3))
    words: dict[str, Any] = {"m": 2.0, "local_iter": 60, "local_tol": 0.02}
    together = local_fits(clients, centers, **words)
    assert len(list(blocks(clients, 11))) < len(clients)
    for rows, fit in zip(clients, together, strict=True):
        alone = local_fits([rows], centers, **words)[0]
        for one, other in (
            (fit.centers, alone.centers),
            (fit.powers, alone.powers),
            (fit.supports, alone.supports),
        ):
            assert one.tobytes() == other.tobytes()
        if len(rows) < len(centers):
            continue  # Its centers fall on its rows, where the last bit decides who belongs to whom.
        theirs, powers, u, _ = oracle.fuzzy_c_means(rows, centers, 2.0, 60, 0.02)
        np.testing.assert_allclose(fit.centers, theirs, atol=1e-9)
        np.testing.assert_allclose(fit.powers, powers, atol=1e-9)
        np.testing.assert_allclose(fit.supports, u.sum(axis=0), atol=1e-9)


def test_questions_of_many_clients_are_answered_as_one_by_one() -> None:
    rng = np.random.default_rng(6)
    clients = [ClientData(rng.normal(size=(n, 2))) for n in (1, 3, 1000, 1, 64, 2500, 8)]
    ranges = Ranges([-9.0, -9.0], [9.0, 9.0], 4096)
    centers = rng.normal(size=(9, 2))
    for question in (
        FuzzySums(ranges=ranges, centers=centers, m=1.5),
        WeightedFuzzyCentroids(ranges=ranges, centers=centers, m=2.0, local_iter=5, local_tol=0.3),
    ):
        together = question.answer_all(clients, [rng] * len(clients))
        for client, answer in zip(clients, together, strict=True):
            flat = question.spec.flatten(answer)
            assert flat.tobytes() == question.spec.flatten(question.answer(client, rng)).tobytes()
            assert question.spec.clip(flat)[1] == 0


@pytest.mark.parametrize("n_features", [2, 12])
def test_client_with_fewer_distinct_rows_than_clusters_has_no_points(n_features: int) -> None:
    rng = np.random.default_rng(0)
    points = FuzzyCentroids(centers=rng.normal(size=(3, n_features)), m=2.0, local_iter=5)
    two = np.repeat(rng.normal(size=(2, n_features)), 500, axis=0)
    assert points.of(ClientData(two)).points.shape == (0, n_features)
    late = np.vstack([two, rng.normal(size=(1, n_features))])
    found = points.of(ClientData(late))
    assert found.points.shape == (3, n_features) and found.weights.tolist() == [1, 1, 1]
    assert (found.points >= late.min(axis=0)).all() and (found.points <= late.max(axis=0)).all()


def test_local_center_that_no_row_belongs_to_is_left_out() -> None:
    points = FuzzyCentroids(centers=column(0, 4, 9), m=2.0, local_iter=3)
    found = points.of(ClientData(column(0, 0, 4, 4, 4.0)))
    assert len(found.points) == 0
    points = FuzzyCentroids(centers=column(0, 4), m=2.0, local_iter=3)
    np.testing.assert_array_equal(points.of(ClientData(column(0, 0, 4, 4))).points, column(0, 4))


def test_small_clients_show_nothing_in_k_means_averaging(papers_clients: Clients) -> None:
    clients = [*(rows[::5] for rows in papers_clients), np.array([[0.3, 0.4]]), np.ones((50, 2))]
    model = fitted(clients, 3, max_iter=3)
    asked = sums_of(model, "PointCells") + sums_of(model, "PointSums")
    assert len(asked) > 3
    for seen in asked:
        for small in (3, 4):
            assert not seen.answers[small]["count"].any() and not seen.answers[small]["sum"].any()
        assert seen.total["count"].sum() == pytest.approx(9)


def test_nobody_with_enough_rows_is_an_error_that_names_the_remedy() -> None:
    clients = [np.random.default_rng(i).normal(size=(2, 2)) for i in range(5)]
    with pytest.raises(DataError, match='no client has 3 distinct rows; use averaging="weighted"'):
        fitted(clients, 3)
    assert np.isfinite(fitted(clients, 3, averaging="weighted").cluster_centers_).all()


@pytest.mark.parametrize("words", [{}, {"averaging": "weighted"}, {"averaging": "weighted", "local_iter": 1}])
@pytest.mark.parametrize("n_features", [2, 11])
def test_rows_that_are_all_the_same_or_lie_on_the_start(n_features: int, words: dict[str, Any]) -> None:
    same = [np.full((4, n_features), 3.0)] * 3
    if words:
        model = fitted(same, 2, **words)
        assert np.isfinite(model.cluster_centers_).all()
        assert model.objective_ == pytest.approx(0.0, abs=1e-6)
    rows = np.random.default_rng(0).normal(size=(20, n_features))
    model = fitted([rows[:12], rows[12:]], 3, init=rows[[0, 12, 12]], max_iter=4, **words)
    assert np.isfinite(model.cluster_centers_).all()


# --- what a run asks ---

SETTINGS = [
    pytest.param({"n_init": 2}, id="kmeans"),
    pytest.param({"init": "kfed", "clients_per_round": 4}, id="kmeans-drawn"),
    pytest.param({"averaging": "weighted", "init": "random", "n_init": 3}, id="weighted"),
    pytest.param({"averaging": "weighted", "cohorts": [[0, 1, 2], [3, 4, 5]]}, id="weighted-schedule"),
]


@pytest.mark.parametrize("over", ["plain", "masked"])
@pytest.mark.parametrize("words", SETTINGS)
def test_sums_are_foreseen_and_no_more_than_announced(words: dict[str, Any], over: str) -> None:
    clients = [rows[i::9] for rows in oracle.motivational(4) for i in (0, 1)]
    asks: list[Ask] = []

    def watch(index: int, ask: Ask, total: Total) -> None:
        asks.append(ask)

    model = FederatedFuzzyCMeans(3, protocol=over, **{"max_iter": 3, "tol": 0, **words})
    model.fit_clients(gather(clients), watch=watch)
    assert len(asks) <= model.transcript_.configuration.terms.max_sums
    for before, ask in pairwise(asks):
        # The first round after a score and the score itself are not foreseen: a run may stop at any round.
        if ask.purpose == "round" and before.purpose != "score":
            assert ask.cohort in before.upcoming, (before.purpose, ask.purpose)
    if over == "masked":
        unforeseen = sum(ask.cohort not in before.upcoming for before, ask in pairwise(asks))
        assert model.federation_.traffic.exchanges <= 2 * len(asks) + 2 + unforeseen


def test_order_of_the_clients_changes_nothing(papers_clients: Clients) -> None:
    rows, names = np.concatenate(papers_clients)[::4], np.repeat(["b", "c", "a"], 1040)[::4]
    order = np.argsort(names, kind="stable")
    for words in ({}, {"averaging": "weighted", "clients_per_round": 2}):
        one, other = (
            FederatedFuzzyCMeans(3, protocol="plain", max_iter=3, **words).fit(rows[i], groups=names[i])
            for i in (np.arange(len(rows)), order)
        )
        np.testing.assert_array_equal(np.stack(one.history_), np.stack(other.history_))


@pytest.mark.parametrize("words", [{}, {"averaging": "weighted", "local_iter": 2}])
def test_start_is_in_the_domain_and_follows_the_random_state(
    papers_clients: Clients, words: dict[str, Any]
) -> None:
    domain = Box([-3, -2], [5, 4], max_rows=2048)
    for init in ("coreset", "kfed", "random"):
        runs = [
            fitted(papers_clients, 4, init=init, domain=domain, max_iter=1, random_state=state, **words)
            for state in (1, 1, 2)
        ]
        starts = [run.history_[0] for run in runs]
        assert domain.contains(starts[0]).all()
        np.testing.assert_array_equal(np.stack(runs[0].history_), np.stack(runs[1].history_))
        assert init != "random" or not np.array_equal(starts[0], starts[2])


def test_purposes_of_the_sums(papers_clients: Clients) -> None:
    model = fitted(papers_clients, 2)
    purposes = [asked.purpose for asked in model.transcript_.of(Asked)]
    assert purposes[:3] == ["range", "start", "start"] and purposes[-1] == "score"
    assert set(purposes[3:-1]) == {"round"}


def test_fuzzy_centers_with_a_small_fuzzifier_are_those_of_lloyd() -> None:
    rng = np.random.default_rng(2)
    clients = [rng.normal(size=(40, 2)) + 6 * rng.integers(0, 2, size=(40, 1)) for _ in range(4)]
    start = np.array([[0.5, 0.0], [5.0, 6.0]])
    words: dict[str, Any] = {"init": start, "local_iter": 1, "tol": 0, "max_iter": 5, "protocol": "plain"}
    fuzzy = FederatedFuzzyCMeans(2, m=1.0 + 1e-6, averaging="weighted", **words).fit(clients)
    hard = DWFKMeans(2, **words).fit(clients)
    np.testing.assert_allclose(fuzzy.history_, hard.history_, atol=1e-9)


# --- bad questions ---


@pytest.mark.parametrize(
    "words",
    [
        {"m": 1.0},
        {"m": np.nan},
        {"local_iter": 0},
        {"local_iter": 200_000},
        {"local_tol": -1.0},
        {"local_tol": np.nan},
        {"local_tol": np.inf},
        {"centers": np.full((2, 2), np.nan)},
        {"centers": np.zeros(2)},
        {"centers": np.zeros((0, 2))},
    ],
    ids=str,
)
def test_questions_out_of_bounds_are_errors(words: dict[str, Any]) -> None:
    good: dict[str, Any] = {"centers": np.eye(2), "m": 2.0, "local_iter": 3}
    with pytest.raises(ArgumentError):
        FuzzyCentroids(**{**good, **words})
    with pytest.raises(ArgumentError):
        WeightedFuzzyCentroids(ranges=Ranges([0.0, 0.0], [1.0, 1.0], 4), **{**good, **words})


def test_other_errors_name_their_cause(papers_clients: Clients) -> None:
    ranges = Ranges([0.0, 0.0], [1.0, 1.0], 4)
    with pytest.raises(ArgumentError, match='weight must be "u\\^m" or "u", got weight=\'v\''):
        WeightedFuzzyCentroids(ranges=ranges, centers=np.eye(2), m=2.0, local_iter=3, weight="v")
    with pytest.raises(ArgumentError, match="centers need 2 columns"):
        FuzzyCentroids(centers=np.eye(3), m=2.0, local_iter=3).make(ClientData(np.zeros((4, 2))))
    with pytest.raises(ArgumentError, match="n_init must be at least 1"):
        model = fitted([rows[::50] for rows in papers_clients], 2)
        model.federation_.run(FuzzyCMeans(n_clusters=2, n_init=0))
    with pytest.raises(ArgumentError, match=r"n_clusters=7 .* n_samples=6"):
        fitted([column(1, 2), column(3, 4), column(5, 6)], 7, averaging="weighted")
