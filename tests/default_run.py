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


def mark_further_cases(items: Iterable[pytest.Item]) -> None:
    """Mark the cases of a test that says `few(number)` slow, but for as many as it says.

    Those that are left are spread over all, and each has the most values that none before it had.
    """
    cases: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and {"few", "slow"} & names(item) == {"few"}:
            cases.setdefault(item.nodeid.split("[")[0], []).append(item)
    for listed in cases.values():
        mark = listed[0].get_closest_marker("few")
        assert mark is not None
        for item in set(listed) - set(spread(listed, *mark.args)):
            item.add_marker(pytest.mark.slow)


def spread(cases: Sequence[pytest.Function], number: int) -> list[pytest.Function]:
    """Return so many of the cases of a test, which have as many different values as so many can."""
    assert number >= 1, number
    step = -(-len(cases) // number)
    left, chosen, seen = sorted(cases, key=lambda one: cases.index(one) % step), [], set[Any]()
    while left and len(chosen) < number:
        best = max(left, key=lambda one: len(set(one.callspec.indices.items()) - seen))
        left.remove(best)
        chosen.append(best)
        seen.update(best.callspec.indices.items())
    return chosen


def names(item: pytest.Item) -> set[str]:
    """Return the names of a case's marks."""
    return {mark.name for mark in item.iter_markers()}
