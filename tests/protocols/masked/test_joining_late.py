"""Clients that miss the list of a set-up, and neighbours that are new with a cohort."""

from __future__ import annotations

from typing import Any

import pytest

from privfed.engines.in_process import Fault
from privfed.protocols import Masked
from privfed.protocols.masked import preparing
from privfed.protocols.masked.client_state import box_bytes
from privfed.protocols.setup.rules import BLOCK
from tests.protocols.federations import Sums, vectors
from tests.protocols.sparse import small_graphs
from tests.protocols.tapes import opened
from tests.some import some

QUESTION = vectors()
N = 8
EVERYONE = tuple(range(N))


@pytest.mark.parametrize("client", [0, 3])
@pytest.mark.parametrize("kind", ["drop", "lost-reply"])
@pytest.mark.parametrize("verified", [False, True], ids=["", "verified"])
@pytest.mark.parametrize("sparse", [False, True], ids=["full", "sparse"])
@pytest.mark.few(6)
def test_a_client_that_misses_the_list_is_back_in_the_second_sum(
    client: int, kind: Any, verified: bool, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sparse:
        small_graphs(monkeypatch, 6)
    run = Sums(Masked(losses=9, verified=verified), N)
    total = run.ask(QUESTION, 0, (0,), Fault(client, "agree", kind))
    run.assert_exact(total, QUESTION)
    assert total.dropped == {client: "agree"}
    for _ in range(2):
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        assert total.contributors == EVERYONE
    # Nothing that others have a key from is kept: the last ones came.
    if not sparse:
        assert not any(run.state(i).keys.ring.seed for i in EVERYONE)


@pytest.mark.parametrize("stages", [("agree", "prepare"), ("agree", "prepare", "collect")])
@pytest.mark.parametrize("kind", ["drop", "lost-reply"])
def test_a_client_that_joins_later_is_back_once_others_prepared_with_its_keys(stages: Any, kind: Any) -> None:
    run = Sums(Masked(losses=9), N)
    run.ask(QUESTION, 0, (0,), *(Fault(3, stage, kind) for stage in stages))
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.dropped == {3: "prepare"}
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.contributors == EVERYONE


def test_what_a_client_that_never_joins_leaves_with_others_is_its_own_result_only() -> None:
    run = Sums(Masked(losses=9), N)
    for _ in range(3):
        run.ask(QUESTION, 0, (0,), *(Fault(3, stage) for stage in ("agree", "prepare", "collect", "unmask")))
    for i in some(set(EVERYONE) - {3}):
        ring = run.state(i).keys.ring
        made = 3 in run.state(i).keys.pairs
        assert ring.secret == b"" and set(ring.halves) == (set() if made else {3})
        assert bool(ring.seed) == bool(ring.halves)


def test_a_client_that_is_lost_is_back_in_the_next_sum_of_the_block() -> None:
    run, prepared = Sums(Masked(losses=90), N), []
    run.engine.before = lambda exchange: prepared.append(run.state(5).keys)
    run.ask(QUESTION)
    for turn in range(1, 2 * BLOCK):
        before = run.exchanges
        stage: Any = ("collect", "unmask")[turn % 2]
        total = run.ask(QUESTION, 0, (0,), Fault(turn % N, stage))
        run.assert_exact(total, QUESTION)
        # Who was lost in the sum before is in this one, and nobody prepares anything anew.
        assert set(EVERYONE) - set(total.contributors) == ({turn % N} if stage == "collect" else set())
        assert run.exchanges - before == 2
    assert {block for keys in prepared if keys is not None for block in keys.blocks} == {1, 2, 3}


def test_whoever_misses_to_prepare_a_block_does_so_within_it() -> None:
    run = Sums(Masked(losses=9), N)
    total = run.ask(QUESTION, 0, (0,), Fault(4, "prepare"))
    assert total.dropped == {4: "prepare"}
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.contributors == EVERYONE
    # It is the same block: its boxes came with the second sum, and those of the others did not come again.
    assert all(set(run.state(i).keys.blocks) == {1} for i in EVERYONE)
    _, message = opened(run.state(0), 0, run.engine.log[-2][0].requests[0])
    assert message.brought == bytes(j == 4 for j in EVERYONE if j != 0)
    assert len(message.boxes) == box_bytes(BLOCK)


ROUNDS = tuple(tuple(sorted((k + step) % 12 for step in range(7))) for k in range(0, 12, 2))


def test_new_neighbours_of_a_cohort_that_is_announced_cost_no_exchange(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_graphs(monkeypatch, 4)
    run = Sums(Masked(losses=9, colluders=0, honest=2), 12, ROUNDS)
    before = 0
    for label in range(1, 7):
        total = run.ask(QUESTION, label, (label % 6 + 1,))
        run.assert_exact(total, QUESTION, label)
        assert total.contributors == run.configuration.cohort(label)
        # Who is not on the full graph agrees on keys in an exchange of its own, before the first sum.
        assert run.exchanges - before == (6 if label == 1 else 2)
        before = run.exchanges
    # Nobody announced everyone: keys, unless all neighbours happen to have them already, then preparations.
    run.assert_exact(run.ask(QUESTION, 0, ()), QUESTION)
    assert run.exchanges - before in (3, 4)


def test_keys_go_to_neighbours_only_where_the_list_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    small_graphs(monkeypatch, 4)
    run = Sums(Masked(losses=9, colluders=0, honest=2), 12)
    run.ask(QUESTION)
    listing, agreeing = (requests.requests for requests, _ in run.engine.log[1:3])
    assert len({data for data in listing.values()}) == 1
    assert all(len(data) < 4 * 1300 for data in agreeing.values())
    assert {len(run.state(i).keys.pairs) for i in range(12)} == {4}
    assert preparing.FULL_GRAPH == 0
