"""Sums in slabs across a direction, with proven sensitivity to one record (`bounded_sums`).

Where rows lie along a line, hyperplanes through one point divide them into two parts, however many there are.
Slabs divide them into as many as noise allows.

Reveals to whoever opens the totals: counts of rows in slabs, and sums of their clipped offsets, with noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privfed.core.asking.question import register
from privfed.core.values.alone import products
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.numerics.distances import IntArray
from privfed.privacy.bounds import check_sizes
from privfed.questions.bounded.bounded_sums import MOST_CELLS, FromPoint


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
        if not (1 <= self.n_slabs <= MOST_CELLS and 0.0 < self.reach <= 2.0**450):
            raise ArgumentError(
                f"slabs need a number from 1 to {MOST_CELLS} and a positive reach of at most 2^450, got "
                f"n_slabs={self.n_slabs}, reach={self.reach}."
            )
        check_sizes("axis", self.axis)
        super().__post_init__()

    @property
    def n_cells(self) -> int:
        """Number of slabs."""
        return self.n_slabs

    def place(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's slab, and its offset from the point."""
        offsets = rows - self.center
        share = np.clip(products(offsets, self.axis) / self.reach, -1.0, 1.0)
        slabs = np.floor((share + 1.0) / 2.0 * self.n_slabs).astype(np.intp)
        return np.minimum(slabs, self.n_slabs - 1), offsets
