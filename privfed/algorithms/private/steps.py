"""Questions for other steps than Lloyd's under differential privacy: fuzzy steps, and several local steps.

A fuzzy record belongs to all clusters, with memberships u. As they sum to 1 and m >= 1, the vector of u^m has
L2 norm at most 1, and that of u^m clip(x - c, R), over all clusters, at most R: the bounds of a record in one
cell hold. Replacing a record costs the most in one of the two cases of hard assignments: with t = sum u v for
old and new memberships u and v, the squared change of counts is at most 2 - 2 t, that of sums at most
R^2 (2 + 2 t), and the cost is linear in t. This requires that sums use the truncated memberships.

Several local steps have no useful bound for a record. They are asked of whole clients only
(`privfed.algorithms.private.clients`), with each center's movement clipped to the radius, then weighted.

Reveals to whoever opens the totals: these sums, with noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.asking.coarseness import Coarseness
from privfed.core.asking.declaration import Declaration, RowCounts
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.numerics.kernels.by_law import distances
from privfed.numerics.memberships import check_fuzzifier, shares
from privfed.privacy.bounds import (
    HAIR,
    MOST_SHARED,
    Bound,
    RecordBounded,
    check_sizes,
    counted,
    in_cells,
    magnitude,
    step_of,
    truncated,
)
from privfed.questions.bounded.bounded_sums import SumsInCells
from privfed.questions.lloyd import check_centers


def _described(bounds: Mapping[str, float], shape: tuple[int, int], rows: float) -> StatisticsSpec:
    """Return the specification of counts, sums and distances of at most `rows` rows, each up to its bound."""
    shapes: dict[str, tuple[int, ...]] = {"count": shape[:1], "sum": shape, "distance": (1,)}
    lows = {"count": 0.0, "sum": -rows, "distance": 0.0}
    return StatisticsSpec(
        *(Entry(name, shapes[name], lows[name] * l2, rows * l2, step_of(l2)) for name, l2 in bounds.items())
    )


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class FuzzyRelativeSums(SumsInCells, RecordBounded):
    """Ask for a fuzzy step: sums of u^m, of u^m times clipped offsets, and of distances to nearest centers.

    Args:
        centers: float64 of shape (n_clusters, n_features).
        m: fuzzifier, above 1.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS
    asks: ClassVar[tuple[str, ...]] = ("count", "sum", "distance")
    centers: FloatArray
    m: float = 2.0

    @property
    def declaration(self) -> Declaration:
        """Sums of u^m, of which a row has at most 1 in all, and weighted sums; distances of all rows."""
        return Declaration(self._row_counts, (self.centers,))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_centers(self.centers, self.ranges)
        check_sizes("centers", self.centers)
        check_fuzzifier(self.m)
        if len(self.centers) > MOST_SHARED:
            raise ArgumentError(f"fuzzy steps need at most {MOST_SHARED} centers, got {len(self.centers)}.")

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """The bounds of a record in one cell (module docstring)."""
        return {"count": counted(), "sum": in_cells(self.radius), "distance": magnitude(self.radius)}

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Entries of at most the rows of a client times the bound of one row."""
        bounds = {name: bound.l2 for name, bound in self.bounds.items()}
        return _described(bounds, (len(self.centers), self.ranges.n_features), self.ranges.rows)

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [self._one(client.features) for client in clients]

    def _one(self, rows: FloatArray) -> Statistics:
        squares = distances(rows, self.centers)
        # Scaled slightly down, so that rounding makes no vector of memberships longer than 1.
        powers = truncated(HAIR * np.power(shares(squares, self.m), self.m), step_of(1.0))
        step, reach = step_of(self.radius), self.radius * HAIR
        sums = np.empty(self.centers.shape)
        for j, center in enumerate(self.centers):
            factors = powers[j] * np.minimum(1.0, reach / np.maximum(np.sqrt(squares[j]), reach))
            sums[j] = truncated((rows - center) * factors[:, None], step).sum(axis=0)
        nearest = truncated(np.minimum(np.sqrt(squares.min(axis=0)), reach), step)
        return Statistics(count=powers.sum(axis=1), sum=sums, distance=[nearest.sum()])


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class LocalMovements(SumsInCells):
    """Ask for the results of several local steps: weights, and weighted movements clipped to a radius.

    Statistics: `count` (n_clusters,), the weights; `sum` (n_clusters, n_features), each weight times the
    clipped movement of its center.

    Args:
        steps: asks for weights, and for weighted local centers or weighted movements, as its first and
            second entry; its ranges are those of this question.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    steps: Question

    def __post_init__(self) -> None:
        super().__post_init__()
        check_centers(self._centers, self.ranges)
        check_sizes("centers", self._centers)
        mine, theirs = self.ranges, self.steps.ranges
        same = np.array_equal(mine.low, theirs.low) and np.array_equal(mine.high, theirs.high)
        if not same or mine.rows != theirs.rows:
            raise ArgumentError("movements must have the ranges of their local steps.")
        if [entry.shape for entry in self.steps.spec.entries] != [
            self._centers.shape[:1],
            self._centers.shape,
        ]:
            raise ArgumentError("local steps need a weight and a sum for each center.")

    @property
    def declaration(self) -> Declaration | None:
        """Row counts, where the weights of the local steps count rows."""
        inner = self.steps.declaration
        counts = (RowCounts("count", ("sum",)),) if inner and inner.row_counts else ()
        return inner and Declaration(counts, can_fail=inner.can_fail)

    @property
    def _centers(self) -> FloatArray:
        declared = self.steps.declaration
        if declared is None or len(declared.centers) != 1:
            raise ArgumentError(f"{type(self.steps).__name__} declares no local steps from centers.")
        return declared.centers[0]

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Weights of at most those of the local steps, and movements of at most that many radii."""
        rows = float(np.max(np.asarray(self.steps.spec.entries[0].high)))
        return _described({"count": 1.0, "sum": self.radius}, self._centers.shape, max(rows, 1.0))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients in one pass; weights that are no valid numbers count as zero."""
        with np.errstate(all="ignore"):  # A warning would depend on the rows.
            return self._moved(self.steps.answer_all(clients, generators))

    def answer_coarsely(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator], coarseness: Coarseness
    ) -> list[Statistics]:
        """Answer for several clients, from local steps with small clusters suppressed."""
        return self._moved(self.steps.answer_coarsely(clients, generators, coarseness))

    def _moved(self, answers: Sequence[Statistics]) -> list[Statistics]:
        weight, total = (entry.name for entry in self.steps.spec.entries)
        declared = self.steps.declaration
        moved = declared is not None and declared.movements
        return [self._one(answer[weight], answer[total], moved=moved) for answer in answers]

    def _one(self, weight: FloatArray, total: FloatArray, *, moved: bool) -> Statistics:
        # A user's weighting may give NaN, infinite or negative weights for some rows; these count as zero.
        kept, high = np.isfinite(weight) & (weight >= 0.0), np.asarray(self.steps.spec.entries[0].high)
        kept &= np.isfinite(total).all(axis=1)
        within = np.where(kept, high / np.fmax(weight, high), 0.0)
        weight = np.where(kept, weight, 0.0) * within
        total = np.where(kept[:, None], total, 0.0) * within[:, None]
        movement = total if moved else total - weight[:, None] * self._centers
        length, reach = np.linalg.norm(movement, axis=1), weight * self.radius * HAIR
        shorter = np.divide(reach, length, out=np.ones_like(length), where=length > reach)
        return Statistics(count=weight, sum=movement * shorter[:, None])
