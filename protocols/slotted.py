"""Sums that show contributions, but not whose they are: slots over another secure sum.

A question with slots (`privfed.questions.slots`) is answered by each client in a slot drawn from PRG(G, sum),
where G is a secret of the clients that the server does not know: they set a group up beside the keys of
the masks. Where clients open the totals there are no slots: each of them would know all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from privfed.core.configuration import Configuration, Terms
from privfed.core.conversation import Total
from privfed.core.engine import Answerer, ClientSide, Exchange, Replies
from privfed.core.messages import Message, Refusal, decode, encode
from privfed.core.policy import ClientPolicy
from privfed.core.question import Question
from privfed.core.secure_sum import SecureSum, Session, Steps
from privfed.core.statistics import Statistics
from privfed.errors import ArgumentError, MessageError, PolicyError, PrivFedError
from privfed.protocols.answering import refusal_code
from privfed.protocols.client_opened.relay import Relay
from privfed.protocols.client_opened.setup import GroupSetup
from privfed.protocols.client_opened.slot_permutation import check_slots, moved, slot_key
from privfed.protocols.client_opened.state import State
from privfed.protocols.crypto.keys import CryptographyError, Identity, Registry, digest
from privfed.protocols.group_masked.masks import MaskScheme
from privfed.protocols.setup.channel import Channel
from privfed.protocols.setup.messages import AdvertiseRequest, Envelope, RosterRequest
from privfed.protocols.setup.rules import Agreement

PREFIX = "slotted "
"""What a sum's name begins with where it has slots."""


class Slotted:
    """A masked sum some of whose totals show every contribution, unlinked.

    Reveals to the server, in sums with slots: every contribution, and how many clients made none; in
    all others what the inner sum reveals. Contributions are unlinked as long as no client colludes with
    the server: one that does links all of them. Sizes and contents can link too, from one sum to the
    next: so there are `sums` of them in a fit, one unless told otherwise. Any client can overwrite
    another's slot.

    Args:
        inner: `Masked`, or another sum that the server opens and that hides contributions.
        sums: how many sums of a fit may show contributions.
        contributors: fewest clients in a sum of the fit: with fewer left none opens.
    """

    opens_to: Literal["server"] = "server"
    reveals: Literal["unlinked contributions"] = "unlinked contributions"
    one_key = False

    def __init__(self, inner: SecureSum, *, sums: int = 1, contributors: int = 5) -> None:
        if inner.reveals != "sums":
            raise ArgumentError(
                f"slots hide whose a contribution is, which {inner.name!r} shows; take Masked."
            )
        if inner.opens_to == "clients":
            raise ArgumentError(
                f"slots are drawn from a secret of all clients: over {inner.name!r}, whose totals they open, "
                'each could tell whose every contribution is. Take Masked, or merge="summed".'
            )
        if sums < 1 or contributors < 2:
            raise ArgumentError(
                f"a slotted sum needs sums >= 1 and contributors >= 2, got {sums} and {contributors}."
            )
        self.inner, self.sums, self.contributors = inner, sums, contributors

    @property
    def name(self) -> str:
        """The inner sum's, and that it has slots."""
        return f"{PREFIX}{self.inner.name}"

    def terms(self, clients: int, smallest_cohort: int, max_sums: int) -> Terms:
        """Return the inner sum's numbers, and how many sums may have slots.

        Raises:
            ArgumentError: so few clients cannot be protected, or a cohort has fewer than `contributors`.
        """
        if smallest_cohort < self.contributors:
            raise ArgumentError(
                f"contributors={self.contributors} of a slotted sum do not fit into a cohort of "
                f"{smallest_cohort}; ask more clients a round, or lower contributors."
            )
        terms = self.inner.terms(clients, smallest_cohort, max_sums)
        return msgspec.structs.replace(
            terms,
            slotted=self.sums,
            slot_contributors=self.contributors,
            threshold=max(terms.threshold, self.contributors),
        )

    def parties(
        self, configuration: Configuration, policies: Mapping[int, ClientPolicy]
    ) -> tuple[Session, dict[int, ClientSide]]:
        """Return a session and its clients, with fresh identities in a registry that all were given."""
        session, sides = self.inner.parties(configuration, policies)
        server, scheme = Identity.generate(), MaskScheme()
        identities = {i: Identity.generate() for i in sorted(policies)}
        registry = Registry(tuple(identity.public for identity in identities.values()), server.public)
        agreement = Agreement(configuration, registry)
        setups = {
            i: GroupSetup(i, agreement, identity, policies[i], scheme) for i, identity in identities.items()
        }
        wrapped: dict[int, ClientSide] = {
            i: SlottedClient(i, configuration, setups[i], side) for i, side in sides.items()
        }
        return SlottedSession(Relay(agreement, server, scheme), session), wrapped


class ForGroup(Message, frozen=True):
    """A message of the group's set-up, beside those of the inner sum."""

    data: bytes


class Invited(Message, frozen=True):
    """Down, in an envelope: the leader's box for this client."""

    box: bytes


class SlottedState(msgspec.Struct, frozen=True):
    """A client's part in the group, and its state in the inner sum."""

    group: State
    inner: Any

    def __repr__(self) -> str:
        return "SlottedState(...)"


class SlottedClient:
    """A client of a sum that the server opens, with a slot in some of them.

    Args:
        position: the client's number on the wire.
        configuration: what the parties agreed on.
        setup: its side of the group's set-up.
        inner: its side of the inner sum.
    """

    def __init__(
        self, position: int, configuration: Configuration, setup: GroupSetup, inner: ClientSide
    ) -> None:
        self._me, self._configuration, self._setup, self._inner = position, configuration, setup, inner

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
        message = decode(
            data, AdvertiseRequest | RosterRequest | Envelope, sender="the coordinator", stage="request"
        )
        if isinstance(message, AdvertiseRequest):
            state, advertisement = self._setup.advertise(state, message)
            return state, encode(advertisement)
        if isinstance(message, RosterRequest):
            return self._setup.join(state, message)
        if state.group is None:
            raise MessageError("before the set-up", sender="the coordinator", stage="collect")
        channel = Channel(state.group.channel, state.group.session, self._me)
        group = self._setup.accept(state.group, channel.open_down(message, Invited).box)
        return msgspec.structs.replace(state, group=group), b""


class _SlotAnswerer:
    """An answerer that moves answers to the client's secret slot, and counts how often.

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
        if group is None or not group.secret:
            raise PolicyError("policy:slots")
        self.state = msgspec.structs.replace(self.state, slotted=self.state.slotted + 1)
        statistics, moved_rows = self._answerer(question, index)
        key = slot_key(group.secret, group.session, digest("slotted", index, question.to_bytes()))
        return moved(statistics, key, slots.slots, self._client), moved_rows


class SlottedSession:
    """The coordinator: it sets the group up through its relay, then the inner sum.

    Args:
        relay: relays the set-up; what it relays of the secret is sealed.
        inner: the inner sum's session.
    """

    def __init__(self, relay: Relay, inner: Session) -> None:
        self._relay, self._inner = relay, inner

    def open(self) -> Steps[None]:
        """Set both up. A client that is lost on the way to the secret refuses sums with slots."""
        yield from self.found()
        yield from self._inner.open()

    def found(self) -> Steps[None]:
        """Set up the group that shares the secret."""
        yield from _enveloped(self._relay.open())
        requests = {i: self._relay.invitation(i, Invited) for i in self._relay.invited}
        yield from _enveloped(_once(Exchange("invite", 0, requests)))

    def sum(self, question: Question, index: int, cohort: int, upcoming: tuple[int, ...]) -> Steps[Total]:
        """Open a total of the inner sum."""
        return self._inner.sum(question, index, cohort, upcoming)

    def close(self) -> Steps[None]:
        """Close the inner sum."""
        return self._inner.close()


def _once(exchange: Exchange) -> Steps[None]:
    yield exchange


def _enveloped(steps: Steps[None]) -> Steps[None]:
    """Carry the exchanges of the group's set-up in messages of their own."""
    try:
        exchange = next(steps)
        while True:
            requests = {i: encode(ForGroup(data)) for i, data in exchange.requests.items()}
            replies = yield Exchange(exchange.stage, exchange.number, requests)
            exchange = steps.send(_unwrapped(replies))
    except StopIteration:
        return


def _unwrapped(replies: Replies) -> Replies:
    read: Replies = []
    for client, data in replies:
        try:
            reply: ForGroup = decode(data, ForGroup, sender="a client", stage="reply")
        except MessageError:
            read.append((client, b""))
        else:
            read.append((client, reply.data))
    return read
