"""What DP-SGD costs: the privacy-loss distribution of its steps, by dp-accounting, and the noise for a claim.

Each step is a Poisson-sampled Gaussian, with records added or removed as neighbours; steps compose
(each loss is rounded up to a multiple of `INTERVAL`, so that epsilon is an upper bound). Opacus' accountants
give the same epsilon up to their own error (`tests/deep/torch/test_opacus.py`).
"""

from __future__ import annotations

from functools import lru_cache

import dp_accounting
from dp_accounting.pld import PLDAccountant

from privfed.core.values.steps import MOST_NOISE
from privfed.errors import PrivacyError
from privfed.privacy.accounting import gdp_epsilon

INTERVAL = 1e-3
"""Grid of privacy losses; ten times finer lowers an epsilon of 10 by less than 2e-5."""

COARSE = 2e-2
"""A grid on which a search begins: its epsilons are larger, so that what they allow is allowed."""

PRECISION = 1e-3
"""Noise multipliers are rounded up by less than this share."""


@lru_cache(maxsize=4096)
def epsilon_of(
    noise_multiplier: float, sample_rate: float, steps: int, delta: float, interval: float = INTERVAL
) -> float:
    """Return the epsilon that so many steps of DP-SGD guarantee for one record, added or removed.

    Args:
        noise_multiplier: ratio of the noise's standard deviation to the clipping norm.
        sample_rate: chance of each record to be in a step's batch.
        steps: in all rounds together; 0 for none.
        delta: of the claim.
        interval: grid of privacy losses.
    """
    if steps == 0:
        return 0.0
    if sample_rate == 1.0:
        return gdp_epsilon(steps**0.5 / noise_multiplier, delta)
    gaussian = dp_accounting.GaussianDpEvent(noise_multiplier)
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(sample_rate, gaussian), steps
    )
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = PLDAccountant(relation, value_discretization_interval=interval)
    return float(accountant.compose(event).get_epsilon(delta))


@lru_cache(maxsize=64)
def noise_for(epsilon: float, delta: float, sample_rate: float, steps: int) -> float:
    """Return the least noise multiplier, rounded up by `PRECISION`, of so many steps under a claim.

    Raises:
        PrivacyError: no multiplier up to `MOST_NOISE` is enough.
    """
    found = _least(epsilon, delta, sample_rate, steps, COARSE, 0.0, 0.5)
    return _least(epsilon, delta, sample_rate, steps, INTERVAL, 0.0, found)


def _least(
    epsilon: float, delta: float, sample_rate: float, steps: int, interval: float, low: float, high: float
) -> float:
    def allowed(multiplier: float) -> bool:
        return epsilon_of(multiplier, sample_rate, steps, delta, interval) <= epsilon

    while not allowed(high):
        low, high = high, 2.0 * high
        if high > MOST_NOISE:
            raise PrivacyError(
                f"epsilon={epsilon:g} and delta={delta:g} leave nothing for {steps} steps of DP-SGD; "
                "take fewer rounds or epochs, or claim a larger epsilon."
            )
    # What a coarser grid allowed is close: small steps down first, as little noise takes long to account.
    step = 1.0 / 64.0
    while low == 0.0 and step < 1.0:
        smaller = high * (1.0 - step)
        if allowed(smaller):
            high, step = smaller, 2.0 * step
        else:
            low = smaller
    while high - low > PRECISION * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if allowed(middle) else (middle, high)
    return high
