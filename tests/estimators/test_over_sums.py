"""Over every secure sum metrics, scaling and selection say what they say over plain ones.

For estimators over masked sums the contract (test_contract.py) says so; encryption takes longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privfed import FederatedScaler, metrics, select_n_clusters
from tests.default_run import slow_but
from tests.estimators.test_contract import ESTIMATORS

Clients = list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]


@pytest.fixture
def few(blobs: Clients) -> Clients:
    """Return five clients."""
    return blobs[:5]


@pytest.mark.parametrize("name", slow_but(ESTIMATORS, "DWF, sampled", "fuzzy, weighted", "KFED"))
def test_an_estimator_finds_over_encrypted_sums_what_it_finds_over_plain(name: str, few: Clients) -> None:
    kind, words = ESTIMATORS[name]
    words = {"n_clusters": 3, "max_iter": 3, "tol": 0, "random_state": 1, **words}
    plain, encrypted = (kind(protocol=one, **words).fit(few) for one in ("plain", "ckks"))
    np.testing.assert_allclose(np.stack(encrypted.history_), np.stack(plain.history_), atol=1e-6)
    assert encrypted.inertia_ == pytest.approx(plain.inertia_, rel=1e-6)
    assert (encrypted.n_rows_, encrypted.n_iter_) == (plain.n_rows_, plain.n_iter_)


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
