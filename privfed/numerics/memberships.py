"""Fuzzy memberships of rows in clusters: how much each row belongs to each center.

Bezdek, Ehrlich, Full: FCM, Computers & Geosciences 10, 1984. With distances d_ij and fuzzifier m > 1,

    u_ij = 1 / sum_k (d_ij / d_ik)^(2 / (m - 1)),    sum_j u_ij = 1.

Equation 5 of Stallmann and Wilbik 2022 has squared distances under that exponent. Here they are not squared,
as in the authors' code and as equation 4, the objective that these memberships minimise, requires. A row that
lies on a center has membership 1 in it; several coinciding centers share the row equally.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.numerics.kernels.by_law import distances

LARGEST_FUZZIFIER = 100.0
"""Largest fuzzifier: above it u^m of two equal memberships, 2^-m, would vanish in any sum."""


def check_fuzzifier(m: float) -> None:
    """Check a fuzzifier.

    Raises:
        ArgumentError: m is not in (1, 100].
    """
    if not 1.0 < m <= LARGEST_FUZZIFIER:
        raise ArgumentError(f"m must lie in (1, {LARGEST_FUZZIFIER:g}], got m={m}; the papers take m=2.")


def shares(distances: FloatArray, m: float) -> FloatArray:
    """Return the memberships for given squared distances, in the same shape.

    Args:
        distances: squared distances, not negative, float64 of shape (n_centers, n_rows).
        m: fuzzifier, above 1.
    """
    least = distances.min(axis=0)
    if least.min() > 0.0:
        weights: FloatArray = least / distances
    else:
        # For a row on a center the ratio is 0/0: it becomes 1 for each center that the row lies on.
        on_center = least == 0.0
        weights = np.divide(least, distances, out=np.zeros_like(distances), where=~on_center)
        weights[:, on_center] = distances[:, on_center] == 0.0
    if m != 2.0:
        np.power(weights, 1.0 / (m - 1.0), out=weights)
    # Added in sequence: NumPy's sum adds a single column in another order than several, but a row's
    # memberships must not depend on the other rows.
    weights /= reduce(np.add, weights)
    return weights


def memberships(rows: FloatArray, centers: FloatArray, m: float = 2.0) -> FloatArray:
    """Return the memberships of rows in clusters.

    Args:
        rows: float64 of shape (n_rows, n_features).
        centers: float64 of shape (n_clusters, n_features).
        m: fuzzifier, above 1. Near 1, a row belongs to its nearest center only; large values spread it.

    Returns:
        float64 of shape (n_rows, n_clusters), each row in [0, 1] with sum 1.

    Raises:
        ArgumentError: m is out of its bounds.
    """
    check_fuzzifier(m)
    return np.ascontiguousarray(shares(distances(rows, centers), m).T)
