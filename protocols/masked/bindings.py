"""The values that keys, boxes and receipts of masked sums are bound to; the same on both sides."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privfed.protocols.crypto.keys import agree, bound, bound_prefix, expand, extract, with_numbers
from privfed.protocols.masked.state import Pair


def pair_of(key: bytes, session: bytes) -> Pair:
    """Return the keys for boxes and receipts of two clients, from the key that they agreed on."""
    return Pair(expand(key, bound("boxes", session)), expand(key, bound("receipts", session)))


def self_mask_key(seed: bytes, session: bytes, number: int, client: int, header: bytes) -> bytes:
    """Return the key of the mask that a client adds on its own, from its seed."""
    return expand(seed, bound("self mask", session, number, client, header))


def pair_mask_key(
    secret: bytes | X25519PrivateKey,
    public: bytes,
    session: bytes,
    number: int,
    one: int,
    other: int,
    header: bytes,
) -> bytes:
    """Return the key of the mask that two clients share; both compute the same.

    Args:
        secret: the mask key of `one` for this sum.
        public: the other's public mask key.
        session: the fit's session.
        number: number of the sum.
        one: position of the client that computes it.
        other: position of the other.
        header: all that the sum is bound to.
    """
    low, high = (one, other) if one < other else (other, one)
    info = with_numbers(bound_prefix("pair mask", session, number, header), low, high)
    return extract(agree(secret, public), info)


def lock_binding(header: bytes, client: int, dead: bytes, left_out: tuple[int, ...]) -> bytes:
    """Return the associated data of a client's sealed shares: who it was told is lost, whom it left out."""
    return bound("locked", header, client, dead, *left_out)


def receipt_data(number: int, sender: int, receiver: int, header: bytes) -> bytes:
    """Return the bytes that a receipt is a MAC of."""
    return with_numbers(bound_prefix("receipt", number, header), sender, receiver)


def box_key(pair: Pair, session: bytes, number: int, sender: int, holder: int) -> bytes:
    """Return the key of one box of shares."""
    return expand(pair.box, with_numbers(bound_prefix("box", session, number), sender, holder))
