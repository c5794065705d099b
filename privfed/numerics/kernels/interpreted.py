"""The kernel in NumPy: exact labels, distances and sums, without a compiler or memory of earlier calls.

Exact labels: a row belongs to the center of the least squared distance, the first of several. An exact
squared distance is the float64 sum of the squared differences of the columns, added one after the other from
zero. So a row's label depends on the row and the centers alone: on no other row, no BLAS and no number of
threads.

Exact sums: a center's sum begins at zero, and its rows are added one after the other, in their order. So do
weighted sums, where each row is multiplied by its weight for a center before it is added.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array

from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import squared_lengths

IntArray = npt.NDArray[np.intp]

FEW_FEATURES = 8
"""Up to this many columns, distances from differences are as fast as a matrix product."""

_MOST_DISTANCES = 1 << 17
"""Most distances in memory at once: getting memory for more takes longer than computing them."""

_BLOCK = 1 << 14
"""Most distances, or products of rows and weights, that are added up at once: they stay in a core's cache."""


class Nearest(NamedTuple):
    """Each row's nearest center.

    Attributes:
        labels: its index, the first of equals, intp of shape (n_rows,).
        squares: squared distance to it, float64 of shape (n_rows,).
    """

    labels: IntArray
    squares: FloatArray


class TwoNearest(NamedTuple):
    """Each row's two nearest centers.

    Attributes:
        labels: index of the nearest, the first of equals, intp of shape (n_rows,).
        squares: squared distance to it, float64 of shape (n_rows,).
        others: squared distance to the nearest of the other centers; infinite where there is none.
    """

    labels: IntArray
    squares: FloatArray
    others: FloatArray


def distances(rows: FloatArray, centers: FloatArray) -> FloatArray:
    """Return the exact squared distances, float64 of shape (n_centers, n_rows)."""
    columns, found = np.ascontiguousarray(rows.T), np.zeros((len(centers), len(rows)))
    height = max(1, _BLOCK // max(1, len(rows)))
    with np.errstate(over="ignore"):
        for top in range(0, len(centers), height):
            some = slice(top, top + height)
            for left in range(0, len(rows), _BLOCK):
                part = found[some, left : left + _BLOCK]
                difference = np.empty_like(part)
                for column, coordinate in zip(columns, centers[some].T, strict=True):
                    np.subtract(coordinate[:, None], column[left : left + _BLOCK], out=difference)
                    difference *= difference
                    part += difference
    return found


def own_squares(points: FloatArray, centers: FloatArray) -> FloatArray:
    """Return the squared distance of each point to its own center, both (n_points, d), shape (n_points,)."""
    total = np.zeros(len(points))
    with np.errstate(over="ignore"):
        for column, coordinate in zip(points.T, centers.T, strict=True):
            total += np.square(coordinate - column)
    return total


def squared_distances(rows: FloatArray, centers: FloatArray) -> FloatArray:
    """Return squared Euclidean distances, float64 of shape (n_rows, n_centers), never negative.

    They come from differences for few columns, and from a matrix product otherwise: they are not exact.
    """
    if rows.shape[1] <= FEW_FEATURES:
        found = np.empty((len(rows), len(centers)))
        for j, center in enumerate(centers):
            difference = rows - center
            np.einsum("nd,nd->n", difference, difference, out=found[:, j])
        return found
    # The origin is moved to the centers' mean: far from the origin the three terms would cancel.
    origin = centers.mean(axis=0)
    rows, centers = rows - origin, centers - origin
    products = rows @ centers.T
    squares: FloatArray = np.einsum("nd,nd->n", rows, rows)[:, None] + np.einsum("kd,kd->k", centers, centers)
    return np.asarray(np.maximum(squares - 2.0 * products, 0.0))


def two_nearest(rows: FloatArray, centers: FloatArray) -> TwoNearest:
    """Return each row's label, and the exact squared distances to its center and to the next."""
    labels, least, others = np.empty(len(rows), dtype=np.int64), np.empty(len(rows)), np.empty(len(rows))
    size = max(1, _BLOCK // len(centers))
    for first in range(0, len(rows), size):
        here = slice(first, first + size)
        squares = distances(rows[here], centers)
        every = np.arange(squares.shape[1])
        labels[here] = own = squares.argmin(axis=0)
        least[here], squares[own, every] = squares[own, every], np.inf
        others[here] = squares.min(axis=0)
    return TwoNearest(labels, least, others)


def nearest(rows: FloatArray, centers: FloatArray) -> IntArray:
    """Return the index of each row's nearest center, the exact label, shape (n_rows,).

    Args:
        rows: float64 of shape (n_rows, n_features), finite.
        centers: float64 of shape (n_centers, n_features), finite.
    """
    size, found = max(1, _MOST_DISTANCES // len(centers)), np.empty(len(rows), dtype=np.intp)
    decide = _exact_labels if rows.shape[1] <= FEW_FEATURES else _by_scores
    for first in range(0, len(rows), size):
        found[first : first + size] = decide(rows[first : first + size], centers)
    return found


def _exact_labels(rows: FloatArray, centers: FloatArray) -> IntArray:
    # Rows that are infinitely far from all centers belong to the first.
    return np.asarray(distances(rows, centers).argmin(axis=0), dtype=np.intp)


def _by_scores(rows: FloatArray, centers: FloatArray) -> IntArray:
    """Return the labels: by a matrix product where no rounding can change them, else by exact distances.

    Let S be the length of the row plus that of the longest center, both from the centers' mean. The error of
    a difference of two scores is at most 8 (d + 4) eps S^2. The error of a difference of two exact squared
    distances is at most (d + 4) eps S^2. The threshold exceeds both together, so that it does not matter
    which rows are decided by exact distances. Underflow of products adds far less than 2^-1000.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # What overflows is decided exactly.
        origin = (centers / len(centers)).sum(axis=0)
        near, short = rows - origin, centers - origin
        reach = np.sqrt(squared_lengths(near)) + float(np.sqrt(squared_lengths(short).max()))
        scores = np.einsum("kd,kd->k", short, short) - 2.0 * (near @ short.T)
        relative = max(1e-10, 16.0 * rows.shape[1] * float(np.finfo(np.float64).eps))
        unsure = scores.min(axis=1) + (relative * np.square(reach) + 2.0**-1000)
        sure = (scores > unsure[:, None]).sum(axis=1) == len(centers) - 1
    labels = np.asarray(scores.argmin(axis=1), dtype=np.intp)
    labels[~sure] = _exact_labels(rows[~sure], centers)
    return labels


def cell_sums(rows: FloatArray, cells: IntArray, n_cells: int) -> tuple[FloatArray, FloatArray]:
    """Return the number of rows in each cell, (n_cells,), and their sums, (n_cells, n_features).

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
    size = max(1, min(n, _BLOCK // (k * (d + 1))))
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
        labels = _labels_each(rows, centers, owner)
    else:
        labels = np.concatenate([nearest(own, near) for own, near in zip(clients, centers, strict=True)])
    counts, sums = cell_sums(rows, owner * k + labels, len(clients) * k)
    return counts.reshape(-1, k), sums.reshape(-1, k, d)


def _labels_each(rows: FloatArray, centers: FloatArray, owner: IntArray) -> IntArray:
    """Return the labels of rows of few columns, each among its own client's centers."""
    distances = np.zeros((centers.shape[1], len(rows)))
    with np.errstate(over="ignore"):
        for t, column in enumerate(np.ascontiguousarray(rows.T)):
            difference = column - np.ascontiguousarray(centers[:, :, t].T)[:, owner]
            np.multiply(difference, difference, out=difference)
            distances += difference
    return np.asarray(distances.argmin(axis=0), dtype=np.intp)


def weighed(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the weighted sums over the last axis, added in order: a matrix product has no fixed order."""
    return np.asarray((values * weights).cumsum(axis=-1)[..., -1])
