"""What Gaussian differential privacy leaves to any attack that lists rows.

Let x be one of the target's rows, drawn from a prior, and all others anything that the attacker may know. An
attack lists at most m claims. Without x (or with another row in its place) the list does not depend on x, so
that it holds x within a tolerance with a chance of at most

    kappa = the most of the prior's mass that m balls of that radius cover.

The run is mu-GDP: an event of chance kappa without x has at most Phi(Phi^-1(kappa) + mu) with it (Dong, Roth
and Su 2022). As that is concave in kappa it may be averaged over x (Jensen): the same bound holds for the
share of rows that are in the list. For one claim it is the bound on reconstruction robustness of Balle,
Cherubin and Hayes 2022 (arXiv:2201.04845), definition 2, for a Gaussian trade-off curve.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree
from scipy.stats import norm

from privfed.core.domain import FloatArray

_MOST = 2000


def coverage(sample: FloatArray, n_claims: int, radius: float) -> float:
    """Return a bound on the share of a sample that so many balls of the maximum norm cover, in (0, 1].

    Of the rows that a ball covers one is lowest in the first feature. All others lie within two radii above
    it there, and within two to either side in all other features. Of such boxes the best are chosen greedily;
    whatever others are chosen cover no more than these, and what each of the n best would add to them
    (Nemhauser, Wolsey and Fisher 1978).

    Args:
        sample: rows of the prior, float64 of shape (n, n_features); of more than 2,000 every so many.
        n_claims: number of balls.
        radius: their radius.
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
    """Return the largest expected share of rows that an attack's list holds: Phi(Phi^-1(kappa) + mu)."""
    return float(norm.cdf(norm.ppf(kappa) + mu))
