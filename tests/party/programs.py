"""Programs drawn at random: phases of cycles within cycles, with questions of three classes."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from privfed.core.asking.phases import Among, Cycle, Form, Phase, Phases, Rule, Same, Shape
from privfed.core.asking.question import Place, Position
from privfed.core.roles.conversation import Setting
from privfed.core.values.domain import Box, Ranges
from privfed.party.program import Program
from privfed.questions.lloyd import ClientScores, Inertia, LloydSums
from tests.party.follower.automaton import onward

KINDS = (LloydSums, Inertia, ClientScores)
LOW, HIGH, ROWS = np.zeros(1), np.ones(1), 4
SETTING = Setting(("a", "b"), 1, Box(LOW, HIGH, ROWS))
QUESTIONS = [
    kind(ranges=Ranges(LOW, HIGH, ROWS), centers=np.full((1, 1), middle))
    for kind in KINDS
    for middle in (0.25, 0.75)
]


ANY, SAME = Shape(1, 1), Same("centers", Shape(1, 1))


def forms(*rules: Rule) -> st.SearchStrategy[Form | Among]:
    """Forms of one of three classes, whose centers one of some rules allows; or of either of two."""
    one = st.builds(
        lambda kind, rule: Form(kind, centers=rule), st.sampled_from(KINDS), st.sampled_from(rules)
    )
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
            found.append(Phase(draw(forms(ANY, SAME)), *turns))
    return tuple(found)


@st.composite
def clear_phases(draw: st.DrawFn, depth: int = 2, most: int = 3, turns_forget: bool | None = None) -> Phases:
    """Phases whose names have one meaning: of the whole run, or of a turn of an innermost cycle."""
    forget = draw(st.booleans()) if turns_forget is None else turns_forget
    found: list[Phase | Cycle] = []
    for _ in range(draw(st.integers(1, most))):
        least = draw(st.integers(0, 2))
        turns = least, least + draw(st.integers(0, 4))
        if depth and draw(st.booleans()):
            forgets = ("centers",) if forget and depth == 1 else ()
            found.append(Cycle(draw(clear_phases(depth - 1, 2, forget)), *turns, forgets))
        else:
            rule = draw(st.sampled_from([ANY] if forget and depth else [ANY, SAME]))
            found.append(Phase(Form(draw(st.sampled_from(KINDS)), centers=rule), *turns))
    return tuple(found)


MOST = 6


def walked(parts: Phases, begin: Place) -> list[set[Place]]:
    """Return the places that may be reached after 1, 2, ... sums."""
    found, here = [], {begin}
    for _ in range(MOST + 1):
        here = {step.place for place in here for step in onward(parts, place)[0]}
        found.append(here)
    return found


def positions(program: Program, begin: Position | None = None) -> list[Position]:
    """Return positions of a program, those within few sums of one or of the start; and some that it lacks."""
    found = [
        Position(),
        Position((), (0,)),
        Position((), (9, 1)),
        Position((0, 0), (0, 1)),
        Position((7,), (0, 1)),
    ]
    start = Position() if begin is None else begin
    used = tuple(sorted(start.used))
    orders = {(), start.used, *((*used, one) for one in range(len(program.metrics))), (0, 1), (1, 0)}
    for order in sorted(orders):
        if all(one < len(program.metrics) for one in order):
            parts = program.metrics[order[-1]] if order else program.phases
            place = start.place if order == start.used else ()
            found += [Position(order, place) for there in walked(parts, place) for place in sorted(there)]
    return list(dict.fromkeys(found))
