"""The coordinator's check of a client's advertisement, the first message of every set-up."""

from __future__ import annotations

from privfed.core.agreed.agreement import Agreement
from privfed.core.stored.messages import Refusal, decode
from privfed.errors import MessageError
from privfed.protocols.crypto.keys import CryptographyError, bound, check_public_key, verify
from privfed.protocols.setup.messages import Advertisement, Listed


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
