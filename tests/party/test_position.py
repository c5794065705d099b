"""Stated positions: no more is admitted than by whoever follows all readings, and every honest run is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.core.asking.phases import Cycle, Form, Phase, Phases, Shape
from privfed.core.asking.question import Place, Position, Question
from privfed.errors import PolicyError
from privfed.party.position import MOST_MISSED, Gaps, may_end, next_places, phase_at
from privfed.party.program import REFUSED, Program, ProgramState
from tests.default_run import examples
from tests.party.follower import follower, readings
from tests.party.follower.automaton import onward
from tests.party.programs import MOST, QUESTIONS, SETTING, clear_phases, phases, positions, walked


@settings(max_examples=examples(400), deadline=None)
@given(parts=phases(), data=st.data())
def test_gaps_are_those_of_a_literal_walk(parts: Phases, data: st.DataObject) -> None:
    begin: Place = ()
    for _ in range(data.draw(st.integers(0, 5))):
        steps = onward(parts, begin)[0]
        if not steps:
            break
        assert {one.place for one in steps} == set(next_places(parts, begin))
        begin = data.draw(st.sampled_from(steps)).place
    assert may_end(parts, begin) == onward(parts, begin)[1]
    gaps, reached = Gaps(MOST), walked(parts, begin)
    for place in set().union(*reached, *walked(parts, ())):
        assert phase_at(parts, place) is not None
        expected = sum(1 << n for n, there in enumerate(reached) if place in there)
        assert gaps.between(parts, begin, place) == expected
    ends = [onward(parts, begin)[1], *(any(onward(parts, one)[1] for one in there) for there in reached)]
    assert gaps.rest(parts, begin) == sum(1 << n for n, there in enumerate(ends[: MOST + 1]) if there)


def admitted(program: Program, state: ProgramState, question: Question, index: int) -> ProgramState | None:
    """Return what is known after a question; None where it is refused."""
    try:
        return program.after(state, question, index)
    except PolicyError as error:
        assert str(error) == REFUSED
        return None


PROGRAMS = st.tuples(phases(), st.lists(phases(1, 2), max_size=2).map(tuple))
CLEAR = st.tuples(clear_phases(), st.lists(clear_phases(1, 2, False), max_size=2).map(tuple))


@settings(max_examples=examples(600), deadline=None)
@given(drawn=PROGRAMS, data=st.data())
def test_whatever_is_admitted_at_a_stated_position_a_follower_of_all_readings_admits(
    drawn: tuple[Phases, tuple[Phases, ...]], data: st.DataObject
) -> None:
    program, old = Program(*drawn, SETTING), follower.Program(*drawn, SETTING)
    where, now, before, index = positions(program), ProgramState(), readings.Followed(), -1
    for _ in range(6):
        index += data.draw(st.integers(1, 4), label="sums")
        some_of = data.draw(st.lists(st.sampled_from(where), max_size=20, unique=True), label="stated")
        asked = [(one, at) for one in QUESTIONS for at in some_of]
        found = [(one, after) for one, at in asked if (after := admitted(program, now, one.at(at), index))]
        if not found:
            return
        question, now = data.draw(st.sampled_from(found), label="asked")
        before = old.after(before, question, index)


@settings(max_examples=examples(400), deadline=None)
@given(drawn=CLEAR, data=st.data())
def test_clients_that_miss_sums_admit_what_an_honest_coordinator_asks(
    drawn: tuple[Phases, tuple[Phases, ...]], data: st.DataObject
) -> None:
    program = Program(*drawn, SETTING)
    every, clients = ProgramState(), [ProgramState()] * 3
    for index in range(10):
        placed = [one for one in (program.placed(every, asked) for asked in QUESTIONS) if one.position]
        if not placed:
            return
        question = data.draw(st.sampled_from(placed), label=f"sum {index}")
        every = program.after(every, question, index)
        for i in range(3):
            if data.draw(st.booleans(), label=f"client {i} is asked"):
                clients[i] = program.after(clients[i], question, index)


def single(kind: type[Question]) -> Phases:
    return (Phase(Form(kind, centers=Shape(1, 1))),)


def test_a_metric_that_a_missed_sum_must_have_been_is_not_asked_again() -> None:
    fit, a = (QUESTIONS[0].at(Position(used, (0, 1))) for used in ((), (0,)))
    program = Program(single(type(fit)), (single(type(fit)),) * 3, SETTING)
    state = program.after(program.after(ProgramState(), fit, 0), a, 1)
    # A sum was missed: it was the third metric, if the second is asked now.
    for used in ((0, 1), (1,), (1, 0, 2), (0, 0, 1)):
        assert admitted(program, state, fit.at(Position(used, (0, 1))), 3) is None
    state = program.after(state, fit.at(Position((0, 2, 1), (0, 1))), 3)
    for used in ((0, 1, 2), (2,), (0, 2, 1), (), (0, 1, 2, 2)):
        assert admitted(program, state, fit.at(Position(used, (0, 1))), 4) is None


def test_turns_that_were_missed_are_stated_and_fill_the_gap() -> None:
    both = (*single(type(QUESTIONS[0])), *single(type(QUESTIONS[2])))
    program = Program((Cycle(both, 2, 40),), (), SETTING)
    state = program.after(ProgramState(), QUESTIONS[0].at(Position((), (0, 1, 0, 1))), 0)
    second = QUESTIONS[2]
    for turn, index in ((1, 1), (2, 3), (21, 41)):
        assert admitted(program, state, second.at(Position((), (0, turn, 1, 1))), index) is not None
    for turn, index in ((1, 2), (2, 2), (21, 40), (21, 42), (41, 81)):
        assert admitted(program, state, second.at(Position((), (0, turn, 1, 1))), index) is None


def test_no_more_sums_are_missed_in_a_row_than_a_client_counts_through() -> None:
    fit = QUESTIONS[0]
    program = Program((replace(single(type(fit))[0], most=MOST_MISSED + 9),), (), SETTING)
    for index, known in ((MOST_MISSED, True), (MOST_MISSED + 1, False)):
        found = admitted(program, ProgramState(), fit.at(Position((), (0, index + 1))), index)
        assert (found is not None) == known


@pytest.mark.parametrize("position", [None, Position(), Position((), (0, 1, 1)), Position((), (-1, 1))])
def test_a_question_without_a_position_of_the_program_is_refused(position: Position | None) -> None:
    program = Program(single(type(QUESTIONS[0])), (), SETTING)
    assert admitted(program, ProgramState(), QUESTIONS[0].at(position), 0) is None
    assert admitted(program, ProgramState(), program.placed(ProgramState(), QUESTIONS[0]), 0) is not None
