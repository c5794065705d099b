"""Stores the results of cells in one SQLite file, part by part as they are done.

docs/decisions/006-studies-in-sqlite.md explains this choice.
"""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from privfed.core.stored.files import make_folder, open_file
from privfed.core.stored.formats import Format
from privfed.errors import RunFolderError
from privfed.experiments.running.measure import Part

FILE = "cells.sqlite"
_VERSION = 1
CELLS = Format(name="cells.sqlite", version=_VERSION, again="name another folder with --out")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS parts (
    cell TEXT NOT NULL, part TEXT NOT NULL, content TEXT NOT NULL,
    result TEXT NOT NULL, timing TEXT NOT NULL, error TEXT NOT NULL,
    PRIMARY KEY (cell, part)
)
"""


def _remedy(error: sqlite3.DatabaseError) -> str:
    # An error that does not come from SQLite itself has no code.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code == sqlite3.SQLITE_FULL:
        return "free some space on its disk; the cells in it are kept, and the same command continues"
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return "restore it, or start anew in another folder"
    return "see whether its disk can be written to; the cells in it are kept, and the same command continues"


class Store:
    """Holds the results in a study's folder.

    Args:
        folder: folder of the study; created if it does not exist.

    Raises:
        RunFolderError: the file there is damaged, or written by a newer privfed.
    """

    def __init__(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise RunFolderError(f"{folder} is a file; name a folder with --out.")
        make_folder(folder)
        self.path = folder / FILE
        # Created with our mode first, as SQLite gives its auxiliary files the mode of the database.
        open_file(self.path, "ab").close()
        with self._open() as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version:  # SQLite's own 0 is of a file that was just created.
                CELLS.check(version, self.path)
            database.execute(_SCHEMA)
            database.execute(f"PRAGMA user_version = {_VERSION}")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            database = sqlite3.connect(self.path, timeout=60.0)
            try:
                with database:
                    yield database
            finally:
                database.close()
        except sqlite3.DatabaseError as error:
            raise RunFolderError(f"{self.path} cannot be used ({error}); {_remedy(error)}.") from None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder's lock, so that two processes never run the same cells.

        Raises:
            RunFolderError: another process holds it.
        """
        with open_file(self.path.with_name(".lock"), "wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFolderError(
                    f"{self.path.parent} is in use by another privfed; wait until it has ended."
                ) from None
            yield

    def keep(self, cell: str, content: Mapping[str, object], parts: Mapping[str, Part]) -> None:
        """Store parts of a cell, durably.

        Args:
            cell: id of the cell.
            content: values that the id is a hash of.
            parts: name -> what was measured.
        """
        text = msgspec.json.encode(content, order="deterministic").decode()
        rows = [
            (
                cell,
                name,
                text,
                msgspec.json.encode(part.values, order="deterministic").decode(),
                msgspec.json.encode(part.timing, order="deterministic").decode(),
                part.error,
            )
            for name, part in parts.items()
        ]
        with self._open() as database:
            database.executemany("INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, ?, ?)", rows)

    def done(self) -> dict[tuple[str, str], bool]:
        """Return for all that is stored: (cell, part) -> whether it has values rather than an error."""
        with self._open() as database:
            rows = database.execute("SELECT cell, part, error FROM parts").fetchall()
        return {(cell, part): not error for cell, part, error in rows}

    def read(self, cells: Iterable[str]) -> dict[str, dict[str, Part]]:
        """Return what is stored for some cells: cell -> part -> what was measured."""
        wanted, found = set(cells), dict[str, dict[str, Part]]()
        with self._open() as database:
            rows = database.execute("SELECT cell, part, result, timing, error FROM parts").fetchall()
        for cell, name, result, timing, error in rows:
            if cell in wanted:
                found.setdefault(cell, {})[name] = Part(
                    values=msgspec.json.decode(result), timing=msgspec.json.decode(timing), error=error
                )
        return found
