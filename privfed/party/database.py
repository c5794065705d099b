"""The SQLite file of a journal: its form, its transactions, and what the file itself refuses.

A commit is on disk before `transaction` returns. In the mode that needs one file only, SQLite's
`synchronous=FULL` leaves a commit that a power failure may take back, as the folder is not flushed; EXTRA
flushes it too. Deleted values are overwritten with zeros (`secure_delete`): states hold keys.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from privfed.errors import StateError

VERSION = 5
"""Of the form below."""

_SCHEMA = """
CREATE TABLE party (
    id BLOB NOT NULL, name TEXT NOT NULL, public BLOB NOT NULL
);
CREATE TABLE entries (
    counter INTEGER PRIMARY KEY, at TEXT NOT NULL, fit INTEGER NOT NULL, kind TEXT NOT NULL,
    content TEXT NOT NULL, head BLOB NOT NULL
);
CREATE TABLE fits (
    number INTEGER PRIMARY KEY, agreement BLOB NOT NULL UNIQUE, data_set TEXT NOT NULL,
    protocol TEXT NOT NULL, algorithm TEXT NOT NULL, position INTEGER NOT NULL, began TEXT NOT NULL,
    epsilon REAL, delta REAL, unit TEXT, neighbours TEXT, noise TEXT,
    answered INTEGER NOT NULL DEFAULT 0, asked INTEGER NOT NULL DEFAULT 0,
    question BLOB NOT NULL DEFAULT x'', losses INTEGER NOT NULL DEFAULT 0,
    spent REAL NOT NULL DEFAULT 0.0, closed INTEGER NOT NULL DEFAULT 0, state BLOB, moves BLOB, followed BLOB,
    totals BLOB
);
CREATE TABLE starts (
    data_set TEXT NOT NULL, cells BLOB NOT NULL, PRIMARY KEY (data_set, cells)
);
CREATE TABLE peers (
    public BLOB NOT NULL, counter INTEGER NOT NULL, head BLOB NOT NULL, met INTEGER NOT NULL,
    PRIMARY KEY (public, counter)
);
CREATE TRIGGER peers_go_on BEFORE DELETE ON peers
    WHEN NOT EXISTS (SELECT 1 FROM peers WHERE public = OLD.public AND counter > OLD.counter)
    BEGIN SELECT RAISE(ABORT, 'a peer never goes back'); END;
CREATE TRIGGER entries_in_order BEFORE INSERT ON entries
    WHEN NEW.counter IS NOT (SELECT COALESCE(MAX(counter), 0) + 1 FROM entries)
    BEGIN SELECT RAISE(ABORT, 'entries follow each other'); END;
CREATE TRIGGER fits_go_on BEFORE UPDATE ON fits
    WHEN NEW.number IS NOT OLD.number OR NEW.agreement IS NOT OLD.agreement
        OR NEW.data_set IS NOT OLD.data_set OR NEW.position IS NOT OLD.position
        OR NEW.epsilon IS NOT OLD.epsilon OR NEW.delta IS NOT OLD.delta
        OR NEW.answered < OLD.answered OR NEW.asked < OLD.asked OR NEW.losses < OLD.losses
        OR NEW.spent < OLD.spent OR NEW.closed < OLD.closed
        OR (NEW.asked = OLD.asked AND NEW.question IS NOT OLD.question)
    BEGIN SELECT RAISE(ABORT, 'a fit never goes back'); END;
"""


def _frozen(table: str, *events: str) -> str:
    return "".join(
        f"CREATE TRIGGER {table}_{event.lower()} BEFORE {event} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table} stay as they are'); END;\n"
        for event in events
    )


_FORM = "".join(
    (
        _SCHEMA,
        _frozen("party", "UPDATE", "DELETE"),
        _frozen("entries", "UPDATE", "DELETE"),
        _frozen("fits", "DELETE"),
        _frozen("starts", "UPDATE", "DELETE"),
        _frozen("peers", "UPDATE"),
    )
)

_SINCE_4 = f"""
CREATE TABLE start_totals (
    data_set TEXT NOT NULL, fit BLOB NOT NULL, sum INTEGER NOT NULL, cohort BLOB NOT NULL,
    total BLOB NOT NULL, PRIMARY KEY (data_set, fit, sum)
);
{_frozen("start_totals", "UPDATE", "DELETE")}
"""
_SINCE_5 = """
CREATE TABLE memories (
    fit INTEGER PRIMARY KEY, kept BLOB NOT NULL
);
CREATE TRIGGER memories_with_their_fit BEFORE DELETE ON memories
    WHEN NOT EXISTS (SELECT 1 FROM fits WHERE number = OLD.fit AND closed)
    BEGIN SELECT RAISE(ABORT, 'a memory is kept until its fit ends'); END;
"""
_VERSIONED = f"PRAGMA user_version = {VERSION};"
_LACKED = {3: _SINCE_4 + _SINCE_5 + _VERSIONED, 4: _SINCE_5 + _VERSIONED}
"""What older formats lack: start totals from which later fits begin; what clients remember of questions."""


class Database:
    """Holds one journal's file. Transactions within a transaction belong to it: all is kept, or nothing.

    Args:
        path: the file, which must exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._open: sqlite3.Connection | None = None
        self._failed = False

    def make(self) -> None:
        """Write the form into a file that is still empty.

        Raises:
            StateError: the file cannot be written.
        """
        with self.transaction() as database:
            # `executescript` would commit what is open.
            for statement in _statements(_FORM + _LACKED[3]):
                database.execute(statement)

    def check(self) -> None:
        """Check that the file is whole and of this version; one of format 3 or 4 is given what it lacks.

        Raises:
            StateError: it is not.
        """
        with self.transaction() as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            (well,) = database.execute("PRAGMA quick_check").fetchone()
            if version in _LACKED and well == "ok":
                for statement in _statements(_LACKED[version]):
                    database.execute(statement)
                version = VERSION
        if version != VERSION:
            raise StateError(
                f"{self.path} is a journal of format {version}, this privfed reads format {VERSION}; use the "
                "privfed that wrote it."
            )
        if well != "ok":
            raise self._unusable("it is damaged")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Lock the file against other processes; on leaving, all that was written is on disk.

        An error that leaves the outermost transaction takes everything back. After an error of the disk
        nothing is kept, whoever catches it.

        Raises:
            StateError: the file is missing, damaged, locked for a minute, or its disk is full; or something
                was to go back that never does.
        """
        with self._lock:
            try:
                if self._open is None:
                    with self._outermost() as database:
                        yield database
                else:
                    yield self._open
            except sqlite3.Error as error:
                self._failed = True
                raise self._unusable(str(error)) from None

    @contextmanager
    def _outermost(self) -> Iterator[sqlite3.Connection]:
        self._failed = False
        database = self._connected()
        try:
            database.execute("BEGIN IMMEDIATE")
            self._open = database
            yield database
            if self._failed:
                raise self._unusable("something before was not written")
            database.execute("COMMIT")
        finally:
            self._open = None
            # What was not committed is taken back.
            database.close()

    def _connected(self) -> sqlite3.Connection:
        if not self.path.exists():
            raise StateError(
                f"{self.path} is missing, so that it is unknown what this identity has answered. An identity "
                "never answers with a new journal or an older copy: make a new identity (privfed keys new), "
                "and let the others replace the old one in their lists."
            )
        address = f"{self.path.absolute().as_uri()}?mode=rw"
        database = sqlite3.connect(address, uri=True, timeout=60.0, isolation_level=None)
        try:
            for setting in ("synchronous = EXTRA", "journal_mode = DELETE", "secure_delete = ON"):
                database.execute(f"PRAGMA {setting}")
        except BaseException:
            database.close()
            raise
        return database

    def _unusable(self, why: str) -> StateError:
        return StateError(
            f"{self.path} cannot be used ({why}); nothing was answered. See whether its disk is full or may "
            "not be written to; do not use an older copy of it."
        )


def _statements(text: str) -> Iterator[str]:
    """Split SQL where statements end; the body of a trigger is part of its statement."""
    pending = ""
    for piece in text.split(";"):
        pending += piece + ";"
        if sqlite3.complete_statement(pending):
            if pending.strip() != ";":
                yield pending
            pending = ""
