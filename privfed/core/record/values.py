"""A transcript's large tables, in a file beside its lines: appended to, and mapped into memory when read."""

from __future__ import annotations

import os
from mmap import ACCESS_READ, mmap
from pathlib import Path

from privfed.core.stored.files import open_file

VALUES = "transcript.values"


class ValuesFile:
    """Bytes that lines of a transcript refer to by their position.

    Args:
        path: the file; it is made when something is first appended.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def size(self) -> int:
        """Its length in bytes; 0 where there is none."""
        return self._path.stat().st_size if self._path.exists() else 0

    def append(self, data: bytes) -> int:
        """Append bytes, which are durable when this returns; return their position."""
        with open_file(self._path, "ab") as file:
            at: int = file.seek(0, os.SEEK_END)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return at

    def read(self, at: int, size: int) -> bytes:
        """Return the bytes at a position; only their pages are read from disk.

        Raises:
            ValueError: they are not there.
        """
        try:
            with self._path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as mapped:
                found = mapped[at : at + size] if at >= 0 else b""
        except OSError:
            found = b""
        if len(found) != size:
            raise ValueError(f"{self._path} does not hold what the transcript's lines refer to")
        return found

    def cut(self, size: int) -> None:
        """Leave out what lies behind the first `size` bytes, to which no line refers."""
        if self.size > size:
            with open_file(self._path, "r+b") as file:
                file.truncate(size)
