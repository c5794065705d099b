"""Answers from a client's own rows: what a client needs to answer, and nothing of any other client.

A simulation answers for all its clients in one pass instead (`privfed.engines.in_process.Pool`), with the
functions below; each client's answer is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

import numpy as np

from privfed.core.asking.data import all_within
from privfed.core.asking.question import ERRORS, ClientData, Question, memories_of, parts_of
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.engine import Answerer, ErrorLog, PythonLog, client_generator, note
from privfed.errors import FAILED, PolicyError
from privfed.privacy.noised import Noised
from privfed.privacy.sampler import SeededGenerator

Answer = tuple[Statistics, int]
"""Statistics, and how many rows were clipped into the question's ranges."""


class _Generators(Sequence[np.random.Generator]):
    """The clients' generators for one sum, each made when first used, since most questions draw nothing."""

    def __init__(self, seed: int, names: Sequence[str], index: int, *, seeded: bool) -> None:
        self._seed, self._names, self._index, self._seeded = seed, names, index, seeded
        self._made: dict[int, np.random.Generator] = {}

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, place: int) -> np.random.Generator: ...

    @overload
    def __getitem__(self, place: slice) -> list[np.random.Generator]: ...

    def __getitem__(self, place: int | slice) -> np.random.Generator | list[np.random.Generator]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        if place not in self._made:
            made = client_generator(self._seed, self._names[place], self._index)
            self._made[place] = SeededGenerator(made.bit_generator) if self._seeded else made
        return self._made[place]


def in_order(
    question: Question,
    index: int,
    names: Sequence[str],
    rows: Sequence[ClientData],
    seed: int,
    logs: Sequence[ErrorLog],
    *,
    seeded: bool = False,
) -> tuple[Sequence[Statistics], list[int]]:
    """Answer for several clients in one pass: exactly what each would answer alone.

    Args:
        question: what is asked.
        index: index of the sum in the run.
        names: of the clients.
        rows: their data.
        seed: of the clients' simulation randomness, which name and index key.
        logs: their own logs.
        seeded: whether noise repeats with the seed, and protects nobody; for simulated clients alone.

    Returns:
        Statistics and numbers of clipped rows, in the clients' order.
    """
    within, moved = all_within(rows, question.ranges)
    generators = _Generators(seed, names, index, seeded=seeded)
    # Others without rows add nothing; those without a group of rows say nothing at all.
    asked = [
        i for i, own in enumerate(within) if own.n_rows or (question.asks_all_clients and not own.grouped)
    ]
    answers: Sequence[Statistics]
    if len(asked) == len(within):
        answers = question.answer_all(within, generators)
    else:
        answers = _of_some(question, within, generators, asked)
    for log, data in zip(logs, within, strict=True):
        while data.errors:
            note(log, data.errors.pop(0))
    return answers, moved


def remembering_again(question: Question, clients: Sequence[ClientData]) -> Callable[[], None]:
    """Return a function that has clients remember what they do now: for after an answer that failed."""
    remembers = memories_of(question)
    before = [
        {name: one.codec.to_bytes(one.of(data.memory)) for name, one in remembers.items()} for data in clients
    ]

    def restore() -> None:
        for data, known in zip(clients, before, strict=True):
            data.memory.update({name: one.codec.from_bytes(known[name]) for name, one in remembers.items()})

    return restore


def _of_some(
    question: Question,
    clients: Sequence[ClientData],
    generators: Sequence[np.random.Generator],
    asked: Sequence[int],
) -> list[Statistics]:
    """Answer for several clients, of which only some are asked: the others answer zeros."""
    found = [question.spec.unflatten(np.zeros(question.spec.size)) for _ in clients]
    held = [clients[i] for i in asked], [generators[i] for i in asked]
    for i, answer in zip(asked, question.answer_all(*held) if asked else [], strict=True):
        found[i] = answer
    return found


def answered_alone(
    question: Question,
    index: int,
    name: str,
    data: ClientData,
    seed: int,
    log: ErrorLog,
    *,
    seeded: bool = False,
    silent: bool = False,
) -> Answer:
    """Answer for one client.

    What fails under noise, or where errors are `silent`, is answered as by a client without rows: an error
    would tell of them. Such a client remembers nothing of what failed: it might refuse because of it.

    Raises:
        PolicyError: messages and settings do not allow an answer; or none can be given that is noised.
        Exception: whatever the question's own code raises otherwise.
    """
    kept = isinstance(question, Noised) or silent
    as_before = remembering_again(question, [data] if kept else [])
    for own in (data, data.emptied()):
        try:
            (answer, *_), (moved, *_) = in_order(question, index, [name], [own], seed, [log], seeded=seeded)
            if kept and not np.isfinite(question.spec.flatten(answer)).all():
                raise ArithmeticError("an answer is not finite")
            return answer, moved
        except KeyboardInterrupt:
            raise
        except ERRORS as error:
            # What refuses a client without rows depends on no row.
            if not kept or (isinstance(error, PolicyError) and own is not data):
                raise
            note(log, error)
            as_before()
    if _private(question):
        # Zeros without noise would tell that something failed.
        raise PolicyError(FAILED)
    return question.spec.unflatten(np.zeros(question.spec.size)), 0


def _private(question: Question) -> bool:
    """Say whether rows show only through noise: in the answer, or in how a client trains."""
    declared = question.declaration
    trained = None if declared is None else declared.trained
    return isinstance(question, Noised) or (trained is not None and trained.steps is not None)


def own_answerer(name: str, data: ClientData, seed: int, log: ErrorLog | None = None) -> Answerer:
    """Return the answerer of one client on its own machine, from its own rows alone.

    Its noise is the operating system's.

    Property: whether it answers, and with which code it refuses, depends on questions and on what the owner
    says that rows may be used for, never on rows.

    Args:
        name: the client's, as the configuration has it; it keys the client's generator.
        data: its rows.
        seed: the configuration's.
        log: its own log of errors; by default that of the process.
    """
    kept = PythonLog() if log is None else log

    def answer(question: Question, index: int) -> Answer:
        if code := data.unusable(part.declaration for part in parts_of(question)):
            raise PolicyError(code)
        return answered_alone(question, index, name, data, seed, kept, silent=True)

    return answer
