"""What a coordinator's process and a node say to each other besides the messages of the secure sum."""

from __future__ import annotations

import msgspec

from privfed.core.stored.encoding import Message, Refusal, bound, decode, encode
from privfed.core.values.numbers import Items, Named, Number
from privfed.errors import MessageError
from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    CryptographyError,
    Identity,
    check_encapsulation_key,
    check_public_key,
    verify,
)
from privfed.protocols.setup.hybrid import seal_to, unseal_from


class Join(Message, frozen=True):
    """Down: take part in what was agreed.

    Args:
        agreement: its bytes.
        reader: keys of the process that drives the run (`new_reader`), for totals that only clients open.
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


class Look(Message, frozen=True):
    """Down: how does the node stand? Nothing that is told depends on rows.

    Args:
        nonce: 32 bytes, fresh.
        parties: digest of the clients of a fit that may follow (`privfed.nodes.journalled.parties_of`).
        signature: the coordinator's, over both.
    """

    nonce: bytes
    parties: bytes
    signature: bytes


class About(Message, frozen=True):
    """How a node stands.

    Args:
        at: its time, in seconds since 1970.
        versions: of what answers depend on.
        parties: sixty digits of the list that its owner approved.
        left: over all fits on its rows, by parameter of its policy; of those that it has.
        cost: of `max_losses`, of a fit with the clients that were asked about.
        open: numbers of fits that have not ended.
    """

    at: float
    versions: Named[str]
    parties: str
    left: Named[float]
    cost: Number
    open: Items[Number]


class Standing(Message, frozen=True):
    """Up: how a node stands, signed with the client's key, over the nonce."""

    client: bytes
    about: About
    signature: bytes


Down = Join | Ask | End | Look
Up = Joined | Declined | Answered | Ended | Standing | Refusal | Silent
Totals = Items[tuple[Number, bytes]]


def read_down(data: bytes) -> Down:
    """Return what a node was sent; raises `MessageError` where it is malformed."""
    read: Down = decode(data, Down, sender="the coordinator", stage="flower")
    return read


def read_up(data: bytes, sender: str) -> Up:
    """Return what a node sent; raises `MessageError` where it is malformed."""
    read: Up = decode(data, Up, sender=sender, stage="flower")
    return read


def _by_client(digest: bytes, reader: bytes, position: int, code: str | None) -> bytes:
    if code is None:
        return bound("flower joined", digest, reader, position)
    return bound("flower declined", digest, reader, position, code.encode())


def join(agreement: bytes, digest: bytes, reader: bytes, own: Identity) -> Join:
    """Return the coordinator's signed request to join."""
    return Join(agreement, reader, own.sign(bound("flower join", digest, reader)))


def check_join(message: Join, digest: bytes, server: bytes) -> None:
    """Check that the coordinator of an agreement asked to join it; raises `CryptographyError`."""
    check_public_key(message.reader[:KEY_BYTES])
    check_encapsulation_key(message.reader[KEY_BYTES:])
    verify(server, message.signature, bound("flower join", digest, message.reader))


def end(digest: bytes, own: Identity) -> End:
    """Return the coordinator's signed word that a fit is over."""
    return End(digest, own.sign(bound("flower end", digest)))


def check_end(message: End, server: bytes) -> None:
    """Check that the coordinator ended the fit; raises `CryptographyError`."""
    verify(server, message.signature, bound("flower end", message.digest))


def look(nonce: bytes, parties: bytes, own: Identity) -> Look:
    """Return the coordinator's signed question how nodes stand."""
    return Look(nonce, parties, own.sign(bound("flower look", nonce, parties)))


def check_look(message: Look, server: bytes) -> None:
    """Check that the coordinator asked; raises `CryptographyError`."""
    verify(server, message.signature, bound("flower look", message.nonce, message.parties))


def standing(asked: Look, about: About, own: Identity) -> Standing:
    """Return a node's signed answer."""
    return Standing(own.public, about, own.sign(bound("flower standing", asked.nonce, encode(about))))


def check_standing(message: Standing, nonce: bytes) -> None:
    """Check that a client answered; raises `CryptographyError`."""
    verify(message.client, message.signature, bound("flower standing", nonce, encode(message.about)))


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
    return seal_to(reader, msgspec.msgpack.encode(totals), "flower told", digest, position)


def unseal_totals(box: bytes, digest: bytes, position: int, secret: bytes) -> Totals:
    """Open what `seal_totals` made; raises `MessageError` where it does not authenticate."""
    try:
        return _TOTALS(unseal_from(secret, box, "flower told", digest, position))
    except (CryptographyError, msgspec.MsgspecError):
        raise MessageError(
            "totals that do not authenticate", sender=f"client {position}", stage="flower"
        ) from None
