"""The first messages of every set-up: the coordinator's signed request, and a client's signed fresh key.

The request is signed, and a client takes each fit's identifier once: whoever else can send messages could
otherwise close a running fit, as often as it likes.
"""

from __future__ import annotations

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.stored.encoding import Refusal, decode
from privfed.errors import MessageError, PolicyError
from privfed.protocols.crypto.keys import (
    SERVER,
    CryptographyError,
    bound,
    check_encapsulation_key,
    check_public_key,
    verify,
)
from privfed.protocols.setup.bindings import session_of
from privfed.protocols.setup.journal_counter import hash_of, read, signed
from privfed.protocols.setup.messages import Advertisement, AdvertiseRequest, Listed, Offered, RosterRequest


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
