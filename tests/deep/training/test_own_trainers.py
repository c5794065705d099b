"""Whatever a trainer of a user's own does, a row moves no sum of DP-SGD by more than it is charged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privfed import Box, Privacy
from privfed.deep import MODELS, FedAvg
from privfed.deep.training import dp_sgd
from privfed.deep.training.trainer import SoftmaxRegression, Trainer

N_FEATURES, N_CLASSES = 4, 2


class ScalesABatch(SoftmaxRegression):
    """Divides a batch by 255 where its largest value is above 1, as code for images does."""

    def gradients(self, parameters: np.ndarray, features: np.ndarray, labels: np.ndarray) -> Any:
        scaled = features / 255.0 if features.max(initial=0.0) > 1.0 else features
        return super().gradients(parameters, scaled, labels)


class Remembers(SoftmaxRegression):
    """Adds the largest row that it ever saw to each row."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__(n_features, n_classes)
        self.seen = np.zeros(n_features)

    def gradients(self, parameters: np.ndarray, features: np.ndarray, labels: np.ndarray) -> Any:
        self.seen = np.maximum(self.seen, features.max(axis=0, initial=1.0))
        return super().gradients(parameters, features + self.seen - 1.0, labels)


class ReturnsSeveral(SoftmaxRegression):
    """Returns a bright row's gradient many times."""

    def gradients(self, parameters: np.ndarray, features: np.ndarray, labels: np.ndarray) -> Any:
        times = 50 if features.max(initial=0.0) > 1.0 else 1
        return super().gradients(parameters, np.repeat(features, times, axis=0), np.repeat(labels, times))


BUFFER = np.zeros(0)


class OneArray(SoftmaxRegression):
    """Returns the same array at each call, so that the last row stands for all."""

    def gradients(self, parameters: np.ndarray, features: np.ndarray, labels: np.ndarray) -> Any:
        global BUFFER
        found = super().gradients(parameters, features, labels)
        BUFFER = BUFFER if BUFFER.shape == found.shape else found.copy()
        BUFFER[:] = found
        return BUFFER


class ChangesItsInputs(SoftmaxRegression):
    """Overwrites the parameters and rows that it is given."""

    def gradients(self, parameters: np.ndarray, features: np.ndarray, labels: np.ndarray) -> Any:
        found = super().gradients(parameters, features, labels)
        parameters += features.max(initial=0.0)
        features[:] = 0.0
        return found


KINDS = [ScalesABatch, Remembers, ReturnsSeveral, OneArray, ChangesItsInputs]


def clipped(trainer: Trainer, rows: np.ndarray, labels: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the sum of clipped gradients, in clipping norms."""
    step = 2.0 ** (np.frexp(1.0 / dp_sgd.STEPS)[1] - 1)
    model = trainer.initial(0) + 1.0
    return dp_sgd._clipped_sum(trainer, model, rows.copy(), labels, places, 1.0, step, []) * step


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [255.0, 1e6, -1e6, 1e-6, 1e300, np.inf, np.nan])
def test_a_row_moves_the_sum_by_no_more_than_it_is_charged(kind: Any, value: float) -> None:
    rng = np.random.default_rng(0)
    rows, labels = rng.uniform(0.0, 1.0, (60, N_FEATURES)), rng.integers(N_CLASSES, size=60)
    more, classes = np.vstack([rows, np.full((1, N_FEATURES), value)]), np.append(labels, 0)
    places = rng.integers(dp_sgd.n_places(kind(N_FEATURES, N_CLASSES), N_FEATURES), size=61)
    without = clipped(kind(N_FEATURES, N_CLASSES), rows, labels, places[:60])
    for position in (0, 30, 60):
        order = np.insert(np.arange(60), position, 60)
        with_it = clipped(kind(N_FEATURES, N_CLASSES), more[order], classes[order], places[order])
        assert np.linalg.norm(with_it - without) <= dp_sgd.CHARGED
    assert np.linalg.norm(without) > 1.0  # The others do add something.


@pytest.mark.parametrize(("model", "own"), [("softmax", False), ("scales-a-batch", True)])
def test_the_claim_says_that_it_rests_on_a_trainer_of_ones_own(model: str, own: bool) -> None:
    if model not in MODELS:
        MODELS.add(model, ScalesABatch)
    rng = np.random.default_rng(0)
    words: dict[str, Any] = {"unit": "record", "domain": Box(0, 255), "neighbours": "add-remove"}
    privacy = Privacy(epsilon=2.0, delta=1e-6, noise="local", **words)
    rows = [rng.uniform(0.0, 1.0, (60, N_FEATURES)) for _ in range(3)]
    fitted = FedAvg(model, n_classes=2, rounds=1, rows_per_client=60, privacy=privacy, protocol="plain")
    fitted.fit(rows, [(one[:, 0] > 0.5).astype(int) for one in rows])
    assert ("trainer of your own" in str(fitted.privacy_spent_)) is own
