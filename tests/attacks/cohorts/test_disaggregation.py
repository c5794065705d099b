"""Disaggregation: totals over changing cohorts give each client's statistics away."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.attacks import Disaggregation, NotRun, Prior, Report, Truth, evaluate
from privfed.attacks.cohorts.disaggregation import disaggregated, separable
from tests.attacks.figures import fitted, mixture
from tests.attacks.populations import mixture as uneven


def attacked(seed: int, n_clients: int, **words: object) -> Report:
    clients, _ = mixture(seed, 50, 2, clients=n_clients)
    model = fitted(clients, 5, seed, tol=0, **words)
    found = Disaggregation().run(model.transcript_.view("server"), Prior(), np.random.default_rng(0))
    return evaluate(found, Truth(clients))


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 8))
def test_frozen_centroids_give_every_client_exactly(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    took_part = np.vstack([np.tril(np.ones((n, n))), rng.integers(0, 2, (3, n))])
    own = rng.normal(size=(n, 6))
    centers = np.ones((len(took_part), 2, 2))
    np.testing.assert_allclose(disaggregated(took_part, took_part @ own, centers), own, atol=1e-9)
    assert separable(took_part).all()


def test_cohorts_that_never_mix_stay_together() -> None:
    fixed = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]] * 3)
    assert not separable(fixed).any()
    assert separable(np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])).tolist() == [True, True, False]


def test_moving_centroids_are_followed() -> None:
    report = attacked(0, 20, clients_per_round=10, max_iter=100)
    assert report.details["relative error"] <= 0.03
    assert report.details["relative error, no access"] > 0.5
    assert report.bound == 1.0
    assert report.linked


def test_fixed_cohorts_leave_the_baseline() -> None:
    report = attacked(0, 8, cohorts=[[0, 1, 2, 3], [4, 5, 6, 7]], max_iter=40)
    assert report.details["relative error"] >= 0.9 * report.details["relative error, no access"]
    assert report.bound == 0.0


def test_a_run_in_which_all_take_part_gives_nobody_away() -> None:
    report = attacked(0, 6, max_iter=10)
    assert report.details["relative error"] == pytest.approx(
        report.details["relative error, no access"], rel=0.2
    )


@pytest.mark.slow
def test_totals_of_changing_cohorts_tell_who_holds_a_cluster_and_those_of_everyone_do_not() -> None:
    population = uneven(1, n_clients=12, concentration=0.2)

    def told(**words: object) -> tuple[float, float]:
        model = fitted(population.clients, 5, 0, tol=0, max_iter=25, **words)
        found = Disaggregation().run(model.transcript_.view("server"), Prior(), np.random.default_rng(0))
        details = evaluate(found, Truth(population.clients)).details
        return details["holds rows, told right"], details["holds rows, the commoner answer"]

    sampled, _ = told(clients_per_round=5)
    everyone, commoner = told()
    assert sampled >= 0.9
    assert everyone <= commoner


def test_counts_of_the_first_of_several_local_steps_are_separated_too() -> None:
    clients, _ = mixture(0, 50, 2, clients=8)
    model = fitted(clients, 5, 0, tol=0, local_iter=3, clients_per_round=4, max_iter=40)
    found = Disaggregation().run(model.transcript_.view("server"), Prior(), np.random.default_rng(0))
    report = evaluate(found, Truth(clients))
    assert found.sums is None
    assert report.details["relative error"] < 0.3 * report.details["relative error, no access"]


def test_a_view_without_totals_gives_nothing_to_run_on() -> None:
    clients, _ = mixture(0, 20, 2, clients=3)
    transcript = fitted(clients, 3, 0, max_iter=2, tol=0).transcript_
    found = Disaggregation().run(transcript.view("observer"), Prior(), np.random.default_rng(0))
    assert isinstance(found, NotRun) and "no totals" in found.why
