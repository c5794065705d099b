"""Every estimator finds over every secure sum what it finds over plain ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privfed import (
    FKM,
    KFED,
    DWFKMeans,
    EWFKMeans,
    FederatedFuzzyCMeans,
    FederatedMiniBatchKMeans,
    FederatedScaler,
    WFKMeans,
    metrics,
    select_n_clusters,
)
from tests.default_run import slow

Clients = list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]

ESTIMATORS: dict[str, tuple[Any, dict[str, Any]]] = {
    "DWF": (DWFKMeans, {}),
    "DWF-sampled": (DWFKMeans, {"clients_per_round": 4}),
    "EWF": (EWFKMeans, {}),
    "WF": (WFKMeans, {"weights": "equal"}),
    "minibatch": (FederatedMiniBatchKMeans, {}),
    "fuzzy-kmeans": (FederatedFuzzyCMeans, {"averaging": "kmeans"}),
    "fuzzy-weighted": (FederatedFuzzyCMeans, {"averaging": "weighted"}),
    "FKM": (FKM, {}),
    "KFED": (KFED, {}),
}
ENCRYPTED_BY_DEFAULT = ("DWF-sampled", "fuzzy-weighted", "KFED")
CASES = [
    (name, over) if over != "ckks" or name in ENCRYPTED_BY_DEFAULT else slow((name, over))
    for name in ESTIMATORS
    for over in ("masked", "group-masked", "ckks")
]


@pytest.fixture
def few(blobs: Clients) -> Clients:
    """Return five clients."""
    return blobs[:5]


@pytest.mark.parametrize(("name", "over"), CASES)
def test_an_estimator_finds_the_centers_of_the_plain_run(name: str, over: str, few: Clients) -> None:
    kind, words = ESTIMATORS[name]
    words = {"n_clusters": 3, "max_iter": 3, "tol": 0, "random_state": 1, **words}
    plain, hidden = (kind(protocol=one, **words).fit(few) for one in ("plain", over))
    np.testing.assert_allclose(hidden.cluster_centers_, plain.cluster_centers_, atol=1e-6)
    np.testing.assert_allclose(hidden.history_, plain.history_, atol=1e-6)
    assert hidden.inertia_ == pytest.approx(plain.inertia_, rel=1e-6)
    assert (hidden.n_rows_, hidden.n_iter_) == (plain.n_rows_, plain.n_iter_)


@pytest.mark.parametrize("over", ["masked", "group-masked", "ckks"])
def test_metrics_and_scaling_are_those_over_plain_sums(over: str, few: Clients) -> None:
    centers = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0], [6.0, 6.0]])
    for index in (metrics.fuzzy_davies_bouldin, metrics.davies_bouldin, metrics.inertia):
        plain, hidden = (index(few, centers, protocol=one) for one in ("plain", over))
        assert hidden == pytest.approx(plain, rel=1e-6)
    plain_scaler, scaler = (FederatedScaler(protocol=one).fit(few) for one in ("plain", over))
    np.testing.assert_allclose(scaler.transform(few[0]), plain_scaler.transform(few[0]), atol=1e-6)


@pytest.mark.parametrize("over", ["masked", "group-masked", "ckks"])
def test_the_number_of_clusters_is_that_over_plain_sums(over: str, few: Clients) -> None:
    words: dict[str, Any] = {"max_iter": 2, "tol": 0, "random_state": 0}
    plain, hidden = (select_n_clusters(few, [3, 4], protocol=one, **words) for one in ("plain", over))
    assert hidden.n_clusters == plain.n_clusters
