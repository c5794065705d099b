"""What can be trained: a model and its loss as functions of one vector of parameters.

Questions name the model; parties register it under that name before a fit, as they do with any code. Nothing
of a model travels but its parameters.

Softmax regression in numpy: a model that needs no torch, and with known gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from privfed.core.names import Registry
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError

Labels = npt.NDArray[np.int64]

Numbers = npt.NDArray[np.floating]
"""float32 or float64."""

Parts = Sequence[tuple[Numbers, ...]]
"""Gradients of n rows, parameter after parameter: (n, size) alone, or the factors (n, a) and (n, b) of outer
products, of a times b parameters."""


class Trainer(Protocol):
    """A model and its loss. Deterministic: equal arguments give equal results, to the last bit."""

    @property
    def n_parameters(self) -> int:
        """Length of the vector of parameters."""

    def initial(self, seed: int) -> FloatArray:
        """Return parameters to start from, float64 of shape (n_parameters,), drawn from the seed."""

    def gradient(self, parameters: FloatArray, features: FloatArray, labels: Labels) -> FloatArray:
        """Return the gradient of the mean loss over one or more rows, float64 of shape (n_parameters,)."""

    def gradients(self, parameters: FloatArray, features: FloatArray, labels: Labels) -> Numbers | Parts:
        """Return each row's own gradient, float64 or float32 of shape (n_rows, n_parameters), or its parts.

        Raises:
            PrivacyError: a row's gradient depends on other rows, as with batch normalisation.
        """

    def losses(self, parameters: FloatArray, features: FloatArray, labels: Labels) -> FloatArray:
        """Return each row's loss, float64 of shape (n_rows,)."""

    def predict(self, parameters: FloatArray, features: FloatArray) -> Labels:
        """Return the most likely class of each row, int64 of shape (n_rows,)."""


@runtime_checkable
class TrainsItself(Protocol):
    """What a trainer may have besides: steps of its own in place of SGD. Their state lasts one training."""

    @property
    def rounding(self) -> float:
        """Relative rounding of the numbers that it computes in: 2^-52 of float64."""

    def trained(
        self,
        start: FloatArray,
        features: FloatArray,
        labels: Labels,
        batches: Iterable[npt.NDArray[np.intp]],
        learning_rate: float,
    ) -> FloatArray:
        """Return the parameters after a step for each batch, float64 of shape (n_parameters,).

        Args:
            start: parameters before, of the same shape.
            features: a client's rows, float64 of shape (n_rows, n_features).
            labels: int64 of shape (n_rows,).
            batches: rows of each batch, as positions.
            learning_rate: of this round.
        """

    def stepping(self, start: FloatArray, learning_rate: float) -> Callable[[FloatArray], FloatArray] | None:
        """Return what DP-SGD takes its steps by: from noised gradients to parameters; None for SGD."""


OfBlock = Callable[[FloatArray, Labels, npt.NDArray[np.intp]], Parts]
"""From rows, their classes and their places among zeros to their gradients, block after block. Of rows of one
place the first is in the first block (`privfed.deep.training.dp_sgd.blocks`)."""


@runtime_checkable
class TakesBlocks(Protocol):
    """A trainer that computes blocks of one shape, whose empty places hold zeros."""

    def size(self, n_features: int) -> int:
        """Return how many rows a block has, a power of two: a function of the model alone."""

    def of_blocks(self, parameters: FloatArray, n_features: int) -> OfBlock:
        """Return what computes the gradients of rows of blocks, at these parameters."""


@runtime_checkable
class HasParameters(Protocol):
    """A trainer whose model comes with parameters."""

    @property
    def given(self) -> FloatArray:
        """Those parameters, float64 of shape (n_parameters,)."""


def stepping(
    trainer: Trainer, start: FloatArray, learning_rate: float
) -> Callable[[FloatArray], FloatArray] | None:
    """Return the trainer's own step, from gradients to parameters; None for SGD."""
    return trainer.stepping(start, learning_rate) if isinstance(trainer, TrainsItself) else None


def whole(gradients: Numbers | Parts) -> Numbers:
    """Return gradients of shape (n_rows, n_parameters), also of parts."""
    if isinstance(gradients, np.ndarray):
        return gradients
    outer = [one[0] if len(one) == 1 else one[0][:, :, None] * one[1][:, None, :] for one in gradients]
    return np.concatenate([one.reshape(len(one), math.prod(one.shape[1:])) for one in outer], axis=1)


MODELS: Registry[Callable[[int, int], Trainer]] = Registry(
    "model", "privfed.models", {"softmax": "privfed.deep.training.trainer:SoftmaxRegression"}
)
"""Models by the name under which they travel: from numbers of features and classes to a trainer."""


def one_line(error: BaseException) -> str:
    """Return the first line of what a model's own code says of an error."""
    return next(iter(str(error).splitlines()), type(error).__name__)


@lru_cache(maxsize=32)
def trainer_of(model: str, n_features: int, n_classes: int) -> Trainer:
    """Return the trainer of a registered model for so many features and classes.

    Raises:
        ArgumentError: nothing has this name.
    """
    if n_features < 1 or n_classes < 2:
        raise ArgumentError(
            f"a model needs at least 1 feature and 2 classes, got {n_features} and {n_classes}."
        )
    return MODELS.find(model)(n_features, n_classes)


class SoftmaxRegression:
    """Linear scores of each class, and the cross-entropy of their softmax.

    Args:
        n_features: columns of a row.
        n_classes: labels are 0 to n_classes - 1.
    """

    def __init__(self, n_features: int, n_classes: int) -> None:
        self._shape = (n_features + 1, n_classes)

    @property
    def n_parameters(self) -> int:
        """Weights and biases."""
        return self._shape[0] * self._shape[1]

    def initial(self, seed: int) -> FloatArray:
        """Return small random weights, so that models of different seeds differ."""
        drawn: FloatArray = np.random.default_rng(seed).normal(0.0, 0.01, self.n_parameters)
        return drawn

    def _logs(self, parameters: FloatArray, features: FloatArray) -> FloatArray:
        weights = parameters.reshape(self._shape)
        scores = features @ weights[:-1] + weights[-1]
        scores -= scores.max(axis=1, keepdims=True)
        return np.asarray(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))

    def _errors(self, parameters: FloatArray, features: FloatArray, labels: Labels) -> FloatArray:
        errors: FloatArray = np.exp(self._logs(parameters, features))
        errors[np.arange(len(labels)), labels] -= 1.0
        return errors

    def gradient(self, parameters: FloatArray, features: FloatArray, labels: Labels) -> FloatArray:
        """Return the gradient of the mean loss."""
        errors = self._errors(parameters, features, labels) / len(labels)
        return np.concatenate([(features.T @ errors).ravel(), errors.sum(axis=0)])

    def gradients(self, parameters: FloatArray, features: FloatArray, labels: Labels) -> FloatArray:
        """Return each row's own gradient."""
        errors = self._errors(parameters, features, labels)
        outer = features[:, :, None] * errors[:, None, :]
        return np.concatenate([outer.reshape(len(features), -1), errors], axis=1)

    def losses(self, parameters: FloatArray, features: FloatArray, labels: Labels) -> FloatArray:
        """Return each row's cross-entropy."""
        return np.asarray(-self._logs(parameters, features)[np.arange(len(labels)), labels])

    def predict(self, parameters: FloatArray, features: FloatArray) -> Labels:
        """Return the class of the highest score."""
        return np.asarray(self._logs(parameters, features).argmax(axis=1), dtype=np.int64)
