"""The messages of masked sums. All but those of the set-up travel inside an `Envelope`.

Fields that hold whole answers are views of the bytes that they came in, not copies.
"""

from __future__ import annotations

from privfed.core.messages import Message
from privfed.protocols.setup.messages import Key, Number, Slot


class Preparation(Message, frozen=True):
    """A client's key material for one sum: mask key, hash of its self-mask seed, a box a neighbour."""

    number: Number
    cohort: Number
    mask_key: Key
    seed_hash: Key
    boxes: bytes


class PrepareRequest(Message, frozen=True):
    """Down: prepare for sums to come."""

    upcoming: tuple[Slot, ...]


class Prepared(Message, frozen=True):
    """Up: preparations."""

    preparations: tuple[Preparation, ...]


class CollectRequest(Message, frozen=True):
    """Down: the question, who is prepared, and what each prepared neighbour made for this client.

    `prepared` is a byte a member of the cohort; `mask_keys`, `seed_hashes` and `boxes` hold one part for
    each prepared neighbour, in the graph's order.
    """

    cohort: Number
    index: Number
    question: bytes
    prepared: bytes
    mask_keys: bytes
    seed_hashes: bytes
    boxes: bytes
    upcoming: tuple[Slot, ...]


class Upload(Message, frozen=True):
    """Up: the masked answer, a receipt for each prepared neighbour, and preparations."""

    words: memoryview
    receipts: bytes
    preparations: tuple[Preparation, ...]


class UnmaskRequest(Message, frozen=True):
    """Down: who was lost after preparing, and the receipts that the others sent for this client."""

    dead: bytes
    receipts: bytes
    upcoming: tuple[Slot, ...]


class Unmasking(Message, frozen=True):
    """Up: shares of the answer keys of the living, and, locked, of their seeds and the lost ones' keys.

    `left_out` are living neighbours whose receipt does not hold; no share of theirs is given.
    """

    left_out: tuple[Number, ...]
    answer_shares: bytes
    locked: bytes
    preparations: tuple[Preparation, ...]
