"""Exact squared distances and weighted sums, compiled by numba. `.dispatch` calls them.

`.interpreted` defines them: sums in float64, one addition after the other. Several points are added up side
by side, which changes no bit.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

_POINTS, _COLUMNS = 64, 32
"""Points side by side, and columns at a time: 16 kB, which stay in a core's nearest cache."""

_table = types.Array(types.float64, 2, "C", readonly=True)
_cube = types.Array(types.float64, 3, "C", readonly=True)
_parts = types.Array(types.float64, 2, "A", readonly=True)
_list = types.Array(types.float64, 1, "C", readonly=True)
_out, _outs, _out_sets = types.float64[::1], types.float64[:, ::1], types.float64[:, :, ::1]


@njit(cache=True)
def _add(totals, columns, center, start, width):
    """Add the squared differences of some columns to the distances of all points of a block, (64,)."""
    whole = width - width % 4
    # Four columns at a time: their squares are still added one after the other.
    for t in range(0, whole, 4):
        a, b, c, e = center[start + t], center[start + t + 1], center[start + t + 2], center[start + t + 3]
        for i in range(_POINTS):
            found = totals[i]
            found += (a - columns[t, i]) * (a - columns[t, i])
            found += (b - columns[t + 1, i]) * (b - columns[t + 1, i])
            found += (c - columns[t + 2, i]) * (c - columns[t + 2, i])
            totals[i] = found + (e - columns[t + 3, i]) * (e - columns[t + 3, i])
    for t in range(whole, width):
        a = center[start + t]
        for i in range(_POINTS):
            totals[i] += (a - columns[t, i]) * (a - columns[t, i])


@njit(cache=True)
def _block(points, first, size, centers, columns, totals):
    """Write the squared distances of `size` points, from `first` on, to all centers: (k, 64)."""
    d = points.shape[1]
    totals[:, :] = 0.0
    for start in range(0, d, _COLUMNS):
        width = min(_COLUMNS, d - start)
        for i in range(size):
            for t in range(width):
                columns[t, i] = points[first + i, start + t]
        for j in range(len(centers)):
            _add(totals[j], columns, centers[j], start, width)


@njit(types.void(_table, _table, _outs), cache=True, nogil=True)
def distances(points, centers, out):
    """Write the squared distances of (n, d) points to (k, d) centers, (k, n)."""
    columns, totals = np.zeros((_COLUMNS, _POINTS)), np.zeros((len(centers), _POINTS))
    for first in range(0, len(points), _POINTS):
        size = min(_POINTS, len(points) - first)
        _block(points, first, size, centers, columns, totals)
        for j in range(len(centers)):
            for i in range(size):
                out[j, first + i] = totals[j, i]


@njit(types.void(_table, _table, types.int64[::1], _out, _out), cache=True, nogil=True)
def two_nearest(points, centers, labels, least, second):
    """Write the nearest of (k, d) centers to each of (n, d) points, and the two least squared distances.

    Args:
        points: (n, d).
        centers: (k, d).
        labels: of the nearest center, the first of equals, (n,).
        least: squared distance to it, (n,).
        second: least squared distance to any other, infinite where there is none, (n,).
    """
    columns, totals = np.zeros((_COLUMNS, _POINTS)), np.zeros((len(centers), _POINTS))
    low, next_low, label = np.empty(_POINTS), np.empty(_POINTS), np.empty(_POINTS)
    for first in range(0, len(points), _POINTS):
        size = min(_POINTS, len(points) - first)
        _block(points, first, size, centers, columns, totals)
        low[:], next_low[:], label[:] = np.inf, np.inf, 0.0
        for j in range(len(centers)):
            # Without branches, so that many points are compared at once.
            for i in range(_POINTS):
                distance, nearer = totals[j, i], low[i]
                higher = distance if distance > nearer else nearer
                next_low[i] = higher if higher < next_low[i] else next_low[i]
                label[i] = j if distance < nearer else label[i]
                low[i] = distance if distance < nearer else nearer
        for i in range(size):
            labels[first + i], least[first + i], second[first + i] = int(label[i]), low[i], next_low[i]


@njit(types.void(_table, _list, _cube, _table, _out_sets, _outs), cache=True, nogil=True)
def joined(points, weights, candidates, closest, out, totals):
    """Write how far points would be from the nearest center, if a candidate was one, and the weighted sums.

    Args:
        points: (n, d).
        weights: of the points, (n,).
        candidates: of several sets, (n_sets, n_candidates, d).
        closest: squared distances to the nearest center of each set as it is, (n_sets, n).
        out: the same with one candidate more, (n_sets, n_candidates, n).
        totals: sums of these times the weights, added point by point, (n_sets, n_candidates).
    """
    n_sets, tries = candidates.shape[:2]
    columns, found = np.zeros((_COLUMNS, _POINTS)), np.zeros((tries, _POINTS))
    totals[:, :] = 0.0
    for first in range(0, len(points), _POINTS):
        size = min(_POINTS, len(points) - first)
        for s in range(n_sets):
            _block(points, first, size, candidates[s], columns, found)
            for c in range(tries):
                for i in range(size):
                    distance, known = found[c, i], closest[s, first + i]
                    out[s, c, first + i] = distance if distance < known else known
            for i in range(size):
                for c in range(tries):
                    totals[s, c] += out[s, c, first + i] * weights[first + i]


@njit(types.void(_parts, _table, types.float64[::1], types.float64[:, ::1]), cache=True, nogil=True)
def weighted_sums(weights, rows, totals, sums):
    """Add up weights, and rows times their weights, row after row.

    Args:
        weights: of each row for each center, (k, n).
        rows: (n, d).
        totals: written: sums of the weights, (k,).
        sums: written: sums of the rows with these weights, (k, d).
    """
    n, d = rows.shape
    totals[:], sums[:, :] = 0.0, 0.0
    whole = n - n % 4
    for r in range(0, whole, 4):
        for j in range(len(totals)):
            # Four rows at a time: they are still added one after the other.
            a, b, c, e = weights[j, r], weights[j, r + 1], weights[j, r + 2], weights[j, r + 3]
            totals[j] = totals[j] + a + b + c + e
            for t in range(d):
                found = sums[j, t] + a * rows[r, t]
                found += b * rows[r + 1, t]
                found += c * rows[r + 2, t]
                sums[j, t] = found + e * rows[r + 3, t]
    for r in range(whole, n):
        for j in range(len(totals)):
            a = weights[j, r]
            totals[j] += a
            for t in range(d):
                sums[j, t] += a * rows[r, t]
