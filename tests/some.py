"""Loops of tests that run at least once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Thing = TypeVar("Thing")


def some(things: Iterable[Thing]) -> Iterator[Thing]:
    """Yield the things; having none is an error, as a loop that never runs tests nothing."""
    number = -1
    for number, thing in enumerate(things):  # noqa: B007
        yield thing
    assert number >= 0, "there is nothing to loop over, so nothing was tested."
