"""Requests that are wrong, repeated, reordered, foreign, cut off or altered, sent to a client.

They get a coded refusal or the reply that the client gave before, never an exception, and a refusal
leaves its state as it was.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed.core.stored.encoding import decode
from privfed.errors import MessageError
from privfed.protocols.masked.client_state import CODEC, State
from privfed.protocols.setup.setup_messages import Envelope, RosterRequest
from tests.protocols.federations import vectors
from tests.protocols.tapes import (
    ALTERED,
    CODE,
    QUESTION,
    REQUESTS,
    N,
    Nonsense,
    Passed,
    Taped,
    content,
    is_sealed,
    opened,
    refusal_in,
    sealed,
    taped,
)
from tests.some import some


def assert_refused(run: Taped, client: int, state: State | None, request: bytes) -> str:
    """Assert that a request is refused with a code, and that the state stays as it was."""
    side = run.sides[client]
    before = side.initial() if state is None else state
    kept = CODEC.to_bytes(before)
    after, reply = side.step(before, request, run.answerer(client))
    refusal = refusal_in(reply, before)
    assert refusal is not None, "a wrong request was answered"
    assert after is before and CODEC.to_bytes(after) == kept
    assert CODE.fullmatch(refusal.code), refusal.code
    return refusal.code


def is_valid_in_clear(one: Passed, request: bytes) -> bool:
    """Say whether an altered request is the same set-up message, written otherwise.

    These travel in clear, and the coordinator signs all that is in them.
    """
    try:
        was, message = (decode(data, REQUESTS, sender="", stage="") for data in (one.request, request))
    except MessageError:
        return False
    return not isinstance(message, Envelope) and message == was


def foreign(one: Passed, run: Taped, other: Taped) -> Iterator[bytes]:
    """Yield requests of the same stage that were for another client, or of another session."""
    for candidate in run.tape:
        # The list of clients is the same for all of them.
        if candidate.client != one.client and is_sealed(candidate):
            yield candidate.request
    for candidate in other.tape:
        if candidate.stage != "advertise":
            yield candidate.request


def fuzz_clients(mutations: int, seed: int, *, verified: bool = False) -> dict[str, int]:
    """Send altered requests to clients in every state that they were in; count the codes."""
    run, _ = taped(verified=verified)
    assert {one.stage for one in run.tape} == {"advertise", "agree", "prepare", "collect", "unmask"}
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


@pytest.mark.parametrize("verified", [False, True], ids=["", "verified"])
def test_altered_requests_are_refused_and_change_nothing(verified: bool) -> None:
    codes = fuzz_clients(1000, seed=0, verified=verified)
    assert codes["message"] > 500 and codes["setup:signature"] > 0 and codes["roster:signature"] > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("verified", [False, True], ids=["", "verified"])
def test_a_hundred_thousand_altered_requests(verified: bool) -> None:
    fuzz_clients(100_000, seed=1, verified=verified)


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
    for one, theirs in some(itertools.product(run.tape, (*run.tape, *other.tape))):
        if (
            theirs.client != one.client
            or one.after.keys is None
            or theirs.stage not in ("advertise", "agree")
        ):
            continue
        if theirs.stage == "advertise" and theirs in run.tape:
            assert assert_refused(run, one.client, one.after, theirs.request) == "message"
        if theirs.stage == "agree" and theirs in other.tape:
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
                    assert all(sent[p.block] == p for p in preparations)
            if is_sealed(one):
                message = content(one.after, client, one.reply)
                sent |= {p.block: p for p in getattr(message, "preparations", ())}
    assert again > 3 and refused > 10


def test_requests_that_come_too_early_are_refused() -> None:
    run, _ = taped()
    for client in some(range(N)):
        own = [one for one in run.tape if one.client == client]
        first, roster = own[0], own[1]
        for one in some(own[1:]):
            assert_refused(run, client, first.state, one.request)
        for one in own[2:]:
            assert_refused(run, client, roster.state, one.request)
        for place, one in enumerate(own):
            # Nobody is asked to unmask what it has not answered.
            for later in own[place + 1 :]:
                if is_sealed(later, "unmask"):
                    assert_refused(run, client, one.state, later.request)


@pytest.mark.parametrize("request_bytes", [b"", b"\xc0", b"\x90", b"\xff" * 100, bytes(1000), b"\x91" * 5000])
@pytest.mark.few(3)
def test_bytes_that_are_no_message_are_refused(request_bytes: bytes) -> None:
    run, _ = taped()
    for one in some(run.tape[::7]):
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
            assert CODEC.to_bytes(state) == CODEC.to_bytes(one.after)
    assert kinds == {"prepare", "collect", "unmask"}


def test_an_identical_list_gets_the_same_reply_until_the_coordinator_has_it() -> None:
    run, _ = taped()
    rosters = [one for one in run.tape if one.stage == "agree"]
    assert len(rosters) == N
    for one in rosters:
        step = run.sides[one.client].step
        assert step(one.after, one.request, run.answerer(one.client)) == (one.after, one.reply)
        # What comes under the key of both shows that the reply arrived: what was encapsulated is gone.
        later = next(o for o in run.tape if o.client == one.client and o.stage == "prepare")
        assert later.after.keys is not None and not later.after.keys.joining
        assert not later.after.keys.ring.sent and not later.after.keys.ring.seed
        assert assert_refused(run, one.client, later.after, one.request) == "message"


def test_a_list_that_differs_is_refused_once_keys_are_there() -> None:
    run, other = taped()
    for one in some(run.tape):
        if one.stage != "agree" or one.after.keys is None:
            continue
        theirs = [o for o in other.tape if o.client == one.client and o.stage == "agree"]
        assert assert_refused(run, one.client, one.after, theirs[0].request) in ("roster:other", "message")


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
    for one in some(run.tape):
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
    envelope, message = opened(pending, 0, first[1].request)
    lacking = msgspec.structs.replace(message, history=(run.session._history._entries[0],))  # type: ignore[attr-defined]
    request = sealed(pending, 0, envelope.number, "collect", lacking)
    state, reply = run.sides[0].step(pending, request, run.answerer(0))
    assert refusal_in(reply, state) is None
    assert assert_refused(run, 0, state, second[0].request) == "message"
    assert before.keys is not None and before.keys.pending is None


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
        kept = CODEC.to_bytes(one.state)
        after, reply = run.sides[one.client].step(one.state, request, run.answerer(one.client))
        assert CODEC.to_bytes(one.state) == kept
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
    assert fuzz_inside(500, seed=4) < 233


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_much_well_sealed_nonsense() -> None:
    fuzz_inside(30_000, seed=5)
