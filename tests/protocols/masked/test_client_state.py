"""What a client keeps between messages: over files, through crashes, and no longer than it needs to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed.core.record.records import Exchanged
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import Ask, Total
from privfed.core.roles.engine import Client, Exchange, Replies
from privfed.core.stored.encoding import Refusal, decode, encode
from privfed.engines.in_process import Fault, InProcessEngine
from privfed.federation.driver import Federation
from privfed.party.state import FileStore, MemoryStore
from privfed.protocols import Masked
from privfed.protocols.crypto.keys import encapsulation_key, public_key
from privfed.protocols.masked.bindings import ratcheted
from privfed.protocols.masked.client_state import CODEC
from privfed.protocols.masked.masked_client import MaskedClient
from privfed.protocols.masked.masked_messages import KeptEntry
from privfed.protocols.masked.session import MaskedSession
from privfed.protocols.setup.rules import BLOCK
from privfed.protocols.setup.setup_messages import Advertisement, Channel, Envelope
from tests.protocols.federations import Recorder, Sums, seeded, wide_vectors
from tests.protocols.tapes import (
    QUESTION,
    ROUNDS,
    N,
    taped,
)
from tests.some import some


def stored(folder: Path) -> Callable[[int], FileStore]:
    return lambda client: FileStore(folder / f"client-{client}", CODEC.to_bytes, CODEC.from_bytes)


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
        in_memory = Sums(Masked(losses=9), N, ROUNDS)
        expected = play(in_memory)
    with seeded(1):
        on_disk = Sums(Masked(losses=9), N, ROUNDS, store=stored(tmp_path))
        for i in range(N):
            on_disk.clients[i] = Process(on_disk, i, stored(tmp_path))
        assert play(on_disk) == expected
    for i in range(N):
        assert CODEC.to_bytes(on_disk.state(i)) == CODEC.to_bytes(in_memory.state(i))
        assert (tmp_path / f"client-{i}").stat().st_mode & 0o077 == 0


def test_every_state_of_a_run_survives_serialisation() -> None:
    run, _ = taped()
    assert {one.after.keys is None for one in run.tape} == {True, False}
    for one in run.tape:
        for state in (one.state, one.after):
            if state is not None:
                assert CODEC.from_bytes(CODEC.to_bytes(state)) == state


def test_secrets_that_were_used_are_out_of_the_state() -> None:
    run = Sums(Masked(losses=9), N)
    states: dict[str, bytes] = {}

    def look(exchange: Exchange) -> None:
        state = run.state(0)
        states[exchange.stage] = b"" if state is None else CODEC.to_bytes(state)
        if exchange.stage == "collect":
            used.append(secrets_by_kind(state, exchange.number))

    used: list[dict[str, list[bytes]]] = []
    run.engine.before = look
    gone: list[bytes] = []
    for turn in some(range(2 * BLOCK + 1)):
        run.ask(QUESTION)
        now = used[turn]
        assert all(one in states["collect"] for kind in now for one in now[kind])
        assert not any(one in states["unmask"] for kind in ("own", "seeds") for one in now[kind])
        assert now["answer"][0] in states["unmask"]
        gone += [one for kind in now for one in now[kind]]
        after = CODEC.to_bytes(run.state(0))
        assert not any(one in after for one in gone)


def test_keys_of_boxes_and_chains_are_erased_once_they_were_used() -> None:
    run, seen = Sums(Masked(losses=9), N), []
    run.engine.before = lambda exchange: seen.append(run.state(0))
    run.ask(QUESTION)
    before = [one.keys for one in seen if one is not None and one.keys is not None]
    joined, prepared = next(one for one in before if one.pairs), next(one for one in before if one.blocks)
    opening = prepared.blocks[1].opening
    keys = [opening[i : i + 32] for i in range(0, len(opening), 32)]
    assert len(keys) == N - 1 and all(any(key) for key in keys)
    used = [pair.chain for pair in joined.pairs.values()]
    # The chain stands behind the block that was prepared: what it was for cannot be computed from it.
    assert all(prepared.pairs[j] == ratcheted(pair, 2) for j, pair in joined.pairs.items())
    assert not any(one in CODEC.to_bytes(seen[-2]) for one in used)
    # The keys of boxes go as soon as these are open.
    after = CODEC.to_bytes(run.state(0))
    assert not any(one in after for one in [*keys, *used])
    assert not any(run.state(0).keys.blocks[1].opening)


def secrets_by_kind(state: Any, number: int) -> dict[str, Any]:
    """Return what a client holds for one number: its b and e, its seeds with others, its a; and its pairs."""
    block = state.keys.blocks[(number - 1) // BLOCK + 1]
    pieces = {name: getattr(block, name)[number] for name in ("own", "seeds")}
    parts = {name: [data[i : i + 32] for i in range(0, len(data), 32)] for name, data in pieces.items()}
    return {"own": parts["own"][:2], "answer": parts["own"][2:], "seeds": parts["seeds"]}


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
@pytest.mark.parametrize("stage", ["advertise", "agree", "prepare", "collect", "unmask"])
def test_a_crash_before_the_reply_leaves_is_no_loss_when_asked_again(stage: str, dies: str) -> None:
    stores = {i: Crashing() for i in range(3)}
    run = Sums(Masked(losses=9), 3, store=stores.__getitem__)
    engine = Retrying(run, stores)
    run.federation._carrier = engine
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
    run = Sums(Masked(losses=9), 3, store=stores.__getitem__)
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
    return str(Channel(keys.channel, keys.session, client).up.open(envelope, Refusal, "").code)


def test_a_client_that_lost_its_state_sits_out_until_the_next_set_up() -> None:
    run = Sums(Masked(losses=9), N)
    run.ask(QUESTION)
    run.stores[2].save(None)
    for _ in range(2):
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        assert total.contributors == (0, 1, 3, 4)
    session, sides = run.session, run.sides
    known = session._agreement, session._identity  # type: ignore[attr-defined]
    assert sides is run.sides
    run.draw(QUESTION)

    def asked(session: MaskedSession, stored: Transcript) -> Total:
        carrier, shown = Recorder(InProcessEngine(run.clients)), {"recipient": "server", "reveals": "sums"}
        session.recall(stored.recalled(), 0)
        session.recall = lambda *kept: None  # type: ignore[method-assign]
        federation = Federation(run.configuration, session, carrier, Transcript(), **shown)
        total = federation.ask(Ask(QUESTION))
        run.assert_exact(total, QUESTION)
        return total

    again, history = MaskedSession(*known), run.session._history  # type: ignore[attr-defined]
    stored = Transcript()
    for one in (*history._entries, history._running):
        stored.relayed(0, encode(KeptEntry(known[0].digest, one)))
    assert asked(again, stored).contributors == tuple(range(N))
    # Whoever does not know the sums before cannot bring them to a client that does not either.
    run.stores[2].save(None)
    assert asked(MaskedSession(*known), Transcript()).contributors == (0, 1, 3, 4)


def test_what_is_advertised_is_a_fresh_key_signed_for_this_fit_only() -> None:
    run, other = taped()
    keys = set()
    for one in (*run.tape, *other.tape):
        if one.stage == "advertise":
            reply = decode(one.reply, Advertisement, sender="", stage="")
            assert reply.key == public_key(one.after.key)
            assert reply.encapsulation == encapsulation_key(one.after.seed)
            keys |= {reply.key, reply.encapsulation}
    assert len(keys) == 4 * N


def test_envelopes_hide_what_is_in_them() -> None:
    run = Sums(Masked(losses=9), N, record="messages")
    run.ask(QUESTION)
    for record in some(run.transcript.of(Exchanged)):
        for one in some((*record.down, *record.up)):
            assert one.data is not None
            if record.stage in ("collect", "unmask"):
                decode(one.data, Envelope, sender="", stage="")
            assert QUESTION.to_bytes() not in one.data
