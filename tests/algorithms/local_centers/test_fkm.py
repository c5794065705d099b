"""FKM: client answers and rounds are the literal implementation's, summed and gathered merges agree."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from privfed.algorithms.fkm import SeededMeans, SteppedMeans
from privfed.core.asking.question import ClientData
from privfed.core.record.records import Asked
from privfed.core.roles.conversation import Ask, Conversation, Total
from privfed.core.values.domain import Ranges
from privfed.data import by_cluster, by_distance
from privfed.errors import DataError
from privfed.estimators.local_centers import FKM
from privfed.federation.clients import gather
from privfed.numerics.kernels.dispatch import assign
from privfed.numerics.kmeans import lloyd, seeds
from privfed.questions.gathered import union
from privfed.questions.local_points import LocalPoints, summed_kmeans
from tests.default_run import examples
from tests.opened import opened
from tests.reference import fkm_reference as oracle
from tests.some import some

pytestmark = pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning")

Clients = list[np.ndarray]
GRID = np.array([(x, y) for x in (-7.5, -2.5, 2.5, 7.5) for y in (-7.5, -2.5, 2.5, 7.5)])


def mixed(n_features: int, sizes: Sequence[int] = (40, 25, 3, 1, 60), seed: int = 0) -> Clients:
    rng = np.random.default_rng((seed, n_features))
    means = rng.uniform(-9, 9, size=(5, n_features))
    return [means[rng.choice(rng.choice(5, 3), n)] + rng.normal(size=(n, n_features)) for n in sizes]


def papers_data(seed: int, beta: float) -> tuple[Clients, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    rows, labels = np.repeat(GRID, 50, axis=0) + rng.normal(size=(800, 2)), np.repeat(np.arange(16), 50)
    parts = by_distance(rows, rng.uniform(-10, 10, size=(5, 2)), beta, rng)
    return [rows[own] for own in parts], [labels[own] for own in parts]


def driven(conversation: Conversation[np.ndarray], clients: Clients) -> tuple[np.ndarray, list[Ask]]:
    held, asks = [ClientData(rows) for rows in clients], []
    generators = [np.random.default_rng(0) for _ in held]
    try:
        ask = next(conversation)
        while True:
            asks.append(ask)
            answers = ask.question.answer_all(held, generators)
            total = answers[0]
            for one in answers[1:]:
                total = total + one
            ask = conversation.send(Total(total, tuple(range(len(held)))))
    except StopIteration as finished:
        return finished.value, asks


# --- a client's answers ---


def assert_same_answer(points: LocalPoints, rows: np.ndarray, expected: oracle.Answer) -> None:
    found = points.of(ClientData(rows))
    means, sizes = expected
    assert found.weights.tolist() == sizes
    np.testing.assert_allclose(found.points, means, rtol=0, atol=1e-12)


@pytest.mark.parametrize("p", [1, 2, 5])
@pytest.mark.parametrize("n_features", [1, 2, 11])
@pytest.mark.parametrize("seed", range(4))
def test_round_answer_is_the_oracles(n_features: int, p: int, seed: int) -> None:
    clients = mixed(n_features, seed=seed)
    centers = np.random.default_rng(seed).uniform(-10, 10, size=(8, n_features))
    for rows in some(clients):
        points = SteppedMeans(centers=centers, min_cluster_size=p)
        assert_same_answer(points, rows, oracle.round_answer(rows, centers, p))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("n_features", [1, 2, 11])
def test_start_answer_is_the_oracles_from_the_same_seeds(n_features: int, p: int) -> None:
    for seed in range(4):
        for rows in some(mixed(n_features, seed=seed)):
            drawn = seeds(rows, np.ones(len(rows)), min(6, len(rows)), np.random.default_rng(seed))[0]
            points = SeededMeans(n_clusters=6, min_cluster_size=p, seed=seed)
            assert_same_answer(points, rows, oracle.start_answer(rows, drawn, p))


def test_sizes_are_counted_after_the_step() -> None:
    # Two rows are nearest to each center; the second mean is 8.25, and 4.5 is then nearer to the first.
    rows = np.array([[0.0], [3.0], [4.5], [12.0]])
    found = SteppedMeans(centers=np.array([[1.0], [7.0]]), min_cluster_size=1).of(ClientData(rows))
    assert found.points.ravel().tolist() == [1.5, 8.25]
    assert found.weights.tolist() == [3.0, 1.0]
    dropped = SteppedMeans(centers=np.array([[1.0], [7.0]]), min_cluster_size=2).of(ClientData(rows))
    assert dropped.points.ravel().tolist() == [1.5]


def test_mean_of_one_row_can_be_large_enough_after_the_step() -> None:
    # Named under Reveals: rows are counted after the step, as published, and so a single row is sent here.
    rows = np.array([[-2.0], [0.0], [9.0], [20.0], [22.0]])
    found = SteppedMeans(centers=np.array([[-4.0], [1.1], [21.0]]), min_cluster_size=2).of(ClientData(rows))
    assert (found.points[0, 0], found.weights[0]) == (-2.0, 2.0)


@settings(max_examples=examples(30))
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 6), st.integers(1, 3))
def test_answers_made_in_one_pass_are_those_made_alone(seed: int, d: int, k: int, p: int) -> None:
    rng = np.random.default_rng(seed)
    clients = [ClientData(np.round(rng.normal(size=(n, d)), 1)) for n in rng.integers(1, 12, size=4)]
    points = SteppedMeans(centers=np.round(rng.normal(size=(k, d)), 1), min_cluster_size=p)
    points.prepare(clients)
    for client in some(clients):
        together, alone = points.of(client), points.make(client)
        assert together.points.tobytes() == alone.points.tobytes()
        assert together.weights.tobytes() == alone.weights.tobytes()


def test_client_whose_clusters_are_all_small_has_no_means() -> None:
    for rows in (np.array([[1.0, 2.0]]), np.array([[0.0, 0.0], [50.0, 50.0]])):
        for points in (
            SeededMeans(n_clusters=3, min_cluster_size=2, seed=0),
            SteppedMeans(centers=np.array([[0.0, 1.0], [49.0, 50.0], [7.0, 7.0]]), min_cluster_size=2),
        ):
            found = points.of(ClientData(rows))
            assert found.points.shape == (0, 2) and found.weights.shape == (0,)


# --- merges ---


@pytest.mark.parametrize("n_features", [1, 2, 11])
@pytest.mark.parametrize("n_clients", [1, 3, 40])
def test_summed_merge_is_the_gathered_one_from_the_same_start(n_features: int, n_clients: int) -> None:
    clients = mixed(n_features, sizes=[30] * n_clients)
    rows = np.concatenate(clients)
    ranges = Ranges(rows.min(axis=0), rows.max(axis=0), 30)
    start = np.random.default_rng(1).uniform(-9, 9, size=(6, n_features))
    points = SteppedMeans(centers=start + 0.5, min_cluster_size=2)
    held = union([points.of(ClientData(own)) for own in clients])
    summed, _ = driven(summed_kmeans(points, start, ranges, max_iter=30, tol=0.0), clients)
    np.testing.assert_allclose(summed, lloyd(*held, start[None]).centers, rtol=0, atol=1e-9)


# --- whole runs ---


def spread(merge: str, protocol: str = "plain") -> dict[str, Any]:
    return {"merge": merge, "protocol": protocol, "max_iter": 4}


MERGES = [
    pytest.param(spread("summed"), id="summed"),
    pytest.param(spread("gathered"), id="gathered"),
    pytest.param(spread("summed", "masked"), id="summed-masked"),
]


@pytest.mark.parametrize(
    "cohorts",
    [pytest.param(None, id="all"), pytest.param([[0, 1, 2], [3, 4, 5], [0, 2, 4, 5]], id="cohorts")],
)
@pytest.mark.parametrize(("protocol", "tolerance"), [("plain", 1e-9), ("masked", 1e-6)])
@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.few(3)
def test_history_is_the_oracles_from_a_given_start(
    protocol: str, tolerance: float, p: int, cohorts: list[list[int]] | None
) -> None:
    if protocol == "masked" and cohorts is not None:
        cohorts = [[0, 1, 2, 3], [1, 2, 3, 4, 5]]
    clients = mixed(2, sizes=(30, 25, 3, 1, 40, 12))
    start = np.random.default_rng(7).uniform(-9, 9, size=(6, 2))
    expected = oracle.fit(clients, start, 5, p, cohorts)
    model = FKM(6, min_cluster_size=p, init=start, max_iter=5, protocol=protocol, cohorts=cohorts)
    for one, other in some(zip(model.fit(clients).history_, expected, strict=True)):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


def test_history_is_the_oracles_in_many_features() -> None:
    clients = mixed(11, sizes=(30, 25, 20))
    start = np.random.default_rng(7).uniform(-9, 9, size=(4, 11))
    model = FKM(4, init=start, max_iter=3, protocol="plain").fit(clients)
    for one, other in some(zip(model.history_, oracle.fit(clients, start, 3), strict=True)):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)


@settings(max_examples=examples(30))
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 3))
def test_history_is_the_oracles_whatever_the_data(seed: int, k: int, p: int) -> None:
    rng = np.random.default_rng(seed)
    clients = [np.round(rng.normal(size=(n, 1)), 1) for n in rng.integers(1, 9, size=3)]
    # Rounded rows and odd centers: no row is as near to one center as to another.
    start = rng.normal(size=(k, 1)) * np.pi
    if k > sum(map(len, clients)):
        return
    model = FKM(k, min_cluster_size=p, init=start, max_iter=1, protocol="plain").fit(clients)
    expected = oracle.fit(clients, start, 1, p)
    np.testing.assert_allclose(model.history_[1], expected[1], rtol=0, atol=1e-9)


def test_gathered_rounds_rest_under_the_oracles_merge() -> None:
    clients, _ = papers_data(3, 1.0)
    model = FKM(16, merge="gathered", protocol="plain", max_iter=3).fit(clients)
    for before, after in some(pairwise(model.history_)):
        answers = [oracle.round_answer(rows, before, 2) for rows in clients]
        np.testing.assert_allclose(oracle.merge(answers, after), after, rtol=0, atol=1e-9)


def test_gathered_shows_each_clients_answer_as_it_is() -> None:
    clients = mixed(2)
    model = FKM(6, merge="gathered", protocol="plain", max_iter=1).fit(clients)
    seen = [one for one in opened(model.transcript_).sums if type(one.question).__name__ == "GatheredPoints"]
    question: Any = seen[-1].question
    for i, rows in some(enumerate(clients)):
        means, sizes = oracle.round_answer(rows, model.history_[0], 2)
        answer: Any = seen[-1].answers[i]
        assert answer["weight"].tolist() == sizes + [0.0] * (question.most - len(sizes))
        np.testing.assert_allclose(answer["point"][: len(sizes)], means, rtol=0, atol=1e-12)
        assert not answer["point"][len(sizes) :].any()


def test_plain_and_masked_sums_give_the_same_centers() -> None:
    clients, _ = papers_data(1, 0.1)
    plain, masked = (FKM(16, protocol=name, random_state=4).fit(clients) for name in ("plain", "masked"))
    np.testing.assert_allclose(masked.history_, plain.history_, rtol=0, atol=1e-6)


@pytest.mark.parametrize("words", MERGES)
def test_order_of_the_clients_changes_nothing(words: dict[str, Any]) -> None:
    clients = mixed(2, sizes=(30, 25, 20, 9, 40))

    def fit(order: np.ndarray) -> np.ndarray:
        rows = np.concatenate([clients[i] for i in order])
        names = np.concatenate([[f"site {i}"] * len(clients[i]) for i in order])
        return np.stack(FKM(5, **words).fit(rows, groups=names).history_)

    np.testing.assert_array_equal(fit(np.arange(5)), fit(np.array([3, 1, 4, 0, 2])))


@pytest.mark.parametrize("merge", ["summed", "gathered"])
def test_order_in_a_list_changes_no_cluster(merge: str) -> None:
    # Clients are named by position here: their draws must not hang on it.
    clients = mixed(2, sizes=(30, 25, 20, 9, 40))
    one, other = (FKM(5, **spread(merge)).fit(own).history_ for own in (clients, clients[::-1]))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)


@pytest.mark.parametrize("words", MERGES)
@pytest.mark.few(1)
def test_run_repeats_and_changes_with_the_random_state(words: dict[str, Any]) -> None:
    clients = mixed(2, sizes=(30, 25, 20, 9, 40))

    def start(seed: int) -> np.ndarray:
        return FKM(5, random_state=seed, **words).fit(clients).history_[0]

    np.testing.assert_array_equal(start(1), start(1))
    assert any(not np.array_equal(start(1), start(seed)) for seed in (2, 3, 4))


def test_gathered_centers_keep_their_numbers() -> None:
    # Each merge starts anew, and numbers clusters anew: movements must be of the same cluster.
    clients, _ = papers_data(2, 10.0)
    model = FKM(16, merge="gathered", protocol="plain").fit(clients)
    for before, after in some(pairwise(model.history_[1:])):
        assert np.linalg.norm(after - before, axis=1).max() < 2.5


# --- stop rules, restarts, cohorts ---


@pytest.mark.parametrize("words", MERGES)
@pytest.mark.few(1)
def test_tolerance_zero_runs_all_rounds_and_a_tolerance_stops(words: dict[str, Any]) -> None:
    clients = mixed(2, sizes=(30, 25, 20, 9, 40))
    all_rounds = FKM(4, **{**words, "max_iter": 25}).fit(clients)
    assert all_rounds.n_iter_ == 25 and len(all_rounds.history_) == 26 and not all_rounds.converged_
    stopped = FKM(4, **{**words, "max_iter": 25, "tol": 1e-3}).fit(clients)
    assert stopped.converged_ and stopped.n_iter_ < 25
    assert np.linalg.norm(stopped.history_[-1] - stopped.history_[-2]) < 1e-3
    later = FKM(4, **{**words, "max_iter": 25, "tol": 1e-3, "min_iter": 20}).fit(clients)
    assert later.n_iter_ == 20


@pytest.mark.parametrize("merge", ["summed", "gathered"])
def test_restart_of_the_lowest_inertia_is_kept(merge: str) -> None:
    clients = mixed(2, sizes=(30, 25, 20, 9, 40))
    model = FKM(5, merge=merge, n_init=4, protocol="plain", max_iter=2).fit(clients)
    found = [
        (float(one.total["inertia"][0]), one.question.centers)
        for one in opened(model.transcript_).sums
        if type(one.question).__name__ == "Inertia"
    ]
    assert len(found) == 4
    assert model.inertia_ == min(value for value, _ in found)
    np.testing.assert_array_equal(model.cluster_centers_, min(found, key=lambda one: one[0])[1])


def test_cohorts_are_asked_and_the_start_asks_all() -> None:
    clients = mixed(2, sizes=(30, 25, 20, 9, 40, 30))
    cohorts = [[0, 1, 2, 3], [2, 3, 4, 5]]
    model = FKM(4, cohorts=cohorts, max_iter=4, protocol="masked").fit(clients)
    asked = model.transcript_.of(Asked)
    others = [record.clients for record in asked if record.purpose != "round"]
    assert set(others) == {tuple(range(6))}
    rounds = [record.clients for record in asked if record.purpose == "round"]
    changes = [members for before, members in pairwise([(), *rounds]) if before != members]
    assert changes == [tuple(cohorts[t % 2]) for t in range(4)]


def test_gathered_cohort_with_few_means_moves_what_has_some() -> None:
    far = np.array([[0.0, 0.0], [30.0, 0.0], [0.0, 30.0]])
    rng = np.random.default_rng(0)
    clients = [far[i] + rng.normal(size=(12, 2)) for i in (0, 1, 2)]
    model = FKM(3, merge="gathered", init=far, cohorts=[[1], [0, 2]], max_iter=2, protocol="plain")
    model.fit(clients)
    np.testing.assert_allclose(
        model.history_[1], [far[0], clients[1].mean(axis=0), far[2]], rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(model.cluster_centers_, [one.mean(axis=0) for one in clients], atol=1e-12)


@pytest.mark.parametrize("merge", ["summed", "gathered"])
def test_cohort_without_means_moves_nothing(merge: str) -> None:
    clients = [np.random.default_rng(0).normal(size=(12, 2)), np.array([[5.0, 5.0]])]
    model = FKM(2, merge=merge, init=clients[0][:2], cohorts=[[1]], max_iter=2, protocol="plain").fit(clients)
    np.testing.assert_array_equal(model.history_[2], clients[0][:2])


@pytest.mark.parametrize("merge", ["summed", "gathered"])
def test_fewer_means_than_clusters_is_an_error_that_names_the_remedy(merge: str) -> None:
    clients = [np.array([[0.0, 0.0], [0.1, 0.0], [9.0, 9.0]]), np.array([[1.0, 1.0]])]
    message = r"[01] local centroids .*n_samples=4.*n_clusters=3; take fewer n_clusters, a smaller min_clus"
    with pytest.raises(DataError, match=message):
        FKM(3, merge=merge, protocol="plain").fit(clients)
    assert FKM(3, merge=merge, min_cluster_size=1, protocol="plain").fit(clients).cluster_centers_.shape == (
        3,
        2,
    )


# --- what a run asks ---


@pytest.mark.parametrize(
    "words",
    [
        *MERGES,
        pytest.param({"protocol": "masked", "clients_per_round": 5, "max_iter": 4}, id="drawn"),
        pytest.param({"protocol": "masked", "init": "kfed", "max_iter": 2}, id="other-start"),
        pytest.param({"protocol": "plain", "n_init": 2, "tol": 1e-3}, id="restarts"),
    ],
)
def test_sums_are_announced(words: dict[str, Any]) -> None:
    clients, asks = mixed(2, sizes=(30, 25, 20, 18, 40, 30)), list[Ask]()

    def watch(index: int, ask: Ask, total: Total) -> None:
        asks.append(ask)

    model = FKM(4, **words)
    model.fit_clients(gather(clients), watch=watch)
    assert len(asks) <= model.transcript_.configuration.terms.max_sums
    for before, ask in pairwise(asks):
        assert ask.cohort in before.upcoming or (ask.purpose == "score" and "tol" in words)


# --- quality ---


def ari(clients: Clients, labels: list[np.ndarray], centers: np.ndarray) -> float:
    found = assign(np.concatenate(clients), centers)
    return float(adjusted_rand_score(np.concatenate(labels), found))


@pytest.mark.parametrize("beta", [0.1, 1.0, 10.0])
@pytest.mark.few(1)
def test_as_good_as_central_k_means_on_the_papers_data(beta: float) -> None:
    def mean(fit: Callable[[Clients, int], np.ndarray]) -> float:
        return float(np.mean([ari(*papers_data(s, beta), fit(papers_data(s, beta)[0], s)) for s in range(3)]))

    model = KMeans(16, n_init=10)
    central = mean(lambda own, s: model.set_params(random_state=s).fit(np.concatenate(own)).cluster_centers_)
    for words in (spread("gathered") | {"max_iter": 10}, spread("summed") | {"max_iter": 10}):
        found = mean(lambda own, s, w=words: FKM(16, random_state=s, **w).fit(own).cluster_centers_)  # type: ignore[misc]
        assert found == pytest.approx(central, abs=0.01)


def test_clients_of_1_4_7_10_and_16_clusters() -> None:
    rng = np.random.default_rng(0)
    rows, labels = np.repeat(GRID, 50, axis=0) + rng.normal(size=(800, 2)), np.repeat(np.arange(16), 50)
    parts = by_cluster(labels, [1, 4, 7, 10, 16], rng)
    clients = [rows[own] for own in parts]
    model = FKM(16, protocol="masked").fit(clients)
    assert ari(clients, [labels[own] for own in parts], model.cluster_centers_) > 0.9
