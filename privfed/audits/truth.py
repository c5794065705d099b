"""Whether rows are those of a run: attacks and audits that are scored against other rows would find nothing.

What a run's totals say of its rows is exact, or noised as was declared. So rows that give other totals are
not its rows, or not what its clients answered from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from privfed.audits.units import without_noise
from privfed.core.asking.question import AdditiveOver, ClientData, Question, parts_of, question_from_bytes
from privfed.core.asking.statistics import Statistics
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

    Compared are sums over rows that look at no labels: the start's, and the rounds' of most fits.

    Args:
        transcript: of the run.
        clients: rows of every client, by position, (n_i, n_features), scaled as the run's were.
    """
    data = [ClientData(np.asarray(rows, dtype=np.float64)) for rows in clients]
    noises = [np.zeros(0)]
    for asked, total in transcript.totals():
        question = question_from_bytes(asked.question)
        inner = question.inner if isinstance(question, Noised) else question
        if inner.additive_over != AdditiveOver.RECORDS or _reads_labels(inner, data):
            continue
        exact = _exact(transcript, question, asked, total, data)
        if isinstance(question, Noised):
            noises += [
                ((total.statistics[name] - exact[name]) / std).ravel()
                for name, std in question.noise_std(len(total.contributors)).items()
            ]
            continue
        room = len(total.contributors) * question.spec.resolution + ROUNDING * (1.0 + np.abs(exact.vector))
        if (np.abs(total.statistics.vector - exact.vector) > room).any():
            return f"sum {asked.index} ({asked.purpose})"
    return "its noised sums" if too_far(np.concatenate(noises)) else None


def _reads_labels(question: Question, data: Sequence[ClientData]) -> bool:
    declared = question.declaration
    known = isinstance(question, Contingency) or (declared is not None and declared.classes > 0)
    return known or reads_labels_undeclared(question, data)


def reads_labels_undeclared(question: Question, data: Sequence[ClientData]) -> bool:
    """Say whether a user's question fails without labels, or answers otherwise where these are others."""
    if all(type(part).__module__.startswith("privfed.") for part in parts_of(question)):
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


def _exact(
    transcript: Transcript, question: Question, asked: Asked, total: Total, data: Sequence[ClientData]
) -> Statistics:
    """Return what the clients in a total would answer together without noise."""
    agreed = transcript.configuration
    names = [agreed.clients[i] for i in total.contributors]
    bare = without_noise(question) if isinstance(question, Noised) else question
    rows, logs = [data[i] for i in total.contributors], [PythonLog()] * len(names)
    answers, _ = in_order(bare, asked.index, names, rows, agreed.seed, logs)
    vectors = [bare.spec.clip(bare.spec.flatten(one))[0] for one in answers]
    return bare.spec.unflatten(np.sum(vectors, axis=0))
