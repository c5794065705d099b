"""What all algorithms over models share: the options of training, its ranges, and what a run ends with.

What the algorithms over models may ask, round by round, so that clients can check it without totals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privfed.core.agreed.agreement import Size
from privfed.core.asking.phases import Among, Cycle, Form, Near, Phase, Phases, Same, Shape, Within
from privfed.core.asking.question import Question
from privfed.core.roles.conversation import EVERYONE, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges, frozen, frozen_array
from privfed.deep.training.local import TIMES, Training
from privfed.deep.training.regrouping import Regrouping
from privfed.deep.training.rounds import MOST_CLUSTERS, AveragedUpdates, ClusterSizes, SketchedUpdates
from privfed.deep.training.trainer import HasParameters, Trainer, trainer_of
from privfed.errors import ArgumentError
from privfed.questions.gathered import Slots
from privfed.questions.ranges import locate, range_phases

ROWS = 1 << 20
"""Rows of a client where nothing depends on their number, and none is declared."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run of rounds of training.

    Args:
        first: training of the first round; `training` has the others.
        rounds: rounds of communication.
        learning_rate_decay: factor of the learning rate from round to round.
        seed: of models and of the server's draws; that of batches is its remainder by 2^32.
        sampled: whether a round asks the configuration's cohort, or everyone.
        given: whether to begin with the parameters of the torch module, or with those that the seed draws.
    """

    first: Training
    rounds: int = 10
    learning_rate_decay: float = 1.0
    seed: int = 0
    sampled: bool = False
    given: bool = False

    def training(self, round_number: int) -> Training:
        """Return the training of a round."""
        rate = self.first.learning_rate * self.learning_rate_decay ** (round_number - 1)
        return replace(self.first, round=round_number, learning_rate=rate)

    def asked(self, round_number: int, **options: Any) -> dict[str, Any]:
        """Return the options of a round's question, as of its form: the given ones, else the usual ones."""
        usual = {
            "training": self.training(round_number),
            "structure": 0,
            "choice": "kept",
            "metric": "complete",
            "numbered": True,
            "before": Regrouping.none(),
        }
        return {**usual, **options}

    def trainer(self, n_columns: int) -> Trainer:
        """Return the model of rows with so many columns."""
        first = self.first
        return trainer_of(first.model, n_columns - TIMES * first.timed, first.n_classes)

    def starts(self, n_columns: int, n: int) -> FloatArray:
        """Return n models to begin with, float64 of shape (n, n_parameters).

        Raises:
            ArgumentError: given parameters are of no module, or several models would be the same.
        """
        trainer = self.trainer(n_columns)
        if self.given:
            if n > 1 or not isinstance(trainer, HasParameters):
                raise ArgumentError(
                    'start="given" is for one model that is a torch module; use start="drawn".',
                    parameters=["start"],
                )
            return frozen_array(trainer.given[None])
        models = np.empty((n, trainer.n_parameters))
        for place, seed in enumerate(np.random.SeedSequence(self.seed).generate_state(n)):
            models[place] = trainer.initial(int(seed))
        return frozen(models)

    def size(self, setting: Setting, n: int) -> Size:
        """Return how large a run with n models is: each round's total has a number for each of theirs."""
        numbers = n * self.trainer(setting.n_features).n_parameters
        return Size(numbers, numbers * self.rounds)

    def label(self, round_number: int) -> int:
        """Return the cohort of a round."""
        return round_number if self.sampled and round_number <= self.rounds else EVERYONE

    def declared(self, setting: Setting) -> Ranges | None:
        """Return the declared ranges; None where there are none, or where rows count and have no bound."""
        domain = setting.domain
        if domain is None or (self.first.by_rows and domain.max_rows is None):
            return None
        return Ranges(*domain.bounds(setting.n_features), domain.max_rows or ROWS)

    def ranges(self, setting: Setting) -> Conversation[Ranges]:
        """Return the declared ranges; where there are none, find them with a sum."""
        declared = self.declared(setting)
        if declared is not None:
            return declared
        located = yield from locate(setting, upcoming=(self.label(1),))
        return located.ranges


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
    lines = [(one.round, one.n_clusters, one.index, one.changed, one.converged) for one in decisions]
    table = np.array(lines, dtype=np.float64).reshape(len(lines), 5)
    table[:, 2] = np.where(np.isnan(table[:, 2]), -1.0, np.where(np.isinf(table[:, 2]), -2.0, table[:, 2]))
    return table


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
        clients: number of clients in each cluster at the end, where it was asked for.
        structure: number of the last clustering.
        parents: cluster that each one was split from, where clusters are split; -1 for others.
    """

    models: FloatArray
    history: tuple[FloatArray, ...]
    regrouped: tuple[Regrouped, ...] = ()
    clients: FloatArray = field(default_factory=lambda: np.zeros(0))
    structure: int = 0
    parents: tuple[int, ...] = ()


_OF_A_ROUND = ("models", "structure", "before")
"""What both questions of a round have in common."""


class RoundForms:
    """The forms of a run's questions.

    Args:
        plan: options of the run.
        setting: what is known before the first question.
    """

    def __init__(self, plan: Plan, setting: Setting) -> None:
        self._plan, self._setting = plan, setting
        self._n_parameters = plan.trainer(setting.n_features).n_parameters
        declared = plan.declared(setting)
        self._ranges: dict[str, object] = {} if declared is None else {"ranges": declared}
        self.found: Phases = range_phases(setting) if declared is None else ()

    def models(self, number: int, n_clusters: int | None) -> Near | Shape:
        """Return the form of a round's models: in the first those that the seed draws."""
        if number == 1:
            return Near((self._plan.starts(self._setting.n_features, n_clusters or 1),))
        return Shape(n_clusters or (1, MOST_CLUSTERS), self._n_parameters)

    def form(self, kind: type[Question], number: int, **options: Any) -> Form:
        """Return the form of a round's question, whose options are those of `Plan.asked`."""
        return Form(kind, **self._ranges, **self._plan.asked(number, **options))

    def slotted(self, form: Form, slots: int) -> Form:
        """Return a form whose answers come in so many slots; with 0 as it is."""
        return Form(Slots, **self._ranges, inner=form, slots=slots) if slots else form

    def averaged(self, number: int, n_clusters: int, choice: str) -> Phase:
        """Return the one question of a round of FedAvg or IFCA."""
        models = self.models(number, n_clusters)
        after = Regrouping.none()
        return Phase(self.form(AveragedUpdates, number, models=models, choice=choice, after=after))

    def compared(
        self, number: int, metric: str, numbered: bool, landmarks: Regroupings, slots: int, averages: bool
    ) -> Cycle:
        """Return the questions of a round in which updates are compared."""
        before = Among((Regrouping.none(), landmarks.form(Within(1, max(1, number - 1)))))
        common: dict[str, Any] = {
            "models": Same("models", self.models(number, None)),
            "structure": Same("structure", Within(0, number - 1)),
            "metric": metric,
            "numbered": numbered,
            "before": Same("before", before),
        }
        options = {"size": landmarks.size, "seed": landmarks.seed, "decay": landmarks.decay}
        sketches = self.slotted(self.form(SketchedUpdates, number, **common, **options), slots)
        after = Among((Regrouping.none(), landmarks.form(number)))
        sums = (Phase(self.form(AveragedUpdates, number, **common, after=after)),) if averages else ()
        return Cycle((Phase(sketches), *sums), forgets=_OF_A_ROUND)

    def sizes(self, landmarks: Regroupings) -> Phase:
        """Return the question for the sizes of the clusters at the end."""
        last = Among((Regrouping.none(), landmarks.form(Within(1, self._plan.rounds))))
        within = Within(0, self._plan.rounds)
        numbers = {"structure": within, "n_clusters": Within(1, MOST_CLUSTERS)}
        return Phase(Form(ClusterSizes, **self._ranges, before=last, **numbers))


class Regroupings:
    """The forms of steps from one clustering to the next.

    Args:
        size: numbers of a sketch.
        tag: numbers of a landmark.
        seed: of the projection.
        metric: how a client compares its update with landmarks.
        n_parameters: of the model.
        n_clients: most landmarks.
        rounds: of the run.
        decay: of the running means that are compared; 0 where updates are.
    """

    def __init__(
        self,
        *,
        size: int,
        tag: int,
        seed: int,
        metric: str,
        n_parameters: int,
        n_clients: int,
        rounds: int,
        decay: float,
    ) -> None:
        self.size, self.seed, self.decay = size, seed, decay
        self._tag, self._metric = tag, metric
        self._n_parameters, self._n_clients, self._rounds = n_parameters, n_clients, rounds

    def form(self, number: object) -> Form:
        """Return the form of a step that was decided in a round."""
        landmarks = (1, self._n_clients)
        return Form(
            Regrouping,
            before=Within(0, self._rounds),
            n_clusters=Within(1, MOST_CLUSTERS),
            round=number,
            models=Shape((1, MOST_CLUSTERS), self._n_parameters),
            landmarks=Shape(landmarks, self._tag),
            origins=Shape(landmarks),
            labels=Shape(landmarks),
            seed=self.seed,
            metric=self._metric,
        )
