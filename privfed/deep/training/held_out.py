"""Whether clusters are worth it: their models on rows that clients hold out, beside what needs no clusters.

Until a round that is agreed on, each client holds a fifth of its rows out (`Training.rows_of`). Then it says
which share of these three models get right, each also after passes over the client's own other rows: the
model of its cluster; one model of all clients; and what the client comes to alone, in as many rounds. Later
rounds use all rows.

Reveals to whoever opens the total: the sums of these shares over clients, and how many hold rows out. They
are of exact rows, so that fits under `privacy` do not ask for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from privfed.core.asking.declaration import Effort
from privfed.core.asking.question import ClientData, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec, Within
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_whole
from privfed.deep.training.memory import memory_of
from privfed.deep.training.rounds import RESOLUTION, Round
from privfed.errors import ArgumentError

WAYS = ("cluster", "one model", "alone")
"""What is compared: rows of `Comparison.accuracy`."""

EARNED = 0.02
"""Accuracy by which clusters must beat one model, or it takes their place: what chance makes of 500 rows."""

MOST_LOSS = 64.0


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOut(Round):
    """Ask which share of the rows that a client holds out models get right.

    Statistics: `right` (3, passes + 1), for each of `WAYS` after so many passes; `loss` (1,), the mean by the
    model of the cluster, up to `MOST_LOSS`; `clients` (1,), one from a client that holds rows out. Those of
    others are zeros.

    Args:
        one: the model of all clients, float64 of shape (1, n_parameters); without rows where nobody asks.
        start: what training began with, likewise.
        passes: of fine-tuning at most; one is as much as a client trains in a round.
    """

    one: FloatArray = field(default_factory=lambda: np.zeros((0, 1)))
    start: FloatArray = field(default_factory=lambda: np.zeros((0, 1)))
    passes: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("passes", self.passes, 0, 1 << 10)
        if any(len(one) and one.shape[1:] != self.models.shape[1:] for one in (self.one, self.start)):
            raise ArgumentError("models to compare must have as many parameters as those of clusters.")

    def effort(self, n_features: int) -> Effort:
        """As many trainings as there were rounds, and passes from two models."""
        found, often = super().effort(n_features), self.training.round + 2 * self.passes + 3
        work, row_work = often * found.work, often * found.row_work
        return replace(found, turns=often * found.turns, work=work, row_work=row_work)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Shares and a mean loss of each client that holds rows out."""
        right = Entry(
            "right", (len(WAYS), self.passes + 1), 0.0, 1.0, RESOLUTION, Within("clients", 0.0, 1.0)
        )
        loss = Entry("loss", (1,), 0.0, MOST_LOSS, RESOLUTION, Within("clients", 0.0, MOST_LOSS))
        return StatisticsSpec(right, loss, Entry("clients", (1,), 0.0, 1.0, RESOLUTION))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients, which remember nothing of it but their clusters."""
        return [self._shares(one, generators[i]) for i, one in enumerate(clients)]

    def _shares(self, client: ClientData, generator: np.random.Generator) -> Statistics:
        training, memory = self.training, deepcopy(memory_of(client))
        self.before.apply(memory)
        rows, labels = training.rows_of(client, held=True)
        right = np.zeros((len(WAYS), self.passes + 1))
        if not len(rows):
            return Statistics(right=right, loss=np.zeros(1), clients=np.zeros(1))
        trainer = training.trainer(client.n_features)
        own = self.models[self._own(client, memory, generator)]
        loss = np.nan_to_num(trainer.losses(own, rows, labels).mean(keepdims=True), nan=MOST_LOSS)
        for found, model in zip(right, (own, *self.one), strict=False):
            for number in range(self.passes + 1):
                found[number] = (trainer.predict(model, rows) == labels).mean()
                model = training.tuned(client, model, generator, [training.round][: self.passes - number])
        for start in self.start:
            alone = training.tuned(client, start, generator, range(1, training.round + 1))
            right[2] = (trainer.predict(alone, rows) == labels).mean()
        return Statistics(right=right, loss=np.clip(loss, 0.0, MOST_LOSS), clients=np.ones(1))


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """What clients' held-out rows say of ways to a model of one's own.

    Args:
        accuracy: means over clients, float64 of shape (3, passes + 1), as `HeldOut.right`.
    """

    accuracy: FloatArray

    @property
    def best(self) -> tuple[str, int]:
        """The way that gets most right, and after how many passes.

        Of as few rows as are held out a difference below `EARNED` is chance. Then one model has all passes,
        as whoever is unlike the others needs them, and a cluster's none.
        """
        table = self.accuracy[int(self.one_is_better)]  # The other is no more.
        usual, most = (len(table) - 1) * self.one_is_better, int(table.argmax())
        passes = most if table[most] - table[usual] >= EARNED else usual
        alone = self.accuracy[2, 0] > table[passes]
        return WAYS[2 if alone else int(self.one_is_better)], 0 if alone else passes

    @property
    def summary(self) -> dict[str, float]:
        """Accuracies by name: of models as they are, after the most useful number of passes, and alone."""
        found = dict(zip(WAYS, self.accuracy[:, 0].tolist(), strict=True))
        tuned = {f"{name}, fine-tuned": float(self.accuracy[i].max()) for i, name in enumerate(WAYS[:2])}
        return {**found, **tuned}

    @property
    def one_is_better(self) -> bool:
        """Whether clusters do not beat one model: each at its best, and for a fifth as `predict` takes it."""
        table = self.accuracy[:2]
        return bool(np.subtract(*(0.8 * table.max(axis=1) + 0.2 * table[:, 0])) < EARNED)

    @property
    def loses(self) -> bool:
        """Whether clusters, or training together at all, lose on held-out rows."""
        way, _ = self.best
        return way == WAYS[2] or (way == WAYS[1] and not np.array_equal(*self.accuracy[:2]))

    @property
    def found(self) -> str:
        """What was found, in words."""
        way, passes = self.best
        right = ", ".join(f"{name} {value:.3f}" for name, value in self.summary.items())
        return "clusters were not worth it. " * self.loses + (
            f"Of the rows that clients held out, models got right: {right}. Best is {way} with {passes} "
            "passes over a client's rows."
        )
