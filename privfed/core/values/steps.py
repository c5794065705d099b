"""Steps of DP-SGD as values: what clients agree to train by, and what a question declares that it trains."""

from __future__ import annotations

import msgspec

from privfed.errors import ArgumentError

MOST_NOISE = 2.0**10
"""Largest noise multiplier: draws on the grid stay within int64."""

MOST_CHOICE_NOISE = 2.0**20
"""Largest noise multiplier of a choice."""

MOST_STEPS = 1_000_000
"""Most steps of one training."""


class SampledSteps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The steps of a client's training: Poisson-sampled rows, clipped gradients, Gaussian noise.

    Args:
        noise_multiplier: ratio of the noise's standard deviation to `max_grad_norm`.
        sample_rate: chance of each row to be in a step's batch.
        max_grad_norm: L2 norm that a row's gradient is clipped to.
        steps: of one training.
        trainings: how often a client trains in a fit at most.
        first_rate: `sample_rate` of the first round's training, where it is another one; 0 for none. A client
            that paid before does not take part in it.
        first_steps: steps of that training; 0 for none.
        choice_noise: where a client chooses among models by how many of its rows each gets right, the ratio
            of these counts' noise to their L2 sensitivity; each training comes with one choice at most. 0
            for no choices.
    """

    noise_multiplier: float
    sample_rate: float
    max_grad_norm: float
    steps: int
    trainings: int
    first_rate: float = 0.0
    first_steps: int = 0
    choice_noise: float = 0.0

    def __post_init__(self) -> None:
        if not (0.0 < self.noise_multiplier <= MOST_NOISE and 0.0 < self.sample_rate <= 1.0):
            raise ArgumentError(
                f"DP-SGD needs a noise_multiplier in (0, {MOST_NOISE:g}] and a sample_rate in (0, 1], got "
                f"{self.noise_multiplier} and {self.sample_rate}."
            )
        if not (
            1 <= self.steps <= MOST_STEPS and self.trainings >= 1 and 0.0 < self.max_grad_norm < 2.0**100
        ):
            raise ArgumentError(
                f"DP-SGD takes 1 to {MOST_STEPS} steps in a training and at least one training, and needs a "
                f"positive max_grad_norm; got {self.steps}, {self.trainings} and {self.max_grad_norm}."
            )
        first = 0.0 < self.first_rate <= 1.0 and 1 <= self.first_steps <= MOST_STEPS
        if not (first or (self.first_rate, self.first_steps) == (0.0, 0)):
            raise ArgumentError(
                f"a first training of its own takes 1 to {MOST_STEPS} steps at a rate in (0, 1], got "
                f"{self.first_steps} and {self.first_rate}."
            )
        if not 0.0 <= self.choice_noise <= MOST_CHOICE_NOISE:
            raise ArgumentError(
                f"choice_noise must lie in [0, {MOST_CHOICE_NOISE:g}], got {self.choice_noise}."
            )

    @property
    def total(self) -> int:
        """Steps of all trainings."""
        return self.steps * self.trainings if not self.first_steps else self.first_steps + self._later

    @property
    def _later(self) -> int:
        return self.steps * (self.trainings - 1)
