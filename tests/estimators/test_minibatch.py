"""The estimator of federated mini-batch k-means: its words, its attributes, scikit-learn's checks."""

import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from privfed import Ball, Box, ClientPolicy, Simulation
from privfed.engines.in_process import Fault
from privfed.errors import ArgumentError, DataError, ResumeError
from privfed.estimators.local_steps import FederatedMiniBatchKMeans
from privfed.estimators.saving import NotFittedError
from privfed.protocols import Plain
from tests.default_run import covering
from tests.estimators.checks import scikit_learns_checks
from tests.raised import refused_with

Clients = list[np.ndarray]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API:sklearn.exceptions.SkipTestWarning")
@scikit_learns_checks(
    # One client: over any other sum the total would be that client's answer.
    FederatedMiniBatchKMeans(protocol="plain", max_iter=12),
    FederatedMiniBatchKMeans(
        protocol="plain", max_iter=12, epochs=2, batch_size=16, client_learning_rate=0.5, momentum=0.5
    ),
)
def test_scikit_learns_check(estimator: Any, check: Any) -> None:
    check(estimator)


def test_words_are_those_of_every_estimator_and_the_papers() -> None:
    words = {
        "n_clusters": 5,
        "epochs": 1,
        "batch_size": None,
        "learning_rate": 1.0,
        "momentum": 0.0,
        "client_learning_rate": 1.0,
        "reassign_after": 20,
        "reassign_min": 0.01,
        "max_iter": 200,
        "tol": None,
        "plateau": 5,
        "n_init": 1,
        "init": "coreset",
        "clients_per_round": None,
        "cohorts": None,
        "protocol": "masked",
        "privacy": None,
        "engine": None,
        "policy": None,
        "metrics": None,
        "scale": None,
        "domain": None,
        "run_dir": None,
        "random_state": 0,
    }
    assert FederatedMiniBatchKMeans().get_params() == words
    assert set(inspect.signature(FederatedMiniBatchKMeans).parameters) == set(words)


# --- what a fitted model has ---


def test_fitted_attributes(blobs: Clients, protocol: str) -> None:
    model = FederatedMiniBatchKMeans(3, protocol=protocol, max_iter=4)
    assert model.fit(blobs) is model
    assert model.cluster_centers_.shape == (3, 2) and model.cluster_centers_.dtype == np.float64
    assert model.n_iter_ == 4 and len(model.history_) == 5
    np.testing.assert_array_equal(model.history_[-1], model.cluster_centers_)
    rows = np.concatenate(blobs)
    assert model.inertia_ == pytest.approx(float((model.transform(rows).min(axis=1) ** 2).sum()))
    assert model.n_rows_ == len(rows) and model.n_features_in_ == 2
    assert model.privacy_spent_ is None
    assert model.transcript_ is model.federation_.transcript
    for labels, own in zip(model.labels_, blobs, strict=True):
        np.testing.assert_array_equal(labels, model.predict(own))


@pytest.mark.parametrize(
    ("init", "words"),
    covering(["coreset", "kfed"], [{}, {"epochs": 3, "batch_size": 8, "client_learning_rate": 0.5}]),
)
def test_clear_clusters_are_found(init: str, words: dict[str, Any], blobs: Clients, protocol: str) -> None:
    model = FederatedMiniBatchKMeans(4, init=init, momentum=0.5, max_iter=30, protocol=protocol, **words)
    found = model.fit(blobs).cluster_centers_
    means = np.array([[0.0, 0.0], [0.0, 6.0], [6.0, 0.0], [6.0, 6.0]])
    np.testing.assert_allclose(found[np.lexsort(np.rint(found).T[::-1])], means, atol=0.5)


@pytest.mark.parametrize("ask", ["predict", "transform", "save"])
def test_unfitted_model_is_an_error(ask: str, tmp_path: Path) -> None:
    argument = tmp_path / "model.npz" if ask == "save" else np.zeros((2, 2))
    with pytest.raises(NotFittedError, match="this FederatedMiniBatchKMeans is not fitted yet"):
        getattr(FederatedMiniBatchKMeans(), ask)(argument)


def test_clone_pickle_and_pipeline(blobs: Clients) -> None:
    model = FederatedMiniBatchKMeans(3, batch_size=4, protocol="plain", max_iter=3).fit(blobs)
    assert clone(model).get_params() == model.get_params()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(blobs[0]), model.predict(blobs[0]))
    rows, groups = np.concatenate(blobs), np.repeat(np.arange(10), [len(one) for one in blobs])
    pipeline = make_pipeline(StandardScaler(), clone(model))
    pipeline.fit(rows, federatedminibatchkmeans__groups=groups)
    assert pipeline.predict(rows).shape == (len(rows),)


@pytest.mark.parametrize(
    "domain", [pytest.param(Box(-10, 20, max_rows=64), id="box"), pytest.param(Ball(30), id="ball")]
)
def test_declared_domain_changes_nothing_but_where_clusters_are_drawn(
    blobs: Clients, protocol: str, domain: Any
) -> None:
    words: dict[str, Any] = {"init": blobs[0][:3], "max_iter": 4, "reassign_after": None}
    inside, free = (
        FederatedMiniBatchKMeans(3, domain=one, protocol=protocol, **words).fit(blobs)
        for one in (domain, None)
    )
    np.testing.assert_allclose(inside.history_, free.history_, rtol=0, atol=1e-6)


def test_found_ranges_are_where_clusters_are_drawn(blobs: Clients) -> None:
    rows = np.concatenate(blobs)
    start = np.array([[0.0, 0.0], [1000.0, 0.0]])
    model = FederatedMiniBatchKMeans(2, init=start, reassign_after=1, max_iter=1, protocol="plain").fit(blobs)
    span = rows.max(axis=0) - rows.min(axis=0)
    moved = model.cluster_centers_[1]
    assert (moved > rows.min(axis=0) - span).all() and (moved < rows.max(axis=0) + span).all()


# --- faults, policy, resume ---


def test_lost_client_is_left_out_of_that_round(blobs: Clients, protocol: str) -> None:
    # Sum 1 is the range sum: sum 2 is the first round.
    words: dict[str, Any] = {"init": blobs[0][:3], "max_iter": 1, "reassign_after": None}
    faults = [Fault(client=4, sums=frozenset({2}))]
    lost = FederatedMiniBatchKMeans(3, protocol=protocol, engine=Simulation(faults=faults), **words)
    rest = FederatedMiniBatchKMeans(3, protocol=protocol, cohorts=[[0, 1, 2, 3, 5, 6, 7, 8, 9]], **words)
    np.testing.assert_allclose(
        lost.fit(blobs).cluster_centers_, rest.fit(blobs).cluster_centers_, rtol=0, atol=1e-6
    )


def test_policy_may_allow_the_questions_of_this_algorithm_only(blobs: Clients, protocol: str) -> None:
    asked = frozenset({"FeatureRanges", "CellSums", "MiniBatchMovements", "Inertia"})
    words: dict[str, Any] = {"max_iter": 2, "protocol": protocol}
    FederatedMiniBatchKMeans(3, policy=ClientPolicy(questions=asked), **words).fit(blobs)
    with refused_with("policy:question"):
        fewer = ClientPolicy(questions=asked - {"MiniBatchMovements"})
        FederatedMiniBatchKMeans(3, policy=fewer, **words).fit(blobs)


def test_resumed_run_is_the_uninterrupted_one(blobs: Clients, protocol: str, tmp_path: Path) -> None:
    def model(folder: Path, max_iter: int = 6, **words: Any) -> FederatedMiniBatchKMeans:
        return FederatedMiniBatchKMeans(
            4,
            epochs=2,
            batch_size=5,
            clients_per_round=6,
            reassign_after=2,
            reassign_min=0.3,
            max_iter=max_iter,
            protocol=protocol,
            run_dir=folder,
            **words,
        )

    whole = model(tmp_path / "whole").fit(blobs)
    # All clients are lost in sum 6, a round.
    faults = [Fault(client=i, sums=frozenset({6})) for i in range(10)]
    with pytest.raises(Exception, match="nothing was opened"):
        model(tmp_path / "cut", engine=Simulation(faults=faults)).fit(blobs)
    resumed = model(tmp_path / "cut").resume(blobs)
    np.testing.assert_array_equal(np.stack(resumed.history_), np.stack(whole.history_))
    with pytest.raises(ResumeError):
        model(tmp_path / "whole", max_iter=7).resume(blobs)


# --- bad words ---

BAD_WORDS: list[tuple[str, list[Any]]] = [
    ("n_clusters", [0, -1, 2.0, "3", None, True]),
    ("epochs", [0, -1, 1.5, None, False, 10**6]),
    ("batch_size", [0, -1, 2.5, "all", True, np.inf]),
    ("learning_rate", [0, -0.1, 1.1, "x", None, np.nan]),
    ("momentum", [-0.1, 1.0, "x", None, np.nan]),
    ("client_learning_rate", [0, -0.1, 1.1, "x", None, np.nan]),
    ("reassign_after", [0, -1, 1.5, "never", True]),
    ("reassign_min", [-0.01, 1.01, "x", None, np.nan]),
    ("max_iter", [0, -3, 2.5, None]),
    ("tol", [-1e-9, "x", np.nan]),
    ("plateau", [0, -1, 1.5, "x"]),
    ("n_init", [0, 1.0, "auto", None]),
    ("init", ["k-means++", None, 3, np.zeros((2, 2)), np.full((3, 2), np.nan)]),
    ("clients_per_round", [0, -1, 11, 2.5, 0.1, "x"]),
    ("cohorts", [[], 5, [[]], [[0, 10]], [[0, 0]], "all"]),
    ("protocol", ["nonsense", 5, None, Plain]),
    ("privacy", [1.0, "dp"]),
    ("engine", ["flower", 5]),
    ("policy", ["strict"]),
    ("scale", ["minmax", 1, True]),
    ("metrics", ["inertia", ["gap"]]),
    ("domain", [(0, 1), "box"]),
    ("run_dir", [5]),
    ("random_state", [-1, 1.5, "x", True]),
]


@pytest.mark.parametrize(("word", "value"), [(word, value) for word, values in BAD_WORDS for value in values])
def test_bad_word_is_an_error_that_names_it(blobs: Clients, word: str, value: Any, tmp_path: Path) -> None:
    words = {"n_clusters": 3, "protocol": "plain", "run_dir": tmp_path / "run", word: value}
    with pytest.raises(ArgumentError, match=word):
        FederatedMiniBatchKMeans(**words).fit(blobs)
    assert not (tmp_path / "run").exists()


def test_every_word_has_its_bad_values() -> None:
    assert {word for word, _ in BAD_WORDS} == set(FederatedMiniBatchKMeans().get_params())


def test_words_may_be_numpys(blobs: Clients) -> None:
    model = FederatedMiniBatchKMeans(
        np.int64(3),
        epochs=np.int32(2),
        batch_size=np.int64(4),
        learning_rate=np.float32(0.5),
        client_learning_rate=np.float64(0.5),
        reassign_after=np.int64(2),
        max_iter=np.int64(2),
        clients_per_round=np.int64(5),
        random_state=np.int64(4),
        protocol="plain",
    )
    assert model.fit(blobs).cluster_centers_.shape == (3, 2)


def test_more_clusters_than_rows_is_an_error_that_names_both(protocol: str) -> None:
    clients = [np.array([[float(i), 0.0]]) for i in range(6)]
    with pytest.raises(ArgumentError, match=r"n_clusters=7 .* n_samples=6"):
        FederatedMiniBatchKMeans(7, protocol=protocol).fit(clients)


def test_clients_that_cannot_be_used_are_an_error(blobs: Clients) -> None:
    with pytest.raises(DataError, match=r"client 1: .*shape \(0, 2\)"):
        FederatedMiniBatchKMeans(2).fit([blobs[0], np.empty((0, 2))])
    with pytest.raises(DataError, match=r"^client \d has rows outside the domain;"):
        FederatedMiniBatchKMeans(2, domain=Box(-1, 1)).fit(blobs)
