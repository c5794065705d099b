"""A client's memory on its own disk: read before each answer, kept after it, with the state of its fit.

Law (`tests/engines/flower/test_models.py`): in a journal a memory, the payment for what it was trained
with and the state that closes the sum are kept together, before the reply leaves, or none of them is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from privfed.core.asking.memory import Remembered
from privfed.core.asking.question import Question, memories_of
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.engine import Answerer, StateStore
from privfed.core.stored.codec import Codec
from privfed.errors import StateError


class Memories(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a client remembers in a fit.

    Args:
        trained: number of the last training that it remembers the outcome of, 0 before the first.
        values: name of each memory (`Remembered`) -> its bytes.
    """

    trained: int = 0
    values: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return "Memories(...)"


MEMORIES: Codec[Memories] = Codec(Memories, "memories of a client", 1)


class RememberingAnswerer:
    """A client's answerer that keeps what questions have it remember.

    Args:
        answerer: answers questions on the client's data.
        memory: of that data (`ClientData.memory`).
        store: keeps the memories (`MEMORIES`).
    """

    def __init__(self, answerer: Answerer, memory: dict[str, object], store: StateStore) -> None:
        self._answerer, self._memory, self._store = answerer, memory, store

    def __call__(self, question: Question, index: int) -> tuple[Statistics, int]:
        """Answer as one who remembers all questions so far, and no more than is on disk.

        Raises:
            StateError: what is on disk is damaged, or of another version.
        """
        declared = memories_of(question)
        if not declared:
            return self._answerer(question, index)
        with self._store.transaction() as transaction:
            kept: Memories = transaction.load() or Memories()
            self._recall(declared, kept)
            try:
                return self._answerer(question, index)
            finally:
                # Also where the answer failed: what was done until then is done, and may be paid for.
                values = {name: one.codec.to_bytes(one.of(self._memory)) for name, one in declared.items()}
                trained = max(kept.trained, _number(question))
                transaction.save(Memories(trained, {**kept.values, **values}))

    def _recall(self, declared: Mapping[str, Remembered[Any]], kept: Memories) -> None:
        self._memory.clear()
        try:
            for name in declared.keys() & kept.values.keys():
                self._memory[name] = declared[name].codec.from_bytes(kept.values[name])
        except ValueError as error:
            raise StateError(f"what this client remembers: {error}") from None


def _number(question: Question) -> int:
    """Return the number of the training that a question makes a client do, 0 where it makes it do none."""
    declared = question.declaration
    return 0 if declared is None or declared.trained is None else declared.trained.number
