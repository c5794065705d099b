"""Excludes rows that cannot have taken part, from sums without noise.

If a row took part, each sum without it is a sum over one row fewer. So a row did not take part if a count
that it would be in is 0, if it would be alone in its cell and is not the sum of the cell, or if the mean of
the others lies in another cell: cells are convex, so a mean of rows of a cell lies in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from privfed.attacks.base.measures import IntArray
from privfed.attacks.evidence.equations import Counted, Equations, Rows, counted_in
from privfed.core.values.domain import FloatArray, Ranges

BoolArray = npt.NDArray[np.bool_]

_ERROR = 1e-6
"""Largest error of an exact sum, from rounding in masked sums, as a share of the ranges."""


def contradictions(rows: FloatArray, sums: Iterable[Equations], n_clients: int) -> FloatArray:
    """Return in how many sums each row contradicts what was shown, float64 of shape (n_rows,).

    A row of a client contradicts only sums that the client is in. The client is unknown, so the one with
    fewest contradictions counts. The number is 0 for a row that took part, but for rounding at the border of
    a cell. Nothing is said unless some cell holds a single row: clients that answer from groups of rows never
    show one, and the means that they count instead contradict the rows themselves.

    Args:
        rows: candidates, float64 of shape (n_rows, n_features).
        sums: what was shown; sums with noise, and those without cells, are left out.
        n_clients: number of clients.
    """
    found, seen = np.zeros((n_clients, len(rows))), np.zeros(n_clients, dtype=np.bool_)
    alone = False
    for one in sums:
        declared = one.question.declaration
        # One number for all rows excludes none.
        if not one.exact or declared is None or not (declared.centers or declared.n_cells):
            continue
        cells, ranges = counted_in(one.question), one.question.ranges
        inside = np.clip(rows, ranges.low, ranges.high)
        added = one.of_rows(rows) if cells is None else None
        place = None if cells is None else cells.cells.place(inside)
        for shown in one.shown:
            clients, totals = list(shown.clients), one.parts(shown.values)
            if cells is not None:
                alone |= bool((np.abs(totals[cells.count] - 1.0) < 0.5).any())
            if cells is not None and place is not None:
                found[clients] += _misplaced(totals, cells, place, inside, ranges)
            elif added is not None:
                found[clients] += _too_many(totals, added)
            seen[clients] = True
    return found[seen].min(axis=0) if alone else np.zeros(len(rows))


def _too_many(totals: Mapping[str, FloatArray], own: Rows) -> BoolArray:
    """Say which rows add more to a count than it holds, bool of shape (n_rows,)."""
    excluded = np.zeros(len(own.rows), dtype=np.bool_)
    for name in own.counts:
        left = (totals[name] - own.added[name]).reshape(len(excluded), -1)
        excluded |= left.min(axis=1) < -_ERROR * max(1.0, float(totals[name].max()))
    return excluded


def _misplaced(
    totals: Mapping[str, FloatArray], found: Counted, place: IntArray, rows: FloatArray, ranges: Ranges
) -> BoolArray:
    """Say which rows are in an empty cell, or do not fit to the others of their cell, bool (n_rows,)."""
    others = np.rint(totals[found.count].ravel())[place] - 1.0
    excluded = others < 0.0
    if not found.sum:
        return np.asarray(excluded)
    error = _ERROR * np.maximum(ranges.width, np.abs(ranges.low))
    rest = totals[found.sum].reshape(-1, rows.shape[1])[place] - rows
    excluded |= (others == 0.0) & (np.abs(rest) > error).any(axis=1)
    more = np.flatnonzero(others > 0.0)
    if more.size:
        mean = rest[more] / others[more, None]
        beyond = ((mean < ranges.low - error) | (mean > ranges.high + error)).any(axis=1)
        at = found.cells.place(np.clip(mean, ranges.low, ranges.high))
        excluded[more] = beyond | (at != place[more])
    return np.asarray(excluded)
