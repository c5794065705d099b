"""What clients of fuzzy c-means make of their rows, what a run asks of them, and what they show."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from privfed.algorithms.fuzzy import FuzzyCentroids, FuzzyCMeans, FuzzySums, WeightedFuzzyCentroids
from privfed.core.asking.question import ClientData
from privfed.core.record.records import Asked
from privfed.core.roles.conversation import Ask, Total
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, DataError
from privfed.estimators.local_steps import FederatedFuzzyCMeans
from privfed.federation.clients import gather
from privfed.federation.opening import open_over
from privfed.numerics.memberships import blocks, local_fits
from tests.opened import opened
from tests.raised import parameter_refused
from tests.reference import fuzzy_reference as oracle
from tests.some import some
from tests.undeclared import ANYTHING

Clients = list[np.ndarray]


@pytest.fixture(scope="module")
def papers_clients() -> Clients:
    """Return the paper's motivational example in the layout that gives its tables."""
    return oracle.motivational(0)


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


def fitted(clients: Clients, k: int, protocol: str = "plain", **words: Any) -> FederatedFuzzyCMeans:
    return FederatedFuzzyCMeans(k, protocol=protocol, **words).fit(clients)


def sums_of(model: Any, question: str) -> list[Any]:
    return [seen for seen in opened(model.transcript_).sums if type(seen.question).__name__ == question]


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
        for client, answer in some(zip(clients, together, strict=True)):
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
    model = fitted([rows[:12], rows[12:]], 3, init=rows[[0, 12, 12]], max_iter=4, tol=0, **words)
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
@pytest.mark.few(3)
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
        # Two exchanges a sum, three of the set-up, and one more where a sum's keys were not prepared ahead.
        assert model.federation_.traffic.exchanges <= 2 * len(asks) + 3 + unforeseen


def test_purposes_of_the_sums(papers_clients: Clients) -> None:
    model = fitted(papers_clients, 2)
    purposes = [asked.purpose for asked in model.transcript_.of(Asked)]
    assert purposes[:3] == ["range", "start", "start"] and purposes[-1] == "score"
    assert set(purposes[3:-1]) == {"round"}


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
        FuzzyCentroids(centers=np.eye(3), m=2.0, local_iter=3).of(ClientData(np.zeros((4, 2))))
    with parameter_refused("n_init"):
        clients = [rows[::50] for rows in papers_clients]
        open_over(clients, protocol="plain", policy=ANYTHING).run(FuzzyCMeans(n_clusters=2, n_init=0))
    with pytest.raises(ArgumentError, match=r"n_clusters=7 .* n_samples=6"):
        fitted([column(1, 2), column(3, 4), column(5, 6)], 7, averaging="weighted")
