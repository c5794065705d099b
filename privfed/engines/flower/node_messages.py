"""What a coordinator's process and a node say to each other besides the messages of the secure sum."""

from __future__ import annotations

import msgspec

from privfed.core.stored.encoding import Message, Refusal, bound, decode
from privfed.core.values.numbers import Items, Number
from privfed.errors import MessageError
from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    CryptographyError,
    Identity,
    agree,
    extract,
    new_secret,
    public_key,
    seal,
    unseal,
    verify,
)


class Join(Message, frozen=True):
    """Down: take part in what was agreed.

    Args:
        agreement: its bytes.
        reader: X25519 key of the process that drives the run, for totals that only clients open.
        signature: the coordinator's, over the agreement's digest and that key.
    """

    agreement: bytes
    reader: bytes
    signature: bytes


class Ask(Message, frozen=True):
    """Down: one request of the secure sum, which the coordinator signed, in a fit that the node joined."""

    digest: bytes
    request: bytes


class End(Message, frozen=True):
    """Down: the fit is over; the coordinator signed that over the agreement's digest."""

    digest: bytes
    signature: bytes


class Ended(Message, frozen=True):
    """Up: the fit is closed in the node's journal, and its keys are erased."""


class Joined(Message, frozen=True):
    """Up: the node takes part at this position; signed with its key, over the agreement and the reader.

    Of a fit that it has been in, it passes on the totals that clients have opened, sealed for the reader.
    """

    position: Number
    signature: bytes
    totals: bytes = b""


class Declined(Message, frozen=True):
    """Up: the client of this position takes no part; signed with its key, over the agreement and the code.

    Without that anybody who is connected could refuse in a client's place.
    """

    position: Number
    code: str
    signature: bytes


class Answered(Message, frozen=True):
    """Up: the reply, and the totals that this client opened with the request, sealed for the reader."""

    reply: bytes
    totals: bytes = b""


class Silent(Message, frozen=True):
    """Up: the node gives no reply, since its state cannot be read or kept. This never depends on its rows."""


Down = Join | Ask | End
Up = Joined | Declined | Answered | Ended | Refusal | Silent
Totals = Items[tuple[Number, bytes]]


def read_down(data: bytes) -> Down:
    """Return what a node was sent; raises `MessageError` where it is malformed."""
    read: Down = decode(data, Down, sender="the coordinator", stage="flower")
    return read


def read_up(data: bytes, sender: str) -> Up:
    """Return what a node sent; raises `MessageError` where it is malformed."""
    read: Up = decode(data, Up, sender=sender, stage="flower")
    return read


def _joining(digest: bytes, reader: bytes) -> bytes:
    return bound("flower join", digest, reader)


def _by_client(digest: bytes, reader: bytes, position: int, code: str | None) -> bytes:
    if code is None:
        return bound("flower joined", digest, reader, position)
    return bound("flower declined", digest, reader, position, code.encode())


def _ending(digest: bytes) -> bytes:
    return bound("flower end", digest)


def join(agreement: bytes, digest: bytes, reader: bytes, own: Identity) -> Join:
    """Return the coordinator's signed request to join."""
    return Join(agreement, reader, own.sign(_joining(digest, reader)))


def check_join(message: Join, digest: bytes, server: bytes) -> None:
    """Check that the coordinator of an agreement asked to join it; raises `CryptographyError`."""
    if len(message.reader) != KEY_BYTES:
        raise CryptographyError("a key of another length")
    verify(server, message.signature, _joining(digest, message.reader))


def end(digest: bytes, own: Identity) -> End:
    """Return the coordinator's signed word that a fit is over."""
    return End(digest, own.sign(_ending(digest)))


def check_end(message: End, server: bytes) -> None:
    """Check that the coordinator ended the fit; raises `CryptographyError`."""
    verify(server, message.signature, _ending(message.digest))


def joined(digest: bytes, reader: bytes, position: int, own: Identity, totals: Totals = ()) -> Joined:
    """Return a node's signed answer that it takes part, with the totals that it has."""
    box = seal_totals(totals, digest, position, reader) if totals else b""
    return Joined(position, own.sign(_by_client(digest, reader, position, None)), box)


def declined(digest: bytes, reader: bytes, position: int, code: str, own: Identity) -> Declined:
    """Return a node's signed answer that it takes no part."""
    return Declined(position, code, own.sign(_by_client(digest, reader, position, code)))


def check_client(
    message: Joined | Declined, digest: bytes, reader: bytes, clients: tuple[bytes, ...]
) -> None:
    """Check that the client of a position says whether it takes part; raises `CryptographyError`."""
    if not 0 <= message.position < len(clients):
        raise CryptographyError("a position that nobody has")
    code = message.code if isinstance(message, Declined) else None
    verify(clients[message.position], message.signature, _by_client(digest, reader, message.position, code))


_TOTALS = msgspec.msgpack.Decoder(Totals).decode


def seal_totals(totals: Totals, digest: bytes, position: int, reader: bytes) -> bytes:
    """Seal totals for the process that drives the run, so that nobody on the way reads them."""
    secret = new_secret()
    own = public_key(secret)
    about = bound("flower told", digest, position, reader, own)
    return own + seal(extract(agree(secret, reader), about), msgspec.msgpack.encode(totals), about)


def unseal_totals(box: bytes, digest: bytes, position: int, secret: bytes) -> Totals:
    """Open what `seal_totals` made; raises `MessageError` where it does not authenticate."""
    theirs, sealed = box[:KEY_BYTES], box[KEY_BYTES:]
    about = bound("flower told", digest, position, public_key(secret), theirs)
    try:
        return _TOTALS(unseal(extract(agree(secret, theirs), about), sealed, about))
    except (CryptographyError, msgspec.MsgspecError):
        raise MessageError(
            "totals that do not authenticate", sender=f"client {position}", stage="flower"
        ) from None
