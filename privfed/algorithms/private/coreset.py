"""A coreset, weighted points that represent all rows, from one noised sum; clustering it costs no budget.

With few features its cells form a grid. With more they lie between random hyperplanes through the centre, as
many as noise allows, and the table of their sums is denoised as a whole: its singular values are shrunk
optimally for noise of known variance (Gavish and Donoho 2017, IEEE Trans. Inf. Theory 63, section III,
Frobenius loss).

Reveals to whoever opens the total: noised counts and sums of rows in public cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log2, sqrt

import numpy as np

from privfed.algorithms.private.scale import Frame, Scale, clipped, near, radius_rule
from privfed.core.asking.justified import GRID_FEATURES
from privfed.core.asking.phases import Among, Form, Phase, Shape
from privfed.core.roles.conversation import Ask, Conversation, Total
from privfed.core.values.domain import FloatArray, Ranges
from privfed.numerics.weighted_kmeans import weighted_kmeans
from privfed.questions.bounded.bounded_sums import GridSums, HashSums
from privfed.questions.cells import drawn_normals, normals_rule

# How these constants, and those of `privfed.algorithms.private.kmeans`, were found is said in
# docs/algorithms/dp_kmeans.md, "Where the constants come from".
GRID_SHARE, HASH_SHARE, HASH_SHARE_IF_WIDE = 0.30, 0.25, 0.15
"""Share of the budget for the cells of the start: in a grid, between hyperplanes, before a wide round."""

WIDE_SHARE = 0.12
"""Share of the budget of the wide round, which has more centers than clusters."""

LEAST_WIDE, MOST_WIDE = 1.4, 8.0
"""Least and most centers of the wide round, for each cluster."""

CELLS_PER_CENTER = 1.1
"""Least points of the coreset for each center of the wide round."""


def count_share(n_features: int) -> float:
    """Return the share of a question's weight for counts; sums of d values get sqrt(4 d) times as much."""
    return 1.0 / (1.0 + sqrt(4.0 * n_features))


_LEAST_COUNT_SHARE = 0.15


def _cell_share(n_features: int) -> float:
    return max(_LEAST_COUNT_SHARE, count_share(n_features))


AXIS_CELLS, MOST_PLANES = (3, 40), 12
"""Fewest and most cells of a grid along an axis; most hyperplanes."""


@dataclass(frozen=True, slots=True)
class Coreset:
    """Points, and how many rows each represents.

    Args:
        points: float64 of shape (n_points, n_features).
        weights: noised number of rows of each point, float64 of shape (n_points,), at least 1.
        noise: standard deviation of the noise in a point's sum of offsets, scaled to offsets clipped to
            the scale's radius.
        single: whether there was only one cell, for all rows.
        hashed: whether cells lay between hyperplanes.
        spent: share of the budget that was spent on it.
    """

    points: FloatArray
    weights: FloatArray
    noise: float
    single: bool
    hashed: bool
    spent: float


def wide_clusters(scale: Scale, n_clusters: int) -> bool:
    """Say whether a round with more centers than clusters is planned."""
    d = len(scale.center)
    held = scale.n_rows / scale.noise(WIDE_SHARE, count_share(d))
    cells = scale.n_rows / _least_rows(scale, HASH_SHARE_IF_WIDE) / CELLS_PER_CENTER
    return d > GRID_FEATURES and min(held, cells) >= LEAST_WIDE * n_clusters


def _least_rows(scale: Scale, share: float) -> float:
    """Return how many rows a cell between hyperplanes should hold, so that noise does not dominate."""
    counts = _cell_share(len(scale.center))
    return max(scale.noise(share, counts), 2.0 * scale.count_noise(share, counts), 4.0)


def coreset(
    scale: Scale, n_clusters: int, rng: np.random.Generator, share: float, fill: float = 4.0
) -> Conversation[Coreset]:
    """Ask for a coreset.

    Args:
        scale: noised number, centre and radius of the rows.
        n_clusters: number of clusters.
        rng: source of the hyperplanes.
        share: share of the budget.
        fill: rows that a grid's cell should hold, in standard deviations of the noise in its count.
    """
    d = len(scale.center)
    cells = scale.n_rows / _least_rows(scale, share)
    if d <= GRID_FEATURES and cells > 3**d:
        room = (scale.n_rows / max(fill * scale.count_noise(share, 0.8), 4.0)) ** (1.0 / d)
        return (yield from gridded(scale, n_clusters, share, int(np.clip(floor(room), *AXIS_CELLS))))
    return (yield from hashed(scale, rng, share, int(np.clip(floor(log2(max(cells, 1.0))), 0, MOST_PLANES))))


def grid_form(frame: Frame, least: int, most: int) -> Among:
    """Return the form of what `gridded` asks, with `least` to `most` cells along an axis."""
    sides = range(least, most + 1)
    reaches = [near(_reach(frame.ranges, n)) for n in sides]
    pairs = zip(sides, reaches, strict=True)
    return Among(tuple(Form(GridSums, per_axis=n, radius=reach) for n, reach in pairs))


def hash_form(frame: Frame, least: int, most: int, rng: np.random.Generator) -> Form:
    """Return the form of what `hashed` asks, with `least` to `most` hyperplanes; `rng` is kept as it is."""
    d = frame.ranges.n_features
    normals = normals_rule(d, least, most, rng)
    return Form(HashSums, center=Shape(d), radius=radius_rule(frame), normals=normals)


def coreset_phase(frame: Frame, rng: np.random.Generator) -> Phase:
    """Return what `coreset` asks; `rng` is kept as it is."""
    hashes = hash_form(frame, 0, MOST_PLANES, rng)
    if frame.ranges.n_features > GRID_FEATURES:
        return Phase(hashes)
    return Phase(Among((grid_form(frame, *AXIS_CELLS), hashes)))


def _reach(ranges: Ranges, per_axis: int) -> float:
    """Return the length to which offsets in a grid's cell are clipped: half its diagonal."""
    return float(np.linalg.norm(ranges.width / per_axis / 2.0)) * (1.0 + 2.0**-30)


def gridded(scale: Scale, n_clusters: int, share: float, per_axis: int) -> Conversation[Coreset]:
    """Ask for a coreset in the cells of a grid over the domain."""
    ranges = scale.frame.ranges
    half = ranges.width / per_axis / 2.0
    reach = _reach(ranges, per_axis)
    question = GridSums(ranges=ranges, per_axis=per_axis, radius=reach)
    weights = {"count": 0.8 * share, "sum": 0.2 * share}
    total = yield Ask(question, purpose="coreset", weights=weights)
    counts, sums, noise = total.statistics["count"], total.statistics["sum"], _stds(total)
    kept = np.flatnonzero(counts > max(2.5 * noise["count"], 1.0))
    if len(kept) < n_clusters:
        kept = np.sort(np.argsort(-counts, kind="stable")[: n_clusters + 1])
    held = np.maximum(counts[kept], 1.0)
    # Means are shrunk towards their cell's midpoint; the prior variance is that of a uniform distribution
    # over half of the cell's width.
    prior = (2.0 * half) ** 2 / 48.0
    offsets = sums[kept] / held[:, None] * (prior / (prior + (noise["sum"] / held[:, None]) ** 2))
    points = question.middles()[kept] + np.clip(offsets, -half, half)
    return Coreset(points, held, noise["sum"] * scale.radius / reach, False, False, share)


def hashed(scale: Scale, rng: np.random.Generator, share: float, n_planes: int) -> Conversation[Coreset]:
    """Ask for a coreset in the cells between random hyperplanes through the scale's center."""
    d = len(scale.center)
    normals = drawn_normals(d, n_planes, rng)
    question = HashSums(ranges=scale.frame.ranges, center=scale.center, radius=scale.radius, normals=normals)
    counts_share = _cell_share(d)
    weights = {"count": counts_share * share, "sum": (1.0 - counts_share) * share}
    total = yield Ask(question, purpose="coreset", weights=weights)
    counts, noise = total.statistics["count"], _stds(total)
    kept = np.flatnonzero(counts > max(2.0 * noise["count"], 1.0))
    if not kept.size:
        kept = np.array([int(np.argmax(counts))])
    held = np.maximum(counts[kept], max(2.0 * noise["count"], 1.0))
    offsets = denoised(total.statistics["sum"][kept], noise["sum"]) / held[:, None]
    points = _inside(scale, scale.center + clipped(offsets, scale.radius))
    return Coreset(points, held, noise["sum"], n_planes == 0, True, share)


def denoised(sums: FloatArray, noise: float) -> FloatArray:
    """Shrink the singular values of a table (n_cells, n_features) with independent noise.

    Gavish and Donoho 2017, equation 7: with y a singular value in units of noise * sqrt(larger side), and
    beta the ratio of the sides, y -> sqrt((y^2 - beta - 1)^2 - 4 beta) / y above 1 + sqrt(beta), else 0.
    """
    left, values, right = np.linalg.svd(sums, full_matrices=False)
    unit, beta = noise * sqrt(max(sums.shape)), min(sums.shape) / max(sums.shape)
    y = np.maximum(values / unit, 1.0 + sqrt(beta))
    shrunk: FloatArray = unit * np.sqrt(np.maximum((y**2 - beta - 1.0) ** 2 - 4.0 * beta, 0.0)) / y
    return np.asarray((left * shrunk) @ right)


def clustered(
    scale: Scale, points: FloatArray, weights: FloatArray, n_clusters: int, rng: np.random.Generator
) -> FloatArray:
    """Return k-means centers of a coreset, (n_clusters, n_features), which costs no budget.

    With too few points, each is a center, and the other centers lie near the centre of all rows.
    """
    if len(points) >= n_clusters:
        return _inside(scale, weighted_kmeans(points, weights, n_clusters, rng, n_init=10).centers)
    missing = n_clusters - len(points)
    near = scale.center + 1e-3 * scale.frame.unit * rng.standard_normal((missing, len(scale.center)))
    return _inside(scale, np.concatenate([points, near]))


def _inside(scale: Scale, points: FloatArray) -> FloatArray:
    return scale.frame.ranges.clip(points)


def _stds(total: Total) -> dict[str, float]:
    return dict(total.noise_std or {})
