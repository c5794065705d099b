"""Audits of the noise itself: its exact distribution, and the independence of different noises.

An audit by thresholds compares two distributions as a whole. It can miss a fault at a single value (noise
truncated towards zero has twice the mass at zero) or between releases (two noises from one seed, which an
observer can cancel). Both faults were found in published code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import pearsonr

from privfed.audits.samples import Claim
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError

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
    high = 1.0
    while hockey_stick(pmf, shift, high) > delta:
        high *= 2.0
        if high > 1e3:
            raise ArgumentError(f"no epsilon up to 1000 reaches delta={delta}; give the pmf longer tails.")
    return float(brentq(lambda epsilon: hockey_stick(pmf, shift, epsilon) - delta, 0.0, high, xtol=1e-12))


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
