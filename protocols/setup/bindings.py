"""The session that a set-up's keys are bound to; clients and coordinator compute it alike."""

from __future__ import annotations

from functools import lru_cache

from privfed.core.agreed.agreement import Agreement
from privfed.core.stored.encoding import digest
from privfed.protocols.setup.messages import Listed


def session_of(agreement: Agreement, fit: bytes, clients: tuple[Listed, ...]) -> bytes:
    """Return the session: a hash over the agreement, the fit and the list of clients with their keys."""
    return _session(agreement.digest, fit, clients)


@lru_cache(maxsize=4)
def _session(agreement: bytes, fit: bytes, clients: tuple[Listed, ...]) -> bytes:
    listed = [
        part for one in clients for part in (one.client, one.key, one.encapsulation, one.journal_counter)
    ]
    return digest("session", agreement, fit, *listed)


def part(data: bytes, place: int, size: int) -> bytes:
    """Return the part at a place in `data`, a concatenation of parts of `size` bytes each."""
    return data[place * size : (place + 1) * size]
