"""The estimator of federated fuzzy c-means: scikit-learn's checks, attributes, memberships, bad words."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from privfed import Ball, Box
from privfed.errors import ArgumentError
from privfed.estimators.local_steps import FederatedFuzzyCMeans
from privfed.estimators.saving import NotFittedError
from privfed.federation.clients import gather
from privfed.protocols import Plain
from tests.default_run import slow
from tests.estimators.checks import scikit_learns_checks
from tests.reference import fuzzy_reference as oracle
from tests.some import some

Clients = list[np.ndarray]
BOX = Box(-10, 20, max_rows=64)
KINDS: list[dict[str, Any]] = [{"averaging": "kmeans"}, {"averaging": "weighted"}]


# One client: over any other sum the total would be that client's answer.
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API:sklearn.exceptions.SkipTestWarning")
@scikit_learns_checks(*(FederatedFuzzyCMeans(protocol="plain", **kind) for kind in KINDS))
def test_scikit_learns_check(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_fitted_attributes(kind: dict[str, Any], blobs: Clients, protocol: str) -> None:
    fitted = FederatedFuzzyCMeans(3, protocol=protocol, max_iter=4, tol=0, **kind).fit(blobs)
    assert fitted.cluster_centers_.shape == (3, 2) and fitted.cluster_centers_.dtype == np.float64
    assert fitted.n_iter_ == 4 and len(fitted.history_) == 5
    np.testing.assert_array_equal(fitted.history_[-1], fitted.cluster_centers_)
    assert fitted.n_features_in_ == 2 and fitted.n_rows_ == sum(map(len, blobs))
    assert fitted.privacy_spent_ is None and not fitted.converged_ and fitted.cycled_ is False
    rows = np.concatenate(blobs)
    assert fitted.objective_ == pytest.approx(oracle.objective(rows, fitted.cluster_centers_, 2.0), rel=1e-6)
    assert fitted.inertia_ == pytest.approx(float((fitted.transform(rows).min(axis=1) ** 2).sum()), rel=1e-6)
    assert fitted.objective_ < fitted.inertia_
    assert fitted.transcript_ is fitted.federation_.transcript
    assert fitted.fit(blobs) is fitted


@pytest.mark.parametrize("m", [slow(1.2), 2.0, slow(4.0)])
def test_memberships_are_the_oracles_and_the_largest_is_the_prediction(m: float, blobs: Clients) -> None:
    fitted = FederatedFuzzyCMeans(4, m=m, protocol="plain", tol=0, max_iter=20).fit(blobs)
    rows = np.concatenate(blobs)
    found = fitted.predict_proba(rows)
    np.testing.assert_allclose(found, oracle.memberships(rows, fitted.cluster_centers_, m), atol=1e-9)
    np.testing.assert_array_equal(found.argmax(axis=1), fitted.predict(rows))
    for labels, own in zip(fitted.labels_, blobs, strict=True):
        np.testing.assert_array_equal(labels, fitted.predict(own))
    on_center = fitted.predict_proba(fitted.cluster_centers_)
    np.testing.assert_array_equal(on_center, np.eye(4))


def test_memberships_need_a_fit_and_rows_of_its_columns(blobs: Clients) -> None:
    with pytest.raises(NotFittedError, match="call fit first"):
        FederatedFuzzyCMeans().predict_proba(blobs[0])
    fitted = FederatedFuzzyCMeans(2, protocol="plain").fit(blobs)
    with pytest.raises(ValueError, match="3 features"):
        fitted.predict_proba(np.zeros((2, 3)))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_clone_and_pickle(kind: dict[str, Any], blobs: Clients) -> None:
    fitted = FederatedFuzzyCMeans(3, m=1.5, protocol="plain", tol=0, max_iter=2, **kind).fit(blobs)
    assert clone(fitted).get_params() == fitted.get_params()
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(blobs[0]), fitted.predict_proba(blobs[0]))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    "domain", [Box(-10, 20, max_rows=64), slow(Ball(30, max_rows=40))], ids=["box", "ball"]
)
def test_fit_in_a_declared_domain(kind: dict[str, Any], domain: Any, blobs: Clients, protocol: str) -> None:
    # Weighted averages need no cells, whose place follows the domain.
    words: dict[str, Any] = {"init": blobs[0][:3], "tol": 0, "max_iter": 3, "protocol": protocol, **kind}
    inside = FederatedFuzzyCMeans(3, domain=domain, **words).fit(blobs)
    free = FederatedFuzzyCMeans(3, **words).fit(blobs)
    if kind["averaging"] == "weighted":
        np.testing.assert_allclose(inside.history_, free.history_, rtol=0, atol=1e-6)
    assert domain.contains(inside.cluster_centers_).all()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_interrupted_run_is_resumed(kind: dict[str, Any], blobs: Clients, tmp_path: Path) -> None:
    words: dict[str, Any] = {
        "max_iter": 4,
        "tol": 0,
        "protocol": "plain",
        "run_dir": tmp_path / "run",
        **kind,
    }
    whole = FederatedFuzzyCMeans(3, **{**words, "run_dir": None}).fit(blobs)

    class Stop(Exception):
        pass

    def watch(index: int, ask: Any, total: Any) -> None:
        if index == 4:
            raise Stop

    with pytest.raises(Stop):
        FederatedFuzzyCMeans(3, **words).fit_clients(gather(blobs), watch=watch)
    resumed = FederatedFuzzyCMeans(3, **words).resume(blobs)
    np.testing.assert_array_equal(np.stack(resumed.history_), np.stack(whole.history_))
    assert resumed.objective_ == whole.objective_


# --- words ---

BAD_WORDS: list[tuple[str, list[Any]]] = [
    ("n_clusters", [0, -1, 2.0, "3", None, True]),
    ("m", [1, 1.0, 0.5, 101, "x", None, np.nan, np.inf, True]),
    ("averaging", ["mean", None, 3]),
    ("weight", ["u2", None, "u"]),
    ("local_iter", [0, -1, 1.5, None, False, 10**6]),
    ("local_tol", [-1e-9, "x", np.nan, np.inf, True]),
    ("tol", [-1e-9, "x", None, np.nan]),
    ("max_iter", [0, -3, 2.5, None]),
    ("plateau", [0, -1, 1.5, "x"]),
    ("n_init", [0, -1, 1.0, "auto", None]),
    ("init", ["k-means++", None, 3, np.zeros((2, 2)), np.full((3, 2), np.nan), [["a", "b"]] * 3]),
    ("clients_per_round", [0, -1, 11, 2.5, "x"]),
    ("cohorts", [[], 5, [[]], [[0, 10]], [[-1]], [[0, 0]], "all"]),
    ("protocol", ["nonsense", 5, None, Plain]),
    ("privacy", [1.0, "dp"]),
    ("engine", ["flower", 5]),
    ("policy", ["strict", 5]),
    ("scale", ["minmax", 1, True]),
    ("metrics", ["inertia", ["gap"], 3]),
    ("domain", [(0, 1), "box"]),
    ("run_dir", [5]),
    ("random_state", [-1, 1.5, "x", True, 2**63]),
]


@pytest.mark.parametrize(("word", "value"), [(word, value) for word, values in BAD_WORDS for value in values])
def test_bad_word_is_an_error_that_names_it(blobs: Clients, word: str, value: Any, tmp_path: Path) -> None:
    words = {"n_clusters": 3, "protocol": "plain", "run_dir": tmp_path / "run", word: value}
    with pytest.raises(ArgumentError, match=word):
        FederatedFuzzyCMeans(**words).fit(blobs)
    assert not (tmp_path / "run").exists()


def test_every_word_has_its_bad_values() -> None:
    assert {word for word, _ in BAD_WORDS} == set(FederatedFuzzyCMeans().get_params())


def test_words_may_be_numpys(blobs: Clients) -> None:
    words: dict[str, Any] = {
        "n_clusters": np.int64(3),
        "m": np.float32(1.5),
        "local_iter": np.int32(2),
        "local_tol": np.float64(0.5),
        "max_iter": np.int64(2),
        "tol": np.float32(0),
        "random_state": np.int64(4),
    }
    for kind in some(KINDS):
        model = FederatedFuzzyCMeans(protocol="plain", **words, **kind).fit(blobs)
        assert model.cluster_centers_.shape == (3, 2)
