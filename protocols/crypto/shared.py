"""What two parties would each compute from the same secret: twice on two machines, once in a simulation.

The agreed key of two clients, and all that is derived from it, is the same on both sides. Where one process
simulates both, the second takes what the first computed; every byte that is sent stays the same. A value is
kept under everything that it depends on, so that parties that were told different things share nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, MutableMapping
from typing import Any, Protocol, TypeVar

Value = TypeVar("Value")
Held = MutableMapping[Hashable, Any]

MOST_HELD = 1 << 18
"""Most values that wait for their second reader."""


class Shared(Protocol):
    """Keeps what one of two parties computed until the other takes it."""

    def held(self, *of: Hashable) -> Held:
        """Return the values that were computed and not yet taken.

        Args:
            of: what all of them depend on: their kind, the session, the sum.
        """


class _Apart:
    """Parties on their own machines: each computes everything itself."""

    def held(self, *of: Hashable) -> Held:
        """Return nothing, anew."""
        return {}


class InOneProcess:
    """Parties of one simulation. A value is kept until the second of two parties has taken it."""

    def __init__(self) -> None:
        self._held: dict[Hashable, Held] = {}

    def held(self, *of: Hashable) -> Held:
        """Return what the first of two parties left for the second."""
        if of not in self._held:
            # Of clients that were lost nobody takes their values: in the end all are computed anew.
            full = sum(map(len, self._held.values())) >= MOST_HELD
            self._held = {} if full else {key: held for key, held in self._held.items() if held}
            self._held[of] = {}
        return self._held[of]


def once(held: Held, values: Hashable, compute: Callable[[], Value]) -> Value:
    """Take what the other party computed from these values, else compute it and leave it for the other."""
    if values in held:
        taken: Value = held.pop(values)
        return taken
    found = held[values] = compute()
    return found


APART: Shared = _Apart()
