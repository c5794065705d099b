"""Checks of numbers that users pass, with errors that state name, bound and value."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from privfed.errors import ArgumentError


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
        raise ArgumentError(f"{name} must be a whole number {bounds}{none}, got {name}={value!r}.")


def as_number(name: str, value: Any) -> float:
    """Return a number as float64.

    Raises:
        ArgumentError: it is not a single real number.
    """
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        return float(value)
    raise ArgumentError(f"{name} must be a number, got {name}={value!r}.")


def check_share(name: str, value: Any) -> None:
    """Check that a value is a share, that is, a number in [0, 1).

    Raises:
        ArgumentError: it is not.
    """
    if not 0.0 <= as_number(name, value) < 1.0:
        raise ArgumentError(f"{name} must lie in [0, 1), got {name}={value}.")


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
        f"{name} must be a number, or an array of numbers of equal rows, got {type(values).__name__}."
    )
