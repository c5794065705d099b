"""Sums with proven sensitivity to one record: counts in cells, clipped offsets, capped distances.

Each record falls into one cell and has one offset (from a point that belongs to the cell). It adds 1 to
the cell's count, its offset, clipped to a radius, to the cell's sum, and the capped length of the offset
to one sum of distances. So adding a record changes counts by 1, sums by at most the radius and distances
by at most the radius, each in L2 norm. Replacing a record changes, with D the radius, counts and sums by
at most (0, 2 D) where both records share the cell, and by (sqrt 2, sqrt 2 D) where they do not; distances
by at most D.

Contributions are clipped slightly below the radius, then truncated toward zero to the entry's step, so that
rounding of a norm never makes one longer than its bound.

Reveals to whoever opens the totals: these sums, with noise.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.asking.declaration import Declaration, RowCounts
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.values.alone import lengths, products
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import ArgumentError
from privfed.numerics.distances import FEW_FEATURES, IntArray
from privfed.numerics.kernels.interpreted import cell_sums
from privfed.numerics.kernels.steps import assign
from privfed.privacy.bounds import (
    HAIR,
    Bound,
    RecordBounded,
    check_bound,
    check_sizes,
    counted,
    in_cells,
    lone_count,
    magnitude,
    step_of,
    truncated,
)
from privfed.questions.lloyd import check_centers

MOST_CELLS = 1 << 17


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
    def _row_counts(self) -> tuple[RowCounts, ...]:
        sums, totals = ("sum",) * ("sum" in self.asks), ("distance",) * ("distance" in self.asks)
        return (RowCounts("count", sums, totals=totals),) if "count" in self.asks else ()

    def __post_init__(self) -> None:
        check_bound("radius", self.radius)
        check_sizes("ranges", self.ranges.low, self.ranges.high)


@dataclass(frozen=True, kw_only=True, eq=False)
class OffsetSums(SumsInCells, RecordBounded):
    """Questions for counts, clipped offsets and capped distances, with each row in one cell."""

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS

    @property
    def declaration(self) -> Declaration:
        """Counts of rows and sums of their offsets in cells; distances of all rows."""
        return Declaration(self._row_counts, n_cells=self.n_cells)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.n_cells <= MOST_CELLS:
            raise ArgumentError(f"cells must be at most {MOST_CELLS}, got {self.n_cells}.")

    @property
    @abstractmethod
    def n_cells(self) -> int:
        """Number of cells."""

    @abstractmethod
    def place(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's cell, (n_rows,), and its offset before clipping, float64 (n_rows, n_features)."""

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
        shapes = {"count": (self.n_cells,), "sum": (self.n_cells, self.ranges.n_features), "distance": (1,)}
        return StatisticsSpec(
            *(
                Entry(
                    name,
                    shapes[name],
                    -self.ranges.rows * bound.l2 if name == "sum" else 0.0,
                    self.ranges.rows * bound.l2,
                    step_of(bound.l2),
                )
                for name, bound in self.bounds.items()
            )
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients in one pass; sums of multiples of a step are exact in any order."""
        rows = [client.features for client in clients]
        if rows[0].shape[1] <= FEW_FEATURES:
            placed = [self.place(rows[0] if len(rows) == 1 else np.concatenate(rows))]
        else:
            # One matrix product a client, so that a client's result does not depend on the others.
            placed = [self.place(own) for own in rows]
        cells = np.concatenate([cell for cell, _ in placed])
        offsets = placed[0][1] if len(placed) == 1 else np.concatenate([offset for _, offset in placed])
        owner = np.repeat(np.arange(len(rows)), [len(own) for own in rows])
        return self._added(cells, offsets, owner, len(rows))

    def _added(
        self, cells: IntArray, offsets: FloatArray, owner: IntArray, n_clients: int
    ) -> list[Statistics]:
        size, step = n_clients * self.n_cells, step_of(self.radius)
        slots, length = owner * self.n_cells + cells, lengths(offsets)
        found: dict[str, FloatArray] = {}
        if "sum" in self.asks:
            shrink = np.minimum(1.0, self.radius * HAIR / np.maximum(length, self.radius * HAIR))
            counts, sums = cell_sums(truncated(offsets * shrink[:, None], step), slots, size)
            found["sum"] = sums.reshape(n_clients, self.n_cells, -1)
        else:
            counts = np.bincount(slots, minlength=size).astype(np.float64, copy=False)
        found["count"] = counts.reshape(n_clients, self.n_cells)
        if "distance" in self.asks:
            capped = truncated(np.minimum(length, self.radius * HAIR), step)
            total = np.bincount(owner, weights=capped, minlength=n_clients)
            found["distance"] = np.asarray(total, dtype=np.float64)[:, None]
        return [Statistics(**{name: found[name][i] for name in self.asks}) for i in range(n_clients)]


def check_point(point: FloatArray, ranges: Ranges) -> None:
    """Check the point of a question.

    Raises:
        ArgumentError: it has not one value a feature of the ranges, or one is too large.
    """
    if point.shape != (ranges.n_features,):
        raise ArgumentError(f"a point needs {ranges.n_features} values, got shape {point.shape}.")
    check_sizes("a point", point)


@dataclass(frozen=True, kw_only=True, eq=False)
class _FromPoint(OffsetSums):
    """Questions about offsets from one public point.

    Args:
        center: the point, float64 of shape (n_features,).
    """

    center: FloatArray

    def __post_init__(self) -> None:
        super().__post_init__()
        check_point(self.center, self.ranges)

    @property
    def n_cells(self) -> int:
        """One cell, which holds all rows."""
        return 1

    def place(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return offsets from the point."""
        return np.zeros(len(rows), dtype=np.intp), rows - self.center


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class SizeSums(_FromPoint):
    """Ask for the number of rows and the sum of their distances from a point."""

    asks: ClassVar[tuple[str, ...]] = ("count", "distance")


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class CenterSum(_FromPoint):
    """Ask for the sum of all clipped offsets from a point."""

    asks: ClassVar[tuple[str, ...]] = ("sum",)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class DistanceHistogram(_FromPoint):
    """Ask for counts of rows in equally wide shells around a point, and the sum of all distances from it.

    Args:
        n_bins: number of shells of [0, radius]; rows beyond count in the last.
    """

    asks: ClassVar[tuple[str, ...]] = ("count", "distance")
    n_bins: int

    @property
    def n_cells(self) -> int:
        """Number of shells."""
        return self.n_bins

    def place(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's shell, and its offset."""
        offsets = rows - self.center
        share = lengths(offsets) / self.radius
        bins = np.minimum((np.minimum(share, 1.0) * self.n_bins).astype(np.intp), self.n_bins - 1)
        return bins, offsets


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class HashSums(_FromPoint):
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
        offsets = rows - self.center
        sides = [products(offsets, normal) > 0.0 for normal in self.normals]
        cells = np.zeros(len(rows), dtype=np.intp)
        for bit, side in enumerate(sides):
            cells |= side.astype(np.intp) << bit
        return cells, offsets


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class GridSums(OffsetSums):
    """Ask for counts, and sums of offsets from the cells' midpoints, in a grid over the ranges.

    With a radius of at least half a cell's diagonal, nothing is clipped.

    Args:
        per_axis: number of cells along each axis.
    """

    per_axis: int

    def __post_init__(self) -> None:
        if self.per_axis < 1 or self.ranges.n_features > 16:
            raise ArgumentError(f"a grid needs a cell an axis, got per_axis={self.per_axis}.")
        super().__post_init__()

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return int(self.per_axis**self.ranges.n_features)

    @property
    def widths(self) -> FloatArray:
        """Width of a cell along each axis, float64 of shape (n_features,)."""
        return np.maximum(self.ranges.width, np.finfo(np.float64).tiny) / self.per_axis

    def middles(self) -> FloatArray:
        """Return the midpoint of each cell, float64 of shape (n_cells, n_features)."""
        shape = (self.per_axis,) * self.ranges.n_features
        index = np.stack(np.unravel_index(np.arange(self.n_cells), shape), axis=1)
        middles: FloatArray = self.ranges.low + (index + 0.5) * self.widths
        return middles

    def place(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's cell, and its offset from the cell's midpoint."""
        index = np.clip(np.floor((rows - self.ranges.low) / self.widths), 0, self.per_axis - 1)
        offsets = rows - (self.ranges.low + (index + 0.5) * self.widths)
        shape = (self.per_axis,) * rows.shape[1]
        return np.asarray(np.ravel_multi_index(tuple(index.astype(np.intp).T), shape)), offsets


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
