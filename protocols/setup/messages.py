"""The messages of a set-up, common to masked sums and sums that clients open, and the envelope.

"Down" means from the coordinator to a client, "up" from a client to the coordinator.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from privfed.core.stored.messages import Message

Number = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
"""Numbers of sums, cohorts and clients: four bytes."""

Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
"""A public key, a hash or a nonce of 32 bytes."""


Stage = Literal["prepare", "collect", "unmask"]
"""The stage of a sum that an envelope belongs to."""


class AdvertiseRequest(Message, frozen=True):
    """Begins a fit, signed by the coordinator (down, in clear)."""

    fit: Key
    agreement: Key
    signature: bytes


JournalStanding = Annotated[bytes, msgspec.Meta(max_length=40)]
"""Where a client's journal stands: a counter of eight bytes and a hash; empty where it keeps none."""


class Advertisement(Message, frozen=True):
    """Brings a fresh X25519 key of the client and where its journal stands, signed by its identity (up)."""

    key: Key
    signature: bytes
    standing: JournalStanding = b""


class Listed(Message, frozen=True):
    """Names one client of the roster, and what it signed: its key, and where its journal stands."""

    client: Number
    key: Key
    signature: bytes
    standing: JournalStanding = b""


class Slot(Message, frozen=True):
    """Announces a future sum: its number, and the label of its cohort."""

    number: Number
    cohort: Number


class RosterRequest(Message, frozen=True):
    """Lists who takes part, the coordinator's own key, and the first sums (down, in clear).

    The signature is the coordinator's, over its key and the whole list.
    """

    clients: tuple[Listed, ...]
    key: Key
    signature: bytes
    upcoming: tuple[Slot, ...]


class Envelope(Message, frozen=True):
    """Carries a message sealed under the key that one client shares with the coordinator."""

    number: Number
    stage: Stage
    box: memoryview
