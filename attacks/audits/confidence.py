"""Confidence bounds on how well two output distributions can be distinguished, and the Gaussian curve.

An auditor sees scores of releases with and without one unit. Every bound here is one-sided and holds with
probability at least 1 - alpha over the draws; the tested event is always chosen on other draws.

The curve is implemented here instead of imported from `privfed.privacy`, as an audit must not share the
code that it audits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import beta, norm

from privfed.core.values.domain import FloatArray

_BINS = 64
_LEAST = 1e-12


class Rate(NamedTuple):
    """Holds how often an event was seen.

    Attributes:
        hits: number of draws in which it was seen.
        trials: number of draws.
    """

    hits: int
    trials: int

    def low(self, alpha: float) -> float:
        """Return the lower Clopper-Pearson limit (1934) of the event's probability."""
        return float(beta.ppf(alpha, self.hits, self.trials - self.hits + 1)) if self.hits else 0.0

    def high(self, alpha: float) -> float:
        """Return the upper Clopper-Pearson limit of the event's probability."""
        missed = self.trials - self.hits
        return float(beta.isf(alpha, self.hits + 1, missed)) if missed else 1.0


def epsilon_bound(inside: Rate, outside: Rate, delta: float, alpha: float) -> float:
    """Return a lower bound on epsilon, from P(in) <= e^epsilon P(out) + delta for every event.

    Args:
        inside: how often the event was seen with the unit.
        outside: how often it was seen without the unit.
        delta: delta of the claim.
        alpha: chance that the bound is wrong.
    """
    above, below = inside.low(alpha / 2) - delta, outside.high(alpha / 2)
    return float(np.log(above / below)) if above > below else 0.0


def mu_bound(inside: Rate, outside: Rate, alpha: float) -> float:
    """Return a lower bound on mu of mu-GDP from one event (Nasr et al. 2023, section 4).

    Assumes that the trade-off curve is Gaussian; for other mechanisms it gives no bound on epsilon.
    """
    low, high = inside.low(alpha / 2), outside.high(alpha / 2)
    return max(0.0, float(norm.ppf(low) - norm.ppf(high)))


def delta_bound(inside: Rate, outside: Rate, epsilon: float, alpha: float) -> float:
    """Return a lower bound on the hockey-stick divergence P(in) - e^epsilon P(out)."""
    return max(0.0, inside.low(alpha / 2) - float(np.exp(epsilon)) * outside.high(alpha / 2))


def best_thresholds(inside: FloatArray, outside: FloatArray, delta: float, alpha: float) -> float:
    """Return the threshold t whose event {score > t} gives the largest bound on epsilon on these draws.

    Args:
        inside: scores with the unit, float64 of shape (n,).
        outside: scores without it, float64 of shape (n,).
        delta: delta of the claim.
        alpha: chance of error that the bound is computed with.
    """
    candidates = np.unique(np.quantile(np.concatenate([inside, outside]), np.linspace(0.005, 0.995, 199)))
    hits_in = len(inside) - np.searchsorted(np.sort(inside), candidates, side="right")
    hits_out = len(outside) - np.searchsorted(np.sort(outside), candidates, side="right")
    low = beta.ppf(alpha / 2, np.maximum(hits_in, _LEAST), len(inside) - hits_in + 1) - delta
    high = beta.isf(alpha / 2, hits_out + 1, np.maximum(len(outside) - hits_out, _LEAST))
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.where(low > 0.0, np.log(low / high), -np.inf)
    return float(candidates[int(np.argmax(bounds))])


def bins_of(scores: FloatArray) -> FloatArray:
    """Return bin edges: one bin for each value of discrete scores, quantiles for others.

    Args:
        scores: float64 of shape (n,).
    """
    values = np.unique(scores)
    if len(values) > len(scores) // 10:
        values = np.unique(np.quantile(scores, np.linspace(0.0, 1.0, _BINS)))
    middles: FloatArray = (values[1:] + values[:-1]) / 2.0
    return middles


def telling_bins(
    inside: FloatArray, outside: FloatArray, edges: FloatArray, epsilon: float
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Say which bins have clearly more than e^epsilon times as much mass inside as outside.

    "Clearly" means by two standard errors, so that chance in thousands of bins does not select them.
    """
    shape = len(edges) + 1
    p = np.bincount(np.searchsorted(edges, inside), minlength=shape) / len(inside)
    q = np.bincount(np.searchsorted(edges, outside), minlength=shape) / len(outside)
    factor = np.exp(epsilon)
    error = np.sqrt(p / len(inside) + factor**2 * np.maximum(q, 1 / len(outside)) / len(outside))
    return np.asarray(p - factor * q > 2.0 * error)
