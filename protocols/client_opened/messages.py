"""The messages of sums that clients open.

`AdvertiseRequest`, `Advertisement` and `RosterRequest` are those of masked sums; all others travel
inside an `Envelope`, under the key that one client shares with the coordinator. "Down" means from the
coordinator to a client, "up" from a client to the coordinator.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from privfed.core.stored.messages import Message
from privfed.protocols.crypto.keys import RECEIPT_BYTES
from privfed.protocols.setup.messages import Number

Tag = Annotated[bytes, msgspec.Meta(min_length=RECEIPT_BYTES, max_length=RECEIPT_BYTES)]
"""A MAC under the group's secret."""


class Joined(Message, frozen=True):
    """Confirms the list (up, stage "prepare"). The leader's message also brings the group's secret.

    `boxes` holds the secret sealed for each other client of the list, ascending, all of equal length; it is
    empty from clients other than the leader. `public` is what the scheme shows to the coordinator (a public
    context), or empty. `told` says how many totals the client has of earlier set-ups.
    """

    boxes: bytes
    public: bytes
    told: Number


class Sealed(Message, frozen=True):
    """Holds a total that only clients can open, and the fields that its header is computed from.

    `lost` has one byte for each client of the configuration: 1 for those that were out of the fit.
    """

    number: Number
    index: Number
    lost: bytes
    body: bytes


class OpenRequest(Message, frozen=True):
    """Brings a client the totals that it lacks, and asks the question that they imply (down, "collect").

    `asks` is false if the request only delivers the last total. `invitation` is the group's secret, sealed
    by the leader for this client; it is sent until the client has answered once.
    """

    index: Number
    asks: bool
    lost: bytes
    totals: tuple[Sealed, ...]
    invitation: bytes


class Contribution(Message, frozen=True):
    """Brings a tag over all totals so far, the cohort, and the client's sealed answer (up, "collect").

    `body` is empty from a client that is not in the cohort.
    """

    cohort: Number
    tag: Tag
    body: memoryview
