"""Weighted federated k-means: WF, DWF and EWF k-means over any secure sum.

Holzer, Jacob, Kavane: Dynamically Weighted Federated k-Means, 2023, Algorithm 1. Where the paper's
Algorithm 3, line 8, divides by a total weight of zero, equation 4 is followed.

Reveals to whoever opens the totals: in each round the cohort's total weight and weighted sum of each
centroid; for centroids of zero total weight the sum of the cohort's local centroids; the start's
totals (`privfed.algorithms.starts`), the range sum's (`privfed.questions.ranges`), and each restart's
score. Totals of repeated rounds can isolate single rows; only differential privacy bounds that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import numpy as np

from privfed.algorithms.rounds import ClusteringOutcome, Moved, RoundsAlgorithm, State
from privfed.algorithms.starts import MOST_START_SUMS
from privfed.algorithms.weightings import all_weights, is_known, known_weightings
from privfed.core.asking.data import stacked
from privfed.core.asking.declaration import STEP, Declaration, Effort
from privfed.core.asking.phases import Cycle, Form, Phase, Phases, Same, Shape
from privfed.core.asking.question import AdditiveOver, ClientData, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.conversation import SCORE, Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.numerics.kmeans import LocalUpdates, local_updates
from privfed.numerics.memberships import check_local, moved
from privfed.questions.lloyd import RESOLUTION, AtCenters, ClientScores, LloydSums, box_entry, least_rows
from privfed.questions.ranges import Located


@dataclass(frozen=True, kw_only=True)
class WeightedKMeans(RoundsAlgorithm):
    """Algorithm 1 of Holzer et al.

    Args:
        weights: name of a registered weighting; "dynamic" is DWF, "equal" is EWF.
        local_iter: most k-means steps of a client in a round.
        local_tol: a client stops once its centroids move by less (Frobenius norm); None never.
        learning_rate: step towards the aggregated centroids, in (0, 1] (eq. 6).
        momentum: share of the last movement that is added, in [0, 1) (eq. 6).
        score: "pooled" (all rows have equal weight) or "client-mean" (all clients do, Algorithm 4).
        relocate_empty: move local centroids without rows onto far rows (Figure 1 warns of it).
        finish: "lloyd" goes on with exact rounds of Lloyd's algorithm over all clients, by the same rules.
    """

    finish: Literal["lloyd"] | None = None
    weights: str = "dynamic"
    local_iter: int = 5
    local_tol: float | None = None
    learning_rate: float = 1.0
    momentum: float = 0.0
    score: Literal["pooled", "client-mean"] = "pooled"
    relocate_empty: bool = False

    @property
    def max_sums(self) -> int:
        """Most sums: the ranges, the starts, two a round (the second for zero weights), the scores."""
        return 2 + self.n_init * (MOST_START_SUMS + (2 + bool(self.finish)) * self.max_iter + 2)

    def score_phases(self, setting: Setting) -> Phases:
        """Return the question for the inertia, then that for the clients' scores where these are compared."""
        clients = Form(ClientScores, centers=Shape(self.n_clusters, setting.n_features))
        return (*super().score_phases(setting), *([Phase(clients)] if self.score == "client-mean" else []))

    def round_phases(self, setting: Setting, number: int) -> Phases:
        """Return the questions of the rounds, each with a second one for centroids of zero weight."""
        centers = Shape(self.n_clusters, setting.n_features)
        exact = Phase(Form(LloydSums, centers=centers), 1, self.max_iter)
        if self._one_step:
            return (exact,)
        steps = {"centers": Same("round centers", centers), **self._local}
        weighted = Form(WeightedCentroids, weights=self.weights, **steps)
        zero = Form(FallbackCentroids, clusters=Shape((1, self.n_clusters)), **steps)
        return (
            Cycle((Phase(weighted), Phase(zero, 0)), 1, self.max_iter, ("round centers",)),
            *((exact,) if self.finish else ()),
        )

    def directions(self, n_features: int) -> FloatArray | None:
        """Return None where the last rounds are exact: they come to rest at the means of the rows."""
        return None if self._one_step or self.finish else super().directions(n_features)

    @property
    def step(self) -> float:
        """The learning rate."""
        return self.learning_rate

    @property
    def _local(self) -> dict[str, Any]:
        """Return the options of the clients' own steps."""
        return {name: getattr(self, name) for name in ("local_iter", "local_tol", "relocate_empty")}

    @property
    def _one_step(self) -> bool:
        """Whether a round is a step of Lloyd's algorithm on all rows."""
        return self.weights == "dynamic" and self.local_iter == 1 and not self.relocate_empty

    def one_round(self, located: Located, history: Sequence[State]) -> Conversation[Moved]:
        """Move the centroids towards the weighted mean of the cohort's local ones."""
        previous, current = (one["centers"] for one in (history[0], *history)[-2:])
        aggregated = yield from self._aggregated(located, current, len(history))
        # Equation 6; the movement before the start is zero.
        after = self.learning_rate * aggregated + (1.0 - self.learning_rate) * current
        return after + self.momentum * (current - previous)

    def _aggregated(self, located: Located, centers: FloatArray, number: int) -> Conversation[FloatArray]:
        """Return equation 5: the weighted mean of the cohort's local centroids in round `number`."""
        label, then = self.cohort(number), self.cohort(number + 1)
        if self._one_step:
            total = yield Ask(LloydSums(ranges=located.ranges, centers=centers), label, (then,))
            # After one step, local centroids without rows equal the received one, and so does their mean.
            return moved(centers, total.statistics["count"], total.statistics["sum"], least_rows(total))
        steps = {"ranges": located.ranges, "centers": centers, **self._local}
        upcoming = (then, label) if then != label else (then,)
        total = yield Ask(WeightedCentroids(weights=self.weights, **steps), label, upcoming)
        weight, weighted = total.statistics["weight"], total.statistics["weighted"]
        whole = self.weights in ("dynamic", "equal")
        least = least_rows(total) if whole else 0.0
        zero, fallback = np.flatnonzero(weight <= least), centers.copy()
        if zero.size:
            question = FallbackCentroids(clusters=zero.astype(np.float64), **steps)
            second = yield Ask(question, label, (then,), purpose="fallback")
            fallback[zero] = second.statistics["centroid"] / second.statistics["clients"][0]
        means = moved(fallback, weight, weighted, least)
        if whole:
            return means
        # Any weight counts here. Means lie in the box of rows and centers, unless the grid rounds small
        # weights, or somebody makes up smaller ones.
        low, high = np.minimum(located.ranges.low, centers), np.maximum(located.ranges.high, centers)
        return np.clip(means, low - _BEYOND * (high - low), high + _BEYOND * (high - low))

    def scored(
        self, located: Located, history: tuple[State, ...], stopped: str
    ) -> Conversation[ClusteringOutcome]:
        """Finish, then ask for the pooled inertia, and for the clients' mean score if restarts go by it."""
        n = len(history)
        if self.finish and not self._one_step:
            exact = replace(
                self,
                weights="dynamic",
                local_iter=1,
                learning_rate=1.0,
                momentum=0.0,
                relocate_empty=False,
                sampled=False,
            )
            more, stopped = yield from exact.moved(located, history[-1], partial(exact.one_round, located))
            history = (*history, *more[1:])
        outcome = yield from super().scored(located, history, stopped)
        outcome = replace(outcome, finish=len(history) - n)
        if self.score == "pooled":
            return outcome
        mean = yield Ask(ClientScores(ranges=located.ranges, centers=history[-1]["centers"]), purpose=SCORE)
        return replace(outcome, score=float(mean.statistics["score"][0] / mean.statistics["clients"][0]))


_BEYOND = 2.0**-10
"""Most that a weighted mean may lie beyond its box, in widths of the box; rounding takes none there."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _LocalSteps(AtCenters):
    """Questions that begin with local k-means steps from the global centroids.

    Args:
        local_iter: most local steps.
        local_tol: a client stops once its centroids move by less (Frobenius norm); None never.
        relocate_empty: move local centroids without rows onto far rows.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    local_iter: int
    local_tol: float | None = None
    relocate_empty: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_local(self.local_iter, self.local_tol)

    def effort(self, n_features: int) -> Effort:
        """Every local step assigns all rows, and each is a step of Python."""
        return Effort(turns=self.local_iter, work=self.local_iter * STEP)

    def updates(self, clients: Sequence[ClientData]) -> LocalUpdates:
        """Return the clients' local updates."""
        return local_updates(
            stacked(clients),
            self.centers,
            local_iter=self.local_iter,
            local_tol=self.local_tol,
            relocate_empty=self.relocate_empty,
        )

    def _centroid_bounds(self, clusters: slice | FloatArray = slice(None)) -> tuple[FloatArray, FloatArray]:
        # A local centroid is a mean of rows, or the received centroid where it has none.
        centers = self.centers[clusters if isinstance(clusters, slice) else clusters.astype(np.intp)]
        return np.minimum(self.ranges.low, centers), np.maximum(self.ranges.high, centers)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedCentroids(_LocalSteps):
    """Ask for weights and weighted local centroids: the two sums of equation 4.

    Statistics: `weight` (n_clusters,), `weighted` (n_clusters, n_features) = weight * local centroid.

    Args:
        weights: name of a registered weighting. Its values must lie in [0, rows of a client]; others are
            clipped, and counted as clipped like all values outside their ranges.
    """

    weights: str = "dynamic"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_known(self.weights):
            raise ArgumentError(f"weights={self.weights!r} is not registered; known: {known_weightings()}.")

    @property
    def declaration(self) -> Declaration:
        """Dynamic weights count rows, other weights do not; a user's weighting may fail."""
        counts = ("weight",) if self.weights == "dynamic" else ()
        return Declaration(
            counts, (self.centers,), can_fail=self.weights not in ("dynamic", "equal"), row_sums=counts
        )

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Weights of at most a client's rows (1 for "equal"); centroids in the ranges, times the weight."""
        largest = 1.0 if self.weights == "equal" else float(self.ranges.rows)
        low, high = self._centroid_bounds()
        return StatisticsSpec(
            Entry("weight", (len(self.centers),), 0.0, largest, RESOLUTION),
            box_entry("weighted", self.centers.shape, low, high, largest, "weight"),
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> Sequence[Statistics]:
        """Answer for several clients in one pass."""
        updates = self.updates(clients)
        weight = all_weights(self.weights, updates)
        return self.spec.tabled(weight=weight, weighted=weight[:, :, None] * updates.centers)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class FallbackCentroids(_LocalSteps):
    """Ask for the unweighted mean of local centroids: equation 4 where a total weight is zero.

    Statistics: `centroid` (n_asked, n_features), the local centroids; `clients` (1,).

    Args:
        clusters: indices of the clusters whose total weight is zero, float64 of shape (n_asked,).
    """

    clusters: FloatArray

    def __post_init__(self) -> None:
        super().__post_init__()
        known = set(range(len(self.centers)))
        if self.clusters.ndim != 1 or not self.clusters.size or not set(self.clusters.tolist()) <= known:
            raise ArgumentError(f"clusters must be indices below {len(self.centers)}.")

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Centroids in the box around the ranges and the received centroids; one client."""
        low, high = self._centroid_bounds(self.clusters)
        return StatisticsSpec(
            box_entry("centroid", low.shape, low, high),
            Entry("clients", (1,), 0.0, 1.0, RESOLUTION),
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> Sequence[Statistics]:
        """Answer for several clients in one pass."""
        asked = self.updates(clients).centers[:, self.clusters.astype(np.intp)]
        return self.spec.tabled(centroid=asked, clients=np.ones((len(asked), 1)))
