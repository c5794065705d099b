"""A coreset, weighted points that represent all rows, from one or two noised sums; its clustering is free.

With few features its cells form a grid (`.grids`). With more they lie between random hyperplanes through the
centre, as many as noise allows. The table of their sums is then denoised as a whole: its singular values are
shrunk optimally for noise of known variance (Gavish and Donoho 2017, IEEE Trans. Inf. Theory 63, section III,
Frobenius loss).

Clustering ends with an exchange: points change clusters one by one, and leave optima that Lloyd steps rest
in. A heavy point moves its cluster's mean when it leaves or joins. Lloyd steps compare its distances to means
as they are; here they are compared as they would be after the change (Hartigan 1975, "Clustering Algorithms",
chapter 4; Telgarsky and Vattani, "Hartigan's method: k-means clustering without Voronoi", AISTATS 2010). So
every result rests under Lloyd steps too, but not the other way round.

Reveals to whoever opens the total: noised counts and sums of rows in public cells.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor, log2, sqrt

import numpy as np

from privfed.algorithms.private import grids
from privfed.algorithms.private.decoding import decoded
from privfed.algorithms.private.points import Coreset
from privfed.algorithms.private.scale import FAR, Frame, Scale, clipped, radius_rule
from privfed.core.asking.phases import Among, Form, Phase, Phases, Shape, Within
from privfed.core.roles.conversation import Ask, Conversation, Total
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import products
from privfed.numerics.kernels.interpreted import IntArray
from privfed.numerics.kmeans import many_distances, nearest, weighted_kmeans
from privfed.questions.bounded.bounded_sums import HashSums
from privfed.questions.bounded.shells import SlabSums
from privfed.questions.cells import GRID_FEATURES, drawn_normals, normals_rule

# How these constants, and those of `privfed.algorithms.private.kmeans`, were found is said in
# docs/algorithms/dp_kmeans.md, "Where the constants come from".
HASH_SHARE, HASH_SHARE_IF_WIDE = 0.25, 0.15
"""Share of the budget for cells between hyperplanes, and before a wide round."""

RESTARTS, MOST_SIFTINGS = 30, 30
"""Restarts of k-means on a coreset, and how often points are left out before it."""

WIDE_SHARE = 0.12
"""Share of the budget of the wide round, which has more centers than clusters."""

LEAST_WIDE, MOST_WIDE = 1.4, 8.0
"""Least and most centers of the wide round, for each cluster."""

MOST_SLABS, SLABS_ALWAYS, SLABS_REACH, ON_A_LINE = 6, 4, 1.5, 0.9
"""Most slabs for each cluster; their number where no total may determine it; how far they reach, in units of
the rows' radius; and which share of the variance of the cells must lie along one direction, for rows to be on
a line."""

CELLS_PER_CENTER = 1.1
"""Least points of the coreset for each center of the wide round."""


def count_share(n_features: int) -> float:
    """Return the share of a question's weight for counts; sums of d values get sqrt(4 d) times as much.

    With a grid's few features it is sqrt(1.5 d): there counts say which centers are empty.
    """
    return 1.0 / (1.0 + sqrt((4.0 if n_features > GRID_FEATURES else 1.5) * n_features))


_LEAST_COUNT_SHARE = 0.15


def _cell_share(n_features: int) -> float:
    return max(_LEAST_COUNT_SHARE, count_share(n_features))


MOST_PLANES, FITTED_PLANES = 12, 5
"""Most hyperplanes, and their number where noise allows fewer and centers are fitted to all cells."""

GRID_CELLS, HASH_CELLS = 12, 2
"""Number of cells of a coreset that no total changes, for each cluster."""


def wide_clusters(scale: Scale, n_clusters: int) -> bool:
    """Say whether a round with more centers than clusters is planned."""
    d = len(scale.center)
    held = scale.n_rows / scale.noise(WIDE_SHARE, count_share(d))
    cells = scale.n_rows / _least_rows(scale, HASH_SHARE_IF_WIDE) / CELLS_PER_CENTER
    return (
        d > GRID_FEATURES and not few_cells(scale, n_clusters) and min(held, cells) >= LEAST_WIDE * n_clusters
    )


def few_cells(scale: Scale, n_clusters: int) -> bool:
    """Say whether noise allows few cells between hyperplanes, but some, to which centers are fitted together.

    Centers of more clusters, or of two, do better without.
    """
    cells, d = scale.n_rows / _least_rows(scale, HASH_SHARE), len(scale.center)
    asked = 2 ** min(d, FITTED_PLANES)
    return d > GRID_FEATURES and 2 < n_clusters <= asked / 4 and 2.0 <= cells < asked / 2


FAR_SHELL = 4.5
"""Least count of a shell that offsets are clipped by, in deviations of its noise, of up to 120 shells."""


def reaching(scale: Scale, n_clusters: int) -> Scale:
    """Return the scale with a radius that reaches rows far from most others, where that costs less."""
    # Clipped to the radius they would lie among the others. Grids are laid over all rows that were seen.
    d = len(scale.center)
    far = (scale.ends() > FAR * scale.radius) & (scale.shells[2] > FAR_SHELL * scale.shell_noise)
    if d <= GRID_FEATURES or not far.any():
        return scale
    ends, rows = scale.ends()[far], scale.shells[2][far]
    tried = np.append(scale.radius, ends)
    lost = np.square(np.maximum(ends - tried[:, None], 0.0)) @ rows
    noise = np.square(n_clusters * scale.noise(HASH_SHARE, _cell_share(d)) * tried) / scale.n_rows
    # A center less for the others costs at most what one of their clusters does.
    center = np.where(tried > scale.radius, scale.radius**2 * scale.n_rows / n_clusters, 0.0)
    return replace(scale, radius=float(tried[np.argmin(lost + noise + center)]))


def _least_rows(scale: Scale, share: float) -> float:
    """Return how many rows a cell between hyperplanes should hold, so that noise does not dominate."""
    counts = _cell_share(len(scale.center))
    return max(scale.noise(share, counts), 2.0 * scale.count_noise(share, counts), 4.0)


def coreset(
    scale: Scale,
    n_clusters: int,
    rng: np.random.Generator,
    share: float | None = None,
    fill: float = grids.COARSE,
) -> Conversation[Coreset]:
    """Ask for a coreset.

    Args:
        scale: noised number, centre and radius of the rows.
        n_clusters: number of clusters.
        rng: source of the hyperplanes.
        share: share of the budget; None for what suits a single fit.
        fill: rows that a grid's cell should hold where a share is given, in standard deviations of the noise
            in its count.
    """
    if share is None and few_cells(scale, n_clusters):
        return (yield from fitted(scale, n_clusters, rng))
    d, usual = len(scale.center), HASH_SHARE_IF_WIDE if wide_clusters(scale, n_clusters) else HASH_SHARE
    tried = share or (grids.GRID_SHARE if d <= GRID_FEATURES else usual)
    cells = scale.n_rows / _least_rows(scale, tried)
    if d > GRID_FEATURES or cells <= 2**d:
        return (
            yield from hashed(scale, rng, tried, int(np.clip(floor(log2(max(cells, 1.0))), 0, MOST_PLANES)))
        )
    if share is not None:
        per_axis = grids.whole_per_axis(grids.per_axis_for(scale, share, fill), d)
        kept, total = yield from grids.gridded(scale, n_clusters, share, per_axis)
        return kept.coreset(scale, total, share)
    planned, per_axis = grids.grid_plan(scale, n_clusters)
    kept, total = yield from grids.gridded(scale, n_clusters, planned, per_axis)
    if (
        found := (yield from grids.cut(replace(scale, spent=scale.spent + planned), n_clusters, total))
    ) is not None:
        return found[0].coreset(scale, found[1], planned + grids.CUT_SHARE)
    return kept.coreset(scale, total, planned)


def hash_form(frame: Frame, least: int, most: int, rng: np.random.Generator) -> Form:
    """Return the form of what `hashed` asks, with `least` to `most` hyperplanes; `rng` is kept as it is."""
    d = frame.ranges.n_features
    return Form(
        HashSums, center=Shape(d), radius=radius_rule(frame), normals=normals_rule(d, least, most, rng)
    )


def coreset_phases(frame: Frame, n_clusters: int, rng: np.random.Generator) -> Phases:
    """Return what `coreset` asks, then `slabbed`, which may be left out; `rng` is kept as it is."""
    hashes, d = hash_form(frame, 0, MOST_PLANES, rng), frame.ranges.n_features
    # Slabs may follow a grid's place too: cells between few hyperplanes, where rows are few.
    slabs = Phase(_slab_form(frame, Within(1, max(1, MOST_SLABS * n_clusters))), least=0)
    if d > GRID_FEATURES:
        return (Phase(hashes), slabs)
    form = grids.grid_form(frame, grids.LEAST_PER_AXIS, grids.MOST_PER_AXIS[d - 1])
    return (
        Phase(Among((*form.rules, hashes))),
        Phase(grids.grid_form(frame, grids.LEAST_PER_AXIS, grids.MOST_PER_AXIS[len(frame.middle) - 1]), 0),
        slabs,
    )


def _always(n_clusters: int, n_features: int) -> int:
    """Return the number of cells along an axis, or of hyperplanes, that no total changes."""
    if n_features > GRID_FEATURES:
        return min(ceil(log2(HASH_CELLS * n_clusters)), MOST_PLANES)
    return grids.whole_per_axis(ceil((GRID_CELLS * n_clusters) ** (1.0 / n_features)), n_features)


def coreset_always(scale: Scale, n_clusters: int, rng: np.random.Generator) -> Conversation[Coreset]:
    """Ask for a coreset and a second look at it, with lengths and noise that no total changes."""
    size = _always(n_clusters, len(scale.center))
    if len(scale.center) <= GRID_FEATURES:
        return (yield from grids.cut_always(scale, n_clusters, size))
    found = yield from hashed(scale, rng, HASH_SHARE, size)
    return (yield from slabbed_always(scale, found, n_clusters)) if n_clusters > 2 else found


def coreset_always_phases(frame: Frame, n_clusters: int, rng: np.random.Generator) -> Phases:
    """Return what `coreset_always` asks; `rng` is kept as it is."""
    size = _always(n_clusters, len(frame.middle))
    if len(frame.middle) <= GRID_FEATURES:
        return grids.cut_always_phases(frame, n_clusters, size)
    slabs = (Phase(_slab_form(frame, SLABS_ALWAYS * n_clusters)),) if n_clusters > 2 else ()
    return (Phase(hash_form(frame, size, size, rng)), *slabs)


def hashed(scale: Scale, rng: np.random.Generator, share: float, n_planes: int) -> Conversation[Coreset]:
    """Ask for a coreset in the cells between random hyperplanes through the scale's center."""
    return (yield from _averaged(scale, _hashes(scale, rng, n_planes), share, single=n_planes == 0))[0]


def _hashes(scale: Scale, rng: np.random.Generator, n_planes: int) -> HashSums:
    normals = drawn_normals(len(scale.center), n_planes, rng)
    return HashSums(ranges=scale.frame.ranges, center=scale.center, radius=scale.radius, normals=normals)


def fitted(scale: Scale, n_clusters: int, rng: np.random.Generator) -> Conversation[Coreset]:
    """Ask for more cells than noise allows points; return centers that explain all of them (`.decoding`).

    Of rows on a line it returns two cells, so that slabs may follow. Cells show only one through the scale's
    center; another is shown by centers that explain all cells. Three of them lie along a line by chance.
    """
    question = _hashes(scale, rng, min(len(scale.center), FITTED_PLANES))
    found, total = yield from _averaged(scale, question, HASH_SHARE, single=False)
    noise, counts = dict(total.noise_std or {}), total.statistics["count"]
    # A line through the center lies in one cell and the opposite one, whose number is the complement.
    if (counts + counts[::-1]).max() > ON_A_LINE * scale.n_rows - 3.0 * noise["count"]:
        return found.only(np.argsort(found.weights)[-2:])
    points, weights = decoded(
        scale,
        question,
        (counts, total.statistics["sum"]),
        (noise["count"], noise["sum"]),
        n_clusters,
        rng,
    )
    explaining = replace(found, points=_inside(scale, points), weights=np.maximum(weights, 1.0))
    middle = np.average(explaining.points, axis=0, weights=explaining.weights)
    if n_clusters > 3 and _main_direction(replace(scale, center=middle), explaining)[1] >= ON_A_LINE:
        return found.only(np.argsort(found.weights)[-2:])
    return explaining


def _averaged(
    scale: Scale, question: HashSums | SlabSums, share: float, *, single: bool
) -> Conversation[tuple[Coreset, Total]]:
    """Ask for cells with offsets from the scale's center, and keep the denoised means of those with rows."""
    counts_share = _cell_share(len(scale.center))
    weights = {"count": counts_share * share, "sum": (1.0 - counts_share) * share}
    total = yield Ask(question, purpose="coreset", weights=weights)
    counts, noise = total.statistics["count"], dict(total.noise_std or {})
    kept = np.flatnonzero(counts > max(2.0 * noise["count"], 1.0))
    if not kept.size:
        kept = np.array([int(np.argmax(counts))])
    held = np.maximum(counts[kept], max(2.0 * noise["count"], 1.0))
    offsets = denoised(total.statistics["sum"][kept], noise["sum"]) / held[:, None]
    offsets = clipped(offsets, scale.radius)
    if isinstance(question, SlabSums):
        # Rows beyond the radius are clipped to it, but their slab says how far they lie along the axis.
        offsets = _within(question, kept, offsets, noise["sum"] / held)
    points = _inside(scale, scale.center + offsets)
    return Coreset(
        points, held, noise["sum"], single, True, share, sliced=isinstance(question, SlabSums)
    ), total


def _within(question: SlabSums, slabs: IntArray, offsets: FloatArray, noise: FloatArray) -> FloatArray:
    """Return offsets whose part along the axis is shrunk towards the middle of its slab, and lies in it.

    The outermost slabs have no outer border: there only the inner one holds.
    """
    axis = question.axis / np.linalg.norm(question.axis)
    along, width = products(offsets, axis), 2.0 * question.reach / question.n_slabs
    middle, prior = (slabs + 0.5) * width - question.reach, width**2 / 12.0
    moved = np.clip((along - middle) * prior / (prior + noise**2), -width / 2.0, width / 2.0)
    first, last = slabs == 0, slabs == question.n_slabs - 1
    moved = np.where(first, np.minimum(along - middle, width / 2.0), moved)
    moved = np.where(last, np.maximum(along - middle, -width / 2.0), moved)
    return offsets + np.outer(middle + moved - along, axis)


def slabbed(scale: Scale, found: Coreset, n_clusters: int) -> Conversation[Coreset | None]:
    """Cut rows that lie along a line into slabs across it; None where they do not, or noise allows few slabs.

    All hyperplanes through a point cut a line at that point, so that two cells hold all rows. For two
    clusters that is enough.
    """
    axis, along = _main_direction(scale, found)
    n_slabs = int(min(MOST_SLABS * n_clusters, scale.n_rows / _least_rows(scale, WIDE_SHARE)))
    if n_clusters <= 2 or along < ON_A_LINE or n_slabs < LEAST_WIDE * n_clusters:
        return None
    return (yield from _sliced(scale, axis, n_slabs))


def slabbed_always(scale: Scale, found: Coreset, n_clusters: int) -> Conversation[Coreset]:
    """Cut rows into slabs, whatever totals say, and use these where rows lie along a line and noise is low.

    `n_clusters` must be above two.
    """
    axis, along = _main_direction(scale, found)
    n_slabs = SLABS_ALWAYS * n_clusters
    slabs = yield from _sliced(scale, axis, n_slabs)
    used = along >= ON_A_LINE and scale.n_rows >= n_slabs * _least_rows(scale, WIDE_SHARE)
    return replace(slabs if used else found, spent=found.spent + WIDE_SHARE)


def _main_direction(scale: Scale, found: Coreset) -> tuple[FloatArray, float]:
    """Return along which direction a coreset varies most, and what share of its variance that is."""
    _, values, right = np.linalg.svd(
        (found.points - scale.center) * np.sqrt(found.weights)[:, None], full_matrices=False
    )
    return right[0], float(np.square(values[0]) / max(np.square(values).sum(), np.finfo(float).tiny))


def _sliced(scale: Scale, axis: FloatArray, n_slabs: int) -> Conversation[Coreset]:
    question = SlabSums(
        ranges=scale.frame.ranges,
        center=scale.center,
        radius=scale.radius,
        axis=axis,
        reach=SLABS_REACH * scale.radius,
        n_slabs=n_slabs,
    )
    return (yield from _averaged(scale, question, WIDE_SHARE, single=False))[0]


def _slab_form(frame: Frame, n_slabs: Within | int) -> Form:
    d, radius = frame.ranges.n_features, radius_rule(frame)
    reach = Within(0.0, SLABS_REACH * radius.high)
    return Form(SlabSums, center=Shape(d), radius=radius, axis=Shape(d), reach=reach, n_slabs=n_slabs)


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


def clustered(scale: Scale, found: Coreset, n_clusters: int, rng: np.random.Generator) -> FloatArray:
    """Return k-means centers of a coreset, (n_clusters, n_features), which costs no budget.

    Doubtful points that would be clusters of their own are left out, if enough others remain. With too few
    points, each is a center, and the other centers lie near the centre of all rows.
    """
    found = _sure(found, n_clusters, rng)
    points = found.points
    if len(points) >= n_clusters:
        return _inside(scale, _best(found, n_clusters, rng)[0])
    near = scale.center + 1e-3 * scale.frame.unit * rng.standard_normal(
        (n_clusters - len(points), len(scale.center))
    )
    return _inside(scale, np.concatenate([points, near]))


def _sure(found: Coreset, n_clusters: int, rng: np.random.Generator) -> Coreset:
    """Leave out clusters of which noise alone may have made all points together."""
    for _ in range(MOST_SIFTINGS):
        if found.least is None or (found.weights >= found.least).all() or len(found.points) <= n_clusters:
            break
        labels = _best(found, n_clusters, rng)[1]
        held = np.bincount(labels, found.weights, n_clusters)
        left = (held >= np.sqrt(np.bincount(labels, found.least**2, n_clusters)))[labels]
        if left.all() or left.sum() < n_clusters:
            break
        found = found.only(left)
    return found


def _best(found: Coreset, n_clusters: int, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Return centers and labels of the best restart of k-means, after points changed clusters one by one."""
    centers = weighted_kmeans(found.points, found.weights, n_clusters, rng, n_init=RESTARTS).centers
    return exchanged(found.points, found.weights, centers)


def _inside(scale: Scale, points: FloatArray) -> FloatArray:
    return scale.frame.ranges.clip(points)


MOST_EXCHANGES = 500
"""Most changes; each lowers the inertia."""

_LEAST_GAIN = 1e-9
"""Least gain of a change, as a share of what all points together would save by leaving their clusters."""


def exchanged(points: FloatArray, weights: FloatArray, centers: FloatArray) -> tuple[FloatArray, IntArray]:
    """Move the one point whose change of cluster saves most, until none saves anything.

    Property: no clustering that is returned has a higher inertia than the one that the centers begin with.

    Args:
        points: float64 of shape (n_points, n_features).
        weights: float64 of shape (n_points,), positive.
        centers: to begin with, float64 of shape (n_clusters, n_features).

    Returns:
        The clusters' means, a cluster without points keeping its center; and each point's cluster.
    """
    labels = nearest(points, centers)
    for _ in range(MOST_EXCHANGES):
        centers, total = _means(points, weights, labels, centers)
        saved, added = _changes(many_distances(points, centers[None])[0].T, weights, labels, total)
        gain = saved - added.min(axis=1)
        point = int(gain.argmax())
        if gain[point] <= _LEAST_GAIN * saved.sum():
            break
        labels[point] = added[point].argmin()
    return _means(points, weights, labels, centers)[0], labels


def _changes(
    squares: FloatArray, weights: FloatArray, labels: IntArray, total: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return what a point saves by leaving its cluster, (n,), and adds by joining each, (n, n_clusters)."""
    own, rows = total[labels], np.arange(len(labels))
    left = own - weights
    alone = left <= 1e-9 * own
    saved = np.where(alone, 0.0, own * weights / np.where(alone, 1.0, left) * squares[rows, labels])
    added = total * weights[:, None] / (total + weights[:, None]) * squares
    added[rows, labels] = np.inf
    return saved, added


def _means(
    points: FloatArray, weights: FloatArray, labels: IntArray, centers: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return each cluster's weighted mean, or its center where it has no points; and its weight."""
    k = len(centers)
    total = np.asarray(np.bincount(labels, weights, k), dtype=np.float64)
    sums = np.stack([np.bincount(labels, weights * column, k) for column in points.T], axis=1)
    held, found = total > 0.0, centers.copy()
    found[held] = sums[held] / total[held, None]
    return found, total
