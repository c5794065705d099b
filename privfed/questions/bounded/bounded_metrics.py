"""Bounded forms of the metrics' questions, with a proven bound on one record's contribution.

A bounded form computes the same statistics as its question, but clips each record's contribution to a bound,
against which each is checked (`privfed.privacy.contributions`). The bounds follow from the largest distance
of a record of the domain to its nearest center; or from a public radius, to which each record's offset from
its nearest center is clipped: the metric then is that of the clipped records, and says nothing of how far
others lie beyond. An index spends its whole budget on its one sum.

Reveals to whoever opens the total: what the question reveals, with noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import ClassVar, cast

import numpy as np

from privfed.core.asking.question import register
from privfed.core.asking.statistics import StatisticsSpec
from privfed.core.values.domain import LARGEST, FloatArray
from privfed.core.values.numbers import LEAST_BOUND, check_bound, check_number, check_whole, lengths
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
    ClusterProfiles,
    ClusterScatter,
    ClusterSilhouettes,
    ValueQuestion,
)
from privfed.questions.fuzzy_spread import FuzzySpread
from privfed.questions.lloyd import Contingency, Inertia, largest_distances


@dataclass(frozen=True, kw_only=True, eq=False)
class _BoundedMetric(RecordBounded):
    """A bounded form, whose answers lie on the grid of its bounds.

    Args:
        reach: radius of a ball around the midpoint of the ranges that contains all rows; None where rows are
            only known to lie in the ranges.
        radius: length to which each row's offset from its nearest center is clipped; None for rows as they
            are. A cluster's rows and labels stay the same, and so does a silhouette, whose bound is 1.
    """

    signed: ClassVar[frozenset[str]] = frozenset()
    """Entries that may be negative even without noise."""
    reach: float | None = None
    radius: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[misc]
        for name in ("reach", "radius"):
            check_number(name, getattr(self, name), f"(0, {LARGEST}]", or_none=True)
        centers: FloatArray = self.centers  # type: ignore[attr-defined]
        check_sizes("centers", centers)
        check_sizes("ranges", self.ranges.low, self.ranges.high)
        check_whole("n_centers", len(centers), 1, MOST_SHARED)
        with np.errstate(over="ignore"):  # A bound that overflows is refused by `check_bound`.
            for name, bound in self.bounds.items():
                check_bound(f"the bound of {name}", bound.l2)

    def _to_center(self, centers: FloatArray) -> FloatArray:
        """Return a bound on the distance of a row in the ball to each center; infinite without a ball."""
        if self.reach is None:
            return np.full(len(centers), np.inf)
        return np.asarray(
            np.linalg.norm(centers - (self.ranges.low + self.ranges.high) / 2.0, axis=1) + self.reach
        )

    def _squared(self, centers: FloatArray) -> float:
        """Return a bound on the squared distance of a row to its nearest center, at least `LEAST_BOUND`."""
        ball = min(float(self._to_center(centers).min()), self._clipped) ** 2
        return max(min(float(largest_distances(centers, self.ranges).min()), ball), LEAST_BOUND)

    @property
    def _clipped(self) -> float:
        """The longest offset of a row from its nearest center that counts."""
        return np.inf if self.radius is None else self.radius

    @cached_property
    def spec(self) -> StatisticsSpec:
        """The question's entries, each at most the rows of a client times the bound of one row."""
        shapes = {entry.name: entry.shape for entry in self._plain.entries}
        limits = {name: bound.l2 for name, bound in self.bounds.items()}
        return bounded_spec(limits, shapes, self.ranges.rows, signed=self.signed)

    @property
    def _plain(self) -> StatisticsSpec:
        plain = (vars(kind) for kind in type(self).__mro__ if not issubclass(kind, RecordBounded))
        return cast(StatisticsSpec, next(own["spec"] for own in plain if "spec" in own).func(self))

    @property
    def values_of_a_row(self) -> int:
        """A row may add to every center."""
        centers: FloatArray = self.centers  # type: ignore[attr-defined]
        return 2 * (self.ranges.n_features + len(centers))


class _InClusters(_BoundedMetric, ValueQuestion):
    """Bounded forms in which a record adds a count and a value to its cluster's cell."""

    @property
    def farthest(self) -> float:
        """Bound on the distance of a row to its nearest center."""
        return float(np.sqrt(self._squared(self.centers)))

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """Bounds of a count and of a value in [0, largest], which a replacement in the cell may change by."""
        return {"count": counted(), self.value: Bound(self.largest, stay=1.0, move=2.0)}

    def contributions(self, rows: FloatArray, labels: IntArray) -> Mapping[str, Contribution]:
        """Return each row's nearest center, and its value, clipped just below the largest."""
        return self._in_cells(*self.placed(rows))

    def _in_cells(self, cells: IntArray, values: FloatArray) -> dict[str, Contribution]:
        cut = np.minimum(values, self.largest) * HAIR
        return {"count": Contribution(cells=cells), self.value: Contribution(cut[:, None], cells)}


@bounded_form_of(ClusterDistances)
@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedDistances(_InClusters, ClusterDistances):
    """`ClusterDistances` with bounds."""

    @property
    def largest(self) -> float:
        """The largest distance to the power, as large as a bound must be."""
        return max(super().largest, LEAST_BOUND)


@bounded_form_of(ClusterSilhouettes)
@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedSilhouettes(_InClusters, ClusterSilhouettes):
    """`ClusterSilhouettes` with bounds."""


@bounded_form_of(ClusterScatter)
@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedScatter(_InClusters, ClusterScatter):
    """`ClusterScatter` with bounds."""

    signed: ClassVar[frozenset[str]] = frozenset({"offset"})

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """Bounds of the count, of an offset of at most the farthest distance, and of its square."""
        count, value = super().bounds.items()
        return dict([count, ("offset", in_cells(self.farthest)), value])

    def contributions(self, rows: FloatArray, labels: IntArray) -> Mapping[str, Contribution]:
        """Return each row's nearest center, its offset from it, clipped, and the square of its distance."""
        cells, squares = nearest(rows, self.centers)
        offsets, length = rows - self.centers[cells], np.sqrt(squares)
        shorter = HAIR * np.minimum(1.0, self.farthest / np.maximum(length, self.farthest))
        return self._in_cells(cells, length**2) | {"offset": Contribution(offsets * shorter[:, None], cells)}


@bounded_form_of(ClusterProfiles)
@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedProfiles(_BoundedMetric, ClusterProfiles):
    """`ClusterProfiles` with bounds, of offsets divided by `units`.

    In a box a column's unit is half its range, so that noise is alike in all columns, and a record is as long
    as the farthest corner from any center. Where offsets have a length, of a ball or a radius, they keep it.
    Squares of offsets of length r are no longer than r^2, and those of two records differ by at most
    sqrt(2) r^2, as they are not negative.
    """

    signed: ClassVar[frozenset[str]] = frozenset({"offset"})

    @property
    def units(self) -> FloatArray:
        """By which offsets are divided, float64 of shape (n_features,)."""
        alike = self.reach is None and self.radius is None
        return np.where(alike & (self.ranges.width > 0.0), self.ranges.width / 2.0, 1.0)

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """Bounds of the count, and of an offset and its squares in these units."""
        most = np.maximum(self.ranges.high - self.centers, self.centers - self.ranges.low).max(axis=0)
        corner, whole = np.square(most / self.units), self.reach is None and self.radius is None
        square = float(corner.sum()) if whole else self._squared(self.centers)
        return {
            "count": counted(),
            "offset": in_cells(max(float(np.sqrt(square)), LEAST_BOUND)),
            "square": nonnegative(max(min(square, float(np.linalg.norm(corner))), LEAST_BOUND)),
        }

    def contributions(self, rows: FloatArray, labels: IntArray) -> Mapping[str, Contribution]:
        """Return each row's nearest center, its offset from it, clipped, and the squares of that."""
        cells = assign(rows, self.centers)
        offsets = (rows - self.centers[cells]) / self.units
        length, most = lengths(offsets), self.bounds["offset"].l2
        offsets *= (HAIR * np.minimum(1.0, most / np.maximum(length, most)))[:, None]
        return {
            "count": Contribution(cells=cells),
            "offset": Contribution(offsets, cells),
            "square": Contribution(np.square(offsets), cells),
        }


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
    centers' mean. A row that is clipped to a radius around its own center lies no farther from that mean than
    both together. For other q it lies no farther from another center than the radius and the distance of
    the two centers.
    """

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """Bounds of the vector of distances, of memberships that sum to 1, and of the row count."""
        low, high = (np.square(end - self.centers) for end in (self.ranges.low, self.ranges.high))
        if self.q == 1.0:
            mean = self.centers.mean(axis=0, keepdims=True)
            from_mean = np.square(self.centers - mean).sum(axis=1)
            far = min(float(self._to_center(mean)[0]), float(np.sqrt(from_mean.max())) + self._clipped)
            ball = len(self.centers) * far**2 + float(from_mean.sum())
            box = float(np.maximum(low.sum(axis=0), high.sum(axis=0)).sum())
        else:
            with np.errstate(over="ignore"):  # The smaller bound counts; it is an error if both overflow.
                apart = np.sqrt(distances(self.centers, self.centers)) + self._clipped
                ball = float(
                    np.square(np.minimum(self._to_center(self.centers), apart) ** self.q).sum(axis=1).max()
                )
                box = float(np.square(np.maximum(low, high).sum(axis=1) ** (self.q / 2.0)).sum())
        spread = nonnegative(max(float(np.sqrt(min(ball, box))), LEAST_BOUND))
        return {"spread": spread, "membership": nonnegative(1.0), "rows": lone_count()}

    def contributions(self, rows: FloatArray, labels: IntArray) -> Mapping[str, Contribution]:
        """Return each row's distances to all centers, clipped together, and its memberships."""
        if self.radius is not None:
            cells, squares = nearest(rows, self.centers)
            shorter = np.minimum(1.0, self.radius / np.maximum(np.sqrt(squares), self.radius))
            rows = self.centers[cells] + (rows - self.centers[cells]) * shorter[:, None]
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
