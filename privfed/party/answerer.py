"""Answers from a client's own rows: what a client needs to answer, and nothing of any other client.

A simulation answers for all its clients in one pass instead (`privfed.engines.in_process.Pool`), with the
functions below; each client's answer is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import overload

import numpy as np

from privfed.core.asking.question import ERRORS, ClientData, Question
from privfed.core.asking.statistics import Statistics
from privfed.core.asking.together import all_within
from privfed.core.federation import client_generator
from privfed.core.roles.engine import Answerer, ErrorLog, PythonLog, note
from privfed.privacy.noised import Noised

Answer = tuple[Statistics, int]
"""Statistics, and how many rows were clipped into the question's ranges."""


class _Generators(Sequence[np.random.Generator]):
    """The clients' generators for one sum, each made when first used, since most questions draw nothing."""

    def __init__(self, seed: int, names: Sequence[str], index: int) -> None:
        self._seed, self._names, self._index = seed, names, index
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
            self._made[place] = client_generator(self._seed, self._names[place], self._index)
        return self._made[place]


def in_one_pass(
    question: Question, index: int, rows: Mapping[str, ClientData], seed: int, logs: Mapping[str, ErrorLog]
) -> dict[str, Answer]:
    """Answer for several clients in one pass, by name: exactly what each would answer alone.

    Args:
        question: what is asked.
        index: index of the sum in the run.
        rows: name of each client -> its data.
        seed: of the clients' simulation randomness, which name and index key.
        logs: name of each client -> its own log.
    """
    names = list(rows)
    answers, moved = in_order(question, index, names, list(rows.values()), seed, [logs[one] for one in names])
    return dict(zip(names, zip(answers, moved, strict=True), strict=True))


def in_order(
    question: Question,
    index: int,
    names: Sequence[str],
    rows: Sequence[ClientData],
    seed: int,
    logs: Sequence[ErrorLog],
) -> tuple[Sequence[Statistics], list[int]]:
    """Answer as `in_one_pass`; return statistics and numbers of clipped rows, in the clients' order."""
    within, moved = all_within(rows, question.ranges)
    answers = question.answer_all(within, _Generators(seed, names, index))
    for log, data in zip(logs, within, strict=True):
        while data.errors:
            note(log, data.errors.pop(0))
    return answers, moved


def answered_alone(
    question: Question, index: int, name: str, data: ClientData, seed: int, log: ErrorLog
) -> Answer:
    """Answer for one client. What fails under noise is answered as by a client without rows.

    Raises:
        Exception: whatever the question's own code raises.
    """
    try:
        return in_one_pass(question, index, {name: data}, seed, {name: log})[name]
    except KeyboardInterrupt:
        raise
    except ERRORS as error:
        if not isinstance(question, Noised):
            raise
        note(log, error)
    # Noised questions are always answered: a refusal, say for lack of memory, would depend on the rows.
    nothing = ClientData(np.empty((0, question.ranges.n_features)))
    return in_one_pass(question, index, {name: nothing}, seed, {name: log})[name]


def own_answerer(name: str, data: ClientData, seed: int, log: ErrorLog | None = None) -> Answerer:
    """Return the answerer of one client, from its own rows alone.

    Args:
        name: the client's, as the configuration has it; it keys the client's generator.
        data: its rows.
        seed: the configuration's.
        log: its own log of errors; by default that of the process.
    """
    kept = PythonLog() if log is None else log
    return lambda question, index: answered_alone(question, index, name, data, seed, kept)
