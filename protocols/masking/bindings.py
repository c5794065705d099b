"""What keys, boxes and receipts of masked sums are bound to; the same on both sides."""

from __future__ import annotations

from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privfed.protocols.masking.keys import (
    agree,
    bound,
    bound_prefix,
    digest,
    expand,
    extract,
    with_numbers,
)
from privfed.protocols.masking.messages import Listed
from privfed.protocols.masking.rules import Agreement
from privfed.protocols.masking.state import Pair


def session_of(agreement: Agreement, fit: bytes, clients: tuple[Listed, ...]) -> bytes:
    """Return the session: hash of agreement, fit and list."""
    return _session(agreement.digest, fit, clients)


@lru_cache(maxsize=4)
def _session(agreement: bytes, fit: bytes, clients: tuple[Listed, ...]) -> bytes:
    listed = [part for one in clients for part in (one.client, one.key)]
    return digest("session", agreement, fit, *listed)


def self_mask_key(seed: bytes, session: bytes, number: int, client: int, header: bytes) -> bytes:
    """Return the key of a client's own mask."""
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
    """Return the key of the mask that two clients share; the same from either side."""
    low, high = (one, other) if one < other else (other, one)
    return extract(
        agree(secret, public), with_numbers(bound_prefix("pair mask", session, number, header), low, high)
    )


def lock_binding(header: bytes, client: int, dead: bytes, left_out: tuple[int, ...]) -> bytes:
    """Return the associated data of a client's locked shares: the story that it was told."""
    return bound("locked", header, client, dead, *left_out)


def receipt_data(number: int, sender: int, receiver: int, header: bytes) -> bytes:
    """Return what a receipt is a MAC of."""
    return with_numbers(bound_prefix("receipt", number, header), sender, receiver)


def box_key(pair: Pair, session: bytes, number: int, sender: int, holder: int) -> bytes:
    """Return the key of one box of shares."""
    return expand(pair.box, with_numbers(bound_prefix("box", session, number), sender, holder))


def part(data: bytes, place: int, size: int) -> bytes:
    """Return one of several parts of the same size."""
    return data[place * size : (place + 1) * size]
