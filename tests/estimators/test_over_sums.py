"""Over every secure sum metrics, scaling and selection say what they say over plain ones.

For estimators over masked sums the contract (test_contract.py) says so; encryption takes longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privfed import Box, DPKMeans, FederatedScaler, Privacy, metrics, select_n_clusters
from privfed.federation.simulation import Simulation
from tests.default_run import slow_but
from tests.engines.own_runs import OwnRuns
from tests.estimators.test_contract import ESTIMATORS

Clients = list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]


@pytest.fixture
def few(blobs: Clients) -> Clients:
    """Return five clients."""
    return blobs[:5]


@pytest.mark.parametrize("name", slow_but(ESTIMATORS, "DWF, sampled", "fuzzy, weighted", "KFED"))
@pytest.mark.few(1)
def test_an_estimator_finds_over_encrypted_sums_what_it_finds_over_plain(name: str, few: Clients) -> None:
    kind, words = ESTIMATORS[name]
    words = {"n_clusters": 3, "max_iter": 3, "tol": 0, "random_state": 1, **words}
    plain, encrypted = (kind(protocol=one, **words).fit(few) for one in ("plain", "ckks"))
    np.testing.assert_allclose(np.stack(encrypted.history_), np.stack(plain.history_), atol=1e-6)
    assert encrypted.inertia_ == pytest.approx(plain.inertia_, rel=1e-6)
    assert (encrypted.n_rows_, encrypted.n_iter_) == (plain.n_rows_, plain.n_iter_)


@pytest.mark.parametrize("name", slow_but(ESTIMATORS, "DWF, sampled", "fuzzy, weighted", "KFED"))
@pytest.mark.parametrize("engine", [Simulation(), OwnRuns()], ids=["announced", "own runs"])
@pytest.mark.few(3)
def test_an_estimator_finds_over_verified_sums_what_it_finds_over_masked(
    name: str, engine: Simulation, few: Clients
) -> None:
    """To the last bit; with own runs, each client finds every question by itself."""
    kind, words = ESTIMATORS[name]
    words = {"n_clusters": 3, "max_iter": 3, "tol": 0, "random_state": 1, **words}
    masked = kind(protocol="masked", **words).fit(few)
    verified = kind(protocol="masked-verified", engine=engine, **words).fit(few)
    np.testing.assert_array_equal(np.stack(verified.history_), np.stack(masked.history_))
    assert (verified.inertia_, verified.n_rows_) == (masked.inertia_, masked.n_rows_)


@pytest.mark.parametrize("over", ["masked", "masked-verified", "group-masked", "ckks"])
@pytest.mark.few(2)
def test_metrics_and_scaling_are_those_over_plain_sums(over: str, few: Clients) -> None:
    centers = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0], [6.0, 6.0]])
    for index in (metrics.fuzzy_davies_bouldin, metrics.davies_bouldin, metrics.inertia):
        plain, hidden = (index(few, centers, protocol=one) for one in ("plain", over))
        assert hidden == pytest.approx(plain, rel=1e-6)
    plain_scaler, scaler = (FederatedScaler(protocol=one).fit(few) for one in ("plain", over))
    np.testing.assert_allclose(scaler.transform(few[0]), plain_scaler.transform(few[0]), atol=1e-6)


@pytest.mark.parametrize("over", ["masked", "masked-verified", "group-masked", "ckks"])
@pytest.mark.few(2)
def test_the_number_of_clusters_is_that_over_plain_sums(over: str, few: Clients) -> None:
    words: dict[str, Any] = {"max_iter": 2, "tol": 0, "random_state": 0}
    plain, hidden = (select_n_clusters(few, [3, 4], protocol=one, **words) for one in ("plain", over))
    assert hidden.n_clusters == plain.n_clusters


def test_private_runs_are_those_over_masked_sums_and_each_client_prices_them(few: Clients) -> None:
    privacy = Privacy(
        epsilon=3.0,
        delta=1e-6,
        unit="record",
        domain=Box(-20, 20, max_rows=100),
        neighbours="add-remove",
        noise_seed=7,
    )
    words: dict[str, Any] = {"n_clusters": 3, "privacy": privacy, "random_state": 1}
    masked = DPKMeans(protocol="masked", **words).fit(few)
    verified = DPKMeans(protocol="masked-verified", engine=OwnRuns(), **words).fit(few)
    np.testing.assert_array_equal(verified.cluster_centers_, masked.cluster_centers_)


def test_a_claim_says_that_clients_read_every_noised_total(few: Clients) -> None:
    privacy = Privacy(
        epsilon=3.0, delta=1e-6, unit="record", domain=Box(-20, 20, max_rows=100), neighbours="add-remove"
    )
    for over, reads in (("masked", False), ("masked-verified", True)):
        model = DPKMeans(3, protocol=over, privacy=privacy, random_state=1).fit(few)
        assert model.privacy_spent_ is not None
        assert ("reads every noised total" in model.privacy_spent_.against["a client"]) == reads
