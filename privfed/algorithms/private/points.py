"""Weighted points that represent all rows: what the start of private k-means is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privfed.core.values.domain import FloatArray

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Coreset:
    """Points, and how many rows each represents.

    Args:
        points: float64 of shape (n_points, n_features).
        weights: noised number of rows of each point, float64 of shape (n_points,), at least 1.
        noise: standard deviation of the noise in a point's sum of offsets, scaled to offsets clipped to
            the scale's radius.
        single: whether there was only one cell, for all rows.
        hashed: whether cells lay between hyperplanes.
        spent: share of the budget that was spent on it.
        sizes: about how far a point's rows lie from it, float64 of shape (n_points,); None if unknown.
        doubtful: whether noise alone may have made a point, bool of shape (n_points,); None if unknown.
    """

    points: FloatArray
    weights: FloatArray
    noise: float
    single: bool
    hashed: bool
    spent: float
    sizes: FloatArray | None = None
    doubtful: BoolArray | None = None
