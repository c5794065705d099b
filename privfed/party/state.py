"""What a client keeps between messages: its state, and what questions have it remember.

A stored state must never be restored from a copy: a client that answers the same sum from two copies of its
state may reveal both secrets of a peer. A client that lost its state sits out until the next set-up.

Property of memories (`tests/nodes/flower/test_models.py`): a journal stores three things together, or none
of them: a memory, the payment for what it was trained with, and the state that closes the sum. It stores them
before the reply leaves.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from privfed.core.asking.declaration import Remembered
from privfed.core.asking.question import Question, memories_of
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.engine import Answerer, StateStore, StateTransaction
from privfed.core.stored.encoding import Codec
from privfed.core.stored.files import make_folder, open_file
from privfed.errors import FormatError, StateError


class MemoryStore:
    """State in memory, for simulations in one process.

    Args:
        state: what is kept at first.
    """

    def __init__(self, state: Any = None) -> None:
        self._state = state

    def transaction(self) -> AbstractContextManager[StateTransaction]:
        """Return the store itself; no lock is needed in one process and one thread."""
        return nullcontext(self)

    def load(self) -> Any | None:
        """Return the state, or None."""
        return self._state

    def save(self, state: Any) -> None:
        """Keep the state."""
        self._state = state


class FileStore:
    """State in a file that only its owner may read, locked, and flushed to disk before a reply is sent.

    Args:
        path: the file; its folder is made when needed, and a lock file is kept beside it.
        encode: state -> bytes.
        decode: bytes -> state.
    """

    def __init__(self, path: Path, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> None:
        self._path, self._encode, self._decode = path, encode, decode

    @contextmanager
    def transaction(self) -> Iterator[StateTransaction]:
        """Hold an exclusive lock, so that two processes never answer from the same state."""
        with _disk_errors():
            if not self._path.parent.exists():
                make_folder(self._path.parent)
            lock = open_file(self._path.with_name(self._path.name + ".lock"), "ab")
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self

    def load(self) -> Any | None:
        """Return the state, or None where there is no file yet.

        Raises:
            StateError: the file cannot be read, or is damaged. It is then unknown what the client has
                answered, so that no other state may replace it.
        """
        with _disk_errors():
            if not self._path.exists():
                return None
            data = self._path.read_bytes()
        try:
            return self._decode(data)
        except FormatError as error:
            raise StateError(f"{self._path}: {error}") from None
        except (msgspec.MsgspecError, ValueError):
            # The decoder's message may quote what it read.
            raise StateError(
                f"{self._path} is damaged, so that it is unknown what this client has answered. Do not use "
                "an older copy; let the client sit out, and begin a new fit under a new agreement."
            ) from None

    def save(self, state: Any) -> None:
        """Replace the file atomically; return once file and folder are flushed to disk.

        Raises:
            StateError: the file cannot be written.
        """
        data = self._encode(state)
        with _disk_errors():
            _write_through(self._path, data)


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Turn OSErrors of the state's disk into StateErrors, to distinguish them from those of other code."""
    try:
        yield
    except OSError as error:
        raise StateError(error.errno, error.strerror, error.filename) from error


def _write_through(path: Path, data: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    with open_file(fresh, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


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
        """Load what the client remembers, answer, and store what it remembers then.

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
                transaction.save(Memories(max(kept.trained, _number(question)), {**kept.values, **values}))

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
