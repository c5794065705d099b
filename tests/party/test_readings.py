"""What is followed is what a literal version follows: every reading, each by itself, nothing remembered."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import privfed
from privfed.core.asking.phases import Among, Cycle, Form, Phase, Phases, Same, Shape
from privfed.core.asking.question import Question, question_from_bytes
from privfed.core.record.transcript import Asked
from privfed.core.roles.conversation import Setting
from privfed.core.values.domain import Box, Ranges
from privfed.errors import PolicyError
from privfed.party.automaton import Place, standing
from privfed.party.program import REFUSED, Program, _kept, _without
from privfed.party.readings import Branch, Followed, widest
from privfed.questions.inertia import ClientScores, Inertia
from privfed.questions.lloyd import LloydSums
from tests.default_run import examples
from tests.some import some

KINDS = (LloydSums, Inertia, ClientScores)
LOW, HIGH, ROWS = np.zeros(1), np.ones(1), 4
SETTING = Setting(("a", "b"), 1, Box(LOW, HIGH, ROWS))
QUESTIONS = [
    kind(ranges=Ranges(LOW, HIGH, ROWS), centers=np.full((1, 1), middle))
    for kind in KINDS
    for middle in (0.25, 0.75)
]


def forms() -> st.SearchStrategy[Form | Among]:
    """Forms of one of three classes, with any centers or the same as before; or of either of two."""
    rules = st.sampled_from([Shape(1, 1), Same("centers", Shape(1, 1))])
    one = st.builds(lambda kind, rule: Form(kind, centers=rule), st.sampled_from(KINDS), rules)
    return one | st.builds(lambda a, b: Among((a, b)), one, one)


@st.composite
def phases(draw: st.DrawFn, depth: int = 2, most: int = 3) -> Phases:
    """Phases of cycles within cycles."""
    found: list[Phase | Cycle] = []
    for _ in range(draw(st.integers(1, most))):
        least = draw(st.integers(0, 2))
        turns = least, least + draw(st.integers(0, 4))
        if depth and draw(st.booleans()):
            forgets = draw(st.sampled_from([(), ("centers",)]))
            found.append(Cycle(draw(phases(depth - 1, 2)), *turns, forgets))
        else:
            found.append(Phase(draw(forms()), *turns))
    return tuple(found)


programs = st.builds(Program, phases(), st.lists(phases(1, 2), max_size=2).map(tuple), st.just(SETTING))


def literal(program: Program, before: set[Branch], question: Question | None) -> set[Branch]:
    """Return all readings after a question, or after one that was not seen."""
    found = set()
    for one in before:
        for used, step in program._steps(one.used, one.place):
            kept = _without(one, step)
            after = _kept(kept) if question is None else program._meant(step, kept, question)
            if after is not None:
                found.add(Branch(used, step.place, after))
    return found


def followed(program: Program, state: Followed, question: Question, index: int) -> Followed | None:
    """Return what is known after a question; None where it is refused."""
    try:
        return program.after(state, question, index)
    except PolicyError as error:
        assert str(error) == REFUSED
        return None


@settings(max_examples=examples(400), deadline=None)
@given(program=programs, data=st.data())
def test_clients_that_see_some_sums_refuse_what_the_literal_version_refuses(
    program: Program, data: st.DataObject
) -> None:
    states = [Followed()] * 3
    every = [{Branch()} for _ in states]
    for index in some(range(data.draw(st.integers(1, 12), label="sums"))):
        question = data.draw(st.sampled_from(QUESTIONS), label=f"sum {index}")
        for client, state in some(enumerate(states)):
            expected = literal(program, every[client], question) if index < program.max_sums else set()
            after = None
            if data.draw(st.integers(0, 2), label=f"asked {client}"):
                after = followed(program, state, question, index)
                assert (after is None) == (not expected)
            if after is None:
                every[client] = literal(program, every[client], None)
            else:
                states[client], every[client] = after, expected
                assert set(after.branches) == widest(expected, program._parts)


@settings(max_examples=examples(200), deadline=None)
@given(parts=phases(), data=st.data())
def test_of_places_that_stand_alike_fewer_turns_may_be_followed_by_all_that_more_may(
    parts: Phases, data: st.DataObject
) -> None:
    program = Program(parts, (), SETTING)
    walked = [place for length in range(8) for place in _places(program, length)]
    alike: dict[Place, list[tuple[Place, Place]]] = {}
    for place in dict.fromkeys(walked):
        where, turns = standing(parts, place)
        alike.setdefault(where, []).append((turns, place))
    group = data.draw(st.sampled_from(list(alike.values())))
    (few, first), (many, second) = (data.draw(st.sampled_from(group)) for _ in range(2))
    if all(a <= b for a, b in zip(few, many, strict=True)):
        for length in range(1, 5):
            assert _words(program, second, length) <= _words(program, first, length)


def _places(program: Program, length: int) -> list[Place]:
    found: set[Place] = {()}
    for _ in range(length):
        found = {step.place for place in found for _, step in program._steps((), place)}
    return sorted(found)[:50]


def _words(program: Program, place: Place, length: int) -> set[tuple[int, ...]]:
    """Return the sequences of phases that may follow a place."""

    def words(place: Place, length: int) -> Iterator[tuple[int, ...]]:
        if not length:
            yield ()
            return
        for _, step in program._steps((), place):
            yield from ((id(step.phase), *rest) for rest in words(step.place, length - 1))

    return set(words(place, length))


def test_what_was_found_at_the_last_turn_is_not_taken_for_an_earlier_one() -> None:
    ask, then = Form(LloydSums, centers=Shape(1, 1)), Form(Inertia, centers=Shape(1, 1))
    program = Program((Cycle((Phase(ask), Phase(then, 0)), 1, 5),), (), SETTING)
    sums, last, many = QUESTIONS[0], QUESTIONS[1], Followed()
    for index in range(4):
        many = program.after(many, sums, index)
    many = program.after(many, last, 4)
    # Of the three sums that this one missed, the middle one may have been of the same turn as the first.
    few = program.after(program.after(Followed(), sums, 3), last, 4)
    assert followed(program, many, sums, 5) is None
    assert followed(program, few, sums, 5) is not None


def test_a_client_that_misses_most_of_many_rounds_follows_few_readings() -> None:
    rng = np.random.default_rng(2)
    rows = [rng.normal(size=(20, 2)) for _ in range(12)]
    model = privfed.DWFKMeans(
        3, local_iter=2, max_iter=60, tol=0.0, learning_rate=0.1, clients_per_round=3, protocol="plain",
        random_state=1,
    )  # fmt: skip
    model.fit(rows)
    federation = model.federation_
    algorithm = model.make_algorithm(2, federation.configuration.seed)
    program, most = Program.of(algorithm, federation.setting), 0
    for client in range(12):
        state = Followed()
        for one in federation.transcript.of(Asked):
            if client in one.clients:
                state = program.after(state, question_from_bytes(one.question), one.index)
                most = max(most, len(state.branches))
    assert most <= 2
