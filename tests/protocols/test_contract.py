"""The contract of secure sums: one class, run over every one of them.

A sum opens to exactly the sum, on its own grid, of those who contributed, whoever is lost and
whenever; with too few left it is an error that names them, and nothing is opened.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.engines.in_process import Fault
from privfed.errors import NotEnoughClientsError, RefusedError, RepeatsSpentError
from privfed.protocols import Masked
from tests.default_run import examples, slow
from tests.protocols.contracts import (
    ASKED_AGAIN,
    CASES,
    ENCRYPTED,
    KINDS,
    QUESTION,
    VARIANTS,
    Case,
    by_default,
    check,
    check_pattern,
    patterns,
)
from tests.protocols.federations import Sums, vectors, wide_vectors
from tests.some import some

ALL = CASES | ASKED_AGAIN | ENCRYPTED


@pytest.fixture(params=by_default(CASES, *VARIANTS))
def case(request: pytest.FixtureRequest) -> Case:
    """Return a secure sum in which lost clients come back."""
    result: Case = request.param
    return result


@pytest.fixture(params=by_default(ALL, *VARIANTS))
def any_case(request: pytest.FixtureRequest) -> Case:
    """Return a secure sum; a test that takes it holds for all of them."""
    result: Case = request.param
    return result


# --- who is lost, and when ---


@pytest.mark.parametrize("case", by_default(CASES), indirect=True)
@pytest.mark.parametrize("n", [3, slow(4), slow(5)])
@pytest.mark.few(2)
def test_every_pattern_of_losses(case: Case, n: int) -> None:
    for faults in some(patterns(case, n, every=False)):
        check_pattern(case, n, faults)


@pytest.mark.slow
def test_every_pattern_of_losses_among_six() -> None:
    for faults in some(patterns(CASES["masked"], 6, every=False)):
        check_pattern(CASES["masked"], 6, faults)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "n"), [(name, n) for name in ("plain", "masked") for n in (3, 4)])
def test_every_pattern_of_losses_in_every_order_and_of_every_kind(name: str, n: int) -> None:
    for faults in some(patterns(CASES[name], n, every=True)):
        check_pattern(CASES[name], n, faults)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_pattern_of_losses_in_every_order() -> None:
    """Of five clients; those of six, up to their order, are above: in every order they take half an hour."""
    case, rng, n = CASES["masked"], random.Random(5), 5
    for lost in itertools.product([None, *case.stages], repeat=n):
        check_pattern(case, n, {i: (stage, rng.choice(KINDS)) for i, stage in enumerate(lost) if stage})


@pytest.mark.slow
@given(st.integers(7, 14), st.data())
@settings(max_examples=examples(25))
def test_patterns_of_losses_among_more_clients(n: int, data: st.DataObject) -> None:
    case = CASES[data.draw(st.sampled_from(list(CASES)))]
    one = st.sampled_from([None] * 6 + list(itertools.product(case.stages, KINDS)))
    chosen = data.draw(st.lists(one, min_size=n, max_size=n))
    check_pattern(case, n, {i: fault for i, fault in enumerate(chosen) if fault is not None})


@pytest.mark.parametrize("any_case", by_default(ALL), indirect=True)
@pytest.mark.parametrize("n", [3, 5, slow(8)])
@pytest.mark.few(5)
def test_the_last_client_that_may_be_lost_is_the_last(any_case: Case, n: int) -> None:
    for stage in some(any_case.stages):
        run = Sums(any_case.make(), n)
        spare = n - any_case.needed(run, n)
        assert check(any_case, run, {i: (stage, "drop") for i in range(spare)}).failed is None
        run = Sums(any_case.make(), n)
        assert check(any_case, run, {i: (stage, "drop") for i in range(spare + 1)}).failed == stage


# --- many sums ---


def test_a_client_that_is_lost_in_every_other_sum_is_in_the_others(case: Case) -> None:
    run = Sums(case.make(), 6)
    spare = 6 - case.needed(run, 6)
    before = len(case.stages_of_fit)
    for number in range(12):
        stage = case.stages_of_sum[number // 2 % len(case.stages_of_sum)]
        faults = {(number + i) % 6: (stage, KINDS[i % 2]) for i in range(spare)} if number % 2 else {}
        check(case, run, faults)
        assert run.exchanges == before + case.exchanges * (number + 1)


ROUNDS = ((0, 1, 2, 3, 4), (3, 4, 5, 6, 7), (0, 2, 4, 6, 8), (1, 3, 5, 7, 8, 9), (0, 1, 8, 9, 5))


@pytest.mark.parametrize("losses", [False, True])
def test_another_cohort_every_round_costs_no_more_when_it_is_named_ahead(case: Case, losses: bool) -> None:
    run = Sums(case.make(), 10, ROUNDS)
    rng = random.Random(1)
    for label in range(1, 13):
        members = run.configuration.cohort(label)
        spare = len(members) - case.needed(run, len(members))
        faults = {
            i: (rng.choice(case.stages_of_sum), rng.choice(KINDS))
            for i in rng.sample(members, rng.randint(0, spare) if losses else 0)
        }
        check(case, run, faults, cohort=label, upcoming=(label + 1,))
        assert run.exchanges == len(case.stages_of_fit) + case.exchanges * label


def test_a_cohort_that_was_not_named_costs_one_exchange_more_where_keys_are_made_ahead(case: Case) -> None:
    run = Sums(case.make(), 10, ROUNDS)
    wrong = min(1, len(case.stages_of_fit))
    counts = []
    for label, upcoming in [(1, (2,)), (3, (4,)), (4, (5,)), (1, (2, 3, 4)), (3, (3,)), (3, ()), (3, (0,))]:
        before = run.exchanges
        check(case, run, {}, cohort=label, upcoming=upcoming)
        counts.append(run.exchanges - before)
    extra = [len(case.stages_of_fit), wrong, 0, wrong, 0, 0, 0]
    assert counts == [case.exchanges + more for more in extra]
    before = run.exchanges
    check(case, run, {}, cohort=0, upcoming=())
    assert run.exchanges - before == case.exchanges


def test_wrong_guesses_for_many_rounds_never_stop_the_sums(case: Case) -> None:
    run = Sums(case.make(), 10, ROUNDS)
    rng = random.Random(2)
    for _ in range(15):
        label = rng.randint(0, 5)
        upcoming = tuple(rng.choices(range(6), k=rng.randint(0, 5)))
        before = run.exchanges
        check(case, run, {}, cohort=label, upcoming=upcoming)
        assert run.exchanges - before <= case.exchanges + len(case.stages_of_fit)


@pytest.mark.parametrize("any_case", by_default(ALL, *ALL.keys() - {"masked"}), indirect=True)
def test_a_small_cohort_may_be_followed_by_everyone(any_case: Case) -> None:
    # What a few send carries key material for a sum of many.
    run = Sums(any_case.make(), 90, ((0, 1, 2, 3),))
    for number in range(2):
        check(any_case, run, {}, cohort=1, upcoming=(0, 1))
        assert run.exchanges == len(any_case.stages_of_fit) + any_case.exchanges * (number + 1)


def test_a_cohort_that_missed_its_chances_to_prepare_is_asked_once_more(case: Case) -> None:
    run = Sums(case.make(), 10, ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9)))
    away = [Fault(i, stage, "drop") for i in (5, 6, 7) for stage in case.stages_of_sum]  # type: ignore[arg-type]
    run.assert_exact(run.ask(QUESTION, 1, (2,), *away), QUESTION, 1)
    before = run.exchanges
    assert check(case, run, {}, cohort=2, upcoming=(1,)).failed is None
    assert run.exchanges - before == case.exchanges + min(1, len(case.stages_of_fit))


def test_after_a_sum_that_failed_any_cohort_can_be_asked(case: Case) -> None:
    for stage in some(case.stages_of_sum):
        run = Sums(case.make(), 10, ROUNDS)
        check(case, run, {}, cohort=1, upcoming=(2,))
        members = run.configuration.cohort(2)
        outcome = check(case, run, {i: (stage, "drop") for i in members}, cohort=2, upcoming=(3,))
        assert outcome.failed == stage
        # Those of cohorts 2 and 3 hold key material for a sum that will not come.
        before = run.exchanges
        assert check(case, run, {}, cohort=4, upcoming=(5,)).failed is None
        assert run.exchanges - before == case.exchanges + min(1, len(case.stages_of_fit))
        assert check(case, run, {}, cohort=5, upcoming=(1,)).failed is None


def test_sums_of_different_questions_in_one_session(any_case: Case) -> None:
    run = Sums(any_case.make(), 5)
    for question in [vectors(2), wide_vectors(7), vectors(40, 0, 1e6, 1e-3), vectors(3, round=9), vectors(2)]:
        total = run.ask(question)
        run.assert_exact(total, question)
        assert total.contributors == (0, 1, 2, 3, 4)


# --- replies that are not what they should be ---


STRANGE = ("late", "twice", "garbage", "truncate")


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.few(2)
def test_strange_replies_never_give_a_wrong_sum_and_are_named(case: Case, kind: Any) -> None:
    for stage in some(case.stages):
        run = Sums(case.make(), 5)
        run.ask(QUESTION, 0, (0,)) if stage in case.stages_of_sum else None
        first = run.ask(QUESTION, 0, (0,), Fault(2, stage, kind))
        run.assert_exact(first, QUESTION)
        second = run.ask(QUESTION)
        run.assert_exact(second, QUESTION)
        # What comes late arrives in the next exchange, which may be the next sum's.
        named = {**first.rejected, **second.rejected}
        # An answer to the list that comes late is as good as the same one after it, which it is asked for.
        assert set(named) == (set() if (stage, kind) == ("agree", "late") else {2}), (stage, kind)
        assert all(named.values())
        contributes = kind == "twice" or stage == "unmask"
        assert first.contributors == ((0, 1, 2, 3, 4) if contributes else (0, 1, 3, 4))
        assert first.dropped == ({} if kind == "twice" else {2: stage})
        back = stage != "advertise" or kind == "twice"
        assert second.contributors == ((0, 1, 2, 3, 4) if back else (0, 1, 3, 4))


@given(st.data())
@settings(max_examples=examples(20))
def test_any_strange_replies_in_any_sum(data: st.DataObject) -> None:
    case = ALL[data.draw(st.sampled_from(list(ALL)))]
    run = Sums(case.make(), 7)
    stages, kinds = st.sampled_from(case.stages), st.sampled_from((*KINDS, *STRANGE))
    some = st.lists(st.builds(Fault, st.integers(0, 6), stages, kinds), max_size=3)
    for _ in range(4):
        struck = data.draw(some)
        try:
            total = run.ask(QUESTION, 0, (0,), *struck)
        except (NotEnoughClientsError, RepeatsSpentError):
            continue
        except RefusedError as error:
            # Once the repeats of a fit are spent, clients refuse further ones.
            assert set(error.codes.values()) == {"policy:repeats"}
            continue
        run.assert_exact(total, QUESTION)
        assert len(total.contributors) >= case.needed(run, 7)


# --- grids and statistics ---


@given(st.lists(st.floats(-(2.0**80), 2.0**80), min_size=3, max_size=6))
@settings(max_examples=examples(20))
def test_numbers_of_every_size_in_huge_ranges(values: list[float]) -> None:
    question = vectors(3, -(2.0**80), 2.0**80, 2.0**-20)
    run = Sums(Masked(), len(values))
    run.draw = lambda question: None  # type: ignore[method-assign]
    run.values = {i: np.array([v, -v, v * 2.0**-70]) for i, v in enumerate(values)}
    run.assert_exact(run.ask(question), question)


def test_counts_of_clipped_rows_and_entries_come_out(any_case: Case) -> None:
    run = Sums(any_case.make(), 5)
    rng = np.random.default_rng(3)
    run.draw = lambda question: None  # type: ignore[method-assign]
    run.values = {i: rng.uniform(-15, 15, 3) for i in range(5)}
    run.moved = {0: 3, 1: 0, 2: 1_000_000, 3: 1, 4: 0}
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.clipped > 1_000_004
    total = run.ask(QUESTION, 0, (0,), Fault(2, "collect"))
    run.assert_exact(total, QUESTION)
    assert 4 < total.clipped < 1_000_000
