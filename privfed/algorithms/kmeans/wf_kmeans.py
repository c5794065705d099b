"""Weighted federated k-means: WF, DWF and EWF k-means over any secure sum.

Holzer, Jacob, Kavane: Dynamically Weighted Federated k-Means, 2023, Algorithm 1. Where the paper's
Algorithm 3, line 8, divides by a total weight of zero, equation 4 is followed.

Reveals to whoever opens the totals: in each round the cohort's total weight and weighted sum of each
centroid; for centroids of zero total weight the sum of the cohort's local centroids; the start's
totals (`privfed.algorithms.starts.starts`), the range sum's (`privfed.questions.ranges`), and each restart's
score. Totals of repeated rounds can isolate single rows; only differential privacy bounds that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from privfed.algorithms.kmeans.weighted import FallbackCentroids, WeightedCentroids
from privfed.algorithms.outcome import ClusteringOutcome
from privfed.algorithms.restarts import best_of, geometry, locate_enough, restart_phases
from privfed.algorithms.starts.starts import MOST_START_SUMS, AnyInit, Starts, start_phases
from privfed.algorithms.stopping import ending
from privfed.core.asking.phases import Cycle, Form, Phase, Phases, Same, Shape
from privfed.core.roles.conversation import EVERYONE, Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, frozen_array
from privfed.questions.inertia import ClientScores, Inertia
from privfed.questions.lloyd import LloydSums
from privfed.questions.ranges import Located, range_phases


@dataclass(frozen=True, kw_only=True)
class WeightedKMeans:
    """Algorithm 1 of Holzer et al.

    Args:
        n_clusters: number of clusters.
        weights: name of a registered weighting; "dynamic" is DWF, "equal" is EWF.
        local_iter: most k-means steps of a client in a round.
        local_tol: a client stops once its centroids move by less (Frobenius norm); None never.
        learning_rate: step towards the aggregated centroids, in (0, 1] (eq. 6).
        momentum: share of the last movement that is added, in [0, 1) (eq. 6).
        tol: a run stops once the centroids move by strictly less (Frobenius norm).
        max_iter: most rounds.
        min_iter: fewest rounds before `tol` may stop a run.
        patience: a run stops once none of the last `patience` movements is below the first of them; None
            never.
        n_init: number of restarts; the one with the lowest score is kept.
        init: "coreset", "kfed", "random", or centers of shape (n_clusters, n_features).
        sampled: whether a round asks the configuration's cohort, or everyone.
        score: "pooled" (all rows have equal weight) or "client-mean" (all clients do, Algorithm 4).
        relocate_empty: move local centroids without rows onto far rows (Figure 1 warns of it).
        seed: of the start's random choices.
    """

    fixed: ClassVar[bool] = False

    n_clusters: int
    weights: str = "dynamic"
    local_iter: int = 5
    local_tol: float | None = None
    learning_rate: float = 1.0
    momentum: float = 0.0
    tol: float = 1e-6
    max_iter: int = 300
    min_iter: int = 1
    patience: int | None = None
    n_init: int = 1
    init: AnyInit = "coreset"
    sampled: bool = False
    score: Literal["pooled", "client-mean"] = "pooled"
    relocate_empty: bool = False
    seed: int = 0

    @property
    def max_sums(self) -> int:
        """Most sums: the ranges, the starts, two a round (the second for zero weights), the scores."""
        return 1 + self.n_init * (MOST_START_SUMS + 2 * self.max_iter + 2)

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the ranges, then for each restart the start, the rounds and the score."""
        centers = Shape(self.n_clusters, setting.n_features)
        score = [Phase(Form(Inertia, centers=centers))]
        if self.score == "client-mean":
            score.append(Phase(Form(ClientScores, centers=centers)))

        def restart(number: int, rng: np.random.Generator) -> Phases:
            start = start_phases(self.init, setting, self.n_clusters, rng, number)
            return (*start, self._round_phases(centers), *score)

        return (*range_phases(setting), *restart_phases(self.n_init, self.seed, restart))

    def _round_phases(self, centers: Shape) -> Phase | Cycle:
        if self._one_step:
            return Phase(Form(LloydSums, centers=centers), 1, self.max_iter)
        steps = {
            "centers": Same("round centers", centers),
            "local_iter": self.local_iter,
            "local_tol": self.local_tol,
            "relocate_empty": self.relocate_empty,
        }
        weighted = Form(WeightedCentroids, weights=self.weights, **steps)
        zero = Form(FallbackCentroids, clusters=Shape((1, self.n_clusters)), **steps)
        return Cycle((Phase(weighted), Phase(zero, 0)), 1, self.max_iter, ("round centers",))

    @property
    def _one_step(self) -> bool:
        """Whether a round is a step of Lloyd's algorithm on all rows."""
        return self.weights == "dynamic" and self.local_iter == 1 and not self.relocate_empty

    def run(self, setting: Setting) -> Conversation[ClusteringOutcome]:
        """Find the ranges, then run each restart, and keep the best."""
        rng = np.random.default_rng(self.seed)
        located = yield from locate_enough(setting, self.n_clusters, (EVERYONE, self._label(1)))
        starts = Starts(self.init, located, self.n_clusters, rng, setting.start)

        def restart(number: int) -> Conversation[ClusteringOutcome]:
            own = geometry(self.seed, number) if number else rng
            centers = yield from starts.next((self._label(1),), own)
            return (yield from self._run(located, centers))

        return (yield from best_of(self.n_init, restart))

    def _label(self, round_number: int) -> int:
        return round_number if self.sampled else EVERYONE

    def _run(self, located: Located, centers: FloatArray) -> Conversation[ClusteringOutcome]:
        history = [frozen_array(centers)]
        previous, movements = history[0], list[float]()
        converged = False
        for round_number in range(1, self.max_iter + 1):
            current = history[-1]
            aggregated = yield from self._round(located, current, round_number)
            # Equation 6; the movement before the start is zero.
            moved = self.learning_rate * aggregated + (1.0 - self.learning_rate) * current
            history.append(frozen_array(moved + self.momentum * (current - previous)))
            previous = current
            movements.append(float(np.linalg.norm(history[-1] - current)))
            converged = self._stops(movements)
            if converged:
                break
        return (yield from self._score(located, tuple(history), ending(converged, self.tol)))

    def _stops(self, movements: list[float]) -> bool:
        if len(movements) >= self.min_iter and movements[-1] < self.tol:
            return True
        # As in the authors' code, movements count from round min_iter on, and ties stop.
        recent = movements[self.min_iter - 1 :][-(self.patience or 0) :]
        return self.patience is not None and len(recent) == self.patience and recent[0] <= min(recent)

    def _round(self, located: Located, centers: FloatArray, round_number: int) -> Conversation[FloatArray]:
        """Return equation 5: the weighted mean of the cohort's local centroids."""
        label, then = self._label(round_number), self._label(round_number + 1)
        if self._one_step:
            total = yield Ask(LloydSums(ranges=located.ranges, centers=centers), label, (then,))
            weight, weighted = total.statistics["count"], total.statistics["sum"]
            # After one step, local centroids without rows equal the received one, and so does their mean.
            return _divided(weighted, weight, lambda: centers)
        steps = {
            "ranges": located.ranges,
            "centers": centers,
            "local_iter": self.local_iter,
            "local_tol": self.local_tol,
            "relocate_empty": self.relocate_empty,
        }
        upcoming = (then, label) if then != label else (then,)
        total = yield Ask(WeightedCentroids(weights=self.weights, **steps), label, upcoming)  # type: ignore[arg-type]
        weight, weighted = total.statistics["weight"], total.statistics["weighted"]
        zero = np.flatnonzero(weight <= 0)
        fallback = centers.copy()
        if zero.size:
            question = FallbackCentroids(clusters=zero.astype(np.float64), **steps)  # type: ignore[arg-type]
            second = yield Ask(question, label, (then,), purpose="fallback")
            fallback[zero] = second.statistics["centroid"] / second.statistics["clients"][0]
        return _divided(weighted, weight, lambda: fallback)

    def _score(
        self, located: Located, history: tuple[FloatArray, ...], converged: bool | None
    ) -> Conversation[ClusteringOutcome]:
        centers = history[-1]
        pooled = yield Ask(Inertia(ranges=located.ranges, centers=centers), purpose="score")
        inertia, rows = float(pooled.statistics["inertia"][0]), round(float(pooled.statistics["rows"][0]))
        score = inertia / max(rows, 1)
        if self.score == "client-mean":
            mean = yield Ask(ClientScores(ranges=located.ranges, centers=centers), purpose="score")
            score = float(mean.statistics["score"][0] / mean.statistics["clients"][0])
        return ClusteringOutcome(centers, history, inertia, rows, converged, score)


def _divided(weighted: FloatArray, weight: FloatArray, otherwise: Callable[[], FloatArray]) -> FloatArray:
    held = weight > 0
    return np.where(held[:, None], weighted / np.where(held, weight, 1.0)[:, None], otherwise())
