"""Rows claimed from noised sums, and the bound that Gaussian differential privacy sets on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from privfed.attacks.base.measures import matched_rmse, matches, spread
from privfed.attacks.base.report import Report
from privfed.attacks.base.results import NEAR, Points, Truth
from privfed.attacks.posterior.bounds import coverage, reconstruction_bound
from privfed.core.values.domain import FloatArray

EXPECTED = "the expected share among so many claims under this noise, of rows drawn from the prior"
"""The quantity that the bound of `NoisyPoints` limits, in words for a report."""


@dataclass(frozen=True, kw_only=True)
class NoisyPoints(Points):
    """Holds rows claimed from noised sums.

    Args:
        likeliest: all rows of the target at their likeliest positions, claimed or not, (n, n_features).
        prior_rows: draws from the attacker's prior, (n, n_features), for the bound.
        mu: mu of the Gaussian differential privacy of what was seen; NaN if nothing was.
        explained: share of the families of chains that explain the sums, in [0, 1].
    """

    likeliest: FloatArray = field(repr=False)
    prior_rows: FloatArray = field(repr=False)
    mu: float
    explained: float

    def score(self, truth: Truth) -> Report:
        """Match claims to rows; the bound is on the expected share of rows found by as many claims."""
        report = super().score(truth)
        rows, _ = truth.rows(self.client)
        unit, most = spread(rows), max(len(rows), len(self.points))
        bounds = [self._bound(most, share * unit) for share in (truth.tolerance, max(NEAR, truth.tolerance))]
        near = matches(self.likeliest, rows, max(NEAR, truth.tolerance) * unit) >= 0
        details = {
            **report.details,
            "recovered within .05 sd, all rows": float(near.sum()) / len(rows),
            "matched rmse / sd, all rows": matched_rmse(self.likeliest, rows) / unit,
            "bound within .05 sd": bounds[1],
            "mu of what was seen": self.mu,
            "families that explain the sums": self.explained,
        }
        return replace(report, bound=bounds[0], bound_of=EXPECTED, details=details)

    def _bound(self, most: int, radius: float) -> float:
        if math.isnan(self.mu):
            return math.nan
        return reconstruction_bound(coverage(self.prior_rows, most, radius), self.mu)
