"""Verified totals: clients take only the sum of the clients named, and answer only what comes next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.core.roles.secure_sum import NextQuestion
from privfed.core.stored.encoding import Message
from privfed.engines.in_process import Fault
from privfed.errors import RefusedError
from privfed.protocols import Masked
from privfed.protocols.crypto.fixed_point import Grid
from privfed.protocols.crypto.keystream import CHECK_BYTES
from privfed.protocols.masked.masked_messages import CollectRequest, OpenedSum
from privfed.protocols.masked.verification import Place, check_words
from privfed.protocols.masked.verifier import _checked
from privfed.protocols.setup.simulated import AnnouncingSession
from tests.default_run import examples
from tests.protocols.federations import Sums, vectors, wide_vectors
from tests.protocols.masked.lying import (
    delivery_of,
    lie,
    multiplied,
    refused,
    server_of,
    verified,
)
from tests.protocols.sparse import small_graphs
from tests.raised import refused_with

QUESTION = vectors()


# --- what an honest run does ---


@pytest.mark.parametrize("question", [vectors(), wide_vectors(), vectors(9_000)], ids=["", "wide", "long"])
def test_totals_are_those_of_masked_sums(question: Any) -> None:
    run, other = verified(4), Sums(Masked(), 4)
    for _ in range(3):
        total, expected = run.ask(question), other.ask(question)
        run.assert_exact(total, question)
        for name in expected.statistics:
            np.testing.assert_array_equal(total.statistics[name], expected.statistics[name])
    assert run.exchanges == other.exchanges


def test_all_clients_chain_the_same_totals_and_are_one_behind_the_server() -> None:
    run = verified(4)
    for _ in range(3):
        run.ask()
    chains = [run.state(i).keys.chain for i in range(4)]
    assert {one.opened for one in chains} == {1}
    assert len({one.head for one in chains}) == len({one.secret for one in chains}) == 1
    run.ask()
    assert run.state(0).keys.chain.head not in {one.head for one in chains}


def test_clients_in_few_cohorts_get_the_totals_that_they_missed() -> None:
    run = verified(7, ((0, 1, 2, 3), (3, 4, 5, 6), (0, 2, 4, 6)))
    for label in (1, 1, 2, 3, 0, 2, 1):
        run.assert_exact(run.ask(cohort=label, upcoming=(0, 1, 2, 3)), QUESTION, label)
    # Client 5 was last asked for the sixth sum, when five were open; client 0 for the seventh.
    assert (run.state(5).keys.chain.opened, run.state(0).keys.chain.opened) == (4, 5)


def test_a_client_that_was_lost_catches_up() -> None:
    run = verified(5, losses=9)
    run.ask()
    for stage in ("collect", "unmask", "collect"):
        run.ask(QUESTION, 0, (0,), Fault(3, stage))
    for _ in range(3):
        total = run.ask()
    assert 3 in total.contributors
    assert run.state(3).keys.chain.opened == 5


@pytest.mark.parametrize("sparse", [False, True], ids=["full", "sparse"])
@pytest.mark.parametrize("kind", ["drop", "lost-reply"])
def test_another_client_leads_where_the_lowest_is_lost(
    sparse: bool, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sparse:
        small_graphs(monkeypatch, 6)
    run, other = verified(8), Sums(Masked(), 8)
    total = run.ask(QUESTION, 0, (0,), Fault(0, "prepare", kind))
    other.ask(QUESTION, 0, (0,), Fault(0, "prepare", kind))
    run.assert_exact(total, QUESTION)
    assert (total.contributors, delivery_of(run).leader) == (tuple(range(1, 8)), 1)
    # Where keys are agreed on with neighbours only, whoever leads first needs those of all others.
    assert run.exchanges == other.exchanges + 1 + sparse
    for _ in range(3):
        total = run.ask()
    assert total.contributors == tuple(range(8))
    assert len({run.state(i).keys.chain.secret for i in range(8)}) == 1


def test_without_the_lowest_client_from_the_start_no_exchange_is_added() -> None:
    run, other = verified(5), Sums(Masked(), 5)
    for one in (run, other):
        one.ask(QUESTION, 0, (0,), Fault(0, "advertise"))
        one.ask()
    assert run.exchanges == other.exchanges and delivery_of(run).leader == 1


def test_a_sum_that_fails_is_asked_again_under_the_same_index() -> None:
    run = verified(4)
    run.ask()
    few = [Fault(i, "unmask") for i in range(3)]
    session, heads = run.session, delivery_of(run).head
    run.draw(QUESTION)
    run.faults[:] = few
    with pytest.raises(Exception, match="nothing was opened"):
        run.federation._drive(session.sum(QUESTION, 1, 0, (0,)), 1)
    assert delivery_of(run).head == heads
    run.faults[:] = []
    for index in (1, 2):
        total = run.federation._drive(session.sum(QUESTION, index, 0, (0,)), index)
    run.assert_exact(total, QUESTION)
    assert {run.state(i).keys.chain.opened for i in range(4)} == {1}


# --- totals that are not the sums ---


def doubled(one: OpenedSum) -> OpenedSum:
    words, check = multiplied(one.words, 2, 8), multiplied(one.check, 2, CHECK_BYTES)
    return msgspec.structs.replace(one, words=words, check=check)


def doubled_without_marks(one: OpenedSum) -> OpenedSum:
    """Double all but the entry that counts the contributors."""
    words = multiplied(one.words, 2, 8)[:-8] + one.words[-8:]
    return msgspec.structs.replace(one, words=words, check=multiplied(one.check, 2, CHECK_BYTES))


def forged(one: OpenedSum) -> OpenedSum:
    return msgspec.structs.replace(one, words=bytes([one.words[0] ^ 1]) + one.words[1:])


def without_one(one: OpenedSum) -> OpenedSum:
    return msgspec.structs.replace(one, contributors=bytes([0]) + one.contributors[1:])


def for_another(one: OpenedSum) -> OpenedSum:
    """Name the client that was lost in place of one that was not."""
    flags = bytearray(one.contributors)
    lost = flags.index(0)
    flags[lost], flags[lost - 1] = 1, 0
    return msgspec.structs.replace(one, contributors=bytes(flags))


def of_another_sum(one: OpenedSum) -> OpenedSum:
    return msgspec.structs.replace(one, number=one.number - 1)


def of_other_prepared(one: OpenedSum) -> OpenedSum:
    flags = bytes(1 - u for u in one.contributors)
    return msgspec.structs.replace(
        one, prepared=bytes(p & ~f for p, f in zip(one.prepared, flags, strict=True))
    )


def check_moved(one: OpenedSum) -> OpenedSum:
    return msgspec.structs.replace(one, check=bytes([one.check[0] ^ 1]) + one.check[1:])


def cut(one: OpenedSum) -> OpenedSum:
    return msgspec.structs.replace(one, words=one.words[:-8])


LIES = [doubled, doubled_without_marks, forged, without_one, for_another, of_another_sum, check_moved, cut]


@pytest.mark.parametrize("change", LIES, ids=lambda one: one.__name__)
def test_every_client_notices_a_total_that_is_not_the_sum(change: Callable[[OpenedSum], OpenedSum]) -> None:
    run = verified(6)
    run.ask()
    run.ask(QUESTION, 0, (0,), Fault(3, "collect"))
    run.ask(QUESTION, 0, (0,), Fault(4, "collect"))
    lie(run, lambda client, totals: tuple(map(change, totals)))
    codes = refused(run)
    assert set(codes.values()) == {"total"} and len(codes) >= 5
    # The fit has ended for each of them: nothing is tried again, however honest what comes then.
    assert all(run.state(i).keys is None for i in range(3))


def test_other_lists_of_the_prepared_are_noticed() -> None:
    run = verified(6)
    run.ask()
    run.ask(QUESTION, 0, (0,), Fault(3, "collect"))
    lie(run, lambda client, totals: tuple(map(of_other_prepared, totals)))
    assert set(refused(run).values()) == {"total"}


def test_an_old_total_is_no_new_one() -> None:
    run = verified(4)
    run.ask()
    old: list[OpenedSum] = []
    lie(run, lambda client, totals: (old.append(totals[-1]), totals)[1])
    run.ask()
    lie(run, lambda client, totals: (msgspec.structs.replace(totals[-1], **_what(old[0])),))
    assert set(refused(run).values()) == {"total"}


def _what(one: OpenedSum) -> dict[str, Any]:
    return {"words": one.words, "check": one.check, "contributors": one.contributors}


def test_no_sum_that_is_open_is_asked_again() -> None:
    """Its totals over other clients would differ by single answers."""
    for back in (1, 2):
        run = verified(4)
        run.ask()
        run.ask()
        delivery = delivery_of(run)
        honest = delivery.request

        def again(client: int, collect: Any, back: int = back, honest: Any = honest) -> Any:
            request = honest(client, collect)
            moved = msgspec.structs.replace(request.collect, index=request.collect.index - back)
            return msgspec.structs.replace(request, collect=moved)

        delivery.request = again  # type: ignore[method-assign]
        assert set(refused(run).values()) == {"message"}


def test_totals_in_another_order_and_missing_ones_are_refused() -> None:
    run = verified(7, ((0, 1, 2, 3), (3, 4, 5, 6)))
    for label in (0, 1, 1, 1):
        run.ask(cohort=label, upcoming=(0, 1, 2))
    lie(run, lambda client, totals: totals[::-1] if client == 5 else totals[1:] if client == 6 else totals)
    assert run.ask().contributors == (0, 1, 2, 3, 4)
    assert run.state(5).keys is run.state(6).keys is None


def test_totals_exchanged_for_one_another_are_noticed() -> None:
    run = verified(7, ((0, 1, 2, 3), (3, 4, 5, 6)))
    for label in (0, 1, 1, 1):
        run.ask(cohort=label, upcoming=(0, 1, 2))

    def exchanged(client: int, totals: tuple[OpenedSum, ...]) -> tuple[OpenedSum, ...]:
        if client < 4:
            return totals
        first, second, *rest = totals
        other = (
            msgspec.structs.replace(first, **_what(second)),
            msgspec.structs.replace(second, **_what(first)),
        )
        return (*other, *rest)

    lie(run, exchanged)
    assert refused(run) == {f"clinic-{i}": "total" for i in (4, 5, 6)}
    assert [run.state(i).keys is None for i in range(7)] == [False] * 4 + [True] * 3


def test_a_total_that_was_told_stays_though_the_question_is_refused() -> None:
    run = verified(4)
    run.ask()
    delivery = delivery_of(run)
    honest = delivery.request

    def other(client: int, collect: CollectRequest) -> Message:
        return honest(client, msgspec.structs.replace(collect, question=vectors(round=9).to_bytes()))

    delivery.request = other  # type: ignore[method-assign]
    assert set(refused(run).values()) == {"program"}
    assert {run.state(i).keys.chain.opened for i in range(4)} == {0}
    lie(run, lambda client, totals: tuple(map(forged, totals)))
    delivery.request = honest  # type: ignore[method-assign]
    lie(run, lambda client, totals: tuple(map(forged, totals)))
    # It is not read again: what holds is what was told first.
    run.federation._index = 1
    run.draw(QUESTION)
    run.faults[:] = []
    run.federation._drive(run.session.sum(QUESTION, 1, 0, (0,)), 1)
    assert {run.state(i).keys.chain.opened for i in range(4)} == {0}


@given(data=st.data())
@settings(max_examples=examples(200), deadline=None)
def test_no_change_of_a_total_passes(data: st.DataObject) -> None:
    grid, members, rng = Grid(QUESTION.spec, 5), (0, 1, 3, 4, 6), np.random.default_rng(3)
    secret, contributors = bytes(range(32)), bytes([1, 1, 0, 1, 1])
    place = Place(b"s" * 32, 7, 3, b"h" * 32, b"q" * 32, bytes([1] * 5))
    clients = [j for j, there in zip(members, contributors, strict=True) if there]
    answers = [grid.encode(rng.uniform(-10, 10, 3), 0) for _ in clients]
    total = np.zeros(grid.size, dtype=np.uint64)
    for one in answers:
        grid.add(total, one)
    checks = [check_words(a, grid, secret, place, [j]) for a, j in zip(answers, clients, strict=True)]
    check = (sum(checks) % (1 << 192)).to_bytes(CHECK_BYTES, "little")
    true = OpenedSum(7, 3, 0, place.prepared, contributors, total.astype("<u8").tobytes(), check)
    assert _checked(secret, place, true, members, QUESTION.to_bytes(), ()) is not None
    field = data.draw(st.sampled_from(["words", "check", "contributors", "scaled", "place"]))
    one, where = true, place
    if field == "place":
        name = data.draw(st.sampled_from(["number", "index", "head", "cohort", "prepared", "session"]))
        value = getattr(place, name)
        changed = value + 1 if isinstance(value, int) else value[:-1] + bytes([value[-1] ^ 1])
        where = Place(**({s: getattr(place, s) for s in Place.__slots__} | {name: changed}))
    elif field == "scaled":
        factor = data.draw(st.integers(-8, 8).filter(lambda f: f != 1))
        words = multiplied(true.words, factor, 8)
        # The entry that counts contributors is put right, so that only check words can tell.
        words = words[:-8] + true.words[-8:] if data.draw(st.booleans()) else words
        one = msgspec.structs.replace(true, words=words, check=multiplied(check, factor, CHECK_BYTES))
    else:
        value = bytearray(getattr(true, field))
        at = data.draw(st.integers(0, len(value) - 1))
        value[at] ^= 1 if field == "contributors" else data.draw(st.integers(1, 255))
        one = msgspec.structs.replace(true, **{field: bytes(value)})
    assert _checked(secret, where, one, members, QUESTION.to_bytes(), ()) is None


# --- questions that do not come next ---


def asked_in_place(run: Sums, expected: Any, sent: Any) -> None:
    """Let the clients' runs come to one question while the server asks another."""
    if not run.exchanges:
        run.ask()
    run.draw(expected)
    index = run.federation._index
    assert isinstance(run.session, AnnouncingSession)
    run.session.replay.announce(index, NextQuestion(expected.to_bytes(), 0))
    run.federation._drive(server_of(run).sum(sent, index, 0, (0,)), index)


@pytest.mark.parametrize(
    "other",
    [vectors(round=1), vectors(4), vectors(high=10.1), wide_vectors(3)],
    ids=["option", "shape", "range", ""],
)
def test_another_question_is_refused_by_name(other: Any) -> None:
    run = verified(4)
    with pytest.raises(RefusedError, match="program") as error:
        asked_in_place(run, QUESTION, other)
    assert set(error.value.codes.values()) == {"program"}


def test_last_digits_of_a_question_may_differ() -> None:
    run = verified(4)
    asked_in_place(run, QUESTION, vectors(high=10.0 + 1e-13))


def test_a_range_that_would_halve_the_steps_is_refused_though_it_is_within_the_last_digits() -> None:
    # Eight clients at 8.0 sum to a power of two; a hair below, steps are half as wide, and who reads the
    # total by its own steps would read twice the sum.
    run, exact = verified(8), vectors(low=-8.0, high=8.0)
    below = vectors(low=-8.0 + 8e-10, high=8.0 - 8e-10)
    assert Grid(exact.spec, 8).step[0] == 2 * Grid(below.spec, 8).step[0]
    with refused_with("program"):
        asked_in_place(run, exact, below)


def test_a_sum_that_is_open_is_not_asked_again() -> None:
    run = verified(4)
    for _ in range(3):
        run.ask()
    assert isinstance(run.session, AnnouncingSession)
    run.session.replay.announce(0, NextQuestion(QUESTION.to_bytes(), 0))
    with refused_with("message"):
        run.federation._drive(server_of(run).sum(QUESTION, 0, 0, (0,)), 0)
