"""Clients that lie in any field of any sealed message, alone and in pairs, over every sum that hides answers.

They lie where they seal: so each lie is under the right key, whatever the sum.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from privfed.core.stored.encoding import Refusal
from privfed.engines.in_process import Fault
from privfed.errors import PolicyError, PrivFedError
from privfed.protocols import CKKS, GroupMasked, Masked
from privfed.protocols.client_opened.group_client import GroupClient
from privfed.protocols.client_opened.relay import DOUBTED
from privfed.protocols.client_opened.scheme import Contribution, Joined
from privfed.protocols.masked.masked_messages import Upload
from privfed.protocols.masked.session import UNDECIDED
from privfed.protocols.setup.parties import NO_KEY
from privfed.protocols.setup.setup_messages import Direction
from privfed.protocols.slotted import Slotted
from tests.protocols.federations import Sums
from tests.protocols.tapes import QUESTION, Nonsense

SUMS: dict[str, Callable[[], Any]] = {
    "masked": lambda: Masked(losses=99),
    "masked-verified": lambda: Masked(losses=99, verified=True),
    "slotted": lambda: Slotted(Masked(losses=99), contributors=3),
    "group-masked": lambda: GroupMasked(losses=99, repeats=9),
    "ckks": lambda: CKKS(losses=99),
}
CODES = (
    "receipts",
    "invitation",
    "history",
    "message",
    "leaf:1",
    "roster:self",
    "journal:0",
    "total",
    "policy:losses",
)


class Liars:
    """Clients that replace or alter what they send before they seal it.

    Attributes:
        who: their positions.
        rate: how often they lie.
        n: how many clients there are.
        spoils: whether they also lie in what they answer, which stops sums whose masks are not recovered.
    """

    def __init__(self, patch: pytest.MonkeyPatch, rng: random.Random) -> None:
        self.who, self.rate, self.spoils, self.n = (0,), 0.0, False, 12
        self._rng, self._nonsense = rng, Nonsense(rng)
        self.lies = 0
        begun, sealed = Direction.__init__, Direction.seal

        def init(direction: Any, key: bytes, session: bytes, client: int, way: str) -> None:
            begun(direction, key, session, client, way)
            direction.way, direction.of = way, client

        def seal(direction: Any, number: int, stage: Any, message: Any) -> bytes:
            if direction.way == "up" and direction.of in self.who and rng.random() < self.rate:
                message, self.lies = self.lie(message), self.lies + 1
            return sealed(direction, number, stage, message)

        patch.setattr(Direction, "__init__", init)
        patch.setattr(Direction, "seal", seal)

    def lie(self, message: Any) -> Any:
        """Return another message in a message's place."""
        if self._rng.random() < 0.3:
            return Refusal(self._rng.choice([*CODES, f"box:{self._rng.randrange(self.n)}"]))
        altered = self._nonsense(message)
        for kind, field in ((Upload, "words"), (Contribution, "body")):
            if isinstance(altered, kind) and not self.spoils:
                altered = msgspec.structs.replace(altered, **{field: getattr(message, field)})
        return altered


def lying(
    name: str,
    runs: int,
    n_liars: int,
    seed: int,
    patch: pytest.MonkeyPatch,
    *,
    spoils: bool = False,
    sizes: Sequence[int] = range(4, 13),
    loses: bool = False,
) -> dict[str, int]:
    """Let clients lie in some runs; check that totals are right, and who is out. Count what came of it.

    Args:
        name: of the sum.
        runs: how many fits.
        n_liars: clients that lie in each.
        seed: of all that is drawn.
        patch: undoes what this changes.
        spoils: whether they also lie in what they answer.
        sizes: how many clients a fit may have.
        loses: whether messages of one honest client are lost in each sum.
    """
    rng, counts = random.Random(seed), {"opened": 0, "failed": 0, "out": 0, "lies": 0}
    liars = Liars(patch, rng)
    for _ in range(runs):
        n = rng.choice(sizes)
        liars.n, liars.who = n, tuple(rng.sample(range(n), n_liars))
        liars.rate, liars.spoils = rng.choice([0.1, 0.4, 1.0]), spoils
        run = Sums(SUMS[name](), n)
        lost = rng.choice([i for i in range(n) if i not in liars.who]) if loses else 0
        for _ in range(4):
            faults = list[Fault]()
            if loses:
                kind: Any = rng.choice(["drop", "lost-reply"])
                faults = [Fault(lost, rng.choice(["agree", "prepare", "collect", "unmask"]), kind)]
            try:
                total = run.ask(QUESTION, 0, (0,), *faults)
            except PrivFedError:
                counts["failed"] += 1
                if run.protocol.recipient == "clients":
                    # The fit has ended: who refuses to go on afterwards is not lost by a lie.
                    break
                continue
            run.assert_exact(total, QUESTION)
            counts["opened"] += 1
            honest = total.rejected.keys() - set(liars.who)
            assert {total.rejected[i] for i in honest} <= {UNDECIDED, DOUBTED, NO_KEY}
        session: Any = getattr(run.session, "session", run.session)
        for one in (session, *(getattr(session, part, None) for part in ("relay", "_relay", "_inner"))):
            out = getattr(one, "_out", {})
            innocent = out.keys() - set(liars.who)
            assert len(innocent) <= n_liars
            assert {out[i] for i in innocent} <= {UNDECIDED, DOUBTED, NO_KEY}
            counts["out"] += len(out)
            if not spoils:
                # Whom a sum that clients open goes on without is a liar, or the other end of a doubt.
                assert set(getattr(one, "_lost", {})) <= {*liars.who, *out, *[lost] * loses}
    counts["lies"] = liars.lies
    return counts


# Over masked sums whatever it answers is its own affair: no check there tells one number from another.
@pytest.mark.parametrize(
    ("name", "spoils"), [*((name, False) for name in SUMS), ("group-masked", True), ("ckks", True)]
)
@pytest.mark.parametrize("n_liars", [1, 2])
def test_liars_cost_themselves_and_one_other_each_whatever_the_sum(
    name: str, n_liars: int, spoils: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = lying(name, 6 if name == "ckks" else 8, n_liars, 11, monkeypatch, spoils=spoils)
    assert counts["lies"] > 2 and counts["opened"] > 0


def spoil_capsules(patch: pytest.MonkeyPatch, who: int, victims: Callable[[int], bool]) -> None:
    """Have a client send capsules that do not open to those that `victims` names."""
    begun, sealed = Direction.__init__, Direction.seal

    def init(direction: Any, key: bytes, session: bytes, client: int, way: str) -> None:
        begun(direction, key, session, client, way)
        direction.way, direction.of = way, client

    def seal(direction: Any, number: int, stage: Any, message: Any) -> bytes:
        if isinstance(message, Joined) and direction.of == who:
            capsules = tuple(
                msgspec.structs.replace(one, tag=bytes(len(one.tag))) if victims(one.client) else one
                for one in message.capsules
            )
            message = msgspec.structs.replace(message, capsules=capsules)
        return sealed(direction, number, stage, message)

    patch.setattr(Direction, "__init__", init)
    patch.setattr(Direction, "seal", seal)


@pytest.mark.parametrize("who", [0, 3, 7])
@pytest.mark.parametrize("all_victims", [True, False])
def test_whose_capsules_open_for_some_or_nobody_leaves_with_one_other_over_group_masked_sums(
    who: int, all_victims: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil_capsules(monkeypatch, who, lambda client: all_victims or client == (who + 1) % 8)
    for _ in range(4):
        run = Sums(GroupMasked(losses=99, repeats=9), 8)
        for _ in range(2):
            total = run.ask(QUESTION)
            run.assert_exact(total, QUESTION)
            if not total.rejected:
                # It encapsulated to others only.
                assert len(total.contributors) == 8 and not all_victims
                continue
            assert who in total.rejected and len(total.rejected) == 2
            assert set(range(8)) - set(total.contributors) == set(total.rejected)
            assert set(total.rejected.values()) <= {NO_KEY, DOUBTED}


@pytest.mark.parametrize("asked", [False, True])
def test_who_is_not_asked_takes_nobody_out_of_group_masked_sums(
    asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    contribute = GroupClient._contribute

    def accusing(client: Any, *given: Any) -> Any:
        if client._me == 7:
            raise PolicyError("box:1")
        return contribute(client, *given)

    monkeypatch.setattr(GroupClient, "_contribute", accusing)
    cohorts = (tuple(range(5)), tuple(range(8)))
    run = Sums(GroupMasked(losses=99, repeats=9), 8, rounds=cohorts)
    total = run.ask(QUESTION, 1 + asked, (1, 2))
    run.assert_exact(total, QUESTION, 1 + asked)
    assert total.rejected.keys() == ({1, 7} if asked else set())
    assert set(total.contributors) == set(cohorts[asked]) - total.rejected.keys()
    assert total.dropped.keys() == total.rejected.keys()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("loses", [False, True])
@pytest.mark.parametrize("n_liars", [1, 2])
@pytest.mark.parametrize("name", SUMS)
def test_liars_among_up_to_thirty(
    name: str, n_liars: int, loses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, runs = (13, 20, 30), {"ckks": 4}.get(name, 12)
    counts = lying(name, runs, n_liars, 13, monkeypatch, sizes=sizes, loses=loses)
    assert counts["opened"] > runs and counts["lies"] > 2


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("n_liars", [1, 2])
@pytest.mark.parametrize("name", SUMS)
def test_liars_for_long_over_every_sum(name: str, n_liars: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = lying(name, 20 if name == "ckks" else 80, n_liars, 12, monkeypatch)
    assert counts["opened"] > 20 and counts["out"] > 1
