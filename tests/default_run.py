"""Which parameters of a test run by default; the others are slow (`make test-slow`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import settings


def slow_but(every: Iterable[Any], *by_default: Any) -> list[Any]:
    """Return all parameters, marked slow but for those named here."""
    listed = list(every)
    assert by_default and all(one in listed for one in by_default), f"not among the parameters: {by_default}"
    return [one if one in by_default else slow(one) for one in listed]


def covering(*axes: Sequence[Any]) -> list[Any]:
    """Return the product of the axes, of which so many run by default that each value has its turn.

    Of three axes or more each pair of values of two axes has its turn.
    """
    if len(axes) == 2:
        turns = range(max(map(len, axes)))
        return slow_but(product(*axes), *(tuple(axis[turn % len(axis)] for axis in axes) for turn in turns))
    left, by_default, every = set[Pair](), [], list(product(*axes))
    left.update(*(pairs(one) for one in product(*(range(len(axis)) for axis in axes))))
    indices = dict(zip(product(*(range(len(axis)) for axis in axes)), every, strict=True))
    while left:
        best = max(indices, key=lambda one: len(left & pairs(one)))
        left -= pairs(best)
        by_default.append(indices[best])
    return slow_but(every, *by_default)


Pair = tuple[tuple[int, int], ...]


def pairs(one: tuple[int, ...]) -> set[Pair]:
    """Return all pairs of (axis, number of its value) of a combination."""
    return set(combinations(enumerate(one), 2))


def examples(number: int) -> int:
    """Return how many examples of a law are tried: all in `make test-slow`, a quarter by default."""
    return max(1, number * settings().max_examples // 100)


def slow(one: Any) -> Any:
    """Return a parameter, or a tuple of several, marked slow."""
    return pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=pytest.mark.slow)


PLAIN_BY_DEFAULT = ["plain", slow("masked"), slow("group-masked"), slow("ckks")]
"""For laws of algorithms and runs: tests/estimators/test_contract.py finds the same over every sum."""
