"""Squared distances by the law of labels: all of them, the least of each row, and what a center more changes.

And weighted sums. The door to `.distances` and `.shared`, compiled, and to the same in NumPy: both give the
same bits, and a row's distances depend on no other row. The laws stand in `.interpreted`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels import interpreted
from privfed.numerics.kernels.choice import CHOICE, Choice
from privfed.numerics.kernels.interpreted import IntArray

_BLOCK = 1 << 14
"""Distances that are added up at a time, so that they stay in the processor's cache."""


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


def distances(points: FloatArray, centers: FloatArray, *, choice: Choice = CHOICE) -> FloatArray:
    """Return the squared distances, float64 of shape (n_centers, n_points); exactly 0 on a center.

    Args:
        points: float64 of shape (n_points, n_features).
        centers: float64 of shape (n_centers, n_features).
        choice: which kernel does the work.
    """
    compiled = choice.compiled(len(points), *centers.shape)
    if compiled is None:
        return _distances(points, centers)
    found = np.empty((len(centers), len(points)))
    compiled.distances(_table(points), _table(centers), found)
    return found


def _table(values: FloatArray) -> FloatArray:
    return np.ascontiguousarray(values, dtype=np.float64)


def _distances(points: FloatArray, centers: FloatArray) -> FloatArray:
    columns, found = np.ascontiguousarray(points.T), np.zeros((len(centers), len(points)))
    height = max(1, _BLOCK // max(1, len(points)))
    with np.errstate(over="ignore"):
        for top in range(0, len(centers), height):
            rows = slice(top, top + height)
            for left in range(0, len(points), _BLOCK):
                _add_squares(
                    found[rows, left : left + _BLOCK], columns[:, left : left + _BLOCK], centers[rows]
                )
    return found


def _add_squares(found: FloatArray, columns: FloatArray, centers: FloatArray) -> None:
    """Add the squared differences to distances in place, feature by feature."""
    difference = np.empty_like(found)
    for column, coordinate in zip(columns, centers.T, strict=True):
        np.subtract(coordinate[:, None], column, out=difference)
        difference *= difference
        found += difference


def own_squares(points: FloatArray, centers: FloatArray) -> FloatArray:
    """Return the squared distance of each point to its own center, both (n_points, d), shape (n_points,)."""
    total = np.zeros(len(points))
    with np.errstate(over="ignore"):
        for column, coordinate in zip(points.T, centers.T, strict=True):
            total += np.square(coordinate - column)
    return total


def nearest(rows: FloatArray, centers: FloatArray, *, choice: Choice = CHOICE) -> Nearest:
    """Return each row's nearest center, and the squared distance to it.

    Args:
        rows: float64 of shape (n_rows, n_features), finite.
        centers: float64 of shape (n_centers, n_features), finite.
        choice: which kernel does the work.
    """
    if choice.compiled(len(rows), *centers.shape) is not None:
        return Nearest(*two_nearest(rows, centers, choice=choice)[:2])
    labels = interpreted.nearest(rows, centers)
    return Nearest(labels, own_squares(rows, centers[labels]))


def two_nearest(rows: FloatArray, centers: FloatArray, *, choice: Choice = CHOICE) -> TwoNearest:
    """Return each row's nearest center, and the squared distances to it and to the next. As `nearest`."""
    compiled = choice.compiled(len(rows), *centers.shape)
    found = TwoNearest(np.empty(len(rows), dtype=np.int64), np.empty(len(rows)), np.empty(len(rows)))
    if compiled is not None:
        compiled.two_nearest(_table(rows), _table(centers), *found)
        return found
    size = max(1, _BLOCK // len(centers))
    for first in range(0, len(rows), size):
        squares = _distances(rows[first : first + size], centers)
        here, every = slice(first, first + size), np.arange(squares.shape[1])
        found.labels[here] = own = squares.argmin(axis=0)
        found.squares[here], squares[own, every] = squares[own, every], np.inf
        found.others[here] = squares.min(axis=0)
    return found


def joined(
    points: FloatArray,
    weights: FloatArray,
    candidates: FloatArray,
    closest: FloatArray,
    *,
    choice: Choice = CHOICE,
) -> tuple[FloatArray, FloatArray]:
    """Return how far points would be from the nearest center of a set that a candidate had joined.

    Args:
        points: float64 of shape (n_points, n_features).
        weights: float64 of shape (n_points,).
        candidates: float64 of shape (n_sets, n_candidates, n_features).
        closest: squared distances to the nearest center of each set as it is, float64 of shape (n_sets,
            n_points); infinite in an empty set.
        choice: which kernel does the work.

    Returns:
        Squared distances, (n_sets, n_candidates, n_points), and their weighted sums, (n_sets, n_candidates).
    """
    shape = candidates.shape
    compiled = choice.compiled(len(points), shape[0] * shape[1], shape[2])
    if compiled is None:
        found = _distances(points, candidates.reshape(-1, shape[2])).reshape(*shape[:2], len(points))
        np.minimum(found, closest[:, None], out=found)
        return found, weighed(found, weights)
    found, totals = np.empty((*shape[:2], len(points))), np.empty(shape[:2])
    compiled.joined(_table(points), weights, np.ascontiguousarray(candidates), closest, found, totals)
    return found, totals


def weighted_sums(
    weights: FloatArray, rows: FloatArray, *, choice: Choice = CHOICE
) -> tuple[FloatArray, FloatArray]:
    """Return the sums of each center's weights, (n_centers,), and of the rows with them, (..., n_features).

    Args:
        weights: float64 of shape (n_centers, n_rows).
        rows: float64 of shape (n_rows, n_features).
        choice: which kernel does the work.
    """
    compiled = choice.compiled(len(rows), len(weights), rows.shape[1])
    if compiled is None:
        return interpreted.weighted_sums(weights, rows)
    totals, sums = np.empty(len(weights)), np.empty((len(weights), rows.shape[1]))
    compiled.weighted_sums(weights, _table(rows), totals, sums)
    return totals, sums


def weighed(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the weighted sums over the last axis, added in order: a matrix product has no fixed order."""
    return np.asarray((values * weights).cumsum(axis=-1)[..., -1])
