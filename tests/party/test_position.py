"""Stated positions: no more is admitted than by whoever follows all readings, and every honest run is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.core.asking.phases import Cycle, Form, Phase, Phases, Shape
from privfed.core.asking.question import Place, Position, Question
from privfed.errors import PolicyError
from privfed.party.position import may_end, next_places, phase_at
from privfed.party.program import REFUSED, Program, ProgramState
from tests.default_run import examples
from tests.party.follower.automaton import onward
from tests.party.programs import QUESTIONS, SETTING, clear_phases, phases, positions, walked


@settings(max_examples=examples(400), deadline=None)
@given(parts=phases(), data=st.data())
def test_next_places_are_those_of_a_literal_walk_and_places_rise_along_it(
    parts: Phases, data: st.DataObject
) -> None:
    begin: Place = ()
    for _ in range(data.draw(st.integers(0, 5))):
        steps = onward(parts, begin)[0]
        if not steps:
            break
        assert {one.place for one in steps} == set(next_places(parts, begin))
        begin = data.draw(st.sampled_from(steps)).place
    assert may_end(parts, begin) == onward(parts, begin)[1]
    for place in set().union(*walked(parts, begin)):
        assert phase_at(parts, place) is not None and begin < place


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
def test_whatever_a_client_missed_no_position_is_admitted_twice_and_places_only_rise(
    drawn: tuple[Phases, tuple[Phases, ...]], data: st.DataObject
) -> None:
    program = Program(*drawn, SETTING)
    where, now, index, passed = positions(program), ProgramState(), -1, list[Position]()
    for _ in range(6):
        index += data.draw(st.integers(1, 4), label="sums")
        some_of = data.draw(st.lists(st.sampled_from(where), max_size=20, unique=True), label="stated")
        asked = [(one, at) for one in QUESTIONS for at in some_of]
        found = [(at, after) for one, at in asked if (after := admitted(program, now, one.at(at), index))]
        if not found:
            return
        at, now = data.draw(st.sampled_from(found), label="asked")
        for before in passed:
            assert len(before.used) <= len(at.used) and set(before.used) <= set(at.used)
            assert before.used != at.used or before.place < at.place
        passed.append(at)
        assert index < program.max_sums


@settings(max_examples=examples(400), deadline=None)
@given(drawn=CLEAR, data=st.data())
def test_clients_that_miss_sums_admit_what_an_honest_coordinator_asks(
    drawn: tuple[Phases, tuple[Phases, ...]], data: st.DataObject
) -> None:
    program = Program(*drawn, SETTING)
    every, clients = ProgramState(), [ProgramState()] * 3
    for index in range(10):
        placed = [one for one in (program.placed(every, asked)[0] for asked in QUESTIONS) if one.position]
        if not placed:
            return
        question = data.draw(st.sampled_from(placed), label=f"sum {index}")
        every = program.after(every, question, index)
        for i in range(3):
            if data.draw(st.booleans(), label=f"client {i} is asked"):
                clients[i] = program.after(clients[i], question, index)


def single(kind: type[Question]) -> Phases:
    return (Phase(Form(kind, centers=Shape(1, 1))),)


def test_a_metric_is_asked_once_whatever_was_missed() -> None:
    fit, a = (QUESTIONS[0].at(Position(used, (0, 1))) for used in ((), (0,)))
    program = Program(single(type(fit)), (single(type(fit)),) * 3, SETTING)
    begun = program.after(program.after(ProgramState(), fit, 0), a, 1)
    for used in ((0,), (), (1,), (1, 0, 2), (0, 0, 1), (0, 3)):
        assert admitted(program, begun, fit.at(Position(used, (0, 1))), 3) is None
    assert admitted(program, begun, fit.at(Position((0, 1), (0, 1))), 3) is not None
    state = program.after(begun, fit.at(Position((0, 2, 1), (0, 1))), 3)
    for used in ((0, 1, 2), (2,), (0, 2, 1), (), (0, 1, 2, 2)):
        assert admitted(program, state, fit.at(Position(used, (0, 1))), 4) is None


def test_a_client_that_missed_sums_answers_later_positions_only() -> None:
    both = (*single(type(QUESTIONS[0])), *single(type(QUESTIONS[2])))
    program = Program((Cycle(both, 2, 40),), (), SETTING)
    state = program.after(ProgramState(), QUESTIONS[0].at(Position((), (0, 3, 0, 1))), 4)
    second = QUESTIONS[2]
    for turn, index in ((3, 5), (3, 6), (4, 6), (21, 40), (40, 79)):
        assert admitted(program, state, second.at(Position((), (0, turn, 1, 1))), index) is not None
    # The next sum is the next question; a place is never passed twice, and no sum is beyond the program's.
    for turn, index in ((4, 5), (2, 6), (1, 40), (41, 79), (40, 80)):
        assert admitted(program, state, second.at(Position((), (0, turn, 1, 1))), index) is None


@pytest.mark.parametrize("position", [None, Position(), Position((), (0, 1, 1)), Position((), (-1, 1))])
def test_a_question_without_a_position_of_the_program_is_refused(position: Position | None) -> None:
    program = Program(single(type(QUESTIONS[0])), (), SETTING)
    assert admitted(program, ProgramState(), QUESTIONS[0].at(position), 0) is None
    assert admitted(program, ProgramState(), program.placed(ProgramState(), QUESTIONS[0])[0], 0) is not None
