"""What can be trained: a model and its loss as functions of one vector of parameters.

Questions name the model; parties register it under that name before a fit, as they do with any code. Nothing
of a model travels but its parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from privfed.core.names import Registry
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError

Labels = npt.NDArray[np.int64]


class Trainer(Protocol):
    """A model and its loss. Deterministic: equal arguments give equal results, to the last bit."""

    @property
    def n_parameters(self) -> int:
        """Length of the vector of parameters."""

    def initial(self, seed: int) -> FloatArray:
        """Return parameters to start from, float64 of shape (n_parameters,), drawn from the seed."""

    def gradient(self, parameters: FloatArray, features: FloatArray, labels: Labels) -> FloatArray:
        """Return the gradient of the mean loss over one or more rows, float64 of shape (n_parameters,)."""

    def gradients(self, parameters: FloatArray, features: FloatArray, labels: Labels) -> FloatArray:
        """Return each row's own gradient, float64 of shape (n_rows, n_parameters).

        Raises:
            PrivacyError: a row's gradient depends on other rows, as with batch normalisation.
        """

    def losses(self, parameters: FloatArray, features: FloatArray, labels: Labels) -> FloatArray:
        """Return each row's loss, float64 of shape (n_rows,)."""

    def predict(self, parameters: FloatArray, features: FloatArray) -> Labels:
        """Return the most likely class of each row, int64 of shape (n_rows,)."""


MODELS: Registry[Callable[[int, int], Trainer]] = Registry(
    "model", "privfed.models", {"softmax": "privfed.deep.training.softmax:SoftmaxRegression"}
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
