"""Messages of masked sums as they passed between honest parties, and ways to spoil them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from privfed.core.roles.engine import Client, Exchange, Replies
from privfed.core.roles.secure_sum import Session
from privfed.core.stored.encoding import Message, Refusal, decode, encode
from privfed.engines.in_process import Fault
from privfed.errors import MessageError
from privfed.protocols import Masked
from privfed.protocols.crypto.keys import KEY_BYTES, Identity
from privfed.protocols.masked import session as session_module
from privfed.protocols.masked.bindings import leaf
from privfed.protocols.masked.client_state import State, box_bytes
from privfed.protocols.masked.masked_messages import (
    BoxKey,
    CollectRequest,
    Preparation,
    Prepared,
    PrepareRequest,
    Proof,
    ProvenUpload,
    Unmasking,
    UnmaskRequest,
    Upload,
)
from privfed.protocols.masked.session import MaskedSession
from privfed.protocols.setup.setup_messages import (
    Advertisement,
    AdvertiseRequest,
    Channel,
    Envelope,
    Joining,
    RosterRequest,
    Slot,
    part,
)
from privfed.protocols.setup.simulated import AnnouncingSession
from tests.protocols.federations import Sums, names, vectors

QUESTION = vectors()
N = 5
CODE = re.compile(
    r"message|error|history|agreement|setup:\w+|policy:\w+|roster:\w+|prepared:\w+|reports:\w+|receipts(:\w+)?|box:\d+"
)
REQUESTS = AdvertiseRequest | RosterRequest | Envelope
INNER = PrepareRequest | CollectRequest | UnmaskRequest


@dataclass(frozen=True)
class Passed:
    """One message, its answer, and the client's state before and after."""

    stage: str
    client: int
    state: State | None
    request: bytes
    reply: bytes
    after: State


class Taped(Sums):
    """A federation of masked sums that keeps every message with the client's state."""

    def __init__(
        self,
        seed: int = 0,
        rounds: tuple[tuple[int, ...], ...] = (),
        n: int = N,
        *,
        verified: bool = False,
    ) -> None:
        super().__init__(Masked(losses=9, verified=verified), n, rounds, seed=seed)
        self._verified = verified
        self.tape: list[Passed] = []
        self.engine.change_request = self._before
        self.engine.change_replies = self._after
        self._held: dict[int, State | None] = {}

    def _before(self, exchange: Exchange, client: int, request: bytes) -> bytes:
        self._held[client] = self.state(client)
        return request

    def _after(self, exchange: Exchange, replies: Replies) -> Replies:
        for client, reply in replies:
            request = exchange.requests[client]
            self.tape.append(
                Passed(exchange.stage, client, self._held[client], request, reply, self.state(client))
            )
        return replies

    def other_session(self) -> Taped:
        """Return another fit of the same parties: same identities and agreement, fresh keys."""
        other = Taped(seed=1, rounds=self.rounds, n=self.n, verified=self._verified)
        posing = self.session if isinstance(self.session, AnnouncingSession) else None
        mine: Any = self.session if posing is None else posing.session
        session: Session = MaskedSession(mine._agreement, mine._identity)
        if posing is not None:
            session = AnnouncingSession(session, posing.replay)
        other.session, other.sides = session, self.sides
        other.clients.update(
            {i: Client(self.sides[i], other.stores[i], other.answerer(i)) for i in range(self.n)}
        )
        other.federation._session = session
        return other


ROUNDS = ((0, 1, 2, 3), (1, 2, 3, 4), (0, 1, 2, 4))


def taped(*, verified: bool = False) -> tuple[Taped, Taped]:
    """Return two fits of the same parties with sums of several cohorts and every kind of message."""
    run = Taped(rounds=ROUNDS, verified=verified)
    other = run.other_session()
    for one in (run, other):
        one.ask(QUESTION, 1, (2,))
        one.ask(QUESTION, 3, (1,))
        one.ask(QUESTION, 1, (0,), Fault(2, "unmask"))
        one.ask(QUESTION, 0, (0,), Fault(4, "collect"))
        one.ask(QUESTION, 0, (0,))
    return run, other


def flip(rng: random.Random, data: bytes) -> bytes:
    altered = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        altered[rng.randrange(len(altered))] ^= 1 << rng.randrange(8)
    return bytes(altered)


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def longer(rng: random.Random, data: bytes) -> bytes:
    return data + rng.randbytes(rng.randint(1, 40))


def replaced(rng: random.Random, data: bytes) -> bytes:
    return rng.randbytes(rng.choice([0, 1, 7, 100, len(data)]))


def spliced(rng: random.Random, data: bytes) -> bytes:
    at, size = rng.randrange(len(data)), rng.randint(1, 32)
    return data[:at] + rng.randbytes(size) + data[at + size :]


def relabelled(rng: random.Random, data: bytes) -> bytes:
    """Change number or stage on the outside of an envelope."""
    try:
        envelope = decode(data, Envelope, sender="", stage="")
    except MessageError:
        return flip(rng, data)
    number = rng.choice([0, 1, 2, 3, 4, 5, 6, 2**32 - 1])
    stage: Any = rng.choice(["prepare", "collect", "unmask", "advertise", ""])
    return encode(Envelope(number, stage, envelope.box))


ALTERED: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    flip,
    flip,
    flip,
    cut,
    longer,
    replaced,
    spliced,
    relabelled,
)


@dataclass
class Nonsense:
    """Alters the fields of messages that are well sealed."""

    rng: random.Random
    numbers: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 255, 256, 2**31, 2**32 - 1)

    def slots(self) -> tuple[Slot, ...]:
        one = self.rng.choice
        return tuple(Slot(one(self.numbers), one(self.numbers)) for _ in range(self.rng.randint(0, 6)))

    def __call__(self, message: Any) -> Any:
        name = self.rng.choice(message.__struct_fields__)
        value = getattr(message, name)
        if isinstance(value, memoryview):
            value = bytes(value)
        if isinstance(value, int):
            changed: Any = self.rng.choice(self.numbers)
        elif isinstance(value, bytes):
            data = value or b"\0"
            changed = self.rng.choice((flip, cut, longer, replaced, spliced))(self.rng, data)
            if self.rng.random() < 0.1:
                changed = self.rng.choice([b"", value * 2, bytes(len(value)), b"\1" * len(value)])
        elif name in ("preparations", "keys", "capsules", "invitations"):
            changed = tuple(self(one) for one in value) if self.rng.random() < 0.7 else value * 2
        else:
            changed = self.slots()
        if isinstance(getattr(message, name), memoryview):
            changed = memoryview(changed)
        return msgspec.structs.replace(message, **{name: changed})


def refusal_in(reply: bytes, state: State | None) -> Refusal | None:
    """Return the refusal in a reply, in clear or under the channel's key; None for an answer."""
    try:
        message = decode(reply, Refusal | Envelope | Advertisement | Joining, sender="", stage="")
    except MessageError:
        pytest.fail("a reply that is no message")
    if isinstance(message, Envelope):
        assert state is not None and state.keys is not None
        channel = Channel(state.keys.channel, state.keys.session, client_of(state))
        message = channel.up.open(message, Refusal | Prepared | Upload | Unmasking, "")
    return message if isinstance(message, Refusal) else None


def client_of(state: State) -> int:
    """Return whose state this is: the one that it has no keys with."""
    assert state.keys is not None
    (client,) = set(range(N)) - set(state.keys.pairs) - set(state.keys.ring.halves)
    return client


def is_sealed(one: Passed, *stages: str) -> bool:
    """Say whether a request is under a client's key, and of one of these stages, if any are given."""
    message = decode(one.request, REQUESTS, sender="", stage="")
    return isinstance(message, Envelope) and (not stages or message.stage in stages)


def sealed(state: State, client: int, number: int, stage: Any, message: Message) -> bytes:
    """Return a request as only the coordinator can make it."""
    assert state.keys is not None
    return Channel(state.keys.channel, state.keys.session, client).down.seal(number, stage, message)


def opened(state: State, client: int, request: bytes) -> tuple[Envelope, Any]:
    """Return what is in a request."""
    assert state.keys is not None
    envelope = decode(request, Envelope, sender="", stage="")
    channel = Channel(state.keys.channel, state.keys.session, client)
    return envelope, channel.down.open(envelope, INNER)


def content(state: State, client: int, reply: bytes) -> Any:
    """Return what is in a reply."""
    assert state.keys is not None
    channel = Channel(state.keys.channel, state.keys.session, client)
    envelope = decode(reply, Envelope, sender="", stage="")
    return channel.up.open(envelope, Refusal | Prepared | Upload | Unmasking, "")


def resealed(run: Sums, client: int, reply: bytes, change: Callable[[Any], Any]) -> bytes:
    """Return a client's reply with something else in it, under its own key."""
    state = run.state(client)
    envelope = decode(reply, Envelope, sender="", stage="")
    channel = Channel(state.keys.channel, state.keys.session, client)
    kinds = Prepared | Upload | ProvenUpload | Proof | Unmasking | BoxKey | Refusal
    message = channel.up.open(envelope, kinds, "")
    return channel.up.seal(envelope.number, envelope.stage, change(message))


def resigned(run: Sums, client: int, one: Preparation) -> Preparation:
    """Return a client's preparation with its own signature over what is now in it."""
    keys, side = run.state(client).keys, run.sides[client]
    maker = side._maker(keys, Slot(one.block, one.cohort))  # type: ignore[attr-defined]
    size = box_bytes(len(maker.numbers))
    leaves = [
        leaf(j, place + 1, part(one.boxes, place, size), part(one.key_hashes, place, KEY_BYTES))
        for place, j in enumerate(maker.neighbours.clients)
    ]
    signature = Identity(keys.signing).sign(maker._signed(client, b"".join(leaves)))
    return msgspec.structs.replace(one, signature=signature)


class Forger:
    """Puts wrong replies before the right ones and keeps why each was thrown away.

    Args:
        run: the federation.
        forge: (exchange, client, reply) -> the wrong replies that arrive before it.
        instead: the right reply does not arrive.
    """

    def __init__(
        self, run: Sums, forge: Callable[[Exchange, int, bytes], list[bytes]], instead: bool = False
    ) -> None:
        self.run, self.forge, self.instead = run, forge, instead
        self.sent: list[tuple[str, int]] = []
        self.thrown: list[tuple[str, int, MessageError]] = []
        run.engine.change_replies = self._replies
        self._stage = ""

    def _replies(self, exchange: Exchange, replies: Replies) -> Replies:
        self._stage, result = exchange.stage, []
        for client, reply in replies:
            wrong = [one for one in self.forge(exchange, client, reply) if one != reply]
            self.sent += [(exchange.stage, client)] * len(wrong)
            result += [(client, one) for one in wrong]
            if not (self.instead and wrong):
                result.append((client, reply))
        return result

    def gather(self, replies: Replies, asked: Any, read: Callable[[int, bytes], Any]) -> Any:
        """Gather as the session does, and keep the errors."""

        def watched(client: int, data: bytes) -> Any:
            try:
                return read(client, data)
            except MessageError as error:
                self.thrown.append((self._stage, client, error))
                raise

        return original_gather(replies, asked, watched)

    def assert_all_thrown_away(self) -> None:
        """Assert that every wrong reply was thrown away for a reason that names sender and stage."""
        assert [(stage, client) for stage, client, _ in self.thrown] == self.sent
        for stage, client, error in self.thrown:
            assert error.sender == names(self.run.n)[client]
            # Who is asked to join or prepare in the exchange of another stage answers in that one's own.
            assert error.stage in (stage, "agree", "prepare")
            assert error.sender in str(error) and error.stage in str(error) and error.reason


original_gather = session_module.gather
