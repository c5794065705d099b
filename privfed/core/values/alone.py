"""Row-wise sums in which a row's result depends on no other row, not even in the last bit.

A matrix product, or a library function that adds in blocks, may round a row's result differently when there
are other rows. Here whole columns are added instead: each result is computed from its own row by elementwise
operations, whose rounding IEEE 754 fixes, in an order that depends on the number of columns only.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

_BLOCK = 1 << 15
"""Number of values in a block of rows, few enough to stay in the processor's cache."""

_Floats = npt.NDArray[np.float64]


def column_sum(columns: _Floats) -> _Floats:
    """Return the sum of `columns` (n_columns, n_rows), float64 of shape (n_rows,).

    The sum is pairwise, so that the rounding error grows with the logarithm of the number of columns.
    """
    while len(columns) > 1:
        half = len(columns) // 2
        folded = columns[:half] + columns[half : 2 * half]
        if len(columns) % 2:
            folded[0] += columns[-1]
        columns = folded
    total: _Floats = columns[0]
    return total


def _blocks(rows: _Floats) -> Iterator[tuple[slice, _Floats]]:
    """Yield blocks of rows: their slice, and a transposed copy, (n_columns, n_rows of the block)."""
    size = max(1, _BLOCK // rows.shape[1])
    for first in range(0, len(rows), size):
        place = slice(first, first + size)
        yield place, np.array(rows[place].T, order="C")


def products(rows: _Floats, vector: _Floats) -> _Floats:
    """Return the scalar product of each row of `rows` (n_rows, n_columns) with `vector`, shape (n_rows,)."""
    found = np.empty(len(rows))
    for place, columns in _blocks(rows):
        columns *= vector[:, None]
        found[place] = column_sum(columns)
    return found


def squared_lengths(rows: _Floats) -> _Floats:
    """Return the squared length of each row of `rows` (n_rows, n_columns), shape (n_rows,)."""
    found = np.empty(len(rows))
    for place, columns in _blocks(rows):
        np.square(columns, out=columns)
        found[place] = column_sum(columns)
    return found


def lengths(rows: _Floats) -> _Floats:
    """Return the length of each row of `rows` (n_rows, n_columns), shape (n_rows,)."""
    return np.sqrt(squared_lengths(rows))
