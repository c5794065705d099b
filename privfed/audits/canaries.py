"""Audit from one run: a fair coin decides whether each of many canaries is in, and the release scores it.

Steinke, Nasr, Jagielski: Privacy auditing with one (1) training run, NeurIPS 2023 (arXiv 2305.08846),
theorem 5.2 and appendix D. Their bound holds for any mechanism, however canaries influence each other. The
bound from the Gaussian curve is also given; it is far tighter and assumes independent canaries.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import expit
from scipy.stats import binom

from privfed.audits.confidence import Rate, mu_bound, root
from privfed.audits.samples import Audit, Claim, verdict
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError

_SHARES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of the canaries that are guessed; no guess is made on the rest."""
_FEWEST = 40


def audit_one_run(
    scores: npt.ArrayLike, included: npt.ArrayLike, *, claim: Claim, confidence: float = 0.95
) -> Audit:
    """Audit one run by its canaries.

    Args:
        scores: a score of each canary, computed from the release only, float64 of shape (n_canaries,);
            higher means more likely in.
        included: whether each canary was in, bool of shape (n_canaries,), by independent fair coins.
        claim: what is claimed for one canary (record or client).
        confidence: probability that both bounds hold, in (0.5, 1).

    Raises:
        ArgumentError: the shapes differ, there are fewer than 40 canaries, or they are all in or all out.
    """
    values, inside = np.asarray(scores, dtype=np.float64), np.asarray(included, dtype=np.bool_)
    if values.ndim != 1 or values.shape != inside.shape or len(values) < _FEWEST:
        raise ArgumentError(
            f"scores and included need the same shape (n_canaries,), at least {_FEWEST}, "
            f"got {values.shape} and {inside.shape}."
        )
    if inside.all() or not inside.any():
        raise ArgumentError("canaries are all in or all out; draw each by a fair coin.")
    if not 0.5 < confidence < 1.0:
        raise ArgumentError(
            f"confidence must lie in (0.5, 1), got confidence={confidence}.", parameters=["confidence"]
        )
    alpha = (1.0 - confidence) / 2.0
    guesses = [guessed(values, inside, share) for share in _SHARES]
    epsilon = max(
        one_run_epsilon(len(values), made, right, claim.delta, alpha / len(_SHARES))
        for made, right in guesses
    )
    mu = _curve(values, inside, alpha) if claim.noise == "gaussian" else None
    return verdict(claim, trials=len(values), confidence=confidence, epsilon=epsilon, mu=mu, delta=None)


def guessed(
    scores: FloatArray, included: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], share: float
) -> tuple[int, int]:
    """Guess that the canaries of highest score are in and those of lowest score are out.

    Returns:
        The number of guesses, and the number of right ones.
    """
    half = max(1, int(share * len(scores)) // 2)
    order = np.argsort(scores, kind="stable")
    return 2 * half, int(included[order[-half:]].sum() + (~included[order[:half]]).sum())


def one_run_epsilon(canaries: int, made: int, right: int, delta: float, alpha: float) -> float:
    """Return the largest epsilon that `right` of `made` guesses refute at level alpha.

    Args:
        canaries: number of canaries.
        made: number of guesses.
        right: number of right guesses.
        delta: delta of the claim.
        alpha: chance that the bound is wrong.
    """
    return root(lambda epsilon: one_run_p_value(canaries, made, right, epsilon, delta) - alpha)


def one_run_p_value(canaries: int, made: int, right: int, epsilon: float, delta: float) -> float:
    """Bound the chance of at least `right` right guesses under (epsilon, delta)-DP (theorem 5.2)."""
    chance = float(expit(epsilon))
    tail = float(binom.sf(right - 1, made, chance))
    # The largest P(right > B >= right - i) / i over i, for B ~ Binomial(made, chance).
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), made, chance))
    steepest = float((below / np.arange(1, right + 1)).max()) if right else 0.0
    return min(1.0, tail + 2.0 * canaries * delta * steepest)


def _curve(
    scores: FloatArray, included: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], alpha: float
) -> float:
    # The median of all scores does not depend on who was in, so no canaries are spent on choosing it.
    at = np.median(scores)
    sides = [scores[side] for side in (included, ~included)]
    rates = [Rate(int((side > at).sum()), len(side)) for side in sides]
    return mu_bound(rates[0], rates[1], alpha)
