"""The program of a fit: a client answers only what the agreed algorithm may ask at the stated position.

A client knows no totals, so that it can tell the form of a question only: its class and options, the shapes
of its arrays, and what follows from the seed. Each request states its position. The client checks that the
position comes after its last one, and that the question has its form.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from privfed.core.agreed.agreement import check_built, check_size, size_of
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.program import Of, from_agreed, to_agreed
from privfed.core.asking.declaration import TOO_LARGE
from privfed.core.asking.phases import OF_THE_RUN, Among, Form, Phase, Phases, Shape
from privfed.core.asking.question import Position, Question, question_from_bytes
from privfed.core.roles.conversation import Ask, Phased, Setting
from privfed.core.roles.engine import StateStore
from privfed.core.stored.encoding import Codec
from privfed.core.values.domain import Domain
from privfed.core.values.guarantee import Noise
from privfed.core.values.numbers import Integer, Items
from privfed.errors import ArgumentError, PolicyError
from privfed.party.position import (
    forgotten,
    may_end,
    most_questions,
    next_places,
    phase_at,
)
from privfed.privacy.noised import Noised
from privfed.questions.ranges import Found

REFUSED = "program"
"""Code of the refusal of a question that the program does not ask next."""

SEEDED = "agreement:seeded"
"""Code of the refusal of an agreement on seeded noise."""


class ProgramState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, cache_hash=True, gc=False):
    """What a client remembers of a run.

    Args:
        index: number of the last sum that it answered; -1 before the first.
        asked: digest of that sum's question.
        position: where that question stood.
        kept: name of a `Same` -> digest of its value, by name.
    """

    index: Integer = -1
    asked: bytes = b""
    position: Position = Position()
    kept: Items[tuple[str, bytes]] = ()


PROGRAM_STATE: Codec[ProgramState] = Codec(ProgramState, "position in a program", 2)


class _Memory:
    """What was found, since simulated clients follow a program together."""

    def __init__(self) -> None:
        self._question: Question | None = None
        self._digest, self._sum = b"", (-1, b"")
        self._found: dict[ProgramState, ProgramState] = {}

    def of(self, question: Question, index: int) -> tuple[bytes, dict[ProgramState, ProgramState]]:
        """Return a question's digest (SHA-256); and for it as sum `index`: known before -> known after."""
        if self._question is not question:
            self._question, self._digest = question, hashlib.sha256(question.to_bytes()).digest()
        if self._sum != (index, self._digest):
            self._sum, self._found = (index, self._digest), {}
        return self._digest, self._found


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
    _memory: _Memory = field(init=False, repr=False, compare=False, default_factory=_Memory)

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

    def after(self, state: ProgramState, question: Question, index: int) -> ProgramState:
        """Return what is known once a question is answered as sum `index`.

        The same question of the same sum may be asked again, as after clients were lost.

        Raises:
            PolicyError: the program does not ask this there; the text is the code of the refusal.
        """
        asked, found = self._memory.of(question, index)
        if index == state.index and asked == state.asked:
            return state
        if state not in found:
            position = question.position
            if position is None or not self._leads(state, position, index):
                raise PolicyError(REFUSED)
            kept = self._read(state, position, question)
            if kept is None:
                raise PolicyError(REFUSED)
            found[state] = ProgramState(index, asked, position, kept)
        return found[state]

    def state_after(self, asked: Iterable[tuple[int, bytes]]) -> ProgramState:
        """Return what is known after sums that are on record.

        Args:
            asked: index and encoded question of each sum, in order; a sum may stand twice.

        Raises:
            PolicyError: the program does not ask one of them.
        """
        found = ProgramState()
        for index, question in asked:
            found = self.after(found, question_from_bytes(question), index)
        return found

    def placed(
        self, state: ProgramState, question: Question, purpose: str = ""
    ) -> tuple[Question, ProgramState]:
        """Return a question that states its position, and what is known after it but the question's digest.

        Its position is where the program asks it after all before it.

        Args:
            state: what is known after every sum so far.
            question: what is asked. What the program does not ask next states none, and is refused.
            purpose: of its ask; it tells positions apart whose questions have the same form.
        """
        read = {one: self._read(state, one, question) for one in self._following(state.position)}
        found = [one for one, kept in read.items() if kept is not None]
        phases = [phase_at(self._parts(one.used), one.place) for one in found]
        meant = [one for one, phase in zip(found, phases, strict=True) if phase and phase.purpose == purpose]
        position = next(iter((*meant, *found)), None)
        kept = None if position is None else read[position]
        if position is None or kept is None:
            return question.at(None), state
        return question.at(position), ProgramState(state.index + 1, b"", position, kept)

    def _following(self, position: Position) -> list[Position]:
        """Return where the question may stand that comes right after a position."""
        used, place = position.used, position.place
        parts = self._parts(used)
        following = [Position(used, one) for one in next_places(parts, place)]
        if may_end(parts, place):
            for metric in set(range(len(self.metrics))) - set(used):
                following += [
                    Position((*sorted(used), metric), one) for one in next_places(self.metrics[metric], ())
                ]
        return following

    def _leads(self, state: ProgramState, position: Position, index: int) -> bool:
        """Say whether a position comes next; after sums that a client missed, whether it comes later."""
        before, missed = state.position, index - state.index - 1
        if missed < 0 or index >= self.max_sums:
            return False
        if not missed:
            return position in self._following(before)
        *others, last = position.used or (None,)
        known = set(range(len(self.metrics)))
        if others != sorted(set(others)) or not {*position.used} <= known or last in others:
            return False
        if phase_at(self._parts(position.used), position.place) is None:
            return False
        if position.used == before.used:
            return before.place < position.place
        return set(before.used) <= set(others)

    def _read(
        self, state: ProgramState, position: Position, question: Question
    ) -> tuple[tuple[str, bytes], ...] | None:
        """Return what is kept where a question has the form of its position; None where it has not."""
        before, parts = state.position, self._parts(position.used)
        phase = phase_at(parts, position.place)
        if phase is None:
            return None
        forgets = forgotten(parts, before.place if before.used == position.used else (), position.place)
        known = {name: value for name, value in state.kept if name not in forgets}
        kept = self._asked(phase).read(question, known)
        if kept is None:
            return None
        # The ranges of a run are checked where they first appear; then they stay.
        if (OF_THE_RUN.name in kept.keys() - known.keys()) and Found(self.setting).read(
            question.ranges, known
        ) is None:
            return None
        return tuple(sorted(kept.items()))

    def _parts(self, used: tuple[int, ...]) -> Phases:
        return self.metrics[used[-1]] if used else self.phases

    def _asked(self, phase: Phase) -> Form | Among:
        """Return the form of a phase's questions; under privacy with noise of any size, which is paid for."""
        terms = self.setting.privacy
        if terms is None:
            return phase.form
        inner: Any = phase.form
        while isinstance(inner, Among):
            inner = inner.rules[0]
        server, some = terms.noise == Noise.SERVER, Shape((0, 1 << 20))
        noise = {"sigma": some, "limits": some, "by_server": server, "mechanism": terms.mechanism}
        # Their ranges are those of the question in them, whose rule may be another than the run's.
        return Form(Noised, ranges=inner.rules["ranges"], inner=phase.form, **noise)


def sized_algorithm(
    configuration: Configuration,
    domain: Domain | None = None,
    own: object | None = None,
    *,
    totals: bool = False,
) -> Any:
    """Return the agreed algorithm, of which no phases and no run are made yet; None where there is none.

    Args:
        configuration: what was agreed.
        domain: the declared domain, where that is a ball; a box is in the agreement.
        own: in a simulation the algorithm itself, whose class need not be registered.
        totals: whether this client keeps all totals.

    Raises:
        ArgumentError: this party runs other versions, or cannot build what was agreed; or a metric is none.
        PolicyError: it is too large to be followed, or names a number beyond all bounds, in which case
            nothing at all was built; the text is the code.
    """
    with _refusing_size():
        check_size(configuration)
    agreed = configuration.program
    if agreed is None:
        return None
    agreed.check_metrics()
    agreed.check_versions()
    if agreed.algorithm is None:
        return None
    algorithm = _algorithm(agreed.algorithm, own)
    size = size_of(algorithm, setting_of(configuration, domain))
    with _refusing_size():
        check_built(size, totals=totals)
    return algorithm


@contextmanager
def _refusing_size() -> Iterator[None]:
    try:
        yield
    except ArgumentError:
        raise PolicyError(TOO_LARGE) from None


def refuse_seeded(configuration: Configuration) -> None:
    """Refuse an agreement whose noise follows from a seed: it is for clients simulated in one process.

    Raises:
        PolicyError: it is such a one; the text is the code.
    """
    if configuration.privacy is not None and configuration.privacy.seeded:
        raise PolicyError(SEEDED)


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
        PolicyError: something that is agreed on is too large to be built (`sized_algorithm`).
    """
    algorithm = sized_algorithm(configuration, domain, own)
    agreed = configuration.program
    if agreed is None:
        return None
    setting = setting_of(configuration, domain)
    metrics = tuple(from_agreed(one).phases(setting) for one in agreed.metrics)
    if algorithm is None:
        return Program((), metrics, setting)
    return replace(Program.of(algorithm, setting), metrics=metrics)


def _algorithm(agreed: Of, own: object | None) -> object:
    try:
        return from_agreed(agreed)
    except ArgumentError:
        if own is None or to_agreed(own) != agreed:
            raise
        return own


def setting_of(configuration: Configuration, domain: Domain | None = None) -> Setting:
    """Return the public facts that an agreed algorithm starts from.

    Args:
        configuration: what was agreed.
        domain: the declared domain, where that is a ball; by default the agreed box.
    """
    agreed = configuration
    domain = agreed.domain if domain is None else domain
    return Setting(
        agreed.clients, agreed.n_features, domain, privacy=agreed.noising_terms, noising=agreed.noising
    )


class Stated:
    """States the position of each question of a run, for whoever asks all of them.

    Args:
        program: what was agreed.
    """

    def __init__(self, program: Program) -> None:
        self._program, self._known = program, ProgramState()

    def __call__(self, ask: Ask) -> Ask:
        """Return the run's next ask, whose question states its position, if it has one (`Program.placed`)."""
        placed, self._known = self._program.placed(self._known, ask.question, ask.purpose)
        return replace(ask, question=placed)


class ProgramCheck:
    """Admits what the agreed program asks at the position that the question states.

    Args:
        program: what was agreed.
        store: keeps what was asked so far (`PROGRAM_STATE`), before an answer is given.
    """

    def __init__(self, program: Program, store: StateStore) -> None:
        self._program, self._store = program, store

    def __call__(self, question: Question, index: int) -> None:
        """Follow a question; raises as `Program.after`."""
        with self._store.transaction() as transaction:
            transaction.save(self._program.after(transaction.load() or ProgramState(), question, index))
