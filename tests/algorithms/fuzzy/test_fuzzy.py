"""Federated fuzzy c-means: the literal protocol's centers, laws, cycles, what a run asks and shows."""

from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest

from privfed.algorithms.fuzzy import movement
from privfed.core.values.domain import Box
from privfed.estimators.local_steps import DWFKMeans, FederatedFuzzyCMeans
from privfed.metrics.functions import fuzzy_davies_bouldin
from tests.default_run import covering, slow, slow_but
from tests.opened import opened
from tests.reference import fuzzy_reference as oracle
from tests.some import some

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
    return [seen for seen in opened(model.transcript_).sums if type(seen.question).__name__ == question]


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
    for centers in some(model.history_[1:]):
        pooled = oracle.centers_of(rows, oracle.memberships(rows, pooled, m), m)
        np.testing.assert_allclose(centers, pooled, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("weight", "m", "steps"),
    covering(["u^m", "u"], [1.5, 2.0], [(1, None), (4, None), (300, 1e-3), (300, 0.05)]),
)
@pytest.mark.few(3)
def test_weighted_history_is_the_oracles(
    papers_clients: Clients,
    weight: Literal["u^m", "u"],
    m: float,
    steps: tuple[int, float | None],
) -> None:
    start, clients = random_start(4, 1), [rows[::9] for rows in papers_clients]
    words: dict[str, Any] = {
        "m": m,
        "local_iter": steps[0],
        "local_tol": steps[1],
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
    moved = [movement(b, a) for a, b in pairwise(model.states_)]
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


@pytest.mark.parametrize(("layout", "k"), covering(["swapped", "printed"], [2, 3, 5, 7]))
@pytest.mark.few(1)
def test_history_is_that_of_k_means_on_the_gathered_local_centers(layout: Layout, k: int) -> None:
    clients, start = [rows[::4] for rows in oracle.motivational(2, layout)], random_start(k, k)
    model = fitted(clients, k, init=start, max_iter=4, tol=0)
    theirs = oracle.fit(
        clients, start, averaging="kmeans", server_start=server_start(model), max_iter=4, tol=0
    )
    assert_same_history(model.history_, theirs, 1e-9)


@pytest.mark.parametrize("k", slow_but(range(2, 6), 2, 4))
@pytest.mark.few(1)
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


@pytest.mark.parametrize("seed", [0, slow(1)])
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
@pytest.mark.few(1)
def test_masked_run_has_the_same_centers_and_index(words: dict[str, Any]) -> None:
    clients = [rows[i::4] for rows in oracle.motivational(3) for i in (0, 1)]
    words = {"max_iter": 6, "tol": 0, "domain": Box(-2, 3, max_rows=1024), **words}
    plain, masked = (fitted(clients, 4, over, **words) for over in ("plain", "masked"))
    assert plain.n_iter_ == masked.n_iter_
    np.testing.assert_allclose(plain.history_, masked.history_, rtol=0, atol=1e-9)
    assert plain.objective_ == pytest.approx(masked.objective_, rel=1e-9)
    index = [fuzzy_davies_bouldin(one.federation_, one.cluster_centers_) for one in (plain, masked)]
    assert index[0] == pytest.approx(index[1], rel=1e-9)


# --- cycles ---


CYCLES = [
    pytest.param({"seed": 1, "layout": "printed", "k": 3, "start": 4, "averaging": "kmeans"}, 2, id="two"),
    pytest.param({"seed": 2, "layout": "printed", "k": 3, "start": 5, "averaging": "kmeans"}, 3, id="three"),
    pytest.param(
        {"seed": 0, "layout": "swapped", "k": 6, "start": None, "averaging": "weighted"},
        5,
        id="five",
        marks=pytest.mark.slow,
    ),
]


# That a cycle is told of is tested in tests/estimators/test_convergence.py.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("case", "period"), CYCLES)
@pytest.mark.few(1)
def test_cycle_stops_with_its_best_state(case: dict[str, Any], period: int) -> None:
    clients, k = oracle.motivational(case["seed"], case["layout"]), case["k"]
    start = "random" if case["start"] is None else random_start(k, case["start"])
    model = fitted(clients, k, init=start, averaging=case["averaging"], random_state=case["start"] or 0)
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
    # As many further rounds from the last state lead back to it: the run would never have ended.
    way = "kmeans" if case["averaging"] == "kmeans" else "u^m"
    last = seen[0][1]
    again = oracle.fit(clients, last, averaging=way, server_start=last, max_iter=period, tol=0)  # type: ignore[arg-type]
    np.testing.assert_allclose(again[-1], last, atol=1e-4)
    assert min(oracle.movement(state, last) for state in again[1:-1]) > 0.05


def test_run_without_tolerance_goes_round_to_the_last_round() -> None:
    clients = oracle.motivational(1, "printed")
    model = fitted(clients, 3, init=random_start(3, 4), random_state=4, tol=0, max_iter=9)
    assert model.n_iter_ == 9 and not model.cycled_ and not model.converged_


# Some of these restarts end in a cycle.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
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


# --- order, repetition, limits ---


def test_order_of_the_clients_changes_nothing(papers_clients: Clients) -> None:
    rows, names = np.concatenate(papers_clients)[::4], np.repeat(["b", "c", "a"], 1040)[::4]
    order = np.argsort(names, kind="stable")
    for words in ({}, {"averaging": "weighted", "clients_per_round": 2}):
        one, other = (
            FederatedFuzzyCMeans(3, protocol="plain", max_iter=3, **words).fit(rows[i], groups=names[i])
            for i in (np.arange(len(rows)), order)
        )
        np.testing.assert_array_equal(np.stack(one.history_), np.stack(other.history_))


@pytest.mark.parametrize("words", [slow({}), {"averaging": "weighted", "local_iter": 2}])
def test_start_is_in_the_domain_and_follows_the_random_state(
    papers_clients: Clients, words: dict[str, Any]
) -> None:
    domain = Box([-3, -2], [5, 4], max_rows=2048)
    for init in ("coreset", "kfed", "random"):
        runs = [
            fitted(
                papers_clients, 4, init=init, domain=domain, max_iter=1, tol=0, random_state=state, **words
            )
            for state in (1, 1, 2)
        ]
        starts = [run.history_[0] for run in runs]
        assert domain.contains(starts[0]).all()
        np.testing.assert_array_equal(np.stack(runs[0].history_), np.stack(runs[1].history_))
        assert init != "random" or not np.array_equal(starts[0], starts[2])


def test_fuzzy_centers_with_a_small_fuzzifier_are_those_of_lloyd() -> None:
    rng = np.random.default_rng(2)
    clients = [rng.normal(size=(40, 2)) + 6 * rng.integers(0, 2, size=(40, 1)) for _ in range(4)]
    start = np.array([[0.5, 0.0], [5.0, 6.0]])
    words: dict[str, Any] = {"init": start, "local_iter": 1, "tol": 0, "max_iter": 5, "protocol": "plain"}
    fuzzy = FederatedFuzzyCMeans(2, m=1.0 + 1e-6, averaging="weighted", **words).fit(clients)
    hard = DWFKMeans(2, **words).fit(clients)
    np.testing.assert_allclose(fuzzy.history_, hard.history_, atol=1e-9)
