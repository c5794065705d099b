"""A bound, under Gaussian differential privacy, on any attack that lists claimed rows.

Let x be one of the target's rows, drawn from a prior; the attacker may know all other rows. An attack makes
at most m claims. If x is not in the data (or replaced by another row), the claims do not depend on x, so
one of them is within the tolerance of x with probability at most

    kappa = the largest prior probability that m balls of that radius can cover.

As the run is mu-GDP, an event of probability kappa without x has at most probability Phi(Phi^-1(kappa) + mu)
with it (Dong, Roth and Su 2022). This is concave in kappa, so by Jensen's inequality it can be averaged over
x: the same bound holds for the expected share of rows that are claimed. For one claim it is the bound on
reconstruction robustness of Balle, Cherubin and Hayes 2022 (arXiv:2201.04845), definition 2, for a Gaussian
trade-off curve.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree
from scipy.stats import norm

from privfed.core.values.domain import FloatArray

_MOST = 2000


def coverage(sample: FloatArray, n_claims: int, radius: float) -> float:
    """Bound the share of a sample that `n_claims` balls of the maximum norm can cover, in (0, 1].

    Among the rows that a ball covers, take the lowest in the first feature. All others lie at most two radii
    above it in that feature, and within two radii on either side in the others, so a box around that row
    covers the ball's rows. Boxes are chosen greedily; any n boxes cover at most as many rows as the greedy
    ones so far plus the n largest further gains (Nemhauser, Wolsey and Fisher 1978).

    Args:
        sample: rows of the prior, float64 of shape (n, n_features); thinned to at most 2,000.
        n_claims: number of balls.
        radius: radius of the balls.
    """
    rows = sample[:: max(1, -(-len(sample) // _MOST))]
    if not n_claims:
        return 1.0 / len(rows)
    covers = np.zeros((len(rows), len(rows)), dtype=np.bool_)
    for i, near in enumerate(cKDTree(rows).query_ball_point(rows, 2.0 * radius, p=np.inf)):
        covers[i, near] = rows[near, 0] >= rows[i, 0]
    gains, covered, best = covers.sum(axis=1), np.zeros(len(rows), dtype=np.bool_), len(rows)
    for _ in range(n_claims):
        best = min(best, int(covered.sum() + np.sort(gains)[-n_claims:].sum()))
        new = covers[np.argmax(gains)] & ~covered
        if not new.any():
            break
        covered |= new
        gains = gains - covers[:, new].sum(axis=1)
    return min(best, len(rows)) / len(rows)


def reconstruction_bound(kappa: float, mu: float) -> float:
    """Return the largest expected share of rows that an attack can claim: Phi(Phi^-1(kappa) + mu)."""
    return float(norm.cdf(norm.ppf(kappa) + mu))
