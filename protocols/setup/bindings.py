"""What a set-up is bound to; the same on both sides."""

from __future__ import annotations

from functools import lru_cache

from privfed.protocols.crypto.keys import digest
from privfed.protocols.setup.messages import Listed
from privfed.protocols.setup.rules import Agreement


def session_of(agreement: Agreement, fit: bytes, clients: tuple[Listed, ...]) -> bytes:
    """Return the session: hash of agreement, fit and list."""
    return _session(agreement.digest, fit, clients)


@lru_cache(maxsize=4)
def _session(agreement: bytes, fit: bytes, clients: tuple[Listed, ...]) -> bytes:
    listed = [part for one in clients for part in (one.client, one.key)]
    return digest("session", agreement, fit, *listed)


def part(data: bytes, place: int, size: int) -> bytes:
    """Return one of several parts of the same size."""
    return data[place * size : (place + 1) * size]
