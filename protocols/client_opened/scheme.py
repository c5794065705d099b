"""Sums that clients open: their messages, how answers are sealed, added and opened, and a client's state.

`AdvertiseRequest`, `Advertisement` and `RosterRequest` are those of masked sums; all others travel
inside an `Envelope`, under the key that one client shares with the coordinator. "Down" means from the
coordinator to a client, "up" from a client to the coordinator.

All replays compute the same headers and heads:

header_r = H(session, number, index, head, cohort, members, metric)
head     = H(header_r, integers of total_r)         a hash chain over the totals; the first head is H(session)

A `Scheme` is stateless and holds no key; both sides use the same object. The modules beside this one do the
rest: set-up, tags, repeats. A `SumAttempt` is one attempt at a sum, as each client computes it from what its
replay of the algorithm asks.

The repr of a `State` shows no secret. A stored one must not be restored from a copy: see
`privfed.party.state`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from privfed.core.agreed.configuration import Configuration, Terms
from privfed.core.roles.secure_sum import NextQuestion
from privfed.core.stored.encoding import Codec, Message
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import Items, Number
from privfed.errors import MessageError
from privfed.privacy.pricing import Drawn
from privfed.protocols.answering import FEWEST_SUMMED, RangedAnswer
from privfed.protocols.crypto.keys import bound, digest, expand, mac
from privfed.protocols.setup.hybrid import Hidden, Keyring
from privfed.protocols.setup.losses import Losses
from privfed.protocols.setup.rules import cohort_digest, from_bitmap
from privfed.protocols.setup.setup_messages import Capsule, Key, Tag


class Group(Hidden, frozen=True):
    """Holds one client's keys and counters in a group that was set up.

    Args:
        session: hash of the agreement and the list of clients, 32 bytes.
        leader: position of the client that drew the secret (`leader_of`).
        channel: key shared with the coordinator, 32 bytes.
        pairs: position -> key shared with that client, 32 bytes. Has all other clients of the list, once the
            first request brought what they encapsulated; if the scheme uses no pairwise masks, a client
            other than the leader has only the leader.
        ring: what these keys are agreed on with, until then.
        secret: the group's secret G, 32 bytes that the coordinator never sees; empty until it came.
        extra: the scheme's own secret (the key of CKKS), which travels with G.
        head: head of the hash chain over all totals so far, 32 bytes.
        last: highest sum number that was answered; everything up to it is closed.
        pending: number of the sum that the client contributed to and whose total has not come; 0 for none.
        opened: index of the last opened sum, -1 before.
        repeats: how often a sum was asked again, or a client named lost between two sums.
        lost: one byte for each client of the configuration: 1 for those that are out of the fit.
        losses: how often clients were lost.
        shown: how often in totals that were opened.
    """

    session: bytes
    leader: int
    channel: bytes
    pairs: dict[int, bytes]
    head: bytes
    ring: Keyring = Keyring()
    secret: bytes = b""
    extra: bytes = b""
    last: int = 0
    pending: int = 0
    opened: int = -1
    repeats: int = 0
    lost: bytes = b""
    losses: Losses = Losses()
    shown: int = 0


class State(Hidden, frozen=True):
    """Holds the whole state of a client.

    Args:
        fit: identifier of the fit that was advertised for, empty before.
        key: secret X25519 key of that fit, until the roster comes.
        seed: seed of its ML-KEM-768 key, likewise.
        agreement: digest of the agreement that `answered` counts for.
        answered: how many sums of this agreement were answered, over all set-ups.
        slotted: how many of them showed unlinked contributions.
        repeats: how many repeats of sums were counted in closed set-ups.
        lost: who was out of the fit when the last set-up was closed, one byte for each client; empty before.
        group: the keys of the fit, from the roster on.
        reply_to: hash of the last request that changed the state.
        reply: the reply to it; an identical request gets it again, byte for byte.
        begun: number of the fit that was begun last; it ascends.
        losses: how often clients were lost in closed set-ups.
        shown: how often in totals that were opened, at the end of the last one.
    """

    fit: bytes = b""
    key: bytes = b""
    seed: bytes = b""
    agreement: bytes = b""
    answered: int = 0
    slotted: int = 0
    repeats: int = 0
    lost: bytes = b""
    group: Group | None = None
    reply_to: bytes = b""
    reply: bytes = b""
    begun: int = 0
    losses: Losses = Losses()
    shown: int = 0

    @property
    def losses_so_far(self) -> int:
        """How often clients were lost so far; a party's journal keeps it over all its fits."""
        return (self.losses if self.group is None else self.group.losses).over_fits

    @property
    def losses_shown(self) -> int:
        """How often in totals that were opened in the last set-up; a journal has those of earlier ones."""
        return self.shown if self.group is None else self.group.shown


def closed(state: State) -> State:
    """Return the state without its group and keys; counts over all set-ups stay.

    A sum whose total has not come counts as a repeat: the coordinator and a colluder may have opened it,
    and a new set-up may ask it again of other clients.
    """
    group = state.group
    if group is None:
        return state
    repeats = state.repeats + group.repeats + bool(group.pending)
    lost = group.lost if group.last else state.lost
    counts = {"repeats": repeats, "losses": group.losses, "shown": group.shown}
    return msgspec.structs.replace(state, group=None, lost=lost, **counts)


CODEC: Codec[State] = Codec(State, "state of a client of a sum that clients open", 6)
"""How a state is stored on the client's own disk."""


@dataclass(frozen=True, slots=True)
class SumAttempt:
    """Describes one attempt at a sum, as each client computes it for itself.

    Args:
        header: hash that all masks and checks are bound to, 32 bytes; never the same twice.
        me: the client's position.
        cohort: positions of the clients that the question goes to, ascending.
        members: those of them that may contribute, because they are not out of the fit.
        question: the encoded question.
    """

    header: bytes
    me: int
    cohort: tuple[int, ...]
    members: tuple[int, ...]
    question: bytes


def attempt_of(
    configuration: Configuration,
    group: Group,
    me: int,
    expected: NextQuestion,
    number: int,
    index: int,
    lost: bytes,
) -> SumAttempt:
    """Return the attempt `number` at sum `index`, after the totals that the group has chained.

    Raises:
        MessageError: `lost` is not one byte 0 or 1 for each client.
    """
    cohort = configuration.cohort(expected.cohort)
    out_of_fit = lost_clients(configuration, lost)
    members = tuple(i for i in cohort if i not in out_of_fit)
    where = (group.session, number, index, group.head, expected.cohort, cohort, members)
    return SumAttempt(sum_header(*where, expected.metric), me, cohort, members, expected.question)


@dataclass(frozen=True, slots=True)
class Opened:
    """Holds an opened total.

    Args:
        vector: the sum, float64 of shape (question.spec.size,).
        clipped: rows and entries that the contributors clipped.
        contributors: positions of the clients in the sum, ascending.
        integers: the total as encoded integers, which the hash chain runs over.
    """

    vector: FloatArray
    clipped: int
    contributors: tuple[int, ...]
    integers: bytes


class Adder(Protocol):
    """Adds sealed answers on the coordinator, as they arrive, without learning anything of them."""

    def add(self, client: int, body: bytes | memoryview, name: str) -> None:
        """Check one sealed answer's form and add it.

        Raises:
            MessageError: it is not well formed; `name` is its sender.
        """

    def result(self) -> tuple[tuple[int, ...], bytes]:
        """Return the positions of the clients in the sum, ascending, and the sealed sum.

        Clients whose answers do not fit the others' are left out.
        """


class Scheme(Protocol):
    """Seals, adds and opens answers."""

    @property
    def pairwise(self) -> bool:
        """Whether every two clients mask answers with a shared key (`Group.pairs`).

        Then each member must contribute: if one does not, the sum is asked again without it. Else only the
        leader shares keys.
        """

    def check(self, question: bytes, n_clients: int) -> None:
        """Check, before any client is asked, that the total of a cohort fits the grid.

        Raises:
            ArgumentError: it does not; the message says what helps.
        """

    def draw(self) -> bytes:
        """Draw, on the leader, the scheme's own secret, `Group.extra`; empty if G is enough."""

    def upload(self, group: Group, attempt: SumAttempt, own: RangedAnswer) -> bytes:
        """Return a client's sealed answer, which is never empty."""

    def open(self, group: Group, attempt: SumAttempt, body: bytes) -> Opened:
        """Open a sealed total; any bytes that the coordinator sends are either valid or refused.

        Raises:
            IntegrityError: it is not the sum of the contributions to this attempt.
        """

    def noised(self, body: bytes, noise: Drawn, n_clients: int) -> bytes:
        """Add the coordinator's noise to the sealed sum of a cohort of `n_clients`.

        Raises:
            IntegrityError: the sum has another layout, so the clients did not answer the agreed question.
        """

    def adder(self) -> Adder:
        """Return the coordinator's adder for one attempt."""


NOTHING = 2**32 - 1
"""Label that a client names in place of a cohort's whose own run asks no more."""


class Joined(Message, frozen=True):
    """Confirms the list (up, stage "prepare"). The leader's message also brings the group's secret.

    `boxes` holds the secret sealed for each other client of the list, ascending, all of equal length, and
    `secret` its hash; both are empty from clients other than the leader. `told` says how many totals the
    client has of earlier set-ups. `capsules` are for the clients whose keys came with the list.
    """

    boxes: bytes
    secret: bytes
    told: Number
    capsules: Items[Capsule] = ()


class Invited(Message, frozen=True):
    """Brings a client the group's secret, sealed by the leader, and what others encapsulated to it (down)."""

    box: bytes
    capsules: Items[Capsule] = ()


class Confirmed(Message, frozen=True):
    """Confirms the group's secret by its hash, before anything is sealed under it (up)."""

    secret: Key


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

    `asks` is false if the request only delivers the last total.
    """

    index: Number
    asks: bool
    lost: bytes
    totals: Items[Sealed]


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


def hash_of_secret(group: Group) -> bytes:
    """Return the hash by which clients confirm that the leader sent all of them the same secret."""
    return digest("group secret", group.session, group.secret, group.extra)


def leader_of(session: bytes, clients: Sequence[int]) -> int:
    """Return which of the clients of a list draws the secret: it changes with each set-up."""
    return clients[int.from_bytes(digest("leader", session)) % len(clients)]


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
    where = (session, number, index, head, cohort_digest(label, cohort), digest("members", *members))
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
    return max(
        FEWEST_SUMMED,
        terms.honest + max(terms.colluders, -(-terms.colluders * n // max(1, terms.min_clients))),
    )
