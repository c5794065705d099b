"""The automaton of a program's phases: which questions may begin them, and follow a place in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from privfed.core.asking.phases import Among, Cycle, Form, Phase, Phases

Place = tuple[int, ...]
"""Where a reading stands in phases: (part, times), and for a cycle the place within its body after it."""


@dataclass(frozen=True, slots=True)
class Step:
    """A question that may come next: its phase, the place after it, and what is forgotten before it."""

    place: Place
    phase: Phase
    forgets: tuple[str, ...] = ()

    def within(self, part: int, times: int, forgets: tuple[str, ...] = ()) -> Step:
        """Return the step as one of the body of part `part`, in its turn `times`."""
        return Step((part, times, *self.place), self.phase, (*forgets, *self.forgets))


def _optional(parts: Iterable[Phase | Cycle]) -> bool:
    """Say whether all of some phases may be left out."""
    return all(part.least == 0 or (isinstance(part, Cycle) and _optional(part.body)) for part in parts)


def _first(parts: Phases, begin: int = 0) -> Iterator[Step]:
    """Yield the questions with which phases may begin, from part `begin` on."""
    for i, part in enumerate(parts[begin:], begin):
        if part.most == 0:
            continue
        if isinstance(part, Phase):
            yield Step((i, 1), part)
        else:
            yield from (step.within(i, 1, part.forgets) for step in _first(part.body))
        if not _optional([part]):
            return


def _ended(parts: Phases, place: Place) -> bool:
    """Say whether phases may end at a place."""
    if not place:
        return _optional(parts)
    i, times, *inner = place
    part = parts[i]
    whole = isinstance(part, Phase) or _ended(part.body, tuple(inner))
    enough = times >= part.least or (isinstance(part, Cycle) and _optional(part.body))
    return whole and enough and _optional(parts[i + 1 :])


def _next(parts: Phases, place: Place) -> Iterator[Step]:
    """Yield the questions that may come next at a place."""
    if not place:
        yield from _first(parts)
        return
    i, times, *inner = place
    part, whole = parts[i], True
    if isinstance(part, Cycle):
        yield from (step.within(i, times) for step in _next(part.body, tuple(inner)))
        whole = _ended(part.body, tuple(inner))
    if not whole:
        return
    if times < part.most:
        if isinstance(part, Phase):
            yield Step((i, times + 1), part)
        else:
            yield from (step.within(i, times + 1, part.forgets) for step in _first(part.body))
    if times >= part.least or (isinstance(part, Cycle) and _optional(part.body)):
        yield from _first(parts, i + 1)


def fewest(part: Phase | Cycle) -> int:
    """Return after how many turns a part that was begun may end, as far as their number goes."""
    return 1 if isinstance(part, Cycle) and _optional(part.body) else max(1, part.least)


def standing(parts: Phases, place: Place) -> tuple[Place, Place]:
    """Return where a place stands, and the numbers of turns there that only bound how many may follow.

    Property: of two places that stand alike, the one whose every number is
    at most the other's may be followed by all that may follow the other.
    """
    if not place:
        return (), ()
    i, times, *rest = place
    part = parts[i]
    inner = standing(part.body if isinstance(part, Cycle) else (), tuple(rest))
    # Once a part may end, a turn more or less matters to its most turns alone.
    if times >= fewest(part):
        return (i, -1, *inner[0]), (times, *inner[1])
    return (i, times, *inner[0]), inner[1]


@lru_cache(maxsize=1 << 14)
def onward(parts: Phases, place: Place) -> tuple[tuple[Step, ...], bool]:
    """Return what may come next at a place, and whether the phases may end there."""
    return tuple(_next(parts, place)), _ended(parts, place)


@lru_cache(maxsize=1 << 10)
def most_questions(parts: Phases) -> int:
    """Return the most questions that phases have."""
    return sum(part.most * (1 if isinstance(part, Phase) else most_questions(part.body)) for part in parts)


def kinds(parts: Iterable[Phase | Cycle]) -> frozenset[type] | None:
    """Return the classes of the questions in phases; None where a form may have any."""
    found = [kinds(one.body) if isinstance(one, Cycle) else _kinds(one.form) for one in parts]
    return None if None in found else frozenset[type]().union(*(one for one in found if one is not None))


def _kinds(rule: object) -> frozenset[type] | None:
    if isinstance(rule, Among):
        found = [_kinds(one) for one in rule.rules]
        return None if None in found else frozenset[type]().union(*(one for one in found if one is not None))
    return frozenset((rule.kind,)) if isinstance(rule, Form) else None
