"""What a fit by DP-SGD costs where its first training is another one, and where clients choose models."""

import math

import msgspec
import pytest

from privfed.core.values.guarantee import SampledSteps
from privfed.errors import BoundsError
from privfed.privacy import dp_sgd
from privfed.privacy.accounting import gdp_epsilon
from privfed.privacy.dp_sgd import epsilon_of, epsilon_of_fit, noise_of_fit

STEPS = SampledSteps(noise_multiplier=2.0, sample_rate=0.1, max_grad_norm=1.0, steps=10, trainings=6)
DELTA = 1e-5


def changed(**words: float) -> SampledSteps:
    return msgspec.structs.replace(STEPS, **words)


def test_steps_alike_are_those_of_all_trainings() -> None:
    assert epsilon_of_fit(STEPS, DELTA) == epsilon_of(2.0, 0.1, 60, DELTA)
    assert STEPS.total == 60 and b"first" not in msgspec.msgpack.encode(STEPS)


def test_gaussian_steps_compose_to_what_gaussian_privacy_says() -> None:
    """One step of all rows, later ones of all rows too, and choices: mu is the root of the sum of squares."""
    steps = changed(
        sample_rate=0.999999, steps=1, trainings=3, first_rate=1.0, first_steps=2, choice_noise=4.0
    )
    mu = math.sqrt((2 + 2) / 4.0 + 3 / 16.0)
    assert steps.total == 4
    assert epsilon_of_fit(steps, DELTA) == pytest.approx(gdp_epsilon(mu, DELTA), rel=2e-3)


def test_a_client_without_the_first_training_is_covered_too() -> None:
    """Where the first training is cheaper than the others, those count who join later and train as often."""
    cheap = changed(first_rate=0.001, first_steps=1)
    assert epsilon_of_fit(cheap, DELTA) == pytest.approx(epsilon_of(2.0, 0.1, 60, DELTA), rel=1e-6)
    dear = changed(first_rate=1.0, first_steps=10)
    assert epsilon_of_fit(dear, DELTA) > epsilon_of(2.0, 0.1, 50, DELTA) + 0.5


def test_choices_cost_and_the_least_noise_is_found_with_them() -> None:
    chosen = changed(first_rate=1.0, first_steps=1, choice_noise=20.0)
    assert epsilon_of_fit(changed(first_rate=1.0, first_steps=1), DELTA) < epsilon_of_fit(chosen, DELTA)
    found = noise_of_fit(2.0, DELTA, chosen)
    assert epsilon_of_fit(msgspec.structs.replace(chosen, noise_multiplier=found), DELTA) <= 2.0
    less = msgspec.structs.replace(chosen, noise_multiplier=0.99 * found)
    assert epsilon_of_fit(less, DELTA) > 2.0


def forbidden(*steps: object) -> None:
    raise AssertionError("composed")


@pytest.mark.parametrize(
    ("noise", "rate", "count"), [(0.3, 0.999, 10**6), (4.0, 0.2, 1 << 21), (0.07, 0.5, 99)]
)
def test_steps_that_no_claim_covers_are_not_composed(
    noise: float, rate: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agreement of the first line took 9.5 GB at whoever joined it."""
    monkeypatch.setattr(dp_sgd, "_event", forbidden)
    assert epsilon_of(noise, rate, count, DELTA) == math.inf


@pytest.mark.few(2)
@pytest.mark.parametrize(("noise", "rate"), [(0.5, 0.3), (1.0, 0.01), (2.0, 0.5), (8.0, 0.999)])
def test_what_is_not_composed_is_beyond_the_largest_epsilon(
    noise: float, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = [1 << power for power in range(20)]
    composed = [dp_sgd._composed([(noise, rate, count)], DELTA, 1e-2) for count in counts]
    monkeypatch.setattr(dp_sgd, "MOST_EPSILON", 4.0)
    bounded = [dp_sgd._composed([(noise, rate, count)], DELTA, 1e-2) for count in counts]
    assert bounded[-1] == math.inf
    for whole, found in zip(composed, bounded, strict=True):
        assert found == whole or (found == math.inf and whole > 4.0)


@pytest.mark.parametrize(
    "words",
    [
        {"noise_multiplier": 0.01},
        {"sample_rate": 2.0**-41},
        {"first_rate": 2.0**-41, "first_steps": 1},
        {"choice_noise": 1e-3},
        {"steps": 10**6, "trainings": 3},
        {"max_grad_norm": 1e-190},
    ],
)
def test_numbers_that_take_long_to_account_for_are_refused(words: dict[str, float]) -> None:
    plain = {name: getattr(STEPS, name) for name in STEPS.__struct_fields__[:5]}
    with pytest.raises(BoundsError) as found:
        SampledSteps(**{**plain, **words})  # type: ignore[arg-type]
    assert found.value.parameter in {*words, "total"}


@pytest.mark.parametrize(
    "words",
    [{"first_rate": 0.5}, {"first_steps": 3}, {"first_rate": 2.0, "first_steps": 1}, {"choice_noise": -1.0}],
)
def test_nonsense_is_refused(words: dict[str, float]) -> None:
    plain = {name: getattr(STEPS, name) for name in ("noise_multiplier", "sample_rate", "max_grad_norm")}
    with pytest.raises(BoundsError) as found:
        SampledSteps(**plain, steps=10, trainings=6, **words)  # type: ignore[arg-type]
    assert found.value.parameter in ("first_rate", "first_steps", "choice_noise")


def opacus_epsilon(name: str, sigma: float, probability: float, rounds: int) -> float:
    """Return the epsilon of one of Opacus' accountants."""
    accountant = pytest.importorskip("opacus.accountants").create_accountant(name)
    for _ in range(rounds):
        accountant.step(noise_multiplier=sigma, sample_rate=probability)
    return float(accountant.get_epsilon(delta=1e-6))


@pytest.mark.parametrize(("sigma", "probability", "rounds"), [(2.0, 0.1, 50), (1.0, 0.01, 1000)])
@pytest.mark.few(1)
def test_opacus_agrees_on_sampled_gaussians(sigma: float, probability: float, rounds: int) -> None:
    # Its PRV accountant's upper bound is 0.01 above its estimate.
    ours = epsilon_of(sigma, probability, rounds, 1e-6)
    assert ours - 1e-3 <= opacus_epsilon("prv", sigma, probability, rounds) <= ours + 0.02


def test_opacus_bounds_unsampled_gaussians_from_above() -> None:
    ours = epsilon_of(5.0, 1.0, 5, 1e-6)
    assert ours <= opacus_epsilon("rdp", 5.0, 1.0, 5) <= 1.1 * ours
