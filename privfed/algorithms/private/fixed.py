"""k-means under differential privacy with all sums fixed before the first, for noise of the server.

A server that adds the noise knows it, and must learn nothing that depends on a total. So `PrivateKMeans`,
whose plan depends on totals, cannot be used. Here the number of rounds is a parameter, their shares of the
budget are equal, and the number of cells of the start follows from the number of clusters. Its second look,
slabs across a line or the fullest cells in parts, is always asked, and used where it shows more. The clipping
radius still follows from totals, but it is the domain's radius over a power of two: sigma, in steps of the
grid, is then the same for each of them, so that nothing the server sees depends on the chosen one.

Reveals to whoever opens the totals: what `PrivateKMeans` reveals. To a server that relays them: their number
and length, and its noise, all of which are in the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, log2
from typing import ClassVar

import numpy as np

from privfed.algorithms.outcome import ClusteringOutcome
from privfed.algorithms.private.clients import (
    PROBE_SHARE,
    Lengths,
    by_client,
    client_phases,
    probe,
    probe_phase,
)
from privfed.algorithms.private.coreset import (
    HASH_SHARE,
    MOST_PLANES,
    clustered,
    hash_form,
    hashed,
    slab_always_phase,
    slabbed_always,
)
from privfed.algorithms.private.grids import cut_always, cut_always_phases, whole_per_axis
from privfed.algorithms.private.kmeans import Start, Steps, begun, first_radius, started_from
from privfed.algorithms.private.rounds import lloyd_round, round_phase
from privfed.algorithms.private.scale import (
    FIXED_PASSES,
    Frame,
    Scale,
    frame_of,
    octave,
    scale_phases,
    scaled,
)
from privfed.algorithms.starts.starts import Init
from privfed.core.asking.justified import GRID_FEATURES
from privfed.core.asking.phases import Form, Phase, Phases
from privfed.core.roles.conversation import Conversation, Setting
from privfed.core.values.domain import FloatArray, frozen_array
from privfed.core.values.guarantee import Unit
from privfed.questions.client_sizes import SIZE_SHARE, ClientSizes, typical_size

GRID_CELLS, HASH_CELLS = 12, 2
"""Number of cells of the start, for each cluster."""


@dataclass(frozen=True, kw_only=True)
class FixedKMeans:
    """k-means in a fixed number of noised sums (module docstring).

    Args:
        n_clusters: number of clusters.
        rounds: number of rounds.
        init: "coreset"; or "random" or centers of shape (n_clusters, n_features), which cost no budget.
        steps: the rounds' steps, by default Lloyd steps.
        seed: of the hyperplanes, the clustering of the coreset and random starts.
    """

    fixed: ClassVar[bool] = True
    n_clusters: int
    rounds: int
    init: Init = "coreset"
    steps: Steps = field(default_factory=Steps)
    seed: int = 0

    @property
    def max_sums(self) -> int:
        """Most sums: those of the scale, the start, the rounds; two more at unit "client"."""
        return 5 + 2 * FIXED_PASSES + self.rounds

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: scale, start and rounds; at unit "client" also about clients."""
        rng, frame = np.random.default_rng(self.seed), frame_of(setting)
        scale, k = scale_phases(setting, octaves=True), self.n_clusters
        if setting.privacy is None or setting.privacy.unit == Unit.RECORD:
            return (*scale, *self._refined_phases(frame, rng))
        sizes, probes = Phase(Form(ClientSizes)), probe_phase(frame, k, rng)
        return (sizes, *client_phases(scale), probes, *client_phases(self._refined_phases(frame, rng)))

    def _refined_phases(self, frame: Frame, rng: np.random.Generator) -> Phases:
        k, d = self.n_clusters, len(frame.middle)
        rounds = round_phase(frame, k, self.rounds, self.steps.example(frame, k), self.rounds)
        if not (isinstance(self.init, str) and self.init == "coreset"):
            return (rounds,)
        if d <= GRID_FEATURES:
            return (*cut_always_phases(frame, k, self._per_axis(d)), rounds)
        hashes = Phase(hash_form(frame, self._n_planes, self._n_planes, rng))
        return (hashes, slab_always_phase(frame, k), rounds) if k > 2 else (hashes, rounds)

    def run(self, setting: Setting) -> Conversation[ClusteringOutcome]:
        """Find a start, then refine it; at unit "client" each client takes the role of a record."""
        rng, k = np.random.default_rng(self.seed), self.n_clusters
        if setting.privacy is None or setting.privacy.unit == Unit.RECORD:
            scale = yield from scaled(setting, k, octaves=True)
            return (yield from self._refined(scale, rng))
        size, share = (yield from typical_size(frame_of(setting).ranges)), 1.0 - SIZE_SHARE
        scale = yield from by_client(scaled(setting, k, octaves=True), size, share, octaves=True)
        lengths = yield from probe(_clipping(scale), k, size, rng)
        scale = replace(scale, spent=scale.spent + PROBE_SHARE / share)
        most = Lengths(*(octave(length, 1.0) for length in lengths))
        outcome = yield from by_client(
            self._refined(scale, rng), size, share, most, self.steps.equal, octaves=True
        )
        return replace(outcome, n_rows=round(outcome.n_rows * size))

    def _refined(self, scale: Scale, rng: np.random.Generator) -> Conversation[ClusteringOutcome]:
        start, centers = yield from self._started(_clipping(scale), rng)
        history, movement = [frozen_array(centers)], np.zeros_like(centers)
        share, frame = (1.0 - start.spent) / self.rounds, scale.frame
        state = started_from(start, centers, share)
        seats, rng = start.seats(self.n_clusters), np.random.default_rng([self.seed, 1])
        for number in range(self.rounds):
            before = replace(state, radius=octave(state.radius, frame.radius))
            asking = self.steps.asking
            question = asking and asking(frame.ranges, before.centers, before.radius)
            state = yield from lloyd_round(scale, before, share, question)
            movement = self.steps.movement(state.centers - before.centers, movement)
            state = replace(state, centers=frame.ranges.clip(before.centers + movement))
            if asking is None and start.reseats and number + 1 < self.rounds:
                seats, state, new = seats.after(before.centers, state, rng)
                movement = np.where(new[:, None], 0.0, movement)
            history.append(frozen_array(state.centers))
        n_rows = round(scale.n_rows)
        return ClusteringOutcome(history[-1], tuple(history), None, n_rows, None, float("nan"))

    def _per_axis(self, n_features: int) -> int:
        return whole_per_axis(ceil((GRID_CELLS * self.n_clusters) ** (1.0 / n_features)), n_features)

    @property
    def _n_planes(self) -> int:
        return min(ceil(log2(HASH_CELLS * self.n_clusters)), MOST_PLANES)

    def _started(self, scale: Scale, rng: np.random.Generator) -> Conversation[tuple[Start, FloatArray]]:
        """Return what is known before the rounds, and the starting centers."""
        k, d, frame = self.n_clusters, len(scale.center), scale.frame
        radius = octave(first_radius(scale, k), frame.radius)
        if not (isinstance(self.init, str) and self.init == "coreset"):
            low, high = frame.ranges.low, frame.ranges.high
            points = rng.uniform(low, high, (k, d)) if isinstance(self.init, str) else self.init
            return Start(scale, points, np.ones(k), radius, 0.0, k, True, scale.spent), points
        if d <= GRID_FEATURES:
            found = yield from cut_always(scale, k, self._per_axis(d))
        else:
            found = yield from hashed(scale, rng, HASH_SHARE, self._n_planes)
            if k > 2:
                found = yield from slabbed_always(scale, found, k)
        start = replace(begun(scale, found, k), radius=radius)
        return start, clustered(scale, start.points, start.weights, k, rng, start.doubtful)


def _clipping(scale: Scale) -> Scale:
    """Return a scale whose radius is rounded to the domain's radius over a power of two."""
    return replace(scale, radius=octave(scale.radius, scale.frame.radius))
