"""The messages of a set-up, common to masked sums and sums that clients open, and the envelope.

"Down" means from the coordinator to a client, "up" from a client to the coordinator.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from privfed.core.stored.encoding import Message
from privfed.core.values.numbers import Items, Number
from privfed.protocols.crypto.keys import CIPHERTEXT_BYTES, ENCAPSULATION_BYTES, RECEIPT_BYTES

Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
"""A public key, a hash or a nonce of 32 bytes."""


EncapsulationKey = Annotated[
    bytes, msgspec.Meta(min_length=ENCAPSULATION_BYTES, max_length=ENCAPSULATION_BYTES)
]
"""A public key of ML-KEM-768."""

Ciphertext = Annotated[bytes, msgspec.Meta(min_length=CIPHERTEXT_BYTES, max_length=CIPHERTEXT_BYTES)]
"""A ciphertext of ML-KEM-768."""

Tag = Annotated[bytes, msgspec.Meta(min_length=RECEIPT_BYTES, max_length=RECEIPT_BYTES)]
"""A MAC."""

Stage = Literal["agree", "prepare", "collect", "unmask"]
"""The stage of a sum that an envelope belongs to."""


class AdvertiseRequest(Message, frozen=True):
    """Begins a fit, signed by the coordinator (down, in clear)."""

    fit: Key
    agreement: Key
    signature: bytes


JournalCounterBytes = Annotated[bytes, msgspec.Meta(max_length=40)]
"""Where a client's journal stands: a counter of eight bytes and a hash; empty where it keeps none."""


class Advertisement(Message, frozen=True):
    """Brings a client's fresh X25519 and ML-KEM-768 keys and where its journal stands, signed (up)."""

    key: Key
    encapsulation: EncapsulationKey
    signature: bytes
    journal_counter: JournalCounterBytes = b""


class Listed(Message, frozen=True):
    """Names one client of the roster, and what it signed: its keys, and where its journal stands.

    `encapsulation` is the hash of its ML-KEM-768 key, which goes to those only who use it.
    """

    client: Number
    key: Key
    encapsulation: Key
    signature: bytes
    journal_counter: JournalCounterBytes = b""


class Slot(Message, frozen=True):
    """Announces future sums: the block of their numbers, and the label of their cohort."""

    block: Number
    cohort: Number


class Offered(Message, frozen=True):
    """Brings the ML-KEM-768 key of a listed client, to agree on a key with it (down)."""

    client: Number
    key: EncapsulationKey


class Capsule(Message, frozen=True):
    """Brings one client of a pair what the other encapsulated, with a MAC under the key that both then share.

    `client` is the other end: who it is for on the way up, who made it on the way down.
    """

    client: Number
    ciphertext: Ciphertext
    tag: Tag


class RosterRequest(Message, frozen=True):
    """Lists who takes part, and the coordinator's own keys (down, in clear).

    The signature is the coordinator's, over its keys and the whole list. `keys` are those of clients that
    this one encapsulates to; the list has their hashes.
    """

    clients: Items[Listed]
    key: Key
    encapsulation: EncapsulationKey
    signature: bytes
    keys: Items[Offered] = ()


class Joining(Message, frozen=True):
    """Brings what a client encapsulated to the coordinator, and an envelope under the key of both (up)."""

    ciphertext: Ciphertext
    envelope: bytes


class Envelope(Message, frozen=True):
    """Carries a message sealed under the key that one client shares with the coordinator."""

    number: Number
    stage: Stage
    box: memoryview
