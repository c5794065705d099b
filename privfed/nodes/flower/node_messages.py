"""What a coordinator's process and a node say to each other besides the messages of the secure sum."""

from __future__ import annotations

from typing import Self

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


class Signed(Message, frozen=True):
    """Base of messages that their writer signs.

    Args:
        signature: over the message without it, and what it is about besides.
    """

    signature: bytes = b""

    def signed(self, own: Identity, *about: bytes) -> Self:
        """Return the same, signed; `about` is what sender and receiver both know."""
        return msgspec.structs.replace(self, signature=own.sign(self._told(about)))

    def check_by(self, key: bytes, *about: bytes) -> None:
        """Check that the owner of a key signed it; raises `CryptographyError`."""
        verify(key, self.signature, self._told(about))

    def _told(self, about: tuple[bytes, ...]) -> bytes:
        return bound("flower", *about, encode(msgspec.structs.replace(self, signature=b"")))


class Join(Signed, frozen=True, kw_only=True):
    """Down: take part in what was agreed; the coordinator signs it.

    Args:
        agreement: its bytes.
        reader: keys of the process that drives the run (`new_reader`), for totals that only clients open.
    """

    agreement: bytes
    reader: bytes

    def check(self, server: bytes) -> None:
        """Check that the coordinator of an agreement asks to join it; raises `CryptographyError`."""
        check_public_key(self.reader[:KEY_BYTES])
        check_encapsulation_key(self.reader[KEY_BYTES:])
        self.check_by(server)


class Ask(Message, frozen=True):
    """Down: one request of the secure sum, which the coordinator signed, in a fit that the node joined."""

    digest: bytes
    request: bytes


class End(Signed, frozen=True, kw_only=True):
    """Down: the fit of this agreement is over; the coordinator signs it."""

    digest: bytes


class Ended(Message, frozen=True):
    """Up: the fit is closed in the node's journal, and its keys are erased."""


class _ByClient(Signed, frozen=True, kw_only=True):
    """Up: what the client of a position says, signed with its key, also about the agreement and the reader.

    Without that anybody who is connected could say it in a client's place.
    """

    position: Number

    def check_client(self, digest: bytes, reader: bytes, clients: tuple[bytes, ...]) -> None:
        """Check that the client of the position says it; raises `CryptographyError`."""
        if self.position >= len(clients):
            raise CryptographyError("a position that nobody has")
        self.check_by(clients[self.position], digest, reader)


class Joined(_ByClient, frozen=True, kw_only=True):
    """Up: the client takes part.

    Of a fit that it has been in, it passes on the totals that clients have opened, sealed for the reader.
    """

    totals: bytes = b""


class Declined(_ByClient, frozen=True, kw_only=True):
    """Up: the client takes no part."""

    code: str


class Answered(Message, frozen=True):
    """Up: the reply, and the totals that this client opened with the request, sealed for the reader."""

    reply: bytes
    totals: bytes = b""


class Silent(Message, frozen=True):
    """Up: the node gives no reply, since its state cannot be read or kept. This never depends on its rows."""


class Look(Signed, frozen=True, kw_only=True):
    """Down: how does the node stand? The coordinator signs it. Nothing that is told depends on rows.

    Args:
        nonce: 32 bytes, fresh.
        parties: digest of the clients of a fit that may follow (`privfed.nodes.journalled.parties_of`).
    """

    nonce: bytes
    parties: bytes


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


class Standing(Signed, frozen=True, kw_only=True):
    """Up: how a node stands, signed with the client's key, also about the nonce."""

    client: bytes
    about: About


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
