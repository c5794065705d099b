"""Gradient inversion: rows of single clients, from updates that the server sees one by one.

A softmax regression that a client trains in one step has the gradient (1 / n) sum of (x, 1) (p(x) - y)^T, for
models that the server sent itself. Several rounds give more equations than a client's few rows have unknown
values. Without noise these have one solution, which is found by least squares (Zhu, Liu and Han, Deep Leakage
from Gradients, NeurIPS 2019; the equations of several rounds together, the check and the links: ours).

In the first round p is near 1 / C, so that the gradient of the biases tells the shares of the classes: these
with a number of rows give whole counts. Numbers are tried from 1 on; the first that fits up to the grid of
the sums is taken. A wrong link between two rounds fits nothing, so that links are checked, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.optimize import least_squares

from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Prepared, Prior, Target
from privfed.attacks.base.reading import Reads, Shows
from privfed.attacks.base.report import Report
from privfed.attacks.base.results import NotRun, Points, Truth
from privfed.core.record.view import SumView, View
from privfed.core.values.domain import FloatArray
from privfed.deep.attacks.linkage import LabelledTruth, contributions, tracks
from privfed.deep.attacks.membership import check_alone, round_of
from privfed.deep.training.local import Training
from privfed.deep.training.rounds import AveragedUpdates, Round, SketchedUpdates
from privfed.deep.training.trainer import Labels
from privfed.numerics.kernels.interpreted import IntArray
from privfed.questions.gathered import Slots

TOLERANCE = 0.01
"""Claims are right within so many standard deviations of the rows."""

STARTS = 3
"""Rows to start from that are tried for each number of rows."""


@dataclass(frozen=True)
class Seen:
    """What one round shows of one client.

    Args:
        model: that it trained, float64 of shape (n_features + 1, n_classes), the biases last.
        gradient: of its mean loss there, of the same shape.
        error: largest error of each number, from the grid of the sum.
    """

    model: FloatArray
    gradient: FloatArray
    error: float


@dataclass(frozen=True, kw_only=True)
class InvertedRows(Points):
    """Claimed rows, and how many of each class a client has.

    Args:
        counts: for each client that was solved, its rows of each class, integers of shape (n_classes,).
        whose: the client of each of these; None where the attack cannot tell.
    """

    counts: Sequence[IntArray] = field(default=(), repr=False)
    whose: Sequence[int | None] = ()

    def score(self, truth: Truth) -> Report:
        """Compare rows as `Points` does, and the counts of classes with those of all clients."""
        report = super().score(truth)
        if not isinstance(truth, LabelledTruth) or not truth.labels:
            return report
        left = [np.bincount(own[own >= 0]).tolist() for own in truth.labels]
        right = 0
        for counts, whose in zip(self.counts, self.whose, strict=True):
            wanted = np.trim_zeros(counts, "b").tolist()
            among = range(len(left)) if whose is None else [whose]
            found = next((i for i in among if left[i] == wanted), None)
            if found is not None:
                right, left[found] = right + 1, []
        told = {"clients whose classes were counted": right / max(len(truth.labels), 1)}
        return replace(report, details={**report.details, **told})


@dataclass(frozen=True)
class GradientInversion(PassiveAttack[InvertedRows]):
    """Finds the rows of clients that train a softmax regression in one step a round.

    Args:
        most_rows: most rows of a client that are tried.
    """

    most_rows: int = 12

    name: ClassVar[str] = "gradient-inversion"
    paper: ClassVar[str] = "Zhu, Liu and Han 2019; rounds together, checked: ours"
    adversary: ClassVar[str] = "passive server"
    view: ClassVar[str] = "updates of single clients, with or without names, and the models that were sent"
    algorithms: ClassVar[tuple[str, ...]] = ("fedavg", "ifca", "cfl", "dcfl")
    prior: ClassVar[str] = "none"
    defence: ClassVar[str] = "FedAvg over secure sums, which show no single update; DP-SGD; sketches"

    @classmethod
    def prepare(cls, target: Target, parameters: Mapping[str, Any]) -> Prepared[Self]:
        """Have the truth know the clients' labels, and count rows that are found within `TOLERANCE`."""
        truth: Truth = replace(target.truth, tolerance=TOLERANCE)
        if target.labels is not None:
            check_alone(cls.name, target)
            truth = LabelledTruth(truth.clients, truth.colluding, TOLERANCE, labels=target.labels)
        return Prepared(cls._made(parameters), target.prior, truth)

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Whole updates of single clients that train in one step."""
        what = "single clients' whole updates of a softmax regression, trained in one step without noise"
        return (
            Reads(what=what, shown=Shows.ANSWERS, use=_inverts, noised=False),
            Reads(what=what, shown=Shows.TOTALS, use=_in_slots, noised=False),
        )

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> InvertedRows | NotRun:
        clients = list(_clients(view, rng))
        if not clients:
            return NotRun(attack=self.name, why="it solves rounds together, and saw one of no client")
        rows, owners, counts, whose = [], [], [], []
        for client, seen in clients:
            found = self._solved(seen, rng)
            if found is None:
                continue
            own, labels = found
            rows.append(own)
            owners += [-1 if client is None else client] * len(own)
            counts.append(np.bincount(labels, minlength=seen[0].model.shape[1]))
            whose.append(client)
        if not rows:
            # It looked, and could not tell: that these updates show nothing is not found.
            why = f"no client of up to {self.most_rows} rows was solved for; others may find more"
            return NotRun(attack=self.name, why=why)
        named = all(one is not None for one in whose)
        return InvertedRows(
            attack=self.name,
            queries=max(len(seen) for _, seen in clients),
            points=np.concatenate(rows),
            owners=np.array(owners, dtype=np.intp) if named else None,
            without_access=prior.guesses(sum(map(len, rows)), rng),
            counts=counts,
            whose=whose,
        )

    def _solved(self, seen: Sequence[Seen], rng: np.random.Generator) -> tuple[FloatArray, Labels] | None:
        """Return the rows and labels of the least number of rows that explain all rounds; None without."""
        (width, n_classes), first = seen[0].model.shape, seen[0]
        shares = 1.0 / n_classes - first.gradient[-1]
        stacked = np.concatenate([one.gradient for one in seen], axis=1)
        error = max(one.error for one in seen) * math.sqrt(stacked.size)
        # Gradients are combinations of the rows: they have no more axes than there are rows.
        least = int(np.linalg.matrix_rank(stacked, tol=error))
        for n in range(max(1, least), self.most_rows + 1):
            values = n * (min(n, width) - 1)
            # A third more equations than values: what fits then, fits by no chance.
            if 3 * len(seen) * min(n, width) * (n_classes - 1) < 4 * values:
                return None
            counts = np.rint(n * shares).astype(np.intp)
            if counts.sum() != n or counts.min() < 0 or np.abs(n * shares - counts).max() > 0.4:
                continue
            labels = np.repeat(np.arange(n_classes), counts)
            for _ in range(STARTS):
                rows = _fitted(seen, labels, rng)
                if rows is not None:
                    return rows, labels
        return None


def _inverts(question: object) -> bool:
    """Say whether answers to a question are whole updates, of one step of the softmax regression."""
    if not isinstance(question, Round) or question.training.model != "softmax":
        return False
    one = question.training
    if one.private or one.epochs != 1 or one.timed:
        return False
    if isinstance(question, SketchedUpdates):
        return question.size == question.models.shape[1] and not question.decay
    return isinstance(question, AveragedUpdates)


def _in_slots(question: object) -> bool:
    return (
        isinstance(question, Slots)
        and isinstance(question.inner, SketchedUpdates)
        and _inverts(question.inner)
    )


def _clients(view: View, rng: np.random.Generator) -> Iterator[tuple[int | None, list[Seen]]]:
    """Yield each client's rounds: by name where names are shown, else as updates are linked."""
    sums = [one for one in view.sums if _inverts(round_of(one.question))]
    named: dict[int, dict[int, Seen]] = {}
    for one in sums:
        for client, answer in one.answers.items():
            for number, seen in _of_answer(one, answer):
                named.setdefault(client, {}).setdefault(number, seen)
    if named:
        yield from ((client, list(rounds.values())) for client, rounds in sorted(named.items()))
        return
    held = [found for one in sums if (found := contributions(one, rng))]
    linked = tracks([np.stack([answer["sketch"] for answer in answers]) for _, answers in held])
    each: dict[int, list[Seen]] = {}
    for (one, answers), numbers in zip(held, linked, strict=True):
        for number, answer in zip([] if numbers is None else numbers.tolist(), answers, strict=True):
            each.setdefault(number, []).extend(seen for _, seen in _of_answer(one, answer))
    yield from ((None, rounds) for rounds in each.values() if rounds)


def _of_answer(one: SumView, answer: Mapping[str, FloatArray]) -> Iterator[tuple[int, Seen]]:
    """Yield the round and what it shows; nothing where an update was clipped, or is nobody's."""
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
    name = "sketch" if isinstance(question, SketchedUpdates) else "update"
    step = next(float(np.max(entry.resolution)) for entry in question.spec.entries if entry.name == name)
    shape = (question.ranges.n_features + 1, training.n_classes)
    yield training.round, _seen(training, start.reshape(shape), update.reshape(shape), step)


def _seen(training: Training, model: FloatArray, update: FloatArray, step: float) -> Seen:
    rate = training.learning_rate
    return Seen(model, -update / rate, (step + 1e-14) / rate)


def _fitted(seen: Sequence[Seen], labels: Labels, rng: np.random.Generator) -> FloatArray | None:
    """Solve for the rows of these labels; None where nothing fits, or values are not told well enough.

    All gradients are combinations of the rows, with a one for the biases: n rows are sought in the plane of
    the gradients' first n principal axes.
    """
    n, n_classes = len(labels), seen[0].model.shape[1]
    axes = np.linalg.svd(np.concatenate([one.gradient for one in seen], axis=1), full_matrices=False)[0]
    axes = axes[:, :n]
    models = np.stack([axes.T @ one.model for one in seen])
    gradients = np.stack([axes.T @ one.gradient for one in seen])
    slopes, wanted = np.swapaxes(models, 1, 2), np.eye(n_classes)[labels]
    shape = n, axes.shape[1]
    own = np.arange(shape[1])

    def errors(values: FloatArray) -> tuple[FloatArray, FloatArray]:
        rows = values.reshape(shape)
        scores = rows @ models
        scores -= scores.max(axis=2, keepdims=True)
        likely = np.exp(scores)
        return rows, likely / likely.sum(axis=2, keepdims=True)

    def residuals(values: FloatArray) -> FloatArray:
        rows, likely = errors(values)
        return np.concatenate([(rows.T @ (likely - wanted) / n - gradients).ravel(), rows @ axes[-1] - 1.0])

    def jacobian(values: FloatArray) -> FloatArray:
        rows, likely = errors(values)
        # d p_c / d x_j = p_c (W_jc - sum over classes of p W_j).
        by_row = likely[:, :, :, None] * (slopes[:, None] - (likely @ slopes)[:, :, None, :])
        found = np.einsum("ik,ricj->rkcij", rows, by_row)
        found[:, own, :, :, own] += np.transpose(likely - wanted, (0, 2, 1))[None]
        ones = np.kron(np.eye(n), axes[-1])
        return np.concatenate([found.reshape(gradients.size, -1) / n, ones])

    drawn = np.column_stack([rng.normal(0.5, 0.5, (n, len(axes) - 1)), np.ones(n)]) @ axes
    with np.errstate(all="ignore"):
        end = least_squares(
            residuals, drawn.ravel(), jacobian, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=400
        )
    remains = math.sqrt(float(np.mean(np.square(end.fun))))
    if not np.isfinite(end.x).all() or remains > 2.0 * max(one.error for one in seen):
        return None
    rows = end.x.reshape(shape) @ axes.T
    # How far values may lie from those found, for errors as large as what no rows explain.
    least = float(np.linalg.svd(end.jac, compute_uv=False)[-1])
    near = TOLERANCE * max(float(rows[:, :-1].std(axis=0).mean()), 1e-9)
    return rows[:, :-1] if least * near > 3.0 * (remains + 1e-15) * math.sqrt(rows.size) else None
