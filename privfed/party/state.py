"""Storage of a client's state between messages.

A stored state must never be restored from a copy: a client that answers the same sum from two copies of its
state may reveal both secrets of a peer. A client that lost its state sits out until the next set-up.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from privfed.core.roles.engine import StateTransaction
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
        return self

    def __enter__(self) -> MemoryStore:
        return self

    def __exit__(self, *raised: object) -> None:
        return None

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
