"""Points of a coreset: cells of a grid that hold rows, found in its noised total.

A noised cell without rows exceeds the threshold now and then. It does little harm among full cells of a
cluster, but much as a cluster of its own, far from all rows. So each point says from how many rows on it is
beyond doubt, and `privfed.algorithms.private.coreset.clustered` drops clusters that are not.

Clusters of few rows may fill several cells, none of which is beyond doubt. So windows of neighbouring cells
are tried too, with the sum of their counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from privfed.algorithms.private.scale import Scale
from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels.interpreted import IntArray
from privfed.questions.bounded.bounded_sums import GridSums

BoolArray = npt.NDArray[np.bool_]

# docs/algorithms/dp_kmeans.md, "Where the constants come from", says how these were found.
FALSE_CELLS = 0.2
"""How many cells that noise alone fills are expected above the level from which a cell is beyond doubt."""

WINDOW = 3
"""Cells along an axis of a window, in which cells are looked at together."""


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
        sizes: about how far a point's rows lie from it, float64 of shape (n_points,); None if unknown.
        least: rows from which on a point is beyond doubt, float64 of shape (n_points,); None if unknown.
        sliced: whether the hyperplanes were parallel, across a line.
        errors: standard deviation of the noise in a weight, float64 of shape (n_points,); None if unknown.
    """

    points: FloatArray
    weights: FloatArray
    noise: float
    single: bool
    hashed: bool
    spent: float
    sizes: FloatArray | None = None
    least: FloatArray | None = None
    sliced: bool = False
    errors: FloatArray | None = None

    def only(self, chosen: BoolArray) -> Coreset:
        """Return the chosen points."""
        sizes = None if self.sizes is None else self.sizes[chosen]
        least = None if self.least is None else self.least[chosen]
        errors = None if self.errors is None else self.errors[chosen]
        points, weights = self.points[chosen], self.weights[chosen]
        return replace(self, points=points, weights=weights, sizes=sizes, least=least, errors=errors)


@dataclass(frozen=True, slots=True)
class Counted:
    """A grid's noised total.

    Args:
        question: the grid.
        counts: of each cell.
        sums: of each cell's offsets.
        count_noise: standard deviation of the noise in a count.
        sum_noise: standard deviation of the noise in a coordinate of a sum.
    """

    question: GridSums
    counts: FloatArray
    sums: FloatArray
    count_noise: float
    sum_noise: float


@dataclass(frozen=True, slots=True)
class Kept:
    """Cells of a grid that became points.

    Args:
        cells: number of each cell, or of the uncut cell that it belongs to.
        points: where its rows lie on average, float64 of shape (n_points, n_features).
        weights: number of its rows, at least 1.
        sizes: root mean square distance from the midpoint if rows were spread evenly over the cell.
        least: rows from which on it is beyond doubt, not filled by noise alone.
        errors: standard deviation of the noise in its number of rows.
    """

    cells: IntArray
    points: FloatArray
    weights: FloatArray
    sizes: FloatArray
    least: FloatArray
    errors: FloatArray

    def __getitem__(self, chosen: BoolArray) -> Kept:
        """Return the chosen ones."""
        cells, points, weights = self.cells[chosen], self.points[chosen], self.weights[chosen]
        return Kept(cells, points, weights, self.sizes[chosen], self.least[chosen], self.errors[chosen])

    def coreset(self, scale: Scale, total: Counted, spent: float) -> Coreset:
        """Return the points as a coreset."""
        noise = total.sum_noise * scale.radius / total.question.radius
        return Coreset(
            self.points,
            self.weights,
            noise,
            False,
            False,
            spent,
            sizes=self.sizes,
            least=self.least,
            errors=self.errors,
        )


def joined(*several: Kept) -> Kept:
    """Return all of several."""
    return Kept(
        np.concatenate([one.cells for one in several]),
        np.concatenate([one.points for one in several]),
        np.concatenate([one.weights for one in several]),
        np.concatenate([one.sizes for one in several]),
        np.concatenate([one.least for one in several]),
        np.concatenate([one.errors for one in several]),
    )


def with_neighbours(kept: Kept, total: Counted) -> Kept:
    """Return cells of a grid with what windows of neighbouring cells show, none of which shows it alone.

    A window counts its cells that noise alone may fill. Where they are beyond doubt together, those that were
    kept are so, too, and all others are one point. So clusters are seen that hold few rows in several cells.
    """
    d, per_axis = len(total.question.middles()[0]), total.question.per_axis
    if per_axis < 2 * WINDOW:
        return kept
    # As many windows are tried as there are cells.
    shape, noise, level = (per_axis,) * d, total.count_noise, beyond_doubt(2 * len(total.counts))
    weak, alone = total.counts < level * noise, np.ones(len(total.counts), dtype=np.bool_)
    alone[kept.cells] = False
    places, least = np.indices(shape).reshape(d, -1), kept.least.copy()
    found: list[Kept] = []
    while True:
        held = _windowed(np.where(weak, total.counts, 0.0).reshape(shape))
        number = np.maximum(_windowed(weak.astype(np.float64).reshape(shape)), 1.0)
        above = held / (noise * np.sqrt(number))
        best = int(above.argmax())
        if above[best] < level:
            return joined(replace(kept, least=least), *found)
        inside = weak & (np.abs(places - places[:, best, None]).max(axis=0) <= WINDOW // 2)
        weak &= ~inside
        least[inside[kept.cells]] = 0.0
        others = np.flatnonzero(inside & alone)
        rows, counts = total.counts[others].sum(), np.maximum(total.counts[others], 0.0)
        if rows >= max(noise * sqrt(len(others)), 1.0):
            point = counts @ total.question.middles()[others] / counts.sum()
            size, fullest = np.array([WINDOW / 2.0 * size_of(total.question)]), others[[counts.argmax()]]
            error = np.array([noise * sqrt(len(others))])
            found.append(Kept(fullest, point[None], np.array([rows]), size, np.zeros(1), error))


def _windowed(cells: FloatArray) -> FloatArray:
    """Return the sum of each cell's window, flat."""
    for axis in range(cells.ndim):
        around = [(WINDOW // 2 + 1, WINDOW // 2) if i == axis else (0, 0) for i in range(cells.ndim)]
        sums, rows = np.cumsum(np.pad(cells, around), axis=axis), np.arange(cells.shape[axis])
        cells = sums.take(rows + WINDOW, axis=axis) - sums.take(rows, axis=axis)
    return cells.ravel()


def size_of(question: GridSums) -> float:
    """Return the root mean square distance of rows from a cell's midpoint, if they were spread evenly."""
    return float(np.linalg.norm(question.widths)) / sqrt(12.0)


def beyond_doubt(n_cells: int) -> float:
    """Return the count, in standard deviations of its noise, above which a cell is beyond doubt."""
    level: float = norm.isf(FALSE_CELLS / max(n_cells, 1))
    return level
