"""Audit of one run of the framework: is the noise in its totals what the questions declare?

In a simulation the clients' rows are known, and with them the exact totals and the noise that was added.
The size of the noise is compared with the declared standard deviations, and releases are compared with each
other: noise that is too small, or used twice, breaks the claim even if the accounting is right. Whether the
declared noise is enough for the claim is a question of accounting and is not tested here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from privfed.audits.noise import Dependence, audit_noises
from privfed.audits.units import without_noise
from privfed.core.asking.question import ClientData, question_from_bytes
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import client_generator
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.privacy.noised import Noised

_FEWEST = 4
_MOST_PAIRED = 60


@dataclass(frozen=True, kw_only=True)
class RunAudit:
    """Holds the result of an audit of a run's noise.

    Attributes:
        releases: number of noised arrays in all totals.
        values: number of released values.
        ratio: measured variance of the noise divided by the declared one, over all values.
        p_value: chance of so small a ratio or less, if the noise is as declared.
        dependent: pairs of releases whose noises are not independent.
        confidence: chance that a run with noise as declared passes.
    """

    releases: int
    values: int
    ratio: float
    p_value: float
    dependent: Sequence[Dependence]
    confidence: float

    @property
    def verdict(self) -> str:
        """The verdict: "violated" if noise is too small or not independent, else "not refuted"."""
        small = self.p_value < (1.0 - self.confidence) / 2.0
        return "violated" if small or self.dependent else "not refuted"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        pairs = [
            {"first": one.first, "second": one.second, "correlation": one.correlation}
            for one in self.dependent
        ]
        plain = {name: getattr(self, name) for name in ("releases", "values", "ratio", "p_value")}
        return {**plain, "dependent": pairs, "confidence": self.confidence, "verdict": self.verdict}

    def __str__(self) -> str:
        lines = [
            f"{self.releases} noised arrays of {self.values} values",
            f"variance of the noise: {self.ratio:.4g} of what was declared "
            f"(p = {self.p_value:.3g} for as little)",
        ]
        lines += [
            f"not independent: {one.first} and {one.second}, correlation {one.correlation:.3f}"
            for one in self.dependent
        ]
        return "\n".join([*lines, f"verdict: {self.verdict}"])


def audit_run(
    transcript: Transcript, clients: Sequence[npt.ArrayLike], *, confidence: float = 0.999
) -> RunAudit:
    """Compare the noise in a run's totals with what its questions declare.

    Args:
        transcript: transcript of a run with differential privacy.
        clients: rows of every client, by position, (n_i, n_features). If the declared domain is a ball,
            clip them to it first, as clients do (`Ball.clip`).
        confidence: chance that a run with noise as declared passes, in (0.5, 1).

    Raises:
        ArgumentError: the run has no noised totals, or another number of clients.
    """
    agreed = transcript.configuration
    names = agreed.clients
    if len(clients) != len(names):
        raise ArgumentError(f"the run has {len(names)} clients, rows of {len(clients)} were given.")
    data = [ClientData(np.asarray(rows, dtype=np.float64)) for rows in clients]
    noises: dict[str, FloatArray] = {}
    for asked, total in transcript.totals():
        question = question_from_bytes(asked.question)
        if isinstance(question, Noised):
            generators = [client_generator(agreed.seed, names[i], asked.index) for i in total.contributors]
            for name, noise in _noise(question, total, data, generators).items():
                noises[f"{name} of sum {asked.index} ({asked.purpose})"] = noise
    if not noises:
        raise ArgumentError("the run has no noised totals: it claims no differential privacy to be audited.")
    values = np.concatenate(list(noises.values()))
    # Arrays of few values cannot show dependence; of a long run only the last arrays are compared.
    telling = [one for one in noises.items() if len(one[1]) >= _FEWEST][-_MOST_PAIRED:]
    return RunAudit(
        releases=len(noises),
        values=len(values),
        ratio=float(np.square(values).mean()),
        p_value=float(chi2.cdf(np.square(values).sum(), len(values))),
        dependent=audit_noises(dict(telling), confidence=(1.0 + confidence) / 2.0) if telling else [],
        confidence=confidence,
    )


def _noise(
    question: Noised, total: Total, data: Sequence[ClientData], generators: Sequence[np.random.Generator]
) -> dict[str, FloatArray]:
    """Return the noise in each array of a total, flat, in units of its declared standard deviation."""
    inside = [data[i].within(question.ranges)[0] for i in total.contributors]
    # With the generators of the run, simulated clients draw the same mini-batches again.
    exact = without_noise(question).answer_all(inside, generators)
    return {
        name: ((total.statistics[name] - sum(answer[name] for answer in exact)) / declared).ravel()
        for name, declared in question.noise_std(len(inside)).items()
    }
