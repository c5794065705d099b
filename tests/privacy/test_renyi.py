"""The Renyi bound of Skellam noise against exact probabilities, and against dp-accounting's figures."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_two_probability_mass_functions
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special

from privfed.errors import ArgumentError
from privfed.privacy.accounting import (
    discrete_gaussian_cost,
    gdp_epsilon,
    gdp_mu,
    renyi_epsilon,
    skellam_budget,
)
from tests.default_run import slow

DELTA = 1e-6


def skellam_rdp(order: int, l2: float, variance: float, touched: int) -> float:
    """Return r(order) of one release by the formula of Agarwal, Kairouz and Liu 2021, corollary 3.6."""
    l1 = min(math.sqrt(touched) * l2, l2**2)
    rest = min(((2 * order - 1) * l2**2 + 6 * l1) / (4 * variance**2), 1.5 * l1 / variance)
    return (order * l2**2 / (2 * variance) + rest) * (1.0 + 1e-12)


def log_probabilities(variance: float, reach: int) -> np.ndarray:
    """Return ln P(x) for |x| <= reach, by ratios of Bessel functions from above."""
    ratio, ratios = 0.0, []
    for j in range(reach + 20 * int(math.sqrt(variance)) + 100, -1, -1):
        ratio = 1.0 / (2.0 * (j + 1) / variance + ratio)
        ratios.append(math.log(ratio))
    relative = np.concatenate([[0.0], np.cumsum(ratios[::-1][:reach])])
    values = relative[np.abs(np.arange(-reach, reach + 1))]
    logs: np.ndarray = values - special.logsumexp(values)
    return logs


@pytest.mark.parametrize(
    ("variance", "shift"),
    [*product([1, 4, 25, 400, 10_000], [1, 2, 5, 20]), slow((2**20, 500)), slow((2**20, 2000))],
)
def test_no_renyi_divergence_is_above_the_bound(variance: int, shift: int) -> None:
    # Of vectors, divergences and bounds add up over the values.
    for order in (2, 3, 5, 20, 200):
        logs = log_probabilities(variance, 60 * int(math.sqrt(variance)) + 4 * order * shift + 200)
        here, there = logs[shift:], logs[:-shift]
        exact = special.logsumexp(order * here + (1 - order) * there) / (order - 1)
        bound = skellam_rdp(order, shift, variance, touched=1)
        assert exact <= bound
        if order <= 5 and shift**2 <= variance and variance >= 25:
            assert bound <= exact * (1.01 + 5.0 / variance)


def pld_epsilon(variance: float, folds: int) -> float:
    """Return dp-accounting's epsilon of releases that move by one step, by the exact probabilities."""
    reach = int(14 * math.sqrt(variance)) + 20
    logs = log_probabilities(variance, reach)
    lower = {x: float(log) for x, log in zip(range(-reach, reach + 1), logs, strict=True)}
    upper = {x + 1: log for x, log in lower.items()}
    distribution = from_two_probability_mass_functions(
        lower, upper, value_discretization_interval=1e-4, log_mass_truncation_bound=-60
    )
    return float(distribution.self_compose(folds).get_epsilon_for_delta(DELTA))


# Variance; epsilon of seven releases by privacy-loss distributions; what the bound may add to it.
@pytest.mark.parametrize(("variance", "figure", "most"), [(25.0, 2.3661, 1.12), (400.0, 0.53524, 1.09)])
def test_epsilon_is_at_most_a_little_above_that_of_the_exact_probabilities(
    variance: float, figure: float, most: float
) -> None:
    exact = pld_epsilon(variance, 7)
    assert exact == pytest.approx(figure, abs=2e-4)
    # What is charged is D2^2 / (mu - 9) a release.
    assert 1.05 * exact < renyi_epsilon(7.0 / variance, DELTA) < most * exact
    assert exact < renyi_epsilon(7.0 / (variance - 9.0), DELTA)


# Seven rounds of a cost of 0.01 each, at integer orders below 400.
def test_epsilon_agrees_with_dp_accountings_conversion() -> None:
    orders = np.arange(2, 400)
    known, _ = rdp_privacy_accountant.compute_epsilon(orders.tolist(), (orders * 0.035).tolist(), DELTA)
    assert known == pytest.approx(1.2149, abs=1e-4)
    assert known <= renyi_epsilon(0.07, DELTA) <= known * (1 + 1e-9)


@given(
    st.integers(2, 10_000),
    st.floats(1, 2.0**40),
    st.floats(10, 2.0**40),
    st.integers(1, 10**6),
)
@example(order=2, l2=1.0, sigma=3.001, touched=1)
def test_a_release_costs_less_than_is_charged_at_every_order(
    order: int, l2: float, sigma: float, touched: int
) -> None:
    rdp = skellam_rdp(order, l2, sigma**2, touched)
    assert rdp <= order / 2 * float(discrete_gaussian_cost(l2, sigma)) * (1 + 2e-12)


@given(st.floats(-3, 2).map(lambda log: 10.0**log), st.floats(-30, -0.5).map(lambda log: 10.0**log))
@example(epsilon=1.0, delta=1e-6)
def test_a_budget_is_what_epsilon_and_delta_allow_at_one_order(epsilon: float, delta: float) -> None:
    budget = skellam_budget(epsilon, delta)
    orders = np.unique(np.rint(np.geomspace(2, 1e7, 20_000)))
    spent = orders / 2 * budget + np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    assert epsilon * (1 - 1e-4) <= spent.min()
    # Some order meets the claim: dp-accounting's conversion finds it too.
    assert renyi_epsilon(budget, delta) <= epsilon * (1 + 1e-9)
    # Renyi differential privacy proves less than the exact curve allows.
    assert budget < gdp_mu(epsilon, delta) ** 2


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 10.0])
def test_skellam_noise_is_four_to_nine_percent_wider_for_the_same_claim(epsilon: float) -> None:
    ratio = gdp_mu(epsilon, DELTA) / math.sqrt(skellam_budget(epsilon, DELTA))
    assert 1.04 < ratio < 1.09
    exact = gdp_epsilon(math.sqrt(skellam_budget(epsilon, DELTA)), DELTA)
    assert 0.9 < exact / epsilon < 0.96


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: renyi_epsilon(1.0, 0.0), "delta"),
        (lambda: skellam_budget(1.0, 1.0), "delta"),
        (lambda: skellam_budget(1e-12, 1e-300), "epsilon=1e-12 is out of reach.*gaussian"),
    ],
)
def test_a_parameter_out_of_bounds_is_named(call: Callable[[], Any], named: str) -> None:
    with pytest.raises(ArgumentError, match=named):
        call()
