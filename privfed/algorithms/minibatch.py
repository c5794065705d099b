"""Federated mini-batch k-means: local epochs in batches and a server step with momentum, as secure sums.

Triebe and Rajagopal: Federated K-Means: Clustering Algorithm and Proof of Concept, 2019, Algorithm 1. A
client splits its rows into batches. In each epoch it moves its centroids by all batches, in random order. It
answers with the last epoch's cluster sizes and with each centroid's movement times its size. The
server moves each centroid by the mean of these movements.

Where the paper is silent or its formula fails, the authors' code is followed: the update is divided by
max(size, 1), so that a cluster without rows stays (the paper divides by zero there); an average over rounds
(momentum) smooths the updates; a cluster is small if it has less than a given share of the rows of the
round's clients. The authors' code ignores the batch size; here it is used as in Algorithm 1.

Reveals to whoever opens the totals: in each round, how many of the cohort's rows are in each cluster, and
their total movement; the start's totals (`privfed.algorithms.starts`), the range sum's
(`privfed.questions.ranges`), and each restart's score. With one full-batch epoch these are counts and sums of
rows, as in Lloyd's algorithm. Totals of repeated rounds can isolate single rows, more easily in small
cohorts; only differential privacy bounds that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from privfed.algorithms.rounds import ClusteringOutcome, Moved, Restart, Restarts, State, in_rounds, stops
from privfed.core.asking.declaration import STEP, Declaration, Effort
from privfed.core.asking.phases import Form, Phase, Phases, Shape
from privfed.core.asking.question import AdditiveOver, ClientData, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.conversation import Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges
from privfed.core.values.numbers import check_number, check_whole
from privfed.numerics.kernels.dispatch import assign
from privfed.numerics.kernels.interpreted import FEW_FEATURES, IntArray, cell_sums
from privfed.questions.lloyd import RESOLUTION, AtCenters, box_entry

MOST_EPOCHS = 100_000
"""Most epochs that a client answers for."""


class _Stack:
    """Stacked rows of several clients, with each client's own centroids and cluster sizes."""

    def __init__(self, clients: Sequence[FloatArray], centers: FloatArray) -> None:
        self.rows = clients[0] if len(clients) == 1 else np.concatenate(clients)
        self.sizes = [len(rows) for rows in clients]
        self.owner = np.repeat(np.arange(len(clients)), self.sizes)
        self.centers = np.repeat(centers[None], len(clients), axis=0)
        self.counts = np.zeros(self.centers.shape[:2])

    def step(self, batch: IntArray | slice, rate: float) -> None:
        """Move each client's centroids towards the means of its rows in the batch (Algorithm 1)."""
        rows, owner = self.rows[batch], self.owner[batch]
        n_clients, k, d = self.centers.shape
        counts, sums = cell_sums(rows, owner * k + self._assign(rows, owner), n_clients * k)
        counts = counts.reshape(n_clients, k)
        self.counts += counts
        # A centroid without rows in the batch has share zero, and stays.
        share = rate * counts / np.maximum(self.counts, 1.0)
        means = sums.reshape(n_clients, k, d) / np.maximum(counts, 1.0)[:, :, None]
        self.centers += share[:, :, None] * (means - self.centers)

    def _assign(self, rows: FloatArray, owner: IntArray) -> IntArray:
        """Return each row's nearest centroid among those of its client."""
        if rows.shape[1] > FEW_FEATURES:
            # One matrix product a client, so that a client's result does not depend on the others.
            firsts = np.flatnonzero(np.diff(owner, prepend=-1))
            parts = zip(np.split(rows, firsts[1:]), owner[firsts], strict=True)
            return np.concatenate([assign(own, self.centers[client]) for own, client in parts])
        distances = np.zeros((len(rows), self.centers.shape[1]))
        for feature in range(rows.shape[1]):
            difference = self.centers[:, :, feature][owner]
            difference -= rows[:, feature, None]
            difference *= difference
            distances += difference
        return np.asarray(np.argmin(distances, axis=1), dtype=np.intp)


def _split(first: int, n_rows: int, batch_size: int, generator: np.random.Generator) -> list[IntArray]:
    """Split `n_rows` rows from `first` on into random batches; rows that fit into one keep their order."""
    if n_rows <= batch_size:
        return [np.arange(first, first + n_rows)]
    return np.split(first + generator.permutation(n_rows), range(batch_size, n_rows, batch_size))


def _epochs(
    sizes: Sequence[int],
    epochs: int,
    batch_size: int | None,
    generators: Sequence[np.random.Generator],
) -> Iterator[list[IntArray | slice]]:
    """Yield each epoch's steps; a step has the rows of one batch of each client.

    A client splits its rows once and shuffles the order of its batches in each epoch (Algorithm 1). A
    client with one batch draws no random numbers.
    """
    if batch_size is None or max(sizes) <= batch_size:
        for _ in range(epochs):
            yield [slice(None)]
        return
    of_client = [
        _split(first, size, batch_size, generator)
        for first, size, generator in zip(
            np.cumsum([0, *sizes[:-1]]).tolist(), sizes, generators, strict=True
        )
    ]
    for _ in range(epochs):
        steps: list[list[IntArray]] = [[] for _ in range(max(map(len, of_client)))]
        for batches, generator in zip(of_client, generators, strict=True):
            order = generator.permutation(len(batches)) if len(batches) > 1 else [0]
            for step, chosen in zip(steps, order, strict=False):
                step.append(batches[chosen])
        yield [np.concatenate(step) for step in steps]


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class MiniBatchMovements(AtCenters):
    """Ask for the movements of the centroids in local epochs: procedure ClientKMeans of Algorithm 1.

    Statistics: `weight` (n_clusters,), the cluster sizes of the last epoch; `movement` (n_clusters,
    n_features) = weight * (local centroid - received centroid).

    Args:
        epochs: passes over a client's rows (E).
        batch_size: rows of a batch (B); None for all of a client's rows.
        client_learning_rate: beta, in (0, 1].
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    epochs: int = 1
    batch_size: int | None = None
    client_learning_rate: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("epochs", self.epochs, 1, MOST_EPOCHS)
        check_whole("batch_size", self.batch_size, 1, or_none=True)
        check_number("client_learning_rate", self.client_learning_rate, "(0, 1]")

    def effort(self, n_features: int) -> Effort:
        """Every epoch assigns all rows, and each batch is a step of Python."""
        batches = 0 if self.batch_size is None else self.epochs * STEP // self.batch_size
        return Effort(turns=self.epochs, work=self.epochs * STEP, row_work=batches)

    @property
    def _reach(self) -> tuple[FloatArray, FloatArray]:
        # Rates are at most 1, so that a local centroid stays in the box around the ranges and its start.
        return np.minimum(self.ranges.low, self.centers), np.maximum(self.ranges.high, self.centers)

    @property
    def declaration(self) -> Declaration:
        """Counts of the last epoch's rows, and movements, which are multiplied by these counts.

        Both are sums over rows where one batch of all rows moves the centers once.
        """
        sums = ("weight", "movement") if self.epochs == 1 and self.batch_size is None else ()
        return Declaration(("weight",), (self.centers,), movements=True, row_sums=sums)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Weights of at most a client's rows; movements of at most that many times a centroid's reach."""
        low, high = self._reach
        low, high, rows = low - self.centers, high - self.centers, float(self.ranges.rows)
        return StatisticsSpec(
            Entry("weight", (len(self.centers),), 0.0, rows, RESOLUTION),
            box_entry("movement", self.centers.shape, low, high, rows, "weight"),
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> Sequence[Statistics]:
        """Answer for several clients in one pass."""
        stack = _Stack([client.features for client in clients], self.centers)
        for steps in _epochs(stack.sizes, self.epochs, self.batch_size, generators):
            stack.counts[:] = 0.0
            for batch in steps:
                stack.step(batch, self.client_learning_rate)
        # Rounding may carry a centroid beyond the border in its last bit.
        moved = np.clip(stack.centers, *self._reach) - self.centers
        return self.spec.tabled(weight=stack.counts, movement=stack.counts[:, :, None] * moved)


@dataclass(frozen=True, kw_only=True)
class FederatedMiniBatch(Restarts):
    """Algorithm 1 of Triebe and Rajagopal.

    Args:
        epochs: passes over a client's rows in a round (E).
        batch_size: rows of a batch (B); None for all of a client's rows.
        learning_rate: alpha, the server's rate, in (0, 1].
        momentum: mu in [0, 1): the server moves by m = mu m + (1 - mu) update; 0 is Algorithm 1.
        client_learning_rate: beta, in (0, 1].
        reassign_after: number of consecutive rounds after which a small cluster gets a new position, drawn
            uniformly from the ranges; None never.
        reassign_min: share of the rows of the round's clients below which a cluster is small.
    """

    epochs: int = 1
    batch_size: int | None = None
    learning_rate: float = 1.0
    momentum: float = 0.0
    client_learning_rate: float = 1.0
    reassign_after: int | None = 20
    reassign_min: float = 0.01
    max_iter: int = 200
    tol: float | None = None

    @property
    def step(self) -> float:
        """The product of both rates and of what momentum leaves of an update."""
        return self.learning_rate * self.client_learning_rate * (1.0 - self.momentum)

    @property
    def _local(self) -> dict[str, Any]:
        """Return the options of the clients' own epochs."""
        return {name: getattr(self, name) for name in ("epochs", "batch_size", "client_learning_rate")}

    def round_phases(self, setting: Setting, number: int) -> Phases:
        """Return the questions of the rounds."""
        centers = Shape(self.n_clusters, setting.n_features)
        return (Phase(Form(MiniBatchMovements, centers=centers, **self._local), 1, self.max_iter),)

    def state(self, n_features: int) -> Mapping[str, Shape]:
        """Return centers, their smoothed update, and for how many rounds each cluster has been small."""
        k = self.n_clusters
        return {**super().state(n_features), "smoothed": Shape(k, n_features), "small": Shape(k)}

    def restart(self, begun: Restart) -> Conversation[ClusteringOutcome]:
        """Find the start, do the rounds, and ask for the score."""
        ranges, small = begun.located.ranges, np.zeros(self.n_clusters)
        start = yield from begun.starts.next((self.cohort(1),), begun.geometry)

        def one_round(history: Sequence[State]) -> Conversation[Moved]:
            question = MiniBatchMovements(ranges=ranges, centers=history[-1]["centers"], **self._local)
            number = len(history)
            total = yield Ask(question, self.cohort(number), (self.cohort(number + 1),))
            return self._moved(history[-1], total.statistics, ranges, begun.rng)

        def rule(movements: Sequence[float], history: Sequence[State]) -> str:
            # Where clusters are small, some may be drawn anew, so that a plateau begins after that.
            unsettled = max((i for i, one in enumerate(history) if one["small"].any()), default=0)
            settled = len(movements) - unsettled >= 4 * self.quiet
            return stops(movements, tol=self.tol, quiet=self.quiet if settled else 0)

        history, stopped = yield from in_rounds(
            {"centers": start, "smoothed": np.zeros(start.shape), "small": small},
            one_round,
            declared=self.state(ranges.n_features),
            max_iter=self.max_iter,
            rule=rule,
        )
        return (yield from self.scored(begun.located, history, stopped))

    def _moved(self, state: State, total: Statistics, ranges: Ranges, rng: np.random.Generator) -> Moved:
        """Do the server's step with a round's totals, then draw new positions for small clusters.

        A weight below 1, which noise can cause, counts as 1 and makes the step short.
        """
        weight, after = total["weight"], np.inf if self.reassign_after is None else self.reassign_after
        smoothed = self.momentum * state["smoothed"] + (1.0 - self.momentum) * (
            total["movement"] / np.maximum(weight, 1.0)[:, None]
        )
        moved = state["centers"] + self.learning_rate * smoothed
        # A cluster that was drawn anew in the last round begins anew.
        waited = np.where(state["small"] >= after, 0.0, state["small"])
        small = np.where(weight < self.reassign_min * weight.sum(), waited + 1.0, 0.0) * np.isfinite(after)
        for cluster in np.flatnonzero(small >= after):
            moved[cluster] = rng.uniform(ranges.low, ranges.high)
            smoothed[cluster] = 0.0
        return {"centers": moved, "smoothed": smoothed, "small": small}
