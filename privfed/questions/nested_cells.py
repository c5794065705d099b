"""Counts and sums of the rows in public cells that do not move: they follow from the ranges alone.

The cells of `privfed.questions.cells` pass through the mean of all rows, and their hyperplanes follow from a
run's seed. Two fits on the same rows then ask about cells that overlap, whose intersections are slivers of
single rows. These cells are the same in each fit. Up to three features they are dyadic boxes, with sides that
are powers of two and borders at multiples of them. Above, space is cut by hyperplanes with fixed directions
through one point on a dyadic grid near the ranges' middle. The first m of them are the cut for m. So cells of
two fits are the same or lie within each other, also for other numbers of clusters, and boxes also for other
ranges. Borders of hyperplanes move where a range moves by about an eighth of its width.

Reveals to whoever opens the total what `CellSums` reveals, and the second time on the same rows nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from privfed.core.asking.declaration import Effort
from privfed.core.asking.phases import Form, Within
from privfed.core.asking.question import register
from privfed.core.roles.conversation import Setting
from privfed.core.values.domain import FloatArray, frozen_array
from privfed.errors import ArgumentError
from privfed.numerics.kernels.interpreted import IntArray
from privfed.questions.cells import (
    GRID_FEATURES,
    MOST_PLANES,
    SumsInPublicCells,
    cells_wanted,
    drawn_normals,
    n_planes,
    per_axis,
)
from privfed.questions.ranges import ROW_BINS, Located

ROOM = 2
"""Boxes are wanted for so many times the clusters, as there are between half and all of them."""

_SEED = 202211
"""Of the normals, the same in all fits of everybody."""

_ANCHOR_STEPS = 8.0
"""Steps of the anchor's grid in a range, at least half of them."""


@lru_cache(maxsize=16)
def _normals(n_features: int, n_planes: int) -> FloatArray:
    # All are drawn at once, so that the first m are the cut for m. The first ones, as many as there are
    # dimensions, are orthogonal.
    rng = np.random.default_rng(_SEED)
    orthogonal = drawn_normals(n_features, n_features, rng)[:MOST_PLANES]
    return frozen_array(np.concatenate([orthogonal, drawn_normals(n_features, MOST_PLANES, rng)])[:n_planes])


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class NestedCells(SumsInPublicCells):
    """Asks for counts and sums of the rows in cells that follow from the ranges alone.

    Args:
        sides: most boxes along each feature, for up to three features; else 0.
        planes: number of hyperplanes, for more features; else 0.
    """

    sides: int
    planes: int

    def __post_init__(self) -> None:
        grid = self.ranges.n_features <= GRID_FEATURES
        least, most, asked = (2, 1 << 10, self.sides) if grid else (1, MOST_PLANES, self.planes)
        if not least <= asked <= most or (self.planes if grid else self.sides):
            raise ArgumentError(
                f"nested cells have {least} to {most} {'boxes a side' if grid else 'hyperplanes'} for "
                f"{self.ranges.n_features} features, got sides={self.sides}, planes={self.planes}."
            )

    def effort(self, n_features: int) -> Effort:
        """Hyperplanes follow from as many orthogonal directions as there are features."""
        few = 1 if not self.planes else n_features
        return Effort(numbers=few**2, work=few**3, row_work=self.planes * n_features)

    @cached_property
    def _boxes(self) -> tuple[FloatArray, FloatArray, IntArray]:
        """Widths of the boxes, first multiples of them, and numbers along each feature."""
        low, high = self.ranges.low, self.ranges.high
        exponent = np.ceil(np.log2(np.maximum(self.ranges.width, 2.0**-900) / self.sides))
        while True:
            size = np.exp2(exponent)
            # Rows lie below the end of a range that was found, so that no box begins there.
            first = np.floor(low / size)
            last = np.maximum(np.ceil(high / size) - 1.0, first)
            many = last - first >= self.sides
            if not many.any():
                return size, first, (last - first + 1.0).astype(np.intp)
            exponent = exponent + many

    @cached_property
    def _scale(self) -> FloatArray:
        """Widths of the ranges, rounded up to powers of two."""
        return np.exp2(np.ceil(np.log2(np.maximum(self.ranges.width, 2.0**-900))))

    @property
    def anchor(self) -> FloatArray:
        """The point through which hyperplanes pass, float64 of shape (n_features,)."""
        step, middle = self._scale / _ANCHOR_STEPS, self.ranges.low + 0.5 * self.ranges.width
        return np.clip(np.rint(middle / step) * step, self.ranges.low, self.ranges.high)

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return 1 << self.planes if self.planes else int(np.prod(self._boxes[2]))

    def cells(self, rows: FloatArray) -> IntArray:
        """Return the cell of each row, intp of shape (n_rows,)."""
        if self.planes:
            above = (rows - self.anchor) / self._scale @ _normals(rows.shape[1], self.planes).T > 0
            return above @ (1 << np.arange(self.planes))
        size, first, numbers = self._boxes
        index = np.clip(np.floor(rows / size) - first, 0, numbers - 1).astype(np.intp)
        return np.asarray(np.ravel_multi_index(tuple(index.T), tuple(numbers.tolist())), dtype=np.intp)


def nested_cells(located: Located, n_clusters: int) -> NestedCells:
    """Return the question about as many cells as `n_clusters` clusters of the located rows need."""
    d, rows = located.ranges.n_features, located.n_rows
    grid = d <= GRID_FEATURES
    # Sides are powers of two, so that there are between half and all of the most boxes along each feature.
    sides = 2 * per_axis(cells_wanted(rows, ROOM * n_clusters), d) if grid else 0
    planes = 0 if grid else n_planes(cells_wanted(rows, n_clusters))
    return NestedCells(ranges=located.ranges, sides=sides, planes=planes)


def nested_form(setting: Setting, n_clusters: int) -> Form:
    """Return the form of `nested_cells`, whose number depends on that of rows."""
    d, most_rows = setting.n_features, len(setting.clients) * (setting.max_rows or 2 ** (ROW_BINS - 1))
    if d <= GRID_FEATURES:
        few, many = (2 * per_axis(cells_wanted(n, ROOM * n_clusters), d) for n in (1, most_rows))
        return Form(NestedCells, sides=Within(few, many), planes=0)
    fewest, most = cells_wanted(1, n_clusters), cells_wanted(most_rows, n_clusters)
    return Form(NestedCells, sides=0, planes=Within(n_planes(fewest), n_planes(most)))
