"""The Gaussian curve, and what the integers cost, against exact figures."""

import dp_accounting
import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.stats import norm

from privfed.errors import ArgumentError
from privfed.privacy.accounting import (
    LEAST_SIGMA,
    ROUNDING_VARIANCE,
    discrete_gaussian_cost,
    discrete_gaussian_sigma,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
)

DELTAS = st.floats(-300, -0.01).map(lambda exponent: 10.0**exponent)


def exact_delta(epsilon: float, mu: float) -> mpmath.mpf:
    """Return Phi(-z) - e^epsilon Phi(-z - mu) with 50 digits after those that cancel."""
    with mpmath.workdps(50 + max(0, int(-np.log10(mu)))):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@given(st.floats(-37, 37), st.floats(-9, 1.65).map(lambda exponent: 10.0**exponent))
@example(z=0.0, mu=0.1)
@example(z=37.0, mu=0.0999)
def test_delta_is_exact_to_eleven_digits(z: float, mu: float) -> None:
    epsilon = mu * (z + mu / 2)
    assume(0 <= epsilon <= 1000)
    exact = exact_delta(epsilon, mu)
    assume(exact >= 1e-300)
    assert abs(gdp_delta(epsilon, mu) / exact - 1) < 1e-11


@given(st.floats(0, 1000), DELTAS)
@example(epsilon=1000.0, delta=1e-300)
@example(epsilon=0.0, delta=0.5)
@example(epsilon=1e-9, delta=1e-12)
@example(epsilon=1.125, delta=0.1)
def test_budget_is_rounded_down_and_epsilon_up(epsilon: float, delta: float) -> None:
    mu = gdp_mu(epsilon, delta)
    assert exact_delta(epsilon, mu) <= delta
    assert exact_delta(epsilon, mu * (1 + 1e-9)) > delta * (1 - 1e-9)
    found = gdp_epsilon(mu, delta)
    assert exact_delta(found, mu) <= delta
    assert found <= epsilon
    assert found == pytest.approx(epsilon, rel=1e-9, abs=1e-9)


def test_no_release_costs_nothing() -> None:
    assert gdp_delta(0.5, 0.0) == 0.0
    assert gdp_epsilon(0.0, 1e-9) == 0.0


# sigma, rounds, epsilon at delta 1e-6 of T-fold Gaussian releases of sensitivity 1, as dp-accounting's
# privacy-loss distributions give them.
PUBLISHED = [(5.0, 5, 1.99453), (10.0, 7, 1.1276), (2.0, 20, 12.595)]


@pytest.mark.parametrize(("sigma", "rounds", "epsilon"), PUBLISHED)
def test_epsilon_agrees_with_dp_accounting(sigma: float, rounds: int, epsilon: float) -> None:
    ours = gdp_epsilon(np.sqrt(rounds) / sigma, 1e-6)
    assert ours == pytest.approx(epsilon, abs=5e-5 * epsilon)
    assert ours == pytest.approx(dp_accounting.get_epsilon_gaussian(sigma / np.sqrt(rounds), 1e-6), abs=1e-8)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: gdp_delta(-1.0, 1.0), "epsilon"),
        (lambda: gdp_delta(1.0, np.inf), "mu"),
        (lambda: gdp_epsilon(np.nan, 1e-6), "mu"),
        (lambda: gdp_epsilon(1.0, 0.0), "delta"),
        (lambda: gdp_mu(1.0, 1.0), "delta"),
        (lambda: gdp_mu(np.inf, 1e-6), "epsilon"),
        (lambda: discrete_gaussian_cost(1.0, np.array([5.0, 3.0])), "sigma"),
        (lambda: discrete_gaussian_sigma(1.0, np.array([0.5, 0.0])), "costs"),
    ],
)
def test_a_parameter_out_of_bounds_is_named(call, named: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ArgumentError, match=named):
        call()


def probabilities(support: np.ndarray, sigma: float, center: float = 0.0) -> np.ndarray:
    """Return the discrete Gaussian's probabilities on the integers of `support`."""
    weights = np.exp(-((support - center) ** 2) / (2 * sigma**2))
    reach = np.arange(np.floor(center - 45 * sigma), np.ceil(center + 45 * sigma) + 1)
    values: np.ndarray = weights / np.exp(-((reach - center) ** 2) / (2 * sigma**2)).sum()
    return values


def exact_pmf_delta(epsilon: float, shift: int, sigma: float) -> float:
    """Return the hockey-stick divergence of two discrete Gaussians `shift` apart, summed exactly."""
    support = np.arange(-int(40 * sigma), int(40 * sigma) + shift + 1)
    gap = probabilities(support, sigma, shift) - np.exp(epsilon) * probabilities(support, sigma)
    return float(np.maximum(gap, 0).sum())


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.1, 0.5, 1.0, 4.0, 10.0])
@pytest.mark.parametrize(
    ("shift", "sigma"), [(1, 50.0), (7, 100.0), (20, 400.0), (400, 400.0), (1600, 400.0), (4000, 333.3)]
)
def test_the_claim_lies_between_the_exact_pmf_and_the_gaussian_curve(
    epsilon: float, shift: int, sigma: float
) -> None:
    claim = gdp_delta(epsilon, float(np.sqrt(discrete_gaussian_cost(shift, sigma))))
    assert exact_pmf_delta(epsilon, shift, sigma) <= claim + 1e-14
    assert claim <= gdp_delta(epsilon, shift / sigma) + 1e-4


@pytest.mark.parametrize("sigma", [5.0, 6.5, 20.0])
@pytest.mark.parametrize("shift", [1, 3, 20])
def test_the_claim_holds_where_the_grid_is_coarse(shift: int, sigma: float) -> None:
    mu = float(np.sqrt(discrete_gaussian_cost(shift, sigma)))
    for epsilon in (0.0, 0.05, 0.3, 1.0, 3.0):
        assert exact_pmf_delta(epsilon, shift, sigma) <= gdp_delta(epsilon, mu) + 1e-14


def test_the_gaussian_curve_alone_would_be_a_false_claim() -> None:
    assert exact_pmf_delta(0.0, 1, 20.0) == pytest.approx(0.0199471, abs=1e-7)
    assert gdp_delta(0.0, 1 / 20) == pytest.approx(0.0199450, abs=1e-7)


def test_the_claim_holds_for_vectors() -> None:
    # Both entries move: distance 5 in L2.
    support = np.arange(-260, 270)
    here, there = (
        np.outer(probabilities(support, 6.0, a), probabilities(support, 6.0, b)) for a, b in [(3, 4), (0, 0)]
    )
    mu = float(np.sqrt(discrete_gaussian_cost(5.0, 6.0)))
    for epsilon in (0.0, 0.2, 1.0, 2.0):
        assert np.maximum(here - np.exp(epsilon) * there, 0).sum() <= gdp_delta(epsilon, mu)


@pytest.mark.parametrize("sigma", [LEAST_SIGMA, 8.2])
@pytest.mark.few(1)
def test_a_discrete_gaussian_is_a_randomised_rounding_of_a_gaussian(sigma: float) -> None:
    # Step 1 of the proof in docs/specifications/accounting.md: the trapezoidal rule is exact to 1e-16 here.
    q, step = 3, 0.05
    support = np.arange(-35, 45)
    points = q + np.arange(-60 * sigma, 60 * sigma, step)
    gaussian = norm.pdf(points, q, np.sqrt(sigma**2 - ROUNDING_VARIANCE)) * step
    rounding = np.stack([probabilities(support, np.sqrt(ROUNDING_VARIANCE), x) for x in points])
    assert np.allclose(gaussian @ rounding, probabilities(support, sigma, q), rtol=1e-11, atol=0)


@pytest.mark.parametrize("shares", [[5.0, 5.0], [5.0, 9.3, 40.0], [5.0] * 12])
def test_sums_of_shares_are_discrete_gaussian(shares: list[float]) -> None:
    support = np.arange(-700, 701)
    total = np.ones(1)
    for sigma in shares:
        total = np.convolve(total, probabilities(support, sigma))
    middle = total.size // 2
    together = float(np.sqrt(np.sum(np.square(shares))))
    wanted = probabilities(np.arange(-90, 91), together)
    assert np.allclose(total[middle - 90 : middle + 91], wanted, rtol=1e-11, atol=0)


def test_sums_of_narrow_shares_are_not() -> None:
    support = np.arange(-60, 61)
    total = np.convolve(probabilities(support, 0.4), probabilities(support, 0.4))
    assert np.abs(total[118:123] / probabilities(np.arange(-2, 3), 0.4 * np.sqrt(2)) - 1).max() > 0.01


@given(st.floats(1, 2.0**40), st.floats(1e-6, 1e3))
def test_sigma_never_costs_more_than_was_paid(sensitivity: float, cost: float) -> None:
    sigma = discrete_gaussian_sigma(sensitivity, cost)
    assume(sigma >= LEAST_SIGMA)
    found = float(discrete_gaussian_cost(sensitivity, sigma))
    assert cost * (1 - 1e-10) <= found <= cost
