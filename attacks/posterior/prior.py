"""The attacker's prior of a row: a mixture of Gaussians that share one covariance.

With one covariance all components have the same principal axes. Along these, the distribution of a row, given
its component and the sums that it is part of, is a product of one-dimensional Gaussians.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from privfed.attacks.base.measures import IntArray
from privfed.core.values.domain import FloatArray, Ranges

_COMPONENTS = (1, 2, 4, 8, 16)
_ROWS_A_COMPONENT = 10
_LEAST = 1e-3
"""Least variance along an axis, relative to the mean variance of a feature."""


@dataclass(frozen=True, eq=False)
class RowPrior:
    """Holds a mixture of Gaussians with one covariance.

    Args:
        shares: weights of the components, (n_components,).
        means: means along the axes, float64 of shape (n_components, n_features).
        axes: principal axes, one in each column, (n_features, n_features).
        variances: variances along the axes, (n_features,).
    """

    shares: FloatArray
    means: FloatArray
    axes: FloatArray
    variances: FloatArray

    @classmethod
    def of(cls, sample: FloatArray | None, ranges: Ranges, rng: np.random.Generator) -> RowPrior:
        """Fit the prior to a public sample, with the number of components of best BIC; else to the ranges."""
        if sample is None or len(sample) < 2:
            middle, width = (ranges.low + ranges.high) / 2.0, np.maximum(ranges.width, 1e-9)
            return cls(np.ones(1), middle[None], np.eye(ranges.n_features), width**2 / 12.0)
        rows, seed = ranges.clip(sample), int(rng.integers(2**31))
        least = max(_LEAST * float(rows.var(axis=0).mean()), 1e-12)
        with warnings.catch_warnings():
            # A sample with few distinct rows converges to fewer components, and BIC then prefers fewer.
            warnings.simplefilter("ignore", ConvergenceWarning)
            models = [
                GaussianMixture(k, covariance_type="tied", reg_covar=least, random_state=seed).fit(rows)
                for k in _COMPONENTS
                if k <= max(1, len(rows) // _ROWS_A_COMPONENT)
            ]
        best = min(models, key=lambda model: float(model.bic(rows)))
        variances, axes = np.linalg.eigh(best.covariances_)
        return cls(best.weights_, best.means_ @ axes, axes, variances)

    def draw(self, n: int, ranges: Ranges, rng: np.random.Generator) -> FloatArray:
        """Draw rows, clipped to the ranges as clients clip theirs, float64 of shape (n, n_features)."""
        component = rng.choice(len(self.shares), n, p=self.shares)
        steps = rng.standard_normal((n, len(self.variances))) * np.sqrt(self.variances)
        return ranges.clip((self.means[component] + steps) @ self.axes.T)

    def components(self, rows: FloatArray, rng: np.random.Generator) -> IntArray:
        """Draw a component for each row from its posterior, (n,)."""
        logs = np.stack(
            [self.log_density(rows, np.full(len(rows), j)) for j in range(len(self.shares))], axis=1
        )
        logs += np.log(np.maximum(self.shares, 1e-300))
        return np.asarray(np.argmax(logs + rng.gumbel(size=logs.shape), axis=1), dtype=np.intp)

    def log_density(self, rows: FloatArray, component: IntArray) -> FloatArray:
        """Return the log-density of rows given their components, up to a constant, (n,)."""
        offsets = rows @ self.axes - self.means[component]
        return np.asarray(-0.5 * (np.square(offsets) / self.variances).sum(axis=1))
