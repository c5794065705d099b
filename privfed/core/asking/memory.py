"""What a client remembers between the questions of a fit, as the questions that need it declare.

What can be computed again from rows and questions may lie in a client's cache. What cannot (the cluster that
it took in the last round, its last update) is a memory: where each message is answered by a new process, it
lies on the client's own disk, beside the state of its fit, and is removed when the fit ends. It never leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from privfed.core.stored.codec import StateCodec

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Remembered(Generic[Value]):
    """Declares what questions have a client remember (`Question.remembers`).

    Law: whatever a question leaves in it, `codec` reads back to the last bit. Questions that share it name
    the same one.

    Args:
        name: under which it is kept.
        empty: returns what a client remembers before the first question.
        codec: how it is stored, with the version of its form.
    """

    name: str
    empty: Callable[[], Value]
    codec: StateCodec

    def of(self, memory: dict[str, object]) -> Value:
        """Return what a client remembers, empty at first; it is changed in place.

        Args:
            memory: the client's (`ClientData.memory`).
        """
        kept: Value = memory.setdefault(self.name, self.empty())  # type: ignore[assignment]
        return kept
