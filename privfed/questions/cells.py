"""Counts and sums of the rows in public cells: cells around a point, and nested cells that do not move.

**Cells around a point (`CellSums`).** Public cells whose borders pass through a point, and counts and sums
of the rows in them.

Reveals to whoever opens the total: how many rows of all clients lie in each cell, and their sum. A
cell can hold a single row.

**Nested cells (`NestedCells`).** Public cells that do not move: counts and sums of rows in cells that
follow from the ranges alone.

The cells of `privfed.questions.cells` pass through the mean of all rows, and their hyperplanes follow from a
run's seed: two fits on the same rows ask about cells that overlap, whose intersections are slivers of single
rows. These cells are the same in each fit. Up to three features they are dyadic boxes, with sides that are
powers of two and borders at multiples of them; above, hyperplanes with fixed normals pass through a point on
a dyadic grid near the ranges' middle, and fewer of them are the first of more. So cells of two fits are the
same or lie within each other, also for other numbers of clusters, and of boxes also for other ranges. Borders
of hyperplanes move where a range moves by about an eighth of its width.

Reveals to whoever opens the total what `CellSums` reveals, and the second time on the same rows nothing more.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, log2
from typing import ClassVar, NamedTuple

import numpy as np

from privfed.core.asking.declaration import Declaration, Effort
from privfed.core.asking.phases import Form, Near, Rule, Same, Shape, Within
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.conversation import Setting
from privfed.core.values.domain import FloatArray, Ranges, frozen_array
from privfed.errors import ArgumentError
from privfed.numerics.kernels.interpreted import IntArray, cell_sums
from privfed.questions.lloyd import RESOLUTION, check_centers, sums_entry
from privfed.questions.ranges import ROW_BINS, Located

GRID_FEATURES = 3
"""Up to this many features an initialisation's cells form a grid; above, hyperplanes divide the space."""

MOST_PLANES = 16


def cells_wanted(n_rows: int, n_clusters: int) -> int:
    """Return how many cells an initialisation wants: one for eight rows, 8 to 32 for each cluster."""
    return min(max(n_rows // 8, 8 * n_clusters), 32 * n_clusters)


def per_axis(wanted: int, n_features: int) -> int:
    """Return how many cells a grid has on each side of its center along each axis."""
    a_side: float = wanted ** (1.0 / n_features)
    return max(1, round(a_side / 2.0))


def n_planes(wanted: int) -> int:
    """Return how many hyperplanes divide the space into about `wanted` cells."""
    return min(ceil(log2(wanted)), MOST_PLANES)


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells(Question):
    """Questions that assign rows to public cells: a grid, or the cells between hyperplanes.

    Args:
        center: point through which the cells' borders pass, float64 of shape (n_features,).
        normals: normals of the hyperplanes, float64 of shape (n_planes, n_features); with n_planes = 0 the
            cells form a grid.
        per_axis: number of grid cells on each side of `center` along each axis; 0 with hyperplanes.
    """

    center: FloatArray
    normals: FloatArray
    per_axis: int

    def __post_init__(self) -> None:
        check_centers(self.center[None], self.ranges)
        if (self.center < self.ranges.low).any() or (self.center > self.ranges.high).any():
            raise ArgumentError("the cells' center must lie within the ranges.")
        planes = len(self.normals) if self.normals.ndim == 2 else -1
        if not 0 <= planes <= MOST_PLANES or self.normals.shape[1] != self.ranges.n_features:
            raise ArgumentError(
                f"normals need {MOST_PLANES} rows of {self.ranges.n_features} at most, got "
                f"{self.normals.shape}."
            )
        many = self.per_axis and (self.per_axis > 1 << 20 or self.ranges.n_features > 20)
        if (planes == 0) == (self.per_axis == 0) or self.per_axis < 0 or many or self.n_cells > 1 << 20:
            raise ArgumentError(f"cells are a grid or lie between hyperplanes, got per_axis={self.per_axis}.")

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        if self.per_axis:
            return int((2 * self.per_axis) ** self.ranges.n_features)
        return 1 << len(self.normals)

    def cells(self, rows: FloatArray) -> IntArray:
        """Return the cell of each row, intp of shape (n_rows,)."""
        if not self.per_axis:
            sides = (rows - self.center) @ self.normals.T > 0
            return sides @ (1 << np.arange(len(self.normals)))
        below = np.maximum(self.center - self.ranges.low, np.finfo(np.float64).tiny)
        above = np.maximum(self.ranges.high - self.center, np.finfo(np.float64).tiny)
        offset = rows - self.center
        with np.errstate(over="ignore"):  # On a side of width zero, offsets are only rounding errors.
            steps = offset / np.where(offset < 0, below, above) * self.per_axis
        index = np.clip(np.floor(steps), -self.per_axis, self.per_axis - 1).astype(np.intp) + self.per_axis
        return np.asarray(
            np.ravel_multi_index(tuple(index.T), (2 * self.per_axis,) * rows.shape[1]), dtype=np.intp
        )


class SumsInPublicCells(Question):
    """Asks for counts and sums of the rows in the cells that a kind of question has.

    Statistics: `count` (n_cells,), `sum` (n_cells, n_features).
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS

    @property
    @abstractmethod
    def n_cells(self) -> int:
        """Number of cells."""

    @abstractmethod
    def cells(self, rows: FloatArray) -> IntArray:
        """Return the cell of each row, intp of shape (n_rows,)."""

    @property
    def declaration(self) -> Declaration:
        """Counts of rows, and the sums of the same rows."""
        return Declaration(("count",), n_cells=self.n_cells)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Counts of at most the rows of a client; sums of at most that many rows in the ranges."""
        return cell_spec(self.n_cells, self.ranges)

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [in_cells(client.features, self.cells(client.features), self.n_cells) for client in clients]


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class CellSums(Cells, SumsInPublicCells):
    """Asks for counts and sums of the rows in a grid, or between hyperplanes."""


def cell_spec(n_cells: int, ranges: Ranges) -> StatisticsSpec:
    """Return the specification of counts and sums of rows in cells."""
    count = Entry("count", (n_cells,), 0.0, ranges.rows, RESOLUTION)
    return StatisticsSpec(count, sums_entry("sum", n_cells, ranges))


def in_cells(rows: FloatArray, cells: IntArray, n_cells: int) -> Statistics:
    """Return counts and sums of rows in cells, given the cell of each row."""
    count, total = cell_sums(rows, cells, n_cells)
    return Statistics(count=count, sum=total)


class Layout(NamedTuple):
    """Position of cells, with the fields of `Cells`."""

    center: FloatArray
    normals: FloatArray
    per_axis: int


def cell_layout(located: Located, n_clusters: int, rng: np.random.Generator) -> Layout:
    """Return cells whose borders pass through the mean: a grid for few features, else random hyperplanes."""
    d, wanted = located.ranges.n_features, cells_wanted(located.n_rows, n_clusters)
    if d <= GRID_FEATURES:
        return Layout(located.mean, np.empty((0, d)), per_axis(wanted, d))
    return Layout(located.mean, drawn_normals(d, n_planes(wanted), rng), 0)


def drawn_normals(n_features: int, n_planes: int, rng: np.random.Generator) -> FloatArray:
    """Draw the normals of hyperplanes, float64 of shape (n_planes, n_features)."""
    directions = rng.standard_normal((n_features, n_planes))
    # Orthogonal normals give more equal cells than independent ones, if there are enough dimensions.
    normals: FloatArray = np.linalg.qr(directions)[0].T if n_planes <= n_features else directions.T
    return normals


def normals_rule(n_features: int, least: int, most: int, rng: np.random.Generator) -> Rule:
    """Return the rule for normals of `least` to `most` hyperplanes.

    Args:
        n_features: number of columns.
        least: fewest hyperplanes.
        most: most hyperplanes.
        rng: in the state from which they are drawn, which is kept.
    """
    return Near(tuple(drawn_normals(n_features, n, deepcopy(rng)) for n in range(least, most + 1)))


def cells_form(
    kind: type[Cells],
    setting: Setting,
    n_clusters: int,
    rng: np.random.Generator,
    **more: object,
) -> Form:
    """Return the form of a question about the cells of `cell_layout`, whose number depends on that of rows.

    Args:
        kind: class of the question.
        setting: what is agreed.
        n_clusters: number of clusters.
        rng: as for `normals_rule`.
        **more: rules for further fields.
    """
    d, most_rows = setting.n_features, len(setting.clients) * (setting.max_rows or 2 ** (ROW_BINS - 1))
    fewest, most = cells_wanted(1, n_clusters), cells_wanted(most_rows, n_clusters)
    # Cells have one center in all sums of a run, the mean of the range sum.
    center = Same("mean", Shape(d))
    if d <= GRID_FEATURES:
        sides = Within(per_axis(fewest, d), per_axis(most, d))
        return Form(kind, center=center, normals=Shape(0, d), per_axis=sides, **more)
    normals = normals_rule(d, n_planes(fewest), n_planes(most), rng)
    return Form(kind, center=center, normals=normals, per_axis=0, **more)


ROOM = 2
"""Boxes are wanted for so many times the clusters, as there are between half and all of them."""

_SEED = 202211
"""Of the normals, the same in all fits of everybody."""

_ANCHOR_STEPS = 8.0
"""Steps of the anchor's grid in a range, at least half of them."""


@lru_cache(maxsize=16)
def _normals(n_features: int, n_planes: int) -> FloatArray:
    # All are drawn at once, so that fewer hyperplanes are the first of more. As many as there are dimensions
    # are orthogonal.
    rng = np.random.default_rng(_SEED)
    orthogonal = drawn_normals(n_features, n_features, rng)[:MOST_PLANES]
    others = drawn_normals(n_features, MOST_PLANES, rng)
    return frozen_array(np.concatenate([orthogonal, others])[:n_planes])


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
        width = np.maximum(self.ranges.width, 2.0**-900)
        exponent = np.ceil(np.log2(width / self.sides))
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
        step = self._scale / _ANCHOR_STEPS
        middle = self.ranges.low + 0.5 * self.ranges.width
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
