"""Messages that are wrong, repeated, reordered, foreign, cut off or altered, in both directions.

To a client: a coded refusal or the reply that it gave before, never an exception, and a refusal
leaves its state as it was. To the coordinator: thrown away with a reason that names sender and
stage, never a wrong sum.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed.core.conversation import Ask
from privfed.core.engine import Client, Exchange, Replies
from privfed.core.federation import Federation
from privfed.core.messages import Message, Refusal, decode, encode
from privfed.core.transcript import Exchanged, Transcript
from privfed.engines.faults import Fault
from privfed.engines.in_process import InProcessEngine
from privfed.engines.state import FileStore, MemoryStore
from privfed.errors import IntegrityError, MessageError, ProtocolError
from privfed.protocols import Masked, Plain
from privfed.protocols.masking import session as session_module
from privfed.protocols.masking.channel import Channel
from privfed.protocols.masking.client import MaskedClient
from privfed.protocols.masking.keys import bound, public_key
from privfed.protocols.masking.messages import (
    Advertisement,
    AdvertiseRequest,
    CollectRequest,
    Envelope,
    Prepared,
    PrepareRequest,
    RosterRequest,
    Slot,
    Unmasking,
    UnmaskRequest,
    Upload,
)
from privfed.protocols.masking.session import MaskedSession
from privfed.protocols.masking.state import State, state_from_bytes, state_to_bytes
from tests.protocols.federations import Recorder, Sums, names, seeded, vectors, wide_vectors

QUESTION = vectors()
N = 5
CODE = re.compile(
    r"message|error|agreement|policy:\w+|roster:\w+|prepared:\w+|stories:\w+|receipts(:\w+)?|box:\d+"
)
REQUESTS = AdvertiseRequest | RosterRequest | Envelope
INNER = PrepareRequest | CollectRequest | UnmaskRequest


# --- what passed between honest parties ---


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

    def __init__(self, seed: int = 0, rounds: tuple[tuple[int, ...], ...] = (), n: int = N) -> None:
        super().__init__(Masked(), n, rounds, seed=seed)
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
        other = Taped(seed=1, rounds=self.rounds, n=self.n)
        agreement, identity = self.session._agreement, self.session._identity  # type: ignore[attr-defined]
        session = MaskedSession(agreement, identity)
        other.session, other.sides = session, self.sides
        other.clients.update(
            {i: Client(self.sides[i], other.stores[i], other.answerer(i)) for i in range(self.n)}
        )
        other.federation._session = session
        return other


ROUNDS = ((0, 1, 2, 3), (1, 2, 3, 4), (0, 1, 2, 4))


def taped() -> tuple[Taped, Taped]:
    """Return two fits of the same parties with sums of several cohorts and every kind of message."""
    run = Taped(rounds=ROUNDS)
    other = run.other_session()
    for one in (run, other):
        one.ask(QUESTION, 1, (2,))
        one.ask(QUESTION, 3, (1,))
        one.ask(QUESTION, 1, (0,), Fault(2, "unmask"))
        one.ask(QUESTION, 0, (0,), Fault(4, "collect"))
        one.ask(QUESTION, 0, (0,))
    return run, other


# --- mutations of bytes ---


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


# --- to the client ---


def refusal_in(reply: bytes, state: State | None) -> Refusal | None:
    """Return the refusal in a reply, in clear or under the channel's key; None for an answer."""
    try:
        message = decode(reply, Refusal | Envelope | Advertisement, sender="", stage="")
    except MessageError:
        pytest.fail("a reply that is no message")
    if isinstance(message, Envelope):
        assert state is not None and state.keys is not None
        channel = Channel(state.keys.channel, state.keys.session, client_of(state))
        message = channel.open_up(message, Refusal | Prepared | Upload | Unmasking, "")
    return message if isinstance(message, Refusal) else None


def client_of(state: State) -> int:
    """Return whose state this is: the one that it has no keys with."""
    assert state.keys is not None
    (client,) = set(range(N)) - set(state.keys.pairs)
    return client


def assert_refused(run: Taped, client: int, state: State | None, request: bytes) -> str:
    """Assert that a request is refused with a code, and that the state stays as it was."""
    side = run.sides[client]
    before = side.initial() if state is None else state
    kept = state_to_bytes(before)
    after, reply = side.step(before, request, run.answerer(client))
    refusal = refusal_in(reply, before)
    assert refusal is not None, "a wrong request was answered"
    assert after is before and state_to_bytes(after) == kept
    assert CODE.fullmatch(refusal.code), refusal.code
    return refusal.code


def is_valid_in_clear(one: Passed, request: bytes) -> bool:
    """Say whether an altered request is a set-up message that a client may answer.

    These travel in clear. A client answers an advertisement of any fit (only the coordinator's
    signed list goes on with it), and prepares whatever sum to come is named beside the signed list.
    """
    try:
        was, message = (decode(data, REQUESTS, sender="", stage="") for data in (one.request, request))
    except MessageError:
        return False
    if isinstance(message, AdvertiseRequest) and isinstance(was, AdvertiseRequest):
        return message.agreement == was.agreement
    if isinstance(message, RosterRequest) and isinstance(was, RosterRequest):
        return msgspec.structs.replace(message, upcoming=was.upcoming) == was
    return False


def is_sealed(one: Passed, *stages: str) -> bool:
    """Say whether a request is under a client's key, and of one of these stages, if any are given."""
    message = decode(one.request, REQUESTS, sender="", stage="")
    return isinstance(message, Envelope) and (not stages or message.stage in stages)


def foreign(one: Passed, run: Taped, other: Taped) -> Iterator[bytes]:
    """Yield requests of the same stage that were for another client, or of another session."""
    for candidate in run.tape:
        # The list of clients is the same for all of them.
        if candidate.client != one.client and is_sealed(candidate):
            yield candidate.request
    for candidate in other.tape:
        if candidate.stage != "advertise":
            yield candidate.request


def fuzz_clients(mutations: int, seed: int) -> dict[str, int]:
    """Send altered requests to clients in every state that they were in; count the codes."""
    run, _ = taped()
    assert {one.stage for one in run.tape} == {"advertise", "prepare", "collect", "unmask"}
    rng, codes = random.Random(seed), dict[str, int]()
    sent = 0
    while sent < mutations:
        one = rng.choice(run.tape)
        request = rng.choice(ALTERED)(rng, one.request)
        if request == one.request or is_valid_in_clear(one, request):
            continue
        code = assert_refused(run, one.client, one.state, request)
        codes[code] = codes.get(code, 0) + 1
        sent += 1
    return codes


def test_altered_requests_are_refused_and_change_nothing() -> None:
    codes = fuzz_clients(2000, seed=0)
    assert codes["message"] > 1000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_altered_requests() -> None:
    fuzz_clients(100_000, seed=1)


def test_requests_of_other_clients_and_sessions_are_refused() -> None:
    run, other = taped()
    rng, tried = random.Random(3), 0
    for one in run.tape:
        candidates = [request for request in foreign(one, run, other) if request != one.request]
        for request in rng.sample(candidates, 6):
            if is_valid_in_clear(one, request):
                continue
            assert_refused(run, one.client, one.state, request)
            tried += 1
    assert tried > 300


def test_requests_that_came_before_are_refused_later() -> None:
    run, _ = taped()
    tried = 0
    for client in range(N):
        own = [one for one in run.tape if one.client == client]
        for place, one in enumerate(own):
            # The very last one is answered as it was: see below.
            for earlier in own[: max(0, place - 1)]:
                if is_sealed(earlier, "collect", "unmask"):
                    assert_refused(run, client, one.state, earlier.request)
                    tried += 1
    assert tried > 80


def test_a_set_up_that_came_before_is_refused_later() -> None:
    run, other = taped()
    for one, theirs in itertools.product(run.tape, (*run.tape, *other.tape)):
        if (
            theirs.client != one.client
            or one.after.keys is None
            or theirs.stage not in ("advertise", "prepare")
        ):
            continue
        if theirs.stage == "advertise" and theirs in run.tape:
            assert assert_refused(run, one.client, one.after, theirs.request) == "message"
        if theirs.stage == "prepare" and theirs in other.tape and not is_sealed(theirs):
            assert assert_refused(run, one.client, one.after, theirs.request) == "roster:other"


def test_a_sum_to_come_is_prepared_once_however_often_it_is_asked_for() -> None:
    # Such a request may come again: what was sent once is sent again, until the sum is past.
    run, _ = taped()
    again = refused = 0
    for client in range(N):
        own = [one for one in run.tape if one.client == client]
        sent: dict[int, Any] = {}
        for place, one in enumerate(own):
            for earlier in own[:place]:
                if not is_sealed(earlier, "prepare"):
                    continue
                assert one.state is not None
                after, reply = run.sides[client].step(one.state, earlier.request, run.answerer(client))
                refusal = refusal_in(reply, one.state)
                refused += refusal is not None
                if refusal is None:
                    again += 1
                    preparations = content(after, client, reply).preparations
                    assert all(sent[p.number] == p for p in preparations)
            if one.after.keys is not None:
                message = content(one.after, client, one.reply)
                sent |= {p.number: p for p in getattr(message, "preparations", ())}
    assert again > 3 and refused > 10


def test_requests_that_come_too_early_are_refused() -> None:
    run, _ = taped()
    for client in range(N):
        own = [one for one in run.tape if one.client == client]
        first, roster = own[0], own[1]
        for one in own[1:]:
            assert_refused(run, client, first.state, one.request)
        for one in own[2:]:
            assert_refused(run, client, roster.state, one.request)
        for place, one in enumerate(own):
            # Nobody is asked to unmask what it has not answered.
            for later in own[place + 1 :]:
                if is_sealed(later, "unmask"):
                    assert_refused(run, client, one.state, later.request)


@pytest.mark.parametrize("request_bytes", [b"", b"\xc0", b"\x90", b"\xff" * 100, bytes(1000), b"\x91" * 5000])
def test_bytes_that_are_no_message_are_refused(request_bytes: bytes) -> None:
    run, _ = taped()
    for one in run.tape[::7]:
        assert assert_refused(run, one.client, one.state, request_bytes) == "message"


def test_an_identical_request_gets_the_identical_reply() -> None:
    run, _ = taped()
    kinds = set()
    for one in run.tape:
        message = decode(one.request, REQUESTS, sender="", stage="")
        if isinstance(message, RosterRequest):
            continue
        if isinstance(message, Envelope):
            assert one.after.keys is not None
            kinds.add(message.stage)
        side = run.sides[one.client]
        # The answers changed since: a reply that were made anew would show it.
        run.values = {i: np.full(3, float(i)) for i in range(N)}
        state = one.after
        for _ in range(2):
            state, reply = side.step(state, one.request, run.answerer(one.client))
            assert reply == one.reply
            assert state_to_bytes(state) == state_to_bytes(one.after)
    assert kinds == {"prepare", "collect", "unmask"}


def test_an_identical_list_gets_the_same_preparations() -> None:
    run, _ = taped()
    rosters = [one for one in run.tape if one.stage == "prepare" and one.state and one.state.keys is None]
    assert len(rosters) >= N
    for one in rosters:
        after, reply = run.sides[one.client].step(one.after, one.request, run.answerer(one.client))
        assert after.keys is not None
        channel = Channel(after.keys.channel, after.keys.session, one.client)
        first, again = (
            channel.open_up(decode(data, Envelope, sender="", stage=""), Prepared, "")
            for data in (one.reply, reply)
        )
        assert first == again
        assert msgspec.structs.replace(after.keys, reply_to=b"", reply=b"") == msgspec.structs.replace(
            one.after.keys, reply_to=b"", reply=b""
        )


def test_a_list_that_differs_is_refused_once_keys_are_there() -> None:
    run, other = taped()
    for one in run.tape:
        if one.stage != "prepare" or one.after.keys is None:
            continue
        theirs = [o for o in other.tape if o.client == one.client and o.stage == "prepare"]
        assert assert_refused(run, one.client, one.after, theirs[0].request) in ("roster:other", "message")


def sealed(state: State, client: int, number: int, stage: Any, message: Message) -> bytes:
    """Return a request as only the coordinator can make it."""
    assert state.keys is not None
    return Channel(state.keys.channel, state.keys.session, client).down(number, stage, message)


def opened(state: State, client: int, request: bytes) -> tuple[Envelope, Any]:
    """Return what is in a request."""
    assert state.keys is not None
    envelope = decode(request, Envelope, sender="", stage="")
    channel = Channel(state.keys.channel, state.keys.session, client)
    return envelope, channel.open_down(envelope, INNER)


def content(state: State, client: int, reply: bytes) -> Any:
    """Return what is in a reply."""
    assert state.keys is not None
    channel = Channel(state.keys.channel, state.keys.session, client)
    envelope = decode(reply, Envelope, sender="", stage="")
    return channel.open_up(envelope, Refusal | Prepared | Upload | Unmasking, "")


def test_a_sum_is_answered_once() -> None:
    run, _ = taped()
    asked = 0
    for one in run.tape:
        if not is_sealed(one, "collect"):
            continue
        envelope, message = opened(one.after, one.client, one.request)
        for other in (
            message,
            msgspec.structs.replace(message, index=message.index + 1),
            msgspec.structs.replace(message, question=vectors(round=3).to_bytes()),
        ):
            request = sealed(one.after, one.client, envelope.number, "collect", other)
            assert assert_refused(run, one.client, one.after, request) == "message"
        asked += 1
    assert asked > 15


def test_a_sum_is_unmasked_once() -> None:
    run, _ = taped()
    for one in run.tape:
        if not is_sealed(one, "unmask"):
            continue
        envelope, message = opened(one.after, one.client, one.request)
        story = bytes([1]) + message.dead[1:]
        for other in (message, msgspec.structs.replace(message, dead=story)):
            request = sealed(one.after, one.client, envelope.number, "unmask", other)
            assert assert_refused(run, one.client, one.after, request) == "message"


def test_a_later_sum_closes_an_earlier_one() -> None:
    run = Taped()
    run.ask(QUESTION)
    run.faults.clear()
    before = run.state(0)
    run.ask(QUESTION)
    first, second = ([o for o in run.tape if o.client == 0 and o.stage == s] for s in ("collect", "unmask"))
    pending = first[0].after
    # The second sum's request comes while the first waits to be unmasked; then the first is closed.
    state, reply = run.sides[0].step(pending, first[1].request, run.answerer(0))
    assert refusal_in(reply, state) is None
    assert assert_refused(run, 0, state, second[0].request) == "message"
    assert before.keys is not None and before.keys.pending is None


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
        if isinstance(value, int):
            changed: Any = self.rng.choice(self.numbers)
        elif isinstance(value, bytes):
            data = value or b"\0"
            changed = self.rng.choice((flip, cut, longer, replaced, spliced))(self.rng, data)
            if self.rng.random() < 0.1:
                changed = self.rng.choice([b"", value * 2, bytes(len(value)), b"\1" * len(value)])
        elif name == "left_out":
            changed = tuple(self.rng.choice(self.numbers) for _ in range(self.rng.randint(0, 4)))
        elif name == "preparations":
            changed = tuple(self(one) for one in value) if self.rng.random() < 0.7 else value * 2
        else:
            changed = self.slots()
        return msgspec.structs.replace(message, **{name: changed})


def fuzz_inside(mutations: int, seed: int) -> int:
    """Send well-sealed nonsense to clients; return how much of it was answered."""
    run, _ = taped()
    rng, nonsense, answered, sent = random.Random(seed), Nonsense(random.Random(seed)), 0, 0
    tape = [one for one in run.tape if one.state is not None and one.state.keys is not None]
    while sent < mutations:
        one = rng.choice(tape)
        if not is_sealed(one):
            continue
        assert one.state is not None
        envelope, message = opened(one.state, one.client, one.request)
        altered = nonsense(message)
        number = envelope.number if rng.random() < 0.8 else rng.choice(nonsense.numbers)
        request = sealed(one.state, one.client, number, envelope.stage, altered)
        kept = state_to_bytes(one.state)
        after, reply = run.sides[one.client].step(one.state, request, run.answerer(one.client))
        assert state_to_bytes(one.state) == kept
        refusal = refusal_in(reply, one.state)
        if refusal is None:
            # Some of it may be asked: another index, sums to come, an honest story of fewer dead.
            answered += 1
        else:
            assert CODE.fullmatch(refusal.code), refusal.code
            assert after is one.state
        sent += 1
    return answered


def test_well_sealed_nonsense_never_raises_in_a_client() -> None:
    assert fuzz_inside(1500, seed=4) < 700


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_much_well_sealed_nonsense() -> None:
    fuzz_inside(30_000, seed=5)


# --- to the coordinator ---


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
            # Who is asked to prepare in the exchange of another stage answers in stage "prepare".
            assert error.stage in (stage, "prepare")
            assert error.sender in str(error) and error.stage in str(error) and error.reason


original_gather = session_module.gather


@pytest.fixture
def forged(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Forger]:
    def make(run: Sums, forge: Callable[[Exchange, int, bytes], list[bytes]], **options: Any) -> Forger:
        forger = Forger(run, forge, **options)
        monkeypatch.setattr(session_module, "gather", forger.gather)
        return forger

    return make


def fuzz_server(forged: Callable[..., Forger], mutations: int, each: int, seed: int) -> None:
    rng, forger, count = random.Random(seed), None, 0
    while count < mutations:
        run = Sums(Masked(), N, ROUNDS, seed=seed)
        forger = forged(
            run,
            lambda exchange, client, reply: [rng.choice(ALTERED)(rng, reply) for _ in range(each)],
        )
        for label, upcoming, faults in [
            (0, (1,), []),
            (1, (2,), [Fault(2, "unmask")]),
            (0, (0,), [Fault(4, "collect")]),
        ]:
            question = rng.choice([QUESTION, wide_vectors()])
            total = run.ask(question, label, upcoming, *faults)
            run.assert_exact(total, question, label)
            members = run.configuration.cohort(label)
            lost = {fault.client for fault in faults if fault.stage == "collect"}
            assert set(total.contributors) == set(members) - lost
            assert set(total.rejected) >= set(members) - {fault.client for fault in faults}
        forger.assert_all_thrown_away()
        count += len(forger.sent)


def test_altered_replies_are_thrown_away_and_the_right_one_is_read(forged: Callable[..., Forger]) -> None:
    fuzz_server(forged, 2000, each=12, seed=6)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_altered_replies(forged: Callable[..., Forger]) -> None:
    fuzz_server(forged, 100_000, each=200, seed=7)


def test_altered_replies_instead_of_the_right_one_are_a_loss(forged: Callable[..., Forger]) -> None:
    rng, opened_sums = random.Random(8), 0
    for _ in range(12):
        run = Sums(Masked(), N)
        run.ask(QUESTION)
        victim, stage = rng.randrange(N), rng.choice(["collect", "unmask"])

        def forge(exchange: Exchange, client: int, reply: bytes, at: Any = (stage, victim)) -> list[bytes]:
            return [rng.choice(ALTERED)(rng, reply)] if (exchange.stage, client) == at else []

        forger = forged(run, forge, instead=True)
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        assert total.dropped == {victim: stage} and set(total.rejected) == {victim}
        assert (victim in total.contributors) == (stage == "unmask")
        forger.assert_all_thrown_away()
        forger.forge = lambda *_: []
        assert run.ask(QUESTION).contributors == tuple(range(N))
        opened_sums += 1
    assert opened_sums == 12


def test_replies_of_others_of_earlier_and_of_other_sessions_are_thrown_away(
    forged: Callable[..., Forger],
) -> None:
    run, other = taped()
    rng, seen = random.Random(9), [one.reply for one in (*run.tape, *other.tape)]
    run.engine.change_request = None

    def forge(exchange: Exchange, client: int, reply: bytes) -> list[bytes]:
        own = [relabel(one, exchange) for one in seen[-40:]]
        return [*rng.sample(seen, 30), *rng.sample(own, 10)]

    def relabel(data: bytes, exchange: Exchange) -> bytes:
        try:
            box = decode(data, Envelope, sender="", stage="").box
        except MessageError:
            return data
        stage: Any = exchange.stage
        return encode(Envelope(exchange.number, stage, box))

    forger = forged(run, forge)
    for label in (0, 1, 2, 3, 0):
        total = run.ask(QUESTION, label, ())
        run.assert_exact(total, QUESTION, label)
        assert total.contributors == run.configuration.cohort(label)
    forger.assert_all_thrown_away()
    assert len(forger.sent) > 1000


def test_replies_of_other_clients_in_the_same_exchange_are_thrown_away(forged: Callable[..., Forger]) -> None:
    run = Sums(Masked(), N)
    seen: dict[tuple[str, int], list[bytes]] = {}

    def forge(exchange: Exchange, client: int, reply: bytes) -> list[bytes]:
        theirs = seen.setdefault((exchange.stage, exchange.number), [])
        theirs.append(reply)
        return theirs[:-1]

    forger = forged(run, forge)
    for _ in range(3):
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        assert total.contributors == tuple(range(N))
    forger.assert_all_thrown_away()
    assert {stage for stage, _ in forger.sent} == {"advertise", "prepare", "collect", "unmask"}


@pytest.mark.parametrize("stage", ["advertise", "prepare", "collect", "unmask"])
def test_a_forged_refusal_loses_one_client_for_one_sum(stage: str) -> None:
    # A refusal before there is a key travels in clear, so that anybody on the line can forge one.
    run = Sums(Masked(), N)
    run.engine.change_replies = lambda exchange, replies: [
        (i, encode(Refusal("policy:forged")) if (exchange.stage, i) == (stage, 3) else reply)
        for i, reply in replies
    ]
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.dropped == {3: stage}
    run.engine.change_replies = None
    assert (3 in run.ask(QUESTION).contributors) == (stage != "advertise")


# --- a client that keeps to the form and lies in it ---


def resealed(run: Sums, client: int, reply: bytes, change: Callable[[Any], Any]) -> bytes:
    """Return a client's reply with something else in it, under its own key."""
    state = run.state(client)
    envelope = decode(reply, Envelope, sender="", stage="")
    channel = Channel(state.keys.channel, state.keys.session, client)
    message = channel.open_up(envelope, Prepared | Upload | Unmasking | Refusal, "")
    return channel.up(envelope.number, envelope.stage, change(message))


def replace(**fields: Any) -> Callable[[Any], Any]:
    """Return a change of fields; a function of the old value, or the new value."""

    def change(message: Any) -> Any:
        return msgspec.structs.replace(
            message,
            **{name: one(getattr(message, name)) if callable(one) else one for name, one in fields.items()},
        )

    return change


def prepared_as(**fields: Any) -> Callable[[Any], Any]:
    """Return a change of a message's preparations."""
    return replace(preparations=lambda sent: tuple(replace(**fields)(one) for one in sent))


LIES = [
    pytest.param("collect", replace(words=lambda w: w[:-8]), id="upload-shorter"),
    pytest.param("collect", replace(words=lambda w: w + bytes(8)), id="upload-longer"),
    pytest.param("collect", replace(words=b""), id="upload-empty"),
    pytest.param("collect", replace(words=lambda w: w[:-3]), id="upload-of-part-of-a-word"),
    pytest.param("collect", replace(receipts=lambda r: r[:-16]), id="receipts-fewer"),
    pytest.param("collect", replace(receipts=b""), id="receipts-none"),
    pytest.param("collect", prepared_as(number=77), id="preparation-of-no-sum"),
    pytest.param("collect", prepared_as(cohort=77), id="preparation-of-another-cohort"),
    pytest.param("collect", prepared_as(boxes=lambda b: b[:-1]), id="boxes-shorter"),
    pytest.param("collect", prepared_as(mask_key=bytes(32)), id="mask-key-of-small-order"),
    pytest.param("collect", lambda message: Prepared(()), id="another-message"),
    pytest.param("collect", lambda message: Unmasking((), b"", b"", ()), id="a-later-message"),
    pytest.param("unmask", replace(left_out=(3,)), id="leaves-itself-out"),
    pytest.param("unmask", replace(left_out=(99,)), id="leaves-nobody-out"),
    pytest.param("unmask", replace(left_out=(1, 0), answer_shares=lambda s: s[64:]), id="left-out-unsorted"),
    pytest.param("unmask", replace(left_out=(1, 1), answer_shares=lambda s: s[32:]), id="left-out-twice"),
    pytest.param("unmask", replace(answer_shares=lambda s: s[:-32]), id="shares-fewer"),
    pytest.param("unmask", replace(answer_shares=lambda s: s[:-1]), id="shares-of-part-of-a-key"),
    pytest.param("unmask", replace(answer_shares=b""), id="shares-none"),
    pytest.param("unmask", lambda message: Upload(b"", b"", ()), id="an-earlier-message"),
]


@pytest.mark.parametrize(("stage", "lie"), LIES)
def test_a_reply_that_is_well_sealed_and_wrong_is_thrown_away(
    forged: Callable[..., Forger], stage: str, lie: Callable[[Any], Any]
) -> None:
    run = Sums(Masked(), N)
    run.ask(QUESTION)

    def forge(exchange: Exchange, client: int, reply: bytes) -> list[bytes]:
        return [resealed(run, 3, reply, lie)] if (exchange.stage, client) == (stage, 3) else []

    forger = forged(run, forge, instead=True)
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.dropped == {3: stage} and set(total.rejected) == {3}
    forger.assert_all_thrown_away()
    forger.forge = lambda *_: []
    assert run.ask(QUESTION).contributors == tuple(range(N))


def test_a_client_whose_boxes_do_not_open_is_left_out_of_the_sum() -> None:
    run = Sums(Masked(), N)
    stages: list[str] = []

    def change(exchange: Exchange, replies: Replies) -> Replies:
        stages.append(exchange.stage)
        lie = prepared_as(boxes=lambda boxes: bytes(len(boxes)))
        # In the first collect another client's bytes are damaged: it is named though it is asked again.
        damaged = 1 if stages.count("collect") == 1 and exchange.stage == "collect" else None
        return [
            (
                i,
                b"?"
                if i == damaged
                else resealed(run, i, one, lie)
                if i == 3 and exchange.stage == "prepare"
                else one,
            )
            for i, one in replies
        ]

    run.engine.change_replies = change
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.contributors == (0, 1, 2, 4)
    assert total.dropped == {3: "prepare"} and set(total.rejected) == {1}
    assert stages == ["advertise", "prepare", "collect", "prepare", "collect", "unmask"]
    # Above c accusers, it is out for good.
    for _ in range(2):
        assert run.ask(QUESTION).contributors == (0, 1, 2, 4)


SPOILED = [
    pytest.param(replace(locked=lambda s: s[:-1]), id="locked-shorter"),
    pytest.param(replace(locked=b""), id="locked-empty"),
    pytest.param(replace(locked=lambda s: bytes(len(s))), id="locked-zeros"),
    pytest.param(replace(answer_shares=lambda s: bytes(len(s))), id="shares-zeros"),
    pytest.param(replace(answer_shares=lambda s: b"\1" + s[1:]), id="one-share-wrong"),
    pytest.param(replace(left_out=(1,), answer_shares=lambda s: s[32:]), id="leaves-one-out"),
]


@pytest.mark.parametrize("lie", SPOILED)
def test_wrong_shares_of_one_client_do_not_spoil_the_sum(lie: Callable[[Any], Any]) -> None:
    run = Sums(Masked(), 7)
    run.ask(QUESTION)
    run.engine.change_replies = lambda exchange, replies: [
        (i, resealed(run, i, reply, lie) if (exchange.stage, i) == ("unmask", 3) else reply)
        for i, reply in replies
    ]
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.contributors == tuple(range(7))


def test_a_contributor_that_counts_itself_twice_is_noticed() -> None:
    run = Sums(Masked(), N)
    run.ask(QUESTION)

    def counted_twice(words: bytes) -> bytes:
        vector = np.frombuffer(words, dtype="<u8").copy()
        vector[-1] += np.uint64(1)
        return vector.tobytes()

    run.engine.change_replies = lambda exchange, replies: [
        (
            i,
            resealed(run, i, one, replace(words=counted_twice))
            if (exchange.stage, i) == ("collect", 3)
            else one,
        )
        for i, one in replies
    ]
    with pytest.raises(IntegrityError, match="of 5 clients counts 6"):
        run.ask(QUESTION)
    assert len(run.transcript.totals()) == 1
    run.engine.change_replies = None
    run.assert_exact(run.ask(QUESTION), QUESTION)


@pytest.mark.parametrize(
    "code",
    [
        "",
        "box:",
        "box:\N{SUPERSCRIPT TWO}",
        "box:-1",
        "box:3",
        "box:77",
        "box:" + "9" * 5000,
        "x" * 10_000,
        "\0",
    ],
)
def test_whatever_code_a_client_refuses_with_the_sum_goes_on(code: str) -> None:
    run = Sums(Masked(), N)
    run.engine.change_replies = lambda exchange, replies: [
        (
            i,
            resealed(run, i, reply, lambda message: Refusal(code))
            if (exchange.stage, i) == ("collect", 3)
            else reply,
        )
        for i, reply in replies
    ]
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.dropped == {3: "collect"}


def test_a_client_that_advertises_an_unusable_key_is_left_out() -> None:
    run = Sums(Masked(), N)

    def unusable(exchange: Exchange, replies: Replies) -> Replies:
        if exchange.stage != "advertise":
            return replies
        request = decode(exchange.requests[3], AdvertiseRequest, sender="", stage="")
        signed = bound("advertise", 3, request.fit, request.agreement, bytes(32))
        signature = run.sides[3]._identity.sign(signed)  # type: ignore[attr-defined]
        return [(i, encode(Advertisement(bytes(32), signature)) if i == 3 else one) for i, one in replies]

    run.engine.change_replies = unusable
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.dropped == {3: "advertise"} and set(total.rejected) == {3}


def fuzz_liars(sessions: int, seed: int) -> dict[str, int]:
    """Let one client of nine send well-sealed nonsense in every sum; count what came of it."""
    rng, counts = random.Random(seed), {"opened": 0, "failed": 0}
    nonsense = Nonsense(rng)

    def lie(message: Any) -> Any:
        # What it answers is its own affair: any number of its own is a valid answer.
        altered = nonsense(message)
        return (
            msgspec.structs.replace(altered, words=message.words) if isinstance(message, Upload) else altered
        )

    for _ in range(sessions):
        run, stage = Sums(Masked(), 9), ""
        run.ask(QUESTION)
        run.engine.change_replies = lambda exchange, replies: [
            (i, resealed(run, i, one, lie) if (exchange.stage, i) == (stage, 3) else one)  # noqa: B023
            for i, one in replies
        ]
        for _ in range(6):
            stage = rng.choice(["collect", "unmask"])
            try:
                total = run.ask(QUESTION)
            except ProtocolError:
                counts["failed"] += 1
            else:
                run.assert_exact(total, QUESTION)
                counts["opened"] += 1
    return counts


def test_one_lying_client_may_stop_a_sum_and_never_gives_a_wrong_one() -> None:
    counts = fuzz_liars(25, seed=10)
    assert counts["opened"] > 5 * counts["failed"] > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_client_that_lies_for_long() -> None:
    fuzz_liars(500, seed=11)


# --- plain sums throw the same things away ---


def test_altered_replies_of_plain_sums_are_thrown_away() -> None:
    rng, run = random.Random(12), Sums(Plain(), N)
    seen: list[bytes] = []

    def forge(exchange: Exchange, replies: Replies) -> Replies:
        result: Replies = []
        for client, reply in replies:
            # A flipped bit may give another well-formed answer: nothing signs plain answers.
            wrong = [rng.choice((cut, longer, replaced))(rng, reply) for _ in range(20)]
            result += [(client, one) for one in (*wrong, *seen)] + [(client, reply)]
        seen[:] = [reply for _, reply in replies]
        return result

    run.engine.change_replies = forge
    for _ in range(5):
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        assert total.contributors == tuple(range(N)) and set(total.rejected) == set(range(N))


def test_altered_requests_of_plain_sums_never_raise_in_a_client() -> None:
    rng, run = random.Random(13), Sums(Plain(), 3)
    run.ask(QUESTION)
    exchange, _ = run.engine.log[-1]
    side = run.sides[0]
    for _ in range(1000):
        request = rng.choice(ALTERED)(rng, exchange.requests[0])
        state, reply = side.step(0, request, run.answerer(0))
        answer = refusal_or_none(reply)
        assert answer is None or (state == 0 and CODE.fullmatch(answer.code))
    state, _ = side.step(0, exchange.requests[0], run.answerer(0))
    assert side.step(state, exchange.requests[0], run.answerer(0)) == (state, encode(Refusal("message")))


def refusal_or_none(reply: bytes) -> Refusal | None:
    try:
        refusal: Refusal = decode(reply, Refusal, sender="", stage="")
    except MessageError:
        return None
    return refusal


# --- state between messages ---


def stored(folder: Path) -> Callable[[int], FileStore]:
    return lambda client: FileStore(folder / f"client-{client}", state_to_bytes, state_from_bytes)


class Process(Client):
    """A client of which every message meets a new process: all that it knows, it read from disk."""

    def __init__(self, run: Sums, client: int, store: Callable[[int], FileStore]) -> None:
        self._run, self._number, self._fresh = run, client, store

    def handle(self, request: bytes) -> bytes:
        side = self._run.sides[self._number]
        assert isinstance(side, MaskedClient)
        anew = MaskedClient(side._me, side._agreement, side._identity, side._policy)
        return Client(anew, self._fresh(self._number), self._run.answerer(self._number)).handle(request)


def play(run: Sums) -> list[tuple[str, list[tuple[int, bytes]]]]:
    """Run sums with losses; return the replies."""
    for question, label, upcoming, faults in [
        (QUESTION, 0, (1,), []),
        (wide_vectors(), 1, (0,), [Fault(2, "unmask", "lost-reply")]),
        (QUESTION, 0, (2,), [Fault(1, "collect")]),
        (QUESTION, 3, (0,), []),
    ]:
        run.assert_exact(run.ask(question, label, upcoming, *faults), question, label)
    return [(exchange.stage, list(replies)) for exchange, replies in run.engine.log]


def test_a_run_over_files_is_the_run_in_memory(tmp_path: Path) -> None:
    with seeded(1):
        in_memory = Sums(Masked(), N, ROUNDS)
        expected = play(in_memory)
    with seeded(1):
        on_disk = Sums(Masked(), N, ROUNDS, store=stored(tmp_path))
        for i in range(N):
            on_disk.clients[i] = Process(on_disk, i, stored(tmp_path))
        assert play(on_disk) == expected
    for i in range(N):
        assert state_to_bytes(on_disk.state(i)) == state_to_bytes(in_memory.state(i))
        assert (tmp_path / f"client-{i}").stat().st_mode & 0o077 == 0


def test_every_state_of_a_run_survives_serialisation() -> None:
    run, _ = taped()
    assert {one.after.keys is None for one in run.tape} == {True, False}
    for one in run.tape:
        for state in (one.state, one.after):
            if state is not None:
                assert state_from_bytes(state_to_bytes(state)) == state


def test_secrets_that_were_used_are_out_of_the_state() -> None:
    run = Sums(Masked(), N)
    states: dict[str, bytes] = {}

    def look(exchange: Exchange) -> None:
        state = run.state(0)
        states[exchange.stage] = b"" if state is None else state_to_bytes(state)
        if exchange.stage == "collect":
            used.append(state.keys.secrets[exchange.number])

    used: list[Any] = []
    run.engine.before = look
    run.ask(QUESTION)
    after = state_to_bytes(run.state(0))
    assert used[0].mask in states["collect"] and used[0].seed in states["collect"]
    assert used[0].mask not in states["unmask"] and used[0].seed not in states["unmask"]
    assert used[0].answer in states["unmask"] and used[0].answer not in after


class Crashing(MemoryStore):
    """A store whose process dies as it saves: before the state is kept, or after."""

    def __init__(self) -> None:
        super().__init__()
        self.dies: str | None = None

    def save(self, state: Any) -> None:
        if self.dies == "before":
            raise OSError("the process died before the state was stored")
        super().save(state)
        if self.dies == "after":
            raise OSError("the process died after the state was stored")


class Retrying:
    """An engine whose clients' processes may die in an exchange, and which then asks them once more."""

    def __init__(self, run: Sums, stores: Mapping[int, Crashing]) -> None:
        self.run, self.stores = run, stores
        self.crash: tuple[str, int, str] | None = None
        self.crashed: list[str] = []

    def exchange(self, exchange: Exchange, timeout: float | None = None) -> Replies:
        replies = []
        for client, request in exchange.requests.items():
            if self.crash and self.crash[:2] == (exchange.stage, client):
                self.stores[client].dies = self.crash[2]
                with pytest.raises(OSError, match="died"):
                    self.run.clients[client].handle(request)
                self.stores[client].dies = None
                self.crashed.append(exchange.stage)
            replies.append((client, self.run.clients[client].handle(request)))
        return replies


@pytest.mark.parametrize("dies", ["before", "after"])
@pytest.mark.parametrize("stage", ["advertise", "prepare", "collect", "unmask"])
def test_a_crash_before_the_reply_leaves_is_no_loss_when_asked_again(stage: str, dies: str) -> None:
    stores = {i: Crashing() for i in range(3)}
    run = Sums(Masked(), 3, store=stores.__getitem__)
    engine = Retrying(run, stores)
    run.federation._engine = engine
    engine.crash = (stage, 1, dies)
    # Three clients can lose nobody: the sum opens only if the second reply is as good as the first.
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert engine.crashed == [stage] and total.contributors == (0, 1, 2)
    engine.crash = None
    run.assert_exact(run.ask(QUESTION), QUESTION)


@pytest.mark.parametrize("stage", ["collect", "unmask"])
def test_a_crash_after_the_state_was_stored_gives_the_stored_reply(stage: str) -> None:
    stores = {i: Crashing() for i in range(3)}
    run = Sums(Masked(), 3, store=stores.__getitem__)
    run.ask(QUESTION)
    run.engine.change_replies = lambda exchange, replies: kept.update({exchange.stage: replies}) or replies
    kept: dict[str, Replies] = {}
    run.ask(QUESTION)
    exchange = next(e for e, _ in run.engine.log[::-1] if e.stage == stage)
    if stage == "unmask":
        # The answers were changed since; the client answers from what it stored.
        run.values = {i: np.zeros(3) for i in range(3)}
        assert run.clients[1].handle(exchange.requests[1]) == dict(kept[stage])[1]
    else:
        before = run.stores[1].load()
        assert refusal_in_channel(run, 1, run.clients[1].handle(exchange.requests[1])) == "message"
        assert run.stores[1].load() is before


def refusal_in_channel(run: Sums, client: int, reply: bytes) -> str:
    keys = run.state(client).keys
    envelope = decode(reply, Envelope, sender="", stage="")
    return str(Channel(keys.channel, keys.session, client).open_up(envelope, Refusal, "").code)


def test_a_client_that_lost_its_state_sits_out_until_the_next_set_up() -> None:
    run = Sums(Masked(), N)
    run.ask(QUESTION)
    run.stores[2].save(None)
    for _ in range(2):
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        assert total.contributors == (0, 1, 3, 4)
    session, sides = run.session, run.sides
    again = MaskedSession(session._agreement, session._identity)  # type: ignore[attr-defined]
    federation = Federation(
        run.configuration,
        again,
        Recorder(InProcessEngine(run.clients)),
        Transcript(),
        opens_to="server",
        reveals="sums",
    )
    assert sides is run.sides
    run.draw(QUESTION)
    total = federation.ask(Ask(QUESTION))
    run.assert_exact(total, QUESTION)
    assert total.contributors == tuple(range(N))


def test_what_is_advertised_is_a_fresh_key_signed_for_this_fit_only() -> None:
    run, other = taped()
    keys = set()
    for one in (*run.tape, *other.tape):
        if one.stage == "advertise":
            reply = decode(one.reply, Advertisement, sender="", stage="")
            assert reply.key == public_key(one.after.key)
            keys.add(reply.key)
    assert len(keys) == 2 * N


def test_envelopes_hide_what_is_in_them() -> None:
    run = Sums(Masked(), N, record="messages")
    run.ask(QUESTION)
    for record in run.transcript.of(Exchanged):
        for one in (*record.down, *record.up):
            assert one.data is not None
            if record.stage in ("collect", "unmask"):
                decode(one.data, Envelope, sender="", stage="")
            assert QUESTION.to_bytes() not in one.data
