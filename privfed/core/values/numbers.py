"""Numbers: checks of those that users pass, types of those that others send, and sums that round row by row.

In the sums a row's result depends on no other row, not even in the last bit. A matrix product, or a library
function that adds in blocks, may round a row's result differently when there are other rows. Here whole
columns are added instead. Each result is computed from its own row by elementwise operations, whose rounding
IEEE 754 fixes, in an order that depends on the number of columns only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from privfed.errors import ArgumentError

LEAST_BOUND, MOST_BOUND = 2.0**-450, 2.0**450
"""Least and largest bound on a contribution under differential privacy. Within them, squares of bounds and of
lengths to be compared with them are normal float64 numbers. Squares of smaller ones would underflow, and too
long contributions would pass the check."""


def check_bound(name: str, l2: float) -> None:
    """Check a bound on a contribution: a radius, a limit, or a value computed from centers and ranges.

    Raises:
        ArgumentError: it is so small or large that its square underflows or overflows in float64.
    """
    if not LEAST_BOUND <= l2 <= MOST_BOUND:
        raise ArgumentError(
            f"{name} must lie in [{LEAST_BOUND:.3g}, {MOST_BOUND:.3g}], where squares are exact enough to "
            f"keep to it, got {l2:.3g}; scale the features, or take smaller powers.",
            parameters=[name],
        )


def check_whole(name: str, value: Any, low: int, high: int | None = None, *, or_none: bool = False) -> None:
    """Check that a value is a whole number within its bounds.

    Args:
        name: name of the parameter.
        value: the value that was passed.
        low: least allowed value.
        high: largest allowed value; None for no limit.
        or_none: whether None is allowed.

    Raises:
        ArgumentError: it is not a whole number, or out of bounds.
    """
    if value is None and or_none:
        return
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        bounds = f"of at least {low}" if high is None else f"in [{low}, {high}]"
        none = ", or None" if or_none else ""
        raise ArgumentError(
            f"{name} must be a whole number {bounds}{none}, got {name}={value!r}.", parameters=[name]
        )


def as_number(name: str, value: Any) -> float:
    """Return a number as float64.

    Raises:
        ArgumentError: it is not a single real number.
    """
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        return float(value)
    raise ArgumentError(f"{name} must be a number, got {name}={value!r}.", parameters=[name])


def check_share(name: str, value: Any) -> None:
    """Check that a value is a share, that is, a number in [0, 1).

    Raises:
        ArgumentError: it is not.
    """
    if not 0.0 <= as_number(name, value) < 1.0:
        raise ArgumentError(f"{name} must lie in [0, 1), got {name}={value}.", parameters=[name])


def as_numbers(name: str, values: Any) -> npt.NDArray[np.float64]:
    """Return values as a float64 array.

    Raises:
        ArgumentError: they are not real numbers, or are lists of different lengths.
    """
    try:
        found = np.asarray(values)
        # Text is refused even if it spells a number, since "1" in place of 1 is a mistake.
        if found.dtype.kind in "buifO":
            return np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError):
        pass
    raise ArgumentError(
        f"{name} must be a number, or an array of numbers of equal rows, got {type(values).__name__}.",
        parameters=[name],
    )


MOST_ITEMS = 1 << 20
"""Most items of a list, or a mapping, in what is read from others: each takes more memory than its bytes."""

Item = TypeVar("Item")

Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A whole number of eight bytes."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A whole number of eight bytes, at least 0."""

Number = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
"""Numbers of sums, cohorts and clients: four bytes."""

Items = Annotated[tuple[Item, ...], msgspec.Meta(max_length=MOST_ITEMS)]
"""Several values, counted before the first is read."""

Named = Annotated[dict[str, Item], msgspec.Meta(max_length=MOST_ITEMS)]
"""Several values by name."""


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
