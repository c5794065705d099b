"""Estimates the empirical epsilon of a mechanism or a run: from many releases, or from one with canaries.

**Many releases, with and without one unit (`audit`).** The adversary knows all data but one unit, chooses the
worst unit, and sees the releases. A lower bound above the claim disproves the claim; one below it proves
nothing. Sources: Jagielski, Ullman, Oprea 2020 (Clopper-Pearson bounds); Nasr et al. 2023 (the Gaussian
trade-off curve); Gilbert and McMillan 2018 (histograms of the outputs).

**One release (`audit_one_run`).** A fair coin decides whether each of many canaries is in, and the release
scores it. Steinke, Nasr, Jagielski: Privacy auditing with one (1) training run, NeurIPS 2023 (arXiv
2305.08846), theorem 5.2 and appendix D. Their bound holds for any mechanism, however canaries influence each
other. The bound from the Gaussian curve is also given; it is far tighter and assumes independent canaries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom

from privfed.attacks.audits.confidence import (
    Rate,
    best_thresholds,
    bins_of,
    delta_bound,
    epsilon_bound,
    mu_bound,
    telling_bins,
)
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_number, check_whole, check_word
from privfed.core.values.shown import as_table
from privfed.errors import ArgumentError
from privfed.privacy.accounting import gdp_epsilon, gdp_mu

Data = TypeVar("Data")
Noise = Literal["gaussian", "any"]

_CHOOSING = 0.2
"""Share of the draws that is used to choose direction, thresholds and events; bounds use the others."""
_FEWEST = 100


@dataclass(frozen=True, kw_only=True)
class Claim:
    """States a differential-privacy claim.

    Args:
        epsilon: claimed epsilon, positive.
        delta: claimed delta, in (0, 1).
        noise: "gaussian" if the claim rests on Gaussian (or discrete Gaussian) noise, so that it includes
            the whole trade-off curve; "any" tests (epsilon, delta) only.
    """

    epsilon: float
    delta: float
    noise: Noise = "gaussian"

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, "(0, inf)")
        check_number("delta", self.delta, "(0, 1)")
        check_word("noise", self.noise, ("gaussian", "any"))

    @property
    def mu(self) -> float:
        """The mu of the Gaussian mechanism that has exactly this epsilon and delta."""
        return gdp_mu(self.epsilon, self.delta)


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Holds the result of an audit.

    Attributes:
        claim: what was claimed.
        trials: number of releases on each side, or of canaries.
        confidence: probability that all bounds hold.
        epsilon: lower bound on epsilon at the claim's delta, from one event (Clopper-Pearson).
        epsilon_gdp: lower bound on epsilon through mu; None if the claim is not Gaussian.
        mu: lower bound on mu; None if the claim is not Gaussian.
        delta: lower bound on delta at the claim's epsilon, from a histogram; None if it was not tested.
        violations: the bounds that lie above the claim.
    """

    claim: Claim
    trials: int
    confidence: float
    epsilon: float
    epsilon_gdp: float | None
    mu: float | None
    delta: float | None
    violations: tuple[str, ...]

    _repr_html_ = as_table(lambda self: [["audit"], *([line] for line in str(self).splitlines())])

    @property
    def verdict(self) -> str:
        """The verdict: "violated" if a bound lies above the claim, else "not refuted"."""
        return "violated" if self.violations else "not refuted"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {**asdict(self), "violations": list(self.violations), "verdict": self.verdict}

    def __str__(self) -> str:
        lines = [
            f"claim: epsilon={self.claim.epsilon:g}, delta={self.claim.delta:g} ({self.claim.noise} noise)",
            f"epsilon >= {self.epsilon:.4g} (one event), {self.trials} trials, "
            f"confidence {self.confidence:.3g}",
        ]
        if self.epsilon_gdp is not None:
            lines.append(f"epsilon >= {self.epsilon_gdp:.4g} (Gaussian curve, mu >= {self.mu:.4g})")
        if self.delta is not None:
            lines.append(f"delta at the claimed epsilon >= {self.delta:.3g}")
        why = f": {', '.join(self.violations)}" if self.violations else ""
        return "\n".join([*lines, f"verdict: {self.verdict}{why}"])


def audit(
    mechanism: Callable[[Data, int], npt.ArrayLike],
    data: Data,
    neighbour: Data,
    *,
    epsilon: float,
    delta: float,
    trials: int = 100_000,
    noise: Noise = "gaussian",
    confidence: float = 0.95,
) -> Audit:
    """Audit a mechanism or a whole run on one pair of neighbouring inputs.

    Args:
        mechanism: called as `mechanism(input, trials)`; returns independent releases, of shape (trials,)
            or (trials, n_values). A whole run is one release: everything that it published, flattened.
        data: the input with the unit; the auditor should choose the worst unit.
        neighbour: the input without the unit (or with it replaced, if that is the claim's relation).
        epsilon: claimed epsilon.
        delta: claimed delta, in (0, 1).
        trials: number of releases drawn on each side, at least 100.
        noise: "gaussian" or "any"; see `Claim`.
        confidence: probability that all bounds hold, in (0.5, 1).

    Returns:
        Bounds and verdict.

    Raises:
        ArgumentError: a parameter is out of its bounds, or the releases have another shape.
    """
    check_whole("trials", trials, _FEWEST)
    return audit_samples(
        mechanism(data, trials),
        mechanism(neighbour, trials),
        claim=Claim(epsilon=epsilon, delta=delta, noise=noise),
        confidence=confidence,
    )


def audit_samples(
    inside: npt.ArrayLike, outside: npt.ArrayLike, *, claim: Claim, confidence: float = 0.95
) -> Audit:
    """Audit releases that were already drawn.

    Releases of several values are projected onto the direction that separates the two sides best (Fisher's
    linear discriminant). The direction, thresholds and events are chosen on a fifth of the draws.

    Args:
        inside: releases with the unit, (trials,) or (trials, n_values).
        outside: releases without it, of the same shape.
        claim: what is claimed.
        confidence: probability that all bounds hold, in (0.5, 1).

    Raises:
        ArgumentError: the shapes differ, there are too few releases, or values are not finite.
    """
    with_unit, without = _releases(inside, outside)
    check_number("confidence", confidence, "(0.5, 1)")
    chosen = max(_FEWEST // 5, int(_CHOOSING * len(with_unit)))
    direction = _direction(with_unit[:chosen], without[:chosen])
    scores, others = with_unit @ direction, without @ direction
    # Three bounds share the chance of error: any of them is wrong with probability at most 1 - confidence.
    alpha = (1.0 - confidence) / 3.0
    found = _epsilon(scores, others, chosen, claim, alpha)
    mu = _mu(scores, others, chosen, alpha) if claim.noise == "gaussian" else None
    delta = _delta(scores, others, chosen, claim, alpha)
    return verdict(claim, trials=len(scores), confidence=confidence, epsilon=found, mu=mu, delta=delta)


def verdict(
    claim: Claim, *, trials: int, confidence: float, epsilon: float, mu: float | None, delta: float | None
) -> Audit:
    """Compare bounds with a claim."""
    by_curve = None if mu is None else gdp_epsilon(mu, claim.delta)
    above = {
        f"epsilon >= {epsilon:.4g}": epsilon > claim.epsilon,
        f"epsilon >= {by_curve or 0.0:.4g} by the Gaussian curve": (by_curve or 0.0) > claim.epsilon,
        f"delta >= {delta or 0.0:.3g}": (delta or 0.0) > claim.delta,
    }
    return Audit(
        claim=claim,
        trials=trials,
        confidence=confidence,
        epsilon=epsilon,
        epsilon_gdp=by_curve,
        mu=mu,
        delta=delta,
        violations=tuple(text for text, is_above in above.items() if is_above),
    )


def _releases(inside: npt.ArrayLike, outside: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    sides = [np.asarray(side, dtype=np.float64) for side in (inside, outside)]
    first, second = (side[:, None] if side.ndim == 1 else side for side in sides)
    if first.ndim != 2 or first.shape != second.shape or len(first) < _FEWEST:
        raise ArgumentError(
            f"both sides need the same shape (trials, n_values) with at least {_FEWEST} trials, "
            f"got {sides[0].shape} and {sides[1].shape}."
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ArgumentError("releases must be finite; encode missing values as a number.")
    return first, second


def _direction(inside: FloatArray, outside: FloatArray) -> FloatArray:
    """Return Fisher's linear discriminant, float64 of shape (n_values,); +1 or -1 for a single value."""
    difference = inside.mean(axis=0) - outside.mean(axis=0)
    if len(difference) == 1:
        return np.where(difference < 0.0, -1.0, 1.0)
    within = (np.cov(inside.T) + np.cov(outside.T)) / 2.0
    # The ridge helps where values never vary, or where draws are too few for a stable inverse.
    ridge = 1e-6 * np.trace(within) / len(within) + np.finfo(np.float64).tiny
    found: FloatArray = np.linalg.solve(within + ridge * np.eye(len(within)), difference)
    return found


def _epsilon(scores: FloatArray, others: FloatArray, chosen: int, claim: Claim, alpha: float) -> float:
    """Bound epsilon by one event, the better of {above} with the unit and {below} without it."""
    best = 0.0
    for first, second in ((scores, others), (-others, -scores)):
        at = best_thresholds(first[:chosen], second[:chosen], claim.delta, alpha / 2)
        rates = [Rate(int((side[chosen:] > at).sum()), len(side) - chosen) for side in (first, second)]
        best = max(best, epsilon_bound(rates[0], rates[1], claim.delta, alpha / 2))
    return best


def _mu(scores: FloatArray, others: FloatArray, chosen: int, alpha: float) -> float:
    # Midway between the two medians, rates determine mu most precisely.
    at = (np.median(scores[:chosen]) + np.median(others[:chosen])) / 2.0
    rates = [Rate(int((side[chosen:] > at).sum()), len(side) - chosen) for side in (scores, others)]
    return mu_bound(rates[0], rates[1], alpha)


def _delta(scores: FloatArray, others: FloatArray, chosen: int, claim: Claim, alpha: float) -> float:
    """Bound delta at the claimed epsilon from the most revealing bins, in either direction."""
    edges = bins_of(np.concatenate([scores[:chosen], others[:chosen]]))
    best = 0.0
    for first, second in ((scores, others), (others, scores)):
        telling = telling_bins(first[:chosen], second[:chosen], edges, claim.epsilon)
        rates = [
            Rate(int(telling[np.searchsorted(edges, side[chosen:])].sum()), len(side) - chosen)
            for side in (first, second)
        ]
        best = max(best, delta_bound(rates[0], rates[1], claim.epsilon, alpha / 2))
    return best


_SHARES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of the canaries that are guessed; no guess is made on the rest."""
_FEWEST_CANARIES = 40


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
    if values.ndim != 1 or values.shape != inside.shape or len(values) < _FEWEST_CANARIES:
        raise ArgumentError(
            f"scores and included need the same shape (n_canaries,), at least {_FEWEST_CANARIES}, "
            f"got {values.shape} and {inside.shape}."
        )
    if inside.all() or not inside.any():
        raise ArgumentError("canaries are all in or all out; draw each by a fair coin.")
    check_number("confidence", confidence, "(0.5, 1)")
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

    def beyond(epsilon: float) -> float:
        return one_run_p_value(canaries, made, right, epsilon, delta) - alpha

    return 0.0 if beyond(0.0) >= 0.0 else float(brentq(beyond, 0.0, 100.0, xtol=1e-12))


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
