"""The messages of sums that clients open.

`AdvertiseRequest`, `Advertisement` and `RosterRequest` are those of masked sums; all others travel
inside an `Envelope`, under the key that one client shares with the coordinator. "Down" means from the
coordinator to a client, "up" from a client to the coordinator.
"""

from __future__ import annotations

from privfed.core.stored.encoding import Message
from privfed.core.values.numbers import Items, Number
from privfed.protocols.setup.messages import Capsule, Tag

NOTHING = 2**32 - 1
"""Label that a client names in place of a cohort's whose own run asks no more."""


class Joined(Message, frozen=True):
    """Confirms the list (up, stage "prepare"). The leader's message also brings the group's secret.

    `boxes` holds the secret sealed for each other client of the list, ascending, all of equal length; it is
    empty from clients other than the leader. `public` is what the scheme shows to the coordinator (a public
    context), or empty. `told` says how many totals the client has of earlier set-ups. `capsules` are for the
    clients whose keys came with the list.
    """

    boxes: bytes
    public: bytes
    told: Number
    capsules: Items[Capsule] = ()


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
    by the leader for this client, and `capsules` are those of others for it; both are sent until the client
    has answered once.
    """

    index: Number
    asks: bool
    lost: bytes
    totals: Items[Sealed]
    invitation: bytes
    capsules: Items[Capsule] = ()


class Contribution(Message, frozen=True):
    """Brings a tag over all totals so far, the cohort, and the client's sealed answer (up, "collect").

    `body` is empty from a client that is not in the cohort, or whose run asks no more (`NOTHING`).
    """

    cohort: Number
    tag: Tag
    body: memoryview
