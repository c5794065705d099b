"""Sums of rows that all centers share, compiled by numba: the law of weighted sums of `.interpreted`."""

from __future__ import annotations

from numba import njit, types

_table = types.Array(types.float64, 2, "C", readonly=True)
_parts = types.Array(types.float64, 2, "A", readonly=True)


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
