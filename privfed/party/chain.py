"""The entries of a journal, each chained to those before by a hash: what a party shows to have gone on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from privfed.core.stored.hashing import digest
from privfed.errors import StateError
from privfed.party.database import Database
from privfed.protocols.crypto.keys import equal

_BEGIN = digest("journal")


@dataclass(frozen=True, slots=True)
class Head:
    """Where a chain stands: how many there are, and a hash that chains them all.

    Args:
        counter: number of entries.
        head: 32 bytes.
    """

    counter: int
    head: bytes


class Chain:
    """The entries of one journal.

    Args:
        database: the journal's file.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def head(self) -> Head:
        """Where the chain stands. It never goes back."""
        with self._database.transaction() as database:
            query = "SELECT counter, head FROM entries ORDER BY counter DESC LIMIT 1"
            found = database.execute(query).fetchone()
        return Head(*found) if found else Head(0, _BEGIN)

    def enter(self, fit: int, kind: str, **content: Any) -> None:
        """Add an entry.

        Args:
            fit: number of the fit, 0 for none.
            kind: of the entry.
            **content: what JSON can hold; no secret and nothing of the rows.
        """
        text, at = json.dumps(content, sort_keys=True), now()
        with self._database.transaction() as database:
            last = self.head
            head = _chained(last.head, last.counter + 1, at, fit, kind, text)
            values = (last.counter + 1, at, fit, kind, text, head)
            database.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", values)

    def entries(self) -> tuple[dict[str, Any], ...]:
        """Return all entries, in order: what an owner may export.

        Raises:
            StateError: one was changed or is missing: the hashes do not follow from each other.
        """
        names = ("counter", "at", "fit", "kind", "content", "head")
        with self._database.transaction() as database:
            rows = database.execute(f"SELECT {', '.join(names)} FROM entries ORDER BY counter").fetchall()
        before, found = _BEGIN, []
        for place, row in enumerate(rows, start=1):
            counter, at, fit, kind, content, head = row
            before = _chained(before, place, at, fit, kind, content)
            if counter != place or not equal(before, head):
                raise StateError(f"{self._database.path} was changed: entry {place} is not what was written.")
            entry = dict(zip(names, row, strict=True))
            found.append(entry | {"content": json.loads(content), "head": head.hex()})
        return tuple(found)


def now() -> str:
    """Return the time of an entry, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _chained(before: bytes, counter: int, at: str, fit: int, kind: str, content: str) -> bytes:
    return digest("entry", before, counter, at.encode(), fit, kind.encode(), content.encode())
