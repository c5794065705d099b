"""Federated fuzzy c-means over any secure sum, with k-means averaging or weighted averaging.

Stallmann and Wilbik: On a Framework for Federated Cluster Analysis, Appl. Sci. 12, 2022 (FedFCM), section
2.2.1 and equations 5 and 6. Clients run fuzzy c-means from the global centers. The server runs k-means,
without weights, on the union of all local centers. Here each step of that k-means is a sum
(`privfed.questions.local_points`). It starts from k-means++ on cells of the local centers in the first round,
and from the global centers in later ones, as in the authors' code. `averaging="weighted"` is Pedrycz 2022 and
Barcena et al. 2021: the mean of the local centers, weighted by sums of u^m. With one local step this is
centralised fuzzy c-means.

Cycles. With several local steps a run can end in a cycle, with either averaging. Periods of 2 to 20 rounds
were seen on the paper's own example; the authors' code then continues to its last round. Each round depends
on the centers only, so that a state which recurs once will recur forever. The run then stops, asks for the
fuzzy objective of each state of the cycle and keeps the best. The mean of these states would be the result of
no round. Where a center alternates between two groups, it would lie in neither.

Reveals to whoever opens the totals. Weighted: each round's total weights and weighted sums of local centers.
K-means: in the first round the number and sum of all clients' local centers in public cells, then of those
nearest to each center. A cell, or a center, can hold a single local center of a client. Local centers of a
client with few distinct rows are close to those rows; a client with fewer distinct rows than clusters
contributes none. A row far from all others can almost determine a local center. K-means gives all local
centers equal weight, and can make that one a global one. Both: the start's totals
(`privfed.algorithms.starts`), the range sum's (`privfed.questions.ranges`), and each restart's objective and
score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from privfed.algorithms.rounds import ClusteringOutcome, Restart, Restarts, State, ending, in_rounds, stops
from privfed.algorithms.starts import MOST_START_SUMS, PointsFrom, asked_cells, seeded
from privfed.core.asking.declaration import STEP, Effort
from privfed.core.asking.phases import Cycle, Form, Phase, Phases, Same, Shape
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.conversation import EVERYONE, Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges
from privfed.core.values.numbers import check_word
from privfed.errors import DataError
from privfed.numerics.memberships import (
    LEAST_POWERS,
    Stack,
    blocks,
    check_fuzzifier,
    check_local,
    local_fits,
    moved,
)
from privfed.questions.cells import cells_form
from privfed.questions.fuzzy_spread import FuzzyObjective, FuzzyQuestion
from privfed.questions.lloyd import RESOLUTION, SLACK, box_entry, sums_entry
from privfed.questions.local_points import (
    PointCells,
    PointSums,
    WeightedPoints,
    has_distinct,
    no_points,
    summed_kmeans,
)
from privfed.questions.ranges import Located

SERVER_STEPS = 50
"""Most steps of the k-means over the clients' local centers in a round; more than ten are rare."""

_SEED_GAP = 1e-6
"""Distance between seeds that start in the same cell, as a share of the ranges."""

_LEAST_WEIGHT = 2.0**-20
"""A center of less total weight stays, since on a masked sum's grid such a weight has lost its digits."""


@dataclass(frozen=True, kw_only=True)
class FuzzyCMeans(Restarts):
    """Federated fuzzy c-means of Stallmann and Wilbik, and of Pedrycz and Barcena et al.

    Args:
        m: fuzzifier, above 1.
        averaging: "kmeans" (k-means over all local centers) or "weighted" (weighted means).
        weight: weights of weighted averaging, "u^m" or "u" (`WeightedFuzzyCentroids`).
        local_iter: most local steps of a client in a round.
        local_tol: a client stops once a step changes its memberships by less (Frobenius norm).
        tol: a run stops once the sum of its centers' movements (Euclidean norms) is strictly less.
    """

    m: float = 2.0
    averaging: Literal["kmeans", "weighted"] = "kmeans"
    weight: str = "u^m"
    local_iter: int = 1000
    local_tol: float | None = 1e-3
    tol: float | None = 1e-3
    max_iter: int = 100

    @property
    def max_sums(self) -> int:
        """Most sums: the ranges, and for each restart the start, the rounds and the scores."""
        rounds = self.max_iter if self.averaging == "weighted" else 1 + SERVER_STEPS * self.max_iter
        return 2 + self.n_init * (MOST_START_SUMS + rounds + LONGEST_CYCLE)

    def score_phases(self, setting: Setting) -> Phases:
        """Return the questions for the objectives: one, or one for each state of a cycle."""
        return (
            Phase(
                Form(FuzzyObjective, centers=Shape(self.n_clusters, setting.n_features), m=self.m),
                1,
                LONGEST_CYCLE,
            ),
        )

    def round_phases(self, setting: Setting, number: int) -> Phases:
        """Return the questions of the rounds."""
        # Totals do not move the cells of a restart's first averaging.
        centers, rng = (
            Shape(self.n_clusters, setting.n_features),
            np.random.default_rng((self.seed, number, 1)),
        )
        if self.averaging == "kmeans":
            points = Same("round points", Form(FuzzyCentroids, centers=centers, **self._local))
            seeds = cells_form(PointCells, setting, self.n_clusters, rng, points=points)
            steps = Phase(Form(PointSums, points=points, centers=centers), 1, SERVER_STEPS)
            # The first round has the points of the seeds; points of later ones start from other centers.
            return (Phase(seeds), steps, Cycle((steps,), 0, self.max_iter - 1, ("round points",)))
        form = Form(FuzzySums, centers=centers, m=self.m)
        if self._several_steps:
            form = Form(WeightedFuzzyCentroids, centers=centers, weight=self.weight, **self._local)
        return (Phase(form, 1, self.max_iter),)

    @property
    def _local(self) -> dict[str, Any]:
        """Return the options of the clients' own steps."""
        return {"m": self.m, "local_iter": self.local_iter, "local_tol": self.local_tol}

    @property
    def _several_steps(self) -> bool:
        """Whether a weighted round is more than the sums of one step."""
        return self.local_iter > 1 or self.weight == "u"

    def restart(self, begun: Restart) -> Conversation[ClusteringOutcome]:
        """Find the start, do the rounds, and ask for the objective; a cycle ends with its best state.

        The score is the fuzzy objective J_m (eq. 4), pooled over all rows.
        """
        # K-means averaging begins with a sum over everyone's local centers.
        centers = yield from begun.starts.next(
            (EVERYONE,) if self.averaging == "kmeans" else (self.cohort(1),), begun.geometry
        )
        one_round = self._weighted_round if self.averaging == "weighted" else self._kmeans_round
        history, stopped = yield from in_rounds(
            centers,
            lambda past: one_round(begun, past[-1]["centers"], len(past)),
            declared=self.state(begun.setting.n_features),
            max_iter=self.max_iter,
            rule=self._rule,
            moved=movement,
        )
        return (yield from self._best(begun.located, history, stopped))

    def _rule(self, movements: Sequence[float], history: Sequence[State]) -> str:
        """Return what stops a run: the rules of all algorithms, or a cycle of states."""
        return stops(movements, tol=self.tol, quiet=self.quiet) or (
            "cycle" if not self.sampled and _period(history, self.tol) else ""
        )

    def _weighted_round(self, begun: Restart, centers: FloatArray, number: int) -> Conversation[FloatArray]:
        label, then, ranges = self.cohort(number), self.cohort(number + 1), begun.located.ranges
        question: Question = FuzzySums(ranges=ranges, centers=centers, m=self.m)
        if self._several_steps:
            options = {"weight": self.weight, **self._local}
            question = WeightedFuzzyCentroids(ranges=ranges, centers=centers, **options)
        total = (yield Ask(question, label, (then,))).statistics
        means = moved(centers, total["weight"], total["weighted"], _LEAST_WEIGHT)
        # Means lie in this box, unless the grid rounds small weights.
        return np.clip(means, np.minimum(ranges.low, centers), np.maximum(ranges.high, centers))

    def _kmeans_round(self, begun: Restart, centers: FloatArray, number: int) -> Conversation[FloatArray]:
        """Return the k-means centers of the cohort's local centers (section 2.2.1, averaging function)."""
        label, then = self.cohort(number), self.cohort(number + 1)
        points = FuzzyCentroids(centers=centers, **self._local)
        seeds = (yield from self._seeds(points, begun, label)) if number == 1 else centers
        options = {"max_iter": SERVER_STEPS, "tol": 0.0, "cohort": label, "upcoming": (then,)}
        return (yield from summed_kmeans(points, seeds, begun.located.ranges, **options))  # type: ignore[arg-type]

    def _seeds(self, points: FuzzyCentroids, begun: Restart, then: int) -> Conversation[FloatArray]:
        """Seed the first k-means over local centers, by k-means++ on the means of their public cells.

        Raises:
            DataError: no client has as many distinct rows as there are clusters.
        """
        located, n_clusters, rng = begun.located, self.n_clusters, begun.rng
        cells = np.random.default_rng((self.seed, begun.number, 1))
        means, count = yield from asked_cells(points, located, n_clusters, cells, upcoming=(then,))
        if not len(means):
            raise DataError(
                f'averaging="kmeans" found nothing: no client has {n_clusters} distinct rows; '
                'use averaging="weighted".'
            )
        if len(means) >= n_clusters:
            return seeded(means, count, n_clusters, located.ranges, 20, rng)
        # Cells are fewer than clusters, as local centers are close. So several seeds start in one cell, the
        # fullest first, slightly apart; the next step of k-means divides its centers.
        shared = np.ones(len(means), dtype=np.intp)
        for _ in range(n_clusters - len(means)):
            shared[np.argmax(count / shared)] += 1
        gaps = _SEED_GAP * located.ranges.width * rng.standard_normal((n_clusters, means.shape[1]))
        return located.ranges.clip(np.repeat(means, shared, axis=0) + gaps)

    def _best(
        self, located: Located, history: tuple[State, ...], stopped: str
    ) -> Conversation[ClusteringOutcome]:
        """Find the objective of the last state, or of each state of a cycle, and end with the best."""
        n_states = _period(history, self.tol) if stopped == "cycle" else 1
        found = []
        for length in range(len(history), len(history) - n_states, -1):
            question = FuzzyObjective(ranges=located.ranges, centers=history[length - 1]["centers"], m=self.m)
            total = (yield Ask(question, purpose="score")).statistics
            found.append((float(total["objective"][0]), length, float(total["inertia"][0])))
        objective, length, inertia = min(found)
        rows, kept = round(float(total["rows"][0])), history[:length]
        return ClusteringOutcome(kept, inertia, rows, ending(stopped, self.tol), objective, stopped)


LONGEST_CYCLE = 24
"""Longest cycle that is detected, in rounds."""

RETURNED = 0.01
"""Centers have returned to an earlier state when their distance from it is below this share of `tol`."""


def movement(after: State, before: State) -> float:
    """Return the sum of the centers' movements (Euclidean norms), by which the paper decides convergence."""
    return float(np.linalg.norm(after["centers"] - before["centers"], axis=1).sum())


def _period(history: Sequence[State], tol: float | None) -> int:
    """Return the number of rounds since the last centers were reached before; 0 if they were not."""
    near = RETURNED * (tol or 0.0)
    for period in range(2, min(LONGEST_CYCLE, len(history) - 1) + 1):
        if movement(history[-1], history[-1 - period]) < near:
            return period
    return 0


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class FuzzyCentroids(PointsFrom):
    """A client's own fuzzy c-means centers, each of weight 1.

    A center in which no row has a membership (all rows lie exactly on other centers) is left out. A client
    with fewer distinct rows than clusters has no centers, since they would be its rows.

    Args:
        centers: global centers from which the client starts, float64 of shape (n_clusters, n_features).
        m: fuzzifier, above 1.
        local_iter: most local steps.
        local_tol: a client stops once a step changes its memberships by less (Frobenius norm); None never.
    """

    m: float
    local_iter: int
    local_tol: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fuzzifier(self.m)
        check_local(self.local_iter, self.local_tol)

    def effort(self, n_features: int) -> Effort:
        """Every local step compares all rows with all centers."""
        return Effort(turns=self.local_iter, work=self.local_iter * STEP)

    def make(self, client: ClientData) -> WeightedPoints:
        """Run fuzzy c-means on the client's rows."""
        rows = client.features
        if not has_distinct(rows, len(self.centers)):
            return no_points(client.n_features)
        (fit,) = local_fits(
            [rows], self.centers, m=self.m, local_iter=self.local_iter, local_tol=self.local_tol
        )
        # Means lie within the rows' bounding box, up to rounding.
        points = np.clip(fit.centers[fit.powers > LEAST_POWERS], rows.min(axis=0), rows.max(axis=0))
        return WeightedPoints(points, np.ones(len(points)))

    def heaviest(self, ranges: Ranges) -> float:
        """Return the number of clusters."""
        return float(len(self.centers))


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class FuzzySums(FuzzyQuestion):
    """Ask for one step of fuzzy c-means: the sums of equation 6.

    Statistics: `weight` (n_clusters,) = sum of u^m, `weighted` (n_clusters, n_features) = sum of u^m x.

    Args:
        m: fuzzifier, above 1.
    """

    row_counts: ClassVar[tuple[str, ...]] = ("weight",)  # A row has at most 1 of u^m in all.

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Weights of at most the rows of a client; sums of at most that many rows in the ranges."""
        k = len(self.centers)
        weight = Entry("weight", (k,), 0.0, self.ranges.rows * SLACK, RESOLUTION)
        return StatisticsSpec(weight, sums_entry("weighted", k, self.ranges, "weight"))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients in one pass."""
        found, k = list[Statistics](), len(self.centers)
        for piece in blocks([client.features for client in clients], k):
            stack = Stack.of(piece, k, self.m)
            sums = stack.sums(stack.memberships(np.repeat(self.centers[None], len(stack.clients), axis=0)))
            found += [Statistics(weight=own, weighted=total) for own, total in zip(*sums, strict=True)]
        return found


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedFuzzyCentroids(FuzzyQuestion):
    """Ask for weights and weighted local centers after several local steps.

    Statistics: `weight` (n_clusters,), `weighted` (n_clusters, n_features) = weight * local center.

    Args:
        m: fuzzifier, above 1.
        local_iter: most local steps.
        local_tol: a client stops once a step changes its memberships by less (Frobenius norm); None never.
        weight: "u^m", the sums by which the last local step divided, or "u", the sums of the
            memberships in the local centers after it (the authors' code).
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    row_counts: ClassVar[tuple[str, ...]] = ("weight",)  # A row has at most 1 of u or u^m in all.
    local_iter: int
    local_tol: float | None = None
    weight: str = "u^m"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_local(self.local_iter, self.local_tol)
        check_word("weight", self.weight, ("u^m", "u"))

    def effort(self, n_features: int) -> Effort:
        """Every local step compares all rows with all centers."""
        return Effort(turns=self.local_iter, work=self.local_iter * STEP)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Weights of at most a client's rows; local centers in the box around ranges and received ones."""
        rows, centers = self.ranges.rows, self.centers
        low, high = np.minimum(self.ranges.low, centers), np.maximum(self.ranges.high, centers)
        weight = Entry("weight", (len(centers),), 0.0, rows * SLACK, RESOLUTION)
        return StatisticsSpec(weight, box_entry("weighted", centers.shape, low, high, rows, "weight"))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients in one pass."""
        rows = [client.features for client in clients]
        fits = local_fits(rows, self.centers, m=self.m, local_iter=self.local_iter, local_tol=self.local_tol)
        found = [(fit.powers if self.weight == "u^m" else fit.supports, fit.centers) for fit in fits]
        return [Statistics(weight=own, weighted=own[:, None] * centers) for own, centers in found]
