"""Softmax regression in numpy: a model that needs no torch, and with known gradients."""

from __future__ import annotations

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.deep.training.trainer import Labels


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
