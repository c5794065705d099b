"""Steps of DP-SGD as values: what clients agree to train by, and what a question declares that it trains."""

from __future__ import annotations

import msgspec

from privfed.errors import ArgumentError

MOST_NOISE = 2.0**10
"""Largest noise multiplier: draws on the grid stay within int64."""

MOST_STEPS = 1_000_000
"""Most steps of one training."""


class SampledSteps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The steps of a client's training: Poisson-sampled rows, clipped gradients, Gaussian noise.

    Args:
        noise_multiplier: ratio of the noise's standard deviation to `max_grad_norm`.
        sample_rate: chance of each row to be in a step's batch.
        max_grad_norm: L2 norm that a row's gradient is clipped to.
        steps: of one training.
        trainings: how often a client trains in a fit at most.
    """

    noise_multiplier: float
    sample_rate: float
    max_grad_norm: float
    steps: int
    trainings: int

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

    @property
    def total(self) -> int:
        """Steps of all trainings."""
        return self.steps * self.trainings
