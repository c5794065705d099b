"""Excludes rows that cannot have taken part, from sums without noise.

If a row took part, each sum without it is a sum over one row fewer. So a row did not take part if a count
that it would be in is 0, if it would be alone in its cell and is not the sum of the cell, or if the mean of
the others lies in another cell: cells are convex, so a mean of rows of a cell lies in it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from privfed.attacks.evidence.equations import Equations, Rows, Shown
from privfed.core.values.domain import FloatArray

_ERROR = 1e-6
"""Largest error of an exact sum, from rounding in masked sums, as a share of the ranges."""


def contradictions(rows: FloatArray, sums: Iterable[Equations], n_clients: int) -> FloatArray:
    """Return in how many sums each row contradicts what was shown, float64 of shape (n_rows,).

    A row of a client contradicts only sums that the client is in. The client is unknown, so the one with
    fewest contradictions counts. The number is 0 for a row that took part, but for rounding at the border of
    a cell.

    Args:
        rows: candidates, float64 of shape (n_rows, n_features).
        sums: what was shown; sums with noise are left out.
        n_clients: number of clients.
    """
    found, seen = np.zeros((n_clients, len(rows))), np.zeros(n_clients, dtype=np.bool_)
    for one in sums:
        if not one.exact:
            continue
        own = one.of_rows(rows)
        for shown in one.shown:
            inside = list(shown.clients)
            found[inside] += _contradicts(one, shown, own)
            seen[inside] = True
    return found[seen].min(axis=0) if seen.any() else np.zeros(len(rows))


def _contradicts(one: Equations, shown: Shown, own: Rows) -> npt.NDArray[np.bool_]:
    """Say which rows one sum excludes, bool of shape (n_rows,)."""
    totals, excluded = one.parts(shown.values), np.zeros(len(own.rows), dtype=np.bool_)
    for name in own.counts:
        left = (totals[name] - own.added[name]).reshape(len(excluded), -1)
        excluded |= left.min(axis=1) < -_ERROR * max(1.0, float(totals[name].max()))
    if own.cell is None or not own.sum:
        return excluded
    n_cells, d = totals[own.count].size, own.rows.shape[1]
    ranges, others = one.question.ranges, np.rint(totals[own.count][own.cell]) - 1.0
    error = _ERROR * np.maximum(ranges.width, np.abs(ranges.low))
    rest = totals[own.sum].reshape(n_cells, d)[own.cell] - own.rows
    excluded |= (others == 0.0) & (np.abs(rest) > error).any(axis=1)
    with_others = np.flatnonzero(~excluded & (others > 0.0))
    if with_others.size:
        mean = rest[with_others] / others[with_others, None]
        beyond = ((mean < ranges.low - error) | (mean > ranges.high + error)).any(axis=1)
        excluded[with_others] = beyond | (one.of_rows(mean).cell != own.cell[with_others])
    return excluded
