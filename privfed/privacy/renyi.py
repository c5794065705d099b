"""What Skellam noise costs: Renyi differential privacy, converted to (epsilon, delta).

Integer vectors that neighbours move by at most D1 (L1 norm) and D2 (L2 norm), under independent Skellam noise
of variance mu on each value, are (a, r)-RDP for every integer order a >= 2 with

    r(a) = a D2^2 / (2 mu) + min(((2 a - 1) D2^2 + 6 D1) / (4 mu^2), 3 D1 / (2 mu))

(Agarwal, Kairouz and Liu 2021, arXiv 2110.04995, corollary 3.6); tests hold it against exact probabilities.
Of integers D1 <= D2^2, and D1 <= sqrt(d) D2 where at most d values are touched. So r(a) is at most
a / 2 * D2^2 / (mu - 9 / 4): at every order a release costs less than the D2^2 / (mu - 9) that is charged for
the discrete Gaussian (`privfed.privacy.accounting.discrete_gaussian_cost`). Sums of shares are Skellam, with
the sum of their variances, exactly.

A run may choose each release by earlier totals. With the order fixed before it and costs that never sum to
more than W, it is (a, a W / 2)-RDP (docs/privacy/accounting.md, section 6), and so (epsilon, delta)-DP with

    epsilon = r + ln(1 - 1 / a) - (ln delta + ln a) / (a - 1)

(Canonne, Kamath and Steinke 2020, arXiv 2004.00010, proposition 12). `skellam_budget` is the largest such W.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privfed.core.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.privacy.accounting import check_delta
from privfed.privacy.composition import Composed
from privfed.privacy.neighbours import Neighbours

_ORDERS = np.unique(np.rint(np.concatenate([np.arange(2.0, 2000.0), np.geomspace(2e3, 1e12, 60_000)])))
"""Any integer order gives a valid claim: these are dense enough to lose less than 1e-6 of epsilon."""

_SLACK = 1e-12


@dataclass(frozen=True, slots=True)
class SkellamRelease:
    """An integer vector released once under Skellam noise.

    Args:
        l2: greatest L2 distance between the vectors of neighbours, in steps.
        variance: of the noise on each value, in steps squared.
        touched: most values in which neighbours differ.
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
        """Greatest L1 distance between the vectors of neighbours, in steps."""
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
    """Return what releases, fixed before the first, guarantee together; epsilon is rounded up.

    The order may then be chosen last, and D1 of each release counts. Releases chosen adaptively are paid
    from `skellam_budget`.

    Args:
        releases: with distances under `neighbours`.
        delta: in [1e-300, 1).
        neighbours: relation that the answer is for.

    Raises:
        ArgumentError: delta is out of its bounds.
    """
    check_delta(delta)
    if not any(release.l2 for release in releases):
        return Composed(0.0, delta, neighbours, "rdp")
    together = np.sum([skellam_rdp(_ORDERS, release) for release in releases], axis=0)
    return Composed(max(0.0, float((together + _excess(delta)).min())), delta, neighbours, "rdp")


def renyi_epsilon(cost: float, delta: float) -> float:
    """Return what releases that cost so much together guarantee, rounded up, whatever their mechanisms.

    Discrete Gaussian and Skellam noise that is priced at W has a Renyi divergence of at most a W / 2 at
    every order a, fixed before or chosen last.

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
    """Return the budget W, rounded down: costs that sum to it are within (epsilon, delta) at its best order.

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
