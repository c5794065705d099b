"""Public cells whose borders pass through a point, and counts and sums of the rows in them.

Reveals to whoever opens the total: how many rows of all clients lie in each cell, and their sum. A
cell can hold a single row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from privfed.core.asking.declaration import Declaration, RowCounts
from privfed.core.asking.justified import GRID_FEATURES, MOST_PLANES, cells_wanted, n_planes, per_axis
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.numerics.distances import IntArray, cell_sums
from privfed.questions.lloyd import RESOLUTION, check_centers, sums_entry
from privfed.questions.ranges import Located


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
        if (planes == 0) == (self.per_axis == 0) or self.per_axis < 0 or self.n_cells > 1 << 20:
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


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class CellSums(Cells):
    """Ask for counts and sums of the rows in public cells.

    Statistics: `count` (n_cells,), `sum` (n_cells, n_features).
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS

    @property
    def declaration(self) -> Declaration:
        """Counts of rows, and the sums of the same rows."""
        return Declaration(row_counts=(RowCounts("count", ("sum",)),), n_cells=self.n_cells)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Counts of at most the rows of a client; sums of at most that many rows in the ranges."""
        count = Entry("count", (self.n_cells,), 0.0, self.ranges.rows, RESOLUTION)
        return StatisticsSpec(count, sums_entry("sum", self.n_cells, self.ranges))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        answers = []
        for client in clients:
            count, total = cell_sums(client.features, self.cells(client.features), self.n_cells)
            answers.append(Statistics(count=count, sum=total))
        return answers


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
    directions = rng.standard_normal((d, n_planes(wanted)))
    # Orthogonal normals give more equal cells than independent ones, if there are enough dimensions.
    normals = np.linalg.qr(directions)[0].T if directions.shape[1] <= d else directions.T
    return Layout(located.mean, normals, 0)
