"""Checks values by the declarations of parameters: an estimator's own, and fields of the same names."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Mapping
from inspect import formatannotation
from typing import Any

import numpy as np

from privfed.errors import ArgumentError
from privfed.estimators.declaring import Parameter


def check_integer(name: str, value: Any, low: int, high: float = np.inf) -> int:
    """Return the value as an integer from `low` to `high`.

    Raises:
        ArgumentError: it is not one.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < low:
        raise ArgumentError(
            f"{name} must be an integer of at least {low}, got {name}={value!r}.", parameters=[name]
        )
    if value > high:
        raise ArgumentError(f"{name} must be at most {high:g}, got {name}={value}.", parameters=[name])
    return int(value)


def check_number(
    name: str,
    value: Any,
    low: float,
    high: float = np.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return the value as a finite number between `low` and `high`.

    Raises:
        ArgumentError: it is not one.
    """
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    inside = number and np.isfinite(value) and low <= value <= high
    if not inside or (open_low and value == low) or (open_high and value == high):
        interval = f"{'(' if open_low else '['}{low}, {high}{')' if open_high or high == np.inf else ']'}"
        raise ArgumentError(
            f"{name} must be a number in {interval}, got {name}={value!r}.", parameters=[name]
        )
    return float(value)


def check_values(declared: Mapping[str, Parameter], values: Mapping[str, Any]) -> None:
    """Check that values are what parameters of their names are declared to be.

    Args:
        declared: parameters by name.
        values: by name; those of other names are not looked at.

    Raises:
        ArgumentError: a number is out of its bounds, or a name is unknown.
    """
    for name, one in declared.items():
        if name not in values:
            continue
        value, written = values[name], _as_text(one.annotation)
        known = written.removesuffix(" | None")
        if known.startswith("Literal[") and known.endswith("]"):
            literals = literal_eval(known.removeprefix("Literal"))
            allowed = literals if known == written else (None, *literals)
            if value not in allowed:
                *others, last = ("None" if each is None else f'"{each}"' for each in allowed)
                raise ArgumentError(
                    f"{name} must be {', '.join(others)} or {last}, got {name}={value!r}.", parameters=[name]
                )
        if written == "bool" and not isinstance(value, bool | np.bool_):
            raise ArgumentError(f"{name} must be True or False, got {value!r}.", parameters=[name])
        if not one.bounds or (value is None and "None" in written):
            continue
        low, high = map(float, one.bounds[1:-1].split(","))
        if written.startswith("int"):
            check_integer(name, value, int(low), high)
        else:
            check_number(
                name, value, low, high, open_low=one.bounds[0] == "(", open_high=one.bounds[-1] == ")"
            )


def _as_text(annotation: Any) -> str:
    """Return a parameter's type as text; without `from __future__ import annotations` it is no text yet."""
    written = annotation if isinstance(annotation, str) else formatannotation(annotation)
    inner = written.removeprefix("Optional[")
    return written if inner == written else f"{inner[:-1]} | None"
