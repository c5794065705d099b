"""The first messages of every set-up: the coordinator's signed request, and a client's signed fresh key.

The request is signed, and a client takes each fit's identifier once: whoever else can send messages could
otherwise close a running fit, as often as it likes.
"""

from __future__ import annotations

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.stored.messages import Refusal, decode
from privfed.errors import MessageError, PolicyError
from privfed.protocols.crypto.keys import SERVER, CryptographyError, bound, check_public_key, verify
from privfed.protocols.setup.bindings import session_of
from privfed.protocols.setup.messages import Advertisement, AdvertiseRequest, Listed, RosterRequest, Slot
from privfed.protocols.setup.standing import signed


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
) -> Listed | Refusal:
    """Return a client's key, signed by its registered identity for this fit, or the client's refusal.

    Raises:
        MessageError: the message is malformed or not signed for this fit, or its key is unusable.
    """
    reply = decode(data, Advertisement | Refusal, sender=name, stage="advertise")
    if isinstance(reply, Refusal):
        return reply
    what = signed(client, fit, agreement.digest, reply.key, reply.standing)
    try:
        verify(agreement.registry.clients[client], reply.signature, what)
        check_public_key(reply.key)
    except CryptographyError as error:
        raise MessageError(str(error), sender=name, stage="advertise") from None
    return Listed(client, reply.key, reply.signature, reply.standing)


def signed_roster(
    identity: Signer,
    agreement: Agreement,
    fit: bytes,
    key: bytes,
    listed: tuple[Listed, ...],
    upcoming: tuple[Slot, ...] = (),
) -> RosterRequest:
    """Return the coordinator's list of clients with its key and the first sums, signed over all of it.

    Args:
        identity: the coordinator's.
        agreement: what all were given.
        fit: identifier of the fit.
        key: the coordinator's fresh public key.
        listed: the clients that advertised, ascending.
        upcoming: the sums that whoever gets it is to prepare.
    """
    unsigned = RosterRequest(listed, key, b"", upcoming)
    signature = identity.sign(_roster_data(agreement, fit, unsigned))
    return RosterRequest(listed, key, signature, upcoming)


def check_signed(agreement: Agreement, fit: bytes, message: RosterRequest) -> None:
    """Check that the coordinator signed a list with its key and the first sums.

    The list is in clear, and who hears it may send it again: other sums in it would close those prepared.

    Raises:
        PolicyError: it did not; the text is the code of the refusal.
    """
    try:
        verify(agreement.registry.server, message.signature, _roster_data(agreement, fit, message))
    except CryptographyError:
        raise PolicyError("roster:signature") from None


def _roster_data(agreement: Agreement, fit: bytes, message: RosterRequest) -> bytes:
    """Return what the coordinator signs of a list: its key, the session (a hash of the list), and sums."""
    session = session_of(agreement, fit, message.clients)
    sums = [number for slot in message.upcoming for number in (slot.number, slot.cohort)]
    return bound("advertise", SERVER, fit, agreement.digest, message.key, session, *sums)
