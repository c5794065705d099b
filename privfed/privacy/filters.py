"""The filters of a privacy budget: what the whole comes to, and what steps of DP-SGD take of it.

Costs are mu^2 of Gaussian releases; at an order a of Renyi divergence, 2 r / a for a divergence r.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln, logsumexp

from privfed.core.values.guarantee import SampledSteps
from privfed.errors import PrivacyError
from privfed.privacy.accounting import gdp_mu
from privfed.privacy.pricing import SLACK

MOST_ORDER = 4096
"""Largest order of a Renyi filter: a step of DP-SGD has as many terms."""

_ROUNDING = 1e-12


def divergence_of(epsilon: float, delta: float, order: int) -> float:
    """Return the divergence of an order, rounded down, that implies (epsilon, delta)."""
    excess = math.log1p(-1.0 / order) - (math.log(delta) + math.log(order)) / (order - 1.0)
    return epsilon - excess - _ROUNDING * (1.0 + abs(excess))


def suggested_order(epsilon: float, delta: float) -> int:
    """Return the least order at which half of epsilon is left for releases."""
    orders = range(2, MOST_ORDER + 1)
    return next((a for a in orders if divergence_of(epsilon, delta, a) >= epsilon / 2.0), MOST_ORDER)


def whole(epsilon: float, delta: float, order: int | None) -> float:
    """Return the largest sum of costs, rounded down so that shares may sum to 1 up to rounding."""
    cost = gdp_mu(epsilon, delta) ** 2
    if order is not None:
        cost = 2.0 * divergence_of(epsilon, delta, order) / order
    if not cost > 0.0:
        raise PrivacyError(
            f"order={order} leaves nothing at epsilon={epsilon:g} and delta={delta:g}; take "
            f"order={suggested_order(epsilon, delta)}."
        )
    return cost * (1.0 - SLACK)


def sampled_divergence(steps: SampledSteps, order: int) -> float:
    """Return the Renyi divergence, rounded up, of all agreed steps of DP-SGD and choices for one record.

    A step of sampling rate q and noise s has ln(sum_k C(a, k) (1 - q)^(a - k) q^k exp((k^2 - k) / (2 s^2))) /
    (a - 1) for records that are added or removed (Mironov, Talwar and Zhang 2019, arXiv 1908.10530, section
    3.3). A client that joins late never does the first training, so that the larger of both counts.

    Args:
        steps: that clients agreed on.
        order: an integer of at least 2.
    """

    def step(rate: float) -> float:
        if rate == 1.0:
            return order / (2.0 * steps.noise_multiplier**2)
        k = np.arange(order + 1.0)
        chosen = gammaln(order + 1.0) - gammaln(k + 1.0) - gammaln(order - k + 1.0)
        chosen += (order - k) * math.log1p(-rate) + k * math.log(rate)
        terms = chosen + (k * k - k) / (2.0 * steps.noise_multiplier**2)
        return max(0.0, float(logsumexp(terms))) / (order - 1.0) + 1e-12

    later, trainings = step(steps.sample_rate), steps.trainings
    choices = trainings * order / (2.0 * steps.choice_noise**2) if steps.choice_noise else 0.0
    found = steps.steps * trainings * later
    if steps.first_steps:
        found = max(found, steps.first_steps * step(steps.first_rate) + steps.steps * (trainings - 1) * later)
    return (found + choices) * (1.0 + 1e-9)
