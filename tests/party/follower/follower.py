"""The follower of before requests stated their position: it follows every reading of the questions so far.

What is admitted with a stated position, it admits too (`tests/party/test_position.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from privfed.core.asking.phases import OF_THE_RUN, Kept, Phases
from privfed.core.asking.question import Question
from privfed.core.roles.conversation import Setting
from privfed.errors import PolicyError
from privfed.party.program import REFUSED
from privfed.questions.ranges import Found
from tests.party.follower.automaton import Place, Step, kinds, most_questions, onward
from tests.party.follower.readings import MOST_REMEMBERED, Branch, Followed, Onward, Parts, Readings

Next = tuple[tuple[int, ...], Step]
"""Metrics that are used once a question is asked, and the question."""

Meaning = tuple[tuple[str, bytes], ...]


class _Memory:
    """What was found, since simulated clients follow a program together."""

    def __init__(self, parts: Parts) -> None:
        self.onward, self._parts = Onward(parts), parts
        self._asked: tuple[Question, bytes] | None = None
        self._index = -1
        self._found: dict[tuple[Followed, bytes], Followed] = {}
        self._read: tuple[bytes, dict[object, Meaning | None]] = (b"", {})
        self._readings: dict[Followed, tuple[int, Readings]] = {}
        self._steps: dict[tuple[tuple[int, ...], Place], tuple[Next, ...]] = {}
        self._ahead: dict[tuple[tuple[int, ...], int], frozenset[type] | None] = {}

    def steps(
        self, branch: Branch, find: Callable[[tuple[int, ...], Place], Iterator[Next]]
    ) -> tuple[Next, ...]:
        """Return what may be asked next in a reading, with the metrics that are used then."""
        if len(self._steps) > MOST_REMEMBERED:
            self._steps.clear()
        key = branch.used, branch.place
        if key not in self._steps:
            self._steps[key] = tuple(find(*key))
        return self._steps[key]

    def leads(self, branch: Branch, kind: type, to_come: Callable[[tuple[int, ...], int], Phases]) -> bool:
        """Say whether a question of a class may come after a reading, at once or later."""
        key = branch.used, branch.place[0] if branch.place else 0
        if key not in self._ahead:
            self._ahead[key] = kinds(to_come(*key))
        ahead = self._ahead[key]
        return ahead is None or kind in ahead

    def digest(self, question: Question) -> bytes:
        """Return SHA-256 of a question's encoding."""
        if self._asked is None or self._asked[0] is not question:
            self._asked = (question, hashlib.sha256(question.to_bytes()).digest())
        return self._asked[1]

    def of(self, index: int) -> dict[tuple[Followed, bytes], Followed]:
        """Return for sum `index`: what was known before and the question's digest -> what is known."""
        if index != self._index:
            self._index, self._found = index, {}
        return self._found

    def readings(self, followed: Followed) -> tuple[int, Readings]:
        """Return the readings of what a client remembers, and their base."""
        known = self._readings.get(followed)
        return Readings.of(followed.branches, self._parts) if known is None else known

    def followed(self, index: int, asked: bytes, found: tuple[int, Readings]) -> Followed:
        """Return what a client remembers after a sum, of which the readings are known."""
        if len(self._readings) > MOST_REMEMBERED:
            self._readings.clear()
        followed = Followed(index, asked, found[1].at(found[0]))
        self._readings[followed] = found
        return followed

    def read(self, asked: bytes) -> dict[object, Meaning | None]:
        """Return what is kept after a question, by phase and what was kept; None if it is another's."""
        if self._read[0] != asked:
            self._read = (asked, {})
        return self._read[1]


@dataclass(frozen=True, slots=True)
class Program:
    """What may be asked in a fit: the algorithm's phases, then each metric's at most once, in any order.

    Args:
        phases: of the algorithm; empty for a program of metrics alone.
        metrics: phases of each metric that may follow.
        setting: what is agreed; with privacy, every question must be a noised one as was agreed.
    """

    phases: Phases
    metrics: tuple[Phases, ...]
    setting: Setting
    _memory: _Memory = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_memory", _Memory(self._parts))

    @property
    def max_sums(self) -> int:
        """Most sums that the program has."""
        return sum(map(most_questions, (self.phases, *self.metrics)))

    def after(self, followed: Followed, question: Question, index: int) -> Followed:
        """Return what is known once a question is answered as sum `index`.

        The same question of the same sum may be asked again, as after clients were lost.

        Raises:
            PolicyError: the program does not ask this; the text is the code of the refusal.
        """
        asked = self._memory.digest(question)
        if index == followed.index and asked == followed.asked:
            return followed
        found = self._memory.of(index)
        if (followed, asked) not in found:
            found[followed, asked] = self._after(followed, question, index, asked)
        return found[followed, asked]

    def _after(self, followed: Followed, question: Question, index: int, asked: bytes) -> Followed:
        if not followed.index < index < self.max_sums:
            raise PolicyError(REFUSED)
        plain, onward = question, self._memory.onward
        read, kind = self._memory.read(asked), type(plain)
        found: tuple[int, Readings] | None = self._memory.readings(followed)
        for _ in range(index - followed.index - 1):
            found = found and onward.after(*found, kind, lambda one: self._passed(one, kind))
        found = found and onward.after(*found, asked, lambda one: self._matched(one, plain, read))
        if found is None:
            raise PolicyError(REFUSED)
        return self._memory.followed(index, asked, found)

    def _to_come(self, used: tuple[int, ...], part: int) -> Phases:
        """Return what is ahead: the parts from one on, of the algorithm or the last metric; other metrics."""
        other = (phases for metric, phases in enumerate(self.metrics) if metric not in used)
        return (*self._parts(used)[part:], *chain.from_iterable(other))

    def _parts(self, used: tuple[int, ...]) -> Phases:
        return self.metrics[used[-1]] if used else self.phases

    def _steps(self, used: tuple[int, ...], place: Place) -> Iterator[tuple[tuple[int, ...], Step]]:
        """Yield what may be asked next, with the metrics that are used then."""
        steps, ended = onward(self._parts(used), place)
        yield from ((used, step) for step in steps)
        if ended:
            for metric, phases in enumerate(self.metrics):
                if metric not in used:
                    # In which order metrics were asked makes no difference to what may follow.
                    yield from (((*sorted(used), metric), step) for step in onward(phases, ())[0])

    def _passed(self, branch: Branch, kind: type) -> Iterator[Branch]:
        """Yield the readings after a question that this client did not see, if one of a class may follow."""
        for used, step in self._memory.steps(branch, self._steps):
            after = Branch(used, step.place, _kept(_without(branch, step)))
            if self._memory.leads(after, kind, self._to_come):
                yield after

    def _matched(
        self, branch: Branch, question: Question, read: dict[object, Meaning | None]
    ) -> Iterator[Branch]:
        """Yield the readings after a question; `read` keeps what it means where, as many readings agree."""
        for used, step in self._memory.steps(branch, self._steps):
            before = _without(branch, step)
            key = (id(step.phase), _kept(before))
            if key not in read:
                read[key] = self._meant(step, before, question)
            kept = read[key]
            if kept is not None:
                yield Branch(used, step.place, kept)

    def _meant(self, step: Step, before: Kept, question: Question) -> Meaning | None:
        """Return what is kept where a question is that of a step; None where it is not."""
        kept = step.phase.form.read(question, before)
        if kept is None:
            return None
        # The ranges of a run are checked where they first appear; then they stay.
        begins = OF_THE_RUN.name in kept.keys() - before.keys()
        if begins and Found(self.setting).read(question.ranges, before) is None:
            return None
        return _kept(kept)


def _without(branch: Branch, step: Step) -> Kept:
    return {name: value for name, value in branch.kept if name not in step.forgets}


def _kept(kept: Kept) -> Meaning:
    return tuple(sorted(kept.items()))
