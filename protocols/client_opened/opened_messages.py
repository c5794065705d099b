"""The messages of sums that clients open, and what the group's keys, headers and tags are bound to.

`AdvertiseRequest`, `Advertisement` and `RosterRequest` are those of masked sums; all others travel
inside an `Envelope`, under the key that one client shares with the coordinator. "Down" means from the
coordinator to a client, "up" from a client to the coordinator.

All replays compute the same headers and heads:

header_r = H(session, number, index, head, cohort, members, metric)
head     = H(header_r, integers of total_r)         a hash chain over the totals; the first head is H(session)
"""

from __future__ import annotations

from privfed.core.agreed.configuration import Configuration, Terms
from privfed.core.stored.encoding import Message
from privfed.core.values.numbers import Items, Number
from privfed.errors import MessageError
from privfed.protocols.answering import FEWEST_SUMMED
from privfed.protocols.crypto.keys import bound, digest, expand, mac
from privfed.protocols.setup.rules import cohort_digest, from_bitmap
from privfed.protocols.setup.setup_messages import Capsule, Tag

NOTHING = 2**32 - 1
"""Label that a client names in place of a cohort's whose own run asks no more."""


class Joined(Message, frozen=True):
    """Confirms the list (up, stage "prepare"). The leader's message also brings the group's secret.

    `boxes` holds the secret sealed for each other client of the list, ascending, all of equal length; it is
    empty from clients other than the leader. `told` says how many totals the client has of earlier set-ups.
    `capsules` are for the clients whose keys came with the list.
    """

    boxes: bytes
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


MISSED = "totals:missed"
"""Code of the refusal of a client that lacks totals of earlier set-ups, which nobody passes on."""


def invitation_key(pair: bytes, session: bytes) -> bytes:
    """Return the key under which the leader sends the group's secret to one client."""
    return expand(pair, bound("invitation", session))


def invitation_data(session: bytes, leader: int, client: int) -> bytes:
    """Return the associated data of an invitation."""
    return bound("invitation", session, leader, client)


def first_head(session: bytes) -> bytes:
    """Return the head of the chain before any total."""
    return digest("group chain", session)


def next_head(header: bytes, integers: bytes) -> bytes:
    """Return the chain's head after a total; it hashes the total's integers, equal on all machines."""
    return digest("group chain", header, integers)


def sum_header(
    session: bytes,
    number: int,
    index: int,
    head: bytes,
    label: int,
    cohort: tuple[int, ...],
    members: tuple[int, ...],
    metric: int,
) -> bytes:
    """Return the header of one attempt at a sum. All masks and checks are bound to it and used only once.

    The question is left out: the totals of the chain imply it, and its floats may differ between machines.
    Which of the agreed metrics asks it, as in `NextQuestion`, the totals do not imply.
    """
    there = digest("members", *members)
    where = (session, number, index, head, cohort_digest(label, cohort), there)
    return digest("group sum", *where, metric + 1)


def tag_of(secret: bytes, number: int, head: bytes) -> bytes:
    """Return the tag by which replays compare their chains.

    It is a MAC, so that the coordinator cannot test guesses of a total against it.
    """
    return mac(expand(secret, bound("group tag")), bound("group tag", number, head))


def lost_clients(configuration: Configuration, lost: bytes) -> frozenset[int]:
    """Return the clients that are out of the fit, from a bitmap.

    Raises:
        MessageError: the bitmap is not one byte 0 or 1 for each client.
    """
    chosen = from_bitmap(tuple(range(len(configuration.clients))), lost)
    if chosen is None:
        raise MessageError("not a list of lost clients", sender="the coordinator", stage="collect")
    return chosen


def needed(n: int, terms: Terms) -> int:
    """Return how many clients of a cohort of n must be in a sum: m honest ones and the colluders.

    The agreed c is for the smallest cohort; a larger cohort is assumed to have the same share of colluders.
    There are never fewer than three: each of two would learn the other's answer from the total.
    """
    share = -(-terms.colluders * n // max(1, terms.min_clients))
    return max(FEWEST_SUMMED, terms.honest + max(terms.colluders, share))
