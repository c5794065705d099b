"""Fuzzy statistics: the number of rows from memberships, and the rows from the equations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed import attacks
from privfed.algorithms.fuzzy import FuzzySums
from privfed.attacks import Prior, Truth, evaluate
from privfed.attacks.inversion.fuzzy_inversion import Equations, count_rows, independent
from privfed.core.asking.question import ClientData
from privfed.core.roles.conversation import Ask
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError
from privfed.federation.opening import open_over
from privfed.metrics import fuzzy_davies_bouldin
from privfed.questions.fuzzy_spread import FuzzySpread
from tests.attacks.populations import mixture
from tests.undeclared import ANYTHING


def run_of(population, seed, sets=1, numbers=range(2, 7), protocol="plain"):
    """Judge clusterings of several numbers of clusters over a federation; return its transcript."""
    rng = np.random.default_rng(seed)
    federation = open_over(population.clients, protocol=protocol, policy=ANYTHING)
    for k in numbers:
        for _ in range(sets):
            centers = (
                population.draw(2 * k).reshape(2, k, -1).mean(axis=0) + 0.1 * rng.normal(size=k)[:, None]
            )
            fuzzy_davies_bouldin(federation, centers)
    return federation.transcript


def inverted(n, d, seed, sets=1, **words):
    population = mixture(seed, n_clients=4, n_rows=n, d=d)
    view = run_of(population, seed, sets).view("server")
    prior = Prior(sample=population.draw(2000))
    result = attacks.FuzzyInversion(client=1, **words).run(view, prior, np.random.default_rng(seed))
    return result, evaluate(result, Truth(population.clients))


@given(st.integers(1, 40), st.floats(1.2, 4.0), st.integers(0, 2**32 - 1))
def test_memberships_tell_the_number_of_rows(n, m, seed):
    rng = np.random.default_rng(seed)
    centers, rows = rng.normal(size=(3, 2)), rng.normal(size=(n, 2))
    question = FuzzySpread(ranges=Ranges([-9.0, -9.0], [9.0, 9.0], 100), centers=centers, m=m)
    assert count_rows([(question, question.answer(ClientData(rows), rng))]) == n


@pytest.mark.parametrize("kind", [FuzzySpread, FuzzySums])
@pytest.mark.parametrize("m", [1.5, 2.0, 3.0])
def test_equations_add_up_to_the_answers_and_slopes_are_their_derivatives(kind, m):
    rng = np.random.default_rng(0)
    centers, rows, step = rng.normal(size=(4, 3)), rng.normal(size=(6, 3)), 1e-6
    question = kind(ranges=Ranges([-9.0] * 3, [9.0] * 3, 100), centers=centers, m=m)
    equations = Equations.of(question, question.answer(ClientData(rows), rng))
    np.testing.assert_allclose(equations.phi(rows).sum(axis=0), equations.observed)
    for feature in range(3):
        moved = [equations.phi(rows + sign * step * np.eye(3)[feature]) for sign in (1, -1)]
        expected = (moved[0] - moved[1]) / (2 * step)
        np.testing.assert_allclose(equations.slopes(rows)[:, :, feature], expected, atol=1e-7)


def test_equations_of_a_sum_of_memberships_are_not_all_independent():
    rng = np.random.default_rng(0)
    question = FuzzySpread(ranges=Ranges([-9.0], [9.0], 10), centers=rng.normal(size=(4, 1)), m=2.0)
    parts = [Equations.of(question, question.answer(ClientData(rng.normal(size=(5, 1))), rng))]
    assert independent(parts) == 7


@pytest.mark.parametrize(("n", "d"), [(5, 4), *(pytest.param(n, 2, marks=pytest.mark.slow) for n in (5, 10))])
def test_rows_come_out_exactly_where_there_are_enough_equations(n, d):
    # 35 equations, of which 35 - 5 are independent, for at most 20 unknowns.
    found = [inverted(n, d, seed)[1] for seed in range(5)]
    exact = [report.recovered == report.precision == 1.0 for report in found]
    assert sum(exact) >= 4
    assert all(report.baseline == 0.0 and report.linked for report in found)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "sets", "least"), [(15, 1, 6), (20, 2, 9), (30, 4, 3)])
def test_search_goes_on_from_local_minima(n, sets, least):
    seeds = range(10) if n < 30 else range(3)
    found = [inverted(n, 2, seed, sets)[1].details["matched rmse / sd"] < 1e-6 for seed in seeds]
    assert sum(found) >= least


def test_confidence_is_one_only_where_all_equations_are_met():
    result, report = inverted(5, 2, 0)
    assert report.recovered == 1.0
    assert (result.confidence == 1.0).all()
    # Two numbers of clusters make 8 independent equations for 10 unknowns.
    population = mixture(0, n_clients=4, n_rows=5)
    view = run_of(population, 0, numbers=(2, 3)).view("server")
    attack = attacks.FuzzyInversion(client=1, starts=3, moves=3)
    result = attack.run(view, Prior(sample=population.draw(500)), np.random.default_rng(0))
    assert (result.confidence == 0.0).all()


def test_totals_of_a_secure_sum_are_attacked_as_one_client():
    population = mixture(2, n_clients=3, n_rows=3)
    view = run_of(population, 2, protocol="masked").view("server")
    prior, rng = Prior(sample=population.draw(2000)), np.random.default_rng(0)
    assert isinstance(attacks.FuzzyInversion(client=1).run(view, prior, rng), attacks.NotRun)
    result = attacks.FuzzyInversion(client=None).run(view, prior, rng)
    report = evaluate(result, Truth(population.clients, tolerance=1e-3))
    assert not report.linked
    # Totals are rounded to the grid of the sum: nine rows come out to several digits.
    assert report.recovered >= 0.8


def test_a_step_of_fuzzy_c_means_makes_equations_too():
    population, rng = mixture(3, n_clients=3, n_rows=6), np.random.default_rng(0)
    federation = open_over(population.clients, protocol="plain", policy=ANYTHING)
    fuzzy_davies_bouldin(federation, population.draw(3))
    ranges = federation.transcript.view("server").sums[-1].question.ranges
    for _ in range(2):
        federation.ask(Ask(FuzzySums(ranges=ranges, centers=population.draw(4), m=2.0)))
    attack = attacks.FuzzyInversion(client=0)
    view, prior = federation.transcript.view("server"), Prior(sample=population.draw(2000))
    assert evaluate(attack.run(view, prior, rng), Truth(population.clients)).recovered == 1.0


def test_too_many_unknowns_are_not_tried_and_a_start_is_needed():
    population = mixture(0, n_clients=3, n_rows=200)
    view = run_of(population, 0, numbers=(2,)).view("server")
    rng = np.random.default_rng(0)
    found = attacks.FuzzyInversion().run(view, Prior(sample=population.draw(9)), rng)
    assert isinstance(found, attacks.NotRun) and "more unknowns than most_unknowns=200" in found.why
    with pytest.raises(ArgumentError, match=r"Prior\(sample="):
        attacks.FuzzyInversion().run(view, Prior(), rng)
