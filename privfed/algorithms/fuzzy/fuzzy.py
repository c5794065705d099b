"""Federated fuzzy c-means over any secure sum, with k-means averaging or weighted averaging.

Stallmann and Wilbik: On a Framework for Federated Cluster Analysis, Appl. Sci. 12, 2022 (FedFCM),
section 2.2.1: clients run fuzzy c-means from the global centers; the server runs k-means, without
weights, on the union of all local centers. Here each step of that k-means is a sum
(`privfed.questions.local_points`). It starts from k-means++ on cells of the local centers in the first round,
and from the global centers in later ones, as in the authors' code. `averaging="weighted"` is Pedrycz 2022 and
Barcena et al. 2021: the mean of the local centers, weighted by sums of u^m. With one local step this is
centralised fuzzy c-means.

Cycles. With several local steps a run can end in a cycle, with either averaging (periods of 2 to 20
rounds were seen on the paper's own example); the authors' code then continues to its last round. Each round
depends on the centers only, so that a state which recurs once will recur forever. The run then stops, asks
for the fuzzy objective of each state of the cycle and keeps the best. The mean of these states would not be
the result of any round, and where a center alternates between two groups, it would lie in neither.

Reveals to whoever opens the totals. Weighted: each round's total weights and weighted sums of local
centers. K-means: in the first round the number and sum of all clients' local centers in public cells,
then of those nearest to each center; a cell, or a center, can hold a single local center of a client.
Local centers of a client with few distinct rows are close to those rows, so that a client with fewer distinct
rows than clusters contributes none. A row far from all others can almost determine a local center, and
k-means, which gives all local centers equal weight, can make that a global one. Both: the start's
totals (`privfed.algorithms.starts.starts`), the range sum's (`privfed.questions.ranges`), and each restart's
objective and score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from privfed.algorithms.fuzzy.fuzzy_sums import FuzzyCentroids, FuzzySums, WeightedFuzzyCentroids
from privfed.algorithms.outcome import ClusteringOutcome
from privfed.algorithms.restarts import best_of, geometry, locate_enough, restart_phases
from privfed.algorithms.starts.starts import MOST_START_SUMS, AnyInit, Starts, seeded, start_phases
from privfed.algorithms.stopping import ending
from privfed.core.asking.phases import Cycle, Form, Phase, Phases, Same, Shape
from privfed.core.asking.question import Question
from privfed.core.roles.conversation import EVERYONE, Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, frozen_array
from privfed.errors import DataError
from privfed.numerics.local_fuzzy import moved
from privfed.questions.cells import Layout, cell_layout, cells_form
from privfed.questions.fuzzy_spread import FuzzyObjective
from privfed.questions.local_points import PointCells, PointSums, summed_kmeans
from privfed.questions.ranges import Located, range_phases

SERVER_STEPS = 50
"""Most steps of the k-means over the clients' local centers in a round; more than ten are rare."""

LONGEST_CYCLE = 24
"""Longest cycle that is detected, in rounds."""

_RETURNED = 0.01
"""Centers have returned to an earlier state when their distance from it is below this share of `tol`."""

_SEED_GAP = 1e-6
"""Distance between seeds that start in the same cell, as a share of the ranges."""

_LEAST_WEIGHT = 2.0**-20
"""A center of less total weight stays, since on a masked sum's grid such a weight has lost its digits."""


@dataclass(frozen=True, slots=True)
class FuzzyOutcome(ClusteringOutcome):
    """The result of a fuzzy run; `score` is its fuzzy objective J_m (eq. 4), pooled over all rows.

    Args:
        cycled: whether the kept restart ended in a cycle; `history` then ends with the cycle's best state.
    """

    cycled: bool


@dataclass(frozen=True, kw_only=True)
class FuzzyCMeans:
    """Federated fuzzy c-means of Stallmann and Wilbik, and of Pedrycz and Barcena et al.

    Args:
        n_clusters: number of clusters.
        m: fuzzifier, above 1.
        averaging: "kmeans" (k-means over all local centers) or "weighted" (weighted means).
        weight: weights of weighted averaging, "u^m" or "u" (`WeightedFuzzyCentroids`).
        local_iter: most local steps of a client in a round.
        local_tol: a client stops once a step changes its memberships by less (Frobenius norm).
        tol: a run stops once the sum of its centers' movements (Euclidean norms) is strictly less.
        max_iter: most rounds.
        n_init: number of restarts; the one with the lowest fuzzy objective is kept.
        init: "coreset", "kfed", "random", or centers of shape (n_clusters, n_features).
        sampled: whether a round asks the configuration's cohort, or everyone.
        seed: of the random choices of the start and of the first k-means averaging.
    """

    fixed: ClassVar[bool] = False

    n_clusters: int
    m: float = 2.0
    averaging: Literal["kmeans", "weighted"] = "kmeans"
    weight: str = "u^m"
    local_iter: int = 1000
    local_tol: float | None = 1e-3
    tol: float = 1e-3
    max_iter: int = 100
    n_init: int = 1
    init: AnyInit = "coreset"
    sampled: bool = False
    seed: int = 0

    @property
    def max_sums(self) -> int:
        """Most sums: the ranges, and for each restart the start, the rounds and the scores."""
        rounds = self.max_iter if self.averaging == "weighted" else 1 + SERVER_STEPS * self.max_iter
        return 1 + self.n_init * (MOST_START_SUMS + rounds + LONGEST_CYCLE)

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the ranges, then for each restart the start, the rounds and the scores."""
        k, d = self.n_clusters, setting.n_features
        centers = Shape(k, d)
        scores = Phase(Form(FuzzyObjective, centers=centers, m=self.m), 1, LONGEST_CYCLE)

        def restart(number: int, rng: np.random.Generator) -> Phases:
            start = start_phases(self.init, setting, k, rng, number)
            return (*start, *self._round_phases(setting, centers, self._cells_of(number)), scores)

        return (*range_phases(setting), *restart_phases(self.n_init, self.seed, restart))

    def _cells_of(self, restart: int) -> np.random.Generator:
        """Return the generator of the cells of a restart's first averaging, which totals do not move."""
        return np.random.default_rng((self.seed, restart, 1))

    def _round_phases(self, setting: Setting, centers: Shape, rng: np.random.Generator) -> Phases:
        local = {"m": self.m, "local_iter": self.local_iter, "local_tol": self.local_tol}
        if self.averaging == "kmeans":
            points = Same("round points", Form(FuzzyCentroids, centers=centers, **local))
            seeds = cells_form(PointCells, setting, self.n_clusters, rng, points=points)
            steps = Phase(Form(PointSums, points=points, centers=centers), 1, SERVER_STEPS)
            # The first round has the points of the seeds; points of later ones start from other centers.
            return (Phase(seeds), steps, Cycle((steps,), 0, self.max_iter - 1, ("round points",)))
        form = Form(FuzzySums, centers=centers, m=self.m)
        if self._several_steps:
            form = Form(WeightedFuzzyCentroids, centers=centers, weight=self.weight, **local)
        return (Phase(form, 1, self.max_iter),)

    @property
    def _several_steps(self) -> bool:
        """Whether a weighted round is more than the sums of one step."""
        return self.local_iter > 1 or self.weight == "u"

    def run(self, setting: Setting) -> Conversation[FuzzyOutcome]:
        """Find the ranges, then run each restart, and keep the best."""
        rng = np.random.default_rng(self.seed)
        located = yield from locate_enough(setting, self.n_clusters, (EVERYONE, self._label(1)))
        # K-means averaging begins with a sum over everyone's local centers.
        upcoming = (EVERYONE,) if self.averaging == "kmeans" else (self._label(1),)
        starts = Starts(self.init, located, self.n_clusters, rng, setting.start)

        def restart(number: int) -> Conversation[FuzzyOutcome]:
            own = geometry(self.seed, number) if number else rng
            centers = yield from starts.next(upcoming, own)
            return (yield from self._run(located, centers, number, rng))

        return (yield from best_of(self.n_init, restart))

    def _label(self, round_number: int) -> int:
        return round_number if self.sampled else EVERYONE

    def _run(
        self, located: Located, centers: FloatArray, restart: int, rng: np.random.Generator
    ) -> Conversation[FuzzyOutcome]:
        history, period, converged = [frozen_array(centers)], 0, False
        layout = cell_layout(located, self.n_clusters, self._cells_of(restart))
        for round_number in range(1, self.max_iter + 1):
            if self.averaging == "weighted":
                found = yield from self._weighted_round(located, history[-1], round_number)
            else:
                found = yield from self._kmeans_round(located, history[-1], round_number, layout, rng)
            history.append(frozen_array(found))
            converged = movement(history[-1], history[-2]) < self.tol
            period = 0 if converged or self.sampled else _period(history, _RETURNED * self.tol)
            if converged or period:
                break
        return (yield from self._scored(located, history, converged, max(period, 1)))

    def _weighted_round(
        self, located: Located, centers: FloatArray, round_number: int
    ) -> Conversation[FloatArray]:
        label, then = self._label(round_number), self._label(round_number + 1)
        ranges = located.ranges
        question: Question = FuzzySums(ranges=ranges, centers=centers, m=self.m)
        if self._several_steps:
            question = WeightedFuzzyCentroids(
                ranges=ranges,
                centers=centers,
                m=self.m,
                local_iter=self.local_iter,
                local_tol=self.local_tol,
                weight=self.weight,
            )
        total = (yield Ask(question, label, (then,))).statistics
        means = moved(centers, total["weight"], total["weighted"], _LEAST_WEIGHT)
        # Means lie in this box, unless the grid rounds small weights.
        return np.clip(means, np.minimum(ranges.low, centers), np.maximum(ranges.high, centers))

    def _kmeans_round(
        self,
        located: Located,
        centers: FloatArray,
        round_number: int,
        layout: Layout,
        rng: np.random.Generator,
    ) -> Conversation[FloatArray]:
        """Return the k-means centers of the cohort's local centers (section 2.2.1, averaging function)."""
        label, then = self._label(round_number), self._label(round_number + 1)
        points = FuzzyCentroids(
            centers=centers, m=self.m, local_iter=self.local_iter, local_tol=self.local_tol
        )
        seeds = centers
        if round_number == 1:
            seeds = yield from _seeds(points, located, self.n_clusters, layout, rng, label)
        words = {"max_iter": SERVER_STEPS, "tol": 0.0, "cohort": label, "upcoming": (then,)}
        return (yield from summed_kmeans(points, seeds, located.ranges, **words))  # type: ignore[arg-type]

    def _scored(
        self, located: Located, history: list[FloatArray], converged: bool, n_states: int
    ) -> Conversation[FuzzyOutcome]:
        """Find the objectives of the last `n_states` states, and end the history with the best."""
        found = []
        for length in range(len(history), len(history) - n_states, -1):
            question = FuzzyObjective(ranges=located.ranges, centers=history[length - 1], m=self.m)
            total = (yield Ask(question, purpose="score")).statistics
            found.append((float(total["objective"][0]), length, float(total["inertia"][0])))
        objective, length, inertia = min(found)
        rows = round(float(total["rows"][0]))
        kept = tuple(history[:length])
        ended = ending(converged, self.tol)
        return FuzzyOutcome(kept[-1], kept, inertia, rows, ended, objective, n_states > 1)


def _seeds(
    points: FuzzyCentroids,
    located: Located,
    n_clusters: int,
    layout: Layout,
    rng: np.random.Generator,
    then: int,
) -> Conversation[FloatArray]:
    """Seed the first k-means over local centers, by k-means++ on the means of their public cells.

    Raises:
        DataError: no client has as many distinct rows as there are clusters.
    """
    question = PointCells(ranges=located.ranges, points=points, **layout._asdict())
    total = (yield Ask(question, upcoming=(then,), purpose="start")).statistics
    held = total["count"] > 0.5
    if not held.any():
        raise DataError(
            f'averaging="kmeans" found nothing: no client has {n_clusters} distinct rows; '
            'use averaging="weighted".'
        )
    count = total["count"][held]
    means = total["sum"][held] / count[:, None]
    if len(means) >= n_clusters:
        return seeded(means, count, n_clusters, located.ranges, 20, rng)
    # There are fewer cells than clusters, since local centers are closer to each other than a cell's width.
    # So several seeds start in the same cell, the fullest first, slightly apart, and the next step of k-means
    # divides its centers.
    shared = np.ones(len(means), dtype=np.intp)
    for _ in range(n_clusters - len(means)):
        shared[np.argmax(count / shared)] += 1
    gaps = _SEED_GAP * located.ranges.width * rng.standard_normal((n_clusters, means.shape[1]))
    return located.ranges.clip(np.repeat(means, shared, axis=0) + gaps)


def movement(centers: FloatArray, before: FloatArray) -> float:
    """Return the sum of the centers' movements (Euclidean norms), by which the paper decides convergence."""
    return float(np.linalg.norm(centers - before, axis=1).sum())


def _period(history: list[FloatArray], near: float) -> int:
    """Return the number of rounds since the last centers were reached before; 0 if they were not."""
    for period in range(2, min(LONGEST_CYCLE, len(history) - 1) + 1):
        if movement(history[-1], history[-1 - period]) < near:
            return period
    return 0
