"""The messages of masked sums. All but those of the set-up travel inside an `Envelope`.

"Down" means from the coordinator to a client, "up" from a client to the coordinator. Fields that hold
whole answers are views of the received bytes, not copies.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from privfed.core.stored.messages import Message
from privfed.protocols.crypto.check_words import CHECK_BYTES
from privfed.protocols.setup.messages import Key, Number, Slot

Check = Annotated[bytes, msgspec.Meta(min_length=CHECK_BYTES, max_length=CHECK_BYTES)]
"""The check words of a total."""


class Preparation(Message, frozen=True):
    """Holds a client's key material for one sum: mask key, hash of its seed, a box for each neighbour."""

    number: Number
    cohort: Number
    mask_key: Key
    seed_hash: Key
    boxes: bytes


class PrepareRequest(Message, frozen=True):
    """Asks a client to prepare for future sums (down)."""

    upcoming: tuple[Slot, ...]


class Prepared(Message, frozen=True):
    """Brings a client's preparations (up)."""

    preparations: tuple[Preparation, ...]


class CollectRequest(Message, frozen=True):
    """Brings the question, who is prepared, and what prepared neighbours made for this client (down).

    `prepared` has one byte for each member of the cohort; `mask_keys`, `seed_hashes` and `boxes` hold one
    part for each prepared neighbour, in the graph's order.
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
    """Brings the masked answer, a receipt for each prepared neighbour, and preparations (up)."""

    words: memoryview
    receipts: bytes
    preparations: tuple[Preparation, ...]


class UnmaskRequest(Message, frozen=True):
    """Names clients that were lost after preparing, and brings the other neighbours' receipts (down).

    `dead` is of the neighbours, a byte each. Where not all share with all, `lost` is of the whole cohort, a
    bit for each member, or empty where nobody was lost.
    """

    dead: bytes
    receipts: bytes
    upcoming: tuple[Slot, ...]
    lost: bytes = b""


class Unmasking(Message, frozen=True):
    """Brings shares of neighbours' answer keys and, sealed, of living ones' seeds and lost ones' keys (up).

    `left_out` names living neighbours whose receipt is invalid; the client gives no share of theirs.
    """

    left_out: tuple[Number, ...]
    answer_shares: bytes
    locked: bytes
    preparations: tuple[Preparation, ...]


class OpenedSum(Message, frozen=True):
    """Brings a client a total that the server opened, which the client checks (inside `VerifiedRequest`).

    `prepared` and `contributors` have one byte for each member of the cohort; `words` are the total's
    integers on the grid, little-endian.
    """

    number: Number
    index: Number
    cohort: Number
    prepared: bytes
    contributors: bytes
    words: bytes
    check: Check


class EarlierSum(Message, frozen=True):
    """Brings a total of an earlier set-up, with that one's session (inside `VerifiedRequest`)."""

    session: Key
    total: OpenedSum


class VerifiedRequest(Message, frozen=True):
    """Brings the totals that a client lacks, and asks (down, for verified totals).

    `invitation` is the clients' secret, sealed by the client `leader` for this one; it and the last totals of
    earlier set-ups are sent until the client has answered once.
    """

    collect: CollectRequest
    leader: Number
    invitation: bytes
    totals: tuple[OpenedSum, ...]
    earlier: tuple[EarlierSum, ...] = ()


class Relayed(Message, frozen=True):
    """Holds what a coordinator keeps of a total, to bring it to clients also from another process.

    `head` is that of the chain after it.
    """

    agreement: Key
    sum: EarlierSum
    head: Key


class LeadRequest(Message, frozen=True):
    """Asks a client to draw the clients' secret, since the one that had it is lost (down)."""

    upcoming: tuple[Slot, ...]


class Leading(Message, frozen=True):
    """Brings preparations, and the clients' secret sealed for each other listed client, ascending (up)."""

    prepared: Prepared
    boxes: bytes
