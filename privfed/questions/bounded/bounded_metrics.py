"""Bounded forms of the metrics' questions, with a proven bound on a record's, or a client's, contribution.

**One record.** A bounded form computes the same statistics as its question, but clips each record's
contribution to a bound, against which each is checked (`privfed.privacy.contributions`). The bounds follow
from the largest distance of a record of the domain to its nearest center. An index spends its whole budget on
its one sum. Reveals to whoever opens the total: what the question reveals, with noise.

**One client (`AsOneRecord`).** Each client counts as one record. A client divides the sums over its rows by a
common number of rows, or by its own number where that is larger. So the length of its answer is at most that
of one record's contribution, and the bound of one record holds for the client as a whole. Clients up to the
common number are weighted by their rows, larger ones as if they held just that many. A fifth of the budget
finds the common number, which about four in five clients do not exceed. Reveals to whoever opens the totals,
with noise: how many clients hold about how many rows (`privfed.questions.histograms`), and what the index's
question reveals.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import ClassVar

import numpy as np

from privfed.core.asking.declaration import Declaration
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Statistics, StatisticsSpec
from privfed.core.values.domain import LARGEST, FloatArray
from privfed.core.values.numbers import LEAST_BOUND, check_bound
from privfed.errors import ArgumentError
from privfed.numerics.kernels.dispatch import assign, distances, nearest
from privfed.numerics.kernels.interpreted import IntArray
from privfed.numerics.memberships import shares
from privfed.privacy.bounds import (
    HAIR,
    MOST_SHARED,
    Bound,
    RecordBounded,
    bounded_form_of,
    bounded_spec,
    check_sizes,
    counted,
    in_cells,
    lone_count,
    magnitude,
    nonnegative,
)
from privfed.privacy.contributions import Contribution
from privfed.questions.cluster_spread import (
    ClusterDistances,
    ClusterQuestion,
    ClusterScatter,
    ClusterSilhouettes,
    FuzzySpread,
)
from privfed.questions.lloyd import Contingency, Inertia, largest_distances


@dataclass(frozen=True, kw_only=True, eq=False)
class _BoundedMetric(RecordBounded):
    """A bounded form, whose answers lie on the grid of its bounds.

    Args:
        reach: radius of a ball around the midpoint of the ranges that contains all rows; None where rows are
            only known to lie in the ranges.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS
    signed: ClassVar[frozenset[str]] = frozenset()
    """Entries that may be negative even without noise."""
    reach: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[misc]
        if self.reach is not None and not 0.0 < self.reach <= LARGEST:
            raise ArgumentError(f"reach must lie in (0, {LARGEST:.3g}], got reach={self.reach}.")
        centers: FloatArray = self.centers  # type: ignore[attr-defined]
        check_sizes("centers", centers)
        check_sizes("ranges", self.ranges.low, self.ranges.high)
        if len(centers) > MOST_SHARED:
            raise ArgumentError(f"an index needs at most {MOST_SHARED} centers, got {len(centers)}.")
        with np.errstate(over="ignore"):  # A bound that overflows is refused by `check_bound`.
            for name, bound in self.bounds.items():
                check_bound(f"the bound of {name}", bound.l2)

    def _to_center(self, centers: FloatArray) -> FloatArray:
        """Return a bound on the distance of a row in the ball to each center; infinite without a ball."""
        if self.reach is None:
            return np.full(len(centers), np.inf)
        middle = (self.ranges.low + self.ranges.high) / 2.0
        return np.asarray(np.linalg.norm(centers - middle, axis=1) + self.reach)

    def _squared(self, centers: FloatArray) -> float:
        """Return a bound on the squared distance of a row to its nearest center, at least `LEAST_BOUND`."""
        ball = float(self._to_center(centers).min()) ** 2
        return max(min(float(largest_distances(centers, self.ranges).min()), ball), LEAST_BOUND)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """The question's entries, each at most the rows of a client times the bound of one row."""
        shapes = {entry.name: entry.shape for entry in self._plain.entries}
        limits = {name: bound.l2 for name, bound in self.bounds.items()}
        return bounded_spec(limits, shapes, self.ranges.rows, signed=self.signed)

    @property
    def _plain(self) -> StatisticsSpec:
        plain = next(kind for kind in type(self).__mro__ if not issubclass(kind, RecordBounded))
        spec: StatisticsSpec = plain.__dict__["spec"].func(self)
        return spec

    @property
    def values_of_a_row(self) -> int:
        """A row may add to every center."""
        centers: FloatArray = self.centers  # type: ignore[attr-defined]
        return 2 * (self.ranges.n_features + len(centers))


class _InClusters(_BoundedMetric, ClusterQuestion):
    """Bounded forms in which a record adds a count and a value to its cluster's cell."""

    _value: ClassVar[str]

    @property
    def farthest(self) -> float:
        """Bound on the distance of a row to its nearest center."""
        return float(np.sqrt(self._squared(self.centers)))

    @property
    def _largest(self) -> float:
        return self.farthest

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """Bounds of a count and of a value in [0, largest], which a replacement in the cell may change by."""
        return {"count": counted(), self._value: Bound(self._largest, stay=1.0, move=2.0)}

    def contributions(self, rows: FloatArray, labels: IntArray) -> Mapping[str, Contribution]:
        """Return each row's nearest center, and its value, clipped just below the largest."""
        return self._in_cells(*self.placed(rows))  # type: ignore[attr-defined]

    def _in_cells(self, cells: IntArray, values: FloatArray) -> dict[str, Contribution]:
        cut = np.minimum(values, self._largest) * HAIR
        return {"count": Contribution(cells=cells), self._value: Contribution(cut[:, None], cells)}


@bounded_form_of(ClusterDistances)
@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedDistances(_InClusters, ClusterDistances):
    """`ClusterDistances` with bounds."""

    _value: ClassVar[str] = "distance"

    @property
    def _largest(self) -> float:
        return max(float(np.float64(self.farthest) ** self.power), LEAST_BOUND)


@bounded_form_of(ClusterSilhouettes)
@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedSilhouettes(_InClusters, ClusterSilhouettes):
    """`ClusterSilhouettes` with bounds."""

    _value: ClassVar[str] = "silhouette"

    @property
    def _largest(self) -> float:
        return 1.0


@bounded_form_of(ClusterScatter)
@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedScatter(_InClusters, ClusterScatter):
    """`ClusterScatter` with bounds."""

    signed: ClassVar[frozenset[str]] = frozenset({"offset"})
    _value: ClassVar[str] = "square"

    @property
    def _largest(self) -> float:
        return self.farthest**2

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """Bounds of the count, of an offset of at most the farthest distance, and of its square."""
        value = {"square": Bound(self._largest, stay=1.0, move=2.0)}
        return {"count": counted(), "offset": in_cells(self.farthest), **value}

    def contributions(self, rows: FloatArray, labels: IntArray) -> Mapping[str, Contribution]:
        """Return each row's nearest center, its offset from it, clipped, and the square of its distance."""
        cells, squares = nearest(rows, self.centers)
        offsets, length = rows - self.centers[cells], np.sqrt(squares)
        shorter = HAIR * np.minimum(1.0, self.farthest / np.maximum(length, self.farthest))
        return self._in_cells(cells, length**2) | {"offset": Contribution(offsets * shorter[:, None], cells)}


@bounded_form_of(Inertia)
@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedInertia(_BoundedMetric, Inertia):
    """`Inertia` with bounds."""

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """Bounds of one squared distance, at most that of the farthest row, and of the row count."""
        return {"inertia": magnitude(self._squared(self.centers)), "rows": lone_count()}

    def contributions(self, rows: FloatArray, labels: IntArray) -> Mapping[str, Contribution]:
        """Return each row's squared distance to its nearest center."""
        squares = nearest(rows, self.centers).squares
        return {"inertia": Contribution(HAIR * np.minimum(squares, self.bounds["inertia"].l2)[:, None])}


@bounded_form_of(FuzzySpread)
@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedSpread(_BoundedMetric, FuzzySpread):
    """`FuzzySpread` with bounds. A record's distances enter all clusters, whatever its memberships.

    So the bound is on the vector of its distances to all centers. For q = 1 it is the largest root of
    sum_i ||x - c_i||^2 over the domain. In a box each feature attains the maximum at one of its ends. In a
    ball the sum is k ||x - mean||^2 + sum_i ||c_i - mean||^2, largest at the point farthest from the
    centers' mean.
    """

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """Bounds of the vector of distances, of memberships that sum to 1, and of the row count."""
        low, high = (np.square(end - self.centers) for end in (self.ranges.low, self.ranges.high))
        if self.q == 1.0:
            mean = self.centers.mean(axis=0, keepdims=True)
            around = float(np.square(self.centers - mean).sum())
            ball = len(self.centers) * float(self._to_center(mean)[0]) ** 2 + around
            box = float(np.maximum(low.sum(axis=0), high.sum(axis=0)).sum())
        else:
            with np.errstate(over="ignore"):  # The smaller bound counts; it is an error if both overflow.
                ball = float(np.square(self._to_center(self.centers) ** self.q).sum())
                box = float(np.square(np.maximum(low, high).sum(axis=1) ** (self.q / 2.0)).sum())
        spread = nonnegative(max(float(np.sqrt(min(ball, box))), LEAST_BOUND))
        return {"spread": spread, "membership": nonnegative(1.0), "rows": lone_count()}

    def contributions(self, rows: FloatArray, labels: IntArray) -> Mapping[str, Contribution]:
        """Return each row's distances to all centers, clipped together, and its memberships."""
        squares = distances(rows, self.centers)
        powers, most = np.power(squares, self.q / 2.0), self.bounds["spread"].l2
        # Added in sequence, since NumPy's sum adds a single column in another order than several.
        length = np.sqrt(reduce(np.add, np.square(powers)))
        spread = powers * (HAIR * np.minimum(1.0, most / np.maximum(length, most)))
        return {
            "spread": Contribution(spread.T),
            "membership": Contribution(HAIR * shares(squares, self.m).T),
        }


@bounded_form_of(Contingency)
@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedTable(_BoundedMetric, Contingency):
    """`Contingency` with bounds: a record is counted once, or not at all without a known label."""

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """The bound of a count in one cell."""
        return {"table": counted()}

    def contributions(self, rows: FloatArray, labels: IntArray) -> Mapping[str, Contribution]:
        """Return the cell of each row's label and nearest center; nowhere without a known label."""
        cells = labels * len(self.centers) + assign(rows, self.centers)
        return {"table": Contribution(cells=np.where((labels >= 0) & (labels < self.n_labels), cells, -1))}


SIZES_SHARE = 0.2
"""Share of the budget for the histogram of the clients' sizes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SharesOfARecord(Question):
    """Questions about clients' sums, divided so that each client counts as at most one record.

    Args:
        inner: the question about the client's rows, with a bound on one record's contribution.
        rows: the common number of rows, in [1, 2^40].
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    inner: Question
    rows: float

    def __post_init__(self) -> None:
        if not 1.0 <= self.rows <= 2.0**40:
            raise ArgumentError(f"rows must lie in [1, 2^40], got rows={self.rows}.")

    @property
    def declaration(self) -> Declaration | None:
        """No row counts, since the sums are divided; None where `inner` declares nothing."""
        inner = self.inner.declaration
        return inner and Declaration(can_fail=inner.can_fail)

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients in one pass."""
        answers = self.inner.answer_all(clients, generators)
        return [self.divided(*pair) for pair in zip(answers, (one.n_rows for one in clients), strict=True)]

    @abstractmethod
    def divided(self, answer: Statistics, n_rows: int) -> Statistics:
        """Return what a client of so many rows answers, given its sums."""


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class AsOneRecord(SharesOfARecord):
    """Ask for another question's sums, scaled so that each client counts as at most one record.

    Statistics: those of `inner`, divided by max(`rows`, rows of the client).
    """

    inner: RecordBounded

    @property
    def limits(self) -> dict[str, float]:
        """Entry -> bound on its L2 norm for one client, which is the bound of one record."""
        return {name: bound.l2 for name, bound in self.inner.bounds.items()}

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Values of at most their entry's limit."""
        limits, entries = self.limits, self.inner.spec.entries
        signed = [entry.name for entry in entries if np.min(np.asarray(entry.low)) < 0]
        of_record = {entry.name: limits[entry.name] for entry in entries}
        return bounded_spec(of_record, {entry.name: entry.shape for entry in entries}, signed=signed)

    def divided(self, answer: Statistics, n_rows: int) -> Statistics:
        """Return one client's sums, divided."""
        return Statistics(**{name: answer[name] * HAIR / max(self.rows, n_rows) for name in answer})
