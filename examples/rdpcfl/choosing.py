"""A client's choice among models by how many of its rows each gets right, noised where it trains by DP-SGD.

R-DPCFL (Malekmohammadi, Taik, Farnadi 2025, TMLR, openreview JSsko0a4yr) has clients choose by their
accuracies under the exponential mechanism. Here counts of right rows get discrete Gaussian noise, and the
greatest is taken, which composes exactly with the steps of DP-SGD: a row added or removed changes each of k
counts by at most one, and all together by at most sqrt(k) in L2 norm. With `choice_noise` z the release is
that of a Gaussian of standard deviation z sqrt(k) and of post-processing (docs/privacy/accounting.md).

Property: with the same places, one row more changes each count by 0 or 1, whatever a model's rounding does:
rows are classified in blocks of a fixed shape, each in a place that it draws by itself, as in DP-SGD
(`privfed.deep.training.dp_sgd`).
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import numpy.typing as npt

from privfed.core.asking.question import ERRORS
from privfed.core.values.domain import FloatArray
from privfed.deep.training.dp_sgd import PLACES, blocks
from privfed.deep.training.trainer import Labels, Trainer
from privfed.privacy.accounting import LEAST_SIGMA, ROUNDING_VARIANCE
from privfed.privacy.rejection import RandomBits
from privfed.privacy.sampler import discrete_gaussian


def noised_choice(
    trainer: Trainer,
    models: FloatArray,
    features: FloatArray,
    labels: Labels,
    noise_multiplier: float,
    source: RandomBits,
) -> int:
    """Return the model of the greatest noised count of right rows; of equal ones the first.

    Args:
        trainer: the model.
        models: parameters to choose from, float64 of shape (n_models, n_parameters).
        features: the client's rows, perhaps none.
        labels: their classes.
        noise_multiplier: ratio of the noise's standard deviation to sqrt(n_models).
        source: where places and noise come from: `SecureBits()` for what is claimed.
    """
    places = (source.words(len(features)) & np.uint64(PLACES - 1)).astype(np.intp)
    counts = [_right(trainer, model, features, labels, places) for model in models]
    sigma = max(LEAST_SIGMA, math.sqrt(noise_multiplier**2 * len(models) + ROUNDING_VARIANCE))
    noised = np.asarray(counts, dtype=np.int64) + discrete_gaussian(sigma, len(models), source)
    return int(noised.argmax())


def _right(
    trainer: Trainer, model: FloatArray, features: FloatArray, labels: Labels, places: npt.NDArray[np.intp]
) -> int:
    """Return how many rows a model gets right, each in its own place."""
    block, total = np.zeros((PLACES, features.shape[1])), 0
    for rows in blocks(places):
        block[:] = 0.0
        block[places[rows]] = features[rows]
        found = _classes(trainer, model, block, places[rows])
        total += int((found[places[rows]] == labels[rows]).sum())
    return total


def _classes(trainer: Trainer, model: FloatArray, block: FloatArray, held: npt.NDArray[np.intp]) -> Labels:
    """Return the classes of a block; where a row makes an error, each alone, and that one has none."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return trainer.predict(model, block)
        except KeyboardInterrupt:
            raise
        except ERRORS:
            found = np.full(len(block), -1, dtype=np.int64)
        for place in held.tolist() if len(held) > 1 else []:
            alone = np.zeros_like(block)
            alone[place] = block[place]
            found[place] = _classes(trainer, model, alone, np.array([place]))[place]
        return found
