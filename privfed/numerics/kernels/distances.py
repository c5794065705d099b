"""All squared distances of some points to some centers, compiled by numba: those of the law of labels.

A distance is the float64 sum of the squared differences of the columns, added one after the other, as in
`.interpreted`; several points are added up side by side, which changes no bit.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

_BLOCK_POINTS = 256

_table = types.Array(types.float64, 2, "C", readonly=True)


@njit(types.void(_table, _table, types.float64[:, ::1]), cache=True, nogil=True)
def distances(points, centers, out):
    """Write the squared distances of (n, d) points to (k, d) centers, (k, n)."""
    n, d = points.shape
    columns, total = np.zeros((d, _BLOCK_POINTS)), np.zeros(_BLOCK_POINTS)
    for first in range(0, n, _BLOCK_POINTS):
        size = min(_BLOCK_POINTS, n - first)
        for i in range(size):
            for t in range(d):
                columns[t, i] = points[first + i, t]
        for j in range(len(centers)):
            for i in range(size):
                total[i] = 0.0
            whole = d - d % 4
            # Four columns at a time: their squares are still added one after the other.
            for t in range(0, whole, 4):
                a, b, c, e = centers[j, t], centers[j, t + 1], centers[j, t + 2], centers[j, t + 3]
                for i in range(_BLOCK_POINTS):
                    found = total[i]
                    found += (a - columns[t, i]) * (a - columns[t, i])
                    found += (b - columns[t + 1, i]) * (b - columns[t + 1, i])
                    found += (c - columns[t + 2, i]) * (c - columns[t + 2, i])
                    total[i] = found + (e - columns[t + 3, i]) * (e - columns[t + 3, i])
            for t in range(whole, d):
                a = centers[j, t]
                for i in range(_BLOCK_POINTS):
                    total[i] += (a - columns[t, i]) * (a - columns[t, i])
            for i in range(size):
                out[j, first + i] = total[i]
