"""Positions in a program: where a question stands, and how many sums may lie between two positions.

A request states its position: the turn of every cycle, and which metrics were used, those in sums that the
client missed included. The client knows its own last position and how many sums passed by since. If none
did, it admits what may come next (`next_places`), else a position only if just so many sums fill the gap.

Numbers of sums are sets of whole numbers, as bits of one integer: bit n is set where n sums are possible.
Sets are cut off at the number that is asked for, so that their size follows the gap and not the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache, reduce
from operator import or_

from privfed.core.asking.phases import Cycle, Phase, Phases
from privfed.core.asking.question import Place

MOST_MISSED = 1 << 16
"""Most sums that a client may miss in a row."""


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


class Gaps:
    """Sets of the numbers of sums between places, up to a largest number.

    Args:
        most: the largest number that counts.
    """

    def __init__(self, most: int) -> None:
        self._mask = (1 << (most + 1)) - 1

    def between(self, parts: Phases, before: Place, place: Place) -> int:
        """Return how many sums may lie strictly between two places of phases, as a set; 0 for none.

        Args:
            parts: the phases.
            before: the earlier place; empty for the start.
            place: the later place, which exists (`phase_at`).
        """
        (first, turns, *within), (to, turn, *inner) = before or (0, 0), place
        if first > to or (first == to and turns > turn):
            return 0
        if first < to:
            passed = self.rest(parts[first:to], (0, turns, *within))
            return self.sum((passed, self.between(parts[to : to + 1], (), (0, turn, *inner))))
        part, skipped = parts[to], turn - turns - 1
        if isinstance(part, Phase):
            return self._range(skipped, skipped) if turns < turn else 0
        if turns == turn:
            return self.between(part.body, tuple(within), tuple(inner))
        ended = self.rest(part.body, tuple(within)) if turns else 1
        fresh = self.between(part.body, (), tuple(inner))
        return self.sum((ended, self._turns(part, skipped, skipped), fresh))

    def rest(self, parts: Phases, place: Place) -> int:
        """Return how many sums may follow a place until the phases end, as a set.

        A place in turn 0 of a part is before its first turn; the empty place is before all parts.
        """
        first, turns, *within = place or (0, 0)
        begun = (self._left(part, turns, tuple(within)) for part in parts[first : first + 1])
        return self.sum((*begun, *(self._left(part, 0, ()) for part in parts[first + 1 :])))

    def _left(self, part: Phase | Cycle, turns: int, within: Place) -> int:
        """Return how many sums may follow within a part that has come to a place in a turn."""
        least, most = max(0, part.least - turns), part.most - turns
        if isinstance(part, Phase):
            return self._range(least, most)
        if self.rest(part.body, ()) & 1:
            least = 0
        return self.sum((self.rest(part.body, within) if turns else 1, self._turns(part, least, most)))

    def _turns(self, part: Cycle, least: int, most: int) -> int:
        """Return how many sums from `least` to `most` turns of a cycle may have, as a set."""
        # A turn without sums is no turn.
        turn = self.rest(part.body, ()) & ~1
        if least > most:
            return 0
        return self.sum((self._times(turn, least), self._times(turn | 1, most - least)))

    def _times(self, turn: int, times: int) -> int:
        """Return the sums of `times` numbers of a set."""
        found = 1
        # Turns with sums beyond the largest number that counts make no difference.
        for bit in f"{min(times, self._mask.bit_length()) if turn & 1 else times:b}":
            found = self.sum((found, found, turn) if bit == "1" else (found, found))
            if not found:
                return 0
        return found

    def _range(self, low: int, high: int) -> int:
        if low > high:
            return 0
        high = min(high, self._mask.bit_length())
        return ((1 << (high + 1)) - (1 << low)) & self._mask if low <= high else 0

    def sum(self, sets: Iterable[int]) -> int:
        """Return all sums of one number of each set."""
        found = 1
        for one in sets:
            few, many = sorted((found, one), key=lambda other: (other & ~(other << 1)).bit_count())
            spread = [_spread(many, high - low) << low for low, high in _runs(few)]
            found = reduce(or_, spread, 0) & self._mask
        return found


def _runs(found: int) -> Iterator[tuple[int, int]]:
    """Yield the lowest and highest number of each run of consecutive numbers in a set."""
    base = 0
    while found:
        low = (found & -found).bit_length() - 1
        found >>= low
        length = (~found & (found + 1)).bit_length() - 1
        yield base + low, base + low + length - 1
        found >>= length
        base += low + length


def _spread(found: int, width: int) -> int:
    """Return a set with each number from it to `width` above."""
    reached = 0
    while reached < width:
        step = min(reached + 1, width - reached)
        found |= found << step
        reached += step
    return found
