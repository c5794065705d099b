"""A Lloyd round under noise, in which each center takes the share of its step that exceeds the noise.

The step of a center is the noised mean of its rows' clipped offsets. The variance of its noise is known;
how far a center is from its optimum is estimated from the step itself. The share taken is the gain of a
Kalman filter: near 1 for clusters of many rows, near 0 where the noise dominates.

Reveals to whoever opens the total: noised counts and sums of offsets of the rows nearest to each
center, and the noised sum of all rows' distances to their nearest center.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privfed.algorithms.private.coreset import count_share
from privfed.algorithms.private.scale import Frame, Scale, chi_ratio, clipped, radius_rule
from privfed.core.asking.phases import Form, Phase, Shape
from privfed.core.roles.conversation import Ask, Conversation
from privfed.core.values.domain import FloatArray
from privfed.questions.bounded.bounded_sums import RelativeSums, SumsInCells

LITTLE_NOISE, MOST_WIDER = 0.1, 3.0
"""Offsets are clipped to more than four in five rows need, at most so many times as much, while the noise of
a center is below this part of the rows' mean distance to their center."""

LEAST_NARROWED = 0.02
"""Least radius of a round, in units of the last one's."""

DISTANCE_SHARE = 0.03
"""Share of a round's weight for the sum of distances, which determines the next round's clipping radius."""


@dataclass(frozen=True, slots=True)
class State:
    """Centers between rounds.

    Args:
        centers: float64 of shape (n_clusters, n_features).
        radius: length to which offsets are clipped in the next round.
        variance: variance of the error in each center's coordinates, float64 of shape (n_clusters,).
        counts: noised number of rows of each cluster, at least 1, float64 of shape (n_clusters,).
        gain: share of the last step that each center took, float64 of shape (n_clusters,).
        found: noised number of rows of each cluster as it was told, float64 of shape (n_clusters,).
        count_noise: standard deviation of the noise in such a number.
    """

    centers: FloatArray
    radius: float
    variance: FloatArray
    counts: FloatArray
    gain: FloatArray
    found: FloatArray
    count_noise: float


def started(centers: FloatArray, radius: float, variance: float) -> State:
    """Return the state before the first round."""
    k = len(centers)
    return State(centers, radius, np.full(k, variance), np.ones(k), np.zeros(k), np.zeros(k), 0.0)


def weights_of(n_features: int, share: float, asks: tuple[str, ...]) -> dict[str, float]:
    """Return entry -> share of the budget, for a round with this share in all."""
    counts, distances = count_share(n_features), DISTANCE_SHARE if "distance" in asks else 0.0
    parts = {"count": counts * (1.0 - distances), "sum": (1.0 - counts) * (1.0 - distances)}
    return {name: share * (parts | {"distance": distances})[name] for name in asks}


def round_phase(
    frame: Frame,
    n_clusters: int | tuple[int, int],
    most: int,
    example: SumsInCells | None = None,
    least: int = 1,
) -> Phase:
    """Return what rounds ask.

    Args:
        frame: the domain.
        n_clusters: number of centers, or (least, most) of them.
        most: most rounds.
        example: a question instead of a Lloyd step; its centers may be any.
        least: fewest rounds.
    """
    radius = radius_rule(frame)
    if example is not None:
        return Phase(Form.like(example, radius=radius), least, most)
    centers = Shape(n_clusters, frame.ranges.n_features)
    return Phase(Form(RelativeSums, centers=centers, radius=radius), least, most)


def wanted_radius(scale: Scale, mean: float, share: float, n_clusters: int) -> float:
    """Return the length to which a round should clip offsets, given their mean length.

    Clipping to little more than the mean length halves the noise of a wider radius, but pulls centers of
    skewed clusters off their means. So the radius is larger where noise is low.

    Args:
        scale: noised number, centre and radius of the rows.
        mean: mean distance of rows to their nearest center.
        share: share of the budget for the round.
        n_clusters: number of centers.
    """
    d = len(scale.center)
    least = mean * min(chi_ratio(d), 1.7)
    # Noise of a center, clipped to the least radius, in units of the mean distance.
    noise = scale.noise(share, count_share(d)) * n_clusters / scale.n_rows * min(chi_ratio(d), 1.7)
    wider = float(np.clip(LITTLE_NOISE / max(noise, 1e-9), 1.0, MOST_WIDER))
    return min(least * wider, 2.0 * scale.frame.radius)


def lloyd_round(
    scale: Scale, state: State, share: float, question: SumsInCells | None = None, purpose: str = "round"
) -> Conversation[State]:
    """Ask for one round and move the centers.

    Args:
        scale: noised number, centre and radius of the rows.
        state: the centers.
        share: share of the budget for this round.
        question: question instead of a Lloyd step; its radius is that of the state.
        purpose: what the total is for, in a word for people.
    """
    d, radius = len(scale.center), state.radius
    if question is None:
        question = RelativeSums(ranges=scale.frame.ranges, centers=state.centers, radius=radius)
    total = yield Ask(question, purpose=purpose, weights=weights_of(d, share, question.asks))
    noise, raw = dict(total.noise_std or {}), total.statistics["count"]
    counts = np.maximum(raw, max(2.0 * noise["count"], 1.0))
    of_noise = (noise["sum"] / counts) ** 2
    step = clipped(total.statistics["sum"] / counts[:, None], radius)
    to_go = np.maximum(np.square(step).mean(axis=1) - of_noise - state.variance, 0.0)
    unsure = state.variance + to_go
    gain = np.where(raw < 2.0 * noise["count"], 0.0, unsure / (unsure + of_noise))
    centers = scale.frame.ranges.clip(state.centers + gain[:, None] * step)
    if "distance" in noise and (error := noise["distance"] / scale.n_rows) <= 0.2 * radius:
        mean = float(total.statistics["distance"][0]) / scale.n_rows
        radius = max(wanted_radius(scale, mean + 0.5 * error, share, len(raw)), LEAST_NARROWED * radius)
    variance = np.where(gain > 0.0, gain * of_noise, state.variance)
    return State(centers, radius, variance, counts, gain, raw, noise["count"])
