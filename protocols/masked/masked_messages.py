"""The messages of masked sums. All but those of the set-up travel inside an `Envelope`.

"Down" means from the coordinator to a client, "up" from a client to the coordinator. Fields that hold
whole answers are views of the received bytes, not copies.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from privfed.core.stored.encoding import Message
from privfed.core.values.numbers import Items, Number
from privfed.protocols.crypto.keys import KEY_BYTES, NONCE_BYTES, TAG_BYTES
from privfed.protocols.crypto.keystream import CHECK_BYTES
from privfed.protocols.setup.setup_messages import Capsule, Key, Offered, Signature, Slot

Check = Annotated[bytes, msgspec.Meta(min_length=CHECK_BYTES, max_length=CHECK_BYTES)]
"""The check words of a total."""

Head = Annotated[bytes, msgspec.Meta(max_length=KEY_BYTES)]
"""The head of a history; empty before its first entry."""

INVITATION_BYTES = NONCE_BYTES + KEY_BYTES + TAG_BYTES
"""The clients' secret, sealed for one of them."""


class Preparation(Message, frozen=True):
    """Holds what a client prepares for a block of numbers; n numbers, d neighbours in the graph's order.

    Args:
        block: which block.
        cohort: label of its cohort.
        commitments: hashes of b and of e for each number, 64 bytes each.
        recovery: R for each number: 32 bytes a neighbour, which e opens.
        boxes: a box for each neighbour; zeros for one that there is no key with.
        key_hashes: hashes of the boxes' keys, 32 bytes each.
        signature: of the client's key of the fit, over the leaves of all boxes (`bindings.leaf`).
    """

    block: Number
    cohort: Number
    commitments: bytes
    recovery: bytes
    boxes: bytes
    key_hashes: bytes
    signature: Signature


class Invitation(Message, frozen=True):
    """Brings one client the clients' secret, sealed by the client that drew it; `client` is who it is for."""

    client: Number
    box: Annotated[bytes, msgspec.Meta(max_length=INVITATION_BYTES)]


class SumEntry(Message, frozen=True):
    """Says who was in a sum, for the history that clients chain (inside `CollectRequest`).

    `prepared` and `survivors` have a bit for each member of the cohort. `survivors` is empty where the sum
    was not unmasked.
    """

    session: Key
    number: Number
    index: Number
    cohort: Number
    prepared: bytes
    survivors: bytes


class KeptEntry(Message, frozen=True):
    """Holds an entry as a coordinator keeps it, to go on from in another process."""

    agreement: Key
    entry: SumEntry


class KeptOut(Message, frozen=True):
    """Holds who is out of the fit and why, as a coordinator keeps it for another process."""

    agreement: Key
    client: Number
    why: str


class PrepareRequest(Message, frozen=True):
    """Asks a client to prepare for future sums (down).

    Every request within a fit may bring `keys` of clients that this one is to encapsulate to, and `capsules`
    that others made for it; every reply brings the `capsules` that it made.
    """

    upcoming: Items[Slot]
    keys: Items[Offered] = ()
    capsules: Items[Capsule] = ()


class Agreed(Message, frozen=True):
    """Brings what a client encapsulated to others when it joined, and the head of its history (up)."""

    capsules: Items[Capsule]
    head: Head


class Prepared(Message, frozen=True):
    """Brings a client's preparations (up).

    `invitations` are of the client that drew the secret of verified totals, one for each client that it has
    newly agreed on a key with.
    """

    preparations: Items[Preparation]
    capsules: Items[Capsule] = ()
    invitations: Items[Invitation] = ()


class CollectRequest(Message, frozen=True):
    """Brings the question, who is prepared, and what prepared neighbours made for this client (down).

    `prepared` has one byte for each member of the cohort; `brought` one for each prepared neighbour, in the
    graph's order: whether `boxes` has its box. `history` has the entries of earlier sums that the client may
    lack, and `head` is that over all of them.
    """

    cohort: Number
    index: Number
    history: Items[SumEntry]
    head: Head
    question: bytes
    prepared: bytes
    brought: bytes
    boxes: bytes
    upcoming: Items[Slot]
    keys: Items[Offered] = ()
    capsules: Items[Capsule] = ()


class ProvenRequest(CollectRequest, frozen=True, kw_only=True):
    """Asks where answers are proven (down); `challenge` is the hash of sigma, which `ProveRequest` brings."""

    challenge: Key


class LeafRequest(Message, frozen=True):
    """Shows a client that could not open a box what the sender signed of it (down).

    `leaves` are hashes, 32 bytes for each neighbour of the sender; `sealed_box` is what the sender's leaf for
    this client is said to name.
    """

    block: Number
    sender: Number
    sealed_box: bytes
    leaves: bytes
    signature: Signature


class BoxKey(Message, frozen=True):
    """Reveals the key of a box that its sender signed and that it does not open (up)."""

    key: Key


class Upload(Message, frozen=True):
    """Brings the masked answer, a receipt for each prepared neighbour, and preparations (up).

    The signature is that of the client's key of the fit, over the header that it masked under.
    """

    words: memoryview
    receipts: bytes
    signature: Signature
    preparations: Items[Preparation]
    capsules: Items[Capsule] = ()
    invitations: Items[Invitation] = ()


class ProvenUpload(Upload, frozen=True, kw_only=True):
    """Brings also the root of what the client committed to: its digits, and the pads after them (up)."""

    root: Key


class ProveRequest(Message, frozen=True):
    """Brings sigma, of which the client has the hash, and asks for the proof (down)."""

    sigma: Key
    upcoming: Items[Slot]
    keys: Items[Offered] = ()
    capsules: Items[Capsule] = ()


class Proof(Message, frozen=True):
    """Brings the proof that what the client committed to meets the statement (up).

    The signature is that of the client's key of the fit, over root, sigma and proof. `statement` is the
    digest of the statement as the client computed it: machines may compute other floats.
    """

    statement: Key
    proof: memoryview
    signature: Signature
    preparations: Items[Preparation] = ()
    capsules: Items[Capsule] = ()
    invitations: Items[Invitation] = ()


class UnmaskRequest(Message, frozen=True):
    """Names clients that were lost after preparing, and brings the other neighbours' receipts (down).

    `dead` is of the neighbours, a byte each. Where not all share with all, `lost` is of the whole cohort, a
    bit for each member, or empty where nobody was lost. `signatures` are those of the living neighbours'
    uploads, 64 bytes each, for a client that found receipts invalid.
    """

    dead: bytes
    receipts: bytes
    upcoming: Items[Slot]
    lost: bytes = b""
    signatures: bytes = b""
    keys: Items[Offered] = ()
    capsules: Items[Capsule] = ()


class Unmasking(Message, frozen=True):
    """Brings shares of living neighbours' a and, sealed, of their b and lost ones' e (up)."""

    answer_shares: bytes
    locked: bytes
    preparations: Items[Preparation]
    capsules: Items[Capsule] = ()
    invitations: Items[Invitation] = ()


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
    totals: Items[OpenedSum]
    earlier: Items[EarlierSum] = ()


class Relayed(Message, frozen=True):
    """Holds what a coordinator keeps of a total, to bring it to clients also from another process.

    `head` is that of the chain after it.
    """

    agreement: Key
    sum: EarlierSum
    head: Key


class LeadRequest(Message, frozen=True):
    """Asks a client to draw the clients' secret and to seal it for all others, and to prepare (down)."""

    upcoming: Items[Slot]
    keys: Items[Offered] = ()
    capsules: Items[Capsule] = ()
