"""What a fit by DP-SGD costs where its first training is another one, and where clients choose models."""

import math

import msgspec
import pytest

from privfed.core.values.steps import SampledSteps
from privfed.errors import ArgumentError
from privfed.privacy.accounting import gdp_epsilon
from privfed.privacy.sampled import epsilon_of, epsilon_of_fit, noise_of_fit

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


@pytest.mark.parametrize(
    "words",
    [{"first_rate": 0.5}, {"first_steps": 3}, {"first_rate": 2.0, "first_steps": 1}, {"choice_noise": -1.0}],
)
def test_nonsense_is_refused(words: dict[str, float]) -> None:
    plain = {name: getattr(STEPS, name) for name in ("noise_multiplier", "sample_rate", "max_grad_norm")}
    with pytest.raises(ArgumentError, match=r"first training|choice_noise"):
        SampledSteps(**plain, steps=10, trainings=6, **words)  # type: ignore[arg-type]
