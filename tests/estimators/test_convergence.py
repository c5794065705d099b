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
from privfed.algorithms.rounds import stops
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


def test_a_run_whose_centers_go_round_ends_on_a_plateau(going_round: Clients) -> None:
    model = DWFKMeans(5, protocol="plain").fit(going_round)
    assert (model.stopped_by_, model.n_iter_, model.converged_) == ("plateau", 20, True)
    # Further rounds gain nothing.
    with pytest.warns(ConvergenceWarning, match="plateau=5.*local_iter=1"):
        longer = DWFKMeans(5, protocol="plain", plateau=None).fit(going_round)
    assert (longer.stopped_by_, longer.n_iter_, longer.converged_) == ("max_iter", 300, False)
    assert model.inertia_ is not None and longer.inertia_ is not None
    assert model.inertia_ <= 1.001 * longer.inertia_
    # The remedy helps; where a run is to do all its rounds, it does them.
    settled = DWFKMeans(5, protocol="plain", max_iter=60, local_iter=1).fit(going_round)
    assert settled.converged_ and settled.stopped_by_ == "tol"
    assert DWFKMeans(5, protocol="plain", max_iter=60, tol=0).fit(going_round).n_iter_ == 60


def test_a_plateau_is_where_movements_fall_no_more() -> None:
    falling = [2.0**-n for n in range(60)]
    assert not any(stops(falling[:n], tol=1e-30, quiet=5) for n in range(1, 60))
    level = [*falling[:20], *[1e-6] * 30]
    ends = [n for n in range(1, 50) if stops(level[:n], tol=1e-30, quiet=5)]
    assert ends[0] == 30 and stops(level[:30], tol=1e-30, quiet=5) == "plateau"
    # No run is ended by it before four windows, nor where all rounds are wanted or the window is 0.
    assert not any(stops([1.0] * n, tol=1e-30, quiet=5) for n in range(1, 20))
    assert stops([1.0] * 20, tol=1e-30, quiet=5) == "plateau"
    assert stops([1.0] * 20, tol=0.0, quiet=5) == stops([1.0] * 20, tol=1e-30) == ""
    # Other rules come first, and a run without a tolerance has this one.
    assert stops([1.0] * 20, tol=2.0, quiet=5) == "tol"
    assert stops([1.0] * 20, tol=1e-30, patience=3, quiet=5) == "patience"
    assert stops([0.0] * 20, tol=None, quiet=5) == "plateau"


@pytest.mark.filterwarnings("ignore:the centers are not the means:sklearn.exceptions.ConvergenceWarning")
def test_small_steps_lengthen_the_window(blobs: Clients) -> None:
    words: dict[str, Any] = {"init": blobs[0][:3], "protocol": "plain", "max_iter": 400}
    rounds = [DWFKMeans(3, learning_rate=rate, plateau=1, **words).fit(blobs).n_iter_ for rate in (1.0, 0.1)]
    assert rounds[1] >= 40 > rounds[0]
    batch = FederatedMiniBatchKMeans(3, learning_rate=0.5, momentum=0.5, plateau=2, batch_size=3, **words)
    assert batch.fit(blobs).n_iter_ >= 4 * 8 and batch.stopped_by_ == "plateau"


def test_small_clusters_of_batches_are_drawn_anew_before_a_plateau(blobs: Clients) -> None:
    far = np.vstack([blobs[0][:2], [[1e3] * blobs[0].shape[1]]])
    model = FederatedMiniBatchKMeans(3, init=far, protocol="plain", domain=Box(-20.0, 20.0)).fit(blobs)
    first = next(n for n, one in enumerate(model.history_) if np.abs(one[2]).max() <= 20.0)
    assert first == 20 and model.n_iter_ >= 40


def test_changing_cohorts_are_told_of(blobs: Clients) -> None:
    with pytest.warns(ConvergenceWarning, match=r"other clients.*clients_per_round=None"):
        DWFKMeans(3, protocol="plain", max_iter=15, clients_per_round=2).fit(blobs)
    with pytest.warns(ConvergenceWarning, match=r"raise tol=1e-06 .*cohorts=None"):
        model_of(FederatedMiniBatchKMeans, max_iter=3, tol=1e-6, cohorts=[[0], [1]] * 2).fit(blobs)


def test_drawn_batches_are_told_of(blobs: Clients) -> None:
    with pytest.warns(ConvergenceWarning, match="batch_size=None"):
        model_of(FederatedMiniBatchKMeans, max_iter=15, tol=1e-9, batch_size=3, client_learning_rate=0.5).fit(
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
