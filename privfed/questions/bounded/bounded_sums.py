"""Sums with proven sensitivity to one record: counts in cells, clipped offsets, capped distances.

Each record falls into one cell and has one offset (from a point that belongs to the cell). It adds 1 to
the cell's count, its offset, clipped to a radius, to the cell's sum, and the capped length of the offset
to one sum of distances. So adding a record changes counts by 1, sums by at most the radius and distances
by at most the radius, each in L2 norm. Let D be the radius. Replacing a record changes counts and sums by at
most (0, 2 D) where both records share the cell, and by (sqrt 2, sqrt 2 D) where they do not. It changes
distances by at most D.

Contributions are clipped slightly below the radius, so that rounding of a norm never makes one longer than
its bound; each is checked against it (`privfed.privacy.contributions`).

Reveals to whoever opens the totals: these sums, with noise.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.asking.declaration import Declaration
from privfed.core.asking.question import Question, register
from privfed.core.asking.statistics import StatisticsSpec
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_bound, check_number, check_whole, lengths, products
from privfed.errors import ArgumentError
from privfed.numerics.kernels.dispatch import assign
from privfed.numerics.kernels.interpreted import IntArray
from privfed.privacy.bounds import (
    HAIR,
    Bound,
    RecordBounded,
    bounded_spec,
    check_point,
    check_sizes,
    check_widths,
    counted,
    in_cells,
    lone_count,
    magnitude,
)
from privfed.privacy.contributions import Contribution
from privfed.questions.lloyd import check_centers

MOST_CELLS = 1 << 17

MOST_CUTS = 64
"""Most parts of a grid's cell along an axis."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SumsInCells(Question):
    """Questions for counts, sums of offsets and sums of distances of a client's rows in cells.

    Statistics, as far as `asks` names them: `count` (n_cells,), `sum` (n_cells, n_features),
    `distance` (1,).

    Args:
        radius: length to which a row's offset is clipped, in [2^-450, 2^450].
    """

    asks: ClassVar[tuple[str, ...]] = ("count", "sum")
    radius: float

    @property
    def _row_counts(self) -> tuple[str, ...]:
        return ("count",) if "count" in self.asks else ()

    def __post_init__(self) -> None:
        check_bound("radius", self.radius)
        check_sizes("ranges", self.ranges.low, self.ranges.high)


@dataclass(frozen=True, kw_only=True, eq=False)
class OffsetSums(SumsInCells, RecordBounded):
    """Questions for counts, clipped offsets and capped distances, with each row in one cell."""

    @property
    def declaration(self) -> Declaration:
        """Counts of rows and sums of their offsets in cells; distances of all rows."""
        return Declaration(self._row_counts, n_cells=self.n_cells)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("n_cells", self.n_cells, 1, MOST_CELLS)

    @property
    @abstractmethod
    def n_cells(self) -> int:
        """Number of cells."""

    @property
    def width(self) -> int:
        """Length of an offset."""
        return self.ranges.n_features

    @abstractmethod
    def place(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's cell, (n_rows,), and its offset before clipping, float64 (n_rows, width)."""

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """Bounds of a count of 1, and of offsets and distances up to the radius."""
        known = {
            "count": counted() if self.n_cells > 1 else lone_count(),
            "sum": in_cells(self.radius),
            "distance": magnitude(self.radius),
        }
        return {name: known[name] for name in self.asks}

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Entries of at most the rows of a client times the bound of one row."""
        shapes = {"count": (self.n_cells,), "sum": (self.n_cells, self.width), "distance": (1,)}
        return bounded_spec({name: bound.l2 for name, bound in self.bounds.items()}, shapes, self.ranges.rows)

    def contributions(self, rows: FloatArray, labels: IntArray) -> Mapping[str, Contribution]:
        """Return each row's cell, its clipped offset and its capped distance."""
        cells, offsets = self.place(rows)
        found = {"count": Contribution(cells=cells)}
        if set(self.asks) - {"count"}:
            length, most = lengths(offsets), self.radius * HAIR
            found["distance"] = Contribution(np.minimum(length, most)[:, None])
        if "sum" in self.asks:
            found["sum"] = Contribution(
                offsets * np.minimum(1.0, most / np.maximum(length, most))[:, None], cells
            )
        return {name: found[name] for name in self.asks}


@dataclass(frozen=True, kw_only=True, eq=False)
class FromPoint(OffsetSums):
    """Questions about offsets from one public point.

    Args:
        center: the point, float64 of shape (n_features,).
        widths: by which offsets are divided, feature by feature, before they are clipped, so that lengths are
            in these units; above 0, float64 of shape (n_features,). None divides by nothing.
    """

    center: FloatArray
    widths: FloatArray | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_point(self.center, self.ranges)
        if self.widths is not None:
            check_point(self.widths, self.ranges)
            check_widths(self.widths, self.ranges.low - self.center, self.ranges.high - self.center)

    def offsets(self, rows: FloatArray) -> FloatArray:
        """Return each row's offset before clipping, float64 of shape (n_rows, n_features)."""
        return np.asarray((rows - self.center) / (1.0 if self.widths is None else self.widths))

    @property
    def n_cells(self) -> int:
        """One cell, which holds all rows."""
        return 1

    def place(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return offsets from the point."""
        return np.zeros(len(rows), dtype=np.intp), self.offsets(rows)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class SizeSums(FromPoint):
    """Ask for the number of rows and the sum of their distances from a point."""

    asks: ClassVar[tuple[str, ...]] = ("count", "distance")


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class CenterSum(FromPoint):
    """Ask for the sum of all clipped offsets from a point."""

    asks: ClassVar[tuple[str, ...]] = ("sum",)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class HashSums(FromPoint):
    """Ask for counts, and sums of offsets from a point, in cells between hyperplanes through it.

    Args:
        normals: of the hyperplanes, float64 of shape (n_planes, n_features).
    """

    normals: FloatArray

    def __post_init__(self) -> None:
        planes = len(self.normals) if self.normals.ndim == 2 else -1
        if not 0 <= planes <= 16 or self.normals.shape[1] != self.ranges.n_features:
            raise ArgumentError(
                f"normals need at most 16 rows of {self.ranges.n_features}, got {self.normals.shape}."
            )
        check_sizes("normals", self.normals)
        super().__post_init__()

    @property
    def n_cells(self) -> int:
        """Two to the number of hyperplanes."""
        return 1 << len(self.normals)

    def place(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's cell, given by its side of each hyperplane, and its offset."""
        offsets = self.offsets(rows)
        sides = [products(offsets, normal) > 0.0 for normal in self.normals]
        cells = np.zeros(len(rows), dtype=np.intp)
        for bit, side in enumerate(sides):
            cells |= side.astype(np.intp) << bit
        return cells, offsets


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class GridSums(OffsetSums):
    """Ask for counts, and sums of offsets from the cells' midpoints, in a grid over a box.

    Cells may be cut again, each into a grid of its own. Offsets are magnified as often as their cell was cut,
    so that those of small cells use the whole radius too. Rows outside the box count in the cells at its
    border. With a radius of at least half the diagonal of an uncut cell, no row in the box is clipped.

    Args:
        per_axis: number of cells along each axis, before any is cut.
        low: lower corner of the box, float64 of shape (n_features,); None for that of the ranges.
        high: upper corner of the box, likewise.
        cuts: into how many parts each cell is cut along each axis, float64 of whole numbers from 1 to 64 and
            shape (per_axis^n_features,); None where none is cut.
    """

    per_axis: int
    low: FloatArray | None = None
    high: FloatArray | None = None
    cuts: FloatArray | None = None

    def __post_init__(self) -> None:
        d = self.ranges.n_features
        if self.per_axis < 1 or d > 16:
            raise ArgumentError(f"a grid needs a cell an axis, got per_axis={self.per_axis}.")
        check_whole("n_cells", self.per_axis**d, 1, MOST_CELLS)
        for corner in (self.low, self.high):
            if corner is not None:
                check_point(corner, self.ranges)
        if (self.corner > self.upper).any():
            raise ArgumentError("each low of a grid's box must be at most its high.")
        if self.cuts is not None:
            whole = (self.cuts >= 1) & (self.cuts <= MOST_CUTS) & (self.cuts == np.floor(self.cuts))
            if self.cuts.shape != (self.per_axis**d,) or not whole.all():
                raise ArgumentError(
                    f"cuts must be {self.per_axis**d} whole numbers from 1 to {MOST_CUTS}, one a cell."
                )
            # Whole numbers of them would overflow.
            check_number("n_cells", (self.cuts**d).sum(), f"[1, {MOST_CELLS}]")
        super().__post_init__()

    @property
    def corner(self) -> FloatArray:
        """Lower corner of the box."""
        return self.ranges.low if self.low is None else self.low

    @property
    def upper(self) -> FloatArray:
        """Upper corner of the box."""
        return self.ranges.high if self.high is None else self.high

    @property
    def widths(self) -> FloatArray:
        """Width of an uncut cell along each axis, float64 of shape (n_features,)."""
        # At least what float64 can tell apart at the corner, so that indices stay finite.
        least = np.maximum(np.abs(self.corner) * 2.0**-50, np.finfo(np.float64).tiny)
        return np.maximum(self.upper - self.corner, least) / self.per_axis

    @cached_property
    def parts(self) -> IntArray:
        """Number of parts of each cell along each axis, intp of shape (per_axis^n_features,)."""
        n_cells = self.per_axis**self.ranges.n_features
        return np.ones(n_cells, dtype=np.intp) if self.cuts is None else self.cuts.astype(np.intp)

    @cached_property
    def _first(self) -> IntArray:
        """Number of the first part of each cell, and at the end the number of all parts."""
        return np.asarray(np.concatenate([[0], (self.parts**self.ranges.n_features).cumsum()]))

    @property
    def n_cells(self) -> int:
        """Number of cells, of cut ones the number of their parts."""
        return int(self._first[-1])

    def owners(self) -> IntArray:
        """Return of each cell which uncut cell it is, or was cut from, intp of shape (n_cells,)."""
        return np.repeat(np.arange(len(self.parts)), self.parts**self.ranges.n_features)

    def middles(self) -> FloatArray:
        """Return the midpoint of each cell, float64 of shape (n_cells, n_features)."""
        d, owners = self.ranges.n_features, self.owners()
        part, parts = np.arange(self.n_cells) - self._first[owners], self.parts[owners]
        units = np.stack(np.unravel_index(owners, (self.per_axis,) * d), axis=1).astype(np.float64)
        for axis in range(d - 1, -1, -1):
            part, place = np.divmod(part, parts)
            units[:, axis] += (place + 0.5) / parts
        return np.asarray(self.corner + units * self.widths)

    def place(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's cell, and its offset from the cell's midpoint, magnified as the cell was cut."""
        units = (rows - self.corner) / self.widths
        index = np.clip(np.floor(units), 0, self.per_axis - 1)
        shape = (self.per_axis,) * rows.shape[1]
        owners = np.asarray(np.ravel_multi_index(tuple(index.astype(np.intp).T), shape))
        parts = self.parts[owners]
        place = np.clip(np.floor((units - index) * parts[:, None]), 0, parts[:, None] - 1)
        cells = np.zeros(len(rows), dtype=np.intp)
        for column in place.T:
            cells = cells * parts + column.astype(np.intp)
        middles = self.corner + (index + (place + 0.5) / parts[:, None]) * self.widths
        return self._first[owners] + cells, (rows - middles) * parts[:, None]


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class RelativeSums(OffsetSums):
    """Ask for a Lloyd step: counts and offset sums of the rows nearest to each center, and distances.

    Args:
        centers: float64 of shape (n_clusters, n_features).
    """

    asks: ClassVar[tuple[str, ...]] = ("count", "sum", "distance")
    centers: FloatArray

    @property
    def declaration(self) -> Declaration:
        """Counts of rows and sums of their offsets for each center; distances of all rows."""
        return Declaration(self._row_counts, (self.centers,))

    def __post_init__(self) -> None:
        check_centers(self.centers, self.ranges)
        check_sizes("centers", self.centers)
        super().__post_init__()

    @property
    def n_cells(self) -> int:
        """Number of clusters."""
        return len(self.centers)

    def place(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's nearest center, and its offset from it."""
        labels = assign(rows, self.centers)
        return labels, rows - self.centers[labels]
