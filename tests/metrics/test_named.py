"""Metrics that may follow a fit, by name: what the word says is signed, asked once, and nothing else."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import privfed
from privfed import (
    Box,
    DWFKMeans,
    EWFKMeans,
    FederatedFuzzyCMeans,
    FederatedMiniBatchKMeans,
    Privacy,
    metrics,
    select_n_clusters,
)
from privfed.errors import ArgumentError
from privfed.metrics.named import ASKS, METRICS, OF_LABELS, USUAL, following

RNG = np.random.default_rng(0)
ROWS = [RNG.normal(size=(30, 2)) + 3.0 * RNG.integers(0, 2, (30, 1)) for _ in range(4)]
LABELS = [RNG.integers(0, 3, 30) for _ in range(4)]
OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {} for name in ASKS},
    **{name: {"n_labels": 3} for name in OF_LABELS},
    "davies_bouldin": {"q": 2.0},
    "fuzzy_davies_bouldin": {"m": 1.5, "q": 2},
}


def fitted(named: Any, kind: Callable[..., Any] = DWFKMeans, **words: Any) -> Any:
    return kind(3, metrics=named, protocol="plain", random_state=1, **words).fit(ROWS, LABELS)


def asked(model: Any, name: str, **options: Any) -> float:
    function = getattr(metrics, name)
    found = function(model.federation_, model.cluster_centers_, **options)
    numbers: dict[str, Callable[[], float]] = {
        "clients_per_cluster": lambda: float(found.sum()),
        "labels_agreement": lambda: found.accuracy,
        "profiles": lambda: found.sizes.sum(),
    }
    return numbers.get(name, lambda: float(found))()


@pytest.mark.parametrize("name", sorted(ASKS))
def test_a_metric_that_is_named_with_its_options_follows_in_the_same_agreement_once(name: str) -> None:
    model = fitted({name: OPTIONS[name]})
    assert len(model.federation_.configuration.program.metrics) == 1
    found = asked(model, name, **OPTIONS[name])
    assert np.isfinite(found)
    assert model.federation_.others == []
    with pytest.raises(ArgumentError, match=f"or have answered it: metrics= names {name}, each once"):
        asked(model, name, **OPTIONS[name])
    assert model.federation_.others == []


def test_all_registered_metrics_that_a_sum_can_answer_can_be_named() -> None:
    assert set(METRICS) == set(ASKS) - {
        "clients_per_cluster",
        "labels_agreement",
        "profiles",
    }


def test_a_metric_that_is_not_named_is_an_error_that_says_which_are() -> None:
    model = fitted(["inertia", "score"])
    with pytest.raises(ArgumentError, match=r"ClusterDistances of 3 centers .* names inertia, score"):
        metrics.davies_bouldin(model.federation_, model.cluster_centers_)
    with pytest.raises(ArgumentError, match=r"Inertia of 2 centers"):
        metrics.inertia(model.federation_, model.cluster_centers_[:2])
    # The two names ask one question, which is agreed on twice.
    assert [asked(model, "inertia") / 120, asked(model, "score")] == pytest.approx([model.inertia_ / 120] * 2)


def test_other_options_are_another_metric() -> None:
    model = fitted({"davies_bouldin": {"q": 2.0}})
    with pytest.raises(ArgumentError, match="each once"):
        metrics.davies_bouldin(model.federation_, model.cluster_centers_)
    assert metrics.davies_bouldin(model.federation_, model.cluster_centers_, p=3.0, q=2.0) > 0


def test_none_at_all_can_be_named() -> None:
    model = fitted([])
    assert model.federation_.configuration.program.metrics == ()
    with pytest.raises(ArgumentError, match="metrics= names none, each once"):
        metrics.inertia(model.federation_, model.cluster_centers_)


def test_without_the_word_the_usual_ones_follow_and_others_are_agreed_on_anew() -> None:
    model = fitted(None)
    assert len(model.federation_.configuration.program.metrics) == len(USUAL)
    for name in USUAL:
        asked(model, name)
    assert model.federation_.others == []
    asked(model, "inertia")
    assert len(model.federation_.others) == 1


def test_the_fuzzy_index_has_the_estimators_fuzzifier_unless_its_options_say_another() -> None:
    model = fitted(["fuzzy_davies_bouldin"], FederatedFuzzyCMeans, m=1.7)
    assert following(3, ["fuzzy_davies_bouldin"], m=1.7) == following(
        3, {"fuzzy_davies_bouldin": {"m": 1.7, "q": 1.0}}
    )
    assert asked(model, "fuzzy_davies_bouldin", m=1.7) > 0


@pytest.mark.parametrize("kind", [EWFKMeans, FederatedMiniBatchKMeans])
def test_the_word_is_every_clustering_estimators(kind: Callable[..., Any]) -> None:
    model = fitted(["mean_distance"], kind, max_iter=20)
    assert asked(model, "mean_distance") > 0


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ("inertia", "metrics must be a list of names"),
        (3, "metrics must be a list of names"),
        ([3], "metrics must be a list of names"),
        ({"inertia": 3}, "metrics must be a list of names"),
        (["sizes"], "metrics must be some of accuracy, .* or a question of your own .* got 'sizes'"),
        (["silhouette"], "metrics must be some of accuracy"),
        (["accuracy"], "accuracy takes these options of numbers: n_labels; got {}"),
        ({"inertia": {"q": 1}}, "inertia takes these options of numbers: none"),
        ({"davies_bouldin": {"q": "two"}}, "davies_bouldin takes these options of numbers: q"),
    ],
    ids=str,
)
def test_what_names_no_metric_is_an_error_before_anything_is_asked(named: Any, text: str) -> None:
    model = DWFKMeans(3, metrics=named, protocol="plain")
    with pytest.raises(ArgumentError, match=text):
        model.fit(ROWS)
    assert not hasattr(model, "federation_")


def test_noise_of_the_server_leaves_no_metric() -> None:
    privacy = Privacy(
        epsilon=5.0, delta=1e-6, unit="client", neighbours="add-remove", domain=Box(-9, 9), noise="server"
    )
    model = DWFKMeans(2, metrics=["inertia"], protocol="ckks", privacy=privacy, tol=0, max_iter=2)
    with pytest.raises(ArgumentError, match=r'noise="server" is agreed on for the sums of the fit alone'):
        model.fit(ROWS)


def test_a_selection_keeps_to_the_word() -> None:
    named = {"davies_bouldin": {}}
    found = select_n_clusters(ROWS, range(2, 4), protocol="plain", metrics=named)
    assert all(len(model.federation_.configuration.program.metrics) == 1 for model in found.models)
    with pytest.raises(ArgumentError, match="metrics= names inertia"):
        select_n_clusters(ROWS, range(2, 4), protocol="plain", metrics=["inertia"])
    over = select_n_clusters(fitted(None).federation_, range(2, 4), estimator=DWFKMeans(metrics=named))
    with pytest.raises(ArgumentError, match="each once"):
        asked(over.models[0], "inertia")


def test_the_word_is_saved_and_cloned(tmp_path: Any) -> None:
    named = {"accuracy": {"n_labels": 3}, "inertia": {}}
    model = fitted(named)
    model.save(tmp_path / "model.npz")
    assert privfed.load(tmp_path / "model.npz").metrics == named
    assert clone(model).metrics == named
    assert "metrics" not in model.federation_.configuration.algorithm
    pickle.dumps(DWFKMeans(metrics=("inertia",)))
