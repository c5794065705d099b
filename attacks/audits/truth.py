"""Whether rows are those of a run: attacks and audits that are scored against other rows would find nothing.

What a run's totals say of its rows is exact, or noised as was declared. So rows that give other totals are
not its rows, or not what its clients answered from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from privfed.attacks.audits.units import without_noise
from privfed.core.asking.question import (
    AdditiveOver,
    ClientData,
    Question,
    own_names,
    parts_of,
    question_from_bytes,
    wire_name,
)
from privfed.core.record.records import Asked
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import PythonLog
from privfed.core.values.domain import FloatArray
from privfed.party.answerer import in_order
from privfed.privacy.noised import Noised
from privfed.questions.lloyd import Contingency

CHANCE = 1e-9
"""Chance that rows of a run are taken for others, where its totals are noised."""

ROUNDING = 1e-9
"""Relative room for sums that are added in another order."""


def too_far(noise: FloatArray) -> bool:
    """Say whether totals lie farther from those of some rows than declared noise explains.

    Args:
        noise: differences, in units of the declared standard deviations, float64 of shape (n,).
    """
    return bool(chi2.sf(np.square(noise).sum(), len(noise)) < CHANCE)


def unlike(transcript: Transcript, clients: Sequence[npt.ArrayLike]) -> str | None:
    """Return which of a run's sums its rows would not give; None where they give all that are compared.

    Compared are sums over rows that look at no labels: the start's, and the rounds' of most fits. Where the
    record has the answers of single clients, each client's rows are compared with its own.

    Args:
        transcript: of the run.
        clients: rows of every client, by position, (n_i, n_features), scaled as the run's were.
    """
    data = [ClientData(np.asarray(rows, dtype=np.float64)) for rows in clients]
    noises = [np.zeros(0)]
    for asked, total, question in _compared(transcript, data):
        names = total.contributors
        exact = _answers(transcript, question, asked.index, names, [data[i] for i in names])
        seen, many = _shown(total, names), 1
        if seen is None:
            seen, exact, many = total.statistics.vector[None], exact.sum(axis=0, keepdims=True), len(exact)
        if isinstance(question, Noised):
            noises.append(((seen - exact) / _deviations(question, many)).ravel())
        elif (np.abs(seen - exact) > room(question, many, exact)).any():
            return f"sum {asked.index} ({asked.purpose})"
    return "its noised sums" if too_far(np.concatenate(noises)) else None


def unlike_own(transcript: Transcript, own: ClientData, client: int | None) -> str | None:
    """Return what in the record of a noised run one client's rows contradict; None for nothing.

    The client's own noised answers are compared, where the record has them. Elsewhere the other clients must
    be able to answer what is left of each total.

    Args:
        transcript: of the run.
        own: the client's rows, scaled as the run's were; at unit "user" those that count.
        client: position of the client; None where the rows may be any client's.
    """
    everyone = range(len(transcript.configuration.clients)) if client is None else [client]
    noises: dict[int, list[FloatArray]] = {i: [np.zeros(0)] for i in everyone}
    for asked, total, question in _compared(transcript, [own]):
        mine = [i for i in total.contributors if i in noises]
        if not mine or not isinstance(question, Noised):
            continue
        (exact,), seen = _answers(transcript, question, asked.index, mine[:1], [own]), _shown(total, mine)
        if seen is not None:
            for i, answer in zip(mine, seen, strict=True):
                noises[i].append((answer - exact) / _deviations(question, 1))
            continue
        left, many, spec = total.statistics.vector - exact, len(total.contributors), _bare(question).spec
        beyond = np.maximum((many - 1) * spec.low - left, left - (many - 1) * spec.high)
        if (beyond > _FAR * _deviations(question, many)).any():
            return f"sum {asked.index} ({asked.purpose})"
    return "its noised answers" if all(too_far(np.concatenate(each)) for each in noises.values()) else None


_FAR = 8.0
"""Deviations beyond which no value's noise lies, but with a chance below 1e-14."""


def _compared(transcript: Transcript, data: Sequence[ClientData]) -> Iterator[tuple[Asked, Total, Question]]:
    """Yield the sums over rows that look at no labels."""
    for asked, total in transcript.totals():
        question = question_from_bytes(asked.question)
        inner = question.inner if isinstance(question, Noised) else question
        declared = inner.declaration
        labels = isinstance(inner, Contingency) or (declared is not None and declared.classes > 0)
        labels = labels or inner.additive_over != AdditiveOver.RECORDS or reads_labels_undeclared(inner, data)
        if not labels:
            yield asked, total, question


def reads_labels_undeclared(question: Question, data: Sequence[ClientData]) -> bool:
    """Say whether a user's question fails without labels, or answers otherwise where these are others."""
    if not any(wire_name(type(part)) in own_names() for part in parts_of(question)):
        return False
    names, tried = list(map(str, range(len(data)))), []
    for label in (None, 0, 1):
        labelled = [
            replace(own, labels=None if label is None else np.full(own.n_rows, label), cache={})
            for own in data
        ]
        try:
            answers, _ = in_order(question, 0, names, labelled, 0, [PythonLog()] * len(data))
            tried.append(np.stack([question.spec.flatten(one) for one in answers]))
        except Exception:
            return True
    return not all(np.array_equal(one, tried[0], equal_nan=True) for one in tried)


def _shown(total: Total, clients: Sequence[int]) -> FloatArray | None:
    """Return the recorded answers of some clients, (n, size); None where the sum showed none."""
    if total.contributions is None:
        return None
    return np.stack([total.contributions[i].vector for i in clients])


def _deviations(question: Noised, many: int) -> FloatArray:
    """Return the declared standard deviation of each value in a sum of so many answers, (size,)."""
    std = question.noise_std(many)
    return np.concatenate([np.full(int(np.prod(one.shape)), std[one.name]) for one in question.spec.entries])


def room(question: Question, many: int, exact: FloatArray) -> FloatArray:
    """Return by how much exact sums of so many answers may differ, on their grid, (n, size)."""
    return np.asarray(many * question.spec.resolution + ROUNDING * (1.0 + np.abs(exact)))


def _bare(question: Question) -> Question:
    return without_noise(question) if isinstance(question, Noised) else question


def _answers(
    transcript: Transcript,
    question: Question,
    index: int,
    clients: Sequence[int],
    data: Sequence[ClientData],
) -> FloatArray:
    """Return what clients would answer without noise, float64 of shape (n_clients, size)."""
    agreed, bare = transcript.configuration, _bare(question)
    names, logs = [agreed.clients[i] for i in clients], [PythonLog()] * len(data)
    answers, _ = in_order(bare, index, names, data, agreed.seed, logs)
    return np.stack([bare.spec.clip(bare.spec.flatten(one))[0] for one in answers])
