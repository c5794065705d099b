"""What DP-SGD costs: the privacy-loss distribution of its steps, by dp-accounting, and the noise for a claim.

Each step is a Poisson-sampled Gaussian, with records added or removed as neighbours; steps compose
(each loss is rounded up to a multiple of `INTERVAL`, so that epsilon is an upper bound). Opacus' accountants
give the same epsilon up to their own error (`tests/deep/torch/test_torch_trainer.py`).
"""

from __future__ import annotations

from functools import lru_cache

import dp_accounting
import msgspec
from dp_accounting.pld import PLDAccountant

from privfed.core.values.steps import MOST_NOISE, SampledSteps
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
    return _composed([_steps(noise_multiplier, sample_rate, steps)], delta, interval)


@lru_cache(maxsize=4096)
def epsilon_of_fit(steps: SampledSteps, delta: float, interval: float = INTERVAL) -> float:
    """Return the epsilon that all agreed steps guarantee for one record, choices included.

    A client that joins after the first round never does the first training, so that the larger one counts
    of the fits with and without it.

    Args:
        steps: that clients agreed on.
        delta: of the claim.
        interval: grid of privacy losses.
    """
    noise, rate = steps.noise_multiplier, steps.sample_rate
    if not (steps.first_steps or steps.choice_noise):
        return epsilon_of(noise, rate, steps.total, delta, interval)
    chosen = [_steps(steps.choice_noise, 1.0, steps.trainings)] if steps.choice_noise else []
    fits = [[_steps(noise, rate, steps.steps * steps.trainings), *chosen]]
    if steps.first_steps:
        first = _steps(noise, steps.first_rate, steps.first_steps)
        fits.append([first, _steps(noise, rate, steps.steps * (steps.trainings - 1)), *chosen])
    return max(_composed([one for one in events if one.count], delta, interval) for events in fits)


def _steps(noise: float, rate: float, count: int) -> dp_accounting.SelfComposedDpEvent:
    event: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(noise)
    if rate < 1.0:
        event = dp_accounting.PoissonSampledDpEvent(rate, event)
    return dp_accounting.SelfComposedDpEvent(event, count)


def _composed(events: list[dp_accounting.SelfComposedDpEvent], delta: float, interval: float) -> float:
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = PLDAccountant(relation, value_discretization_interval=interval)
    for event in events:
        accountant.compose(event)
    return float(accountant.get_epsilon(delta))


def noise_for(epsilon: float, delta: float, sample_rate: float, steps: int) -> float:
    """Return the least noise multiplier, rounded up by `PRECISION`, of so many steps under a claim.

    Raises:
        PrivacyError: no multiplier up to `MOST_NOISE` is enough.
    """
    all_steps = SampledSteps(
        noise_multiplier=1.0, sample_rate=sample_rate, max_grad_norm=1.0, steps=steps, trainings=1
    )
    return noise_of_fit(epsilon, delta, all_steps)


@lru_cache(maxsize=64)
def noise_of_fit(epsilon: float, delta: float, steps: SampledSteps) -> float:
    """Return the least noise multiplier of a fit's steps under a claim; the steps' own does not matter.

    Raises:
        PrivacyError: no multiplier up to `MOST_NOISE` is enough.
    """
    found = _least(epsilon, delta, steps, COARSE, 0.0, 0.5)
    return _least(epsilon, delta, steps, INTERVAL, 0.0, found)


def _least(
    epsilon: float, delta: float, steps: SampledSteps, interval: float, low: float, high: float
) -> float:
    def allowed(multiplier: float) -> bool:
        tried = msgspec.structs.replace(steps, noise_multiplier=multiplier)
        return epsilon_of_fit(tried, delta, interval) <= epsilon

    while not allowed(high):
        low, high = high, 2.0 * high
        if high > MOST_NOISE:
            raise PrivacyError(
                f"epsilon={epsilon:g} and delta={delta:g} leave nothing for {steps.total} steps of DP-SGD; "
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
