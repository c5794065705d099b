"""Sums that show contributions, but not whose they are: slots over another secure sum.

Each client answers a question with slots (`privfed.questions.slots`) in one slot and leaves the others
zero. A permutation from PRG(G, sum) says which slot; G is a secret that all clients share and the server
does not know. The clients agree on G in a set-up of their own, beside that of the inner sum. Sums whose
totals the clients open cannot have slots: every client knows G, and so whose each contribution is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

import msgspec
import numpy as np

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.agreed.configuration import SLOTTED, Configuration, Terms
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import Total, changed
from privfed.core.roles.engine import Answerer, ClientSide, Replies
from privfed.core.roles.secure_sum import (
    Assumptions,
    Relays,
    Replay,
    SecureSum,
    Session,
    Stage,
    Steps,
    TotalReader,
)
from privfed.core.stored.encoding import Codec, Message, Refusal, StateCodec, decode, encode
from privfed.core.values.domain import frozen
from privfed.core.values.numbers import check_whole
from privfed.errors import ArgumentError, MessageError, PolicyError, PrivFedError
from privfed.privacy.noised import Noised
from privfed.protocols.answering import refusal_code
from privfed.protocols.client_opened.group_client import GroupSetup
from privfed.protocols.client_opened.relay import Relay
from privfed.protocols.client_opened.scheme import Invited, State
from privfed.protocols.crypto.keys import CryptographyError, bound, digest, expand
from privfed.protocols.crypto.keystream import keystream
from privfed.protocols.group_masked.group_masked import MaskScheme
from privfed.protocols.masked.statements import PROVEN
from privfed.protocols.setup.setup_messages import Channel, Envelope
from privfed.protocols.setup.simulated import simulated
from privfed.questions.slots import Slots, in_group

PART = "slots"
"""Part of the agreement for the group's set-up, so that no signature for the inner sum is valid in it."""


class Slotted:
    """Shows every contribution in some of a masked sum's totals, but not whose it is.

    Reveals to the server: in sums with slots, every contribution and how many clients made none; in
    all others, what the inner sum reveals. Slots name no client unless some client colludes with the
    server; one colluding client links all of them. Sizes and contents of contributions can also link
    them from one sum to the next, as those of models' updates do: a lasting pseudonym, whose updates are
    open to inversion together. So a fit has at most `sums` sums with slots, by default one. Any client
    can overwrite another's slot.

    Args:
        inner: `Masked`, or another sum that the server opens and that hides contributions.
        sums: how many sums of a fit may show contributions.
        contributors: fewest clients in any sum of the fit; with fewer left, no sum opens.
    """

    recipient: Literal["server"] = "server"
    reveals: Literal["unlinked contributions"] = "unlinked contributions"
    one_key = False
    verified = False

    def __init__(self, inner: SecureSum, *, sums: int = 1, contributors: int = 5) -> None:
        if inner.reveals != "sums":
            raise ArgumentError(
                f"slots hide whose a contribution is, and {inner.name!r} sums show it; use masked sums."
            )
        if inner.recipient == "clients":
            raise ArgumentError(
                f"slots are drawn from a secret that all clients know, and clients open the totals of "
                f"{inner.name!r}: each could tell whose every contribution is. Use masked sums, or "
                'merge="summed".'
            )
        if inner.verified:
            raise ArgumentError(
                "slots and verified totals do not go together: with verified=True every client reads every "
                "total, and so every contribution, and knows the secret that slots are drawn from. Leave one "
                "out."
            )
        if inner.name == PROVEN:
            raise ArgumentError(
                "no client proves what it puts into a slot: leave out proofs (protocol='masked') or slots."
            )
        check_whole("sums", sums, 1)
        check_whole("contributors", contributors, 2)
        self.inner, self.contributors = inner, contributors
        self.sums = self.slotted_sums = sums
        self.name = f"{SLOTTED}{inner.name}"

    @property
    def assumptions(self) -> Assumptions:
        """Assumptions behind its promises: those of the inner sum, with less collusion."""
        inner = self.inner.assumptions
        slots = "one that does can tell whose every contribution in slots is"
        return replace(inner, colluding=f"{inner.colluding}; {slots}")

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Stages of the inner sum, and the one that brings clients the secret of the slots."""
        known = {one.name for one in self.inner.stages}
        refuses = "it refuses sums with slots"
        own = ("advertise", "it is out of the fit"), ("prepare", refuses), ("invite", refuses)
        return (*(Stage(*one) for one in own if one[0] not in known), *self.inner.stages)

    @property
    def steps(self) -> Any:
        """The inner sum's `steps`; None where it has no grid."""
        return getattr(self.inner, "steps", None)

    def terms(self, clients: int, smallest_cohort: int, max_sums: int) -> Terms:
        """Return the inner sum's terms, and how many sums may have slots.

        Raises:
            ArgumentError: there are too few clients to protect, or a cohort has fewer than `contributors`.
        """
        if smallest_cohort < self.contributors:
            raise ArgumentError(
                f"a slotted sum needs {self.contributors} clients, more than the smallest cohort of "
                f"{smallest_cohort}; ask more clients a round, or (in Python) lower contributors."
            )
        terms = self.inner.terms(clients, smallest_cohort, max_sums)
        return msgspec.structs.replace(
            terms,
            slotted=self.sums,
            slot_contributors=self.contributors,
            threshold=max(terms.threshold, self.contributors),
        )

    def coordinator(
        self, agreement: Agreement, identity: Signer, totals: TotalReader | None = None
    ) -> Session:
        """Return the coordinator's session: the group's set-up, and the inner sum's.

        Raises:
            ArgumentError: the key is not the registered one.
        """
        agreement.check_coordinator(identity)
        relay = Relay(agreement.of_part(PART), identity, OnlyASecret())
        return SlottedSession(relay, self.inner.coordinator(agreement, identity, totals))

    def client(
        self,
        agreement: Agreement,
        position: int,
        identity: Signer,
        policy: ClientPolicy,
        replay: Replay | None = None,
    ) -> ClientSide:
        """Return one client's side, in the group and in the inner sum.

        Raises:
            ArgumentError: the key is not the registered one.
        """
        inner = self.inner.client(agreement, position, identity, policy, replay)
        setup = GroupSetup(position, agreement.of_part(PART), identity, policy, OnlyASecret())
        return SlottedClient(position, agreement.configuration, setup, inner)

    def parties(
        self, configuration: Configuration, policies: Mapping[int, ClientPolicy]
    ) -> tuple[Session, dict[int, ClientSide]]:
        """Return a session and its clients, with fresh identities in a registry that all of them hold."""
        return simulated(self, configuration, policies)


class OnlyASecret(MaskScheme):
    """Needs the secret of all clients, and no keys of pairs: nothing is masked under it."""

    pairwise = False


class ForGroup(Message, frozen=True):
    """Wraps a message of the group's set-up, to distinguish it from those of the inner sum."""

    data: bytes


class SlottedState(msgspec.Struct, frozen=True):
    """Holds a client's state in the group, and its state in the inner sum."""

    group: State
    inner: Any

    @property
    def losses_so_far(self) -> int:
        """How often clients were lost so far: as the inner sum counts, since the group sums nothing."""
        return int(self.inner.losses_so_far)


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holds a state as it is stored, with the inner sum's state in its own encoding."""

    group: State
    inner: bytes


_CODEC: Codec[_Stored] = Codec(_Stored, "state of a client of a sum with slots", 1)


class SlottedCodec:
    """Encodes the state of a client for its own disk.

    Args:
        inner: encodes the state of the inner sum.
    """

    def __init__(self, inner: StateCodec) -> None:
        self._inner = inner

    def to_bytes(self, value: SlottedState) -> bytes:
        """Encode a state."""
        return _CODEC.to_bytes(_Stored(value.group, self._inner.to_bytes(value.inner)))

    def from_bytes(self, data: bytes) -> SlottedState:
        """Decode a state that `to_bytes` encoded; raises as `Codec.from_bytes`."""
        stored = _CODEC.from_bytes(data)
        return SlottedState(stored.group, self._inner.from_bytes(stored.inner))


def check_slots(question: Question, configuration: Configuration, answered: int) -> Slots | None:
    """Return the question if it has slots and may be answered, None if it has none.

    Args:
        question: what is asked.
        configuration: what the parties agreed on.
        answered: how many questions with slots were answered in this fit.

    Raises:
        PolicyError: the agreed number of such sums is spent, sums open over too few clients, or the number
            of slots is not that of clients.
    """
    if isinstance(question, Noised):
        # Noise is alike in all slots: moving it with what it hides changes nothing about it.
        question = question.inner
    if not isinstance(question, Slots):
        return None
    terms = configuration.terms
    if (
        terms.threshold < terms.slot_contributors
        or answered >= terms.slotted
        or question.slots != len(configuration.clients)
    ):
        raise PolicyError("policy:slots")
    return question


def slot_key(secret: bytes, *context: bytes) -> bytes:
    """Return the key of a sum's permutation, from the group's secret and what identifies the sum."""
    return expand(secret, bound("slots", *context))


def moved(statistics: Statistics, key: bytes, slots: int, client: int, *, noised: bool = False) -> Statistics:
    """Move the content of the first slot to the client's slot in the permutation drawn from `key`.

    Noise is in all slots, which move with the first; without it the others are empty.
    """
    # Sorting uniform words gives a uniform permutation.
    slot = int(np.argsort(keystream(key, slots))[client])
    # Zeros that nobody writes to take no memory.
    found = Statistics.of(statistics.layout, np.zeros(statistics.vector.size))
    full = np.arange(slots if noised else 1)
    for name, answers in statistics.items():
        found[name][(full + slot) % slots] = answers[full]
    frozen(found.vector)
    return found


class SlottedClient:
    """Answers for one client of a sum that the server opens, in the client's slot where there are slots.

    Args:
        position: the client's number on the wire.
        configuration: what the parties agreed on.
        setup: the client's side of the group's set-up.
        inner: the client's side of the inner sum.
    """

    def __init__(
        self, position: int, configuration: Configuration, setup: GroupSetup, inner: ClientSide
    ) -> None:
        self._me, self._configuration, self._setup, self._inner = position, configuration, setup, inner

    @property
    def codec(self) -> StateCodec:
        """How its state is stored."""
        return SlottedCodec(self._inner.codec)

    def initial(self) -> SlottedState:
        """Return the state before the first request."""
        return SlottedState(State(), self._inner.initial())

    def step(self, state: SlottedState, request: bytes, answerer: Answerer) -> tuple[SlottedState, bytes]:
        """Answer a request of the group's set-up, or hand it to the inner sum's client."""
        try:
            outer: ForGroup = decode(request, ForGroup, sender="the coordinator", stage="request")
        except MessageError:
            in_slots = _SlotAnswerer(self._me, self._configuration, state.group, answerer)
            inner, reply = self._inner.step(state.inner, request, in_slots)
            return SlottedState(in_slots.state, inner), reply
        try:
            group, reply = self._found(state.group, outer.data)
        except (PrivFedError, CryptographyError) as error:
            group, reply = state.group, encode(Refusal(refusal_code(error)))
        return SlottedState(group, state.inner), encode(ForGroup(reply))

    def _found(self, state: State, data: bytes) -> tuple[State, bytes]:
        message = self._setup.set_up(state, data)
        if not isinstance(message, Envelope):
            return message
        if state.group is None:
            raise MessageError("before the set-up", sender="the coordinator", stage="collect")
        channel = Channel(state.group.channel, state.group.session, self._me)
        invited: Invited = self._setup.ceiling.unsealed(channel.down, message, Invited)
        group, confirmed = self._setup.confirm(state.group, invited)
        return msgspec.structs.replace(state, group=group), channel.up.seal(0, "collect", confirmed)


class _SlotAnswerer:
    """Moves answers to the client's secret slot, and counts how often it did.

    Attributes:
        state: the group's state, with the count.
    """

    def __init__(self, client: int, configuration: Configuration, state: State, answerer: Answerer) -> None:
        self._client, self._configuration, self._answerer = client, configuration, answerer
        self.state = state

    def __call__(self, question: Question, index: int) -> tuple[Statistics, int]:
        slots = check_slots(question, self._configuration, self.state.slotted)
        if slots is None:
            return self._answerer(question, index)
        group = self.state.group
        # Masks are bound to the question: clients of other groups, who would share slots, add up to nothing.
        if group is None or not group.secret or slots.group != group.session.hex():
            raise PolicyError("policy:slots")
        self.state = msgspec.structs.replace(self.state, slotted=self.state.slotted + 1)
        asked = in_group(question, "")
        statistics, moved_rows = self._answerer(asked, index)
        key = slot_key(group.secret, group.session, _asked(index, asked.to_bytes()))
        noised = isinstance(question, Noised)
        return moved(statistics, key, slots.slots, self._client, noised=noised), moved_rows


@lru_cache(maxsize=2)
def _asked(index: int, question: bytes) -> bytes:
    """Return the digest of a question at its index: once for all simulated clients."""
    return digest("slotted", index, question)


class SlottedSession:
    """Sets up the group through a relay, then the inner sum, on the coordinator.

    Args:
        relay: relays the group's set-up; the group's secret passes through it sealed.
        inner: the inner sum's session.
    """

    def __init__(self, relay: Relay, inner: Session) -> None:
        self._relay, self._inner = relay, inner
        if isinstance(inner, Relays):
            self.relayed, self.recall = inner.relayed, inner.recall

    def open(self) -> Steps[None]:
        """Set up the group and the inner sum. A client that never gets the secret refuses sums with slots."""
        yield from self.found()
        yield from self._inner.open()

    def found(self) -> Steps[None]:
        """Set up the group whose clients share the secret."""
        yield from changed(
            self._relay.open(),
            lambda one: replace(
                one, requests={i: encode(ForGroup(data)) for i, data in one.requests.items()}
            ),
            _unwrapped,
        )

    def sum(self, question: Question, index: int, cohort: int, upcoming: tuple[int, ...]) -> Steps[Total]:
        """Open a total of the inner sum, whose question names the group."""
        return self._inner.sum(in_group(question, self._relay.group), index, cohort, upcoming)

    def close(self) -> Steps[None]:
        """Close the inner sum."""
        return self._inner.close()


def _unwrapped(replies: Replies) -> Replies:
    """Return what the `ForGroup` messages of a group's set-up bring."""
    read: Replies = []
    for client, data in replies:
        try:
            reply = decode(data, ForGroup, sender="a client", stage="reply").data
        except MessageError:
            reply = b""
        read.append((client, reply))
    return read
