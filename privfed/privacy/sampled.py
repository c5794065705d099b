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

PRECISION = 1e-3
"""Noise multipliers are rounded up by less than this share."""


@lru_cache(maxsize=4096)
def epsilon_of(noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> float:
    """Return the epsilon that so many steps of DP-SGD guarantee for one record, added or removed.

    Args:
        noise_multiplier: ratio of the noise's standard deviation to the clipping norm.
        sample_rate: chance of each record to be in a step's batch.
        steps: in all rounds together; 0 for none.
        delta: of the claim.
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
    accountant = PLDAccountant(relation, value_discretization_interval=INTERVAL)
    return float(accountant.compose(event).get_epsilon(delta))


@lru_cache(maxsize=64)
def noise_for(epsilon: float, delta: float, sample_rate: float, steps: int) -> float:
    """Return the least noise multiplier, rounded up by `PRECISION`, of so many steps under a claim.

    Raises:
        PrivacyError: no multiplier up to `MOST_NOISE` is enough.
    """
    low, high = 0.0, 0.5
    while epsilon_of(high, sample_rate, steps, delta) > epsilon:
        low, high = high, 2.0 * high
        if high > MOST_NOISE:
            raise PrivacyError(
                f"epsilon={epsilon:g} and delta={delta:g} leave nothing for {steps} steps of DP-SGD; "
                "take fewer rounds or epochs, or claim a larger epsilon."
            )
    while high - low > PRECISION * high:
        middle = (low + high) / 2.0
        low, high = (
            (low, middle) if epsilon_of(middle, sample_rate, steps, delta) <= epsilon else (middle, high)
        )
    return high
