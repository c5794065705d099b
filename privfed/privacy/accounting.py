"""Privacy costs of releases under Gaussian noise, by Gaussian differential privacy (GDP).

A release of L2 sensitivity D under Gaussian noise of standard deviation s is mu-GDP with mu = D / s (Dong,
Roth and Su 2022, arXiv 1905.02383, theorem 1); its cost is mu^2. The costs of adaptively chosen releases add
up (corollary 2 there), even where later sensitivities and noises depend on earlier totals, as long as the sum
stays below a budget that was fixed before the first (docs/privacy/accounting.md).

Results are rounded to the safe side: `gdp_epsilon` up, `gdp_mu` down. `gdp_delta` itself has a relative error
of at most 1e-11 for epsilon up to 1000 and delta from 1e-300 on.

Discrete noise is charged slightly more than continuous noise: integer queries q under discrete Gaussian noise
of variance s^2 are, up to a factor within 1 +- 1e-76 in each probability, a randomised rounding of q under
Gaussian noise of variance s^2 - 9. `discrete_gaussian_cost` charges for the latter. The proof, with its
conditions, is in docs/privacy/accounting.md. `privfed.privacy.composition` composes other mechanisms.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import erfcx, ndtr

from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError

ROUNDING_VARIANCE = 9.0
"""Variance of the randomised rounding from a Gaussian to a discrete Gaussian, in steps squared."""

LEAST_SIGMA = 5.0
"""Least sigma of one share, in steps: sums of such shares are discrete Gaussian, up to a factor within
1 +- 1e-106 in each probability."""

_SLACK = 1.0 + 1e-10
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_SQRT_2PI = math.sqrt(2.0 * math.pi)


def _mills(z: float) -> float:
    """Return (1 - Phi(z)) / phi(z), Mills' ratio of the standard normal distribution."""
    return math.sqrt(math.pi / 2.0) * float(erfcx(z / math.sqrt(2.0)))


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
    _check("epsilon", epsilon)
    _check("mu", mu)
    if mu == 0.0:
        return 0.0
    z = epsilon / mu - mu / 2.0
    density = math.exp(-z * z / 2.0) / _SQRT_2PI
    if mu < 0.1:
        points = z + mu / 2.0 * (_NODES + 1.0)
        slopes = [1.0 - point * _mills(point) for point in points.tolist()]
        return density * mu / 2.0 * float(np.dot(_WEIGHTS, slopes))
    if z < 0.0:
        return float(ndtr(-z)) - density * _mills(z + mu)
    return density * (_mills(z) - _mills(z + mu))


def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon, rounded up, for which mu-GDP implies (epsilon, delta)-DP.

    Args:
        mu: at least 0.
        delta: in [1e-300, 1).

    Raises:
        ArgumentError: a parameter is out of its bounds.
    """
    _check("mu", mu)
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
    _check("epsilon", epsilon)
    check_delta(delta)
    low, high = 0.0, 1.0
    while gdp_delta(epsilon, high) * _SLACK <= delta:
        low, high = high, 2.0 * high
    while low < (middle := (low + high) / 2.0) < high:
        low, high = (middle, high) if gdp_delta(epsilon, middle) * _SLACK <= delta else (low, middle)
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


def _check(name: str, value: float) -> None:
    if not 0.0 <= value < math.inf:
        raise ArgumentError(f"{name} must be finite and at least 0, got {name}={value!r}.")


def check_delta(delta: float) -> None:
    """Check the delta of a claim.

    Raises:
        ArgumentError: it is not in [1e-300, 1).
    """
    if not 1e-300 <= delta < 1.0:
        raise ArgumentError(f"delta must lie in [1e-300, 1), got delta={delta!r}.")
