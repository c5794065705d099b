"""Exact subsets: which few listed rows add up to a total, where no others of the list do.

A total that counts r rows is the sum of r rows, whatever put them together: a cell of a start, a group of
alike rows, a client's own centroid. All subsets of half its size are sorted along a direction, and each is
looked up for the other half (meet in the middle: Horowitz and Sahni, Journal of the ACM 21, 1974). What fits
along the direction is checked in every column. Rows are named that lie in all subsets that fit. A total in
which more than one in a thousand subsets may be expected to fit by chance names none: rows in few columns, or
with few decimals, add up to nearly everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations
from math import comb, log, pi

import numpy as np
from scipy.linalg import qr

from privfed.attacks.base.report import IntArray
from privfed.attacks.evidence.equations import asked, counted_in
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.privacy.noised import Noised
from privfed.questions.local_points import PointCells, PointSums

_MOST_ROWS = 9
"""Most rows of a subset."""
_MOST_HALVES = 200_000
"""Most subsets of half the size, so that the rows nearest to a total's mean are tried."""
_ERROR = 1e-7
"""Largest error of a sum of rows, as a share of the columns' spread: rounding of a masked sum."""
_MOST_FITS = 2_000
"""Most pairs of halves that fit; one subset is some hundred of them."""
CHANCE = 1e-3
"""Most subsets that may be expected to fit a total by chance."""


def named(view: View, rows: FloatArray) -> FloatArray:
    """Return in how many totals each listed row must be, float64 of shape (n_rows,).

    Args:
        view: what a party saw; sums with noise are not read.
        rows: the list, float64 of shape (n_rows, n_features).
    """
    found = np.zeros(len(rows))
    scale = np.maximum(rows.std(axis=0), 1e-12)
    table, middle = (rows - rows.mean(axis=0)) / scale, rows.mean(axis=0)
    bits = _distinct(table)
    for count, total in _small_totals(view):
        for n in [count] if count else range(1, _MOST_ROWS + 1):
            wanted = (total if count else n * total) - n * middle
            # How many subsets there are, beside how many places their sums are spread over.
            places = np.log(np.maximum(bits * n**0.5, 1.0)).sum()
            if n <= len(rows) and log(comb(len(rows), n)) - places < log(CHANCE):
                fit = _subsets(table, wanted / scale, n)
                if fit:
                    found[sorted(set.intersection(*fit))] += 1.0
                    break
    return found


def _distinct(table: FloatArray) -> FloatArray:
    """Return over how many places the values of each independent column are spread, (n_columns,).

    A column of values on a grid has the grid's step. Columns that follow from others add none.
    """
    steps = np.array([step_of(column) for column in table.T])
    _, triangle, order = qr(table, mode="economic", pivoting=True)
    spread = np.abs(np.diag(triangle)) / len(table) ** 0.5
    return np.asarray((2.0 * pi) ** 0.5 * spread / steps[order[: len(spread)]])


def step_of(column: FloatArray) -> float:
    """Return the largest step of which all differences of a column's values are multiples (Euclid's)."""
    gaps = np.diff(np.unique(column))
    gaps = gaps[gaps > _ERROR]
    step = float(gaps.min(initial=1.0))
    while (left := np.abs(gaps - step * np.rint(gaps / step))).max(initial=0.0) > _ERROR:
        step = float(left[left > _ERROR].min())
    return max(step, 2.0 * _ERROR)


def _small_totals(view: View) -> Iterator[tuple[int, FloatArray]]:
    """Yield number and sum of the rows of each cell; 0 and the mean, where a cell holds one client's mean."""
    seen = set[bytes]()
    for one in view.sums:
        question = asked(one)
        if question is None or one.total is None or isinstance(one.question, Noised):
            continue
        if isinstance(question, PointCells | PointSums):
            count, sums, means = one.total["count"], one.total["sum"], not question.points.counts_rows
        elif (cells := counted_in(question)) is not None and cells.sum:
            count, sums, means = one.total[cells.count].ravel(), cells.sums(one.total), False
        else:
            continue
        for n, total in zip(np.rint(count).tolist(), sums, strict=True):
            if (n == 1.0 if means else 1.0 <= n <= _MOST_ROWS) and total.tobytes() not in seen:
                seen.add(total.tobytes())
                yield 0 if means else int(n), total


def _subsets(table: FloatArray, total: FloatArray, n: int) -> list[set[int]]:
    """Return the subsets of n rows that add up to a total."""
    larger, most = n - n // 2, len(table)
    while comb(most, larger) > _MOST_HALVES:
        most = int(0.95 * most)
    near = np.argsort(np.square(table - total / n).sum(axis=1))[:most]
    directions = np.random.default_rng(0).normal(size=(table.shape[1], 2))
    along, error = table[near] @ directions, _ERROR * n * np.abs(directions).sum(axis=0)
    first, second = (_halves(most, size) for size in (n // 2, larger))
    left, sums = total @ directions - along[first].sum(axis=1), along[second].sum(axis=1)
    order = np.argsort(sums[:, 0])
    low, high = (np.searchsorted(sums[order, 0], left[:, 0] + by) for by in (-error[0], error[0]))
    one = np.repeat(np.arange(len(first)), high - low)
    other = order[np.arange(len(one)) + np.repeat(low - np.cumsum(high - low) + high - low, high - low)]
    fits = np.flatnonzero(np.abs(left[one, 1] - sums[other, 1]) <= error[1])
    found = list[set[int]]()
    for i in fits[:_MOST_FITS].tolist():
        chosen = set(near[[*first[one[i]], *second[other[i]]]].tolist())
        off = np.abs(table[sorted(chosen)].sum(axis=0) - total).max()
        if len(chosen) == n and chosen not in found and off <= _ERROR * n:
            found.append(chosen)
    return found if len(fits) <= _MOST_FITS else []


@lru_cache(maxsize=4)
def _halves(n_rows: int, size: int) -> IntArray:
    """Return all subsets of a size, (n_subsets, size)."""
    return np.array(list(combinations(range(n_rows), size)), dtype=np.intp).reshape(comb(n_rows, size), size)
