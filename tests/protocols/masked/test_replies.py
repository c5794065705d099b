"""Replies that are wrong, repeated, reordered, foreign, cut off or altered, sent to the coordinator.

They are thrown away with a reason that names sender and stage, and never give a wrong sum.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from privfed.core.roles.engine import Exchange, Replies
from privfed.core.stored.encoding import Refusal, decode, encode
from privfed.engines.in_process import Fault
from privfed.errors import MessageError
from privfed.protocols import Masked, Plain
from privfed.protocols.setup.setup_messages import Envelope
from tests.protocols.federations import Sums, wide_vectors
from tests.protocols.tapes import (
    ALTERED,
    CODE,
    QUESTION,
    ROUNDS,
    Forger,
    N,
    cut,
    longer,
    replaced,
    taped,
)


def fuzz_server(forged: Callable[..., Forger], mutations: int, each: int, seed: int) -> None:
    rng, forger, count = random.Random(seed), None, 0
    while count < mutations:
        run = Sums(Masked(losses=9), N, ROUNDS, seed=seed)
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
        run = Sums(Masked(losses=9), N)
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
    run = Sums(Masked(losses=9), N)
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
    assert {stage for stage, _ in forger.sent} == {"advertise", "agree", "prepare", "collect", "unmask"}


@pytest.mark.parametrize("stage", ["advertise", "agree", "prepare", "collect", "unmask"])
def test_a_forged_refusal_loses_one_client_for_one_sum(stage: str) -> None:
    # A refusal before there is a key travels in clear, so that anybody on the line can forge one.
    run = Sums(Masked(losses=9), N)
    run.engine.change_replies = lambda exchange, replies: [
        (i, encode(Refusal("policy:forged")) if (exchange.stage, i) == (stage, 3) else reply)
        for i, reply in replies
    ]
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.dropped == {3: stage}
    run.engine.change_replies = None
    assert (3 in run.ask(QUESTION).contributors) == (stage != "advertise")


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
        # Another question that is well formed reaches the answerer, which fails: that closes the sum.
        assert answer is None or (CODE.fullmatch(answer.code) and state == (answer.code == "error"))
    state, _ = side.step(0, exchange.requests[0], run.answerer(0))
    assert side.step(state, exchange.requests[0], run.answerer(0)) == (state, encode(Refusal("message")))


def refusal_or_none(reply: bytes) -> Refusal | None:
    try:
        refusal: Refusal = decode(reply, Refusal, sender="", stage="")
    except MessageError:
        return None
    return refusal
