"""The SQLite file of a journal: its form, its transactions, its entries, and what the file itself refuses.

A commit is on disk before `transaction` returns. In the mode that needs one file only, SQLite's
`synchronous=FULL` leaves a commit that a power failure may take back, as the folder is not flushed; EXTRA
flushes it too.

What a fit must forget is sealed under a key of its own (`Database.sealed`), and each time that it is written
under another one. The keys lie in a file beside the database (`KEYS`), two slots for each value. The new key
is on disk before a commit, in one slot; after it the other slot is overwritten. So copies of the database,
and what SQLite and the file system leave of it, are ciphertext that nobody can open any more.

Entries are chained by a hash, from the identity's random id on, and each transaction that changes a row ends
with one. Who may write the file can write another chain: peers remember where it stood. A head goes to peers,
who could otherwise try whether it chains an entry that they guess, such as the name of a data set.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from privfed.core.agreed.agreement import JournalCounter
from privfed.core.stored.encoding import digest
from privfed.core.stored.files import open_file
from privfed.errors import PolicyError, StateError
from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    CryptographyError,
    bound,
    equal,
    new_secret,
    seal,
    unseal,
)
from privfed.version import __version__

VERSION = 13
"""Of the form below."""

BEFORE = 11
"""The form of version 0.4.0, which is brought into the one below (`Database.check`)."""

ROWS = "rows"
"""Kind of the entry that ends a transaction in which a row was changed."""

KEYS, PAGE = "journal.keys", 4096
"""Name of the file of keys, and bytes of a slot: one that is torn while it is written spoils no other."""

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
    steps BLOB, renyi INTEGER,
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
    at INTEGER NOT NULL, statement BLOB NOT NULL, UNIQUE (public, counter, head)
);
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
        OR NEW.mechanism IS NOT OLD.mechanism OR NEW.steps IS NOT OLD.steps
        OR NEW.renyi IS NOT OLD.renyi OR NEW.parties IS NOT OLD.parties
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


_FORM = "".join(
    (
        _SCHEMA,
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

_FIT = (
    "number, agreement, data_set, protocol, algorithm, position, parties, began, epsilon, delta, unit, "
    "neighbours, noise, mechanism, answered, asked, question, losses, spent, closed"
)

_KEPT = {
    "party": ("row, id, name, public",),
    "entries": (
        "counter, at, fit, kind, content, head",
        "counter, at, fit, kind, content, chained(counter, at, fit, kind, content)",
    ),
    "fits": (_FIT, _FIT.replace("closed", "1")),
    "starts": ("row, data_set, cells",),
    "data_sets": ("row, name, protection, groups",),
}
"""Of a journal of version 0.4.0: table -> columns that stay; and for two of them, what becomes of these."""

_DROPPED = ("start_totals", "peers", "sealed")


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
        self._fresh: dict[int, tuple[int, bytes]] = {}

    def make(self) -> None:
        """Write the form into a file that is still empty.

        Raises:
            StateError: the file cannot be written.
        """
        with closing(self._connected()) as database:
            database.executescript(f"BEGIN IMMEDIATE;{_FORM}COMMIT;")

    def check(self) -> None:
        """Check that the file is whole and of this version. One of version 0.4.0 is brought into this form.

        Raises:
            StateError: it is not.
        """
        with self.transaction() as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            (well,) = database.execute("PRAGMA quick_check").fetchone()
            if version == BEFORE and well == "ok":
                # Another process that opens the journal waits, and finds it in this form.
                self._bring_forward(database)
        if version not in (BEFORE, VERSION):
            raise StateError(
                f"{self.path} is a journal of format {version}, and privfed {__version__} reads formats "
                f"{BEFORE} (of version 0.4.0) and {VERSION}: end its fits with the version that wrote it, "
                "then go on with a record that it exported (privfed flower join --carry)."
            )
        if well != "ok":
            raise self._unusable("it is damaged")

    def _bring_forward(self, database: sqlite3.Connection) -> None:
        """Write a journal of version 0.4.0 in the form of this one, in an open transaction.

        All that it gave stays known. Its fits end, since no peer goes on with them, and their secrets are
        overwritten. Not kept are where its peers' journals stood, which no peer of this version signed, and
        totals of starts, which are of other messages.
        """
        self.verify(digest("journal"))
        head = _beginning(database)

        def chained(*entry: Any) -> bytes:
            nonlocal head
            head = _chained(head, *entry)
            return head

        database.create_function("chained", 5, chained)
        triggers = database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for statement in (
            *(f"DROP TRIGGER {name}" for (name,) in triggers),
            *(f"ALTER TABLE {name} RENAME TO before_{name}" for name in (*_KEPT, *_DROPPED)),
            # A script would commit what was before it. No statement has a line that ends so within it.
            *_FORM.split(";\n"),
            *(
                f"INSERT INTO {name} ({columns[0]}) SELECT {columns[-1]} FROM before_{name} ORDER BY 1"
                for name, columns in _KEPT.items()
            ),
            *(f"DROP TABLE before_{name}" for name in (*_KEPT, *_DROPPED)),
        ):
            database.execute(statement)
        open_file(self.path.with_name(KEYS), "ab").close()
        self.enter(0, "brought forward", version="0.4.0")

    def verify(self, beginning: bytes | None = None) -> None:
        """Check that all entries are as they were written.

        Args:
            beginning: what the first entry is chained to; None for that of this form.

        Raises:
            StateError: something was changed; the message says how to go on.
        """
        query = "SELECT counter, at, fit, kind, content, head FROM entries ORDER BY counter"
        with self.transaction() as database:
            before, place = beginning or _beginning(database), 1
            for counter, at, fit, kind, content, head in database.execute(query):
                before = _chained(before, place, at, fit, kind, content)
                if counter != place or not equal(before, head):
                    raise self._changed(f"entry {place} is not what was written")
                place += 1

    @property
    def head(self) -> JournalCounter:
        """Where the chain of entries stands. It never goes back."""
        with self.transaction() as database:
            query = "SELECT counter, head FROM entries ORDER BY counter DESC LIMIT 1"
            found = database.execute(query).fetchone()
            return JournalCounter(*found) if found else JournalCounter(0, _beginning(database))

    def enter(self, fit: int, kind: str, **content: Any) -> None:
        """Add an entry.

        Args:
            fit: number of the fit, 0 for none.
            kind: of the entry.
            **content: what JSON can hold; no secret and nothing of the rows that the party answers from.
        """
        text, at, last = json.dumps(content, sort_keys=True), now(), self.head
        head = _chained(last.head, last.counter + 1, at, fit, kind, text)
        self.rows(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", last.counter + 1, at, fit, kind, text, head
        )

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

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Carry out a statement in a transaction, and return the rows that it gives; raises as that."""
        with self.transaction() as database:
            return database.execute(query, values).fetchall()

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Take back what is written within where a `PolicyError` leaves it, and nothing before."""
        with self.transaction() as database:
            before = dict(self._fresh)
            database.execute("SAVEPOINT attempt")
            try:
                yield
            except PolicyError:
                # What was written stands under its old keys again, so that these are not overwritten.
                self._fresh = before
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
                self.enter(0, ROWS)
            self._put({(place, slot): key for place, (slot, key) in self._fresh.items()})
            database.execute("COMMIT")
            self._put({(place, 1 - slot): bytes(KEY_BYTES) for place, (slot, _) in self._fresh.items()})
        finally:
            self._open, self._fresh = None, {}
            # What was not committed is taken back.
            database.close()

    def sealed(self, place: int, value: bytes | None, before: bytes | None) -> bytes | None:
        """Return a value sealed under a fresh key, which is on disk before the transaction's commit.

        Args:
            place: number of the value, which has two slots in the file of keys.
            value: what to seal; None to overwrite both.
            before: what the value was sealed as; None for nothing.
        """
        if value is None:
            self._fresh[place] = 0, bytes(KEY_BYTES)
            return None
        slot = 0 if before is None else 1 - before[0]
        slot, key = self._fresh.setdefault(place, (slot, new_secret()))
        return bytes([slot]) + seal(key, value, bound("journal", place))

    def unsealed(self, place: int, kept: bytes) -> bytes:
        """Return what `sealed` made; raises `StateError` where its key is gone."""
        _, key = self._fresh.get(place, (0, b""))
        try:
            with self.path.with_name(KEYS).open("rb") as file:
                file.seek(PAGE * (2 * place + kept[0]))
                key = key or file.read(KEY_BYTES)
            return unseal(key, kept[1:], bound("journal", place))
        except (OSError, CryptographyError, ValueError):
            raise self._unusable(f"{KEYS} beside it has other keys") from None

    def _put(self, keys: dict[tuple[int, int], bytes]) -> None:
        if keys:
            with open_file(self.path.with_name(KEYS), "r+b", buffering=0) as file:
                for (place, slot), key in keys.items():
                    file.seek(PAGE * (2 * place + slot))
                    file.write(key)
                os.fsync(file.fileno())

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


def _beginning(database: sqlite3.Connection) -> bytes:
    """Return the head before the first entry. The random id in it keeps peers from guessing entries."""
    (own,) = database.execute("SELECT id FROM party").fetchone()
    return digest("journal", own)


def now() -> str:
    """Return the time of an entry, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _chained(before: bytes, counter: int, at: str, fit: int, kind: str, content: str) -> bytes:
    return digest("entry", before, msgspec.msgpack.encode((counter, at, fit, kind, content)))
