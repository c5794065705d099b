"""Choosing the number of clusters under differential privacy, on one noised coreset.

Fits and indices of all candidates use the noised coreset only, so that they cost no budget, however many
there are. The index treats each point of the coreset as the rows that it represents. The clustering of the
chosen number is then refined by noised rounds.

Reveals to whoever opens the totals: what `privfed.algorithms.private.kmeans` reveals, with a larger share of
the budget for the coreset; the number of candidates makes no difference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privfed.algorithms.private.coreset import (
    WIDE_SHARE,
    clustered,
    coreset,
    coreset_phases,
    reaching,
    slabbed,
)
from privfed.algorithms.private.grids import ROUNDS_SHARE
from privfed.algorithms.private.kmeans import PrivateKMeans, begun
from privfed.algorithms.private.noised_rounds import round_phase
from privfed.algorithms.private.points import Coreset
from privfed.algorithms.private.scale import Scale, frame_of, scale_phases, scaled
from privfed.algorithms.rounds import ClusteringOutcome
from privfed.core.asking.phases import Among, Phase, Phases
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import Conversation, Setting
from privfed.core.values.domain import FloatArray
from privfed.errors import PrivacyError
from privfed.numerics.kernels.dispatch import assign
from privfed.numerics.memberships import memberships
from privfed.questions.cells import GRID_FEATURES
from privfed.questions.fuzzy_spread import index_from

CORESET_SHARE = 0.75
"""Share of the budget for the coreset, which gives the choice and the start."""

ROWS_ONLY = 'the number of clusters is chosen at unit "record" only; fit one number.'

FILL = 3.0
"""Least rows of a grid's cell, in standard deviations of its count's noise: a finer grid than for a single
fit, since the index depends more on the clusters' borders than on their means."""


def fuzzy_davies_bouldin(points: FloatArray, weights: FloatArray, centers: FloatArray, m: float) -> float:
    """Return the fuzzy Davies-Bouldin index of weighted points, with p = 2 and q = 1."""
    total = Statistics(
        spread=weights @ np.linalg.norm(points[:, None] - centers, axis=2),
        membership=weights @ memberships(points, centers, m),
        rows=[weights.sum()],
    )
    return index_from(total, centers, 2.0, 1.0)


def davies_bouldin(points: FloatArray, weights: FloatArray, centers: FloatArray) -> float:
    """Return the Davies-Bouldin index of weighted points; infinite for fewer than two non-empty clusters."""
    labels = assign(points, centers)
    size = np.bincount(labels, weights, len(centers))
    held = np.flatnonzero(size > 0.0)
    if len(held) < 2:
        return float("inf")
    length = np.linalg.norm(points - centers[labels], axis=1)
    spread = np.bincount(labels, weights * length, len(centers))[held] / size[held]
    apart = np.linalg.norm(centers[held][:, None] - centers[held], axis=2)
    np.fill_diagonal(apart, np.inf)
    return float(((spread[:, None] + spread) / np.maximum(apart, 1e-300)).max(axis=1).mean())


def fuzzy_centers(points: FloatArray, weights: FloatArray, centers: FloatArray, m: float) -> FloatArray:
    """Do fuzzy c-means steps on weighted points, from given centers, until the centers stay."""
    for _ in range(100):
        powers = weights[:, None] * memberships(points, centers, m) ** m
        moved = powers.T @ points / np.maximum(powers.sum(axis=0), 1e-300)[:, None]
        if np.linalg.norm(moved - centers) < 1e-6 * np.linalg.norm(points.std(axis=0)):
            break
        centers = moved
    return centers


@dataclass(frozen=True)
class Selected:
    """The result of a selection.

    Args:
        n_clusters: the chosen number.
        indices: index of each candidate, in their order.
        outcomes: outcome of each candidate: the coreset's clustering, refined only for the chosen number.
    """

    n_clusters: int
    indices: tuple[float, ...]
    outcomes: tuple[ClusteringOutcome, ...]


@dataclass(frozen=True, kw_only=True)
class PrivateSelection:
    """Chooses the number of clusters with the smallest index on a coreset, and refines that clustering.

    Args:
        candidates: numbers of clusters, ascending.
        algorithm: the algorithm that refines.
        m: fuzzifier of the fits and the index; None for hard clusterings.
    """

    fixed: ClassVar[bool] = False

    candidates: tuple[int, ...]
    algorithm: PrivateKMeans
    m: float | None = None

    @property
    def max_sums(self) -> int:
        """Most sums: those of the algorithm."""
        return self.algorithm.max_sums

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the scale, the coreset, and the rounds of one of the candidates."""
        rng, frame = np.random.default_rng(self.algorithm.seed), frame_of(setting)
        most, steps = self.algorithm.max_iter, self.algorithm.steps
        rounds = [round_phase(frame, (k, 2 * k), most, steps.example(frame, k)).form for k in self.candidates]
        cells = coreset_phases(frame, max(self.candidates), rng)
        return (*scale_phases(setting), *cells, Phase(Among(tuple(rounds)), 1, most))

    def run(self, setting: Setting) -> Conversation[Selected]:
        """Ask for the coreset, choose on it, and refine.

        Raises:
            PrivacyError: at unit "client".
        """
        if setting.privacy is None or not setting.privacy.unit.of_rows:
            raise PrivacyError(ROWS_ONLY)
        rng, most = np.random.default_rng(self.algorithm.seed), max(self.candidates)
        scale = reaching((yield from scaled(setting, most)), most)
        found = yield from self._coreset(scale, rng)
        fits = [clustered(scale, found, k, rng) for k in self.candidates]
        tried = [self._tried(found, centers) for centers in fits]
        place = int(np.argmin([index for _, index in tried]))
        k = self.candidates[place]
        refined = yield from replace(self.algorithm, n_clusters=k).refined(
            begun(scale, found, k), tried[place][0]
        )
        outcomes = [ClusteringOutcome.noised([centers], refined.n_rows, index) for centers, index in tried]
        outcomes[place] = refined
        return Selected(k, tuple(index for _, index in tried), tuple(outcomes))

    def _coreset(self, scale: Scale, rng: np.random.Generator) -> Conversation[Coreset]:
        """Ask for a coreset, and where rows lie along a line for slabs across it, as a single fit does."""
        most, for_slabs = max(self.candidates), WIDE_SHARE * (len(scale.center) > GRID_FEATURES)
        found = yield from coreset(
            scale, most, rng, min(CORESET_SHARE, 1.0 - ROUNDS_SHARE - scale.spent - for_slabs), FILL
        )
        if not found.hashed or scale.spent + found.spent + WIDE_SHARE > 1.0 - ROUNDS_SHARE:
            return found
        slabs = yield from slabbed(scale, found, most)
        return found if slabs is None else replace(slabs, spent=found.spent + slabs.spent)

    def _tried(self, found: Coreset, centers: FloatArray) -> tuple[FloatArray, float]:
        points, weights = found.points, found.weights
        if self.m is None:
            return centers, davies_bouldin(points, weights, centers)
        centers = fuzzy_centers(points, weights, centers, self.m)
        return centers, fuzzy_davies_bouldin(points, weights, centers, self.m)
