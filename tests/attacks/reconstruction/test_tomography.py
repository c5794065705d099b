"""Tomography: a client's distribution from counts alone."""

import numpy as np
import pytest

from privfed.attacks import Prior, Tomography, Truth, evaluate
from privfed.attacks.base.report import Cells, wasserstein
from privfed.attacks.evidence.cells import Observation
from privfed.attacks.reconstruction.tomography import fitted_weights
from privfed.errors import ArgumentError
from tests.attacks.figures import fitted, mixture


def test_weights_meet_counts_that_can_be_met() -> None:
    rng = np.random.default_rng(0)
    particles, rows = rng.normal(size=(2000, 2)), rng.normal(loc=1.0, size=(50, 2))
    partitions = [Cells.around(rng.normal(size=(4, 2))) for _ in range(3)]
    counts = [np.bincount(one.place(rows), minlength=4).astype(float) for one in partitions]
    seen = tuple(
        Observation(0, cells, held, np.zeros((4, 2))) for cells, held in zip(partitions, counts, strict=True)
    )
    weights = fitted_weights(particles, seen, 2000)
    assert weights.sum() == pytest.approx(1.0)
    for cells, held in zip(partitions, counts, strict=True):
        np.testing.assert_allclose(np.bincount(cells.place(particles), weights, 4), held / 50, atol=2e-3)


def test_without_counts_the_prior_stays() -> None:
    weights = fitted_weights(np.zeros((5, 2)), (), 10)
    np.testing.assert_allclose(weights, 0.2)


@pytest.mark.slow
def test_it_comes_nearer_than_a_fresh_sample_of_the_client() -> None:
    clients, others = mixture(0, 200, 2, components=8, alpha=0.3)
    model = fitted(clients, 10, 0, max_iter=20, tol=0)
    prior, rng = Prior(sample=np.concatenate(others)), np.random.default_rng(0)
    report = evaluate(Tomography(client=0).run(model.transcript_.view("server"), prior, rng), Truth(clients))
    fresh = wasserstein(others[0], np.ones(200), clients[0], rng)
    assert report.details["W1"] < fresh
    assert report.details["W1 ratio"] < 0.2


def test_totals_of_a_secure_sum_tell_nothing_about_a_client() -> None:
    clients, others = mixture(0, 100, 2, components=8, alpha=0.3, clients=4)
    model = fitted(clients, 8, 0, protocol="masked")
    prior, rng = Prior(sample=np.concatenate(others)), np.random.default_rng(0)
    report = evaluate(Tomography(client=0).run(model.transcript_.view("server"), prior, rng), Truth(clients))
    assert report.status == "not applicable"


def test_it_needs_public_knowledge() -> None:
    clients, _ = mixture(0, 30, 2, clients=2)
    view = fitted(clients, 3, 0, max_iter=2).transcript_.view("server")
    with pytest.raises(ArgumentError, match="sample"):
        Tomography(client=0).run(view, Prior(), np.random.default_rng(0))
    with pytest.raises(ArgumentError, match="n_iter=0"):
        Tomography(n_iter=0)
