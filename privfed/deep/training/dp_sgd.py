"""DP-SGD on one client's rows, with noise that is exact on a grid (Abadi et al. 2016, arXiv 1607.00133).

Each step draws a batch (each row with chance `sample_rate`), clips each row's gradient to `max_grad_norm` C,
truncates it toward zero to multiples of a power-of-two step (about C 2^-38), sums, and adds discrete Gaussian
noise to the sum. One row more or less moves the sum by at most C, and by what rounding makes of the other
rows' gradients when they are computed in another batch: numbers of float64 that differ by less than a step
are truncated to the same or to neighbouring multiples, so that m rows of p parameters move by at most m
sqrt(p) steps. That is below C 2^-10 for m sqrt(p) <= 2^28, which is charged: the release is that of a
Poisson-sampled Gaussian of `noise_multiplier` and of post-processing alone, where sigma^2 is
(noise_multiplier C (1 + 2^-10))^2 + 9 in steps (docs/privacy/accounting.md: a discrete Gaussian of variance
s^2 is a randomised rounding of a Gaussian of variance s^2 - 9). Assumed, not proven: that a row's gradient,
computed in float64, changes by less than C 2^-38 with the other rows of its batch. Batches and noise come
from the operating system's generator.

Nothing but the noised sums depends on rows: the number of steps and what sums are divided by are public, a
gradient that is no number counts as zero, and a client without rows answers noise.
"""

from __future__ import annotations

import math
import warnings
from typing import Protocol

import numpy as np
import numpy.typing as npt

from privfed.core.asking.question import ERRORS
from privfed.core.values.domain import FloatArray
from privfed.deep.training.trainer import Labels, Trainer
from privfed.privacy.accounting import LEAST_SIGMA, ROUNDING_VARIANCE
from privfed.privacy.sampler import Integers, RandomBits, discrete_gaussian

STEPS = 2.0**38
"""Least number of steps of the grid within the clipping norm."""

CHARGED = 1.0 + 2.0**-10
"""How much farther than its clipped gradient a row may move a sum, by rounding in the other rows'."""

BLOCK = 1 << 24
"""Most numbers of gradients that are held at a time."""


class Words(Protocol):
    """Words of DP-SGD (`privfed.deep.training.local.Training`)."""

    @property
    def learning_rate(self) -> float:
        """Of SGD."""

    @property
    def noise_multiplier(self) -> float:
        """Ratio of the noise's standard deviation to the clipping norm."""

    @property
    def sample_rate(self) -> float:
        """Chance of each row to be in a batch."""

    @property
    def max_grad_norm(self) -> float:
        """Clipping norm of a row's gradient."""

    @property
    def rows(self) -> int:
        """Public number of rows."""

    @property
    def steps(self) -> int:
        """Number of steps."""


def private_sgd(
    trainer: Trainer,
    start: FloatArray,
    features: FloatArray,
    labels: Labels,
    words: Words,
    source: RandomBits,
) -> FloatArray:
    """Return the model after the steps of DP-SGD, float64 of shape (n_parameters,).

    Args:
        trainer: the model.
        start: its parameters before.
        features: rows, float64 of shape (n_rows, n_features); perhaps none.
        labels: their classes.
        words: of DP-SGD.
        source: where batches and noise come from: `SecureBits()` for what is claimed.
    """
    found = start.copy()
    step = 2.0 ** (math.frexp(words.max_grad_norm / STEPS)[1] - 1)
    reach = words.max_grad_norm / step * CHARGED
    sigma = max(LEAST_SIGMA, math.sqrt((words.noise_multiplier * reach) ** 2 + ROUNDING_VARIANCE))
    scale = words.learning_rate * step / (words.sample_rate * words.rows)
    for _ in range(words.steps):
        batch = _sampled(len(features), words.sample_rate, source)
        total = _clipped_sum(trainer, found, features[batch], labels[batch], words.max_grad_norm, step)
        noised = total + discrete_gaussian(sigma, len(found), source)
        found = found - scale * noised.astype(np.float64)
    return found


def _sampled(n_rows: int, rate: float, source: RandomBits) -> npt.NDArray[np.bool_]:
    """Return which rows are in a batch: each by itself with chance `rate`, rounded down to 2^-53."""
    drawn = source.words(n_rows) >> np.uint64(11)
    return np.asarray(drawn < np.uint64(math.floor(rate * 2**53)), dtype=np.bool_)


def _clipped_sum(
    trainer: Trainer, model: FloatArray, features: FloatArray, labels: Labels, limit: float, step: float
) -> Integers:
    """Return the sum of the rows' gradients, each clipped and truncated, in steps; exact below 2^24 rows."""
    total, at_a_time = np.zeros(len(model), dtype=np.int64), max(1, BLOCK // len(model))
    for first in range(0, len(features), at_a_time):
        part = slice(first, first + at_a_time)
        rows = _own_gradients(trainer, model, features[part], labels[part])
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.linalg.norm(rows, axis=1, keepdims=True)
            # A row whose gradient is no number, or longer than numbers go, adds nothing.
            rows = np.where(np.isfinite(lengths), rows, 0.0)
            lengths = np.where(np.isfinite(lengths), lengths, 0.0)
        rows = rows * np.minimum(1.0, limit * (1.0 - 2.0**-40) / np.maximum(lengths, limit * 2.0**-60))
        total += np.trunc(rows / step).astype(np.int64).sum(axis=0)
    return total


def _own_gradients(trainer: Trainer, model: FloatArray, features: FloatArray, labels: Labels) -> FloatArray:
    """Return the rows' gradients; where a row makes an error, each by itself, and that one's is zero."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return trainer.gradients(model, features, labels)
        except KeyboardInterrupt:
            raise
        except ERRORS:
            if len(features) == 1:
                return np.zeros((1, len(model)))
        ones = [
            _own_gradients(trainer, model, features[i : i + 1], labels[i : i + 1])
            for i in range(len(features))
        ]
        return np.concatenate(ones)
