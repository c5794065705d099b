"""A run that did not converge says so, and what helps; runs of a fixed number of rounds say nothing."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

import privfed
from privfed import (
    FKM,
    KFED,
    Box,
    DPKMeans,
    DWFKMeans,
    EWFKMeans,
    FederatedFuzzyCMeans,
    FederatedMiniBatchKMeans,
    Privacy,
    WFKMeans,
    select_n_clusters,
)
from privfed.algorithms.rounds import cycles
from privfed.data import partition
from tests.reference import fuzzy_reference as oracle

Clients = list[np.ndarray]

PRIVACY = Privacy(
    epsilon=2.0, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-20, 20), noise_seed=0
)

ROUNDS: list[Any] = [
    *(DWFKMeans, EWFKMeans, WFKMeans, FKM, KFED, FederatedMiniBatchKMeans),
    FederatedFuzzyCMeans,
]


def model_of(kind: Any, **words: Any) -> Any:
    extra = {"averaging": "weighted", "local_iter": 1} if kind is FederatedFuzzyCMeans else {}
    return kind(
        **{"n_clusters": 3, "init": "random", "protocol": "plain", "random_state": 3, **extra, **words}
    )


@pytest.fixture(scope="module")
def going_round() -> Clients:
    """Clients among which DWF k-means with five local steps goes back and forth between two states."""
    rows = load_iris().data
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    return [rows[part] for part in partition(rows, 10, "iid", np.random.default_rng(0))]


@pytest.mark.parametrize("kind", ROUNDS)
def test_a_run_that_was_cut_off_says_so(kind: Any, blobs: Clients) -> None:
    with pytest.warns(ConvergenceWarning) as caught:
        model = model_of(kind, max_iter=1, tol=1e-9).fit(blobs)
    (one,) = caught
    assert model.converged_ is False and model.n_iter_ == 1
    assert str(one.message).startswith(f"{kind.__name__}(n_clusters=3) did not converge in 1 round: ")
    assert "raise max_iter=1, or raise tol=1e-09 (" in str(one.message)
    # It points to the line that called, not into the library.
    assert one.filename == __file__


@pytest.mark.parametrize("kind", ROUNDS)
def test_a_run_that_came_to_rest_says_nothing(kind: Any, blobs: Clients) -> None:
    model = model_of(kind, max_iter=300, tol=1e-3).fit(blobs)
    assert model.converged_ is True and model.n_iter_ < 300


@pytest.mark.parametrize("kind", ROUNDS)
def test_a_run_of_a_fixed_number_of_rounds_says_nothing(kind: Any, blobs: Clients) -> None:
    model = model_of(kind, max_iter=2, tol=0).fit(blobs)
    assert model.converged_ is None and model.n_iter_ == 2


@pytest.mark.parametrize("kind", [DPKMeans, DWFKMeans, FederatedMiniBatchKMeans, FederatedFuzzyCMeans])
def test_rounds_under_privacy_are_fixed(kind: Any, blobs: Clients) -> None:
    words = {"local_iter": 1} if kind is DWFKMeans else {}
    words |= {"averaging": "weighted", "local_iter": 1} if kind is FederatedFuzzyCMeans else {}
    model = kind(3, privacy=PRIVACY, protocol="plain", **words).fit(blobs)
    assert model.converged_ is None


def test_a_server_that_goes_on_with_private_centers_says_it_once(blobs: Clients, tmp_path: Path) -> None:
    with pytest.warns(ConvergenceWarning, match=r"KFED\(n_clusters=3\) did not converge") as caught:
        model = KFED(3, privacy=PRIVACY, protocol="plain", init="random", max_iter=1, tol=1e-9).fit(blobs)
    assert len(caught) == 1 and model.converged_ is False
    model.save(tmp_path / "model.npz")
    assert privfed.load(tmp_path / "model.npz").converged_ is False


def test_a_run_whose_centers_go_round_ends_there_and_says_so(going_round: Clients) -> None:
    with pytest.warns(ConvergenceWarning, match="go round in a cycle") as caught:
        model = DWFKMeans(5, protocol="plain", max_iter=60).fit(going_round)
    message = str(caught[0].message)
    assert model.converged_ is False and model.n_iter_ < 20
    assert "max_iter" not in message and "local_iter=1" in message
    # Further rounds change nothing: what comes next is what came a period before.
    (period,) = [
        n
        for n in range(2, model.n_iter_ // 2 + 1)
        if np.allclose(model.history_[-n:], model.history_[-2 * n : -n], atol=1e-6)
    ][:1]
    with pytest.warns(ConvergenceWarning):
        again = DWFKMeans(5, init=model.history_[-1 - period], protocol="plain", max_iter=60).fit(going_round)
    near = np.linalg.norm(np.array(model.history_[-period:]) - again.cluster_centers_, axis=(1, 2))
    assert near.min() < 1e-6
    # The remedy helps; where a run is to do all its rounds, it does them.
    assert DWFKMeans(5, protocol="plain", max_iter=60, local_iter=1).fit(going_round).converged_
    assert DWFKMeans(5, protocol="plain", max_iter=60, tol=0).fit(going_round).n_iter_ == 60


def test_momentum_that_passes_a_state_once_more_is_no_cycle() -> None:
    turning = [np.array([[np.cos(angle), np.sin(angle)]]) for angle in np.arange(9) * np.pi / 2]
    assert not cycles(turning[:5], 1e-6) and not cycles(turning[:7], 1e-6) and cycles(turning[:8], 1e-6)
    assert not cycles([*turning[:7], 2.0 * turning[7]], 1e-6)


def test_changing_cohorts_are_told_of(blobs: Clients) -> None:
    with pytest.warns(ConvergenceWarning, match="other clients") as caught:
        DWFKMeans(3, protocol="plain", max_iter=30, clients_per_round=2).fit(blobs)
    message = str(caught[0].message)
    assert "patience=10 ends it after round" in message and "clients_per_round=None" in message
    with pytest.warns(ConvergenceWarning, match=r"raise tol=1e-06 .*cohorts=None"):
        model_of(FederatedMiniBatchKMeans, max_iter=3, tol=1e-6, cohorts=[[0], [1]] * 2).fit(blobs)


def test_drawn_batches_are_told_of(blobs: Clients) -> None:
    with pytest.warns(ConvergenceWarning, match="batch_size=None"):
        model_of(FederatedMiniBatchKMeans, max_iter=30, tol=1e-9, batch_size=3, client_learning_rate=0.5).fit(
            blobs
        )


def test_a_cycle_of_fuzzy_centers_is_told_of(tmp_path: Path) -> None:
    clients = oracle.motivational(0, "swapped")
    with pytest.warns(ConvergenceWarning, match="cycle") as caught:
        model = FederatedFuzzyCMeans(6, averaging="weighted", init="random", protocol="plain").fit(clients)
    assert model.cycled_ and model.converged_ is False
    assert "local_iter=1" in str(caught[0].message) and "max_iter" not in str(caught[0].message)
    model.save(tmp_path / "model.npz")
    loaded = privfed.load(tmp_path / "model.npz")
    assert loaded.cycled_ is True and loaded.remedy() == model.remedy() != ""


@pytest.mark.parametrize(("words", "ended"), [({"tol": 0}, None), ({"max_iter": 1}, False), ({}, True)])
def test_a_saved_model_keeps_it(words: Any, ended: bool | None, blobs: Clients, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        # Whether it warns is tested above.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = DWFKMeans(3, **{"init": "random", "protocol": "plain", "max_iter": 40, **words}).fit(blobs)
    model.save(tmp_path / "model.npz")
    loaded = privfed.load(tmp_path / "model.npz")
    assert loaded.converged_ is model.converged_ is ended
    assert loaded.remedy() == model.remedy()


def test_a_selection_marks_the_numbers_that_did_not_converge(blobs: Clients) -> None:
    words = {"protocol": "plain", "init": "random", "max_iter": 2, "tol": 1e-9}
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 rounds"):
        found = select_n_clusters(blobs, range(2, 5), estimator="dwf", **words)
    ended = [row.converged for row in found.table]
    assert False in ended
    for row, line in zip(found.table, str(found).splitlines()[1:], strict=False):
        assert ("not converged" in line) is (row.converged is False)
        assert ("max_iter=2" in row.remedy) is (row.converged is False)
    assert [row["converged"] for row in found.to_dict()["table"]] == ended
