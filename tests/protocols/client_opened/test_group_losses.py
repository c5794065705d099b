"""Losses where masks are not recovered: the sum is asked again, and who was lost is out of the fit."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from privfed.engines.in_process import Fault
from privfed.errors import NotEnoughClientsError, RefusedError
from privfed.protocols import CKKS, GroupMasked
from privfed.protocols.client_opened import group_client, relay
from privfed.protocols.client_opened.relay import MAX_BEHIND
from tests.default_run import slow
from tests.protocols.contracts import ASKED_AGAIN, KINDS, QUESTION, patterns
from tests.protocols.federations import Sums
from tests.protocols.groups import Played
from tests.raised import parameter_refused


@pytest.fixture(autouse=True)
def _lowest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the lowest on the list lead: a leader that is lost costs two exchanges."""
    for module in (group_client, relay):
        monkeypatch.setattr(module, "leader_of", lambda session, clients: min(clients))


def play(n: int, faults: Mapping[int, tuple[str, str]]) -> None:
    """Lose clients in a first sum, and nobody in a second; assert what must come of both."""
    case = ASKED_AGAIN["group-masked-colluders"]
    run = Sums(case.make(), n)
    needed, exchanges, lost = case.needed(run, n), 0, dict[int, str]()
    failed = ""
    for stage in case.stages:
        leader = min(i for i in range(n) if i not in lost) if stage == "prepare" else None
        lost |= {i: stage for i, (where, _) in faults.items() if where == stage}
        exchanges += 1
        if n - len(lost) < needed:
            failed = stage
            break
        # The leader of a set-up is lost: once more without it, and so on down the list.
        while leader is not None and leader in lost:
            exchanges += 2
            leader = min((i for i in range(n) if i not in lost), default=None)
        exchanges += stage == "collect" and "collect" in lost.values()
    struck = [Fault(i, stage, kind) for i, (stage, kind) in faults.items()]  # type: ignore[arg-type]
    left = tuple(i for i in range(n) if i not in lost)
    if failed:
        with pytest.raises(NotEnoughClientsError) as error:
            run.ask(QUESTION, 0, (0,), *struck)
        assert (error.value.stage, error.value.left, error.value.needed) == (failed, len(left), needed)
        assert error.value.missing == tuple(run.configuration.clients[i] for i in sorted(lost))
        assert run.exchanges == exchanges
        return
    for faults_now in (struck, []):
        total = run.ask(QUESTION, 0, (0,), *faults_now)
        run.assert_exact(total, QUESTION)
        assert (total.contributors, total.dropped) == (left, lost)
        assert run.exchanges == exchanges
        exchanges += 1


@pytest.mark.parametrize("n", [3, 4, slow(5)])
@pytest.mark.few(1)
def test_every_pattern_of_losses(n: int) -> None:
    for faults in patterns(ASKED_AGAIN["group-masked-colluders"], n, every=False):
        play(n, faults)


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4])
def test_every_pattern_of_losses_in_every_order_and_of_every_kind(n: int) -> None:
    for faults in patterns(ASKED_AGAIN["group-masked-colluders"], n, every=True):
        play(n, faults)


def test_a_set_up_that_failed_begins_anew_with_everyone() -> None:
    for stage in ("advertise", "prepare"):
        run = Sums(GroupMasked(losses=9), 5)
        with pytest.raises(NotEnoughClientsError):
            run.ask(QUESTION, 0, (0,), *(Fault(i, stage) for i in (0, 1)))  # type: ignore[arg-type]
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        assert total.contributors == (0, 1, 2, 3, 4)


def test_clients_outside_a_cohort_hear_every_total_however_many_requests_they_miss() -> None:
    run = Sums(GroupMasked(losses=9), 8, ((0, 1, 2, 3, 4),))
    run.ask(QUESTION, 1)
    for kind in (*KINDS, "late", *KINDS):
        total = run.ask(QUESTION, 1, (1,), Fault(6, "collect", kind))  # type: ignore[arg-type]
        run.assert_exact(total, QUESTION, 1)
    run.federation.close()
    groups = [run.state(i).group for i in range(8)]
    assert {group.opened for group in groups} == {5}
    assert len({group.head for group in groups}) == 1
    run.assert_exact(run.ask(QUESTION), QUESTION)


def test_a_client_that_missed_too_many_totals_is_out_of_the_fit() -> None:
    run = Sums(GroupMasked(losses=9), 8, ((0, 1, 2, 3, 4),))
    run.ask(QUESTION, 1)
    for _ in range(MAX_BEHIND + 1):
        run.ask(QUESTION, 1, (1,), Fault(6, "collect"))
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.dropped == {6: "collect"}


@pytest.mark.parametrize("kind", ["late", "twice", "garbage", "truncate"])
@pytest.mark.parametrize("stage", ["advertise", "prepare", "collect"])
def test_strange_replies_never_give_a_wrong_sum_and_are_named(stage: str, kind: str) -> None:
    run = Sums(GroupMasked(losses=9), 6)
    first = run.ask(QUESTION, 0, (0,), Fault(2, stage, kind))  # type: ignore[arg-type]
    run.assert_exact(first, QUESTION)
    second = run.ask(QUESTION)
    run.assert_exact(second, QUESTION)
    named = {**first.rejected, **second.rejected}
    assert set(named) == {2} and all(named.values())
    left = (0, 1, 2, 3, 4, 5) if kind == "twice" else (0, 1, 3, 4, 5)
    assert first.contributors == second.contributors == left


def test_losses_of_random_cohorts_over_many_sums() -> None:
    rng = random.Random(3)
    rounds = tuple(tuple(sorted(rng.sample(range(12), 7))) for _ in range(5))
    run = Sums(GroupMasked(losses=9, repeats=2), 12, rounds)
    gone: set[int] = set()
    for label in range(1, 16):
        members = [i for i in run.configuration.cohort(label) if i not in gone]
        faults = [Fault(rng.choice(members), "collect")] if label in (4, 9) else []
        gone |= {fault.client for fault in faults}
        before = run.exchanges
        total = run.ask(QUESTION, label, (label + 1,), *faults)
        run.assert_exact(total, QUESTION, label)
        assert not gone & set(total.contributors)
        assert run.exchanges - before == 1 + len(faults) + (3 if label == 1 else 0)


def test_the_closing_exchange_delivers_the_last_total_once() -> None:
    played = Played(n=5, sums=3)
    run = played.run
    assert {run.state(i).group.opened for i in range(5)} == {1}
    before = run.exchanges
    run.federation.close()
    run.federation.close()
    assert run.exchanges == before + 1
    assert {run.state(i).group.opened for i in range(5)} == {2}
    run.assert_exact(run.ask(QUESTION), QUESTION)


def test_no_close_before_anything_was_asked() -> None:
    run = Sums(GroupMasked(losses=9), 5)
    run.federation.close()
    assert run.exchanges == 0


def codes_of(run: Sums, *faults: Fault) -> set[str]:
    """Ask once with faults; return the codes of refusals."""
    try:
        run.ask(QUESTION, 0, (0,), *faults)
    except RefusedError as error:
        return set(error.codes.values())
    return set()


def test_clients_count_who_is_called_lost_before_they_answer_without() -> None:
    run = Sums(GroupMasked(losses=1, repeats=9), 7)
    assert not codes_of(run) and not codes_of(run, Fault(3, "collect"))
    assert {run.state(i).losses_so_far for i in range(7) if i != 3} == {1}
    answered = [run.state(i).answered for i in range(7)]
    with pytest.raises(RefusedError, match=r"\(losses=1\)\. More clients were lost"):
        run.ask(QUESTION, 0, (0,), Fault(5, "collect"))
    # The attempt with client 5 was answered by the others, and the one without it by nobody.
    assert [run.state(i).answered - before for i, before in enumerate(answered)] == [1, 1, 1, 0, 1, 0, 1]


def test_equal_totals_with_another_client_lost_in_each_are_bounded_by_the_signed_number() -> None:
    run = Sums(CKKS(losses=3), 8)
    assert not codes_of(run)
    opened = sum(not codes_of(run, Fault(i, "collect")) for i in range(8))
    # Each total is over another set, and the last is counted once it is open.
    assert 1 <= opened <= 4
    assert codes_of(run) == {"policy:losses"}


@pytest.mark.parametrize("make", [GroupMasked, CKKS])
def test_one_loss_or_a_tenth_of_30_clients_is_allowed_by_default(make: Any) -> None:
    assert [make().terms(n, n, 1).losses for n in (5, 30, 41)] == [1, 3, 5]
    with parameter_refused("losses"):
        make(losses=-1)
