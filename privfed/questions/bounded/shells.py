"""A histogram of distances from a point, with proven sensitivity to one record (`bounded_sums`).

Reveals to whoever opens the totals: counts of rows in shells, and the sum of their distances, with noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.core.asking.question import register
from privfed.core.values.alone import lengths
from privfed.core.values.domain import FloatArray
from privfed.numerics.distances import IntArray
from privfed.questions.bounded.bounded_sums import FromPoint

SHELLS_PER_OCTAVE = 3
"""Shells of a histogram of distances in which the radius halves."""


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class DistanceHistogram(FromPoint):
    """Ask for counts of rows in shells around a point, and the sum of all distances from it.

    Shells get thinner inwards, by a third of an octave each, so that one question finds the scale of rows
    that fill the radius as well as of rows that lie close to the point.

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
        edges: FloatArray = self.radius * np.exp2(-octaves)
        return edges

    def place(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return each row's shell, and its offset."""
        offsets = rows - self.center
        # Compared with edges rather than by a logarithm, which need not be exact to the last bit.
        inside = np.searchsorted(self.edges()[:0:-1], lengths(offsets))
        return self.n_bins - 1 - inside, offsets
