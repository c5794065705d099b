"""What all algorithms over models share: the words of training, its ranges, and what a run ends with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from privfed.core.agreed.agreement import Size
from privfed.core.roles.conversation import EVERYONE, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges, frozen, frozen_array
from privfed.deep.training.local import TIMES, Training
from privfed.deep.training.trainer import Trainer, trainer_of
from privfed.questions.ranges import locate

ROWS = 1 << 20
"""Rows of a client where nothing depends on their number, and none is declared."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Words of a run.

    Args:
        model: registered name of the model.
        n_classes: labels are 0 to n_classes - 1.
        timed: whether the last two columns are times of rows.
        rounds: rounds of communication.
        epochs: passes over a client's rows in a round.
        batch_size: rows of a batch; None for all.
        learning_rate: of the clients' SGD.
        learning_rate_decay: factor of the learning rate from round to round.
        max_update_norm: L2 norm that updates are clipped to.
        by_rows: whether clients count by their rows, or all alike.
        seed: of models, batches and projections.
        sampled: whether a round asks the configuration's cohort, or everyone.
        start: parameters to begin with, or None for those that the seed draws.
        noise_multiplier: of DP-SGD, 0 for none; the next four words are of it.
        sample_rate: chance of a row to be in a batch.
        max_grad_norm: that rows' gradients are clipped to.
        rows: public number of rows that sums of gradients are divided by.
        first_rate: chance of a row to be in a batch of the first round; 0 for `sample_rate`. Without DP-SGD
            anything but 0 takes all of a client's rows at once there.
        trainings: how often a client trains by DP-SGD at most; 0 for once a round. More are for a run that is
            resumed, whose clients have forgotten their clusters.
        choice_noise: noise of choices among models under DP-SGD; 0 where clients choose nothing.
    """

    model: str
    n_classes: int
    timed: bool = False
    rounds: int = 10
    epochs: int = 1
    batch_size: int | None = 32
    learning_rate: float = 0.1
    learning_rate_decay: float = 1.0
    max_update_norm: float = 10.0
    by_rows: bool = False
    seed: int = 0
    sampled: bool = False
    start: FloatArray | None = None
    noise_multiplier: float = 0.0
    sample_rate: float = 0.0
    max_grad_norm: float = 1.0
    rows: int = 1
    first_rate: float = 0.0
    trainings: int = 0
    choice_noise: float = 0.0

    def training(self, round_number: int) -> Training:
        """Return the training of a round."""
        return Training(
            model=self.model,
            n_classes=self.n_classes,
            timed=self.timed,
            round=round_number,
            epochs=self.epochs,
            batch_size=None if self.first_rate and round_number == 1 else self.batch_size,
            learning_rate=self.learning_rate * self.learning_rate_decay ** (round_number - 1),
            max_update_norm=self.max_update_norm,
            by_rows=self.by_rows,
            seed=self.seed % 2**32,
            noise_multiplier=self.noise_multiplier,
            sample_rate=self.sample_rate,
            max_grad_norm=self.max_grad_norm,
            rows=self.rows,
            trainings=self.trainings or self.rounds,
            first_rate=self.first_rate if self.noise_multiplier else 0.0,
            choice_noise=self.choice_noise,
        )

    def trainer(self, n_columns: int) -> Trainer:
        """Return the model of rows with so many columns."""
        return trainer_of(self.model, n_columns - TIMES * self.timed, self.n_classes)

    def starts(self, n_columns: int, n: int) -> FloatArray:
        """Return n models to begin with, float64 of shape (n, n_parameters)."""
        trainer = self.trainer(n_columns)
        if self.start is not None and n == 1:
            return frozen_array(self.start[None])
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
        if domain is None or (self.by_rows and domain.max_rows is None):
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
    """

    models: FloatArray
    history: tuple[FloatArray, ...]
    regrouped: tuple[Regrouped, ...] = ()
    clients: FloatArray = field(default_factory=lambda: np.zeros(0))
    structure: int = 0
