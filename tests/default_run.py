"""Which parameters of a test run by default; the others are slow (`make test-slow`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest


def slow_but(every: Iterable[Any], *by_default: Any) -> list[Any]:
    """Return all parameters, marked slow but for those named here."""
    listed = list(every)
    assert by_default and all(one in listed for one in by_default), f"not among the parameters: {by_default}"
    return [one if one in by_default else slow(one) for one in listed]


def covering(*axes: Sequence[Any]) -> list[Any]:
    """Return the product of the axes; by default run as many as give each value of each axis its turn."""
    length = max(map(len, axes))
    by_default = {tuple(axis[turn % len(axis)] for axis in axes) for turn in range(length)}
    return slow_but(product(*axes), *by_default)


def slow(one: Any) -> Any:
    """Return a parameter, or a tuple of several, marked slow."""
    return pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=pytest.mark.slow)
