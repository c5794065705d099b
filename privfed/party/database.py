"""The SQLite file of a journal: its form, its transactions, its entries, and what the file itself refuses.

A commit is on disk before `transaction` returns. In the mode that needs one file only, SQLite's
`synchronous=FULL` leaves a commit that a power failure may take back, as the folder is not flushed; EXTRA
flushes it too. Deleted values are overwritten with zeros (`secure_delete`): states hold keys.

Entries are chained by a hash. Each transaction that changes a row ends with an entry that holds a digest
of all rows (`ROWS`): of the party, its fits, data sets, starts and peers. So the head of the chain stands for
the whole file. Digests of single rows are kept beside (`sealed`); triggers drop those of rows that change, so
that only these are read again.

Property (`tests/party/test_journal_sealed.py`): a journal of which any value of any row was changed, or any
row added or taken away, is an error where a fit begins or goes on.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from privfed.core.agreed.agreement import JournalCounter
from privfed.core.stored.encoding import digest
from privfed.errors import PolicyError, StateError
from privfed.protocols.crypto.keys import equal

VERSION = 11
"""Of the form below."""

ROWS = "rows"
"""Kind of the entry that holds a digest of all rows."""

SEALED = {
    "party": "row",
    "fits": "number",
    "data_sets": "row",
    "starts": "row",
    "start_totals": "row",
    "peers": "row",
}
"""Each table that counts -> its integer key."""

_BEGIN = digest("journal")

_SCHEMA = """
CREATE TABLE party (
    row INTEGER PRIMARY KEY, id BLOB NOT NULL, name TEXT NOT NULL, public BLOB NOT NULL
);
CREATE TABLE entries (
    counter INTEGER PRIMARY KEY, at TEXT NOT NULL, fit INTEGER NOT NULL, kind TEXT NOT NULL,
    content TEXT NOT NULL, head BLOB NOT NULL
);
CREATE TABLE fits (
    number INTEGER PRIMARY KEY, agreement BLOB NOT NULL UNIQUE, data_set TEXT NOT NULL,
    protocol TEXT NOT NULL, algorithm TEXT NOT NULL, position INTEGER NOT NULL, parties BLOB NOT NULL,
    began TEXT NOT NULL,
    epsilon REAL, delta REAL, unit TEXT, neighbours TEXT, noise TEXT, mechanism TEXT,
    answered INTEGER NOT NULL DEFAULT 0, asked INTEGER NOT NULL DEFAULT 0,
    question BLOB NOT NULL DEFAULT x'', losses INTEGER NOT NULL DEFAULT 0,
    spent REAL NOT NULL DEFAULT 0.0, closed INTEGER NOT NULL DEFAULT 0, state BLOB, program BLOB,
    totals BLOB, memory BLOB
);
CREATE TABLE starts (
    row INTEGER PRIMARY KEY, data_set TEXT NOT NULL, cells BLOB NOT NULL, UNIQUE (data_set, cells)
);
CREATE TABLE start_totals (
    row INTEGER PRIMARY KEY, data_set TEXT NOT NULL, fit BLOB NOT NULL, sum INTEGER NOT NULL,
    cohort BLOB NOT NULL, total BLOB NOT NULL, UNIQUE (data_set, fit, sum)
);
CREATE TABLE data_sets (
    row INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, protection TEXT NOT NULL, groups BLOB
);
CREATE TABLE peers (
    row INTEGER PRIMARY KEY, public BLOB NOT NULL, counter INTEGER NOT NULL, head BLOB NOT NULL,
    met INTEGER NOT NULL, UNIQUE (public, counter)
);
CREATE TABLE sealed (
    name TEXT NOT NULL, row INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (name, row)
) WITHOUT ROWID;
CREATE TRIGGER peers_go_on BEFORE DELETE ON peers
    WHEN NOT EXISTS (SELECT 1 FROM peers WHERE public = OLD.public AND counter > OLD.counter)
    BEGIN SELECT RAISE(ABORT, 'a peer never goes back'); END;
CREATE TRIGGER data_sets_go_on BEFORE UPDATE ON data_sets
    WHEN NEW.row IS NOT OLD.row OR NEW.name IS NOT OLD.name
        OR NEW.protection IS NOT OLD.protection OR NEW.groups IS NULL
    BEGIN SELECT RAISE(ABORT, 'a data set is exact, grouped or private for life'); END;
CREATE TRIGGER entries_in_order BEFORE INSERT ON entries
    WHEN NEW.counter IS NOT (SELECT COALESCE(MAX(counter), 0) + 1 FROM entries)
    BEGIN SELECT RAISE(ABORT, 'entries follow each other'); END;
CREATE TRIGGER fits_go_on BEFORE UPDATE ON fits
    WHEN NEW.number IS NOT OLD.number OR NEW.agreement IS NOT OLD.agreement
        OR NEW.data_set IS NOT OLD.data_set OR NEW.position IS NOT OLD.position
        OR NEW.epsilon IS NOT OLD.epsilon OR NEW.delta IS NOT OLD.delta
        OR NEW.unit IS NOT OLD.unit OR NEW.neighbours IS NOT OLD.neighbours
        OR NEW.mechanism IS NOT OLD.mechanism OR NEW.parties IS NOT OLD.parties
        OR NEW.answered < OLD.answered OR NEW.asked < OLD.asked OR NEW.losses < OLD.losses
        OR NEW.spent < OLD.spent OR NEW.closed < OLD.closed
        OR (NEW.asked = OLD.asked AND NEW.question IS NOT OLD.question)
        OR (NEW.memory IS NULL AND OLD.memory IS NOT NULL AND NOT NEW.closed)
    BEGIN SELECT RAISE(ABORT, 'a fit never goes back'); END;
"""


def _frozen(table: str, *events: str) -> str:
    return "".join(
        f"CREATE TRIGGER {table}_{event.lower()} BEFORE {event} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table} stay as they are'); END;\n"
        for event in events
    )


def _unsealed(table: str, key: str) -> str:
    return "".join(
        f"CREATE TRIGGER {table}_{event.lower()}_unseals AFTER {event} ON {table} "
        f"BEGIN DELETE FROM sealed WHERE name = '{table}' AND row = {row}.{key}; END;\n"
        for event, row in (("INSERT", "NEW"), ("UPDATE", "OLD"), ("DELETE", "OLD"))
    )


_FORM = "".join(
    (
        _SCHEMA,
        *(_unsealed(table, key) for table, key in SEALED.items()),
        _frozen("party", "UPDATE", "DELETE"),
        _frozen("entries", "UPDATE", "DELETE"),
        _frozen("fits", "DELETE"),
        _frozen("data_sets", "DELETE"),
        _frozen("starts", "UPDATE", "DELETE"),
        _frozen("start_totals", "UPDATE", "DELETE"),
        _frozen("peers", "UPDATE"),
        f"PRAGMA user_version = {VERSION};\n",
    )
)


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
            for statement in _statements(_FORM):
                database.execute(statement)

    def check(self) -> None:
        """Check that the file is whole and of this version.

        Raises:
            StateError: it is not.
        """
        with self.transaction() as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            (well,) = database.execute("PRAGMA quick_check").fetchone()
            form = _form_of(database)
        if version != VERSION:
            raise StateError(
                f"{self.path} is a journal of format {version}, this privfed reads format {VERSION}; use the "
                "privfed that wrote it."
            )
        if well != "ok":
            raise self._unusable("it is damaged")
        if form != _form():
            raise self._changed("its tables or triggers are not those that were made")

    def verify(self, since: int = 0) -> None:
        """Check that all is as it was written: each entry, and each row of the tables that count.

        Args:
            since: number of an entry up to which the chain was checked before; 0 for none.

        Raises:
            StateError: something was changed; the message says how to go on.
        """
        with self.transaction() as database:
            if (found := fault(database, since)) is not None:
                raise self._changed(found)

    @property
    def head(self) -> JournalCounter:
        """Where the chain of entries stands. It never goes back."""
        with self.transaction() as database:
            return head_of(database)

    def enter(self, fit: int, kind: str, **content: Any) -> None:
        """Add an entry; see `privfed.party.database.enter`."""
        with self.transaction() as database:
            enter(database, fit, kind, **content)

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
    def attempt(self) -> Iterator[None]:
        """Take back what is written within where a `PolicyError` leaves it, and nothing before."""
        with self.transaction() as database:
            database.execute("SAVEPOINT attempt")
            try:
                yield
            except PolicyError:
                database.execute("ROLLBACK TO attempt")
                raise
            finally:
                database.execute("RELEASE attempt")  # Left standing, an attempt around it went back to it.

    @contextmanager
    def _outermost(self) -> Iterator[sqlite3.Connection]:
        self._failed = False
        database = self._connected()
        try:
            database.execute("BEGIN IMMEDIATE")
            self._open, before = database, database.total_changes
            yield database
            if self._failed:
                raise self._unusable("something before was not written")
            if database.total_changes > before:
                seal(database)
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

    def _changed(self, what: str) -> StateError:
        return StateError(
            f"{self.path} was changed by something else than privfed: {what}. It is unknown what this "
            "identity has given: make a new identity (privfed keys new), and let the others replace the old "
            "one in their lists."
        )

    def _unusable(self, why: str) -> StateError:
        return StateError(
            f"{self.path} cannot be used ({why}); nothing was answered. See whether its disk is full or may "
            "not be written to; do not use an older copy of it."
        )


@cache
def _form() -> frozenset[tuple[str, str, str | None]]:
    """Return the form that every journal has, as SQLite tells it."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(_FORM)
        return _form_of(database)


def _form_of(database: sqlite3.Connection) -> frozenset[tuple[str, str, str | None]]:
    return frozenset(database.execute("SELECT type, name, sql FROM sqlite_master"))


def _statements(text: str) -> Iterator[str]:
    """Split SQL where statements end; the body of a trigger is part of its statement."""
    pending = ""
    for piece in text.split(";"):
        pending += piece + ";"
        if sqlite3.complete_statement(pending):
            if pending.strip() != ";":
                yield pending
            pending = ""


def head_of(database: sqlite3.Connection) -> JournalCounter:
    """Return where the chain stands. It never goes back."""
    query = "SELECT counter, head FROM entries ORDER BY counter DESC LIMIT 1"
    found = database.execute(query).fetchone()
    return JournalCounter(*found) if found else JournalCounter(0, _BEGIN)


def enter(database: sqlite3.Connection, fit: int, kind: str, **content: Any) -> None:
    """Add an entry.

    Args:
        database: an open transaction.
        fit: number of the fit, 0 for none.
        kind: of the entry.
        **content: what JSON can hold; no secret and nothing of the rows that the party answers from.
    """
    text, at, last = json.dumps(content, sort_keys=True), now(), head_of(database)
    head = _chained(last.head, last.counter + 1, at, fit, kind, text)
    values = (last.counter + 1, at, fit, kind, text, head)
    database.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", values)


def seal(database: sqlite3.Connection) -> None:
    """Enter a digest of all rows; those that changed are read, of the others the digest is known."""
    for name, key in SEALED.items():
        fresh = f"SELECT {key}, * FROM {name} AS t WHERE NOT EXISTS (SELECT 1 FROM sealed WHERE name = ? AND "
        rows = database.execute(f"{fresh} row = t.{key})", (name,)).fetchall()
        values = [(name, row[0], _digest(name, row)) for row in rows]
        database.executemany("INSERT INTO sealed VALUES (?, ?, ?)", values)
    known = database.execute("SELECT name, row, digest FROM sealed ORDER BY name, row")
    enter(database, 0, ROWS, digest=_together(known).hex())


def fault(database: sqlite3.Connection, since: int = 0) -> str | None:
    """Return what of a journal is not as it was written, in words; None where all is.

    Args:
        database: an open transaction.
        since: number of an entry up to which the chain was checked before; 0 for none. Rows are all checked.
    """
    query = "SELECT counter, at, fit, kind, content, head FROM entries WHERE counter >= ? ORDER BY counter"
    before, place, last = _BEGIN, 1, ("", "")
    for counter, at, fit, kind, content, head in database.execute(query, (since,)):
        if place == 1 and since:
            before, place = head, counter
        else:
            before = _chained(before, place, at, fit, kind, content)
        if counter != place or not equal(before, head):
            return f"entry {place} is not what was written"
        place, last = place + 1, (kind, content)
    rows = [
        (name, row[0], _digest(name, row))
        for name, key in SEALED.items()
        for row in _all(database, name, key)
    ]
    known = set(database.execute("SELECT name, row, digest FROM sealed"))
    if changed := {str(one[0]) for one in known.symmetric_difference(rows)}:
        return f"rows of {', '.join(sorted(changed))} are not what was written"
    if last != (ROWS, json.dumps({"digest": _together(iter(sorted(rows))).hex()})):
        return "its rows are not those of its last entry"
    return None


def _all(database: sqlite3.Connection, name: str, key: str) -> Iterator[tuple[Any, ...]]:
    yield from database.execute(f"SELECT {key}, * FROM {name}")


def _digest(name: str, row: tuple[Any, ...]) -> bytes:
    return digest("journal row", name.encode(), msgspec.msgpack.encode(row[1:]))


def _together(rows: Iterator[tuple[str, int, bytes]] | sqlite3.Cursor) -> bytes:
    return digest("journal rows", *(part for name, row, own in rows for part in (name.encode(), row, own)))


def now() -> str:
    """Return the time of an entry, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _chained(before: bytes, counter: int, at: str, fit: int, kind: str, content: str) -> bytes:
    return digest("entry", before, msgspec.msgpack.encode((counter, at, fit, kind, content)))
