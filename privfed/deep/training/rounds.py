"""The two questions of a round: for sketches of the clients' updates, and for their averages in each cluster.

Every client is asked the same: it is sent the models of all clusters and knows by itself which cluster is its
own (`privfed.deep.training.memory`). One that knows none, because it joins or missed the last clustering,
finds the nearest as a newcomer does (equation 6 of DCFL): it trains the average of all models, and compares
its update with the vectors from that average to each cluster's model.

Reveals to whoever opens the totals: of `AveragedUpdates` the sum of the clipped updates in each cluster, and
how many clients moved from which cluster into it; of `SketchedUpdates` the sum of sketches, and to whoever
sees contributions each client's sketch and the cluster that its update started from. An update can tell which
rows a client has; sketches as long as the model are the updates themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from privfed.core.asking.declaration import STEP, Declaration, Effort, Remembered, Trained
from privfed.core.asking.question import ClientData, Question, parts_of, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.values.domain import FloatArray, frozen
from privfed.core.values.numbers import check_number, check_whole
from privfed.deep.clustering.distances import METRICS
from privfed.deep.clustering.sketch import SKETCHED, sketched
from privfed.deep.training.dp_sgd import BLOCK
from privfed.deep.training.local import Training, clipped
from privfed.deep.training.memory import TRAINED, Memory, memory_of
from privfed.deep.training.regrouping import Regrouping, cheapest, nearest
from privfed.errors import ArgumentError, PolicyError

RESOLUTION = 2.0**-30
"""Coarsest accepted step of an entry, relative to its range."""

LONGEST_SKETCH = 2.0
"""Sketches are clipped to so many times the longest update: a projection may lengthen it."""

MOST_CLUSTERS = 1 << 12

NO_STEP = Regrouping()


@dataclass(frozen=True, kw_only=True, eq=False)
class Round(Question):
    """What both questions of a round share: the models, and how a client knows its own.

    Args:
        training: of the round.
        models: of the clusters, float64 of shape (n_clusters, n_parameters).
        structure: number of the clustering that the models are of.
        choice: "kept": a client stays in its cluster, and joins the nearest where it has none;
            "lowest-loss": it takes in each round the model of the lowest loss on its rows (IFCA); or
            "apart": it trains the only model, and remembers nothing of it.
        metric: how a newcomer's update is compared.
        numbered: whether clusters keep their numbers for good: a client that missed a clustering keeps its
            own.
        before: the step to this clustering, for clients that have not heard of it.
    """

    choices: ClassVar[tuple[str, ...]] = ("kept", "lowest-loss", "apart")
    alternative: ClassVar[str] = (
        'At unit "record" use DP-SGD (an estimator of privfed.deep), or unit="client".'
    )
    remembers: ClassVar[Remembered[Any] | None] = TRAINED
    training: Training
    models: FloatArray
    structure: int = 0
    choice: str = "kept"
    metric: str = "complete"
    numbered: bool = True
    before: Regrouping = NO_STEP

    def __post_init__(self) -> None:
        if self.models.ndim != 2 or not 1 <= len(self.models) <= MOST_CLUSTERS:
            raise ArgumentError(f"models must be a table of 1 to {MOST_CLUSTERS}, got {self.models.shape}.")
        if not np.isfinite(self.models).all():
            raise ArgumentError("models must be finite; lower the learning rate, or clip updates.")
        if self.choice not in self.choices or self.metric not in METRICS:
            raise ArgumentError(
                f"choice must be one of {self.choices} and metric one of {METRICS}, got {self.choice!r} and "
                f"{self.metric!r}."
            )
        if self.training.private and self.choice == "lowest-loss":
            raise ArgumentError("DP-SGD does not cover a choice by the loss on exact rows; keep clusters.")

    @property
    def declaration(self) -> Declaration:
        """Rows, where these weigh updates; a user's own model may fail on some."""
        return replace(self.training.declaration, row_counts=self._counts)

    def effort(self, n_features: int) -> Effort:
        """A client compares the models, and trains one or two of them in steps."""
        one, n = self.training, self.models.shape[1]
        steps = one.steps if one.private else one.epochs
        batches = 0 if one.batch_size is None or one.private else one.epochs * STEP // one.batch_size
        # A draw of noise takes about as long as 32 multiply-adds.
        noise, block = (32 * n, 2 * max(BLOCK, n)) if one.private else (0, 0)
        return Effort(
            turns=2 * one.epochs,
            vectors=one.n_classes,
            numbers=one.n_classes * n_features + block,
            work=2 * steps * (STEP + noise),
            row_work=2 * (batches + one.private * steps),
        )

    @property
    def asks_all_clients(self) -> bool:
        """Clients are counted, also those without rows in a round."""
        return True

    def trained(self, client: ClientData, generator: np.random.Generator) -> Memory:
        """Have a client train in this round, once; return what it remembers of it."""
        memory = Memory() if self.choice == "apart" else memory_of(client)
        self.before.apply(memory)
        if memory.round == self.training.round and memory.update is not None:
            return memory
        memory.label = self._own(client, memory, generator)
        memory.structure, memory.origin = self.structure, memory.label
        memory.update = self._update(client, memory, self.models[memory.label], generator)
        memory.round, memory.sketch, memory.shown = self.training.round, None, None
        memory.first = memory.update if memory.round == 1 else memory.first
        memory.labels[memory.round] = memory.label
        return memory

    def _own(self, client: ClientData, memory: Memory, generator: np.random.Generator) -> int:
        """Return a client's cluster in this round."""
        if len(self.models) == 1:
            return 0
        if self.choice == "lowest-loss":
            return cheapest(self.training, self.models, client)
        if memory.structure == self.structure or (self.numbered and 0 <= memory.label < len(self.models)):
            return memory.label
        # Joining trains twice, which is paid for only in a round that a client was not asked in
        # (`privfed.privacy.dp_sgd`). One that trained in the round before is told of every new clustering.
        if self.training.private and self.training.round <= max(memory.round, 0) + 1:
            raise PolicyError("policy:budget")
        return nearest(
            self.models, self.metric, lambda average: self._update(client, memory, average, generator)
        )

    def _update(
        self, client: ClientData, memory: Memory, start: FloatArray, generator: np.random.Generator
    ) -> FloatArray:
        """Train, and with DP-SGD pay for it first: at most as often as was planned, by messages alone."""
        if self.training.private:
            if memory.trainings >= self.training.trainings:
                raise PolicyError("policy:budget")
            memory.trainings += 1
        return self.training.update(client, start, generator)

    def _weight(self, client: ClientData) -> float:
        return float(len(self.training.rows_of(client)[1])) if self.training.by_rows else 1.0

    @property
    def _counts(self) -> tuple[str, ...]:
        """Names of entries that count rows."""
        return ("rows",) if self.training.by_rows else ()

    @property
    def _heaviest(self) -> float:
        return float(self.ranges.rows) if self.training.by_rows else 1.0


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class SketchedUpdates(Round):
    """Ask for a sketch of each client's update or running mean, and the cluster that it started from.

    Statistics: `sketch` (size,); `origin` (n_clusters,), one for that cluster; where rows weigh updates
    `rows` (1,), the client's.

    Args:
        size: numbers of a sketch; as many as there are parameters for the updates themselves.
        seed: of the projection, public.
        decay: 0 for the update itself; else the client's running mean (`Memory.averages`), which is made of
            earlier updates: under DP-SGD it costs nothing, and its noise falls from round to round.
    """

    size: int
    seed: int
    decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.size <= self.models.shape[1] or not 0 <= self.seed < 2**32:
            raise ArgumentError(
                f"size must lie in [1, {self.models.shape[1]}] and the seed in [0, 2**32), got {self.size} "
                f"and {self.seed}."
            )
        check_number("decay", self.decay, "[0, 1)")

    def effort(self, n_features: int) -> Effort:
        """A projection besides."""
        found, size = super().effort(n_features), self.size * self.models.shape[1]
        return replace(found, numbers=found.numbers + min(size, SKETCHED), work=found.work + size)

    @property
    def longest(self) -> float:
        """L2 norm that sketches are clipped to."""
        whole = self.size == self.models.shape[1]
        return self.training.max_update_norm * (1.0 if whole else LONGEST_SKETCH)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Values no larger than a sketch is long."""
        long = self.longest
        return StatisticsSpec(
            Entry("sketch", (self.size,), -long, long, 2.0 * long * RESOLUTION),
            Entry("origin", (len(self.models),), 0.0, 1.0, RESOLUTION),
            *(Entry(name, (1,), 0.0, self._heaviest, RESOLUTION) for name in self._counts),
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients, one after the other."""
        memories = [self.trained(client, generators[i]) for i, client in enumerate(clients)]
        nothing = np.zeros(self.models.shape[1])
        for memory in memories if self.decay else []:
            memory.averages(self.decay)
        shown = [one.update if one.shown is None else one.shown for one in memories]
        updates = [nothing if one is None else one for one in shown]
        # All at once: drawing the projection takes most of the time.
        table = np.reshape(updates, (len(updates), len(nothing)))
        sketches = sketched(table, self.size, self.seed)
        return [self._sketch(*three) for three in zip(clients, memories, sketches, strict=True)]

    def _sketch(self, client: ClientData, memory: Memory, sketch: FloatArray) -> Statistics:
        origin = np.zeros(len(self.models))
        origin[memory.origin] = 1.0
        memory.sketch = (self.size, self.seed, sketch)
        rows = {name: np.array([self._weight(client)]) for name in self._counts}
        return Statistics(sketch=clipped(sketch, self.longest), origin=origin, **rows)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class AveragedUpdates(Round):
    """Ask for the sums of the clients' updates, cluster by cluster, and where they started.

    Statistics: `update` (n_after, n_parameters), each client's weight times its update, in its cluster's
    row; `origin` (n_after, n_clusters), its weight, in that row and the column that it started from. Weights
    are one, or a client's rows. What the models of the clusters become is `averaged`.

    Args:
        after: step to the next clustering, by this round's updates; without one clusters stay.
    """

    after: Regrouping = NO_STEP

    @property
    def n_after(self) -> int:
        """Number of clusters that updates are summed in."""
        return self.after.n_clusters or len(self.models)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Values no larger than an update is long, times the heaviest weight."""
        most, shape = self._heaviest, (self.n_after, self.models.shape[1])
        long = self.training.max_update_norm * most
        entries = [
            Entry("update", shape, -long, long, 2.0 * long * RESOLUTION),
            Entry("origin", (self.n_after, len(self.models)), 0.0, most, RESOLUTION),
        ]
        rows = [Entry(name, (self.n_after,), 0.0, most, RESOLUTION) for name in self._counts]
        return StatisticsSpec(*entries, *rows)

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients, one after the other."""
        return [self._in_its_row(one, self.trained(one, generators[i])) for i, one in enumerate(clients)]

    def _in_its_row(self, client: ClientData, memory: Memory) -> Statistics:
        self.after.apply(memory)
        weight = self._weight(client)
        vector = np.zeros(self.spec.size)
        found = Statistics.of(self.spec.layout, vector)  # Its arrays are views, so that nothing is copied.
        if memory.update is not None:
            np.multiply(weight, memory.update, out=found["update"][memory.label])
        found["origin"][memory.label, memory.origin] = weight
        for name in self._counts:
            found[name][:] = found["origin"].sum(axis=1)
        frozen(vector)
        return found

    def averaged(self, total: Statistics, otherwise: FloatArray) -> FloatArray:
        """Return the clusters' models after the round (`averaged`)."""
        return averaged(self.models, total["update"], total["origin"], otherwise)


def averaged(models: FloatArray, update: FloatArray, origin: FloatArray, otherwise: FloatArray) -> FloatArray:
    """Return the clusters' models after a round, float64 of shape (n_after, n_parameters).

    Each is the mean of what its members trained to: W = (1 / |C|) sum of W_j (equation 5 of DCFL), which for
    clusters that stay is the usual step by the mean update. A weight below one half is none: noise can make
    it so.

    Args:
        models: that updates started from, float64 of shape (n_before, n_parameters).
        update: sums of updates, times weights, float64 of shape (n_after, n_parameters).
        origin: weights, float64 of shape (n_after, n_before).
        otherwise: models of clusters that nobody is in, float64 of shape (n_after, n_parameters).
    """
    weights = origin.sum(axis=1, keepdims=True)
    held = weights > 0.5
    means = origin @ models
    means += update
    means /= np.where(held, weights, 1.0)
    means[~held[:, 0]] = otherwise[~held[:, 0]]
    return np.asarray(means)


def round_of(question: Question | None) -> Round | None:
    """Return the round of training in a question, without noise and slots; None where there is none."""
    parts = () if question is None else parts_of(question)
    return next((one for one in parts if isinstance(one, SketchedUpdates | AveragedUpdates)), None)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterSizes(Question):
    """Tell clients of the last clustering of a run, and ask how many are in each cluster.

    Statistics: `clients` (n_clusters,), one for a client's cluster; zeros from one that is in none.

    Args:
        before: the step to the clustering.
        structure: its number.
        n_clusters: its clusters.
    """

    remembers: ClassVar[Remembered[Any] | None] = TRAINED
    before: Regrouping
    structure: int
    n_clusters: int

    def __post_init__(self) -> None:
        check_whole("n_clusters", self.n_clusters, 1, MOST_CLUSTERS)

    @property
    def asks_all_clients(self) -> bool:
        """Clients are counted, also those without rows in a round."""
        return True

    @property
    def declaration(self) -> Declaration:
        """Clients are counted, not rows; nobody trains."""
        return Declaration(trained=Trained())

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most one."""
        return StatisticsSpec(Entry("clients", (self.n_clusters,), 0.0, 1.0, RESOLUTION))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [self._own(memory_of(client)) for client in clients]

    def _own(self, memory: Memory) -> Statistics:
        self.before.apply(memory)
        counts = np.zeros(self.n_clusters)
        if memory.structure == self.structure and 0 <= memory.label < self.n_clusters:
            counts[memory.label] = 1.0
        return Statistics(clients=counts)
