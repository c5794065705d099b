"""What a client of masked sums remembers between messages. It serialises; it is never shown.

A stored state must not be restored from a copy: see `privfed.party.state`.
"""

from __future__ import annotations

import msgspec

from privfed.protocols.crypto.keys import KEY_BYTES, NONCE_BYTES, TAG_BYTES
from privfed.protocols.masked.messages import Preparation

SHARES_BYTES = 3 * KEY_BYTES
"""Shares of one client's seed, mask key and answer key, in this order."""

SEED, MASK, ANSWER = range(3)

BOX_BYTES = NONCE_BYTES + SHARES_BYTES + TAG_BYTES
"""One sealed box."""


class _Hidden(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


class Pair(_Hidden, frozen=True):
    """What two clients derived from their keys of this fit: for boxes, and for receipts."""

    box: bytes
    receipt: bytes


class Secrets(_Hidden, frozen=True):
    """A client's own secrets for one sum to come, and the preparation that it sent of them."""

    mask: bytes
    seed: bytes
    answer: bytes
    sent: Preparation


class Pending(_Hidden, frozen=True):
    """A sum whose upload was sent and whose unmasking was not.

    Args:
        number: number of the sum.
        header: H of the sum.
        cohort: label of its cohort.
        prepared: neighbours that were prepared, in the graph's order.
        shares: what each of them gave this client to hold, SHARES_BYTES each, in the same order.
        answer: the client's own answer key.
    """

    number: int
    header: bytes
    cohort: int
    prepared: tuple[int, ...]
    shares: bytes
    answer: bytes


class Fit(_Hidden, frozen=True):
    """The keys of a set-up fit.

    Args:
        session: hash of the agreement and the list of clients.
        channel: shared key with the coordinator.
        pairs: shared keys with other clients of the list: all in a small fit, else the neighbours so far.
        secret: secret X25519 key of the fit, where pairs are still to come; else empty.
        listed: public keys of all clients by position, zeros for who is not on the list; empty like `secret`.
        last: highest sum number that was answered; everything up to it is closed.
        answered: how many sums were answered.
        secrets: of the sums to come, by number.
        pending: the sum between its two exchanges.
        reply_to: hash of the last request that changed the state.
        reply: the reply to it; an identical request gets it again, byte for byte.
    """

    session: bytes
    channel: bytes
    pairs: dict[int, Pair]
    secret: bytes = b""
    listed: bytes = b""
    last: int = 0
    answered: int = 0
    secrets: dict[int, Secrets] = {}
    pending: Pending | None = None
    reply_to: bytes = b""
    reply: bytes = b""


class State(_Hidden, frozen=True):
    """The state of a client.

    Args:
        fit: identifier of the fit that was advertised for, empty before.
        key: secret X25519 key of that fit, until the roster comes.
        keys: the keys of the fit, from the roster on.
        agreement: what `answered` counts for.
        answered: how many sums of this agreement were answered before the keys were made: a new
            set-up does not start the count anew.
    """

    fit: bytes = b""
    key: bytes = b""
    keys: Fit | None = None
    agreement: bytes = b""
    answered: int = 0


_decode = msgspec.msgpack.Decoder(State).decode
_encode = msgspec.msgpack.Encoder().encode


def state_to_bytes(state: State) -> bytes:
    """Return a state as bytes, for a store on the client's own disk."""
    return _encode(state)


def state_from_bytes(data: bytes) -> State:
    """Return the state that `state_to_bytes` wrote."""
    return _decode(data)
