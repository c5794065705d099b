"""The first messages of every set-up: the coordinator's signed request, and a client's signed fresh key.

The request is signed, and a client takes each fit's identifier once: whoever else can send messages could
otherwise close a running fit, as often as it likes.

A client checks the list of clients (the roster) before it agrees on keys with any.

Rollback detection: parties exchange signed journal counters at set-up and remember each peer's highest.

A client that goes on from an older copy of its journal has forgotten what it answered, paid and lost. Its
peers have not. Each keeps, over all its fits, the highest counter of every party that it met. It refuses a
list in which one shows a lower counter, or another journal at the same counter.

Several set-ups may run at once, and their lists come in any order. What counts is what a party knew when it
advertised for this one, as its own entry in the list says. An older copy that has made more entries than its
peers saw before they meet it again is not noticed. One that is put in place while a set-up waits for its list
is noticed at the next.
"""

from __future__ import annotations

from functools import lru_cache

from privfed.core.agreed.agreement import Agreement, JournalCounter, Registry, Remembering, Signer
from privfed.core.stored.encoding import Refusal, decode
from privfed.errors import MessageError, PolicyError
from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    SERVER,
    CryptographyError,
    bound,
    check_encapsulation_key,
    check_public_key,
    digest,
    equal,
    verify,
)
from privfed.protocols.setup.setup_messages import (
    Advertisement,
    AdvertiseRequest,
    Listed,
    Offered,
    RosterRequest,
    session_of,
)

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


def advertise_request(agreement: Agreement, identity: Signer, fit: bytes) -> AdvertiseRequest:
    """Return the coordinator's request that begins a fit."""
    signature = identity.sign(_begins(agreement, fit))
    return AdvertiseRequest(fit, agreement.digest, signature)


def check_request(agreement: Agreement, message: AdvertiseRequest, before: tuple[bytes, ...]) -> None:
    """Check that the coordinator signed a request, and that it begins no fit anew that was begun before.

    Args:
        agreement: what the client was given.
        message: the request.
        before: identifiers of the fits of this agreement that the client was asked for before.

    Raises:
        PolicyError: it is of another agreement, not signed, or an old one; the text is the code.
    """
    if message.agreement != agreement.digest:
        raise PolicyError("agreement")
    try:
        verify(agreement.registry.server, message.signature, _begins(agreement, message.fit))
    except CryptographyError:
        raise PolicyError("setup:signature") from None
    if message.fit in before:
        raise PolicyError("setup:again")


def _begins(agreement: Agreement, fit: bytes) -> bytes:
    return bound("set-up", SERVER, fit, agreement.digest)


def read_advertisement(
    agreement: Agreement, client: int, name: str, data: bytes, fit: bytes
) -> Advertisement | Refusal:
    """Return a client's keys, signed by its registered identity for this fit, or the client's refusal.

    Raises:
        MessageError: it is malformed or not signed for this fit, or a key or its counter is unusable.
    """
    reply: Advertisement | Refusal = decode(data, Advertisement | Refusal, sender=name, stage="advertise")
    if isinstance(reply, Refusal):
        return reply
    encapsulation = hash_of(reply.encapsulation)
    what = signed(client, fit, agreement.digest, reply.key, encapsulation, reply.journal_counter)
    try:
        verify(agreement.registry.clients[client], reply.signature, what)
        check_public_key(reply.key)
        check_encapsulation_key(reply.encapsulation)
        read(reply.journal_counter)
    except CryptographyError as error:
        raise MessageError(str(error), sender=name, stage="advertise") from None
    except PolicyError:
        # All other clients would refuse a list with it.
        raise MessageError("no counter of a journal", sender=name, stage="advertise") from None
    return reply


def listed(client: int, one: Advertisement) -> Listed:
    """Return a client's entry in the list, from what it advertised."""
    return Listed(client, one.key, hash_of(one.encapsulation), one.signature, one.journal_counter)


def signed_roster(
    identity: Signer,
    agreement: Agreement,
    fit: bytes,
    key: bytes,
    encapsulation: bytes,
    listed: tuple[Listed, ...],
) -> RosterRequest:
    """Return the coordinator's list of clients with its keys, signed over all of it; it offers nobody's key.

    Args:
        identity: the coordinator's.
        agreement: what all were given.
        fit: identifier of the fit.
        key: the coordinator's fresh public X25519 key.
        encapsulation: its fresh ML-KEM-768 key.
        listed: the clients that advertised, ascending.
    """
    unsigned = RosterRequest(listed, key, encapsulation, b"")
    signature = identity.sign(_roster_data(agreement, fit, unsigned))
    return RosterRequest(listed, key, encapsulation, signature)


def with_keys(roster: RosterRequest, keys: tuple[Offered, ...]) -> RosterRequest:
    """Return the list for one client, with the keys of those that it encapsulates to."""
    return RosterRequest(roster.clients, roster.key, roster.encapsulation, roster.signature, keys)


def check_signed(agreement: Agreement, fit: bytes, message: RosterRequest) -> None:
    """Check that the coordinator signed a list with its keys.

    Raises:
        PolicyError: it did not; the text is the code of the refusal.
    """
    try:
        verify(agreement.registry.server, message.signature, _roster_data(agreement, fit, message))
    except CryptographyError:
        raise PolicyError("roster:signature") from None


def _roster_data(agreement: Agreement, fit: bytes, message: RosterRequest) -> bytes:
    """Return what the coordinator signs of a list: its keys, and the session (a hash of the list)."""
    session, encapsulation = session_of(agreement, fit, message.clients), hash_of(message.encapsulation)
    return bound("advertise", SERVER, fit, agreement.digest, message.key, encapsulation, session)


def check_roster(
    agreement: Agreement, me: int, key: bytes, encapsulation: bytes, fit: bytes, message: RosterRequest
) -> None:
    """Check that the roster holds only registered clients, each once, with keys that they signed.

    The coordinator signed the whole list, this client's fresh keys in it: an old list sets up nothing. Stops
    a server that invents clients, or replaces their keys with its own.

    Args:
        agreement: what the client was given.
        me: the client's position.
        key: its fresh public X25519 key.
        encapsulation: hash of its fresh ML-KEM-768 key.
        fit: identifier of the fit.
        message: the list.

    Raises:
        PolicyError: the roster fails a check; the text is the code of the refusal.
    """
    registry = agreement.registry
    _check_listed(registry, agreement.digest, fit, message.clients)
    own = [one.key + one.encapsulation for one in message.clients if one.client == me]
    if not any(equal(one, key + encapsulation) for one in own):
        raise PolicyError("roster:self")
    check_signed(agreement, fit, message)


@lru_cache(maxsize=2)
def _check_listed(registry: Registry, agreement: bytes, fit: bytes, listed: tuple[Listed, ...]) -> None:
    """Check what does not depend on the client; cached, as all simulated clients get the same list."""
    positions = [one.client for one in listed]
    if positions != sorted(set(positions)) or not set(positions) <= set(range(len(registry.clients))):
        raise PolicyError("roster:clients")
    for one in listed:
        what = signed(one.client, fit, agreement, one.key, one.encapsulation, one.journal_counter)
        _signed(registry.clients[one.client], one.signature, what)


def _signed(public: bytes, signature: bytes, message: bytes) -> None:
    try:
        verify(public, signature, message)
    except CryptographyError:
        raise PolicyError("roster:signature") from None
