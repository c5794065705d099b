"""Rollback detection: parties exchange signed journal counters at set-up and remember each peer's highest.

A client that goes on from an older copy of its journal has forgotten what it answered, paid and lost. Its
peers have not. Each keeps, over all its fits, the highest counter of every party that it met. It refuses a
list in which one shows a lower counter, or another journal at the same counter.

Several set-ups may run at once, and their lists come in any order. What counts is what a party knew when it
advertised for this one, as its own entry in the list says. An older copy that has made more entries than its
peers saw before they meet it again is not noticed. One that is put in place while a set-up waits for its list
is noticed at the next.
"""

from __future__ import annotations

from privfed.core.agreed.agreement import Agreement, JournalCounter, Remembering, Signer
from privfed.errors import PolicyError
from privfed.protocols.crypto.keys import KEY_BYTES, bound, digest
from privfed.protocols.setup.messages import Advertisement, Listed

_COUNTER_BYTES = 8

MOST_ENTRIES = 2**62
"""Most entries of a journal: peers can store its counter, and their own stays above it."""


def shown(identity: Signer) -> bytes:
    """Return a party's journal counter, as it is signed; empty where its key belongs to no journal."""
    if not isinstance(identity, Remembering):
        return b""
    journal_counter = identity.journal_counter()
    return journal_counter.counter.to_bytes(_COUNTER_BYTES, "big") + journal_counter.head


def read(shown: bytes) -> JournalCounter:
    """Return what `shown` wrote.

    Raises:
        PolicyError: it is of another length, or its counter is beyond what any journal comes to.
    """
    if not shown:
        return JournalCounter()
    counter = int.from_bytes(shown[:_COUNTER_BYTES], "big")
    if len(shown) != _COUNTER_BYTES + KEY_BYTES or counter > MOST_ENTRIES:
        raise PolicyError("roster:counter")
    return JournalCounter(counter, shown[_COUNTER_BYTES:])


def advertised(
    identity: Signer, client: int, fit: bytes, agreement: bytes, key: bytes, encapsulation: bytes
) -> Advertisement:
    """Return a client's advertisement of fresh public keys, of X25519 and ML-KEM-768."""
    counter = shown(identity)
    what = signed(client, fit, agreement, key, hash_of(encapsulation), counter)
    return Advertisement(key, encapsulation, identity.sign(what), counter)


def hash_of(encapsulation: bytes) -> bytes:
    """Return the hash of an ML-KEM-768 key, by which a list names it."""
    return digest("encapsulation", encapsulation)


def signed(
    client: int, fit: bytes, agreement: bytes, key: bytes, encapsulation: bytes, journal_counter: bytes
) -> bytes:
    """Return what a client signs of its advertisement; `encapsulation` is the key's hash."""
    return bound("advertise", client, fit, agreement, key, encapsulation, journal_counter)


def check_journals(identity: Signer, agreement: Agreement, me: int, clients: tuple[Listed, ...]) -> None:
    """Check that no other client's journal counter is lower than this client knows, and remember them.

    Raises:
        PolicyError: one does; the text is the code of the refusal, which names it.
    """
    if not isinstance(identity, Remembering):
        return
    keys = agreement.registry.clients
    shown = {one.client: read(one.journal_counter) for one in clients}
    since = shown.pop(me).counter
    back = identity.meets({keys[client]: journal_counter for client, journal_counter in shown.items()}, since)
    if back is not None:
        raise PolicyError(f"journal:{keys.index(back)}")
