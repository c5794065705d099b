"""Markov chains over sets of rows that could be behind noised sums.

A chain has slots, each of which holds one row of a pool, or none. What each row of the pool adds is divided
by the noise. With r what the chain leaves of the sums, a row at x gains f(x)' r - |f(x)|^2 / 2 (a matched
filter). A slot's content is drawn from all rows of the pool by what they gain (Gibbs sampling), while the
likelihood is raised to a power that grows from almost zero to 1. Then half of the pool is drawn anew around
the rows that the chain holds, and twice more nearer. No two chains share a pool, so that their agreement is
evidence.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from privfed.attacks.base.report import spread
from privfed.attacks.evidence.system import System
from privfed.core.values.domain import FloatArray, Ranges

_REACH = (0.1, 0.03, 0.01)
"""Deviation of rows that are drawn anew around those of a chain, in standard deviations."""
_KEPT = 6
"""Number of sets that are kept."""


class Chain:
    """Holds a chain of sets of rows.

    Args:
        read: makes a system of equations of what rows of a pool add to noised sums.
        pool: rows drawn from the prior, float64 of shape (n_pool, n_features).
        ranges: to which clients clip their rows.
        n_rows: likely number of the target's rows.
        most: most rows that it can have.
        rng: generator of all draws.

    Attributes:
        sets: those that were drawn at full likelihood, each (n_rows, n_features).
        misfit: mean squared residual, in units of the noise; about 1 if the chain explains the sums.
        n_values: number of values that were seen.
    """

    def __init__(
        self,
        read: Callable[[FloatArray], System],
        pool: FloatArray,
        ranges: Ranges,
        n_rows: float,
        most: int,
        rng: np.random.Generator,
    ) -> None:
        self._read, self._pool, self._ranges, self._rng = read, pool, ranges, rng
        n_slots = min(most, int(np.ceil(1.3 * n_rows)) + 2)
        self._share = min(n_rows / n_slots, 1.0 - 1e-9)
        self._where = np.full(n_slots, len(pool))
        self.sets, self.misfit, self.n_values = list[FloatArray](), np.inf, 1

    def move(self, n_sweeps: int) -> None:
        """Raise the likelihood over a quarter of the sweeps, and keep sets of the last quarter."""
        quarter = max(2, n_sweeps // (1 + len(_REACH)))
        self._sweep(np.geomspace(1e-4, 1.0, quarter))
        for reach in _REACH:
            self._renew(reach * spread(self._pool))
            self._sweep(np.ones(quarter))

    def _renew(self, reach: float) -> None:
        """Draw half of the pool anew, around the rows that are held, which come first."""
        held = self._where < len(self._pool)
        rows, n = self._pool[self._where[held]], len(self._pool)
        near = rows[self._rng.integers(len(rows), size=n // 2)] if len(rows) else rows
        near = self._ranges.clip(near + reach * self._rng.standard_normal(near.shape))
        self._pool = np.concatenate([rows, near, self._pool])[:n]
        self._where[held], self._where[~held] = np.arange(len(rows)), n

    def _sweep(self, powers: FloatArray) -> None:
        """Draw each slot anew, once for each power of the likelihood."""
        system, n = self._read(self._pool), len(self._pool)
        scale = system.noise**-0.5
        table, seen = system.left.multiply(scale[:, None]).tocsr(), system.right * scale
        gram = np.zeros((n + 1, n + 1))
        gram[:n, :n] = (table.T @ table).toarray()
        prior = np.log(np.append(np.full(n, self._share / n), 1.0 - self._share))
        half, gain = np.diag(gram) / 2.0, np.append(table.T @ seen, 0.0) - gram[self._where].sum(axis=0)
        for number, power in enumerate(powers, start=1):
            for slot in self._rng.permutation(len(self._where)):
                gain += gram[self._where[slot]]
                odds = power * (gain - half) + prior + self._rng.gumbel(size=n + 1)
                self._where[slot] = odds.argmax()
                gain -= gram[self._where[slot]]
            if (len(powers) - number) % -(-len(powers) // _KEPT) == 0:
                self.sets = [*self.sets, self._pool[self._where[self._where < n]]][-_KEPT:]
        left = seen - table @ np.bincount(self._where, minlength=n + 1)[:n]
        self.misfit, self.n_values = float(np.square(left).mean()), len(left)


_COMPONENTS = (1, 2, 4, 8, 16)
_ROWS_A_COMPONENT = 10
_LEAST = 1e-3
"""Least variance along an axis, relative to the mean variance of a feature."""


def drawn(sample: FloatArray | None, ranges: Ranges, n: int, rng: np.random.Generator) -> FloatArray:
    """Draw rows from what a public sample says of rows, float64 of shape (n, n_features).

    This is a mixture of Gaussians with one covariance, of the number of components of best BIC. Without a
    sample, rows are drawn from the ranges. They are clipped as clients clip theirs.
    """
    if sample is None or len(sample) < 2:
        return rng.uniform(ranges.low, ranges.high, (n, ranges.n_features))
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
    return rng.permutation(ranges.clip(min(models, key=lambda model: float(model.bic(rows))).sample(n)[0]))
