"""Checks of numbers that users pass: what is none is told by name, bound and remedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from privfed.errors import ArgumentError


def check_whole(name: str, value: Any, low: int, high: int | None = None, *, or_none: bool = False) -> None:
    """Check that a value is a whole number within its bounds.

    Args:
        name: what the value is called.
        value: what was passed.
        low: the least that it may be.
        high: the most that it may be; None for any.
        or_none: whether None may stand in its place.

    Raises:
        ArgumentError: it is no whole number, or out of bounds.
    """
    if value is None and or_none:
        return
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        bounds = f"of at least {low}" if high is None else f"in [{low}, {high}]"
        none = ", or None" if or_none else ""
        raise ArgumentError(f"{name} must be a whole number {bounds}{none}, got {name}={value!r}.")


def as_number(name: str, value: Any) -> float:
    """Return a number as float64.

    Raises:
        ArgumentError: it is no single real number.
    """
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        return float(value)
    raise ArgumentError(f"{name} must be a number, got {name}={value!r}.")


def check_share(name: str, value: Any) -> None:
    """Check that a value is a share of something: a number in [0, 1).

    Raises:
        ArgumentError: it is none.
    """
    if not 0.0 <= as_number(name, value) < 1.0:
        raise ArgumentError(f"{name} must lie in [0, 1), got {name}={value}.")


def as_numbers(name: str, values: Any) -> npt.NDArray[np.float64]:
    """Return values as float64.

    Raises:
        ArgumentError: they are no real numbers, or lists of different lengths.
    """
    try:
        found = np.asarray(values)
        # Text that looks like a number is none: "1" beside 1 is a mistake.
        if found.dtype.kind in "buifO":
            return np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError):
        pass
    raise ArgumentError(
        f"{name} must be a number, or an array of numbers of equal rows, got {type(values).__name__}."
    )
