"""Positions in a program: where a question stands, and which questions may come next.

A request states its position: the turn of every cycle, and which metrics were used, those in sums that the
client missed included. A client that missed no sum admits what may come next (`next_places`). One that missed
some admits any later position, so that no phase is asked more often than agreed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from privfed.core.asking.phases import Cycle, Phase, Phases
from privfed.core.asking.question import Place


def phase_at(parts: Phases, place: Place) -> Phase | None:
    """Return the phase at a place; None where there is no such place."""
    if len(place) < 2 or not 0 <= place[0] < len(parts):
        return None
    part, (_, turn, *inner) = parts[place[0]], place
    if not 1 <= turn <= part.most:
        return None
    if isinstance(part, Cycle):
        return phase_at(part.body, tuple(inner))
    return None if inner else part


def forgotten(parts: Phases, before: Place, place: Place) -> frozenset[str]:
    """Return the names of `Same` that are forgotten between two places, since a turn of a cycle began."""
    part = parts[place[0]]
    if isinstance(part, Phase):
        return frozenset()
    if before[:2] == place[:2]:
        return forgotten(part.body, before[2:], place[2:])
    return frozenset(part.forgets) | forgotten(part.body, (), place[2:])


@lru_cache(maxsize=1 << 10)
def most_questions(parts: Phases) -> int:
    """Return the most questions that phases have."""
    return sum(part.most * (1 if isinstance(part, Phase) else most_questions(part.body)) for part in parts)


def may_end(parts: Phases, place: Place) -> bool:
    """Say whether phases may end at a place."""
    first, turns, *within = place or (0, 0)
    for part in parts[first:]:
        body = part.body if isinstance(part, Cycle) else None
        if body is not None and turns and not may_end(body, tuple(within)):
            return False
        # A turn without sums is no turn, so that a cycle of such turns needs none.
        if turns < part.least and (body is None or not may_end(body, ())):
            return False
        turns, within = 0, []
    return True


def next_places(parts: Phases, place: Place) -> Iterator[Place]:
    """Yield the places of the questions that may come next, those with the fewest new turns first."""
    reached, turn, *inner = place or (0, 0)
    for number, part in enumerate(parts[reached:], reached):
        within = tuple(inner)
        if turn and isinstance(part, Cycle):
            yield from ((number, turn, *one) for one in next_places(part.body, within))
            if not may_end(part.body, within):
                return
        if turn < part.most:
            begun = [()] if isinstance(part, Phase) else next_places(part.body, ())
            yield from ((number, turn + 1, *one) for one in begun)
        if not may_end((part,), (0, turn, *within)):
            return
        turn, inner = 0, []
