"""The first messages of every set-up: the coordinator's signed request, and a client's signed fresh key.

The request is signed, and a client takes each fit's identifier once: whoever else can send messages could
otherwise close a running fit, as often as it likes.

A client checks the list of clients (the roster) before it agrees on keys with any.

Rollback detection: parties exchange signed journal counters at set-up and remember each peer's highest.

A client that goes on from an older copy of its journal has forgotten what it answered, paid and lost. Its
peers have not. Each keeps, over all its fits, the highest counter of every party that it met, with what that
one signed. It refuses a list in which one shows a lower counter later, or another journal at the same
counter. With the refusal come both statements, which anybody can check: that client is left out, and the
others go on. Both stay in the journal, so that it is left out for good.

Several set-ups may run at once, and their lists come in any order. So a statement says when it was made, by a
clock that the party's journal keeps from going back: of two statements of an honest party the later one has
no lower counter. An older copy that has made more entries than its peers saw before they meet it again is not
noticed.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from time import time_ns

from privfed.core.agreed.agreement import Agreement, JournalCounter, Registry, Remembering, Signer
from privfed.core.stored.encoding import Refusal, decode, encode
from privfed.errors import MessageError, PolicyError
from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    SERVER,
    CryptographyError,
    Identity,
    bound,
    check_encapsulation_key,
    check_public_key,
    digest,
    equal,
    expand,
    holds,
)
from privfed.protocols.setup.ceilings import Ceiling
from privfed.protocols.setup.setup_messages import (
    Advertisement,
    AdvertiseRequest,
    Listed,
    Offered,
    RosterRequest,
    Statement,
    WentBack,
    part,
    session_of,
)

_COUNTER_BYTES = 8

MOST_ENTRIES = 2**62
"""Most entries of a journal: peers can store its counter, and their own stays above it."""


def shown(identity: Signer) -> bytes:
    """Return a party's journal counter, as it is signed; empty where its key belongs to no journal."""
    if not isinstance(identity, Remembering):
        return b""
    now = identity.journal_counter()
    return b"".join(one.to_bytes(_COUNTER_BYTES, "big") for one in (now.counter, now.at)) + now.head


def read(shown: bytes) -> JournalCounter:
    """Return what `shown` wrote.

    Raises:
        PolicyError: it is of another length, or its counter or time is beyond what any journal comes to.
    """
    if not shown:
        return JournalCounter()
    counter, at = (int.from_bytes(part(shown, place, _COUNTER_BYTES), "big") for place in (0, 1))
    if len(shown) != 2 * _COUNTER_BYTES + KEY_BYTES or max(counter, at) > MOST_ENTRIES:
        raise PolicyError("roster:counter")
    return JournalCounter(counter, shown[2 * _COUNTER_BYTES :], at)


def signing_of(secret: bytes, fit: bytes) -> Identity:
    """Return the key that a client signs messages of a fit with, from its secret X25519 key of that fit."""
    return Identity(expand(secret, bound("signing", fit)))


def advertised(
    identity: Signer,
    client: int,
    fit: bytes,
    agreement: bytes,
    key: bytes,
    encapsulation: bytes,
    signing: bytes,
) -> Advertisement:
    """Return a client's advertisement of fresh public keys, of X25519, ML-KEM-768 and Ed25519."""
    counter = shown(identity)
    signature = identity.sign(signed(client, fit, agreement, key, hash_of(encapsulation), signing, counter))
    return Advertisement(key, encapsulation, signing, signature, counter)


def hash_of(encapsulation: bytes) -> bytes:
    """Return the hash of an ML-KEM-768 key, by which a list names it."""
    return digest("encapsulation", encapsulation)


def signed(
    client: int,
    fit: bytes,
    agreement: bytes,
    key: bytes,
    encapsulation: bytes,
    signing: bytes,
    journal_counter: bytes,
) -> bytes:
    """Return what a client signs of its advertisement; `encapsulation` is the key's hash."""
    return bound("advertise", client, fit, agreement, key, encapsulation, signing, journal_counter)


class WentBackError(PolicyError):
    """The journal of a client in a list went back. The argument is the reply that says so, and shows it."""


def check_journals(
    identity: Signer, agreement: Agreement, me: int, fit: bytes, clients: tuple[Listed, ...]
) -> tuple[int, ...]:
    """Check that no other client's journal contradicts what this client knows, and remember all.

    Returns:
        Clients that are not in the list, and whose journals once went back: they take part no more.

    Raises:
        WentBackError: the journal of one in the list did.
    """
    if not isinstance(identity, Remembering):
        return ()
    keys, others = agreement.registry.clients, [one for one in clients if one.client != me]
    shown = {
        keys[one.client]: (read(one.journal_counter), encode(Statement(agreement.digest, fit, one)))
        for one in others
    }
    back = identity.meets(shown)
    for public in back.keys() & shown.keys():
        one, other = (decode(kept, Statement, sender="the journal", stage="agree") for kept in back[public])
        raise WentBackError(WentBack(keys.index(public), (one, other)))
    return tuple(i for i, public in enumerate(keys) if public in back)


def check_went_back(agreement: Agreement, shown: WentBack, name: str, stage: str) -> None:
    """Check that the journal of a client went back, as another one says and shows.

    Raises:
        MessageError: it does not show it.
    """
    one, other = shown.statements
    with suppress(PolicyError, IndexError):
        signed_both = all(
            _is_signed(agreement.registry.clients[shown.client], each.agreement, each.fit, each.entry)
            for each in (one, other)
        )
        if signed_both and read(one.entry.journal_counter).contradicts(read(other.entry.journal_counter)):
            return
    raise MessageError("shows no journal that went back", sender=name, stage=stage)


def advertise_request(agreement: Agreement, identity: Signer, fit: bytes) -> AdvertiseRequest:
    """Return the coordinator's request that begins a fit."""
    # A run may be resumed by another process, which knows nothing of the fits before but that they are past.
    number = time_ns()
    return AdvertiseRequest(fit, number, agreement.digest, identity.sign(_begins(agreement, fit, number)))


def check_request(agreement: Agreement, message: AdvertiseRequest, before: int) -> None:
    """Check that the coordinator signed a request, and that it begins no fit anew that was begun before.

    Args:
        agreement: what the client was given.
        message: the request.
        before: number of the last fit of this agreement that the client was asked for before.

    Raises:
        PolicyError: it is of another agreement, not signed, or an old one; the text is the code.
    """
    if message.agreement != agreement.digest:
        raise PolicyError("agreement")
    if not holds(
        agreement.registry.server, message.signature, _begins(agreement, message.fit, message.number)
    ):
        raise PolicyError("setup:signature")
    if message.number <= before:
        raise PolicyError("setup:again")


def _begins(agreement: Agreement, fit: bytes, number: int) -> bytes:
    return bound("set-up", SERVER, fit, number, agreement.digest)


def read_advertisement(
    agreement: Agreement, client: int, name: str, data: bytes, fit: bytes
) -> Advertisement | Refusal:
    """Return a client's keys, signed by its registered identity for this fit, or the client's refusal.

    Raises:
        MessageError: it is malformed or not signed for this fit, or a key or its counter is unusable.
    """
    reply: Advertisement | Refusal = Ceiling.of(agreement.configuration).read(
        data, Advertisement | Refusal, sender=name, stage="advertise"
    )
    if isinstance(reply, Refusal):
        return reply
    try:
        if not _is_signed(agreement.registry.clients[client], agreement.digest, fit, listed(client, reply)):
            raise CryptographyError("not signed for this fit")
        check_public_key(reply.key)
        check_encapsulation_key(reply.encapsulation)
        read(reply.journal_counter)
    except (CryptographyError, PolicyError) as error:
        # All other clients would refuse a list with it.
        raise MessageError(str(error), sender=name, stage="advertise") from None
    return reply


def listed(client: int, one: Advertisement) -> Listed:
    """Return a client's entry in the list, from what it advertised."""
    return Listed(
        client, one.key, hash_of(one.encapsulation), one.signing, one.signature, one.journal_counter
    )


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
    signature = identity.sign(_roster_data(agreement, fit, RosterRequest(listed, key, encapsulation, b"")))
    return RosterRequest(listed, key, encapsulation, signature)


def with_keys(roster: RosterRequest, keys: tuple[Offered, ...]) -> RosterRequest:
    """Return the list for one client, with the keys of those that it encapsulates to."""
    return RosterRequest(roster.clients, roster.key, roster.encapsulation, roster.signature, keys)


def check_signed(agreement: Agreement, fit: bytes, message: RosterRequest) -> None:
    """Check that the coordinator signed a list with its keys.

    Raises:
        PolicyError: it did not; the text is the code of the refusal.
    """
    if not holds(agreement.registry.server, message.signature, _roster_data(agreement, fit, message)):
        raise PolicyError("roster:signature")


def _roster_data(agreement: Agreement, fit: bytes, message: RosterRequest) -> bytes:
    """Return what the coordinator signs of a list: its keys, and the session (a hash of the list)."""
    session, encapsulation = session_of(agreement, fit, message.clients), hash_of(message.encapsulation)
    return bound("advertise", SERVER, fit, agreement.digest, message.key, encapsulation, session)


def check_roster(
    agreement: Agreement,
    me: int,
    key: bytes,
    encapsulation: bytes,
    signing: bytes,
    fit: bytes,
    message: RosterRequest,
) -> None:
    """Check that the roster holds only registered clients, each once, with keys that they signed.

    The coordinator signed the whole list, this client's fresh keys in it: an old list sets up nothing. Stops
    a server that invents clients, or replaces their keys with its own.

    Args:
        agreement: what the client was given.
        me: the client's position.
        key: its fresh public X25519 key.
        encapsulation: hash of its fresh ML-KEM-768 key.
        signing: its fresh Ed25519 key.
        fit: identifier of the fit.
        message: the list.

    Raises:
        PolicyError: the roster fails a check; the text is the code of the refusal.
    """
    _check_listed(agreement.registry, agreement.digest, fit, message.clients)
    own = [one.key + one.encapsulation + one.signing for one in message.clients if one.client == me]
    if not any(equal(one, key + encapsulation + signing) for one in own):
        raise PolicyError("roster:self")
    check_signed(agreement, fit, message)


@lru_cache(maxsize=2)
def _check_listed(registry: Registry, agreement: bytes, fit: bytes, listed: tuple[Listed, ...]) -> None:
    """Check what does not depend on the client; cached, as all simulated clients get the same list."""
    positions = [one.client for one in listed]
    if positions != sorted(set(positions)) or not set(positions) <= set(range(len(registry.clients))):
        raise PolicyError("roster:clients")
    for one in listed:
        if not _is_signed(registry.clients[one.client], agreement, fit, one):
            raise PolicyError("roster:signature")


def _is_signed(public: bytes, agreement: bytes, fit: bytes, one: Listed) -> bool:
    """Say whether a client signed its entry in a list, for this fit."""
    keys = one.key, one.encapsulation, one.signing
    return holds(public, one.signature, signed(one.client, fit, agreement, *keys, one.journal_counter))
