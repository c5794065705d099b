"""A party's key together with its journal: it signs where the journal stands, and remembers its peers'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from privfed.core.agreed.agreement import Standing
from privfed.party.chain import Chain
from privfed.party.database import Database
from privfed.protocols.crypto.keys import Identity, equal

AT_ONCE = 8
"""How many standings of a peer are remembered, the highest: so many set-ups may run at once."""


@dataclass(frozen=True, slots=True)
class _Met:
    """Where a peer's journal stood, and how many entries this one had when that was met."""

    standing: Standing
    met: int


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

    def meets(self, peers: Mapping[bytes, Standing], since: int) -> bytes | None:
        """Remember the highest standings of each peer; return the key of one that stands further back.

        Args:
            peers: public key -> where that party's journal stood at a set-up, as it signed.
            since: number of entries that this journal had when its party advertised for that set-up.
        """
        with self._database.transaction() as database:
            known: dict[bytes, list[_Met]] = {}
            for public, counter, head, met in database.execute(
                "SELECT public, counter, head, met FROM peers"
            ):
                known.setdefault(bytes(public), []).append(_Met(Standing(counter, bytes(head)), met))
            back = next((one for one, now in peers.items() if _back(known.get(one, []), now, since)), None)
            if back is None:
                at = Chain(self._database).head.counter
                new = [(public, one.counter, one.head, at) for public, one in peers.items() if one.counter]
                database.executemany("INSERT OR IGNORE INTO peers VALUES (?, ?, ?, ?)", new)
                kept = "SELECT counter FROM peers WHERE public = ?1 ORDER BY counter DESC LIMIT ?2"
                forget = f"DELETE FROM peers WHERE public = ?1 AND counter NOT IN ({kept})"
                database.executemany(forget, [(public, AT_ONCE) for public in peers])
        return back


def _back(known: list[_Met], now: Standing, since: int) -> bool:
    """Say whether a journal is not the one that was known, or not what came of it.

    Where it stood is compared with what was known when this party advertised: two set-ups may run at once,
    and the list of the later one may come first. Where more was met since than is remembered, the lowest of
    it counts.
    """
    lowest = min(one.standing.counter for one in known) if len(known) == AT_ONCE else 0
    return any(
        not equal(now.head, one.standing.head)
        if now.counter == one.standing.counter
        else now.counter < one.standing.counter and (one.met <= since or one.standing.counter == lowest)
        for one in known
    )
