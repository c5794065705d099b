"""What a client knows of where a run stands: the readings that the questions so far allow.

A client that missed sums does not know how many turns of a cycle they were. Of readings that differ in such
numbers the least allows all that the others do, so that the others are left out (`widest`). And as long as
the most turns are far, from which number it goes on makes no difference to what may follow, so that what was
found from one is remembered for all (`Onward`): simulated clients that follow one program share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from privfed.core.asking.phases import Phases
from privfed.core.stored.encoding import Codec
from tests.party.follower.automaton import Place, fewest, standing

MOST_REMEMBERED = 1 << 14
"""Most readings whose next ones are remembered."""


class Branch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, order=True, cache_hash=True, gc=False):
    """One reading of the questions so far.

    Args:
        used: metrics that were asked, ascending but for the last of them, which may not have ended.
        place: within the algorithm's phases, or within those of the last metric; empty before the first.
        kept: name of a `Same` -> digest of its value, by name.
    """

    used: tuple[int, ...] = ()
    place: Place = ()
    kept: tuple[tuple[str, bytes], ...] = ()


class Followed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True, gc=False):
    """What a client remembers of a run.

    Args:
        index: number of the last sum that it answered; -1 before the first.
        asked: digest of that sum's question.
        branches: the readings that are possible, each once, in order; one may be left out after which no more
            may be asked than after another.
    """

    index: int = -1
    asked: bytes = b""
    branches: tuple[Branch, ...] = (Branch(),)


FOLLOWED: Codec[Followed] = Codec(Followed, "place in a program", 1)

Parts = Callable[[tuple[int, ...]], Phases]
"""Returns the phases in which a reading's place is, given the metrics that were used."""

_FAR = 1 << 62


def widest(branches: Iterable[Branch], parts: Parts) -> frozenset[Branch]:
    """Leave out readings after which no more may be asked than after another."""
    alike: dict[object, list[tuple[Place, Branch]]] = {}
    for one in branches:
        where, turns = standing(parts(one.used), one.place)
        alike.setdefault((one.used, where, one.kept), []).append((turns, one))
    return frozenset(branch for group in alike.values() for branch in _least(group))


def _least(group: list[tuple[Place, Branch]]) -> Iterator[Branch]:
    """Yield the readings of a group with the least numbers of turns: none has more of all than another."""
    kept = list[Place]()
    # In order, so that none comes before one with at most its numbers.
    for turns, branch in sorted(group):
        if not any(all(a <= b for a, b in zip(one, turns, strict=True)) for one in kept):
            kept.append(turns)
            yield branch


class Readings(NamedTuple):
    """Some readings, where those in one part of the phases count its turns from a base.

    Args:
        part: the metrics used and the part whose turns are counted from the base; None where none are.
        lowest: the lowest base from which the part may end.
        highest: the highest base from which the part's most turns are farther than one question.
        branches: the readings, in order; those in the part with the base taken off their turns, which leaves
            the order as it is.
    """

    part: tuple[tuple[int, ...], int] | None
    lowest: int
    highest: int
    branches: tuple[Branch, ...]

    @classmethod
    def of(
        cls, found: Iterable[Branch], parts: Parts, part: tuple[tuple[int, ...], int] | None = None
    ) -> tuple[int, Readings]:
        """Return readings and their base.

        Args:
            found: at least one reading, each once, in order.
            parts: as in `widest`.
            part: whose turns to count from a base, if a reading is in it; otherwise that of the first one.
        """
        branches = tuple(found)
        if part is None or not any(_in(part, one) for one in branches):
            first = branches[0]
            part = (first.used, first.place[0]) if first.place else None
        if part is not None:
            turns = [one.place[1] for one in branches if _in(part, one)]
            base, phases = min(turns), parts(part[0])
            highest = phases[part[1]].most - 1 - (max(turns) - base)
            free = all(standing(phases, one.place)[0][1] < 0 for one in branches if _in(part, one))
            if free and base <= highest:
                lowest = fewest(phases[part[1]])
                return base, cls(part, lowest, highest, _moved(branches, part, -base))
        return 0, cls(None, 0, _FAR, branches)

    def at(self, base: int) -> tuple[Branch, ...]:
        """Return the readings themselves, in order."""
        return self.branches if self.part is None else _moved(self.branches, self.part, base)


def _in(part: tuple[tuple[int, ...], int], branch: Branch) -> bool:
    return branch.used == part[0] and branch.place[:1] == (part[1],)


def _moved(branches: tuple[Branch, ...], part: tuple[tuple[int, ...], int], by: int) -> tuple[Branch, ...]:
    return tuple([_turned(one, by) if _in(part, one) else one for one in branches])


def _turned(branch: Branch, by: int) -> Branch:
    part, turns, *rest = branch.place
    return Branch(branch.used, (part, turns + by, *rest), branch.kept)


class Onward:
    """Goes from readings to those after a question, and remembers what it found.

    Args:
        parts: as in `widest`.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._found: dict[tuple[Readings, object], tuple[bool, int, Readings] | None] = {}

    def after(
        self, base: int, here: Readings, asked: object, find: Callable[[Branch], Iterable[Branch]]
    ) -> tuple[int, Readings] | None:
        """Return the readings after a question, and their base; None where there are none.

        Args:
            base: of the readings before.
            here: the readings before.
            asked: what the result depends on besides them.
            find: returns the readings after the question, given one before it.
        """
        key = here, asked
        if key not in self._found:
            # Found from the lowest base, as most places there were looked at before.
            self._remember(key, find)
        if key not in self._found:
            found = self._next(here.at(base), find)
            return Readings.of(found, self._parts, here.part) if found else None
        known = self._found[key]
        if known is None:
            return None
        counted, turns, after = known
        turns += base if counted else 0
        return (turns, after) if turns <= after.highest else Readings.of(after.at(turns), self._parts)

    def _remember(self, key: tuple[Readings, object], find: Callable[[Branch], Iterable[Branch]]) -> None:
        """Find the readings after a question, and remember them if they hold for every base."""
        if len(self._found) > MOST_REMEMBERED:
            self._found.clear()
        here = key[0]
        found = self._next(here.at(here.lowest), find)
        if not found:
            self._found[key] = None
            return
        turns, after = Readings.of(found, self._parts, here.part)
        counted = here.part is not None and after.part == here.part
        # Where the most turns are near, what was found is not true of other numbers.
        if counted or here.part is None or not any(_in(here.part, one) for one in found):
            self._found[key] = (counted, turns - here.lowest if counted else turns, after)

    def _next(self, before: Iterable[Branch], find: Callable[[Branch], Iterable[Branch]]) -> list[Branch]:
        return sorted(widest({after for one in before for after in find(one)}, self._parts))
