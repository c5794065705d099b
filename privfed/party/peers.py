"""A party's key together with its journal: it signs where the journal stands, and remembers its peers'."""

from __future__ import annotations

from collections.abc import Mapping

from privfed.core.agreed.agreement import Standing
from privfed.party.chain import Chain
from privfed.party.database import Database
from privfed.protocols.crypto.keys import Identity, equal


class JournalIdentity:
    """The long-term key of a party that keeps a journal; give it to `SecureSum.client` as the identity.

    Args:
        key: the party's secret key.
        database: its journal's file.
    """

    def __init__(self, key: Identity, database: Database) -> None:
        self._key, self._database = key, database

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public

    def sign(self, message: bytes) -> bytes:
        """Return a signature, 64 bytes."""
        return self._key.sign(message)

    def standing(self) -> Standing:
        """Return where the journal stands now; it moves on before the next reply leaves."""
        head = Chain(self._database).head
        return Standing(head.counter, head.head)

    def meets(self, peers: Mapping[bytes, Standing]) -> bytes | None:
        """Remember the highest standing of each peer; return the key of one that stands further back.

        Args:
            peers: public key -> where that party's journal stands, as it signed.
        """
        with self._database.transaction() as database:
            query = "SELECT public, counter, head FROM peers"
            known = {
                bytes(public): Standing(counter, bytes(head))
                for public, counter, head in database.execute(query)
            }
            back = next((one for one, now in peers.items() if one in known and _back(known[one], now)), None)
            if back is None:
                change = "INSERT INTO peers VALUES (?, ?, ?) ON CONFLICT (public) DO UPDATE SET "
                change += "counter = excluded.counter, head = excluded.head"
                met = [(public, one.counter, one.head) for public, one in peers.items() if one.counter]
                database.executemany(change, met)
        return back


def _back(known: Standing, now: Standing) -> bool:
    """Say whether a journal is not the one that was known, or not what came of it."""
    if now.counter == known.counter:
        return not equal(now.head, known.head)
    return now.counter < known.counter
