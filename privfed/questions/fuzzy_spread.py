"""The fuzzy objective and the fuzzy Davies-Bouldin index.

Stallmann and Wilbik 2022 (FedFuzzDB), equations 4 and 7 to 13; Vergani and Binaghi 2018. A cluster's spread
is over all rows, S_i = U_i (mean ||x - c_i||^q)^(1/q) with U_i the mean membership, and the index is
the mean over i of the largest (S_i + S_j) / M_ij over j != i; a smaller index is better.

Reveals to whoever opens the total, over all clients: for each center, the sum of all rows' distances to
it to the power q, the sum of their memberships, and the number of rows. The paper proposes to hide each
client's number of rows N_l, since spread, memberships and N_l give equations for its rows. Here no client's
own values are seen. Hiding N_l alone would not help: the memberships of a row add up to 1, so that N_l
equals the sum of the client's memberships over all clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.asking.question import register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_number
from privfed.errors import ArgumentError
from privfed.numerics.kernels.dispatch import distances
from privfed.numerics.memberships import check_fuzzifier, shares
from privfed.questions.lloyd import RESOLUTION, TINY, AtCenters, largest_distances, sum_entry


@dataclass(frozen=True, kw_only=True, eq=False)
class FuzzyQuestion(AtCenters):
    """Questions about the memberships of rows in clusters.

    Args:
        m: fuzzifier, above 1.
    """

    m: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fuzzifier(self.m)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class FuzzyObjective(FuzzyQuestion):
    """Ask for the fuzzy c-means objective (eq. 4), and for the inertia of hard assignments.

    Statistics: `objective` (1,) = sum of u^m ||x - c||^2, `inertia` (1,), `rows` (1,).
    """

    row_counts: ClassVar[tuple[str, ...]] = ("rows",)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Each row adds at most the squared distance of a corner: the objective never exceeds the inertia."""
        farthest = largest_distances(self.centers, self.ranges).min()
        return StatisticsSpec(
            sum_entry("objective", (1,), farthest, self.ranges.rows, "rows"),
            sum_entry("inertia", (1,), farthest, self.ranges.rows, "rows"),
            Entry("rows", (1,), 0.0, self.ranges.rows, RESOLUTION),
        )

    def of_rows(self, rows: FloatArray) -> Statistics:
        """Answer for one client's rows."""
        squares = distances(rows, self.centers)
        objective = np.power(shares(squares, self.m), self.m) * squares
        nearest = squares.min(axis=0)
        return Statistics(objective=[objective.sum()], inertia=[nearest.sum()], rows=[len(nearest)])


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class FuzzySpread(FuzzyQuestion):
    """Ask for the sums of equations 12 and 13.

    Statistics: `spread` (n_clusters,) = sum of ||x - c||^q over all rows, `membership` (n_clusters,) =
    sum of u, `rows` (1,).

    Args:
        q: power of the distances, at least 1.
    """

    q: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("q", self.q, "[1, 64]", remedy="; the paper takes q=1")
        if not np.isfinite(self._largest()).all():
            raise ArgumentError(f"q={self.q} is too large for distances in these ranges; take a smaller one.")

    def _largest(self) -> FloatArray:
        with np.errstate(over="ignore"):
            powers: FloatArray = largest_distances(self.centers, self.ranges) ** (self.q / 2.0)
        return np.maximum(powers, TINY)

    row_counts: ClassVar[tuple[str, ...]] = ("membership",)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Each row adds at most the distance of a corner of the ranges, and a membership of 1."""
        k, rows = len(self.centers), self.ranges.rows
        return StatisticsSpec(
            sum_entry("spread", (k,), self._largest(), rows, "rows"),
            sum_entry("membership", (k,), 1.0, rows, "rows"),
            Entry("rows", (1,), 0.0, rows, RESOLUTION),
        )

    def of_rows(self, rows: FloatArray) -> Statistics:
        """Answer for one client's rows."""
        squares = distances(rows, self.centers)
        spread, membership = np.power(squares, self.q / 2.0).sum(axis=1), shares(squares, self.m).sum(axis=1)
        return Statistics(spread=spread, membership=membership, rows=[len(rows)])


def index_from(total: Statistics, centers: FloatArray, p: float, q: float) -> float:
    """Return the index (eq. 7 to 9 with the spread of eq. 12) from a total of `FuzzySpread`.

    It is infinite where two centers coincide, since they are then one cluster.

    Args:
        total: total of `FuzzySpread`.
        centers: the question's centers, float64 of shape (n_clusters, n_features).
        p: order of the norm of differences of centers.
        q: power of the distances in the question.
    """
    rows = max(float(total["rows"][0]), 1.0)
    spread = total["membership"] / rows * (total["spread"] / rows) ** (1.0 / q)
    apart = np.linalg.norm(centers[:, None] - centers[None], ord=p, axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(apart > 0.0, (spread[:, None] + spread) / apart, np.inf)
    np.fill_diagonal(ratio, -np.inf)
    return float(ratio.max(axis=1).mean())
