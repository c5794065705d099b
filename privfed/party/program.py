"""The program of a fit, followed by a client: it answers only what the agreed algorithm may ask next.

A client knows no totals, so that it can tell the form of a question only: its class and options, the shapes
of its arrays, what follows from the seed, and where it stands in the run. A client that was not asked some
sums (it is in no cohort, or was lost) knows from a sum's number how many passed by, and takes each of them as
any question that was possible then.

Following is pure: `after` takes what is known (`Followed`, which `FOLLOWED` stores) and returns what is known
next. Where several readings of the questions so far are possible, all are followed, but those after which no
more may be asked than after another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

from privfed.core.agreed.bounds import TOO_LARGE, check_size
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.program import Of, built, written
from privfed.core.asking.phases import OF_THE_RUN, Kept, Phased, Phases
from privfed.core.asking.question import Question, question_from_bytes
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import Setting
from privfed.core.roles.engine import Answerer, StateStore
from privfed.core.values.domain import Box, Domain
from privfed.core.values.guarantee import Noise
from privfed.errors import ArgumentError, PolicyError
from privfed.party.automaton import Place, Step, kinds, most_questions, onward
from privfed.party.readings import MOST_REMEMBERED, Branch, Followed, Onward, Parts, Readings
from privfed.privacy.noised import Noised
from privfed.questions.ranges import Found

REFUSED = "program"
"""Code of the refusal of a question that the program does not ask next."""


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

    @classmethod
    def of(cls, algorithm: object, setting: Setting, metrics: Iterable[Phased] = ()) -> Program:
        """Return the program of an algorithm and of metrics that may follow it.

        Raises:
            ArgumentError: the algorithm declares no phases.
        """
        if not isinstance(algorithm, Phased):
            raise ArgumentError(
                f"{type(algorithm).__name__} does not declare what it asks, so that clients cannot check its "
                "questions: give it a method phases(setting) (docs/extending.md)."
            )
        return cls(algorithm.phases(setting), tuple(one.phases(setting) for one in metrics), setting)

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
        plain, onward = self._without_noise(question), self._memory.onward
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

    def followed(self, asked: Iterable[tuple[int, bytes]]) -> Followed:
        """Return what is known after sums that are on record.

        Args:
            asked: index and encoded question of each sum, in order; a sum may stand twice.

        Raises:
            PolicyError: the program does not ask one of them.
        """
        found = Followed()
        for index, question in asked:
            found = self.after(found, question_from_bytes(question), index)
        return found

    def _without_noise(self, question: Question) -> Question:
        terms = self.setting.privacy
        if terms is None:
            return question
        if not isinstance(question, Noised):
            raise PolicyError(REFUSED)
        agreed = (terms.rehearsal, terms.noise == Noise.SERVER, terms.mechanism)
        if (question.rehearsal, question.by_server, question.mechanism) != agreed:
            raise PolicyError(REFUSED)
        return question.inner

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


def refuse_size(configuration: Configuration) -> None:
    """Refuse an agreement with numbers beyond all bounds, before anything is built from it.

    Raises:
        PolicyError: it has one; the text is the code.
    """
    try:
        check_size(configuration)
    except ArgumentError:
        raise PolicyError(TOO_LARGE) from None


def agreed_program(
    configuration: Configuration, domain: Domain | None = None, own: object | None = None
) -> Program | None:
    """Return the program of an agreement; None where it declares none.

    Args:
        configuration: what was agreed.
        domain: the declared domain, where that is a ball; a box is in the agreement.
        own: in a simulation the algorithm itself, whose class need not be registered.

    Raises:
        ArgumentError: this party runs other versions, or cannot build what was agreed.
        PolicyError: something that is agreed on is too large to be built (`refuse_size`).
    """
    refuse_size(configuration)
    agreed = configuration.program
    if agreed is None:
        return None
    agreed.check_versions()
    algorithm = None if agreed.algorithm is None else _algorithm(agreed.algorithm, own)
    setting = setting_of(configuration, domain)
    metrics = tuple(built(one).phases(setting) for one in agreed.metrics)
    if algorithm is None:
        return Program((), metrics, setting)
    return replace(Program.of(algorithm, setting), metrics=metrics)


def _algorithm(agreed: Of, own: object | None) -> object:
    try:
        return built(agreed)
    except ArgumentError:
        if own is None or written(own) != agreed:
            raise
        return own


def setting_of(configuration: Configuration, domain: Domain | None = None) -> Setting:
    """Return the public facts that an agreed algorithm starts from.

    Args:
        configuration: what was agreed.
        domain: the declared domain, where that is a ball; by default the agreed box.
    """
    agreed = configuration
    if domain is None and agreed.low is not None and agreed.high is not None:
        domain = Box(agreed.low.to_numpy(), agreed.high.to_numpy(), agreed.max_rows)
    return Setting(
        agreed.clients, agreed.n_features, domain, privacy=agreed.noising_terms, noising=agreed.noising
    )


class ProgramAnswerer:
    """A client's answerer that follows the agreed program; refusals depend on questions, never on data.

    Args:
        answerer: answers questions on the client's data.
        program: what was agreed.
        store: keeps what was asked so far (`FOLLOWED`), before an answer is given.
    """

    def __init__(self, answerer: Answerer, program: Program, store: StateStore) -> None:
        self._answerer, self._program, self._store = answerer, program, store

    def __call__(self, question: Question, index: int) -> tuple[Statistics, int]:
        """Answer a question that the program asks next.

        Raises:
            PolicyError: it does not; the text is the code of the refusal.
        """
        with self._store.transaction() as transaction:
            followed = transaction.load() or Followed()
            transaction.save(self._program.after(followed, question, index))
        return self._answerer(question, index)
