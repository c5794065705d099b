"""Whether a model's gradients are what DP-SGD takes them for: each of its own row alone, and the same again.

Opacus refuses layers that it knows to mix rows, and cannot know what a user's own code does. So a model is
tried on rows that everybody can compute, before anybody trains: a function of nobody's data. That finds
draws (dropout, noise), means over a batch, and what a module keeps from one batch to the next, wherever these
show on ordinary rows, and proves nothing of other rows. So DP-SGD gives a trainer of a user's own one row at
a time (`privfed.deep.training.dp_sgd.of_blocks`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.deep.training.dp_sgd import PLACES, is_foreign, n_places, of_blocks
from privfed.deep.training.trainer import (
    MODELS,
    Labels,
    Numbers,
    Trainer,
    TrainsItself,
    one_line,
    trainer_of,
    whole,
)
from privfed.errors import ArgumentError, PrivacyError, PrivFedError

ROWS = 6
"""Rows that a model is tried on."""

CLASSES = 256
"""Classes whose rows are tried one by one, and of each further part that is tried beside these."""

CLOSE = 1e-6
"""Relative difference between a row's gradient in a batch and alone: rounding of float64 is far smaller."""

ROUNDINGS = 256.0
"""The same for models that compute in less, in their `rounding`."""

MIXES = (
    "a row's gradient depends on the other rows of its batch, as with means over a batch, or is not that of "
    "the row alone. One row would show in all the others' gradients, and DP-SGD's claim would not hold. "
    "Normalise each row by itself (LayerNorm, GroupNorm)."
)


@contextmanager
def _users_code(kind: type[PrivFedError], what: str, remedy: str = "", **more: Any) -> Iterator[None]:
    """Say of an error of a model's own code what cannot be done; privfed's own errors say it themselves."""
    try:
        yield
    except PrivFedError:
        raise
    except Exception as error:
        raise kind(f"{what}: {one_line(error)}{remedy}", **more) from error


@lru_cache(maxsize=32)
def private_trainer_of(model: str, n_features: int, n_classes: int) -> Trainer:
    """Return the trainer of a registered model whose gradients are each a row's own.

    Raises:
        ArgumentError: nothing has this name.
        PrivacyError: a row's gradient is drawn, or depends on other rows.
    """
    trainer = trainer_of(model, n_features, n_classes)
    if model in MODELS.added():
        why = "DP-SGD needs each row's gradient, and the model has none, as where it draws or keeps something"
        with _users_code(PrivacyError, why):
            _check_rows(trainer, n_features, n_classes)
    return trainer


def check_repeats(model: str, n_features: int, n_classes: int) -> None:
    """Check that training repeats: whoever resumes a run trains again what was trained before.

    Raises:
        ArgumentError: two gradients of the same rows differ, or the loss is no mean over rows.
    """
    trainer = trainer_of(model, n_features, n_classes)
    if model not in MODELS.added():
        return
    at, rows, labels = _probe(trainer, n_features, n_classes)
    first = _gradient(trainer, at, rows, labels)
    trainer.gradient(at, rows[::-1] ** 2, labels)
    if not (_same(first, trainer.gradient(at, rows, labels)) and _trains_alike(trainer, at, rows, labels)):
        raise ArgumentError(
            "the model computes two gradients of the same rows: it draws at random, or keeps something from "
            "earlier rows. A fit must repeat; draw with dropout that asks module.training, which is off."
        )
    _check_mean(trainer, at, rows, labels)


def _gradient(trainer: Trainer, at: FloatArray, rows: FloatArray, labels: Labels) -> FloatArray:
    what = f"the model or its loss cannot be computed on rows of {rows.shape[1]} features"
    with _users_code(ArgumentError, what):
        found = trainer.gradient(at, rows, labels)
    return found


def _trains_alike(trainer: Trainer, at: FloatArray, rows: FloatArray, labels: Labels) -> bool:
    """Say whether training of the model's own repeats; an optimizer that wants more than gradients fails."""
    if not isinstance(trainer, TrainsItself):
        return True
    how = "optimizer(parameters, lr=...) and steps by gradients alone, as torch.optim.SGD does."
    failing = "the optimizer cannot take a step", f". It is made by {how}"
    with _users_code(ArgumentError, *failing, parameters=["optimizer"]):
        one, other = (trainer.trained(at, rows, labels, [np.arange(ROWS)] * 2, 0.01) for _ in range(2))
        (trainer.stepping(at, 0.01) or np.copy)(at)
    return _same(one, other)


def _check_mean(trainer: Trainer, at: FloatArray, rows: FloatArray, labels: Labels) -> None:
    """Check that rows that stand twice have the same gradient: only then batches of all sizes count alike."""
    once = _gradient(trainer, at, rows, labels)
    if not _near(_gradient(trainer, at, np.tile(rows, (2, 1)), np.tile(labels, 2)), once, trainer):
        raise ArgumentError(
            "the gradient of rows is another one where each row stands twice: the loss must be the mean over "
            'rows, as with reduction="mean".'
        )


def _check_rows(trainer: Trainer, n_features: int, n_classes: int) -> None:
    at, rows, labels = _probe(trainer, n_features, n_classes)
    _gradient(trainer, at, rows, labels)
    _trains_alike(trainer, at, rows, labels)  # An optimizer that cannot step is an error before anybody pays.
    first, kept = whole(trainer.gradients(at, rows, labels)), getattr(trainer, "kept", "")
    others, classes = rows[::-1] ** 2, labels[::-1].copy()
    others[0], classes[0] = rows[0], labels[0]
    beside = whole(trainer.gradients(at, others, classes))
    again = whole(trainer.gradients(at, rows, labels))
    if not _same(first, again) or kept != getattr(trainer, "kept", ""):
        raise PrivacyError(
            "a row's gradient is another one when it is computed again, or may be. The model draws at "
            "random, or it or its loss keeps something from earlier calls, such as their number. DP-SGD's "
            "claim would not hold. A layer with parameters of its own must not draw (dropout goes into a "
            "layer by itself), nor keep anything."
        )
    alone = trainer.gradient(at, rows[:1], labels[:1])
    scored = [trainer.losses(at, rows[:n], labels[:n])[:1] for n in (1, ROWS)]
    by_itself = _near(first[0], alone, trainer) and _near(scored[1], scored[0], trainer)
    if not (by_itself and _same(first[0], beside[0])):
        raise PrivacyError(MIXES)
    _check_mean(trainer, at, rows, labels)
    _check_sum(trainer, at, n_features, n_classes)
    _check_block(trainer, at, n_features, n_classes)


def _check_block(trainer: Trainer, at: FloatArray, n_features: int, n_classes: int) -> None:
    """Check that a row's gradient in a block full of others is that among zeros, to the last bit."""
    size, of_block = n_places(trainer, n_features), of_blocks(trainer, at, n_features)
    many = max(size, PLACES)
    rows, labels = np.random.default_rng(2).uniform(size=(many, n_features)), np.arange(many) % n_classes
    # A trainer of a user's own is given one row at a time, and is refused all the same if it mixes these.
    block = rows[:size], labels[:size]
    full = whole(trainer.gradients(at, *block) if is_foreign(trainer) else of_block(*block, np.arange(size)))
    same = partial(_near, trainer=trainer) if is_foreign(trainer) else _same
    # Choices among models are of scores in blocks.
    losses = trainer.losses(at, rows, labels)
    for place in {0, size - 1}:
        own = np.array([place])
        scored = _near(losses[own], trainer.losses(at, rows[own], labels[own]), trainer)
        if not scored or not same(full[own], whole(of_block(rows[own], labels[own], own))):
            raise PrivacyError(MIXES)


def _check_sum(trainer: Trainer, at: FloatArray, n_features: int, n_classes: int) -> None:
    """Check that a gradient is the mean of each row's own, on a row of each class.

    That is seen for `CLASSES` classes drawn at random; of so many others, that they weigh as much as these.
    """
    rng = np.random.default_rng(1)
    parts = np.split(rng.permutation(n_classes), range(CLASSES, n_classes, CLASSES))
    first, total = rng.uniform(size=(len(parts[0]), n_features)), np.zeros(len(at))
    for i in range(0, len(first), ROWS):
        total += whole(trainer.gradients(at, first[i : i + ROWS], parts[0][i : i + ROWS])).sum(axis=0)
    alike = _near(trainer.gradient(at, first, parts[0]), total / len(first), trainer)
    for part in parts[1:]:
        rows = rng.uniform(size=(len(part), n_features))
        both = trainer.gradient(at, np.concatenate([first, rows]), np.concatenate([parts[0], part]))
        mean = (total + len(part) * trainer.gradient(at, rows, part)) / (len(first) + len(part))
        alike = alike and _near(both, mean, trainer)
    if not alike:
        raise PrivacyError(
            "the gradient of rows is not the mean of each row's own, as with the class weights of a torch "
            "loss: DP-SGD would leave these out. Multiply each row's loss by its weight: "
            'lambda scores, y: (weight[y] * cross_entropy(scores, y, reduction="none")).mean().'
        )


def _probe(trainer: Trainer, n_features: int, n_classes: int) -> tuple[FloatArray, FloatArray, Labels]:
    """Return parameters, rows in [0, 1] and labels that follow from the model alone."""
    rng = np.random.default_rng(0)
    at = trainer.initial(0) + 0.01 * rng.normal(size=trainer.n_parameters)
    return at, rng.uniform(size=(ROWS, n_features)), np.arange(ROWS) % n_classes


def _near(one: Numbers, other: Numbers, trainer: Trainer) -> bool:
    close = max(CLOSE, ROUNDINGS * trainer.rounding if isinstance(trainer, TrainsItself) else 0.0)
    least = close * np.nan_to_num(np.abs(other)).max(initial=0)
    return one.shape == other.shape and np.allclose(one, other, rtol=close, atol=least, equal_nan=True)


_same = partial(np.array_equal, equal_nan=True)
