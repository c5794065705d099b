"""What keys, boxes, masks and receipts of masked sums follow from and are bound to; the same on both sides.

    block of a pair:  SHAKE256(session, block, count, t, H(Q), min, max, K) = two box keys, a seed a number
    then              K = SHA-256(K); the old one is erased
    number of a pair: SHAKE256(H, min, max, seed) = a receipt each way, then the mask
    number of one:    SHAKE256(session, r, H, i, b) = the mask of its own
    recovery:         R_i = all seeds of the number, xor SHAKE256(session, r, i, e_i)

A mask is its words, where they are few; else an AES key.

`Masking` is what a client makes with its neighbours under the header of a sum: masks and receipts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256, shake_256
from struct import Struct

import numpy as np

from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    RECEIPT_BYTES,
    bound,
    bound_prefix,
    digest,
    expand,
    with_numbers,
)
from privfed.protocols.crypto.keystream import mask_bytes
from privfed.protocols.crypto.shamir import Bytes
from privfed.protocols.masked.client_state import Pair

BOX_KEYS = 2 * KEY_BYTES
_TWO = Struct(">2Q").pack
_RATCHET = bound("ratchet", bytes(KEY_BYTES))[:-KEY_BYTES]
BOTH_RECEIPTS = 2 * RECEIPT_BYTES


def pair_of(key: bytes, session: bytes) -> Pair:
    """Return what two clients keep of the key that they agreed on."""
    return Pair(expand(key, bound("chain", session)), 1, expand(key, bound("invitations", session)))


def ratcheted(pair: Pair, block: int) -> Pair:
    """Return a pair whose chain stands at a block; what came before cannot be computed from it."""
    chain = pair.chain
    for _ in range(pair.block, block):
        chain = sha256(_RATCHET + chain).digest()
    return Pair(chain, block, pair.invitation)


def block_prefix(session: bytes, block: int, count: int, t: int, cohort: bytes) -> bytes:
    """Return what the secrets of a block are bound to, the same for all pairs of a cohort."""
    return bound_prefix("block", session, block, count, t, cohort)


def block_secrets(chain: bytes, prefix: bytes, low: int, high: int, count: int) -> bytes:
    """Return what two clients use in a block: box keys upwards and downwards, and `count` seeds.

    Args:
        chain: the pair's chain key at this block, 32 bytes.
        prefix: from `block_prefix`.
        low: the lower position.
        high: the higher one.
        count: how many numbers the block has.
    """
    return shake_256(with_numbers(prefix, low, high) + chain).digest(BOX_KEYS + KEY_BYTES * count)


def sending(me: int, other: int) -> slice:
    """Say where in the secrets of a block the key of a client's box for another stands."""
    return slice(0, KEY_BYTES) if me < other else slice(KEY_BYTES, BOX_KEYS)


def box_binding(
    session: bytes, block: int, count: int, sender: int, holder: int, t: int, abscissa: int, cohort: bytes
) -> bytes:
    """Return the associated data of a box of shares."""
    return with_numbers(bound_prefix("box data", session, block, count, t, cohort), sender, holder, abscissa)


def pair_prefix(header: bytes) -> bytes:
    """Return what all streams of pairs in a sum are bound to."""
    return bound_prefix("pair mask", header)


def pair_streams(seeds: bytes, prefix: bytes, me: int, others: Sequence[int], size: int) -> list[bytes]:
    """Return, with each of others, two receipts, from the lower position and the higher one, and a mask.

    Args:
        seeds: the secrets with them for this number, 32 bytes each.
        prefix: from `pair_prefix`.
        me: position of the client.
        others: their positions.
        size: words of a mask.
    """
    length, places = BOTH_RECEIPTS + mask_bytes(size), range(0, len(seeds), KEY_BYTES)
    return [
        shake_256(
            prefix + (_TWO(me, j) if me < j else _TWO(j, me)) + seeds[place : place + KEY_BYTES]
        ).digest(length)
        for place, j in zip(places, others, strict=True)
    ]


def receipt_from(me: int, other: int) -> slice:
    """Say where in a pair's stream the receipt of a client for another stands."""
    return slice(0, RECEIPT_BYTES) if me < other else slice(RECEIPT_BYTES, BOTH_RECEIPTS)


def self_stream(seed: bytes, session: bytes, number: int, client: int, header: bytes, size: int) -> bytes:
    """Return the mask that a client adds on its own, from its secret b."""
    data = with_numbers(bound_prefix("self mask", session, number, header), client)
    return shake_256(data + seed).digest(mask_bytes(size))


def recovery_pad(secret: bytes, session: bytes, number: int, client: int, neighbours: int) -> Bytes:
    """Return what hides the seeds of a number, from the secret e: uint8 of shape (neighbours, 32)."""
    data = with_numbers(bound_prefix("recovery", session, number), client)
    stream = shake_256(data + secret).digest(KEY_BYTES * neighbours)
    return np.frombuffer(stream, dtype=np.uint8).reshape(-1, KEY_BYTES)


def commitment(kind: str, secret: bytes, session: bytes, number: int, client: int) -> bytes:
    """Return the hash that a client gives the coordinator ahead, of its b ("self") or e ("recovery")."""
    return digest(f"commit {kind}", session, number, client, secret)


def lock_binding(header: bytes, client: int, dead: bytes) -> bytes:
    """Return the associated data of a client's sealed shares: who it was told is lost."""
    return bound("locked", header, client, dead)


def leaf(holder: int, abscissa: int, box: bytes, key_hash: bytes) -> bytes:
    """Return the hash that a client signs of one box: whom it is for, the box, and the hash of its key."""
    return digest("leaf", holder, abscissa, box, key_hash)


def key_hash(key: bytes) -> bytes:
    """Return the hash by which the sender of a box names its key; AES-GCM does not commit to one."""
    return digest("box key", key)


def prepared_data(
    session: bytes, block: int, count: int, t: int, cohort: bytes, me: int, leaves: bytes
) -> bytes:
    """Return what a client signs of a block that it prepared."""
    return bound("prepared", session, block, count, t, cohort, me, leaves)


def upload_data(header: bytes, client: int) -> bytes:
    """Return what a client signs of its upload."""
    return bound("upload", header, client)


def proof_context(header: bytes, client: int) -> bytes:
    """Return what a client's commitment and proof in a sum are bound to."""
    return bound("valid", header, client)


def proof_data(header: bytes, client: int, root: bytes, sigma: bytes, proof: bytes | memoryview) -> bytes:
    """Return what a client signs of its proof."""
    return bound("proof", header, client, root, sigma, sha256(proof).digest())


def lock_key(answer: bytes, session: bytes, number: int, client: int, header: bytes) -> bytes:
    """Return the key of a client's sealed shares, from its answer key a."""
    return expand(answer, bound("lock", session, number, client, header))


@dataclass(frozen=True, slots=True, repr=False)
class Masking:
    """Holds the masks of one client in one sum, and the receipts of both ways. Its repr shows none.

    Args:
        masks: its own mask, then one for each prepared neighbour.
        adds: whether each is added.
        made: its receipts for these neighbours, one after the other.
        expected: those that they make for it, if they mask under the same header.
    """

    masks: tuple[bytes, ...]
    adds: tuple[bool, ...]
    made: bytes
    expected: bytes


def masking(
    session: bytes,
    number: int,
    me: int,
    header: bytes,
    own: bytes,
    prepared: Sequence[int],
    seeds: bytes,
    size: int,
) -> Masking:
    """Return the masks and receipts of a client.

    Args:
        session: the fit's session.
        number: number of the sum.
        me: the client's position.
        header: H, all that the sum is bound to.
        own: its secret b, 32 bytes.
        prepared: positions of the neighbours that are prepared.
        seeds: its secrets with them, in the same order, 32 bytes each.
        size: words of an answer.
    """
    masks, made, expected = [self_stream(own, session, number, me, header, size)], [], []
    streams = pair_streams(seeds, pair_prefix(header), me, prepared, size)
    for j, stream in zip(prepared, streams, strict=True):
        made.append(stream[receipt_from(me, j)])
        expected.append(stream[receipt_from(j, me)])
        masks.append(stream[BOTH_RECEIPTS:])
    return Masking(tuple(masks), (True, *[me < j for j in prepared]), b"".join(made), b"".join(expected))
