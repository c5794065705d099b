"""Linking contributions without names."""

import numpy as np
import pytest

from privfed import FKM, KFED, DWFKMeans, EWFKMeans, attacks
from privfed.attacks import Prior, Truth, evaluate
from privfed.attacks.cohorts.linkage import signature
from privfed.core.asking.statistics import Statistics
from privfed.protocols import Masked, Slotted
from tests.attacks.populations import mixture

RNG = np.random.default_rng(0)


def linked(model, population):
    view = model.fit(population.clients).transcript_.view("server")
    result = attacks.Linkage().run(view, Prior(), np.random.default_rng(1))
    return evaluate(result, Truth(population.clients))


@pytest.mark.parametrize(
    ("kind", "words", "least"),
    [
        pytest.param(DWFKMeans, {"local_iter": 1}, 1.0, id="one local step: exact invariants"),
        pytest.param(DWFKMeans, {"local_iter": 5}, 0.9, id="five local steps: nearly"),
        pytest.param(EWFKMeans, {}, 0.7, id="equal weights"),
        pytest.param(DWFKMeans, {"local_iter": 1, "clients_per_round": 4}, 1.0, id="changing cohorts"),
        pytest.param(FKM, {"merge": "gathered"}, 0.95, id="gathered local centroids"),
    ],
)
def test_contributions_without_names_are_linked(kind, words, least):
    reports = []
    for seed in range(3):
        population = mixture(seed, concentration=0.3)
        model = kind(5, protocol="plain", max_iter=8, tol=0, random_state=seed, **words)
        reports.append(linked(model, population))
    assert np.mean([report.recovered for report in reports]) >= least
    assert np.mean([report.precision for report in reports]) >= least
    assert all(report.baseline == 0.1 for report in reports)


def test_slots_are_linked_unless_there_is_but_one_sum_with_them():
    population = mixture(0, n_clients=8)
    model = FKM(4, protocol=Slotted(Masked(), sums=50), merge="slotted", max_iter=4, random_state=0)
    report = linked(model, population)
    assert report.recovered >= 0.9
    assert report.precision >= 0.9
    assert linked(KFED(4, protocol=Slotted(Masked()), merge="slotted"), population).claims == 0


def test_a_secure_sum_leaves_nothing_to_link():
    report = linked(DWFKMeans(3, protocol="masked", max_iter=3, tol=0), mixture(0, n_clients=4))
    assert (report.claims, report.status) == (0, "not applicable")
    assert np.isnan(report.recovered)


def test_signature_does_not_depend_on_the_centroids():
    rows = RNG.normal(size=(30, 3))

    def answered(labels):
        marks = np.eye(4)[labels]
        return signature(Statistics(count=marks.sum(axis=0), sum=marks.T @ rows))

    first, second = (answered(RNG.integers(4, size=30)) for _ in range(2))
    np.testing.assert_allclose(first, second)
    np.testing.assert_allclose(first, [30.0, *rows.sum(axis=0)])
    assert signature(Statistics(inertia=[1.0])) is None
