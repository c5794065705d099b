"""What two parties would each compute from the same secret: twice on two machines, once in a simulation.

The agreed key of two clients, and all that is derived from it, is the same on both sides. Where one process
simulates both, the second takes what the first computed; every byte that is sent stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

Value = TypeVar("Value")

MOST_HELD = 1 << 18
"""Most values that wait for their second reader."""


class Shared(Protocol):
    """Gives what two parties compute from the same values."""

    def once(self, values: Hashable, compute: Callable[[], Value]) -> Value:
        """Return what `compute` returns, given all the values that it depends on."""


class _Apart:
    """Parties on their own machines: each computes everything itself."""

    def once(self, values: Hashable, compute: Callable[[], Value]) -> Value:
        """Compute it."""
        return compute()


class InOneProcess:
    """Parties of one simulation. A value is kept until the second of two parties has taken it."""

    def __init__(self) -> None:
        self._held: dict[Hashable, Any] = {}

    def once(self, values: Hashable, compute: Callable[[], Value]) -> Value:
        """Compute it for the first party, and hand it to the second."""
        if values in self._held:
            taken: Value = self._held.pop(values)
            return taken
        if len(self._held) >= MOST_HELD:
            # Of clients that were lost meanwhile nobody takes them.
            self._held.clear()
        found = self._held[values] = compute()
        return found


APART: Shared = _Apart()
