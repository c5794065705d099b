"""The first messages of every set-up: the coordinator's signed request, and a client's signed fresh key.

The request is signed, and a client takes each fit's identifier once: whoever else can send messages could
otherwise close a running fit, as often as it likes.
"""

from __future__ import annotations

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.stored.messages import Refusal, decode
from privfed.errors import MessageError, PolicyError
from privfed.protocols.crypto.keys import SERVER, CryptographyError, bound, check_public_key, verify
from privfed.protocols.setup.messages import Advertisement, AdvertiseRequest, Listed


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
    signed = bound("advertise", client, fit, agreement.digest, reply.key)
    try:
        verify(agreement.registry.clients[client], reply.signature, signed)
        check_public_key(reply.key)
    except CryptographyError as error:
        raise MessageError(str(error), sender=name, stage="advertise") from None
    return Listed(client, reply.key, reply.signature)
