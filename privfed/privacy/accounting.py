"""Privacy costs of releases under Gaussian noise (GDP) and under Skellam noise (Renyi).

Gaussian. A release of L2 sensitivity D under Gaussian noise of standard deviation s is mu-GDP with mu = D / s
(Dong, Roth and Su 2022, arXiv 1905.02383, theorem 1); its cost is mu^2. The costs of adaptively chosen
releases add up (corollary 2 there), even where later sensitivities and noises depend on earlier totals. The
sum must stay below a budget that was fixed before the first (docs/privacy/accounting.md).

Results are rounded to the safe side: `gdp_epsilon` up, `gdp_mu` down. `gdp_delta` itself has a relative error
of at most 1e-11 for epsilon up to 1000 and delta from 1e-300 on.

Discrete noise is charged slightly more than continuous noise. Consider integer queries q under discrete
Gaussian noise of variance s^2. They are a randomised rounding of q under Gaussian noise of variance s^2 - 9,
up to a factor within 1 +- 1e-76 in each probability. `discrete_gaussian_cost` charges for the latter. The
proof, with its conditions, is in docs/specifications/accounting.md.

Skellam. Integer vectors of L1 sensitivity D1 and L2 sensitivity D2, under independent Skellam noise of
variance mu on each value, are (a, r)-RDP for every integer order a >= 2 with

    r(a) = a D2^2 / (2 mu) + min(((2 a - 1) D2^2 + 6 D1) / (4 mu^2), 3 D1 / (2 mu))

(Agarwal, Kairouz and Liu 2021, arXiv 2110.04995, corollary 3.6); tests check it against exact probabilities.
For integer vectors D1 <= D2^2, and D1 <= sqrt(d) D2 where neighbours differ in at most d values. So r(a) is
at most a / 2 * D2^2 / (mu - 9 / 4): at every order a release costs less than the D2^2 / (mu - 9) that is
charged for the discrete Gaussian. A sum of shares is Skellam with the sum of their variances, exactly.

A run may choose each release depending on earlier totals. Let the order be fixed before the run, and costs
never sum to more than W. Then the run is (a, a W / 2)-RDP (docs/privacy/accounting.md, section 6), and so
(epsilon, delta)-DP with

    epsilon = r + ln(1 - 1 / a) - (ln delta + ln a) / (a - 1)

(Canonne, Kamath and Steinke 2020, arXiv 2004.00010, proposition 12). `skellam_budget` is the largest such W.

A `Curve` is a guarantee in three forms: (epsilon, delta) at any delta, mu, and error rates of any test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import Mechanism
from privfed.core.values.numbers import check_number
from privfed.errors import ArgumentError

ROUNDING_VARIANCE = 9.0
"""Variance of the randomised rounding from a Gaussian to a discrete Gaussian, in steps squared."""

LEAST_SIGMA = 5.0
"""Least sigma of one share, in steps: sums of such shares are discrete Gaussian, up to a factor within
1 +- 1e-106 in each probability."""

_SLACK = 1.0 + 1e-10
_SQRT_2PI = math.sqrt(2.0 * math.pi)


def _special() -> Any:
    """Return scipy.special, which takes long to import, and which runs without a claim do not need."""
    from scipy import special

    return special


@dataclass(frozen=True, slots=True)
class Payment:
    """One line of a ledger.

    Args:
        purpose: what the question was for.
        question: wire name of the question.
        share: share of the budget that was paid.
        sigma: entry -> standard deviation of the noise that is guaranteed to be in the total.
    """

    purpose: str
    question: str
    share: float
    sigma: dict[str, float]


@lru_cache(maxsize=1)
def _quadrature() -> Any:
    """Return nodes and weights of Gauss and Legendre; numpy.polynomial takes long to import, as above."""
    return np.polynomial.legendre.leggauss(12)


def _mills(z: float) -> float:
    """Return (1 - Phi(z)) / phi(z), Mills' ratio of the standard normal distribution."""
    return math.sqrt(math.pi / 2.0) * float(_special().erfcx(z / math.sqrt(2.0)))


def gdp_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta for which mu-GDP implies (epsilon, delta)-DP.

    Phi(-z) - e^epsilon Phi(-z - mu) with z = epsilon / mu - mu / 2 (Balle and Wang 2018, arXiv 1805.06530,
    theorem 8). Both terms are multiples of phi(z), so that the difference is one of Mills' ratios R; for
    small mu it is phi(z) times the integral of 1 - t R(t) = -R'(t) over [z, z + mu].

    Args:
        epsilon: at least 0.
        mu: at least 0.

    Raises:
        ArgumentError: a parameter is negative or not finite.
    """
    check_number("epsilon", epsilon, "[0, inf)")
    check_number("mu", mu, "[0, inf)")
    if mu == 0.0:
        return 0.0
    z = epsilon / mu - mu / 2.0
    density = math.exp(-z * z / 2.0) / _SQRT_2PI
    if mu < 0.1:
        nodes, weights = _quadrature()
        slopes = [1.0 - point * _mills(point) for point in (z + mu / 2.0 * (nodes + 1.0)).tolist()]
        return density * mu / 2.0 * float(np.dot(weights, slopes))
    if z < 0.0:
        return float(_special().ndtr(-z)) - density * _mills(z + mu)
    return density * (_mills(z) - _mills(z + mu))


def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon, rounded up, for which mu-GDP implies (epsilon, delta)-DP.

    Args:
        mu: at least 0.
        delta: in [1e-300, 1).

    Raises:
        ArgumentError: a parameter is out of its bounds.
    """
    check_number("mu", mu, "[0, inf)")
    check_delta(delta)
    if gdp_delta(0.0, mu) * _SLACK <= delta:
        return 0.0
    # delta <= Phi(-z) <= exp(-z^2 / 2) for z >= 0.
    low, high = 0.0, mu * mu / 2.0 + mu * math.sqrt(-2.0 * math.log(delta) + 1.0)
    while low < (middle := (low + high) / 2.0) < high:
        low, high = (low, middle) if gdp_delta(middle, mu) * _SLACK <= delta else (middle, high)
    return high


@lru_cache(maxsize=64)
def gdp_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu, rounded down, for which mu-GDP implies (epsilon, delta)-DP.

    Its square is the budget from which costs are paid.

    Args:
        epsilon: at least 0.
        delta: in [1e-300, 1).

    Raises:
        ArgumentError: a parameter is out of its bounds.
    """
    check_number("epsilon", epsilon, "[0, inf)")
    check_delta(delta)
    low, high = 0.0, 1.0
    while gdp_delta(epsilon, high) * _SLACK <= delta:
        low, high = high, 2.0 * high
    while low < (middle := (low + high) / 2.0) < high:
        low, high = (middle, high) if gdp_delta(epsilon, middle) * _SLACK <= delta else (low, middle)
    # Rounding makes the computed delta waver in its last digits: the way back must not end above epsilon.
    step = 2.0**-52
    while low > 0.0 and gdp_epsilon(low, delta) > epsilon:
        low, step = low * (1.0 - step), 2.0 * step
    return low


def discrete_gaussian_cost(sensitivity: FloatArray | float, sigma: FloatArray | float) -> FloatArray:
    """Return the cost of releases of integers under discrete Gaussian noise.

    Args:
        sensitivity: L2 sensitivity of each release, in steps.
        sigma: of the noise, in steps, the same for all entries of a release; above 3. For a sum of
            independent shares, each of at least `LEAST_SIGMA`, the root of the sum of their squares.

    Returns:
        D^2 / (sigma^2 - 9), the cost mu^2 of each release, float64 of the parameters' broadcast shape.

    Raises:
        ArgumentError: a sigma is not above 3.
    """
    excess = np.square(np.asarray(sigma, dtype=np.float64)) - ROUNDING_VARIANCE
    if not (excess > 0.0).all():
        raise ArgumentError(
            f"sigma must be above 3 steps, got sigma={sigma}. Choose a finer step for the grid."
        )
    cost: FloatArray = np.square(sensitivity) / excess
    return cost


def discrete_gaussian_sigma(sensitivity: FloatArray | float, cost: FloatArray | float) -> FloatArray:
    """Return the least sigma, in steps, with which a release costs at most `cost`, rounded up.

    Args:
        sensitivity: L2 sensitivity of each release, in steps.
        cost: mu^2 of each release, positive.

    Raises:
        ArgumentError: a cost is not positive.
    """
    if not (np.asarray(cost) > 0.0).all():
        raise ArgumentError(f"costs must be positive, got cost={cost}.")
    sigma: FloatArray = np.sqrt(np.square(sensitivity) / cost + ROUNDING_VARIANCE) * (1.0 + 1e-12)
    return sigma


def check_delta(delta: float) -> None:
    """Check the delta of a claim.

    Raises:
        ArgumentError: it is not in [1e-300, 1).
    """
    check_number("delta", delta, "[1e-300, 1)")


_RENYI_SLACK = 1e-12


@lru_cache(maxsize=1)
def _orders() -> FloatArray:
    """Return the orders that are tried, found when a claim first needs them.

    Any integer order gives a valid claim; these lose less than 1e-6 of epsilon.
    """
    return np.unique(np.rint(np.concatenate([np.arange(2.0, 2000.0), np.geomspace(2e3, 1e12, 60_000)])))


def _excess(delta: float) -> FloatArray:
    """Return epsilon - r at each of the orders, rounded up."""
    orders = _orders()
    exact: FloatArray = np.log1p(-1.0 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1.0)
    rounded: FloatArray = exact + _RENYI_SLACK * (1.0 + np.abs(exact))
    return rounded


def renyi_epsilon(cost: float, delta: float) -> float:
    """Return the epsilon, rounded up, of claims with this summed cost, whatever their mechanisms.

    Discrete Gaussian and Skellam noise of cost W has a Renyi divergence of at most a W / 2 at every order a.
    So the order may be chosen last.

    Args:
        cost: sum of the budgets of claims that do not depend on each other's totals.
        delta: in [1e-300, 1).

    Raises:
        ArgumentError: delta is out of its bounds.
    """
    check_delta(delta)
    return max(0.0, float((_orders() * cost / 2.0 + _excess(delta)).min()) * (1.0 + _RENYI_SLACK))


@lru_cache(maxsize=64)
def skellam_budget(epsilon: float, delta: float) -> float:
    """Return the largest budget W, rounded down, that keeps costs within (epsilon, delta) at the best order.

    Args:
        epsilon: positive.
        delta: in [1e-300, 1).

    Raises:
        ArgumentError: delta is out of its bounds, or epsilon so small that no order reaches it.
    """
    check_delta(delta)
    budget = float((2.0 * (epsilon - _excess(delta)) / _orders()).max()) * (1.0 - _RENYI_SLACK)
    if not 0.0 < budget < math.inf:
        raise ArgumentError(
            f"epsilon={epsilon!r} is out of reach of the Renyi bound for Skellam noise at delta={delta!r}; "
            'claim more, or use mechanism="gaussian".'
        )
    return budget


def budget_of(mechanism: Mechanism, epsilon: float, delta: float) -> float:
    """Return the budget, that is, the largest total cost of all releases, rounded down.

    Args:
        mechanism: "gaussian" (by the exact GDP curve) or "skellam" (by Renyi differential privacy).
        epsilon: of the claim, positive.
        delta: of the claim, in [1e-300, 1).
    """
    return skellam_budget(epsilon, delta) if mechanism == Mechanism.SKELLAM else gdp_mu(epsilon, delta) ** 2


def totals_epsilon(mechanism: str, cost: float, delta: float) -> float:
    """Return the epsilon at `delta` of noised totals that cost `cost` together, fixed beforehand."""
    return (
        renyi_epsilon(cost, delta) if mechanism == Mechanism.SKELLAM else gdp_epsilon(math.sqrt(cost), delta)
    )


@dataclass(frozen=True, slots=True)
class Curve:
    """Holds what is proven of a claim.

    Args:
        epsilon: that is claimed at `delta`; inf where nothing is.
        delta: of the claim.
        mu: of Gaussian differential privacy (Dong, Roth and Su 2022, arXiv 1905.02383), where all noise is
            Gaussian and no rows are sampled; else None.
        rho: of zero-concentrated differential privacy (Bun and Steinke 2016, arXiv 1605.02065), where all
            noise is in totals: the Renyi divergence of each order a is at most a rho. None for DP-SGD, of
            which one point of the curve is known.
    """

    epsilon: float
    delta: float
    mu: float | None = None
    rho: float | None = None

    def at(self, delta: float) -> float:
        """Return epsilon at another delta, rounded up; inf where none is proven.

        Args:
            delta: in [1e-300, 1).

        Raises:
            ArgumentError: delta is out of its bounds.
        """
        check_delta(delta)
        if self.mu is not None and delta != self.delta:
            return gdp_epsilon(self.mu, delta)
        if self.rho is not None and delta != self.delta:
            return renyi_epsilon(2.0 * self.rho, delta)
        return self.epsilon if delta >= self.delta else math.inf

    def missed(self, alarms: float) -> float:
        """Return the least rate at which any test for one unit misses it, with this rate of false alarms.

        Args:
            alarms: in [0, 1].

        Raises:
            ArgumentError: it is not.
        """
        check_number("alarms", alarms, "[0, 1]")
        if self.mu is not None:
            # Imported here: commands that state no curve do without.
            from scipy.special import ndtr, ndtri

            return float(ndtr(-ndtri(alarms) - self.mu))
        # Wasserman and Zhou 2010 (arXiv 0811.2501): both lines of the tests that (epsilon, delta) allows.
        steep = 1.0 - self.delta - alarms * math.exp(min(self.epsilon, 700.0))
        return max(0.0, steep, math.exp(-self.epsilon) * (1.0 - self.delta - alarms))
