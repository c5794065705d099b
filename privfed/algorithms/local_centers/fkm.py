"""FKM: federated k-means in which clients may hold different numbers of clusters.

Garst and Reinders: Federated K-Means clustering, 2023, arXiv:2310.01195v2, Algorithm 1. In each round a
client drops the global means that are nearest to none of its rows, does one k-means step from the others
and sends its means, each with its number of rows; the server's weighted k-means (eq. 1) merges
them. Where the paper is silent the authors' code is followed: the start is k-means++ and one step; sizes
are counted after the step, with the updated means; means of fewer than `min_cluster_size` rows (p in
section 2) are dropped. Unlike in that code, the start does not count as a round.

`merge="gathered"` is the server as published: it sees every client's means and starts again from
k-means++ in each round. `merge="summed"` asks for each step of that k-means as a sum; it starts from cells
of the clients' means, then from the current global ones. From the same start both give the same result.

Reveals to whoever opens the totals: in "summed" rounds, the total size and the weighted sum of the cohort's
means nearest to each center; at the start, the number of means of all clients, and their weights and
weighted sums in public cells. In "gathered" rounds, every client's means and sizes; in
"slotted" rounds the same, but not whose they are (`privfed.questions.slots`), although their contents can
link rounds. A mean is computed from the rows assigned before the step, its size from those after it, so that
a mean of sufficient size may still be the mean of a single row, that is, the row itself. On the paper's data
with beta = 0.1 that held for one mean in forty-five. The means of a public step, with the client's number and
sum of rows, give the sizes before the step, as in a round of DWF k-means, and so single rows
(`privfed.attacks.Differencing`); besides, the range sum's totals (`privfed.questions.ranges`), and scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from scipy.optimize import linear_sum_assignment

from privfed.algorithms.outcome import ClusteringOutcome
from privfed.algorithms.restarts import best_of, geometry, locate_enough, restart_phases
from privfed.algorithms.starts.starts import MOST_START_SUMS, AnyInit, Starts, cells_start, start_phases
from privfed.algorithms.stopping import ending, stops
from privfed.core.asking.declaration import Declaration
from privfed.core.asking.phases import Cycle, Form, Phase, Phases, Same, Shape
from privfed.core.asking.question import ClientData, register
from privfed.core.roles.conversation import EVERYONE, Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges, frozen_array
from privfed.errors import ArgumentError, DataError
from privfed.numerics.distances import FEW_FEATURES
from privfed.numerics.kernels.interpreted import cell_sums
from privfed.numerics.weighted_kmeans import (
    MOST_DISTANCES,
    lloyd,
    many_distances,
    nearest,
    seeds,
    weighted_kmeans,
)
from privfed.questions.cells import cells_form
from privfed.questions.gathered import (
    PointCount,
    check_enough,
    count_points,
    gather_points,
    gathered_form,
    union,
)
from privfed.questions.inertia import Inertia
from privfed.questions.local_points import (
    LocalMeans,
    LocalPoints,
    PointCells,
    PointSums,
    WeightedPoints,
    summed_kmeans,
)
from privfed.questions.ranges import Located, range_phases

INNER_STEPS = 30
"""Most summed steps of one merge; usually one or two suffice."""

SERVER_STARTS = 10
"""Number of k-means++ starts of the gathered merge, as in the authors' runs."""

_REMEDY = "a smaller min_cluster_size, or clients with more rows"


def _stepped(rows: FloatArray, centers: FloatArray, min_cluster_size: int) -> LocalMeans:
    """Return the means of one k-means step and their sizes, without small ones (lines 14 to 17).

    Centers without rows are dropped first. Sizes count the rows nearest to the moved means, so that a mean
    can be computed from fewer rows than its size, or from more.
    """
    counts, sums = cell_sums(rows, nearest(rows, centers), len(centers))
    held = counts > 0
    means = sums[held] / counts[held][:, None]
    sizes = np.bincount(nearest(rows, means), minlength=len(means)).astype(np.float64)
    kept = sizes >= min_cluster_size
    return LocalMeans(means[kept], sizes[kept], counts[held][kept])


def _stepped_all(
    clients: Sequence[FloatArray], centers: FloatArray, min_cluster_size: int
) -> list[LocalMeans]:
    """Return the results of `_stepped` for each client, bit for bit, in one pass over all rows."""
    rows, k = np.concatenate(clients), len(centers)
    owner = np.repeat(np.arange(len(clients)), [len(own) for own in clients])
    counts, sums = cell_sums(rows, owner * k + nearest(rows, centers), len(clients) * k)
    # Dropped centers are infinitely far, so that they are nearest to no row.
    stepped, held = np.full(sums.shape, np.inf), counts > 0
    stepped[held] = sums[held] / counts[held][:, None]
    means = stepped.reshape(len(clients), k, -1)
    distances = np.zeros((k, len(rows)))
    for j, column in enumerate(rows.T):
        distances += np.square(means[:, :, j].T[:, owner] - column)
    sizes = np.bincount(owner * k + distances.argmin(axis=0), minlength=len(counts)).astype(np.float64)
    sizes, counts = sizes.reshape(len(clients), k), counts.reshape(len(clients), k)
    return [
        LocalMeans(own[kept], size[kept], count[kept])
        for own, size, count, kept in zip(means, sizes, counts, sizes >= min_cluster_size, strict=True)
    ]


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class SeededMeans(LocalPoints):
    """A client's means at the start: k-means++ among its rows and one step (Algorithm 1, line 4).

    Args:
        n_clusters: number of seeds of a client; a client with fewer rows takes one seed a row.
        min_cluster_size: means of fewer rows are dropped.
        seed: of the client's draws, below 2**32.
    """

    counts_rows: ClassVar[bool] = True
    n_clusters: int
    min_cluster_size: int
    seed: int

    @property
    def declaration(self) -> Declaration:
        """The number of clusters that each client looks for."""
        return Declaration(n_clusters=self.n_clusters)

    def __post_init__(self) -> None:
        if self.n_clusters < 1 or self.min_cluster_size < 1 or not 0 <= self.seed < 2**32:
            raise ArgumentError(
                "n_clusters and min_cluster_size must be at least 1, and seed in [0, 2**32), got "
                f"{self.n_clusters}, {self.min_cluster_size} and {self.seed}."
            )

    def make(self, client: ClientData) -> LocalMeans:
        """Draw k-means++ seeds among the client's rows, and do one step."""
        rows, rng = client.features, np.random.default_rng(self.seed)
        drawn = seeds(rows, np.ones(len(rows)), min(self.n_clusters, len(rows)), rng)
        return _stepped(rows, drawn[0], self.min_cluster_size)

    def heaviest(self, ranges: Ranges) -> float:
        """Return the rows of a client."""
        return float(ranges.rows)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class SteppedMeans(LocalPoints):
    """A client's means in a round: one step from the global means that have rows there (lines 13 to 17).

    Args:
        centers: global means, float64 of shape (n_clusters, n_features).
        min_cluster_size: means of fewer rows are dropped.
    """

    counts_rows: ClassVar[bool] = True
    centers: FloatArray
    min_cluster_size: int

    @property
    def declaration(self) -> Declaration:
        """The centers from which the client computes its own."""
        return Declaration(centers=(self.centers,))

    def __post_init__(self) -> None:
        if self.min_cluster_size < 1:
            raise ArgumentError(
                f"min_cluster_size must be at least 1, got min_cluster_size={self.min_cluster_size}."
            )
        if self.centers.ndim != 2 or 0 in self.centers.shape or not np.isfinite(self.centers).all():
            raise ArgumentError(f"centers must be a finite table, got shape {self.centers.shape}.")

    def make(self, client: ClientData) -> LocalMeans:
        """Assign rows, drop empty centers, do one step, and count rows again.

        Raises:
            ArgumentError: the centers have another number of columns than the rows.
        """
        if self.centers.shape[1] != client.n_features:
            raise ArgumentError(f"centers need {client.n_features} columns, got {self.centers.shape[1]}.")
        return _stepped(client.features, self.centers, self.min_cluster_size)

    def prepare(self, clients: Sequence[ClientData]) -> None:
        """Compute the points of several simulated clients in one pass, where that is faster."""
        few = len(clients) > 1 and self.centers.shape[1] == clients[0].n_features <= FEW_FEATURES
        if few and sum(client.n_rows for client in clients) * len(self.centers) <= MOST_DISTANCES:
            made = _stepped_all([one.features for one in clients], self.centers, self.min_cluster_size)
            for client, own in zip(clients, made, strict=True):
                client.cache[type(self)] = (self.key(), own)

    def heaviest(self, ranges: Ranges) -> float:
        """Return the rows of a client."""
        return float(ranges.rows)


@dataclass(frozen=True, kw_only=True)
class FederatedKMeans:
    """Algorithm 1 of Garst and Reinders.

    Args:
        n_clusters: number of clusters.
        min_cluster_size: a client drops means of fewer rows; p of section 2, where it is 2.
        merge: "summed", "gathered", or "slotted" (gathered, but unlinked to clients).
        tol: a run stops once the centers move by strictly less (Frobenius norm); 0 never.
        max_iter: most rounds after the start.
        min_iter: fewest rounds before `tol` may stop a run.
        patience: a run stops once none of the last `patience` movements is below the first of them; None
            never.
        n_init: number of restarts; the one with the lowest pooled inertia is kept.
        init: "k-means++" (the clients' own, merged), a start of `privfed.algorithms.starts.starts`, or
            centers of shape (n_clusters, n_features).
        sampled: whether a round asks the configuration's cohort, or everyone; the start asks everyone.
        seed: of the start's and the server's random choices.
        slots: for "slotted", the number of all clients, which `run` sets itself.
    """

    fixed: ClassVar[bool] = False

    n_clusters: int
    min_cluster_size: int = 2
    merge: Literal["summed", "gathered", "slotted"] = "summed"
    tol: float = 0.0
    max_iter: int = 10
    min_iter: int = 1
    patience: int | None = None
    n_init: int = 1
    init: AnyInit | Literal["k-means++"] = "k-means++"
    sampled: bool = False
    seed: int = 0
    slots: int = 0

    @property
    def max_sums(self) -> int:
        """Most sums: the ranges, the starts, the steps of each merge, the scores."""
        a_merge = INNER_STEPS if self.merge == "summed" else 1
        return 1 + self.n_init * (max(MOST_START_SUMS, 2 + a_merge) + a_merge * self.max_iter + 1)

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the ranges, then for each restart the start, the rounds and the score."""
        centers = Shape(self.n_clusters, setting.n_features)
        slots = len(setting.clients) if self.merge == "slotted" else 0
        stepped = Form(SteppedMeans, centers=centers, min_cluster_size=self.min_cluster_size)
        merge = Phase(gathered_form(stepped, most=self.n_clusters, slots=slots))
        if self.merge == "summed":
            points = Same("round points", stepped)
            merge = Phase(Form(PointSums, points=points, centers=centers), 1, INNER_STEPS)
        rounds = Cycle((merge,), 1, self.max_iter, ("round points",))

        score = Phase(Form(Inertia, centers=centers))

        def restart(number: int, rng: np.random.Generator) -> Phases:
            return (*self._start_phases(setting, slots, number, rng), rounds, score)

        return (*range_phases(setting), *restart_phases(self.n_init, self.seed, restart))

    def _start_phases(self, setting: Setting, slots: int, restart: int, rng: np.random.Generator) -> Phases:
        k = self.n_clusters
        if not (isinstance(self.init, str) and self.init == "k-means++"):
            return start_phases(self.init, setting, k, rng, restart)
        seed = int(rng.integers(2**32))
        means = Form(SeededMeans, n_clusters=k, min_cluster_size=self.min_cluster_size, seed=seed)
        points = Same("start points", means)
        if self.merge != "summed":
            return (Phase(gathered_form(points, most=k, slots=slots)),)
        count = Phase(Form(PointCount, points=points, most=k))
        cells = Phase(cells_form(PointCells, setting, k, rng, points=points))
        steps = Form(PointSums, points=points, centers=Shape(k, setting.n_features))
        return (count, cells, Phase(steps, 1, INNER_STEPS))

    def run(self, setting: Setting) -> Conversation[ClusteringOutcome]:
        """Find the ranges, then run each restart, and keep the best."""
        if self.merge == "slotted" and not self.slots:
            return (yield from replace(self, slots=len(setting.clients)).run(setting))
        rng = np.random.default_rng(self.seed)
        located = yield from locate_enough(setting, self.n_clusters, (EVERYONE, self._label(1)))
        init = self.init
        starts = (
            None
            if isinstance(init, str) and init == "k-means++"
            else Starts(init, located, self.n_clusters, rng, setting.start)
        )

        def restart(number: int) -> Conversation[ClusteringOutcome]:
            own = geometry(self.seed, number) if number else rng
            found = starts.next((self._label(1),), own) if starts else self._own_start(located, own)
            centers = yield from found
            return (yield from self._run(located, centers, rng))

        return (yield from best_of(self.n_init, restart))

    def _label(self, round_number: int) -> int:
        return round_number if self.sampled and round_number <= self.max_iter else EVERYONE

    def _own_start(self, located: Located, rng: np.random.Generator) -> Conversation[FloatArray]:
        """Merge the clients' own k-means++ means."""
        then = (self._label(1),)
        points = SeededMeans(
            n_clusters=self.n_clusters,
            min_cluster_size=self.min_cluster_size,
            seed=int(rng.integers(2**32)),
        )
        if self.merge != "summed":
            held = yield from self._gathered(points, located, EVERYONE, then, "start")
            check_enough(len(held.points), self.n_clusters, located.n_rows, _REMEDY)
            return weighted_kmeans(*held, self.n_clusters, rng, n_init=SERVER_STARTS).centers
        found = yield from count_points(
            points, located.ranges, most=self.n_clusters, cohort=EVERYONE, upcoming=(EVERYONE,)
        )
        check_enough(found, self.n_clusters, located.n_rows, _REMEDY)
        centers = yield from cells_start(points, located, self.n_clusters, rng, upcoming=(EVERYONE,))
        if centers is None:
            raise DataError("all cells are empty although clients hold means; fit again.")
        return (yield from self._summed(points, located, centers, EVERYONE, then, "start"))

    def _run(
        self, located: Located, centers: FloatArray, rng: np.random.Generator
    ) -> Conversation[ClusteringOutcome]:
        history, movements, converged = [frozen_array(centers)], list[float](), False
        for round_number in range(1, self.max_iter + 1):
            current = history[-1]
            merged = yield from self._round(located, current, round_number, rng)
            history.append(frozen_array(merged))
            movements.append(float(np.linalg.norm(merged - current)))
            converged = stops(movements, tol=self.tol, min_iter=self.min_iter, patience=self.patience)
            if converged:
                break
        question = Inertia(ranges=located.ranges, centers=history[-1])
        pooled = yield Ask(question, purpose="score")
        inertia, rows = float(pooled.statistics["inertia"][0]), round(float(pooled.statistics["rows"][0]))
        ended = ending(converged, self.tol)
        return ClusteringOutcome(history[-1], tuple(history), inertia, rows, ended, inertia)

    def _round(
        self, located: Located, centers: FloatArray, round_number: int, rng: np.random.Generator
    ) -> Conversation[FloatArray]:
        points = SteppedMeans(centers=centers, min_cluster_size=self.min_cluster_size)
        label, then = self._label(round_number), (self._label(round_number + 1),)
        if self.merge == "summed":
            return (yield from self._summed(points, located, centers, label, then, "round"))
        held = yield from self._gathered(points, located, label, then, "round")
        if len(held.points) < self.n_clusters:
            # A small cohort can hold fewer means than clusters; centers without means then stay.
            return lloyd(*held, centers[None]).centers if len(held.points) else centers
        merged = weighted_kmeans(*held, self.n_clusters, rng, n_init=SERVER_STARTS).centers
        return _in_order_of(centers, merged)

    def _gathered(
        self, points: LocalPoints, located: Located, label: int, then: tuple[int, ...], purpose: str
    ) -> Conversation[WeightedPoints]:
        held = yield from gather_points(
            points,
            located.ranges,
            most=self.n_clusters,
            cohort=label,
            upcoming=then,
            purpose=purpose,
            slots=self.slots,
        )
        return union(held)

    def _summed(
        self,
        points: LocalPoints,
        located: Located,
        centers: FloatArray,
        label: int,
        then: tuple[int, ...],
        purpose: str,
    ) -> Conversation[FloatArray]:
        return summed_kmeans(
            points,
            centers,
            located.ranges,
            max_iter=INNER_STEPS,
            tol=0.0,
            cohort=label,
            upcoming=then,
            purpose=purpose,
        )


def _in_order_of(before: FloatArray, centers: FloatArray) -> FloatArray:
    """Return centers in the order of the previous ones, matched one to one by least squared distance.

    k-means++ numbers clusters differently in each round, but movements must be those of the same cluster.
    """
    _, order = linear_sum_assignment(many_distances(centers, before[None])[0])
    return np.asarray(centers[order])
