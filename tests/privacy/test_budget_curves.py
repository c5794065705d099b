"""What a budget takes for steps, Skellam and Gaussian noise, beside another library's composition."""

import math
import warnings
from pathlib import Path

import mpmath
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed import Box, DPKMeans, Privacy
from privfed.core.values.guarantee import Mechanism, SampledSteps
from privfed.privacy.accounting import budget_of
from privfed.privacy.filters import divergence_of, sampled_divergence
from tests.privacy.test_budget import budget_in, paid


@pytest.mark.parametrize(("noise", "rate", "count"), [(1.0, 0.01, 100), (2.0, 0.3, 7), (4.0, 1.0, 3)])
def test_the_divergence_of_steps_is_that_of_dp_accounting(noise: float, rate: float, count: int) -> None:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.rdp import RdpAccountant

    steps = SampledSteps(
        noise_multiplier=noise, sample_rate=rate, max_grad_norm=1.0, steps=count, trainings=1
    )
    accountant = RdpAccountant(orders=[12])
    accountant.compose(SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), count))
    (known,) = accountant._rdp
    assert known <= sampled_divergence(steps, 12) < known * (1.0 + 1e-6) + 1e-9


@given(st.floats(1e-3, 20.0), st.floats(-60.0, -1.0).map(lambda one: 10.0**one), st.integers(2, 4096))
def test_the_divergence_of_an_order_is_rounded_down(epsilon: float, delta: float, order: int) -> None:
    """divergence_of(epsilon, delta, a) <= epsilon - ln(1 - 1 / a) + (ln delta + ln a) / (a - 1)."""
    with mpmath.workdps(50):
        e, d, a = mpmath.mpf(epsilon), mpmath.mpf(delta), mpmath.mpf(order)
        exact = e - mpmath.log1p(-1 / a) + (mpmath.log(d) + mpmath.log(a)) / (a - 1)
        found = mpmath.mpf(divergence_of(epsilon, delta, order))
        assert exact - 3e-12 * (1 + abs(exact) + e) < found <= exact


@pytest.mark.parametrize("order", [None, 12, 40])
def test_what_a_whole_budget_pays_for_is_within_it_by_dp_accounting(
    order: int | None, tmp_path: Path
) -> None:
    """Gaussian fits, Skellam fits and DP-SGD in any mixture, composed by another library."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    budget, rng = budget_in(tmp_path, 4.0, order=order), np.random.default_rng(0)
    composed = PLDAccountant() if order is None else RdpAccountant(orders=[order])
    for i in range(9):
        share = budget.remaining().share if i == 8 else float(rng.uniform(0.03, 0.12))
        if order is not None and i % 3 == 1:
            taken = budget.take(share, noise="local", reserve=False)
            steps = SampledSteps(
                noise_multiplier=1.0, sample_rate=0.05, max_grad_norm=1.0, steps=5, trainings=4
            )
            assert taken.paid_by is not None
            noise = taken.paid_by.noise(0.5, steps)
            paid(taken, msgspec.structs.replace(steps, noise_multiplier=noise))
            event = PoissonSampledDpEvent(0.05, GaussianDpEvent(noise))
            composed.compose(SelfComposedDpEvent(event, steps.total))
            continue
        mechanism = Mechanism.SKELLAM if order is not None and i % 3 == 2 else Mechanism.GAUSSIAN
        taken = budget.take(share, mechanism=mechanism)
        paid(taken)
        # What a run may spend of mu^2; Skellam noise of that cost has no larger divergence than Gaussian.
        composed.compose(GaussianDpEvent(budget_of(mechanism, taken.epsilon, 1e-6) ** -0.5))
    assert budget.remaining().share == 0.0
    assert 3.95 < composed.get_epsilon(1e-6) <= (4.0 if order else 4.0 * 1.0001)


def test_choices_are_paid_besides_steps_and_of_two_first_trainings_the_dearer_one() -> None:
    change = msgspec.structs.replace
    steps = SampledSteps(noise_multiplier=2.0, sample_rate=0.1, max_grad_norm=1.0, steps=5, trainings=3)
    whole, order = sampled_divergence(steps, 12), 12
    chosen = sampled_divergence(change(steps, choice_noise=4.0), order)
    assert chosen == pytest.approx(whole + 3 * order / (2 * 4.0**2), rel=1e-8)
    for rate, number in ((0.001, 1), (1.0, 10)):
        found = sampled_divergence(change(steps, first_rate=rate, first_steps=number), order)
        first = sampled_divergence(change(steps, sample_rate=rate, steps=number, trainings=1), order)
        later = sampled_divergence(change(steps, trainings=2), order)
        assert found == pytest.approx(max(whole, first + later), rel=1e-8)


@pytest.mark.parametrize("mechanism", ["gaussian", "skellam"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_a_claim_of_noised_totals_is_known_at_any_delta(mechanism: str, epsilon: float) -> None:
    """It is zero-concentrated: epsilon lies below rho + 2 sqrt(rho ln(1 / delta)), and falls with delta."""
    box = Box(-1, 1, max_rows=200)
    claim = Privacy(
        epsilon=epsilon, delta=1e-6, unit="record", neighbours="add-remove", domain=box, mechanism=mechanism
    )
    rows = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        curve = DPKMeans(2, privacy=claim).fit(np.array_split(rows, 3)).privacy_claim_.curve
    assert curve.at(1e-6) == epsilon and curve.rho is not None
    found = [curve.at(delta) for delta in (1e-9, 1e-7, 1e-6, 1e-5, 1e-3)]
    assert found == sorted(found, reverse=True) and np.isfinite(found).all()
    for delta, one in zip((1e-9, 1e-7, 1e-5), (found[0], found[1], found[3]), strict=True):
        assert one <= curve.rho + 2.0 * math.sqrt(curve.rho * math.log(1.0 / delta)) + 1e-9
    assert (curve.mu is not None) == (mechanism == "gaussian")
    if curve.mu is not None:
        assert curve.rho == pytest.approx(curve.mu**2 / 2.0)
