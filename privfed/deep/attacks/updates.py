"""What the server sees of single clients' updates, by name or linked over rounds, and gradients in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.attacks.base.interface import Found
from privfed.attacks.base.reading import Reads, of_single_clients
from privfed.core.asking.question import Question
from privfed.core.record.records import SumView, View
from privfed.core.values.domain import FloatArray, Ranges
from privfed.deep.attacks.first_layer import first_layer
from privfed.deep.attacks.linkage import OnUpdates, linked, sketches_of
from privfed.deep.training.rounds import AveragedUpdates, Round, SketchedUpdates, round_of
from privfed.privacy.noised import Noised
from privfed.questions.slots import Slots


@dataclass(frozen=True, eq=False)
class Update:
    """A client's update of one round, as the server saw it.

    Args:
        question: of the round.
        start: the model that the client trained, float64 of shape (n_parameters,).
        moved: how far training moved it, of the same shape.
        step: largest error of each number, from the grid of the sum.
        rows: number of the client's rows, where these weigh its update; else 0.
    """

    question: Round
    start: FloatArray
    moved: FloatArray
    step: float
    rows: int


@dataclass(frozen=True)
class Seen:
    """What one round shows of one client's gradients.

    Args:
        model: that it trained, float64 of shape (n_features + 1, n_classes), the biases last.
        gradient: of its mean loss there, of the same shape; of several steps their mean.
        error: largest error of each number, from the grid of the sum.
        rows: number of its rows, where these weigh its update; else 0.
        ranges: of the columns.
        whole: whether these are all parameters, of a softmax regression; else they are a first layer's.
        rate: of learning.
        held: whether the client held a fifth of its rows out (`Training.held_until`).
        steps: how many there were, if all rows are one batch.
    """

    model: FloatArray
    gradient: FloatArray
    error: float
    rows: int
    ranges: Ranges
    whole: bool
    rate: float
    held: bool
    steps: int = 1


def whole_updates(question: Question) -> bool:
    """Say whether answers to a question are whole updates, without noise."""
    if not isinstance(question, Round) or question.training.private or question.training.timed:
        return False
    if isinstance(question, SketchedUpdates):
        return question.size == question.models.shape[1] and not question.decay
    return isinstance(question, AveragedUpdates)


class OnWholeUpdates(OnUpdates[Found]):
    """Base of attacks on updates of clients.

    Attributes:
        updates: which updates are read, in words.
    """

    updates: ClassVar[str] = "updates"
    view: ClassVar[str] = "updates of single clients, with or without names, and the models that were sent"
    defence: ClassVar[str] = "FedAvg over secure sums, which show no single update; DP-SGD; sketches"

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Whole updates of single clients."""
        what = f"single clients' whole {self.updates}, trained without noise"
        return of_single_clients(what, whole_updates, noised=False)


def likely_of(seen: Seen) -> FloatArray:
    """Return about what a model says of a client's mean row: probabilities, float64 of shape (n_classes,).

    A class whose rows are as the others' has a gradient of the rows' mean times its bias': this is how the
    mean differs from the middle of the ranges, as far as classes are alike.
    """
    biases, middle = seen.gradient[-1], np.append((seen.ranges.low + seen.ranges.high) / 2.0, 1.0)
    apart = (seen.gradient - np.outer(middle, biases)) @ biases
    scores = (middle + apart / (biases @ biases + len(biases) ** -2.0)) @ seen.model
    likely = np.exp(scores - scores.max())
    return np.asarray(likely / likely.sum())


def rank_of(seen: Sequence[Seen]) -> int:
    """Return how many independent rows gradients are made of: a client has at least as many."""
    stacked = np.stack([one.gradient for one in seen], axis=1)
    # A row's errors of all classes cancel out: what their sums hold is rounding.
    rounding = float(np.abs(stacked.sum(axis=2)).max()) + 1e-16
    table = stacked.reshape(len(stacked), -1)
    return int(np.linalg.matrix_rank(table, tol=10.0 * rounding * math.sqrt(len(table))))


def clients_of(view: View, rng: np.random.Generator) -> Iterator[tuple[int | None, list[Update]]]:
    """Yield each client's rounds: by name where names are shown, else as updates are linked."""
    exact = [one for one in view.sums if not isinstance(one.question, Noised)]
    sums = [one for one in exact if (asked := round_of(one.question)) is not None and whole_updates(asked)]
    named: dict[int, dict[int, Update]] = {}
    for one in sums:
        for client, answer in one.answers.items():
            for seen in _of_answer(one, answer):
                # Averages are of the same updates as the sketches of their round.
                named.setdefault(client, {}).setdefault(seen.question.training.round, seen)
    if named:
        yield from ((client, list(rounds.values())) for client, rounds in sorted(named.items()))
        return
    held = [(one, found) for one in sums if (found := sketches_of(one, rng)) is not None]
    lists = [one.contributors or one.cohort for one, _ in held]
    whose = linked([found.column("sketch") for _, found in held], lists)
    each: dict[int, list[Update]] = {}
    for (one, found), numbers in zip(held, whose, strict=True):
        for number, answer in zip(numbers.tolist(), found.answers, strict=True):
            each.setdefault(number, []).extend(_of_answer(one, answer))
    known = len(set(map(frozenset, lists))) > 1
    yield from ((who if known else None, rounds) for who, rounds in each.items() if rounds)


def _of_answer(one: SumView, answer: Mapping[str, FloatArray]) -> Iterator[Update]:
    """Yield what it shows; nothing where an update was clipped, or is nobody's."""
    question = round_of(one.question)
    assert question is not None
    training, models = question.training, question.models
    if isinstance(question, SketchedUpdates):
        update, start = answer["sketch"], models[int(answer["origin"].argmax())]
    else:
        cluster, before = np.unravel_index(int(answer["origin"].argmax()), answer["origin"].shape)
        weight = answer["origin"][cluster, before]
        if weight <= 0.5:
            return
        update, start = answer["update"][cluster] / weight, models[before]
    if np.linalg.norm(update) >= training.max_update_norm * (1.0 - 1e-6) or not update.any():
        return
    # Answers in clear are on no grid; that of a total has at most the resolution.
    slotted = isinstance(one.question, Slots)
    step = float(np.max(question.spec.entries[0].resolution)) if slotted else 0.0
    yield Update(question, start, update, step, int(answer["rows"].sum()) if training.by_rows else 0)


def gradients_of(updates: Sequence[Update], units: int = 0) -> list[Seen]:
    """Return the gradients in a client's updates: of a softmax regression, or of a network's first layer."""
    found = list[Seen]()
    for one in updates:
        training, ranges = one.question.training, one.question.ranges
        whole, width, rate = training.model == "softmax", ranges.n_features, training.decayed_rate
        model, moved = (
            part.reshape(width + 1, -1) if whole else first_layer(part, width, training.n_classes, units)
            for part in (one.start, one.moved)
        )
        if model is not None and moved is not None:
            steps, held = training.epochs, training.round <= training.held_until
            error = (one.step + 1e-14) / (rate * steps)
            found.append(
                Seen(model, -moved / (rate * steps), error, one.rows, ranges, whole, rate, held, steps)
            )
    return found
