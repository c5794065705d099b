"""Numbers: checks of those that users pass, types of those that others send, and sums that round row by row.

In the sums a row's result depends on no other row, not even in the last bit. A matrix product, or a library
function that adds in blocks, may round a row's result differently when there are other rows. Here whole
columns are added instead. Each result is computed from its own row by elementwise operations, whose rounding
IEEE 754 fixes, in an order that depends on the number of columns only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from privfed.errors import ArgumentError, BoundsError, WordError

LEAST_BOUND, MOST_BOUND = 2.0**-450, 2.0**450
"""Least and largest bound on a contribution under differential privacy. Within them, squares of bounds and of
lengths to be compared with them are normal float64 numbers. Squares of smaller ones would underflow, and too
long contributions would pass the check."""


def check_number(
    name: str, value: Any, bounds: str, *, whole: bool = False, or_none: bool = False, remedy: str = ""
) -> None:
    """Check that a value is a number within its bounds.

    Args:
        name: name of the parameter.
        value: the value that was passed.
        bounds: an interval, such as "(0, 1]" or "[1, inf)". NaN lies in none.
        whole: whether it must be a whole number.
        or_none: whether None is allowed.
        remedy: what else helps, which ends the message.

    Raises:
        BoundsError: it is no such number.
    """
    if value is None and or_none:
        return
    low, high = map(float, bounds[1:-1].split(","))
    kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    number = isinstance(value, kinds) and not isinstance(value, bool)
    ends = (bounds[0] == "(") * (low,) + (bounds[-1] == ")") * (high,)
    if not number or not low <= value <= high or value in ends:
        kind = "None or " * or_none + ("a whole number" if whole else "a number")
        raise BoundsError(name, value, bounds, kind=kind, remedy=remedy)


def check_whole(name: str, value: Any, low: int, high: float = np.inf, *, or_none: bool = False) -> None:
    """Check that a value is a whole number from `low` to `high`; raises as `check_number`."""
    upper = "inf)" if high == np.inf else f"{high}]"
    check_number(name, value, f"[{low}, {upper}", whole=True, or_none=or_none)


def check_flag(name: str, value: object, *, or_none: bool = False) -> None:
    """Check that a value is True or False; raises `ArgumentError`."""
    if not (isinstance(value, bool) or (value is None and or_none)):
        raise ArgumentError(
            f"{name} must be {'None, ' * or_none}True or False, got {name}={value!r}.", parameters=[name]
        )


def check_word(name: str, value: object, words: Sequence[str | None]) -> None:
    """Check that a value is one of a few words, of at least two; None may be one of them.

    Raises:
        WordError: it is another one.
    """
    if value not in words:
        raise WordError(name, value, words)


def check_bound(name: str, l2: float) -> None:
    """Check a bound on a contribution: a radius, a limit, or a value computed from centers and ranges.

    Raises:
        BoundsError: it is so small or large that its square underflows or overflows in float64.
    """
    remedy = ": outside, squares are not exact enough; scale the features, or take smaller powers"
    check_number(name, l2, f"[{LEAST_BOUND}, {MOST_BOUND}]", remedy=remedy)


def as_number(name: str, value: Any) -> float:
    """Return a number as float64.

    Raises:
        ArgumentError: it is not a single real number.
    """
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        return float(value)
    raise ArgumentError(f"{name} must be a number, got {name}={value!r}.", parameters=[name])


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


def consecutive(sizes: Iterable[float], most: float) -> Iterator[slice]:
    """Yield places of consecutive items whose sizes add up to at most `most`, or of single larger ones."""
    first, stop, total = 0, 0, 0.0
    for stop, size in enumerate(sizes):
        if total and total + size > most:
            yield slice(first, stop)
            first, total = stop, 0.0
        total += size
    yield slice(first, stop + 1)


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
    return np.asarray(columns[0])


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
