"""Private Evolution for k-means, as a baseline: candidates that rows vote for, and variations of the winners.

Each round asks how many rows are nearest to each candidate, with noise: the only thing that is asked, so that
the domain's size makes no difference to the noise. Candidates with votes above the noise survive, and are
multiplied by random variations that get smaller from round to round. The last survivors, weighted by their
votes, are clustered. The idea is that of Private Evolution (Lin et al. 2024, arXiv 2305.15560) and of
PE-means (arXiv 2606.00342), of which the abstract was read and no code: schedule and constants are ours.

Reveals to whoever opens the totals: noised counts of the rows nearest to each candidate.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from privfed.algorithms.outcome import ClusteringOutcome
from privfed.algorithms.private.scale import SHARES, Frame, frame_of, size_phase
from privfed.core.asking.phases import Form, Phase, Phases, Shape, Within
from privfed.core.asking.question import register
from privfed.core.roles.conversation import Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, frozen_array
from privfed.numerics.weighted_kmeans import weighted_kmeans
from privfed.questions.bounded.bounded_sums import RelativeSums, SizeSums

ROUNDS = 8
"""Number of rounds; their shares of the budget are equal."""

MOST_CANDIDATES, LEAST_CANDIDATES = 24, 2
"""Most and least candidates for each cluster; between them each has rows for four times its votes' noise."""

NARROWER = 0.55
"""How much smaller variations are than those of the round before; the first are a quarter of the domain."""


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class NearestCounts(RelativeSums):
    """Ask for counts of the rows nearest to each candidate, and for nothing else."""

    asks: ClassVar[tuple[str, ...]] = ("count",)


@dataclass(frozen=True, kw_only=True)
class PrivateEvolution:
    """Private Evolution for k-means (module docstring).

    Args:
        n_clusters: number of clusters.
        seed: of candidates and variations.
    """

    fixed: ClassVar[bool] = False

    n_clusters: int
    seed: int = 0

    @property
    def max_sums(self) -> int:
        """Number of sums: the number of rows, and the rounds."""
        return 1 + ROUNDS

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the number of rows, and the rounds."""
        frame = frame_of(setting)
        sizes = (LEAST_CANDIDATES * self.n_clusters, MOST_CANDIDATES * self.n_clusters)
        candidates = Shape(sizes, setting.n_features)
        radius = Within(frame.radius, frame.radius)
        return (
            size_phase(frame),
            Phase(Form(NearestCounts, centers=candidates, radius=radius), ROUNDS, ROUNDS),
        )

    def run(self, setting: Setting) -> Conversation[ClusteringOutcome]:
        """Draw candidates, let rows vote, vary the winners, and cluster the last ones."""
        frame, rng, k = frame_of(setting), np.random.default_rng(self.seed), self.n_clusters
        half = {"count": SHARES["rows"] / 2.0, "distance": SHARES["rows"] / 2.0}
        size = SizeSums(ranges=frame.ranges, center=frame.middle, radius=frame.radius)
        total = yield Ask(size, purpose="size", weights=half)
        n_rows, share = max(float(total.statistics["count"][0]), 2.0 * k), (1.0 - SHARES["rows"]) / ROUNDS
        noise = (total.noise_std or {})["count"] * sqrt(half["count"] / share)
        n = int(np.clip(n_rows / (4.0 * noise), LEAST_CANDIDATES * k, MOST_CANDIDATES * k))
        candidates = rng.uniform(frame.ranges.low, frame.ranges.high, (n, setting.n_features))
        history, width = [], frame.unit / 2.0
        for number in range(ROUNDS):
            question = NearestCounts(ranges=frame.ranges, centers=candidates, radius=frame.radius)
            total = yield Ask(question, weights={"count": share})
            votes = _above(total.statistics["count"], 2.0 * (total.noise_std or {})["count"], k)
            history.append(frozen_array(_clustered(frame, candidates, votes, k, rng)))
            if number + 1 < ROUNDS:
                candidates = _varied(frame, candidates, votes, width, rng)
                width *= NARROWER
        return ClusteringOutcome(history[-1], tuple(history), None, round(n_rows), None, float("nan"))


def _above(votes: FloatArray, least: float, n_clusters: int) -> FloatArray:
    """Return votes, zero where they are below the least; the strongest candidates stay in any case."""
    kept = votes >= least
    kept[np.argsort(-votes, kind="stable")[:n_clusters]] = True
    above: FloatArray = np.where(kept, np.maximum(votes, 1.0), 0.0)
    return above


def _varied(
    frame: Frame, candidates: FloatArray, votes: FloatArray, width: float, rng: np.random.Generator
) -> FloatArray:
    """Keep the strongest half of the winners, and fill up with variations drawn in proportion to votes."""
    n = len(candidates)
    elite = np.argsort(-votes, kind="stable")[: max(1, min(n // 2, int((votes > 0.0).sum())))]
    parents = rng.choice(n, n - len(elite), p=votes / votes.sum())
    steps = width * rng.standard_normal((len(parents), candidates.shape[1]))
    return np.concatenate([candidates[elite], frame.ranges.clip(candidates[parents] + steps)])


def _clustered(
    frame: Frame, candidates: FloatArray, votes: FloatArray, n_clusters: int, rng: np.random.Generator
) -> FloatArray:
    held = votes > 0.0
    found = weighted_kmeans(candidates[held], votes[held], n_clusters, rng, n_init=10).centers
    return frame.ranges.clip(found)
