"""Audits of the noise itself: its exact distribution, and the independence of different noises.

An audit by thresholds compares two distributions as a whole. It can miss a fault at a single value (noise
truncated towards zero has twice the mass at zero) or between releases (two noises from one seed, which an
observer can cancel). Both faults were found in published code.

Audit of one run of the framework: is the noise in its totals what the questions declare?

In a simulation the clients' rows are known, and with them the exact totals and the noise that was added.
The size of the noise is compared with the declared standard deviations, and releases are compared with each
other: noise that is too small, or used twice, breaks the claim even if the accounting is right. Whether the
declared noise is enough for the claim is a question of accounting and is not tested here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import chi2, pearsonr

from privfed.attacks.audits.samples import Claim
from privfed.attacks.audits.truth import too_far
from privfed.attacks.audits.units import check_labelled, without_noise
from privfed.core.asking.question import ClientData, question_from_bytes
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import client_generator
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError, DataError
from privfed.privacy.noised import Noised

_MASS = 1e-9
_FEWEST = 4


def hockey_stick(pmf: npt.ArrayLike, shift: int, epsilon: float) -> float:
    """Return the exact delta(epsilon) of integer noise on values that differ by `shift`.

    delta = max over both directions of sum_k max(0, p(k) - e^epsilon p(k - shift)).

    Args:
        pmf: probabilities of consecutive integers; mass shifted beyond the ends counts towards delta.
        shift: sensitivity, in steps of the integer grid.
        epsilon: not negative.

    Raises:
        ArgumentError: `pmf` is not a probability mass function, or `shift` is zero.
    """
    mass = np.asarray(pmf, dtype=np.float64)
    if mass.ndim != 1 or (mass < 0.0).any() or abs(mass.sum() - 1.0) > _MASS:
        raise ArgumentError(f"pmf must be probabilities that add up to one, got a sum of {mass.sum():.12g}.")
    if shift == 0:
        raise ArgumentError("shift must not be zero: it is the sensitivity in steps.")
    apart = np.zeros(abs(shift))
    first, second = np.concatenate([mass, apart]), np.concatenate([apart, mass])
    factor = np.exp(epsilon)
    return float(max(np.maximum(a - factor * b, 0.0).sum() for a, b in ((first, second), (second, first))))


def exact_epsilon(pmf: npt.ArrayLike, shift: int, delta: float) -> float:
    """Return the exact epsilon of integer noise at `delta` in (0, 1).

    Raises:
        ArgumentError: no epsilon reaches delta, because the tails of the pmf are cut too short.
    """
    if hockey_stick(pmf, shift, 0.0) <= delta:
        return 0.0
    try:
        return float(
            brentq(lambda epsilon: delta - hockey_stick(pmf, shift, epsilon), 0.0, 700.0, xtol=1e-12)
        )
    except ValueError:
        raise ArgumentError(
            f"no epsilon up to 700 reaches delta={delta}; give the pmf longer tails."
        ) from None


@dataclass(frozen=True, kw_only=True)
class ExactAudit:
    """Holds the result of an exact audit of a noise distribution.

    Attributes:
        claim: what was claimed.
        delta: exact delta at the claimed epsilon.
        epsilon: exact epsilon at the claimed delta.
        violated: whether the exact delta exceeds the claimed one.
    """

    claim: Claim
    delta: float
    epsilon: float
    violated: bool


def audit_pmf(pmf: npt.ArrayLike, shift: int, *, claim: Claim) -> ExactAudit:
    """Compare the exact distribution of integer noise with a claim.

    Args:
        pmf: probabilities of consecutive integers.
        shift: sensitivity in steps.
        claim: what is claimed.

    Raises:
        ArgumentError: `pmf` is not a probability mass function.
    """
    delta = hockey_stick(pmf, shift, claim.epsilon)
    return ExactAudit(
        claim=claim,
        delta=delta,
        epsilon=exact_epsilon(pmf, shift, claim.delta),
        violated=delta > claim.delta * (1.0 + 1e-6),
    )


@dataclass(frozen=True, kw_only=True)
class Dependence:
    """Names two noises that are not independent.

    Attributes:
        first: name of one release.
        second: name of the other; the same name if runs of one release repeat each other.
        correlation: between -1 and 1.
        p_value: p-value of the correlation, before the correction for many pairs.
    """

    first: str
    second: str
    correlation: float
    p_value: float


def audit_noises(noises: Mapping[str, npt.ArrayLike], *, confidence: float = 0.999) -> list[Dependence]:
    """Find noises that are not independent, for example drawn from the same seed.

    The values of two releases are correlated in the order in which they were drawn, up to the length of
    the shorter, over all runs: generators with the same seed give the same numbers up to scale.
    Consecutive runs of one release are compared with each other too.

    Args:
        noises: name of a release -> its noise, (runs, n_values) or (n_values,) for one run. Noise is the
            released minus the exact value, which is known only in a simulation.
        confidence: chance that independent noises give an empty list.

    Returns:
        The dependent pairs, strongest first.

    Raises:
        ArgumentError: releases have different numbers of runs, or fewer than four values to compare.
    """
    arrays = {name: np.atleast_2d(np.asarray(noise, dtype=np.float64)) for name, noise in noises.items()}
    runs = {array.shape[0] for array in arrays.values()}
    if len(runs) != 1:
        raise ArgumentError(f"every release needs the same number of runs, got {sorted(runs)}.")
    pairs = [(a, b, *_aligned(arrays[a], arrays[b])) for a, b in combinations(arrays, 2)]
    if runs != {1}:
        pairs += [(name, name, array[:-1].ravel(), array[1:].ravel()) for name, array in arrays.items()]
    if any(len(first) < _FEWEST for *_, first, _ in pairs):
        raise ArgumentError(f"a pair needs at least {_FEWEST} values to compare; give more runs.")
    level = (1.0 - confidence) / max(1, len(pairs))
    found = [_dependence(*pair) for pair in pairs]
    return sorted((one for one in found if one.p_value < level), key=lambda one: one.p_value)


def _aligned(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    width = min(first.shape[1], second.shape[1])
    return first[:, :width].ravel(), second[:, :width].ravel()


def _dependence(first: str, second: str, left: FloatArray, right: FloatArray) -> Dependence:
    if not (np.ptp(left) > 0.0 and np.ptp(right) > 0.0):
        return Dependence(first=first, second=second, correlation=1.0, p_value=0.0)
    result = pearsonr(left, right)
    return Dependence(
        first=first, second=second, correlation=float(result.statistic), p_value=float(result.pvalue)
    )


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
    transcript: Transcript,
    clients: Sequence[npt.ArrayLike],
    labels: Sequence[npt.ArrayLike] | None = None,
    *,
    confidence: float = 0.999,
) -> RunAudit:
    """Compare the noise in a run's totals with what its questions declare.

    Args:
        transcript: transcript of a run with differential privacy.
        clients: rows of every client, by position, (n_i, n_features). If the declared domain is a ball,
            clip them to it first, as clients do (`Ball.clip`).
        labels: of these rows, integers of shape (n_i,) each, where the run trained on them.
        confidence: chance that a run with noise as declared passes, in (0.5, 1).

    Raises:
        ArgumentError: the run has no noised totals, or another number of clients; or it trained on labels,
            and none are given.
        DataError: the totals lie too far from those of these rows.
    """
    agreed = transcript.configuration
    names = agreed.clients
    if len(clients) != len(names):
        raise ArgumentError(f"the run has {len(names)} clients, rows of {len(clients)} were given.")
    classes = [None] * len(clients) if labels is None else [np.asarray(one, dtype=np.int64) for one in labels]
    data = [
        ClientData(np.asarray(rows, dtype=np.float64), own)
        for rows, own in zip(clients, classes, strict=True)
    ]
    noises: dict[str, FloatArray] = {}
    for asked, total in transcript.totals():
        question = question_from_bytes(asked.question)
        if isinstance(question, Noised):
            check_labelled(question, labels is not None)
            generators = [client_generator(agreed.seed, names[i], asked.index) for i in total.contributors]
            for name, noise in _noise(question, total, data, generators).items():
                noises[f"{name} of sum {asked.index} ({asked.purpose})"] = noise
    if not noises:
        raise ArgumentError("the run has no noised totals: it claims no differential privacy to be audited.")
    values = np.concatenate(list(noises.values()))
    if too_far(values):
        raise DataError(
            "nothing was audited: the totals lie farther from those of these rows than the declared noise "
            f"explains ({np.square(values).mean():.3g} times its variance). These are other rows than the "
            "run's, or users have more rows than count."
        )
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
