"""Joins coordinates to rows, after each axis was measured on its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from privfed.core.values.domain import FloatArray


def joined(
    axes: Sequence[FloatArray], mixtures: Sequence[FloatArray], mix: float, tolerance: float
) -> FloatArray:
    """Join values on all axes to rows, by values along axis 0 plus `mix` times another axis.

    A pair (a, b) belongs together if a + mix b is among the mixture's values; for an irrational `mix`
    hardly any other pair fits.

    Args:
        axes: values of all rows along each axis, each (n_rows,).
        mixtures: values of all rows along axis 0 plus `mix` times axis j, for j = 1, 2, ..., each (n_rows,).
        mix: factor of the other axis.
        tolerance: largest error of a + mix b.

    Returns:
        The rows that could be completed, float64 of shape (n_joined, n_axes).
    """
    first, n = axes[0], len(axes[0])
    columns, complete = [first], np.ones(n, dtype=np.bool_)
    for other, values in zip(axes[1:], mixtures, strict=True):
        sums, ordered = first[:, None] + mix * other, np.sort(values)
        place = np.clip(np.searchsorted(ordered, sums), 1, n - 1) if n > 1 else np.ones_like(sums, dtype=int)
        nearest = np.minimum(np.abs(ordered[place - 1] - sums), np.abs(ordered[place % n] - sums))
        a, b = np.nonzero(nearest <= tolerance)
        pairs = coo_array((np.ones(len(a)), (a, b)), shape=(n, n)).tocsr()
        match = maximum_bipartite_matching(pairs, perm_type="column")
        complete &= match >= 0
        columns.append(other[match])
    return np.column_stack(columns)[complete]
