"""DP-SGD on one client's rows, with noise that is exact on a grid (Abadi et al. 2016, arXiv 1607.00133).

Each step draws a batch (each row with chance `rate`), clips each row's gradient to `max_grad_norm` C,
truncates it toward zero to multiples of a power-of-two step (about C 2^-38), sums, and adds discrete Gaussian
noise to the sum: whole numbers, which add up exactly. The release is that of a Poisson-sampled Gaussian of
`noise_multiplier` and of post-processing alone, where sigma^2 is (noise_multiplier C (1 + 2^-10))^2 + 9 in
steps (docs/privacy/accounting.md: a discrete Gaussian of variance s^2 is a randomised rounding of a Gaussian
of variance s^2 - 9).

Property: with the same draws, one row more moves the sum by that row's own truncated gradient, to the last
bit, and so by at most C (docs/decisions/019-dp-sgd.md). In floating point a row's gradient may depend on how
many rows it is computed with, and on its place among them. So gradients are computed in blocks of a fixed
number of rows. Each row draws its place in a block by itself, those of one place go into one block after the
other, and places that stay empty hold zeros: what a row's gradient is computed with depends on its own draw
alone. Assumed: for arrays of one shape, a model takes the same floating-point operations whatever they hold.
The charge of 2^-10 would cover differences far larger than rounding makes. Batches, places and noise come
from the operating system's generator.

A gradient's part that is an outer product is kept as its two factors. The second is divided by its length,
which the first is multiplied by; the first ones, beside all other parts, have the row's length and are
clipped; then both are truncated, to 2^-19 and to 2^19 steps. So their product is of whole numbers of steps,
no longer than before, and a matrix product adds up the rows' products exactly, in any order.

Each row is held to what it is charged for, in steps, before it is added: one that is longer adds zero, and
the client's own log tells (`privfed.privacy.contributions`).

Nothing but the noised sums depends on rows: the number of steps and what sums are divided by are public, a
gradient that is no number counts as zero, and a client without rows answers noise.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privfed.core.asking.question import ERRORS, Part
from privfed.core.stored.encoding import asdict
from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import SampledSteps
from privfed.deep.parameters import ModelParameters
from privfed.deep.training.trainer import (
    Labels,
    Numbers,
    OfBlock,
    Parts,
    SoftmaxRegression,
    TakesBlocks,
    Trainer,
    stepping,
    whole,
)
from privfed.privacy.accounting import LEAST_SIGMA, ROUNDING_VARIANCE
from privfed.privacy.bounds import shortened
from privfed.privacy.contributions import beyond
from privfed.privacy.rejection import Integers, RandomBits
from privfed.privacy.sampler import discrete_gaussian

STEPS = 2.0**38
"""Least number of steps of the grid within the clipping norm."""

CHARGED = 1.0 + 2.0**-10
"""How much farther than its clipped gradient a row is charged for moving a sum."""

PLACES = 64
"""Most rows of a block, where the trainer does not say."""

CACHED = 1 << 17
"""Most numbers of gradients that are clipped at a time, or one row's."""

TOGETHER = 1 << 8
"""Most rows that are clipped together, of several blocks."""

DRAWN = 1 << 16
"""Most numbers of noise that are drawn at once, or one step's."""

EXACT = 1 << 13
"""Most rows whose gradients float64 adds up exactly: whole numbers of at most 2^39 (1 + 2^-10) steps."""

FACTOR = 2.0**19
"""Length of the second factor of an outer product at most, in units that it is truncated to."""

BLOCK = 1 << 21
"""Most numbers of gradients that are held at a time, or one row's. Larger blocks hold more empty places."""


USUAL = ModelParameters()
"""The parameters' defaults."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Descent(Part):
    """How clients take the steps of a round.

    Fields that are not listed are parameters of the estimators, of the same names and bounds
    (`privfed.deep.parameters`).

    Args:
        round: of a question, from 1 on; what is agreed on is the first one's.
        noise_multiplier: ratio of the noise's standard deviation to `max_grad_norm`; 0 for plain SGD.
        trainings: how often a client trains by DP-SGD in a fit at most.
        first_rate: in place of `sample_rate` in the first round; 0 for the same. Without DP-SGD anything but
            0 takes all of a client's rows at once there.
        choice_noise: of choices among models under DP-SGD, by an own algorithm (examples/rdpcfl).
    """

    epochs: int = USUAL.epochs
    learning_rate: float = USUAL.learning_rate
    learning_rate_decay: float = USUAL.learning_rate_decay
    round: int = 1
    noise_multiplier: float = 0.0
    sample_rate: float = USUAL.sample_rate
    max_grad_norm: float = USUAL.max_grad_norm
    rows_per_client: int = 1
    trainings: int = 0
    first_rate: float = 0.0
    choice_noise: float = 0.0

    @property
    def decayed_rate(self) -> float:
        """Learning rate of this round."""
        try:
            # Whole numbers have no bound: a power of 2 in round 2^31 takes hours.
            return self.learning_rate * float(self.learning_rate_decay) ** (self.round - 1)
        except OverflowError:
            return math.inf

    @property
    def private(self) -> bool:
        """Whether training is DP-SGD."""
        return self.noise_multiplier != 0.0

    @property
    def rate(self) -> float:
        """Chance of each row to be in a batch of DP-SGD in this round."""
        return self.first_rate if self.first_rate and self.round == 1 else self.sample_rate

    @property
    def steps(self) -> int:
        """Steps of a client's DP-SGD in this round."""
        return self._steps_at(self.rate)

    def _steps_at(self, rate: float) -> int:
        """Return as many steps as give `epochs` expected passes."""
        return max(1, round(self.epochs / rate))

    @property
    def noise_variance(self) -> float:
        """Variance that DP-SGD's noise gives each number of an update in this round, at most; public."""
        spread = self.decayed_rate * self.noise_multiplier * self.max_grad_norm * CHARGED
        return self.steps * (spread / (self.rate * self.rows_per_client)) ** 2 if self.private else 0.0

    @property
    def sampled_steps(self) -> SampledSteps:
        """The steps of DP-SGD, as clients agree to them.

        Raises:
            ArgumentError: one of their options is out of its bounds.
        """
        own = asdict(self)
        shared = {name: own[name] for name in SampledSteps.__struct_fields__ if name in own}
        first = self._steps_at(self.first_rate) if self.first_rate else 0
        return SampledSteps(**shared, steps=self._steps_at(self.sample_rate), first_steps=first)


def private_sgd(
    trainer: Trainer,
    start: FloatArray,
    features: FloatArray,
    labels: Labels,
    settings: Descent,
    source: RandomBits,
    errors: list[BaseException] | None = None,
) -> FloatArray:
    """Return the model after the steps of DP-SGD, float64 of shape (n_parameters,).

    Args:
        trainer: the model.
        start: its parameters before.
        features: rows, float64 of shape (n_rows, n_features); perhaps none.
        labels: their classes.
        settings: of the round.
        source: where batches and noise come from: `SecureBits()` for what is claimed.
        errors: takes what the client's own log is to say (`ClientData.errors`).
    """
    found = start.copy()
    step = 2.0 ** (math.frexp(settings.max_grad_norm / STEPS)[1] - 1)
    reach = settings.max_grad_norm / step * CHARGED
    sigma = max(LEAST_SIGMA, math.sqrt((settings.noise_multiplier * reach) ** 2 + ROUNDING_VARIANCE))
    mean = step / (settings.rate * settings.rows_per_client)
    own_step = stepping(trainer, start, settings.decayed_rate)
    size = n_places(trainer, features.shape[1])
    for noise in _noise(sigma, settings.steps, len(found), source):
        batch = _sampled(len(features), settings.rate, source)
        places = _places(int(batch.sum()), size, source)
        own = features[batch], labels[batch]
        total = _clipped_sum(trainer, found, *own, places, settings.max_grad_norm, step, errors)
        gradient = mean * (total + noise).astype(np.float64)
        found = found - settings.decayed_rate * gradient if own_step is None else own_step(gradient)
    return found


def _noise(sigma: float, steps: int, size: int, source: RandomBits) -> Iterator[Integers]:
    """Yield the noise of each step, int64 of shape (size,): of small models many steps at once are drawn."""
    together = max(1, DRAWN // size)
    for start in range(0, steps, together):
        yield from discrete_gaussian(sigma, (min(together, steps - start), size), source)


def _sampled(n_rows: int, rate: float, source: RandomBits) -> npt.NDArray[np.bool_]:
    """Return which rows are in a batch: each by itself with chance `rate`, rounded down to 2^-53."""
    drawn = source.words(n_rows) >> np.uint64(11)
    return np.asarray(drawn < np.uint64(math.floor(rate * 2**53)), dtype=np.bool_)


def n_places(trainer: Trainer, n_features: int) -> int:
    """Return how many rows a block has, a power of two that follows from the model alone."""
    if isinstance(trainer, TakesBlocks):
        return trainer.size(n_features)
    return 1 << max(0, min(BLOCK // trainer.n_parameters, PLACES).bit_length() - 1)


def _places(n_rows: int, size: int, source: RandomBits) -> npt.NDArray[np.intp]:
    """Return the place of each row in a block: drawn by itself, so that it says nothing of other rows."""
    return (source.words(n_rows) & np.uint64(size - 1)).astype(np.intp)


def _clipped_sum(
    trainer: Trainer,
    model: FloatArray,
    features: FloatArray,
    labels: Labels,
    places: npt.NDArray[np.intp],
    limit: float,
    step: float,
    errors: list[BaseException] | None = None,
) -> Integers:
    """Return the sum of the rows' gradients, each clipped and truncated, in steps; exact below 2^24 rows."""
    of_block = of_blocks(trainer, model, features.shape[1])
    added, total = np.zeros(len(model)), np.zeros(len(model), dtype=np.int64)
    n_added, noted = 0, [] if errors is None else errors
    order = np.argsort(_turns(places), kind="stable")
    for rows in np.split(order, range(TOGETHER, len(order), TOGETHER)):
        own = _own_gradients(of_block, features[rows], labels[rows], places[rows])
        if n_added + len(rows) > EXACT:
            total += added.astype(np.int64)
            added[:], n_added = 0.0, 0
        n_added += len(rows)
        # A part at a time, so that it stays in the processor's cache.
        height = max(1, CACHED // max(1, sum(one.shape[1] for factors in own for one in factors)))
        for start in range(0, len(own[0][0]) if own else 0, height):
            part = [tuple(one[start : start + height] for one in factors) for factors in own]
            _add(added, trainer, part, limit, step, noted)
    total += added.astype(np.int64)
    return total


def of_blocks(trainer: Trainer, model: FloatArray, n_features: int) -> OfBlock:
    """Return what computes the gradients of rows at their places in a block.

    A trainer of a user's own is given one row at a time, each time as a fresh copy, so that no other row
    enters a row's gradient, whatever it does with special rows or batches. What it keeps outside itself (in
    its module, or in its class) is not undone by a copy.
    """
    if is_foreign(trainer):
        return lambda rows, labels, places: [(_one_by_one(trainer, model, rows, labels),)]
    if isinstance(trainer, TakesBlocks):
        return trainer.of_blocks(model, n_features)
    size = n_places(trainer, n_features)

    def of_one(rows: FloatArray, labels: Labels, places: npt.NDArray[np.intp]) -> Parts:
        block, classes = np.zeros((size, n_features)), np.zeros(size, dtype=np.int64)
        block[places], classes[places] = rows, labels
        return [(whole(trainer.gradients(model, block, classes))[places],)]

    def of_block(rows: FloatArray, labels: Labels, places: npt.NDArray[np.intp]) -> Parts:
        return joined([of_one(rows[own], labels[own], places[own]) for own in blocks(places)])

    return of_block


def is_foreign(trainer: Trainer) -> bool:
    """Say whether a trainer is neither privfed's own nor torch's: these compute each row apart."""
    torchs = sys.modules.get("privfed.deep.training.torch_trainer")
    return type(trainer) not in {SoftmaxRegression, getattr(torchs, "TorchTrainer", SoftmaxRegression)}


def _one_by_one(trainer: Trainer, model: FloatArray, rows: FloatArray, labels: Labels) -> FloatArray:
    # Of several rows, or parts of other lengths, `reshape` is an error: such a row then adds nothing. A
    # trainer may return the same array again, so that each is copied.
    each = [
        whole(deepcopy(trainer).gradients(model.copy(), rows[[i]], labels[[i]])).reshape(len(model)).copy()
        for i in range(len(rows))
    ]
    return np.array(each, dtype=np.float64).reshape(-1, len(model))


def joined(found: Sequence[Parts]) -> Parts:
    """Return parts of several blocks' rows as one."""
    if len(found) == 1:
        return found[0]
    return [tuple(map(np.concatenate, zip(*part, strict=True))) for part in zip(*found, strict=True)]


def blocks(places: npt.NDArray[np.intp]) -> list[npt.NDArray[np.intp]]:
    """Return the rows of each block: of each place the first rows, then the second ones, and so on."""
    turns = _turns(places)
    return [np.flatnonzero(turns == number) for number in range(int(turns.max(initial=-1)) + 1)]


def _turns(places: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return how many rows before each one have its place."""
    order, turns = np.argsort(places, kind="stable"), np.empty(len(places), dtype=np.intp)
    turns[order] = np.arange(len(places)) - np.searchsorted(places[order], places[order])
    return turns


def _add(
    added: FloatArray,
    trainer: Trainer,
    gradients: Parts,
    limit: float,
    step: float,
    errors: list[BaseException],
) -> None:
    """Add clipped and truncated gradients, whole numbers of steps.

    A row is held to a length between the limit and what it is charged for, which rounding of its square does
    not bridge.
    """
    pairs = [_of_directions(*one) if len(one) > 1 else (one[0], None) for one in gradients]
    firsts, seconds = [one[0] for one in pairs], [one[1] for one in pairs]
    # A row whose gradient is no number adds nothing.
    rows = shortened(np.concatenate(firsts, axis=1, dtype=np.float64), limit)
    rows *= 1.0 / step  # A power of two, so that no digit is lost.
    ends = np.cumsum([one.shape[1] for one in firsts])
    parts = np.split(rows, ends[:-1], axis=1)
    squares = np.zeros(len(rows))
    for part, second in zip(parts, seconds, strict=True):
        if second is not None:
            part *= 1.0 / FACTOR
        np.trunc(part, out=part)
        squares += np.vecdot(part, part) * (1.0 if second is None else np.vecdot(second, second))
    within = squares <= (limit / step) ** 2 * CHARGED
    if not within.all():
        rows[~within] = 0.0
        # The log has the first; a wrong clip would fill it.
        errors += [] if errors else [beyond(trainer, int((~within).sum()))]
    start = 0
    for part, second in zip(parts, seconds, strict=True):
        own = part.sum(axis=0) if second is None else (part.T @ second).ravel()
        added[start : start + len(own)] += own
        start += len(own)


def _of_directions(first: Numbers, second: Numbers) -> tuple[FloatArray, FloatArray]:
    """Return factors of the same products, the second `FACTOR` long and truncated; of no numbers zeros."""
    with np.errstate(all="ignore"):
        largest = np.abs(second).max(axis=1, keepdims=True, initial=0.0).astype(np.float64)
        # In units of the largest entry, so that no square vanishes or overflows.
        units = second / np.where(largest > 0.0, largest, 1.0)
        lengths = np.linalg.norm(units, axis=1, keepdims=True)
        units *= FACTOR / np.maximum(lengths, 1.0)
        units[~np.isfinite(units).all(axis=1)] = 0.0
        return first * (largest * lengths), np.trunc(units, out=units)


def _own_gradients(
    of_block: OfBlock, rows: FloatArray, labels: Labels, places: npt.NDArray[np.intp]
) -> Parts:
    """Return gradients of blocks' rows; where one makes an error, of each alone, and of that one none."""
    if not len(rows):
        return []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return of_block(rows, labels, places)
        except KeyboardInterrupt:
            raise
        except ERRORS:
            found: list[Parts] = []
        each = [slice(i, i + 1) for i in range(len(rows))] if len(rows) > 1 else []
        for one in each:
            # The others' places are empty, so that its gradient is the same to the last bit.
            if parts := _own_gradients(of_block, rows[one], labels[one], places[one]):
                found.append(parts)
        return joined(found) if found else []
