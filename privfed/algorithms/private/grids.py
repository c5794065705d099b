"""A coreset from a grid, for few features: cells over the domain, or over a box around all rows.

The grid has few rows a cell where there are many clusters, and more where they allow it: a coarse grid also
shows clusters that hold few rows. Where nearly all rows lie in a few cells, a second question cuts these,
and counts the others again.

Reveals to whoever opens the totals: noised counts and sums of rows in public cells.
"""

from __future__ import annotations

from dataclasses import replace
from math import floor, sqrt

import numpy as np
from scipy.stats import norm

from privfed.algorithms.private.points import (
    Coreset,
    Counted,
    Kept,
    beyond_doubt,
    joined,
    size_of,
    with_neighbours,
)
from privfed.algorithms.private.scale import Frame, Scale, octave, radius_rule
from privfed.core.asking.phases import Among, Form, Phase, Phases, Shape, Within
from privfed.core.roles.conversation import Ask, Conversation
from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels.interpreted import IntArray
from privfed.questions.bounded.bounded_sums import MOST_CUTS, GridSums

# docs/algorithms/dp_kmeans.md, "Where the constants come from", says how these were found.
GRID_SHARE, MOST_GRID_SHARE, CUT_SHARE = 0.30, 0.65, 0.12
"""Share of the budget for the grid, at most where cells are few for the clusters; and for cutting cells."""

ROUNDS_SHARE = 0.1
"""Least share of the budget that is left for the rounds, however often the scale was searched."""

COUNT_PART = 0.8
"""Part of a grid's share for its counts; the rest is for the sums."""

COARSE, FINE, CELLS_PER_CLUSTER = 4.0, 2.0, 5.0
"""Rows that a cell holds on average, in standard deviations of the noise in its count. A grid is as coarse as
`COARSE` says, or finer, down to `FINE`, while it has fewer than so many cells for each cluster."""

LEAST_PER_AXIS, MOST_PER_AXIS, MOST_PARTS = 3, (64, 40, 16), (64, 16, 6)
"""Fewest and most cells along an axis, and most parts of a cell along one, by number of features."""

KEPT, MOST_FALSE, SURE = 2.0, 3.0, 3.0
"""A cell's least count, in standard deviations of its noise, to be kept; how many cells that hold noise only
are expected among the kept ones, which k-means and rounds leave out; and a full cell's least count."""

PARTS_ALWAYS = (16, 8, 6)
"""Parts of a cell along an axis where no total may say into how many it is cut, by number of features."""

FINE_PARTS = (32, 16, 12)
"""Least parts of a cell along an axis where cells must hold several clusters, by number of features."""

FEW_PARTS = 4.0
"""In how many of these parts a cluster of mean size is still seen above noise, where they are used."""

CUT_KEPT = 2.5
"""A cell's least count, in standard deviations of its noise, to be cut."""

MOST_FULL, LEAST_PARTS = 4.0, 2.0
"""Cells are cut where fewer than `MOST_FULL` for each cluster are full, and this makes so many parts more."""

SURER = 10
"""So many times fewer false parts of cells than false cells are beyond doubt: a cluster that is missed among
parts is near others."""

MARGIN = 1.1
"""Half the width of a box around all rows, in units of the radius that holds them."""

_MOST_CUT_CELLS = 1 << 14


def per_axis_for(scale: Scale, share: float, rows: float) -> float:
    """Return how many cells along an axis hold so many rows, in standard deviations of a count's noise."""
    d = len(scale.center)
    return float((scale.n_rows / max(rows * scale.count_noise(share, COUNT_PART), 4.0)) ** (1.0 / d))


def grid_plan(scale: Scale, n_clusters: int) -> tuple[float, int]:
    """Return the share of the budget for a grid, and its number of cells along an axis.

    The share is larger where the grid would have few cells for the clusters, since counts must be exact
    enough to find them before rounds can improve them.
    """
    d, wanted = len(scale.center), CELLS_PER_CLUSTER * n_clusters
    coarse = per_axis_for(scale, GRID_SHARE, COARSE)
    # The noise falls with the root of the share.
    missing = (wanted / per_axis_for(scale, GRID_SHARE, FINE) ** d) ** 2
    most = min(MOST_GRID_SHARE, 1.0 - ROUNDS_SHARE - scale.spent)
    share = float(np.clip(GRID_SHARE * missing, GRID_SHARE, most))
    return share, whole_per_axis(max(coarse, min(per_axis_for(scale, share, FINE), wanted ** (1.0 / d))), d)


def whole_per_axis(per_axis: float, n_features: int) -> int:
    """Return a whole number of cells along an axis, within the limits."""
    return int(np.clip(floor(per_axis), LEAST_PER_AXIS, MOST_PER_AXIS[n_features - 1]))


def grid_form(frame: Frame, least: int, most: int) -> Among:
    """Return the form of what a grid asks, with `least` to `most` cells along an axis, cut or not."""
    return Among(_grid_forms(frame, least, most))


def _grid_forms(frame: Frame, least: int, most: int) -> tuple[Form, Form]:
    """Return the forms of an uncut grid and of a cut one."""
    d, sides, radius = frame.ranges.n_features, Within(least, most), radius_rule(frame)
    known, boxes = {"per_axis": sides, "radius": radius}, {"low": Shape(d), "high": Shape(d)}
    cut = {"cuts": Shape((least**d, most**d))}
    return Form(GridSums, **known, **boxes), Form(GridSums, **known, **boxes, **cut)


def box(scale: Scale, per_axis: int, octaves: bool) -> tuple[FloatArray, FloatArray, float]:
    """Return the corners of a grid's box, and the length to which offsets in its cells are clipped.

    It is the domain, unless all rows would lie within about one of its cells: then a box around them.
    """
    ranges = scale.frame.ranges
    reach = float(np.linalg.norm(ranges.width / per_axis / 2.0)) * (1.0 + 2.0**-30)
    half = np.full(len(scale.center), MARGIN * scale.extent)
    if not (2.0 * half <= ranges.width / per_axis).all():
        return ranges.low, ranges.high, reach
    if octaves:
        smaller = octave(float((2.0 * half / ranges.width).max()), 1.0)
        half, reach = ranges.width * smaller, reach * 2.0 * smaller
    low, high = scale.center - half, scale.center + half
    if not octaves:
        low, high = ranges.clip(low), ranges.clip(high)
        reach = float(np.linalg.norm((high - low) / per_axis / 2.0)) * (1.0 + 2.0**-30)
    return low, high, reach


def gridded(
    scale: Scale, n_clusters: int, share: float, per_axis: int, octaves: bool = False
) -> Conversation[tuple[Kept, Counted]]:
    """Ask for a grid's cells, and keep those that hold rows.

    Args:
        scale: noised number, centre and radius of the rows.
        n_clusters: number of clusters.
        share: share of the budget.
        per_axis: number of cells along an axis.
        octaves: clip to the domain's radius over powers of two, so that sigma, in steps, is the same for all.
    """
    low, high, reach = box(scale, per_axis, octaves)
    ranges = scale.frame.ranges
    total = yield from _counted(
        GridSums(ranges=ranges, per_axis=per_axis, radius=reach, low=low, high=high), share
    )
    return _found(total, n_clusters), total


def _found(total: Counted, n_clusters: int) -> Kept:
    """Return the cells of an uncut grid that hold rows, with what windows of them show."""
    kept = np.flatnonzero(total.counts > max(_least(len(total.counts)) * total.count_noise, 1.0))
    if len(kept) < n_clusters:
        kept = np.sort(np.argsort(-total.counts, kind="stable")[: n_clusters + 1])
    return with_neighbours(_kept(total, kept, len(total.counts)), total)


def cut(scale: Scale, n_clusters: int, total: Counted) -> Conversation[tuple[Kept, Counted] | None]:
    """Cut cells that hold many rows, if clusters may be smaller than cells; None where nothing is asked.

    Nothing is asked either where the rounds would get too little of the budget; `scale.spent` must include
    the grid's share.
    """
    if scale.spent + CUT_SHARE > 1.0 - ROUNDS_SHARE:
        return None
    cuts = _cuts(scale, total, n_clusters)
    more = (cuts ** len(scale.center)).sum() - len(cuts)
    if _n_full(total) >= MOST_FULL * n_clusters or more <= LEAST_PARTS * n_clusters:
        return None
    return (yield from _cut_into(n_clusters, total, cuts))


def _cut_into(n_clusters: int, total: Counted, cuts: FloatArray) -> Conversation[tuple[Kept, Counted]]:
    """Cut each cell of a grid into so many parts along each axis, and keep the parts that hold rows.

    Cells that are not cut are counted twice: both totals together show groups that one hides in noise.
    """
    question = total.question
    finer = yield from _counted(replace(question, cuts=cuts), CUT_SHARE)
    owners = finer.question.owners()
    tried = int((cuts[owners] > 1.0).sum())
    least = max(_least(tried) * finer.count_noise, 1.0)
    small = _kept(finer, np.flatnonzero((cuts[owners] > 1.0) & (finer.counts > least)), tried * SURER)
    # A cell most of whose rows lie in no kept part stays a point of its own.
    rest = total.counts - np.bincount(small.cells, small.weights, len(cuts))
    noise = total.count_noise**2 + np.bincount(small.cells, minlength=len(cuts)) * finer.count_noise**2
    lost = (rest > 0.5 * total.counts) & (rest > np.maximum(beyond_doubt(len(cuts)) * np.sqrt(noise), 1.0))
    left = np.flatnonzero((cuts > 1.0) & lost)
    whole = Kept(
        left,
        question.middles()[left],
        rest[left],
        np.full(len(left), size_of(question)),
        np.zeros(len(left)),
        np.sqrt(noise[left]),
    )
    others = _found(_twice(total, finer, cuts), n_clusters)
    others = others[cuts[others.cells] == 1.0]
    return joined(small, whole, others), finer


def _twice(total: Counted, finer: Counted, cuts: FloatArray) -> Counted:
    """Return a grid's total, in which the cells that were not cut have the second total's rows also.

    Both count and sum these cells' rows. Each has the weight that its noise gives it.
    """
    whole, again = cuts == 1.0, cuts[finer.question.owners()] == 1.0
    counts, sums = total.counts.copy(), total.sums.copy()
    part = finer.count_noise**2 / (finer.count_noise**2 + total.count_noise**2)
    counts[whole] = part * counts[whole] + (1.0 - part) * finer.counts[again]
    of_sums = finer.sum_noise**2 / (finer.sum_noise**2 + total.sum_noise**2)
    sums[whole] = of_sums * sums[whole] + (1.0 - of_sums) * finer.sums[again]
    noise, of_sum = sqrt(part) * total.count_noise, sqrt(of_sums) * total.sum_noise
    return Counted(total.question, counts, sums, noise, of_sum)


def cut_always(scale: Scale, n_clusters: int, per_axis: int) -> Conversation[Coreset]:
    """Ask for a grid, and then for its fullest cells in parts, with lengths and noise that no total changes.

    The parts are used where few cells are full. As many cells are cut as there are clusters.
    """
    kept, total = yield from gridded(scale, n_clusters, GRID_SHARE, per_axis, octaves=True)
    found, parts = kept.coreset(scale, total, GRID_SHARE), parts_always(n_clusters, len(scale.center))
    if parts == 1:
        return found
    cuts, spent = np.ones(len(total.counts)), GRID_SHARE + CUT_SHARE
    cuts[np.argsort(-total.counts, kind="stable")[:n_clusters]] = parts
    finer = yield from _cut_into(n_clusters, total, cuts)
    if _n_full(total) >= MOST_FULL * n_clusters or len(finer[0].points) < n_clusters:
        return replace(found, spent=spent)
    return finer[0].coreset(scale, finer[1], spent)


def parts_always(n_clusters: int, n_features: int) -> int:
    """Return into how many parts along an axis `cut_always` cuts a cell; 1 where it cuts none."""
    allowed = floor((_MOST_CUT_CELLS / n_clusters) ** (1.0 / n_features))
    return min(PARTS_ALWAYS[n_features - 1], allowed) if n_clusters > 1 else 1


def cut_always_phases(frame: Frame, n_clusters: int, per_axis: int) -> Phases:
    """Return what `cut_always` asks."""
    whole, cut = _grid_forms(frame, per_axis, per_axis)
    uncut = parts_always(n_clusters, len(frame.middle)) == 1
    return (Phase(whole),) if uncut else (Phase(whole), Phase(cut))


def _n_full(total: Counted) -> int:
    return int((total.counts > SURE * total.count_noise).sum())


def _cuts(scale: Scale, total: Counted, n_clusters: int) -> FloatArray:
    """Return into how many parts along an axis each cell is cut: as many as noise allows.

    With fewer full cells than clusters, some hold several clusters and empty space between these. They
    are cut finer: parts without rows stay below the threshold, and cost nothing. That is so only where
    clusters of mean size would be seen although they lie in a few parts each: with more noise, cells are
    few because noise hides the others.
    """
    d, rows = len(scale.center), max(FINE * scale.count_noise(CUT_SHARE, COUNT_PART), 4.0)
    parts = np.floor((np.maximum(total.counts, 0.0) / rows) ** (1.0 / d))
    held, limit = total.counts > CUT_KEPT * total.count_noise, MOST_PARTS[d - 1]
    fine = FINE_PARTS[d - 1]
    seen = FEW_PARTS * beyond_doubt(int(held.sum()) * fine**d) * scale.count_noise(CUT_SHARE, COUNT_PART)
    if _n_full(total) < n_clusters and total.counts[held].sum() >= seen * n_clusters:
        parts, limit = np.where(total.counts >= seen, np.maximum(parts, fine), parts), max(limit, fine)
    most = min(limit, MOST_CUTS, floor((_MOST_CUT_CELLS / max(held.sum(), 1)) ** (1.0 / d)))
    return np.asarray(np.where(held, np.clip(parts, 1, max(most, 1)), 1.0))


def _counted(question: GridSums, share: float) -> Conversation[Counted]:
    weights = {"count": COUNT_PART * share, "sum": (1.0 - COUNT_PART) * share}
    total = yield Ask(question, purpose="coreset", weights=weights)
    noise = dict(total.noise_std or {})
    return Counted(question, total.statistics["count"], total.statistics["sum"], noise["count"], noise["sum"])


def _kept(total: Counted, cells: IntArray, n_tried: int) -> Kept:
    question = total.question
    owners = question.owners()[cells]
    weights, parts = np.maximum(total.counts[cells], 1.0), question.parts[owners]
    half = question.widths / 2.0
    # Means are shrunk towards their cell's midpoint; the prior variance is that of a uniform distribution
    # over half of the cell's width. Offsets are magnified as cells were cut.
    prior, noise = (2.0 * half) ** 2 / 48.0, (total.sum_noise / weights[:, None]) ** 2
    offsets = np.clip(total.sums[cells] / weights[:, None] * (prior / (prior + noise)), -half, half)
    points = question.middles()[cells] + offsets / parts[:, None]
    least = np.full(len(cells), beyond_doubt(n_tried) * total.count_noise)
    errors = np.full(len(cells), total.count_noise)
    return Kept(owners, points, weights, size_of(question) / parts, least, errors)


def _least(n_cells: int) -> float:
    """Return the least count of a cell to be kept: of many cells noise alone should fill about three."""
    return float(max(KEPT, norm.isf(MOST_FALSE / max(n_cells, 2.0 * MOST_FALSE))))
