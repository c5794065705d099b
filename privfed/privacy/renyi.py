"""Privacy costs of Skellam noise: Renyi differential privacy (RDP), converted to (epsilon, delta).

Integer vectors of L1 sensitivity D1 and L2 sensitivity D2, under independent Skellam noise of variance mu on
each value, are (a, r)-RDP for every integer order a >= 2 with

    r(a) = a D2^2 / (2 mu) + min(((2 a - 1) D2^2 + 6 D1) / (4 mu^2), 3 D1 / (2 mu))

(Agarwal, Kairouz and Liu 2021, arXiv 2110.04995, corollary 3.6); tests check it against exact probabilities.
For integer vectors D1 <= D2^2, and D1 <= sqrt(d) D2 where neighbours differ in at most d values. So r(a) is
at most a / 2 * D2^2 / (mu - 9 / 4): at every order a release costs less than the D2^2 / (mu - 9) that is
charged for the discrete Gaussian (`privfed.privacy.accounting.discrete_gaussian_cost`). A sum of shares is
Skellam with the sum of their variances, exactly.

A run may choose each release depending on earlier totals. If the order is fixed before the run and costs
never sum to more than W, it is (a, a W / 2)-RDP (docs/privacy/accounting.md, section 6), and so
(epsilon, delta)-DP with

    epsilon = r + ln(1 - 1 / a) - (ln delta + ln a) / (a - 1)

(Canonne, Kamath and Steinke 2020, arXiv 2004.00010, proposition 12). `skellam_budget` is the largest such W.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import Neighbours
from privfed.errors import ArgumentError
from privfed.privacy.accounting import check_delta
from privfed.privacy.composed import Composed

_ORDERS = np.unique(np.rint(np.concatenate([np.arange(2.0, 2000.0), np.geomspace(2e3, 1e12, 60_000)])))
"""Orders that are tried. Any integer order gives a valid claim; these lose less than 1e-6 of epsilon."""

_SLACK = 1e-12


@dataclass(frozen=True, slots=True)
class SkellamRelease:
    """An integer vector released once under Skellam noise.

    Args:
        l2: L2 sensitivity, in steps.
        variance: of the noise on each value, in steps squared.
        touched: largest number of values in which neighbours differ.
    """

    l2: float
    variance: float
    touched: int

    def __post_init__(self) -> None:
        if not (0 <= self.l2 < math.inf and 0 < self.variance < math.inf and self.touched >= 1):
            raise ArgumentError(
                "a release needs l2 >= 0, variance > 0 and touched >= 1, all finite, got "
                f"l2={self.l2}, variance={self.variance}, touched={self.touched}."
            )

    @property
    def l1(self) -> float:
        """Bound on the L1 sensitivity, in steps."""
        return min(math.sqrt(self.touched) * self.l2, self.l2**2)


def skellam_rdp(order: FloatArray | float, release: SkellamRelease) -> FloatArray:
    """Return r of one release at integer orders of at least 2, float64 of the orders' shape."""
    a, l1, square, mu = np.asarray(order, dtype=np.float64), release.l1, release.l2**2, release.variance
    rest = np.minimum(((2.0 * a - 1.0) * square + 6.0 * l1) / (4.0 * mu**2), 3.0 * l1 / (2.0 * mu))
    rdp: FloatArray = (a * square / (2.0 * mu) + rest) * (1.0 + _SLACK)
    return rdp


def _excess(delta: float) -> FloatArray:
    """Return epsilon - r at each order of `_ORDERS`, rounded up."""
    exact: FloatArray = np.log1p(-1.0 / _ORDERS) - (math.log(delta) + np.log(_ORDERS)) / (_ORDERS - 1.0)
    rounded: FloatArray = exact + _SLACK * (1.0 + np.abs(exact))
    return rounded


def compose_skellam(releases: Sequence[SkellamRelease], delta: float, neighbours: Neighbours) -> Composed:
    """Return the joint guarantee of releases that were fixed before the first; epsilon is rounded up.

    For these the order may be chosen last, and each release's own D1 is used. Adaptively chosen releases are
    paid from `skellam_budget` instead.

    Args:
        releases: with sensitivities under `neighbours`.
        delta: in [1e-300, 1).
        neighbours: relation for which the guarantee holds.

    Raises:
        ArgumentError: delta is out of its bounds.
    """
    check_delta(delta)
    if not any(release.l2 for release in releases):
        return Composed(0.0, delta, neighbours, "rdp")
    together = np.sum([skellam_rdp(_ORDERS, release) for release in releases], axis=0)
    return Composed(max(0.0, float((together + _excess(delta)).min())), delta, neighbours, "rdp")


def renyi_epsilon(cost: float, delta: float) -> float:
    """Return the epsilon, rounded up, of claims with this summed cost, whatever their mechanisms.

    Discrete Gaussian and Skellam noise of cost W has a Renyi divergence of at most a W / 2 at every order a,
    so that the order may be chosen last.

    Args:
        cost: sum of the budgets of claims that do not depend on each other's totals.
        delta: in [1e-300, 1).

    Raises:
        ArgumentError: delta is out of its bounds.
    """
    check_delta(delta)
    return max(0.0, float((_ORDERS * cost / 2.0 + _excess(delta)).min()) * (1.0 + _SLACK))


@lru_cache(maxsize=64)
def skellam_budget(epsilon: float, delta: float) -> float:
    """Return the largest budget W, rounded down, that keeps costs within (epsilon, delta) at the best order.

    Args:
        epsilon: positive.
        delta: in [1e-300, 1).

    Raises:
        ArgumentError: delta is out of its bounds, or epsilon so small that no order reaches it.
    """
    check_delta(delta)
    budget = float((2.0 * (epsilon - _excess(delta)) / _ORDERS).max()) * (1.0 - _SLACK)
    if not 0.0 < budget < math.inf:
        raise ArgumentError(
            f"epsilon={epsilon!r} is out of reach of the Renyi bound for Skellam noise at delta={delta!r}; "
            'claim more, or use mechanism="gaussian".'
        )
    return budget
