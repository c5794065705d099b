"""The kernel in NumPy: the law of labels and sums, without compiler and without memory.

Law of labels: a row belongs to the center of the least squared distance, the first of several. A squared
distance is the float64 sum of the squared differences of the columns, added one after the other from zero. So
a row's label depends on the row and the centers alone: on no other row, no BLAS and no number of threads.

Law of sums: a center's sum begins at zero, and its rows are added one after the other, in their order. So do
weighted sums, where each row is multiplied by its weight for a center before it is added.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array

from privfed.core.values.alone import squared_lengths
from privfed.core.values.domain import FloatArray

IntArray = npt.NDArray[np.intp]

FEW_FEATURES = 8
"""Up to this many columns, the law itself is as fast as a matrix product."""

_BLOCK = 1 << 19
"""Most distances that are held at once."""

_PRODUCTS = 1 << 14
"""Most products of rows and weights that are held at once; more would not stay in the processor's cache."""


def nearest(rows: FloatArray, centers: FloatArray) -> IntArray:
    """Return the index of each row's nearest center by the law of labels, shape (n_rows,).

    Args:
        rows: float64 of shape (n_rows, n_features), finite.
        centers: float64 of shape (n_centers, n_features), finite.
    """
    size = max(1, _BLOCK // len(centers))
    found = np.empty(len(rows), dtype=np.intp)
    decide = _by_law if rows.shape[1] <= FEW_FEATURES else _by_scores
    for first in range(0, len(rows), size):
        found[first : first + size] = decide(rows[first : first + size], centers)
    return found


def _by_law(rows: FloatArray, centers: FloatArray) -> IntArray:
    # Column by column, the distances stay in the processor's cache.
    columns = np.ascontiguousarray(rows.T)
    distances, difference = np.zeros((2, len(centers), len(rows)))
    with np.errstate(over="ignore"):  # Rows that far from all centers belong to the first.
        for column, values in zip(columns, centers.T, strict=True):
            np.subtract(column, values[:, None], out=difference)
            np.multiply(difference, difference, out=difference)
            distances += difference
    return np.asarray(distances.argmin(axis=0), dtype=np.intp)


def _by_scores(rows: FloatArray, centers: FloatArray) -> IntArray:
    """Return the labels, by a matrix product where no rounding can change them, else by the law.

    With S the length of the row plus that of the longest center, both from the centers' mean, the error of a
    difference of two scores is at most 8 (d + 4) eps S^2, that of a difference of two squared distances by
    the law at most (d + 4) eps S^2. The threshold exceeds both together, so that it does not matter which
    rows are decided by the law. Underflow of products adds far less than 2^-1000.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # What overflows is decided by the law.
        origin = (centers / len(centers)).sum(axis=0)
        near, short = rows - origin, centers - origin
        reach = np.sqrt(squared_lengths(near)) + float(np.sqrt(squared_lengths(short).max()))
        scores = np.einsum("kd,kd->k", short, short) - 2.0 * (near @ short.T)
        relative = max(1e-10, 16.0 * rows.shape[1] * float(np.finfo(np.float64).eps))
        unsure = scores.min(axis=1) + (relative * np.square(reach) + 2.0**-1000)
        sure = (scores > unsure[:, None]).sum(axis=1) == len(centers) - 1
    labels = np.asarray(scores.argmin(axis=1), dtype=np.intp)
    labels[~sure] = _by_law(rows[~sure], centers)
    return labels


def cell_sums(rows: FloatArray, cells: IntArray, n_cells: int) -> tuple[FloatArray, FloatArray]:
    """Return the number of rows in each cell, (n_cells,), and their sums, (n_cells, n_features), by the law.

    Args:
        rows: float64 of shape (n_rows, n_features).
        cells: cell of each row, intp of shape (n_rows,).
        n_cells: number of cells.
    """
    counts = np.bincount(cells, minlength=n_cells).astype(np.float64)
    # One column a row, with a single 1 in the row of its cell: the product adds the rows in their order.
    which = csc_array((np.ones(len(rows)), cells, np.arange(len(rows) + 1)), shape=(n_cells, len(rows)))
    return counts, np.asarray(which @ rows, dtype=np.float64)


def weighted_sums(weights: FloatArray, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the sums of each center's weights, (n_centers,), and of the rows with them, (..., n_features).

    Args:
        weights: float64 of shape (n_centers, n_rows).
        rows: float64 of shape (n_rows, n_features).
    """
    (k, n), d = weights.shape, rows.shape[1]
    size = max(1, min(n, _PRODUCTS // (k * (d + 1))))
    # The first row holds the sums so far; NumPy adds whole rows one after the other.
    products, factors = np.zeros((size + 1, k, d + 1)), np.ascontiguousarray(weights.T)
    for first in range(0, n, size):
        here = slice(first, first + size)
        part = products[1 : 1 + len(rows[here])]
        part[:, :, d] = factors[here]
        np.multiply(factors[here, :, None], rows[here, None, :], out=part[:, :, :d])
        products[0] = np.add.reduce(products[: 1 + len(part)].reshape(-1, k * (d + 1)), axis=0).reshape(k, -1)
    return products[0, :, d].copy(), products[0, :, :d].copy()


def step(clients: list[FloatArray], centers: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return counts, (n_clients, k), and sums, (n_clients, k, d), of each client's rows by nearest center.

    Args:
        clients: rows of each client, float64 of shape (n_i, d).
        centers: each client's, (n_clients, k, d), or (1, k, d), the same for all.
    """
    k, d = centers.shape[1:]
    rows = clients[0] if len(clients) == 1 else np.concatenate(clients)
    owner = np.repeat(np.arange(len(clients)), [len(own) for own in clients])
    if len(centers) == 1:
        labels = nearest(rows, centers[0])
    elif d <= FEW_FEATURES:
        labels = _by_law_each(rows, centers, owner)
    else:
        labels = np.concatenate([nearest(own, near) for own, near in zip(clients, centers, strict=True)])
    counts, sums = cell_sums(rows, owner * k + labels, len(clients) * k)
    return counts.reshape(-1, k), sums.reshape(-1, k, d)


def _by_law_each(rows: FloatArray, centers: FloatArray, owner: IntArray) -> IntArray:
    """Return the labels of rows of few columns, each among its own client's centers."""
    distances = np.zeros((centers.shape[1], len(rows)))
    with np.errstate(over="ignore"):
        for t, column in enumerate(np.ascontiguousarray(rows.T)):
            difference = column - np.ascontiguousarray(centers[:, :, t].T)[:, owner]
            np.multiply(difference, difference, out=difference)
            distances += difference
    return np.asarray(distances.argmin(axis=0), dtype=np.intp)
