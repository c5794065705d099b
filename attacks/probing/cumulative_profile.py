"""The distribution of rows along one direction, learned from questions about slabs.

Centroids on a line divide space into slabs, with a border midway between neighbours. A pair of centroids at
t - e and t + e puts a border at t; a further border, not asked for, lies midway between two pairs. Cumulative
counts and sums of the slabs say what lies below each border.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privfed.core.values.domain import FloatArray

CLOSEST = 1e-7
"""Smallest distance of a pair, relative to the width; closer ones are lost in float64 rounding."""


@dataclass(frozen=True, eq=False)
class Slabs:
    """Holds what lies between neighbouring borders.

    Args:
        borders: float64 of shape (n_slabs + 1,), ascending; the outermost enclose all rows.
        counts: number of rows in each slab, (n_slabs,).
        sums: sums of these rows, (n_slabs, n_columns).
    """

    borders: FloatArray
    counts: FloatArray
    sums: FloatArray


class CumulativeProfile:
    """Collects counts and sums below each border that was asked about, along one direction.

    Args:
        low: smallest value that a row can have along the direction.
        high: largest value that a row can have along the direction.
        n_rows: number of the target's rows.
        total: sum of these rows, (n_columns,).
    """

    def __init__(self, low: float, high: float, n_rows: float, total: FloatArray) -> None:
        self.n_rows = n_rows
        margin = 1e-6 * (high - low)
        self._borders = np.array([low - margin, high + margin])
        self._below = np.vstack([np.zeros(1 + len(total)), np.concatenate([[n_rows], total])])

    @property
    def width(self) -> float:
        """Distance between the outermost borders."""
        return float(self._borders[-1] - self._borders[0])

    def slabs(self) -> Slabs:
        """Return what lies between neighbouring borders."""
        between = np.diff(self._below, axis=0)
        return Slabs(self._borders, np.rint(between[:, 0]), between[:, 1:])

    def learn(self, places: FloatArray, counts: FloatArray, sums: FloatArray) -> None:
        """Add the answer to one question.

        Args:
            places: positions of the centroids along the direction, ascending, (n,).
            counts: number of rows nearest to each, (n,).
            sums: sums of these rows, (n, n_columns).
        """
        borders = (places[:-1] + places[1:]) / 2
        cells = np.column_stack([counts, sums])
        below = np.cumsum(cells, axis=0)[:-1]
        fresh = ~np.isin(borders, self._borders)
        self._borders = np.concatenate([self._borders, borders[fresh]])
        order = np.argsort(self._borders, kind="stable")
        self._borders = self._borders[order]
        self._below = np.concatenate([self._below, below[fresh]])[order]


def pairs(targets: FloatArray, width: float, n_centers: int) -> FloatArray:
    """Return positions of at most `n_centers` centroids, ascending, whose borders include the targets.

    Args:
        targets: wanted borders, ascending; at least one, at most (n_centers + 1) // 2.
        width: width of the profile.
        n_centers: most positions.
    """
    gaps = np.diff(targets)
    apart = np.minimum(np.concatenate([[width], gaps]), np.concatenate([gaps, [width]])) / 4
    placed = np.column_stack([targets - apart, targets + apart]).ravel()
    if len(placed) <= n_centers:
        return placed
    # If one centroid is left for the last target, it mirrors the one before across that target.
    return np.append(placed[: n_centers - 1], 2 * targets[-1] - placed[n_centers - 2])
