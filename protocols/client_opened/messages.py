"""The messages of sums that clients open.

`AdvertiseRequest`, `Advertisement` and `RosterRequest` are those of masked sums; all others travel
inside an `Envelope`, under the key that one client shares with the coordinator.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from privfed.core.messages import Message
from privfed.protocols.crypto.keys import RECEIPT_BYTES
from privfed.protocols.setup.messages import Number

Tag = Annotated[bytes, msgspec.Meta(min_length=RECEIPT_BYTES, max_length=RECEIPT_BYTES)]
"""A MAC under the group's secret."""


class Joined(Message, frozen=True):
    """Up, stage "prepare": the list holds; and from the leader the group's secret.

    `boxes` holds one box of equal length for each other client of the list, ascending; empty from all
    but the leader. `public` is what the scheme shows to the coordinator (a public context), or empty.
    """

    boxes: bytes
    public: bytes


class Sealed(Message, frozen=True):
    """A total that only clients can open, with what its header is made of.

    `lost` has one byte a client of the configuration: 1 for those who were out of the fit.
    """

    number: Number
    index: Number
    lost: bytes
    body: bytes


class OpenRequest(Message, frozen=True):
    """Down, stage "collect": the totals that this client was not yet told, and the question that they imply.

    `asks` is false where the last total is delivered and nothing is asked. `invitation` is the leader's
    box for this client, until it has answered once.
    """

    index: Number
    asks: bool
    lost: bytes
    totals: tuple[Sealed, ...]
    invitation: bytes


class Contribution(Message, frozen=True):
    """Up, stage "collect": a tag over all totals so far, the cohort, and the client's sealed answer.

    `body` is empty from who is not in the cohort.
    """

    cohort: Number
    tag: Tag
    body: bytes
