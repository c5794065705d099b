"""Distances of rows to centers, and the assignment to the nearest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array

from privfed.core.values.alone import squared_lengths
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


def squared_differences_alone(rows: FloatArray, centers: FloatArray) -> FloatArray:
    """Return `squared_differences` with each row's result independent of the other rows, bit for bit."""
    distances = np.empty((len(rows), len(centers)))
    for j, center in enumerate(centers):
        distances[:, j] = squared_lengths(rows - center)
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


def assign(rows: FloatArray, centers: FloatArray) -> IntArray:
    """Return the index of each row's nearest center (the first of equals), shape (n_rows,)."""
    if rows.shape[1] <= FEW_FEATURES:
        return nearest(squared_distances(rows, centers))
    return nearest(_scores(rows, centers))


def _scores(rows: FloatArray, centers: FloatArray) -> FloatArray:
    """Return squared distances up to a constant for each row, (n_rows, n_centers), by a matrix product."""
    # |x - o|^2 is the same for every center and is left out. The origin o is the centers' mean, so that the
    # shifted centers are short and the products do not cancel.
    origin = centers.mean(axis=0)
    short = centers - origin
    scores: FloatArray = np.einsum("kd,kd->k", short, short) + 2.0 * (short @ origin) - 2.0 * (rows @ short.T)
    return scores


def assign_alone(rows: FloatArray, centers: FloatArray) -> IntArray:
    """Return `assign` with each row's result independent of the other rows, shape (n_rows,).

    A matrix product may round a row differently when there are other rows, so that adding one row could move
    others between centers at equal distances. A bound on one record's contribution must rule that out. So
    rows whose two nearest centers differ by little more than rounding are decided by differences instead.

    Which rows are decided so may depend on the other rows, but the result does not: the threshold exceeds
    the rounding of scores and of differences together, so that near the threshold both find the same center.
    """
    if rows.shape[1] <= FEW_FEATURES:
        return nearest(squared_differences_alone(rows, centers))
    scores, unsure = _scores(rows, centers), _unsure(rows, centers)
    close = np.flatnonzero((scores <= (scores.min(axis=1) + unsure)[:, None]).sum(axis=1) > 1)
    labels = nearest(scores)
    labels[close] = nearest(squared_differences_alone(rows[close], centers))
    return labels


def _unsure(rows: FloatArray, centers: FloatArray) -> FloatArray:
    """Return for each row the difference of scores up to which its nearest center is uncertain, (n_rows,).

    With S the length of the row plus that of the longest center, the error of a difference of two scores is
    at most 8 (d + 4) eps S^2, that of a difference of two squared distances at most (2 log2 d + 4) eps S^2.
    Underflow of products adds far less than 2^-1000.
    """
    reach = np.sqrt(squared_lengths(rows)) + float(np.sqrt(squared_lengths(centers).max()))
    relative = max(1e-10, 16.0 * rows.shape[1] * float(np.finfo(np.float64).eps))
    return np.asarray(relative * np.square(reach) + 2.0**-1000)


def assign_each(clients: Sequence[FloatArray], stacked: FloatArray, centers: FloatArray) -> IntArray:
    """Return `assign` of each client's rows, concatenated; `stacked` holds the same rows, concatenated."""
    if stacked.shape[1] <= FEW_FEATURES:
        return assign(stacked, centers)
    # One matrix product a client, so that a client's result does not depend on the others.
    return np.concatenate([assign(rows, centers) for rows in clients])


def cell_sums(rows: FloatArray, cells: IntArray, n_cells: int) -> tuple[FloatArray, FloatArray]:
    """Return the number of rows in each cell, (n_cells,), and their sums, (n_cells, n_features).

    Law: a sum begins at zero, and its rows are added one after the other, in their order.

    Args:
        rows: float64 of shape (n_rows, n_features).
        cells: cell of each row, intp of shape (n_rows,).
        n_cells: number of cells.
    """
    counts = np.bincount(cells, minlength=n_cells).astype(np.float64)
    # One column a row, with a single 1 in the row of its cell: the product adds the rows in their order.
    which = csc_array((np.ones(len(rows)), cells, np.arange(len(rows) + 1)), shape=(n_cells, len(rows)))
    return counts, np.asarray(which @ rows, dtype=np.float64)
