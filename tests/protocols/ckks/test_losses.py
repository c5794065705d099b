"""Losses in encrypted sums: whoever answered is in the total, and who was lost is back in the next."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from privfed.engines.in_process import Fault
from privfed.errors import NotEnoughClientsError
from privfed.protocols import CKKS
from privfed.protocols.client_opened.relay import MAX_BEHIND
from tests.protocols.contracts import ENCRYPTED, QUESTION, patterns
from tests.protocols.federations import Sums

CASE = ENCRYPTED["ckks"]


def play(n: int, faults: Mapping[int, tuple[str, str]]) -> None:
    """Lose clients in a first sum, and nobody in a second; assert what must come of both."""
    run, fewest = Sums(CKKS(honest=2), n), 3
    gone, lost = dict[int, str](), dict[int, str]()
    failed = ""
    for stage in CASE.stages:
        lost |= {i: stage for i, (where, _) in faults.items() if where == stage}
        gone = lost if stage in CASE.stages_of_fit else gone
        gone, lost = dict(gone), dict(lost)
        if n - len(lost) < fewest:
            failed = stage
            break
    struck = [Fault(i, stage, kind) for i, (stage, kind) in faults.items()]  # type: ignore[arg-type]
    if failed:
        with pytest.raises(NotEnoughClientsError) as error:
            run.ask(QUESTION, 0, (0,), *struck)
        assert (error.value.stage, error.value.left) == (failed, n - len(lost))
        if failed != "collect":
            return
    else:
        total = run.ask(QUESTION, 0, (0,), *struck)
        run.assert_exact(total, QUESTION)
        assert total.dropped == lost
        assert total.contributors == tuple(i for i in range(n) if i not in lost)
    back = run.ask(QUESTION)
    run.assert_exact(back, QUESTION)
    assert back.dropped == gone
    assert back.contributors == tuple(i for i in range(n) if i not in gone)


def test_every_pattern_of_losses_among_three() -> None:
    for faults in patterns(CASE, 3, every=False):
        play(3, faults)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "every"), [(3, True), (4, False), (5, False)])
def test_every_pattern_of_losses(n: int, every: bool) -> None:
    for faults in patterns(CASE, n, every=every):
        play(n, faults)


@pytest.mark.parametrize("kind", ["late", "twice", "garbage", "truncate"])
def test_strange_replies_never_give_a_wrong_sum_and_are_named(kind: str) -> None:
    run = Sums(CKKS(), 4)
    run.ask(QUESTION)
    first = run.ask(QUESTION, 0, (0,), Fault(2, "collect", kind))  # type: ignore[arg-type]
    run.assert_exact(first, QUESTION)
    second = run.ask(QUESTION)
    run.assert_exact(second, QUESTION)
    named = {**first.rejected, **second.rejected}
    assert set(named) == {2} and all(named.values())
    assert first.contributors == ((0, 1, 2, 3) if kind == "twice" else (0, 1, 3))
    assert second.contributors == (0, 1, 2, 3)


def test_a_client_that_was_away_for_some_sums_opens_all_of_them_and_is_back() -> None:
    run = Sums(CKKS(), 4)
    run.ask(QUESTION)
    for away in range(1, MAX_BEHIND - 1):
        total = run.ask(QUESTION, 0, (0,), Fault(1, "collect"))
        run.assert_exact(total, QUESTION)
        assert total.contributors == (0, 2, 3), away
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.contributors == (0, 1, 2, 3)
    run.federation.close()
    heads = {run.state(i).group.head for i in range(4)}
    assert len(heads) == 1
