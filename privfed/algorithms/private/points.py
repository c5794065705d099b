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
"""Most cells along an axis of a window, in which cells are looked at together."""

DOUBTFUL = 2.0
"""Least count of a doubtful window, in standard deviations of its noise."""


@dataclass(frozen=True, slots=True)
class Doubts:
    """Points that noise alone may have made, and what all counts together say of them.

    Args:
        points: float64 of shape (n_points, n_features).
        rows: number of rows of each, as all counts have it, float64 of shape (n_points,).
        precision: one over the variance of the noise in that, float64 of shape (n_points,).
        least: in how many deviations of that noise a point is beyond doubt, float64 of shape (n_points,).
    """

    points: FloatArray
    rows: FloatArray
    precision: FloatArray
    least: FloatArray

    @property
    def above(self) -> FloatArray:
        """By how many deviations of that noise a point has rows."""
        return self.rows * np.sqrt(self.precision)

    def joined(self, other: Doubts) -> Doubts:
        """Return both."""
        return Doubts(
            np.concatenate([self.points, other.points]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.precision, other.precision]),
            np.concatenate([self.least, other.least]),
        )

    def only(self, chosen: IntArray) -> Doubts:
        """Return the chosen ones."""
        rows, precision = self.rows[chosen], self.precision[chosen]
        return Doubts(self.points[chosen], rows, precision, self.least[chosen])


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
        doubts: points that noise alone may have made, not all of them among the others; None if unknown.
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
    doubts: Doubts | None = None

    def only(self, chosen: BoolArray | IntArray) -> Coreset:
        """Return the chosen points."""
        sizes = None if self.sizes is None else self.sizes[chosen]
        least = None if self.least is None else self.least[chosen]
        errors = None if self.errors is None else self.errors[chosen]
        points, weights = self.points[chosen], self.weights[chosen]
        return replace(self, points=points, weights=weights, sizes=sizes, least=least, errors=errors)

    def surely(self, chosen: list[int]) -> Coreset:
        """Return the points with some doubtful ones, which are beyond doubt now."""
        doubts, none = self.doubts, np.zeros(len(chosen))
        if doubts is None or self.sizes is None or self.least is None or self.errors is None:
            return self
        return replace(
            self,
            points=np.concatenate([self.points, doubts.points[chosen]]),
            weights=np.concatenate([self.weights, np.maximum(doubts.rows[chosen], 1.0)]),
            sizes=np.concatenate([self.sizes, none]),
            least=np.concatenate([self.least, none]),
            errors=np.concatenate([self.errors, doubts.precision[chosen] ** -0.5]),
            doubts=doubts.only(np.delete(np.arange(len(doubts.rows)), chosen)),
        )


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
        windows: of cells, that noise alone may have made; None if there are none.
    """

    cells: IntArray
    points: FloatArray
    weights: FloatArray
    sizes: FloatArray
    least: FloatArray
    errors: FloatArray
    windows: Doubts | None = None

    def __getitem__(self, chosen: BoolArray) -> Kept:
        """Return the chosen ones."""
        cells, points, weights = self.cells[chosen], self.points[chosen], self.weights[chosen]
        sizes, least, errors = self.sizes[chosen], self.least[chosen], self.errors[chosen]
        return Kept(cells, points, weights, sizes, least, errors, self.windows)

    def coreset(self, scale: Scale, total: Counted, spent: float) -> Coreset:
        """Return the points as a coreset."""
        return Coreset(
            self.points,
            self.weights,
            total.sum_noise * scale.radius / total.question.radius,
            False,
            False,
            spent,
            sizes=self.sizes,
            least=self.least,
            errors=self.errors,
            doubts=self.windows,
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
        next((one.windows for one in several if one.windows is not None), None),
    )


def with_neighbours(kept: Kept, total: Counted) -> Kept:
    """Return cells of a grid with what windows of neighbouring cells show, none of which shows it alone.

    Windows are all boxes of one to `WINDOW` cells along each axis: rows in two cells drown in a larger one. A
    window counts its cells that noise alone may fill. Where they are beyond doubt together, those that were
    kept are so, too, and all others are one point. So clusters are seen that hold few rows in several cells.
    Other windows of at least `DOUBTFUL` deviations are doubtful.
    """
    question, noise = total.question, total.count_noise
    d, per_axis, n = len(question.middles()[0]), question.per_axis, len(total.counts)
    shape, middles = (per_axis,) * d, question.middles()
    sides = np.indices((WINDOW,) * d).reshape(d, -1).T + 1
    level = beyond_doubt(len(sides) * n)
    weak, alone = total.counts < level * noise, np.ones(n, dtype=np.bool_)
    alone[kept.cells] = False
    places, least = np.indices(shape).reshape(d, -1), kept.least.copy()
    found, doubts = list[Kept](), list[tuple[FloatArray, float, float, float]]()
    while True:
        held = _boxes(np.where(weak, total.counts, 0.0).reshape(shape), sides)
        number = np.maximum(_boxes(weak.astype(np.float64).reshape(shape), sides), 1.0)
        above = held / (noise * np.sqrt(number))
        best, first = divmod(int(above.argmax()), n)
        if above[best, first] < DOUBTFUL:
            break
        off = places - places[:, first, None]
        inside = weak & ((off >= 0) & (off < sides[best][:, None])).all(axis=0)
        weak &= ~inside
        if above[best, first] < level:
            counts = np.maximum(total.counts[inside], 0.0)
            rows, var = total.counts[inside].sum(), noise**2 * inside.sum()
            doubts.append((counts @ middles[inside] / counts.sum(), rows, 1.0 / var, level))
            continue
        least[inside[kept.cells]] = 0.0
        others = np.flatnonzero(inside & alone)
        rows, counts = total.counts[others].sum(), np.maximum(total.counts[others], 0.0)
        if rows >= max(noise * sqrt(len(others)), 1.0):
            point = counts @ middles[others] / counts.sum()
            size, fullest = (
                np.array([sides[best].mean() / 2.0 * size_of(question)]),
                others[[counts.argmax()]],
            )
            error = np.array([noise * sqrt(len(others))])
            found.append(Kept(fullest, point[None], np.array([rows]), size, np.zeros(1), error))
    windows = Doubts(*(np.array(column) for column in zip(*doubts, strict=True))) if doubts else None
    return joined(replace(kept, least=least, windows=windows), *found)


def _boxes(cells: FloatArray, sides: IntArray) -> FloatArray:
    """Return the sum of the box of each size (n_sizes, d) that begins at each cell, (n_sizes, n_cells)."""
    padded = np.pad(cells, [(1, WINDOW)] * cells.ndim)
    for axis in range(cells.ndim):
        padded = np.cumsum(padded, axis=axis)
    found = list[FloatArray]()
    for size in sides:
        window = padded
        for axis, side in enumerate(size.tolist()):
            rows = np.arange(cells.shape[axis])
            window = window.take(rows + side, axis=axis) - window.take(rows, axis=axis)
        found.append(window.ravel())
    return np.array(found)


def size_of(question: GridSums) -> float:
    """Return the root mean square distance of rows from a cell's midpoint, if they were spread evenly."""
    return float(np.linalg.norm(question.widths)) / sqrt(12.0)


def beyond_doubt(n_cells: int) -> float:
    """Return the count, in standard deviations of its noise, above which a cell is beyond doubt."""
    return float(norm.isf(FALSE_CELLS / max(n_cells, 1)))
