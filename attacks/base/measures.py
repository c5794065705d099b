"""Measures of how close claims are to rows: one-to-one matches, RMSE, Wasserstein distance."""

from __future__ import annotations

from itertools import chain

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from privfed.core.values.domain import FloatArray

IntArray = npt.NDArray[np.intp]

MOST_TRANSPORTED = 1000
"""Approximate most atoms on each side of a transport problem; larger sets are subsampled."""


def spread(rows: FloatArray) -> float:
    """Return the root mean square of the features' standard deviations; 1 if all rows are equal."""
    return float(np.sqrt(rows.var(axis=0).mean())) or 1.0


def matches(claims: FloatArray, rows: FloatArray, tolerance: float) -> IntArray:
    """Match as many claims as possible to rows, one to one.

    Args:
        claims: float64 of shape (n_claims, n_features).
        rows: float64 of shape (n_rows, n_features).
        tolerance: largest difference in any feature.

    Returns:
        Index of each claim's row, or -1, int64 of shape (n_claims,).
    """
    if not len(claims) or not len(rows):
        return np.full(len(claims), -1)
    near = cKDTree(rows).query_ball_point(claims, tolerance, p=np.inf)
    lengths = [len(one) for one in near]
    found = np.fromiter(chain.from_iterable(near), dtype=np.intp)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    graph = csr_array((np.ones(len(found)), found, ends), shape=(len(claims), len(rows)))
    return np.asarray(maximum_bipartite_matching(graph, perm_type="column"), dtype=np.intp)


def matched_rmse(claims: FloatArray, rows: FloatArray) -> float:
    """Return the root mean square distance of claims to rows, matched one to one at the least cost."""
    if not len(claims) or not len(rows):
        return float("nan")
    squared = cdist(claims, rows, "sqeuclidean")
    return float(np.sqrt(squared[linear_sum_assignment(squared)].mean()))


def wasserstein(atoms: FloatArray, weights: FloatArray, rows: FloatArray, rng: np.random.Generator) -> float:
    """Return the Wasserstein-1 distance of weighted atoms to rows of equal weight.

    Atoms are resampled systematically by their weights, to a whole multiple of the number of rows; the
    distance of the resampled atoms to the rows is then an exact assignment problem.

    Args:
        atoms: float64 of shape (n_atoms, n_features).
        weights: not negative, with a positive sum, shape (n_atoms,).
        rows: float64 of shape (n_rows, n_features).
        rng: places the first draw, and subsamples rows if there are more than `MOST_TRANSPORTED`.
    """
    if len(rows) > MOST_TRANSPORTED:
        rows = rows[rng.permutation(len(rows))[:MOST_TRANSPORTED]]
    copies = max(1, MOST_TRANSPORTED // len(rows))
    n = copies * len(rows)
    places = (rng.random() + np.arange(n)) / n * weights.sum()
    drawn = np.minimum(np.searchsorted(np.cumsum(weights), places), len(atoms) - 1)
    cost = np.repeat(cdist(atoms[drawn], rows), copies, axis=1)
    return float(cost[linear_sum_assignment(cost)].mean())
