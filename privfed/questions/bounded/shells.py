"""Rows by their distance from a point, or along a direction, with proven sensitivity (`bounded_sums`).

**Shells (`DistanceHistogram`).** A histogram of distances from a point, with proven sensitivity to one
record (`bounded_sums`).

Reveals to whoever opens the totals: counts of rows in shells, and the sum of their distances, with noise.

**Slabs (`SlabSums`).** Sums in slabs across a direction, with proven sensitivity to one record
(`bounded_sums`).

Where rows lie along a line, hyperplanes through one point divide them into two parts, however many there are.
Slabs divide them into as many as noise allows.

Reveals to whoever opens the totals: counts of rows in slabs, and sums of their clipped offsets, with noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.core.asking.question import register
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import MOST_BOUND, check_number, check_whole, lengths, products
from privfed.errors import ArgumentError
from privfed.numerics.kernels.interpreted import IntArray
from privfed.privacy.bounds import check_sizes
from privfed.questions.bounded.bounded_sums import MOST_CELLS, FromPoint

SHELLS_PER_OCTAVE = 3
"""Shells of a histogram of distances in which the radius halves."""


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class DistanceHistogram(FromPoint):
    """Ask for counts of rows in shells around a point, and the sum of all distances from it.

    Shells get thinner inwards, by a third of an octave each. So one question finds the scale of rows that
    fill the radius as well as of rows that lie close to the point.

    Args:
        n_bins: number of shells; the first also counts rows beyond the radius, the last is a ball.
    """

    asks: ClassVar[tuple[str, ...]] = ("count", "distance")
    n_bins: int

    @property
    def n_cells(self) -> int:
        """Number of shells."""
        return self.n_bins

    def edges(self) -> FloatArray:
        """Return the outer radius of each shell, descending, float64 of shape (n_bins,)."""
        # Thinner shells than a millionth of the radius are none: the last ones are empty then.
        octaves = np.minimum(np.arange(self.n_bins) / SHELLS_PER_OCTAVE, 20.0)
        return np.asarray(self.radius * np.exp2(-octaves))

    def place(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's shell, and its offset."""
        offsets = self.offsets(rows)
        # Compared with edges rather than by a logarithm, which need not be exact to the last bit.
        return self.n_bins - 1 - np.searchsorted(self.edges()[:0:-1], lengths(offsets)), offsets


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class SlabSums(FromPoint):
    """Ask for counts, and sums of offsets from a point, in slabs of equal width across a direction.

    Args:
        axis: the direction, float64 of shape (n_features,).
        reach: the slabs divide the places from -`reach` to `reach` along the direction, in units of its
            length and seen from the point; rows beyond count in the outermost ones.
        n_slabs: number of slabs.
    """

    axis: FloatArray
    reach: float
    n_slabs: int

    def __post_init__(self) -> None:
        if self.axis.shape != (self.ranges.n_features,):
            raise ArgumentError(f"axis needs {self.ranges.n_features} values, got shape {self.axis.shape}.")
        check_whole("n_slabs", self.n_slabs, 1, MOST_CELLS)
        check_number("reach", self.reach, f"(0, {MOST_BOUND}]")
        check_sizes("axis", self.axis)
        super().__post_init__()

    @property
    def n_cells(self) -> int:
        """Number of slabs."""
        return self.n_slabs

    def place(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's slab, and its offset from the point."""
        offsets = self.offsets(rows)
        share = np.clip(products(offsets, self.axis) / self.reach, -1.0, 1.0)
        return np.minimum(
            np.floor((share + 1.0) / 2.0 * self.n_slabs).astype(np.intp), self.n_slabs - 1
        ), offsets
