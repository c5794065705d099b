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
import numpy.typing as npt
from scipy.linalg import qr

from privfed.attacks.base.report import IntArray
from privfed.attacks.evidence.equations import asked, counted_in
from privfed.attacks.evidence.pooling import taken_out
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.privacy.noised import Noised
from privfed.questions.local_points import PointCells, PointSums

BoolArray = npt.NDArray[np.bool_]
_MOST_ROWS = 9
"""Most rows of a subset."""
_MOST_SUBSETS = 200_000
"""Most subsets that are made at once, so that the rows nearest to a total's mean are tried."""
_ERROR = 1e-7
"""Largest error of a sum of rows, as a share of the columns' spread: rounding of a masked sum."""
_MOST_FITS = 2_000
"""Most pairs of halves that fit; one subset is some hundred of them."""
CHANCE = 1e-3
"""Most subsets that may be expected to fit a total by chance."""


def named(view: View, rows: FloatArray) -> tuple[BoolArray, BoolArray, View]:
    """Return which listed rows must have taken part, and what is left without those that are named alone.

    A total that is told is taken out of all others, of which some are small then. Where no total shows a
    single row, clients may answer from groups: the mean is taken out in the place of each row.

    Args:
        view: what a party saw; sums with noise are not read.
        rows: the list, float64 of shape (n_rows, n_features).

    Returns:
        Which rows are in some total, bool of shape (n_rows,); which of them were taken out, likewise; and the
        view of the others. Its totals that do not add up over rows are left out.
    """
    found, gone, seen = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_), set[bytes]()
    scale, middle = np.maximum(rows.std(axis=0), 1e-12), rows.mean(axis=0)
    table = (rows - middle) / scale
    # Over how many places the values of each independent column are spread, on a grid by its step.
    steps = np.array([step_of(column) for column in table.T])
    _, triangle, order = qr(table, mode="economic", pivoting=True)
    spread = np.abs(np.diag(triangle)) / len(table) ** 0.5
    spread_over = (2.0 * pi) ** 0.5 * spread / steps[order[: len(spread)]]
    grouped = all(n != 1 for n, _ in small_totals(view))
    while True:
        listed, parts = np.flatnonzero(~gone), list[FloatArray]()
        for count, total in small_totals(view):
            # Taking rows out leaves rounding.
            key = np.rint(total / scale / _ERROR / 10.0).tobytes()
            if key in seen:
                continue
            seen.add(key)
            for n in [count] if count else range(1, _MOST_ROWS + 1):
                wanted = (total if count else n * total) - n * middle
                # How many subsets there are, beside how many places their sums are spread over.
                places = np.log(np.maximum(spread_over * n**0.5, 1.0)).sum()
                if n <= len(listed) and log(comb(len(listed), n)) - places < log(CHANCE):
                    fit = _subsets(table[listed], wanted / scale, n)
                    if fit:
                        found[listed[sorted(set.intersection(*fit))]] = True
                    if count and len(fit) == 1 and not gone[own := listed[sorted(fit[0])]].any():
                        gone[own] = True
                        parts.append(np.repeat(total[None] / n, n, axis=0) if grouped else rows[own])
                    if fit:
                        break
        if not parts:
            return found, gone, view
        view = taken_out(view, np.concatenate(parts))


def step_of(column: FloatArray) -> float:
    """Return the largest step of which all differences of a column's values are multiples (Euclid's)."""
    gaps = np.diff(np.unique(column))
    gaps = gaps[gaps > _ERROR]
    step = float(gaps.min(initial=1.0))
    while (left := np.abs(gaps - step * np.rint(gaps / step))).max(initial=0.0) > _ERROR:
        step = float(left[left > _ERROR].min())
    return max(step, 2.0 * _ERROR)


def small_totals(view: View, most: int = _MOST_ROWS) -> Iterator[tuple[int, FloatArray]]:
    """Yield number and sum of the rows of each cell; 0 and the mean, where a cell holds one client's mean."""
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
            if n == 1.0 if means else 1.0 <= n <= most:
                yield 0 if means else int(n), total


def _subsets(table: FloatArray, total: FloatArray, n: int) -> list[set[int]]:
    """Return the subsets of n rows that add up to a total."""
    larger, most = n - n // 2, len(table)
    while comb(most, larger) > _MOST_SUBSETS:
        most = int(0.95 * most)
    near = np.argsort(np.square(table - total / n).sum(axis=1))[:most]
    directions = np.random.default_rng(0).normal(size=(table.shape[1], 2))
    along, error = table[near] @ directions, _ERROR * n * np.abs(directions).sum(axis=0)
    first, second = (_subsets_of(len(near), size) for size in (n // 2, larger))
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
def _subsets_of(n_rows: int, size: int) -> IntArray:
    """Return all subsets of a size, (n_subsets, size)."""
    return np.array(list(combinations(range(n_rows), size)), dtype=np.intp).reshape(comb(n_rows, size), size)
