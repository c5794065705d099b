"""Federated mini-batch k-means: the literal implementation's centroids in every round, and its own laws."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from privfed import Box, DWFKMeans
from privfed.core.record.records import Asked
from privfed.core.roles.conversation import Ask, Total
from privfed.core.roles.engine import client_generator
from privfed.errors import ArgumentError, ProtocolError
from privfed.estimators.local_steps import FederatedMiniBatchKMeans
from privfed.federation.clients import gather
from tests.opened import opened
from tests.reference import minibatch_reference as oracle

Clients = list[np.ndarray]
DOMAIN = Box(0.0, 6.0)
SEED = 7


def papers_clients(scale: float = 0.2, seed: int = 1) -> Clients:
    """Return section 2.1's 50 clients of 10 rows, each around one of the means 1 to 5."""
    rng = np.random.default_rng(seed)
    return [rng.normal(1 + i % 5, scale, size=(10, 1)).clip(0, 6) for i in range(50)]


def start_in_the_domain(k: int = 5, d: int = 1, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 6, size=(k, d))


def schedule(n_clients: int, a_round: int, rounds: int, seed: int = 8) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [sorted(rng.choice(n_clients, a_round, replace=False).tolist()) for _ in range(rounds)]


def new_positions(d: int, low: float = 0.0, high: float = 6.0) -> Iterator[np.ndarray]:
    """Yield what the algorithm draws: its generator's first use, where the start is an array."""
    rng = np.random.default_rng(SEED)
    while True:
        yield rng.uniform(low, high, size=d)


def of_client(t: int, i: int) -> np.random.Generator:
    """Return the generator of a client in a round: sum 0 is the range sum, round t is sum t."""
    return client_generator(SEED, str(i), t)


def compare(
    clients: Clients,
    start: np.ndarray,
    *,
    cohorts: list[list[int]] | None = None,
    protocol: str = "plain",
    tolerance: float = 1e-9,
    **words: Any,
) -> tuple[FederatedMiniBatchKMeans, list[tuple[int, int]]]:
    """Fit ours and the oracle alike, compare every round; return ours and which clusters were moved."""
    words = {"reassign_after": None, "max_iter": 12, **words}
    model = FederatedMiniBatchKMeans(
        len(start),
        init=start,
        cohorts=cohorts,
        protocol=protocol,
        domain=DOMAIN,
        random_state=SEED,
        **words,
    ).fit(clients)
    names = {
        "max_iter": "rounds",
        "client_learning_rate": "beta",
        "learning_rate": "alpha",
    }
    expected, moved = oracle.fit(
        clients,
        start,
        schedule=cohorts,
        generators=of_client,
        positions=new_positions(start.shape[1]),
        **{names.get(name, name): value for name, value in words.items()},
    )
    assert len(model.history_) == len(expected) == model.n_iter_ + 1
    for t, (one, other) in enumerate(zip(model.history_, expected, strict=True)):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance, err_msg=f"round {t}")
    return model, moved


# --- the authors' trajectories ---

SETTINGS = [
    pytest.param({}, None, id="figure-1-all-clients"),
    pytest.param({"momentum": 0.5}, 5, id="figure-1"),
    pytest.param({"momentum": 0.5}, 1, id="figure-1-one-client-a-round"),
    pytest.param({"momentum": 0.5, "epochs": 10}, None, id="figure-2a"),
    pytest.param({"momentum": 0.5, "epochs": 10, "client_learning_rate": 0.1}, 5, id="figure-2b"),
    pytest.param({"momentum": 0.5, "epochs": 5, "client_learning_rate": 0.2}, 15, id="figure-3b"),
    pytest.param(
        {"learning_rate": 0.5, "momentum": 0.5, "epochs": 5, "client_learning_rate": 0.5},
        5,
        id="their-script",
    ),
    pytest.param({"learning_rate": 0.3}, 5, id="paper-without-momentum"),
]


@pytest.mark.parametrize(("words", "a_round"), SETTINGS)
@pytest.mark.parametrize("scale", [0.2, 0.5])
@pytest.mark.few(4)
def test_history_is_the_oracles(words: dict[str, Any], a_round: int | None, scale: float) -> None:
    cohorts = None if a_round is None else schedule(50, a_round, 12)
    compare(papers_clients(scale), start_in_the_domain(), cohorts=cohorts, **words)


@pytest.mark.parametrize("epochs", [1, 10])
@pytest.mark.parametrize("rate", [1.0, 0.1])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.few(2)
def test_small_clusters_are_drawn_anew_where_the_oracle_does(
    epochs: int, rate: float, momentum: float
) -> None:
    words = {"epochs": epochs, "client_learning_rate": rate, "momentum": momentum}
    start = np.array([[0.1], [0.2], [0.3], [2.0], [5.5]])
    cohorts = schedule(50, 3, 40)
    _, moved = compare(
        papers_clients(), start, cohorts=cohorts, max_iter=40, reassign_after=3, reassign_min=0.2, **words
    )
    assert len(moved) >= 5


@pytest.mark.slow
def test_papers_rule_for_small_clusters_over_many_rounds() -> None:
    # One cluster has no row. It is drawn anew 20 rounds later, and comes to lie among rows.
    start = np.array([[1.0], [2.0], [3.0], [4.4], [30.0]])
    cohorts = schedule(50, 10, 30)
    _, moved = compare(papers_clients(), start, cohorts=cohorts, max_iter=30, reassign_after=20, momentum=0.5)
    assert moved == [(20, 4)]


@pytest.mark.parametrize("batch_size", [1, 3, 9, 10])
@pytest.mark.parametrize(
    "words",
    [{"epochs": 1}, {"epochs": 4, "client_learning_rate": 0.3, "momentum": 0.5}],
    ids=["one-epoch", "epochs"],
)
@pytest.mark.few(2)
def test_history_is_the_oracles_in_batches(batch_size: int, words: dict[str, Any]) -> None:
    cohorts = schedule(50, 10, 12)
    compare(papers_clients(0.5), start_in_the_domain(), cohorts=cohorts, batch_size=batch_size, **words)


@pytest.mark.parametrize("n_features", [2, 8, 9, 20])
@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.few(2)
def test_any_number_of_features_and_rows(n_features: int, batch_size: int | None) -> None:
    rng = np.random.default_rng(n_features)
    clients = [rng.uniform(0, 6, size=(n, n_features)) for n in (1, 2, 17, 40, 9)]
    words: dict[str, Any] = {"epochs": 3, "client_learning_rate": 0.5, "momentum": 0.5, "max_iter": 6}
    compare(
        clients,
        start_in_the_domain(4, n_features),
        batch_size=batch_size,
        reassign_after=2,
        reassign_min=0.2,
        **words,
    )


@pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("batch_size", [None, 4])
def test_masked_and_plain_sums_give_the_same_centers(blobs: Clients, batch_size: int | None) -> None:
    words: dict[str, Any] = {
        "epochs": 2,
        "batch_size": batch_size,
        "client_learning_rate": 0.5,
        "momentum": 0.5,
        "init": "random",
        "clients_per_round": 6,
        "max_iter": 4,
        "reassign_after": 2,
        "reassign_min": 0.3,
        "domain": Box(-5, 15, max_rows=40),
    }
    plain, masked = (FederatedMiniBatchKMeans(4, protocol=p, **words).fit(blobs) for p in ("plain", "masked"))
    np.testing.assert_allclose(masked.history_, plain.history_, rtol=0, atol=1e-6)
    assert masked.inertia_ == pytest.approx(plain.inertia_, rel=1e-6)
    # Two exchanges a sum, and three to set up: each cohort was named one sum ahead.
    assert masked.federation_.traffic.exchanges == 3 + 2 * len(masked.transcript_.totals())


# --- the server's step ---

ONE_ROW: dict[str, Any] = {
    "n_clusters": 1,
    "init": np.zeros((1, 1)),
    "protocol": "plain",
    "max_iter": 3,
    "reassign_after": None,
}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param({}, [0.0, 8.0, 8.0, 8.0], id="full-step"),
        pytest.param({"learning_rate": 0.5}, [0.0, 4.0, 6.0, 7.0], id="half-steps"),
        pytest.param({"client_learning_rate": 0.5}, [0.0, 4.0, 6.0, 7.0], id="half-steps-of-clients"),
        pytest.param({"momentum": 0.5}, [0.0, 4.0, 8.0, 10.0], id="momentum"),
        pytest.param({"momentum": 0.5, "learning_rate": 0.5}, [0.0, 2.0, 4.5, 6.625], id="both"),
    ],
)
def test_server_step_by_hand(words: dict[str, Any], expected: list[float]) -> None:
    model = FederatedMiniBatchKMeans(**ONE_ROW, **words).fit([np.full((1, 1), 8.0)])
    assert [float(centers[0, 0]) for centers in model.history_] == expected


@pytest.mark.parametrize("n_features", [1, 2, 11])
def test_one_epoch_of_all_clients_is_lloyds_algorithm(n_features: int, protocol: str) -> None:
    rng = np.random.default_rng(n_features)
    clients = [rng.normal(size=(30, n_features)) for _ in range(10)]
    words: dict[str, Any] = {"init": rng.normal(size=(6, n_features)), "max_iter": 8, "tol": 0.0}
    ours = FederatedMiniBatchKMeans(6, reassign_after=None, protocol=protocol, **words).fit(clients)
    lloyd = DWFKMeans(6, local_iter=1, protocol=protocol, **words).fit(clients)
    np.testing.assert_allclose(ours.history_, lloyd.history_, rtol=0, atol=1e-9)


@pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning")
def test_clusters_without_rows_stay_unless_they_are_drawn_anew() -> None:
    start = np.array([[0.0], [1.0], [2.0], [3.0], [5.9]])
    clients = [np.full((4, 1), 1.0), np.full((4, 1), 2.0), np.full((4, 1), 3.0)]
    words: dict[str, Any] = {"init": start, "protocol": "plain", "domain": DOMAIN, "max_iter": 10}
    stays = FederatedMiniBatchKMeans(5, reassign_after=None, **words).fit(clients)
    assert all((centers == start).all() for centers in stays.history_)
    moves = FederatedMiniBatchKMeans(5, reassign_after=4, **words).fit(clients)
    changed = [(before != after).ravel().tolist() for before, after in pairwise(moves.history_)]
    assert not np.any(changed[:3])
    assert changed[3] == [True, False, False, False, True]
    assert np.all((np.stack(moves.history_) >= 0) & (np.stack(moves.history_) <= 6))


def test_cluster_of_no_rows_in_one_round_only_is_not_small_for_long() -> None:
    # Each round asks the other client: no cluster is ever small twice in a row.
    clients = [np.full((4, 1), 1.0), np.full((4, 1), 3.0)]
    model = FederatedMiniBatchKMeans(
        2, init=np.array([[1.0], [3.0]]), cohorts=[[0], [1]], reassign_after=2, protocol="plain", max_iter=9
    ).fit(clients)
    np.testing.assert_array_equal(model.cluster_centers_, [[1.0], [3.0]])


def test_tolerance_is_strict_and_zero_runs_all_rounds() -> None:
    words = {**ONE_ROW, "learning_rate": 0.5, "max_iter": 30}
    clients = [np.full((1, 1), 8.0)]
    assert FederatedMiniBatchKMeans(tol=1.0, **words).fit(clients).n_iter_ == 4
    assert FederatedMiniBatchKMeans(tol=np.nextafter(1.0, 2.0), **words).fit(clients).n_iter_ == 3
    last = FederatedMiniBatchKMeans(**words).fit(clients)
    assert last.n_iter_ == 30 and not last.converged_


@pytest.mark.parametrize("init", ["random", "coreset", "kfed"])
def test_restart_of_the_lowest_inertia_is_kept(blobs: Clients, init: str, protocol: str) -> None:
    model = FederatedMiniBatchKMeans(5, init=init, n_init=4, max_iter=3, protocol=protocol).fit(blobs)
    found = [seen for seen in opened(model.transcript_).sums if seen.purpose == "score"]
    scores = [float(seen.total["inertia"][0]) for seen in found]
    assert len(scores) == 4 and model.inertia_ == min(scores)
    best: Any = found[int(np.argmin(scores))].question
    np.testing.assert_array_equal(model.cluster_centers_, best.centers)


# --- cohorts, order, repetition ---


def test_one_client_a_round_is_refused_where_the_sum_would_be_that_client(blobs: Clients) -> None:
    with pytest.raises((ArgumentError, ProtocolError), match="client"):
        FederatedMiniBatchKMeans(3, clients_per_round=1, protocol="masked").fit(blobs)


VARIANTS = [
    pytest.param({"clients_per_round": 6, "n_init": 2}, id="drawn"),
    pytest.param({"cohorts": [[0, 1, 2, 3, 4, 5]], "tol": 0.05, "init": "kfed"}, id="schedule"),
    pytest.param({"batch_size": 4, "epochs": 2, "init": "random", "n_init": 3}, id="batches"),
]


@pytest.mark.parametrize("words", VARIANTS)
def test_run_keeps_to_its_number_of_sums_and_names_each_cohort_ahead(
    blobs: Clients, protocol: str, words: dict[str, Any]
) -> None:
    asks: list[Ask] = []

    def watch(index: int, ask: Ask, total: Total) -> None:
        asks.append(ask)

    model = FederatedMiniBatchKMeans(4, protocol=protocol, **{"max_iter": 4, **words})
    model.fit_clients(gather(blobs), watch=watch)
    assert len(asks) <= model.transcript_.configuration.terms.max_sums
    for before, after in pairwise(asks):
        # A run that may stop at any round cannot foresee its score.
        if model.tol == 0 or after.purpose != "score":
            assert after.cohort in before.upcoming, (before.purpose, after.purpose)


def test_drawn_cohorts_have_the_wanted_size_and_change(blobs: Clients) -> None:
    model = FederatedMiniBatchKMeans(3, clients_per_round=4, max_iter=6, protocol="plain").fit(blobs)
    rounds = [record.clients for record in model.transcript_.of(Asked) if record.purpose == "round"]
    assert {len(members) for members in rounds} == {4}
    assert len(set(rounds)) > 2


@pytest.mark.parametrize("words", [{}, {"batch_size": 3, "epochs": 2, "clients_per_round": 6}])
def test_order_of_the_clients_changes_nothing(blobs: Clients, words: dict[str, Any]) -> None:
    def fit(order: np.ndarray) -> np.ndarray:
        groups = np.concatenate([np.full(len(blobs[i]), f"site {i}") for i in order])
        rows = np.concatenate([blobs[i] for i in order])
        model = FederatedMiniBatchKMeans(4, max_iter=4, protocol="plain", **words)
        return np.stack(model.fit(rows, groups=groups).history_)

    one, other = fit(np.arange(10)), fit(np.random.default_rng(6).permutation(10))
    np.testing.assert_array_equal(one, other)


def test_same_random_state_repeats_the_run_and_another_draws_other_batches(
    blobs: Clients, protocol: str
) -> None:
    def fit(state: Any) -> np.ndarray:
        model = FederatedMiniBatchKMeans(
            4, batch_size=3, init=blobs[0][:4], max_iter=3, random_state=state, protocol=protocol
        )
        return np.stack(model.fit(blobs).history_)

    np.testing.assert_array_equal(fit(4), fit(4))
    assert not np.array_equal(fit(4), fit(5))


def test_batches_differ_from_round_to_round() -> None:
    # From the same centers the same batches would give the same movement.
    rows = np.random.default_rng(0).normal(size=(40, 2))
    words: dict[str, Any] = {"batch_size": 5, "learning_rate": 1e-12, "init": rows[:3], "protocol": "plain"}
    history = FederatedMiniBatchKMeans(3, max_iter=3, **words).fit([rows]).history_
    steps = [after - before for before, after in pairwise(history)]
    assert not np.allclose(steps[0], steps[1], rtol=1e-2, atol=0)
