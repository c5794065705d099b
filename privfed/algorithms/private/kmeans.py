"""k-means under differential privacy, from noised sums only.

At unit "record" `PrivateKMeans` asks for at most 21 sums, usually 13. Three or more find the number of rows,
their centre and radius (`.scale`; again where they fill a small part of the domain). One finds a coreset
(`.coreset`). Then may come a finer grid or, in many dimensions, a round with several times as many centers as
clusters. Two to eight Lloyd rounds follow (`.noised_rounds`), fewer where noise is high, some of clusters in
halves (`.halves`). At unit "client" there are two more (`.clients`). docs/algorithms/dp_kmeans.md gives
reasons and measurements.

`FixedKMeans` is for noise of the server. A server that adds the noise knows it, and must learn nothing that
depends on a total: so all sums are fixed before the first. The number of rounds is a parameter, their shares
of the budget are equal, and the number of cells of the start follows from the number of clusters. Its second
look, slabs across a line or the fullest cells in parts, is always asked, and used where it shows more. The
clipping radius still follows from totals, but it is the domain's radius over a power of two. Sigma, in steps
of the grid, is then the same for each of them, so that nothing the server sees depends on the chosen one.

Privacy. A record falls into one cell of each question, so that a question costs (D / s)^2 for each entry,
with D its sensitivity and s its noise; this is the weight with which it is asked. Each weight is fixed before
its question, depending on earlier totals, and all weights sum to at most 1: the claim is the whole budget
(Gaussian differential privacy under adaptive composition; the proof is in docs/privacy/accounting.md).
Everything else is post-processing of noised totals.

Reveals to whoever opens the totals: noised totals only; see the modules named above. `FixedKMeans` reveals to
a server that relays them their number and length, and its noise, all of which are in the configuration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from math import log2, sqrt
from typing import ClassVar

import numpy as np

from privfed.algorithms.private.clients import (
    PROBE_SHARE,
    Lengths,
    by_client,
    client_phases,
    probe,
    probe_phase,
)
from privfed.algorithms.private.coreset import (
    clustered,
    coreset,
    coreset_always,
    coreset_always_phases,
    coreset_phases,
    count_share,
    reaching,
    slabbed,
    wide_clusters,
)
from privfed.algorithms.private.doubts import PURE, doubted, doubting_round, settled, wanted
from privfed.algorithms.private.halves import (
    Seats,
    asked_in,
    first_axes,
    halved_round,
    may,
    next_axes,
    pays,
    traded,
)
from privfed.algorithms.private.noised_rounds import (
    State,
    Steps,
    lloyd_round,
    round_phase,
    started,
    wanted_radius,
    wide_phases,
    widened,
)
from privfed.algorithms.private.points import Coreset
from privfed.algorithms.private.scale import (
    FIXED_PASSES,
    SCALE_SUMS,
    Frame,
    Scale,
    frame_of,
    octave,
    scale_phases,
    scaled,
)
from privfed.algorithms.rounds import ClusteringOutcome
from privfed.algorithms.starts import Init
from privfed.core.asking.phases import Form, Phase, Phases
from privfed.core.roles.conversation import Conversation, Setting
from privfed.core.values.domain import FloatArray, frozen_array
from privfed.numerics.kernels.interpreted import squared_distances
from privfed.questions.cells import GRID_FEATURES
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
        scale: noised number, centre and radius of the rows; of the budget it counts all that was spent.
        coreset: weighted points that represent the rows.
        radius: length to which offsets are clipped in the first round.
        n_points: number of points whose sums had the coreset's noise.
        reseats: whether centers move that rounds find empty. Cells between hyperplanes are as large as noise
            allows, so that few are empty.
        doubts: whether rounds ask of the coreset's doubtful points.
    """

    scale: Scale
    coreset: Coreset
    radius: float
    n_points: int
    reseats: bool = True
    doubts: bool = False

    def variance(self, n_clusters: int) -> float:
        """Return the variance of the error in a coordinate of one of `n_clusters` centers."""
        if self.coreset.single:
            return self.scale.radius**2 / len(self.scale.center)
        return (
            self.coreset.noise**2
            * max(1.0, self.n_points / n_clusters)
            / (self.scale.n_rows / n_clusters) ** 2
        )

    def seats(self, n_clusters: int) -> Seats:
        """Return the points as places for centers that rounds find empty."""
        none = np.zeros(n_clusters)
        return Seats(self.coreset, self.variance(n_clusters), self.scale, none, none)

    def state(self, centers: FloatArray, share: float) -> State:
        """Return the state before the first round, of which the share of the budget is known.

        Where the coreset shows how far rows lie from the centers, this determines the clipping radius.
        """
        radius, k, found = self.radius, len(centers), self.coreset
        if found.sizes is not None:
            squares = squared_distances(found.points, centers).min(axis=1) + found.sizes**2
            radius = wanted_radius(
                self.scale, float(np.average(np.sqrt(squares), weights=found.weights)), share, k
            )
        return started(centers, radius, self.variance(k))


def first_radius(scale: Scale, n_clusters: int) -> float:
    """Return the length to which offsets from a center are clipped in the first round, if little is known."""
    d = len(scale.center)
    if d > GRID_FEATURES:
        return RADIUS_SHARE * scale.radius
    return float(min(scale.radius, SPACING_SHARE * scale.frame.radius * n_clusters ** (-1.0 / d)))


def begun(scale: Scale, found: Coreset, n_clusters: int) -> Start:
    """Return what is known after a coreset."""
    spent, radius = replace(scale, spent=scale.spent + found.spent), first_radius(scale, n_clusters)
    return Start(spent, found, radius, len(found.points), reseats=not found.hashed)


def begin(scale: Scale, n_clusters: int, rng: np.random.Generator) -> Conversation[Start]:
    """Find a coreset and, where a wide round is worthwhile, refine it."""
    scale = reaching(scale, n_clusters)
    found = yield from coreset(scale, n_clusters, rng)
    start = begun(scale, found, n_clusters)
    wide = found.hashed and wide_clusters(scale, n_clusters)
    few = found.hashed and len(found.points) < n_clusters
    slabs = (yield from slabbed(scale, found, n_clusters)) if wide or few else None
    if slabs is not None:
        return replace(begun(start.scale, slabs, n_clusters), reseats=True)
    points = (yield from widened(start.scale, found, start.state, n_clusters, rng)) if wide else None
    if points is None:
        return start
    spent = replace(start.scale, spent=start.scale.spent + points.spent)
    return replace(start, scale=spent, coreset=points, reseats=True)


def rounds_for(start: Start, n_clusters: int, share: float) -> int:
    """Return over how many rounds to spread a share of the budget: fewer where noise is high."""
    scale, counts = start.scale, count_share(len(start.scale.center))
    noise = scale.noise(share, counts) * n_clusters / scale.n_rows * start.radius / scale.radius
    return int(np.clip(round(ROUNDS_FACTOR * sqrt(log2(max(n_clusters, 2)) / noise)), 2, MOST_ROUNDS))


@dataclass(frozen=True, kw_only=True)
class NoisedKMeans(ABC):
    """Base of k-means under differential privacy of one record or one client.

    Args:
        n_clusters: number of clusters.
        init: "coreset"; or "random" or centers of shape (n_clusters, n_features), which cost no budget.
        steps: the rounds' steps, by default Lloyd steps.
        seed: of the hyperplanes, the clustering of the coreset and random starts.
    """

    fixed: ClassVar[bool]

    n_clusters: int
    init: Init = "coreset"
    steps: Steps = field(default_factory=Steps)
    seed: int = 0

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: scale, start and rounds; at unit "client" also about clients."""
        rng, frame = np.random.default_rng(self.seed), frame_of(setting)
        scale, k = scale_phases(setting, octaves=self.fixed), self.n_clusters
        if setting.privacy is None or setting.privacy.unit.of_rows:
            return (*scale, *self._refined_phases(frame, rng))
        sizes, probes = Phase(Form(ClientSizes)), probe_phase(frame, k, rng)
        return (sizes, *client_phases(scale), probes, *client_phases(self._refined_phases(frame, rng)))

    def _refined_phases(self, frame: Frame, rng: np.random.Generator) -> Phases:
        rounds = self._round_phase(frame)
        return (*self._start_phases(frame, rng), rounds) if self._from_coreset else (rounds,)

    @abstractmethod
    def _round_phase(self, frame: Frame) -> Phase:
        """Return what the rounds ask."""

    @abstractmethod
    def _start_phases(self, frame: Frame, rng: np.random.Generator) -> Phases:
        """Return what the coreset and its refinement ask."""

    @property
    def _from_coreset(self) -> bool:
        return isinstance(self.init, str) and self.init == "coreset"

    def run(self, setting: Setting) -> Conversation[ClusteringOutcome]:
        """Find a start, then refine it; at unit "client" each client takes the role of a record."""
        rng, k, octaves = np.random.default_rng(self.seed), self.n_clusters, self.fixed
        if setting.privacy is None or setting.privacy.unit.of_rows:
            scale = yield from scaled(setting, k, octaves)
            return (yield from self._refined(scale, rng))
        size, share = (yield from typical_size(frame_of(setting).ranges)), 1.0 - SIZE_SHARE
        scale = yield from by_client(scaled(setting, k, octaves), size, share, octaves=octaves)
        lengths = yield from probe(self._clipping(scale), k, size, rng)
        scale = replace(scale, spent=scale.spent + PROBE_SHARE / share)
        if self.fixed:
            lengths = Lengths(*(octave(length, 1.0) for length in lengths))
        else:
            scale = replace(scale, count_length=lengths.counts, sum_length=lengths.sums)
        refined = self._refined(scale, rng)
        outcome = yield from by_client(refined, size, share, lengths, self.steps.equal, octaves)
        return replace(outcome, n_rows=round(outcome.n_rows * size))

    def _clipping(self, scale: Scale) -> Scale:
        """Return the scale by which lengths are clipped."""
        return replace(scale, radius=octave(scale.radius, scale.frame.radius)) if self.fixed else scale

    def _refined(self, scale: Scale, rng: np.random.Generator) -> Conversation[ClusteringOutcome]:
        scale, k = self._clipping(scale), self.n_clusters
        if self._from_coreset:
            start = yield from self._start(scale, rng)
            doubting = None if self.fixed or self.steps.asking else self._doubted(start)
            start = start if doubting is None else replace(start, coreset=doubting, doubts=True)
            centers = clustered(scale, start.coreset, k, rng)
        else:
            ranges, shape = scale.frame.ranges, (k, len(scale.center))
            centers = rng.uniform(ranges.low, ranges.high, shape) if isinstance(self.init, str) else self.init
            start = begun(scale, Coreset(centers, np.ones(k), 0.0, single=True, hashed=False, spent=0.0), k)
        if self.fixed:
            start = replace(start, radius=octave(start.radius, scale.frame.radius))
        return (yield from self.refined(start, centers))

    def _doubted(self, start: Start) -> Coreset | None:
        return doubted(
            start.scale, start.coreset, self.n_clusters, (1.0 - start.scale.spent) / self._rounds(start)
        )

    @abstractmethod
    def _start(self, scale: Scale, rng: np.random.Generator) -> Conversation[Start]:
        """Ask for a coreset and its refinement."""

    @abstractmethod
    def _rounds(self, start: Start) -> int:
        """Return the number of rounds."""

    def refined(self, start: Start, centers: FloatArray) -> Conversation[ClusteringOutcome]:
        """Do Lloyd rounds from given centers, with the rest of the budget."""
        scale, rounds, asking = start.scale, self._rounds(start), self.steps.asking
        ranges, share = scale.frame.ranges, (1.0 - scale.spent) / rounds
        state, seats, history = (
            start.state(centers, share),
            start.seats(len(centers)),
            [frozen_array(centers)],
        )
        rng, movement = np.random.default_rng([self.seed, 1]), np.zeros_like(centers)
        halving = not self.fixed and asking is None and may(scale, rounds, len(centers))
        turns = np.random.default_rng([self.seed, 2])
        noise = scale.count_noise(share, count_share(len(scale.center)))
        axes = first_axes(start.coreset, centers, turns) if halving else centers
        for number in range(rounds):
            radius = octave(state.radius, scale.frame.radius) if self.fixed else state.radius
            before, halves, part = replace(state, radius=radius), None, 1.0
            asks = start.doubts and number + PURE < rounds
            probed = wanted(seats, before, noise) if asks else np.empty(0, dtype=np.int64)
            last = not asked_in(number + 2, rounds)
            spare = halving and number + 1 < rounds and seats.spare(before.centers, noise)
            if halving and (spare or asked_in(number, rounds)) and pays(scale, seats, share, last):
                state, halves = yield from halved_round(scale, before, share, axes, seats.cut(noise), spare)
            elif len(probed):
                seats, state, part = yield from doubting_round(scale, seats, before, share, probed)
            else:
                question = asking and asking(ranges, before.centers, radius)
                state = yield from lloyd_round(scale, before, share, question)
            movement = self.steps.movement(state.centers - before.centers, movement)
            state, new = replace(state, centers=ranges.clip(before.centers + movement)), None
            if halves is not None:
                seats, state, new = traded(scale, seats, before.centers, state, halves)
                axes = next_axes(halves, new, turns)
            elif asking is None:
                seats, new = seats.counting(state, part), np.zeros(len(centers), dtype=np.bool_)
                if len(probed):
                    seats, state, new = settled(seats, before.centers, state, probed)
                if start.reseats and number + 1 < rounds and not new.any():
                    seats, state, new = seats.after(before.centers, state, rng)
            if new is not None:
                movement = np.where(new[:, None], 0.0, movement)
            history.append(frozen_array(state.centers))
        return ClusteringOutcome.noised(history, round(scale.n_rows))


@dataclass(frozen=True, kw_only=True)
class PrivateKMeans(NoisedKMeans):
    """k-means in as many sums as noise allows, each planned by the totals before it (module docstring).

    Args:
        max_iter: most rounds.
    """

    fixed: ClassVar[bool] = False

    max_iter: int = MOST_ROUNDS

    @property
    def max_sums(self) -> int:
        """Most sums: of the scale, the coreset and its refinement, the rounds; two more at unit "client"."""
        return SCALE_SUMS + 4 + MOST_ROUNDS

    def _round_phase(self, frame: Frame) -> Phase:
        k = self.n_clusters
        return round_phase(frame, (k, 2 * k), self.max_iter, self.steps.example(frame, k))

    def _start_phases(self, frame: Frame, rng: np.random.Generator) -> Phases:
        return (*coreset_phases(frame, self.n_clusters, rng), *wide_phases(frame, self.n_clusters))

    def _start(self, scale: Scale, rng: np.random.Generator) -> Conversation[Start]:
        return begin(scale, self.n_clusters, rng)

    def _rounds(self, start: Start) -> int:
        return min(self.max_iter, rounds_for(start, self.n_clusters, 1.0 - start.scale.spent))


@dataclass(frozen=True, kw_only=True)
class FixedKMeans(NoisedKMeans):
    """k-means in a number of noised sums that no total changes, for noise of the server (module docstring).

    Args:
        rounds: number of rounds.
    """

    fixed: ClassVar[bool] = True

    rounds: int

    @property
    def max_sums(self) -> int:
        """Most sums: those of the scale, the start, the rounds; two more at unit "client"."""
        return 5 + 2 * FIXED_PASSES + self.rounds

    def _round_phase(self, frame: Frame) -> Phase:
        k = self.n_clusters
        return round_phase(frame, k, self.rounds, self.steps.example(frame, k), self.rounds)

    def _start_phases(self, frame: Frame, rng: np.random.Generator) -> Phases:
        return coreset_always_phases(frame, self.n_clusters, rng)

    def _start(self, scale: Scale, rng: np.random.Generator) -> Conversation[Start]:
        return begun(scale, (yield from coreset_always(scale, self.n_clusters, rng)), self.n_clusters)

    def _rounds(self, start: Start) -> int:
        return self.rounds
