"""The messages of a set-up, common to masked sums and sums that clients open, and the envelope.

"Down" means from the coordinator to a client, "up" from a client to the coordinator.

Clients and coordinator compute the session alike; all keys of a set-up are bound to it. The channel between
one client and the coordinator seals every message under the key that both share.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from privfed.core.agreed.agreement import Agreement
from privfed.core.stored.encoding import Message, decode, digest, encode, ending_in
from privfed.core.values.numbers import Count, Items, Number
from privfed.errors import MessageError
from privfed.protocols.crypto.keys import (
    CIPHERTEXT_BYTES,
    ENCAPSULATION_BYTES,
    RECEIPT_BYTES,
    SIGNATURE_BYTES,
    CryptographyError,
    bound,
    expand,
    sealed,
    unseal,
)

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

Signature = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
"""A signature of Ed25519."""

Stage = Literal["agree", "prepare", "collect", "prove", "unmask"]
"""The stage of a sum that an envelope belongs to."""


class AdvertiseRequest(Message, frozen=True):
    """Begins a fit, signed by the coordinator (down, in clear). The numbers of an agreement's fits ascend."""

    fit: Key
    number: Count
    agreement: Key
    signature: bytes


JournalCounterBytes = Annotated[bytes, msgspec.Meta(max_length=48)]
"""Where a client's journal stands: a counter, a time and a hash; empty where it keeps none."""


class Advertisement(Message, frozen=True):
    """Brings a client's fresh X25519 and ML-KEM-768 keys and where its journal stands, signed (up).

    `signing` is the Ed25519 key that it signs messages of this fit with.
    """

    key: Key
    encapsulation: EncapsulationKey
    signing: Key
    signature: bytes
    journal_counter: JournalCounterBytes = b""


class Listed(Message, frozen=True):
    """Names one client of the roster, and what it signed: its keys, and where its journal stands.

    `encapsulation` is the hash of its ML-KEM-768 key, which goes to those only who use it.
    """

    client: Number
    key: Key
    encapsulation: Key
    signing: Key
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


class Statement(Message, frozen=True):
    """Holds what a client signed when it advertised for a fit, with what the signature is over."""

    agreement: Key
    fit: Key
    entry: Listed


class WentBack(Message, frozen=True):
    """Refuses a list with a client of which two statements show that its journal went back (up, in clear)."""

    client: Number
    statements: tuple[Statement, Statement]


class Envelope(Message, frozen=True):
    """Carries a message sealed under the key that one client shares with the coordinator."""

    number: Number
    stage: Stage
    box: memoryview


def session_of(agreement: Agreement, fit: bytes, clients: tuple[Listed, ...]) -> bytes:
    """Return the session: a hash over the agreement, the fit and the list of clients with their keys."""
    return _session(agreement.digest, fit, clients)


@lru_cache(maxsize=4)
def _session(agreement: bytes, fit: bytes, clients: tuple[Listed, ...]) -> bytes:
    listed = [
        part
        for one in clients
        for part in (one.client, one.key, one.encapsulation, one.signing, one.journal_counter)
    ]
    return digest("session", agreement, fit, *listed)


def part(data: bytes, place: int, size: int) -> bytes:
    """Return the part at a place in `data`, a concatenation of parts of `size` bytes each."""
    return data[place * size : (place + 1) * size]


class Direction:
    """Seals and opens the envelopes that go one way between one client and the coordinator.

    Args:
        key: the key that both share, 32 bytes.
        session: the fit's session.
        client: position of the client.
        way: "down" to the client, or "up" to the coordinator.
    """

    def __init__(self, key: bytes, session: bytes, client: int, way: str) -> None:
        self.key = expand(key, bound(way, session, client))
        self._session, self._client = session, client

    def seal(self, number: int, stage: Stage, message: Message) -> bytes:
        """Return a sealed envelope with a message of a sum and stage."""
        box = sealed(self.key, encode(message), self._binding(number, stage))
        return ending_in(encode(Envelope(number, stage, memoryview(b""))), box)

    def open(self, envelope: Envelope, expected: Any, sender: str = "the coordinator") -> Any:
        """Return the message in an envelope.

        Raises:
            MessageError: it does not authenticate, or is none of the expected types.
        """
        try:
            data = unseal(self.key, envelope.box, self._binding(envelope.number, envelope.stage))
        except CryptographyError:
            raise MessageError("does not authenticate", sender=sender, stage=envelope.stage) from None
        return decode(data, expected, sender=sender, stage=envelope.stage)

    def _binding(self, number: int, stage: str) -> bytes:
        return bound("envelope", self._session, number, self._client, stage.encode())


class Channel:
    """Connects one client and the coordinator, each direction under a key of its own.

    Args:
        key: shared key that both derived from their X25519 keys of this fit, 32 bytes.
        session: the fit's session.
        client: position of the client.

    Attributes:
        down: requests to the client.
        up: replies to the coordinator.
    """

    def __init__(self, key: bytes, session: bytes, client: int) -> None:
        self.down = Direction(key, session, client, "down")
        self.up = Direction(key, session, client, "up")
