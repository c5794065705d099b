"""What an attacker holds likely before it sees anything: a mixture of Gaussians of one covariance.

With one covariance all components share their principal axes: along these, a row's distribution given its
component and sums that it is part of is a product of Gaussians.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from privfed.attacks.base.measures import IntArray
from privfed.core.domain import FloatArray, Ranges

_COMPONENTS = (1, 2, 4, 8, 16)
_ROWS_A_COMPONENT = 10
_LEAST = 1e-3
"""Least variance along an axis, of the mean variance of a feature."""


@dataclass(frozen=True, eq=False)
class RowPrior:
    """A mixture of Gaussians.

    Args:
        shares: of the components, (n_components,).
        means: along the axes, float64 of shape (n_components, n_features).
        axes: principal axes, one a column, (n_features, n_features).
        variances: along the axes, (n_features,).
    """

    shares: FloatArray
    means: FloatArray
    axes: FloatArray
    variances: FloatArray

    @classmethod
    def of(cls, sample: FloatArray | None, ranges: Ranges, rng: np.random.Generator) -> RowPrior:
        """Fit it to a public sample, with as many components as BIC favours; without one fill the ranges."""
        if sample is None or len(sample) < 2:
            middle, width = (ranges.low + ranges.high) / 2.0, np.maximum(ranges.width, 1e-9)
            return cls(np.ones(1), middle[None], np.eye(ranges.n_features), width**2 / 12.0)
        rows, seed = ranges.clip(sample), int(rng.integers(2**31))
        least = max(_LEAST * float(rows.var(axis=0).mean()), 1e-12)
        with warnings.catch_warnings():
            # A sample of few different rows converges to fewer components: fewer is what BIC then takes.
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
        """Draw rows, clipped to the ranges as clients clip theirs: float64 of shape (n, n_features)."""
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
