"""Who is out of a fit in which clients lie, and who is not: no word of a client removes another by itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from privfed.core.stored.encoding import Refusal, decode, encode
from privfed.engines.in_process import Fault
from privfed.errors import ProtocolError
from privfed.protocols import CKKS, GroupMasked, Masked
from privfed.protocols.client_opened.relay import DOUBTED
from privfed.protocols.masked.masked_messages import Agreed, BoxKey, Prepared, Upload
from privfed.protocols.masked.session import DEALT, FORGED, LIED, REJECTED, UNDECIDED
from privfed.protocols.setup.parties import NO_KEY
from privfed.protocols.setup.setup_messages import Channel, Envelope, Joining
from privfed.protocols.slotted import Slotted
from tests.protocols.federations import Sums
from tests.protocols.sparse import small_graphs
from tests.protocols.tapes import QUESTION, Nonsense, resealed, resigned

ACCUSED = {*LIED, DEALT, FORGED, REJECTED, UNDECIDED, DOUBTED, NO_KEY}
SUMS: dict[str, Callable[[], Any]] = {
    "masked": lambda: Masked(losses=99),
    "masked-verified": lambda: Masked(losses=99, verified=True),
    "group-masked": lambda: GroupMasked(losses=99, repeats=9),
    "ckks": lambda: CKKS(losses=99),
    "slotted": lambda: Slotted(Masked(losses=99), contributors=3),
}


BESIDES: dict[str, Callable[[], Any]] = {
    "masked-proven": lambda: Masked(losses=99, proofs=True),
    "sparse": lambda: Masked(losses=99, colluders=0, honest=2),
    "sparse cohorts": lambda: Masked(losses=99, colluders=0, honest=2, verified=True),
}
COHORTS = tuple(tuple(sorted((k + step) % 12 for step in range(8))) for k in range(0, 12, 3))


def lost_messages(name: str, runs: int, seed: int) -> int:
    """Lose messages of honest clients; return how many sums were opened."""
    rng, opened = random.Random(seed), 0
    for _ in range(runs):
        n = 12 if "sparse" in name else rng.randint(4, 12)
        run = Sums((SUMS | BESIDES)[name](), n, COHORTS if "cohorts" in name else ())
        for turn in range(5 if name in BESIDES else 3):
            label = 1 + turn % len(COHORTS) if "cohorts" in name else 0
            stages = [stage.name for stage in run.protocol.stages if stage.name != "close"]
            faults = [
                Fault(rng.randrange(n), rng.choice(stages), rng.choice(["drop", "lost-reply", "garbage"]))
                for _ in range(rng.randint(0, 3))
            ]
            try:
                total = run.ask(QUESTION, label, (label and 1 + label % len(COHORTS),), *faults)
            except ProtocolError:
                continue
            run.assert_exact(total, QUESTION, label)
            assert not ACCUSED & set(total.rejected.values())
            opened += 1
    return opened


@pytest.mark.parametrize("name", SUMS)
def test_nobody_is_accused_where_messages_are_lost_and_nobody_lies(name: str) -> None:
    assert lost_messages(name, 6 if name == "ckks" else 15, seed=5) > 8


@pytest.mark.parametrize("name", BESIDES)
@pytest.mark.parametrize("runs", [8, pytest.param(120, marks=pytest.mark.slow)])
@pytest.mark.timeout(3600)
def test_nobody_is_accused_in_other_kinds_of_masked_sums(
    name: str, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all share keys with all, so that keys and boxes come in other exchanges."""
    if "sparse" in name:
        small_graphs(monkeypatch, 4)
    runs = runs // 8 if name == "masked-proven" else runs
    assert lost_messages(name, runs, seed=7) > runs


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SUMS)
def test_nobody_is_accused_in_a_thousand_runs(name: str) -> None:
    """Together: of each sum a share."""
    assert lost_messages(name, 100 if name == "ckks" else 225, seed=6) > 100


class Liars:
    """Clients that lie in any field of any message, and accuse others.

    Args:
        run: the federation.
        who: their positions.
        rng: chooses their lies.
        rate: how often they lie.
    """

    def __init__(self, run: Sums, who: tuple[int, ...], rng: random.Random, rate: float) -> None:
        self._run, self._who, self._rng, self._rate = run, who, rng, rate
        self._nonsense = Nonsense(rng)
        run.engine.change_replies = self.change

    def change(self, exchange: Any, replies: Any) -> Any:
        lies = exchange.stage in ("prepare", "collect", "unmask")
        return [
            (i, self._lied(i, one))
            if lies and i in self._who and self._rng.random() < self._rate
            else (i, one)
            for i, one in replies
        ]

    def _lied(self, client: int, reply: bytes) -> bytes:
        try:
            return resealed(self._run, client, reply, lambda message: self._lie(client, message))
        except ProtocolError:
            return reply

    def _lie(self, client: int, message: Any) -> Any:
        other = self._rng.randrange(self._run.n)
        if isinstance(message, Refusal) and message.code.startswith("leaf"):
            return BoxKey(self._rng.randbytes(32))
        if self._rng.random() < 0.4:
            return Refusal(self._rng.choice([f"box:{other}", "receipts", "invitation", "history", "message"]))
        if isinstance(message, Prepared | Upload) and message.preparations and self._rng.random() < 0.5:
            spoiled = [self._spoiled(client, one) for one in message.preparations]
            return msgspec.structs.replace(message, preparations=tuple(spoiled))
        altered = self._nonsense(message)
        # What it answers is its own affair: any number of its own is a valid answer.
        return (
            msgspec.structs.replace(altered, words=message.words) if isinstance(altered, Upload) else altered
        )

    def _spoiled(self, client: int, one: Any) -> Any:
        """Spoil the boxes for some, under a signature that holds."""
        size = len(one.key_hashes) // 32
        width, boxes = len(one.boxes) // size, bytearray(one.boxes)
        for place in range(size):
            if self._rng.random() < 0.5:
                boxes[place * width] ^= 1
        return resigned(self._run, client, msgspec.structs.replace(one, boxes=bytes(boxes)))


def lying(verified: bool, runs: int, n_liars: int, seed: int) -> dict[str, int]:
    """Let clients lie; check who is out, and that no total is wrong. Count what came of it."""
    rng, counts = random.Random(seed), {"opened": 0, "failed": 0, "out": 0}
    for _ in range(runs):
        n = rng.randint(4, 14)
        run = Sums(Masked(losses=99, verified=verified), n)
        who = tuple(rng.sample(range(n), n_liars))
        Liars(run, who, rng, rng.choice([0.2, 0.6, 1.0]))
        for _ in range(5):
            try:
                total = run.ask(QUESTION)
            except ProtocolError:
                counts["failed"] += 1
            else:
                run.assert_exact(total, QUESTION)
                counts["opened"] += 1
            session: Any = getattr(run.session, "session", run.session)
            out = session._out
            counts["out"] += len(out)
            honest = out.keys() - set(who)
            # Evidence names liars alone; without any each takes one other along.
            assert {out[i] for i in honest} <= {UNDECIDED, NO_KEY}
            assert len(honest) <= n_liars
            assert set(out.values()) <= ACCUSED
    return counts


@pytest.mark.parametrize("verified", [False, True])
@pytest.mark.parametrize("n_liars", [1, 2])
def test_liars_cost_themselves_and_one_other_each_and_no_total_is_wrong(verified: bool, n_liars: int) -> None:
    counts = lying(verified, 12, n_liars, seed=3)
    assert counts["opened"] > 10 and counts["out"] > 10


@pytest.mark.parametrize("name", ["masked", "masked-verified"])
@pytest.mark.parametrize(("n", "spoiled"), [(6, 1), (8, 1), (12, 1), (12, 3)])
def test_whoever_sends_capsules_with_a_wrong_mac_is_out_with_one_other_at_most(
    name: str, n: int, spoiled: int
) -> None:
    """No evidence shows who of the two lies: a capsule cannot be opened to others."""
    run, liar = Sums(SUMS[name](), n), n // 2

    def change(exchange: Any, replies: Any) -> Any:
        if exchange.stage != "agree" or liar not in dict(replies):
            return replies
        keys, joining = run.state(liar).keys, decode(dict(replies)[liar], Joining, sender="", stage="")
        channel = Channel(keys.channel, keys.session, liar)
        agreed = channel.up.open(decode(joining.envelope, Envelope, sender="", stage=""), Agreed, "")
        assert len(agreed.capsules) >= spoiled
        made = [
            msgspec.structs.replace(one, tag=bytes(16)) if place < spoiled else one
            for place, one in enumerate(agreed.capsules)
        ]
        sealed = channel.up.seal(0, "agree", msgspec.structs.replace(agreed, capsules=tuple(made)))
        return [(i, encode(Joining(joining.ciphertext, sealed)) if i == liar else one) for i, one in replies]

    run.engine.change_replies = change
    for _ in range(3):
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        out = set(range(n)) - set(total.contributors)
        assert liar in out and len(out) == 2
        assert out == total.rejected.keys() and set(total.rejected.values()) <= {NO_KEY, UNDECIDED}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("n_liars", [1, 2])
def test_liars_for_long(n_liars: int) -> None:
    lying(False, 400, n_liars, seed=4)
