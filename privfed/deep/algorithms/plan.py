"""What all algorithms over models share: what their rounds ask, in which ranges, and what a run ends with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, TypeVar

import numpy as np

from privfed.core.agreed.agreement import Size
from privfed.core.asking.phases import Form, Near, Phases, Shape
from privfed.core.asking.question import Question
from privfed.core.roles.conversation import EVERYONE, Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges, frozen, frozen_array
from privfed.deep.training.held_out import Comparison
from privfed.deep.training.local import TIMES, Training
from privfed.deep.training.rounds import MOST_CLUSTERS, AveragedUpdates
from privfed.deep.training.trainer import HasParameters, trainer_of
from privfed.errors import ArgumentError
from privfed.questions.ranges import locate, range_phases

ROWS = 1 << 20
"""Rows of a client where nothing depends on their number, and none is declared."""

UPDATE_SHARE = 0.9
"""Share of a round's budget for the updates; the rest is for how many clients they are of."""

Asked = TypeVar("Asked", bound=Question)


class Plan:
    """What the rounds of a run ask: questions, and forms by which clients check them without totals.

    A question and its form are written once: `question` and `form` take the same fields, the one with values
    and the other with rules.

    Args:
        training: of the run.
        setting: what is known before the first question.
    """

    def __init__(self, training: Training, setting: Setting) -> None:
        self.training, self._setting = training, setting
        n_features, domain = setting.n_features - TIMES * training.timed, setting.domain
        self._trainer = trainer_of(training.model, n_features, training.n_classes)
        self.n_parameters, self.n_clients = self._trainer.n_parameters, len(setting.clients)
        self.private = setting.privacy is not None
        self._ranges: Ranges | None = None
        if domain is not None and not (training.by_rows and domain.most_rows is None):
            self._ranges = Ranges(*domain.bounds(setting.n_features), domain.most_rows or ROWS)

    def starts(self, n: int) -> FloatArray:
        """Return n models to begin with, float64 of shape (n, n_parameters).

        Raises:
            ArgumentError: given parameters are of no module, or several models would be the same.
        """
        if self.training.start == "given":
            if n > 1 or not isinstance(self._trainer, HasParameters):
                raise ArgumentError(
                    'start="given" is for one model that is a torch module; use start="drawn".',
                    parameters=["start"],
                )
            return frozen_array(self._trainer.given[None])
        models = np.empty((n, self.n_parameters))
        for place, seed in enumerate(np.random.SeedSequence(self.training.seed).generate_state(n)):
            models[place] = self._trainer.initial(int(seed))
        return frozen(models)

    def size(self, n: int) -> Size:
        """Return how large a run with n models is: each round's total has a number for each of theirs."""
        return Size(n * self.n_parameters, n * self.n_parameters * self.training.rounds)

    def label(self, number: int) -> int:
        """Return the cohort of a round."""
        return number if self.training.sampled and number <= self.training.rounds else EVERYONE

    def find_ranges(self) -> Conversation[None]:
        """Find the ranges with a sum, where none are declared, or where rows count and have no bound."""
        if self._ranges is None:
            located = yield from locate(self._setting, upcoming=(self.label(1),))
            self._ranges = located.ranges

    @property
    def found(self) -> Phases:
        """What `find_ranges` may ask."""
        return range_phases(self._setting) if self._ranges is None else ()

    def question(self, kind: type[Asked], **values: Any) -> Asked:
        """Return a question in the ranges of the run."""
        assert self._ranges is not None
        return kind(ranges=self._ranges, **values)

    def form(self, kind: type[Question], **rules: Any) -> Form:
        """Return the form of such questions."""
        return Form(kind, **({} if self._ranges is None else {"ranges": self._ranges}), **rules)

    def ask(self, question: Question, number: int, shares: Sequence[float], sketches: bool = False) -> Ask:
        """Return how a round's question is asked.

        Args:
            question: whose answers are no longer than their values may be.
            number: of the round.
            shares: of the budget, for each entry, under differential privacy.
            sketches: whether another question may follow in the same round.
        """
        label, following = self.label(number), self.label(number + 1)
        upcoming = tuple(dict.fromkeys((label, following) if sketches else (following,)))
        purpose = "sketches" if sketches else "round"
        if not self.private:
            return Ask(question, label, upcoming, purpose)
        limits = {one.name: float(np.max(one.high)) for one in question.spec.entries}
        weights = dict(zip(limits, shares, strict=True))
        return Ask(question, label, upcoming, purpose, weights=weights, limits=limits)

    def ask_averages(self, question: AveragedUpdates, number: int, part: float = 1.0) -> Ask:
        """Return how averages are asked for, with a part of the round's budget."""
        each = UPDATE_SHARE, 1.0 - UPDATE_SHARE
        return self.ask(question, number, [part * one / self.training.rounds for one in each])

    def models(self, number: int, n_clusters: int | None) -> Near | Shape:
        """Return the rule of a round's models: in the first those that the seed draws."""
        if number == 1:
            return Near((self.starts(n_clusters or 1),))
        return Shape(n_clusters or (1, MOST_CLUSTERS), self.n_parameters)


@dataclass(frozen=True, slots=True)
class Regrouped:
    """What a round decided about the clusters.

    Args:
        round: its number.
        n_clusters: clusters after it.
        index: Dunn index of the clusters before; NaN where it was not looked at.
        changed: whether clients were clustered anew.
        converged: whether the clustering converged; a round whose clustering did not keeps the old one.
    """

    round: int
    n_clusters: int
    index: float
    changed: bool
    converged: bool = True


def as_table(decisions: Sequence[Regrouped]) -> FloatArray:
    """Return decisions as float64 of shape (n, 5), for a file: all finite, NaN as -1 and infinity as -2."""
    table = np.array([astuple(one) for one in decisions], dtype=np.float64).reshape(len(decisions), 5)
    return np.nan_to_num(table, nan=-1.0, posinf=-2.0)


def from_table(table: FloatArray) -> list[Regrouped]:
    """Return the decisions of which `as_table` made a table.

    Raises:
        ValueError: it is no such table.
    """
    if table.ndim != 2 or table.shape[1] != 5:
        raise ValueError("no table of decisions")
    odd = {-1.0: math.nan, -2.0: math.inf}
    return [
        Regrouped(int(number), int(n_clusters), odd.get(index, index), bool(changed), bool(converged))
        for number, n_clusters, index, changed, converged in table.tolist()
    ]


@dataclass(frozen=True, slots=True)
class ModelsOutcome:
    """What a run over models ends with.

    Args:
        models: of the clusters, float64 of shape (n_clusters, n_parameters).
        history: models at the start and after each round; the number of clusters may change.
        regrouped: what each round decided, where the algorithm decides anything.
        structure: number of the last clustering.
        parents: cluster that each one was split from, where clusters are split; -1 for others.
        comparison: whether clusters were worth it, where that was asked.
    """

    models: FloatArray
    history: tuple[FloatArray, ...]
    regrouped: tuple[Regrouped, ...] = ()
    structure: int = 0
    parents: tuple[int, ...] = ()
    comparison: Comparison | None = None
