"""Distances of rows to centers. Assignments to the nearest, and sums of rows: `privfed.numerics.kernels`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from privfed.core.values.domain import FloatArray

IntArray = npt.NDArray[np.intp]

FEW_FEATURES = 8
"""Up to this many columns, distances come from differences: accurate, and as fast as a matrix product."""


def squared_differences(rows: FloatArray, centers: FloatArray) -> FloatArray:
    """Return squared distances, float64 of shape (n_rows, n_centers), computed from differences."""
    distances = np.empty((len(rows), len(centers)))
    for j, center in enumerate(centers):
        difference = rows - center
        np.einsum("nd,nd->n", difference, difference, out=distances[:, j])
    return distances


def squared_distances(rows: FloatArray, centers: FloatArray) -> FloatArray:
    """Return squared Euclidean distances, float64 of shape (n_rows, n_centers), never negative."""
    if rows.shape[1] <= FEW_FEATURES:
        return squared_differences(rows, centers)
    # The origin is moved to the centers' mean: far from the origin the three terms would cancel.
    origin = centers.mean(axis=0)
    rows, centers = rows - origin, centers - origin
    products = rows @ centers.T
    squares: FloatArray = np.einsum("nd,nd->n", rows, rows)[:, None] + np.einsum("kd,kd->k", centers, centers)
    nearest_first: FloatArray = np.maximum(squares - 2.0 * products, 0.0)
    return nearest_first


def nearest(distances: FloatArray) -> IntArray:
    """Return the column of each row's smallest entry (the first of equals)."""
    return np.asarray(np.argmin(distances, axis=1), dtype=np.intp)
