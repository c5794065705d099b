"""k-means under differential privacy, from noised sums only.

At unit "record" it asks for at most 21 sums, usually 13: the number of rows, their centre and radius
(`privfed.algorithms.private.scale`; again where they fill a small part of the domain), a coreset
(`.coreset`), then perhaps a finer grid or, in many dimensions, a round with several times as many centers as
clusters, and two to eight Lloyd rounds (`.rounds`), fewer where noise is high. At unit "client" there are two
more (`.clients`). docs/algorithms/dp_kmeans.md gives reasons and measurements.

Privacy. A record falls into one cell of each question, so that a question costs (D / s)^2 for each entry,
with D its sensitivity and s its noise; this is the weight with which it is asked. Each weight is fixed before
its question, depending on earlier totals, and all weights sum to at most 1: the claim is the whole budget
(Gaussian differential privacy under adaptive composition; the proof is in docs/privacy/accounting.md).
Everything else is post-processing of noised totals.

Reveals to whoever opens the totals: noised totals only; see the modules named above.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log2, sqrt
from typing import ClassVar

import numpy as np

from privfed.algorithms.outcome import ClusteringOutcome
from privfed.algorithms.private.clients import PROBE_SHARE, by_client, client_phases, probe, probe_phase
from privfed.algorithms.private.coreset import (
    CELLS_PER_CENTER,
    LEAST_WIDE,
    MOST_WIDE,
    WIDE_SHARE,
    clustered,
    coreset,
    coreset_phases,
    count_share,
    slab_phase,
    slabbed,
    wide_clusters,
)
from privfed.algorithms.private.points import BoolArray, Coreset
from privfed.algorithms.private.reseating import Seats
from privfed.algorithms.private.rounds import State, lloyd_round, round_phase, started, wanted_radius
from privfed.algorithms.private.scale import SCALE_SUMS, Frame, Scale, frame_of, scale_phases, scaled
from privfed.algorithms.starts.starts import Init
from privfed.core.asking.justified import GRID_FEATURES
from privfed.core.asking.phases import Form, Phase, Phases
from privfed.core.roles.conversation import Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges, frozen_array
from privfed.core.values.guarantee import Unit
from privfed.numerics.distances import squared_distances
from privfed.numerics.weighted_kmeans import weighted_kmeans
from privfed.questions.bounded.bounded_sums import SumsInCells
from privfed.questions.client_sizes import SIZE_SHARE, ClientSizes, typical_size

MOST_ROUNDS = 8

# docs/algorithms/dp_kmeans.md, "Where the constants come from", says how these were found.
RADIUS_SHARE, SPACING_SHARE = 0.9, 0.8
"""First clipping radius: share of the rows' radius, or in few dimensions of the clusters' spacing."""

ROUNDS_FACTOR = 1.2
"""Rounds, in units of sqrt(log2(clusters) / relative noise)."""


@dataclass(frozen=True, slots=True)
class Start:
    """Holds what is known before the Lloyd rounds.

    Args:
        scale: noised number, centre and radius of the rows.
        points: weighted points that represent the rows, float64 of shape (n_points, n_features).
        weights: of the points, float64 of shape (n_points,).
        radius: length to which offsets are clipped in the first round.
        noise: standard deviation of the noise in one coordinate of a point's sum.
        n_points: number of points whose sums had this noise.
        single: whether only the centre of all rows is known.
        spent: share of the budget that was spent.
        sizes: about how far a point's rows lie from it, float64 of shape (n_points,); None if unknown.
        doubtful: whether noise alone may have made a point, bool of shape (n_points,); None if unknown.
        reseats: whether centers move that rounds find empty. Cells between hyperplanes are as large as noise
            allows, so that few are empty.
    """

    scale: Scale
    points: FloatArray
    weights: FloatArray
    radius: float
    noise: float
    n_points: int
    single: bool
    spent: float
    sizes: FloatArray | None = None
    doubtful: BoolArray | None = None
    reseats: bool = True

    def variance(self, n_clusters: int) -> float:
        """Return the variance of the error in a coordinate of one of `n_clusters` centers."""
        if self.single:
            return self.scale.radius**2 / len(self.scale.center)
        each = self.scale.n_rows / n_clusters
        return self.noise**2 * max(1.0, self.n_points / n_clusters) / each**2

    def seats(self, n_clusters: int) -> Seats:
        """Return the points as places for centers that rounds find empty."""
        none = np.zeros(n_clusters)
        variance = self.variance(n_clusters)
        return Seats(self.points, self.weights, variance, self.scale, self.doubtful, none, none)


def first_radius(scale: Scale, n_clusters: int) -> float:
    """Return the length to which offsets from a center are clipped in the first round, if little is known."""
    d = len(scale.center)
    if d > GRID_FEATURES:
        return RADIUS_SHARE * scale.radius
    return float(min(scale.radius, SPACING_SHARE * scale.frame.radius * n_clusters ** (-1.0 / d)))


def started_from(start: Start, centers: FloatArray, share: float) -> State:
    """Return the state before the first round, of which the share of the budget is known.

    Where the coreset shows how far rows lie from the centers, this determines the clipping radius.
    """
    radius, k = start.radius, len(centers)
    if start.sizes is not None:
        squares = squared_distances(start.points, centers).min(axis=1) + start.sizes**2
        mean = float(np.average(np.sqrt(squares), weights=start.weights))
        radius = wanted_radius(start.scale, mean, share, k)
    return started(centers, radius, start.variance(k))


def begun(scale: Scale, found: Coreset, n_clusters: int) -> Start:
    """Return what is known after a coreset."""
    return Start(
        scale,
        found.points,
        found.weights,
        first_radius(scale, n_clusters),
        found.noise,
        len(found.points),
        found.single,
        scale.spent + found.spent,
        found.sizes,
        found.doubtful,
        reseats=not found.hashed,
    )


def begin(scale: Scale, n_clusters: int, rng: np.random.Generator) -> Conversation[Start]:
    """Find a coreset and, where a wide round is worthwhile, refine it."""
    found = yield from coreset(scale, n_clusters, rng)
    start = begun(scale, found, n_clusters)
    wide = found.hashed and wide_clusters(scale, n_clusters)
    few = found.hashed and len(found.points) < n_clusters
    slabs = (yield from slabbed(scale, found, n_clusters)) if wide or few else None
    if slabs is not None:
        return replace(begun(replace(scale, spent=start.spent), slabs, n_clusters), reseats=True)
    if wide:
        return (yield from _widened(start, found, n_clusters, rng))
    return start


def _widened(start: Start, found: Coreset, n_clusters: int, rng: np.random.Generator) -> Conversation[Start]:
    """Replace the coreset by the centers of a round with several times as many centers as clusters."""
    scale = start.scale
    affordable = scale.n_rows / scale.noise(WIDE_SHARE, count_share(len(scale.center)))
    n_wide = int(min(MOST_WIDE * n_clusters, affordable, len(found.points) / CELLS_PER_CENTER))
    if n_wide < LEAST_WIDE * n_clusters:
        return start
    centers = weighted_kmeans(found.points, found.weights, n_wide, rng, n_init=2, max_iter=50).centers
    state = started(scale.frame.ranges.clip(centers), start.radius, start.variance(n_wide))
    state = yield from lloyd_round(scale, state, WIDE_SHARE, purpose="wide")
    spent = start.spent + WIDE_SHARE
    return replace(start, points=state.centers, weights=state.counts, spent=spent, reseats=True)


def rounds_for(start: Start, n_clusters: int, share: float) -> int:
    """Return over how many rounds to spread a share of the budget: fewer where noise is high."""
    scale, counts = start.scale, count_share(len(start.scale.center))
    noise = scale.noise(share, counts) * n_clusters / scale.n_rows * start.radius / scale.radius
    return int(np.clip(round(ROUNDS_FACTOR * sqrt(log2(max(n_clusters, 2)) / noise)), 2, MOST_ROUNDS))


Asking = Callable[[Ranges, FloatArray, float], SumsInCells]
"""Makes a round's question from ranges, centers and the radius to which offsets are clipped."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The question of a round, and how far the centers move by its result.

    Args:
        asking: makes the round's question; None for a Lloyd step.
        learning_rate: factor of the round's step, in (0, 1].
        momentum: share of the last movement that is added (Holzer et al. 2023, eq. 6), in [0, 1).
        smoothing: weight of the last movement in a running average (Triebe and Rajagopal 2019), in [0, 1).
        equal: whether clients have equal weight, however many rows they hold (unit "client").
    """

    asking: Asking | None = None
    learning_rate: float = 1.0
    momentum: float = 0.0
    smoothing: float = 0.0
    equal: bool = False

    def example(self, frame: Frame, n_clusters: int) -> SumsInCells | None:
        """Return a question like those of the rounds, from centers that mean nothing; None for Lloyd's."""
        centers = np.repeat(frame.middle[None], n_clusters, axis=0)
        return self.asking and self.asking(frame.ranges, centers, frame.radius)

    def movement(self, step: FloatArray, last: FloatArray) -> FloatArray:
        """Return how far centers move, given a round's step and their last movement."""
        moved: FloatArray = self.learning_rate * step
        return (1.0 - self.smoothing) * moved + (self.smoothing + self.momentum) * last


@dataclass(frozen=True, kw_only=True)
class PrivateKMeans:
    """k-means under differential privacy of one record or one client (module docstring).

    Args:
        n_clusters: number of clusters.
        init: "coreset"; or "random" or centers of shape (n_clusters, n_features), which cost no budget.
        max_iter: most rounds.
        steps: the rounds' steps, by default Lloyd steps.
        seed: of the hyperplanes, the clustering of the coreset and random starts.
    """

    fixed: ClassVar[bool] = False

    n_clusters: int
    init: Init = "coreset"
    max_iter: int = MOST_ROUNDS
    steps: Steps = Steps()
    seed: int = 0

    @property
    def max_sums(self) -> int:
        """Most sums: of the scale, the coreset and its refinement, the rounds; two more at unit "client"."""
        return SCALE_SUMS + 4 + MOST_ROUNDS

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: scale, start and rounds; at unit "client" also about clients."""
        rng, frame = np.random.default_rng(self.seed), frame_of(setting)
        scale, k = scale_phases(setting), self.n_clusters
        if setting.privacy is None or setting.privacy.unit == Unit.RECORD:
            return (*scale, *self._refined_phases(frame, rng))
        sizes, probes = Phase(Form(ClientSizes)), probe_phase(frame, k, rng)
        return (sizes, *client_phases(scale), probes, *client_phases(self._refined_phases(frame, rng)))

    def _refined_phases(self, frame: Frame, rng: np.random.Generator) -> Phases:
        k = self.n_clusters
        rounds = round_phase(frame, k, self.max_iter, self.steps.example(frame, k))
        if not (isinstance(self.init, str) and self.init == "coreset"):
            return (rounds,)
        # Slabs may follow a grid's place too: cells between few hyperplanes, where rows are few.
        cells = (*coreset_phases(frame, rng), slab_phase(frame, k))
        if len(frame.middle) <= GRID_FEATURES:
            return (*cells, rounds)
        wide = round_phase(frame, (int(LEAST_WIDE * k), int(MOST_WIDE * k)), 1, least=0)
        return (*cells, wide, rounds)

    def run(self, setting: Setting) -> Conversation[ClusteringOutcome]:
        """Find a start, then refine it; at unit "client" each client takes the role of a record."""
        rng, k = np.random.default_rng(self.seed), self.n_clusters
        if setting.privacy is None or setting.privacy.unit == Unit.RECORD:
            scale = yield from scaled(setting, k)
            return (yield from self._refined(scale, rng))
        size, share = (yield from typical_size(frame_of(setting).ranges)), 1.0 - SIZE_SHARE
        scale = yield from by_client(scaled(setting, k), size, share)
        lengths = yield from probe(scale, k, size, rng)
        spent = scale.spent + PROBE_SHARE / share
        scale = replace(scale, spent=spent, count_length=lengths.counts, sum_length=lengths.sums)
        outcome = yield from by_client(self._refined(scale, rng), size, share, lengths, self.steps.equal)
        return replace(outcome, n_rows=round(outcome.n_rows * size))

    def _refined(self, scale: Scale, rng: np.random.Generator) -> Conversation[ClusteringOutcome]:
        start = yield from self._start(scale, rng)
        centers = start.points
        if isinstance(self.init, str) and self.init == "coreset":
            centers = clustered(scale, start.points, start.weights, self.n_clusters, rng, start.doubtful)
        return (yield from self.refined(start, centers))

    def refined(self, start: Start, centers: FloatArray) -> Conversation[ClusteringOutcome]:
        """Do Lloyd rounds from given centers, with the rest of the budget."""
        scale = start.scale
        history, rest = [frozen_array(centers)], 1.0 - start.spent
        rounds = min(self.max_iter, rounds_for(start, self.n_clusters, rest))
        state = started_from(start, centers, rest / rounds)
        seats = start.seats(len(centers))
        rng, movement = np.random.default_rng([self.seed, 1]), np.zeros_like(centers)
        for number in range(rounds):
            before, radius = state, state.radius
            question = self.steps.asking and self.steps.asking(scale.frame.ranges, before.centers, radius)
            state = yield from lloyd_round(scale, before, rest / rounds, question)
            movement = self.steps.movement(state.centers - before.centers, movement)
            centers = scale.frame.ranges.clip(before.centers + movement)
            state = replace(state, centers=centers)
            if self.steps.asking is None and start.reseats and number + 1 < rounds:
                seats, state, new = seats.after(before.centers, state, rng)
                movement = np.where(new[:, None], 0.0, movement)
            history.append(frozen_array(state.centers))
        n_rows = round(scale.n_rows)
        return ClusteringOutcome(history[-1], tuple(history), None, n_rows, None, float("nan"))

    def _start(self, scale: Scale, rng: np.random.Generator) -> Conversation[Start]:
        """Return the start from a coreset, or from given or random centers with unknown error."""
        if isinstance(self.init, str) and self.init == "coreset":
            return (yield from begin(scale, self.n_clusters, rng))
        ranges, shape = scale.frame.ranges, (self.n_clusters, len(scale.center))
        points = rng.uniform(ranges.low, ranges.high, shape) if isinstance(self.init, str) else self.init
        ones = np.ones(len(points))
        return Start(scale, points, ones, first_radius(scale, shape[0]), 0.0, len(points), True, scale.spent)
