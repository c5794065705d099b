"""No key, seed or share shows: not in a repr, not in a transcript, not in the text of an error."""

from __future__ import annotations

import base64
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from privfed.core.record.records import Exchanged
from privfed.engines.in_process import Fault
from privfed.errors import ArgumentError, NotEnoughClientsError, PrivFedError
from privfed.protocols import Masked
from privfed.protocols.crypto.keys import Identity
from privfed.protocols.masked.client_state import (
    CODEC,
    Block,
    Chain,
    Fit,
    Pair,
    Pending,
    State,
)
from privfed.protocols.masked.session import MaskedSession
from privfed.protocols.setup.hybrid import Keyring
from privfed.protocols.setup.simulated import AnnouncingSession
from tests.protocols.federations import Sums


def shown(secret: bytes) -> Iterator[str]:
    """Yield the ways in which a secret may be written in text."""
    yield secret.hex()
    yield repr(secret)[2:-1]
    yield str(list(secret))[1:-1]
    # Whatever stands before it, one of three alignments fits.
    for shift in range(3):
        yield base64.b64encode(bytes(shift) + secret).decode()[4:-4]


def assert_hidden(secrets: list[bytes], text: str) -> None:
    for secret in secrets:
        assert not any(form in text for form in shown(secret))


def some_state() -> tuple[State, list[bytes]]:
    run = Sums(Masked(losses=9), 4)
    run.ask()
    state = run.state(2)
    run.faults.append(Fault(0, "unmask"))
    return state, secrets_of(state)


def secrets_of(state: State) -> list[bytes]:
    """Return everything in a state that nobody else may learn, in pieces of 32 bytes."""
    if state.keys is None:
        return in_pieces(state.key, state.seed)
    keys, ring = state.keys, state.keys.ring
    found = [
        *in_pieces(state.key, state.seed, ring.secret, ring.seed, *ring.halves.values()),
        keys.channel,
        *(one for one in (keys.chain.secret, keys.chain.drawn) if one),
    ]
    for pair in keys.pairs.values():
        found += [pair.chain, pair.invitation]
    for block in keys.blocks.values():
        for kept in (block.own, block.seeds, block.shares):
            found += in_pieces(*kept.values())
        found += in_pieces(block.opening)
    if keys.pending is not None:
        found += [keys.pending.answer, *in_pieces(keys.pending.shares)]
    # Zeros stand where nothing has come yet, or where it was erased.
    return [one for one in found if any(one)]


def in_pieces(*secrets: bytes) -> list[bytes]:
    return [one[i : i + 32] for one in secrets for i in range(0, len(one), 32)]


def coordinator(run: Sums) -> MaskedSession:
    session = run.session.session if isinstance(run.session, AnnouncingSession) else run.session
    assert isinstance(session, MaskedSession)
    return session


class Collector:
    """Keeps every secret that any client holds before any exchange of a run."""

    def __init__(self, run: Sums) -> None:
        self.run, self.secrets = run, set[bytes]()
        self.secrets |= {side._identity.secret for side in run.sides.values()}  # type: ignore[attr-defined]
        self.secrets.add(coordinator(run)._identity.secret)
        run.engine.before = lambda exchange: self.collect()

    def collect(self) -> list[bytes]:
        for client in range(self.run.n):
            state = self.run.state(client)
            self.secrets |= set() if state is None else set(secrets_of(state))
        return sorted(self.secrets)


def test_repr_of_what_holds_secrets_shows_none() -> None:
    identity = Identity.generate()
    assert_hidden([identity.secret], f"{identity!r} {identity}")
    run = Sums(Masked(losses=9, verified=True), 4)
    held: list[State] = [run.sides[0].initial()]
    run.engine.before = lambda exchange: held.append(run.state(2) or State())
    run.ask()
    run.ask()
    kinds = set()
    for state in held:
        objects: list[object] = [state]
        if state.keys is not None:
            objects += [
                state.keys,
                state.keys.ring,
                state.keys.chain,
                *state.keys.pairs.values(),
                *state.keys.blocks.values(),
            ]
            objects += [state.keys.pending] if state.keys.pending else []
        kinds |= {type(one) for one in objects}
        text = " ".join(f"{one!r} {one} {[one]!r}" for one in objects)
        assert_hidden(secrets_of(state), text)
    assert kinds == {State, Fit, Keyring, Chain, Pair, Block, Pending}


def test_a_damaged_state_is_an_error_that_shows_none_of_it() -> None:
    state, secrets = some_state()
    data = CODEC.to_bytes(state)
    assert CODEC.from_bytes(data) == state
    assert any(secret in data for secret in secrets)
    for place in range(0, len(data), 7):
        try:
            CODEC.from_bytes(data[:place])
        except ArgumentError as error:
            assert_hidden(secrets, f"{error!r} {error}")
        else:
            pytest.fail("a state without its end was read")


@pytest.mark.parametrize(
    ("record", "verified"), [("digests", False), ("messages", False), ("messages", True)]
)
def test_no_secret_stands_in_the_transcript_of_a_run(record: str, verified: bool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = Sums(Masked(losses=9, verified=verified), 5, record=record, folder=folder)
    collector = Collector(run)
    run.ask()
    run.ask(None, 0, (0,), Fault(1, "collect"))
    run.ask(None, 0, (0,), Fault(2, "unmask", "lost-reply"))
    with pytest.raises(NotEnoughClientsError):
        run.ask(None, 0, (0,), *(Fault(i, "unmask") for i in range(3)))
    run.ask()
    secrets = collector.collect()
    assert len(secrets) > 150
    data = (folder / "transcript.jsonl").read_bytes()
    assert_hidden(secrets, data.decode())
    assert not any(secret in data for secret in secrets)
    sent = [one for r in run.transcript.of(Exchanged) for one in (*r.down, *r.up)]
    assert all((one.data is not None) == (record == "messages") for one in sent)
    carried = b"".join(one.data or b"" for one in sent)
    assert not any(secret in carried for secret in secrets)
    # The search would find something that is there.
    assert run.state(0).keys.session not in secrets
    if record == "messages":
        assert coordinator(run)._roster.key in carried


def test_no_secret_stands_in_the_text_of_an_error() -> None:
    run = Sums(Masked(losses=9), 5, max_sums=6)
    collector = Collector(run)
    failures = [
        [Fault(i, stage, kind) for i in range(3)]  # type: ignore[arg-type]
        for stage in ("advertise", "collect", "unmask")
        for kind in ("drop", "garbage", "truncate")
    ]
    texts = []
    for faults in [*failures, [], [], [], [], []]:
        try:
            run.ask(None, 0, (0,), *faults)
        except PrivFedError as error:
            texts += [repr(error), str(vars(error)), *traceback.format_exception(error)]
    assert len(texts) > 10
    assert_hidden(collector.collect(), " ".join(texts))
    for client, state in ((i, run.state(i)) for i in range(5)):
        _, refusal = run.sides[client].step(state, b"\x93" + bytes(40), run.answerer(client))
        assert not any(secret in refusal for secret in secrets_of(state))
