"""Counts and sums of the rows in public cells, whose borders pass through a point.

Reveals to whoever opens the total: how many rows of all clients lie in each cell, and their sum. A
cell can hold a single row.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2
from typing import ClassVar, NamedTuple

import numpy as np

from privfed.core.asking.declaration import Declaration
from privfed.core.asking.phases import Form, Near, Rule, Same, Shape, Within
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, StatisticsSpec, StatisticsTable
from privfed.core.roles.conversation import Setting
from privfed.core.values.domain import FloatArray
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
            return ((rows - self.center) @ self.normals.T > 0) @ (1 << np.arange(len(self.normals)))
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
        count = Entry("count", (self.n_cells,), 0.0, self.ranges.rows, RESOLUTION)
        return StatisticsSpec(count, sums_entry("sum", self.n_cells, self.ranges))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> StatisticsTable:
        """Answer for several clients."""
        cells = [place * self.n_cells + self.cells(one.features) for place, one in enumerate(clients)]
        count, total = cell_sums(
            np.concatenate([one.features for one in clients]),
            np.concatenate(cells),
            len(clients) * self.n_cells,
        )
        shape = len(clients), self.n_cells
        return self.spec.tabled(count=count.reshape(shape), sum=total.reshape(*shape, -1))


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class CellSums(Cells, SumsInPublicCells):
    """Asks for counts and sums of the rows in a grid, or between hyperplanes."""


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
    return np.asarray(np.linalg.qr(directions)[0].T if n_planes <= n_features else directions.T)


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
