"""Metrics under differential privacy of one record: each question's twin with a proven bound.

A twin asks the same as its question; each record's contribution is truncated to a step, and the bounds
follow from the farthest that a record of the domain can lie from its nearest center. All of an index's
budget goes into its one sum.

Reveals to whoever opens the total: what the question reveals, with the noise that was paid for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.distances import assign, cell_sums
from privfed.core.domain import FloatArray
from privfed.core.memberships import shares
from privfed.core.question import AdditiveOver, ClientData, register
from privfed.core.statistics import Entry, Statistics, StatisticsSpec
from privfed.metrics.agreement import Contingency
from privfed.metrics.asking import OF_CLIENTS, SIGNED, TWINS
from privfed.metrics.fuzzy_index import FuzzySpread
from privfed.metrics.local_clusters import LocalClusterCounts
from privfed.metrics.score import Inertia, largest_distance
from privfed.metrics.validity import (
    ClusterDistances,
    ClusterQuestion,
    ClusterScatter,
    ClusterSilhouettes,
    distances_to,
)
from privfed.privacy.bounds import (
    Bound,
    RecordBounded,
    counted,
    in_cells,
    lone_count,
    magnitude,
    step_of,
    truncated,
)

_HAIR = 1.0 - 2.0**-36


@dataclass(frozen=True, kw_only=True, eq=False)
class _Twin(RecordBounded):
    """A question with bounds, on their grid."""

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS

    @cached_property
    def spec(self) -> StatisticsSpec:
        """The question's entries, each up to the rows of a client times the bound of one."""
        rows = self.ranges.rows
        shapes = {entry.name: entry.shape for entry in self._plain.entries}
        return StatisticsSpec(
            *(
                Entry(name, shapes[name], -rows * b.l2 if name in SIGNED else 0.0, rows * b.l2, step_of(b.l2))
                for name, b in self.bounds.items()
            )
        )

    @property
    def _plain(self) -> StatisticsSpec:
        plain = next(kind for kind in type(self).__mro__ if not issubclass(kind, RecordBounded))
        spec: StatisticsSpec = plain.__dict__["spec"].func(self)
        return spec

    def _cut(self, name: str, values: FloatArray) -> FloatArray:
        """Return contributions a hair below their bound, truncated to its step."""
        return truncated(values * _HAIR, step_of(self.bounds[name].l2))


def _nonnegative(l2: float) -> Bound:
    """Bound of a vector without negative values: of two, the difference is at most sqrt 2 times as long."""
    return Bound(l2, stay=2.0, move=2.0)


class _InClusters(_Twin, ClusterQuestion):
    """Twins with one value a record in the cell of its cluster."""

    _value: ClassVar[str]

    @property
    def _largest(self) -> float:
        return self.farthest

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """A count and a value in [0, largest] in one cell: a replacement in the cell changes it by that."""
        return {"count": counted(), self._value: Bound(self._largest, stay=1.0, move=2.0)}

    def summed(self, labels: np.ndarray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return each cluster's rows and the sum of their truncated values."""
        cut = self._cut(self._value, np.minimum(values, self._largest))
        count, total = cell_sums(cut[:, None], labels, len(self.centers))
        return count, total[:, 0]


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedDistances(_InClusters, ClusterDistances):
    """`ClusterDistances` with bounds."""

    _value: ClassVar[str] = "distance"

    @property
    def _largest(self) -> float:
        return float(self.farthest**self.power)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedSilhouettes(_InClusters, ClusterSilhouettes):
    """`ClusterSilhouettes` with bounds."""

    _value: ClassVar[str] = "silhouette"

    @property
    def _largest(self) -> float:
        return 1.0


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedScatter(_InClusters, ClusterScatter):
    """`ClusterScatter` with bounds."""

    _value: ClassVar[str] = "square"

    @property
    def _largest(self) -> float:
        return self.farthest**2

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """As for a value, and an offset of at most the farthest distance."""
        value = {"square": Bound(self._largest, stay=1.0, move=2.0)}
        return {"count": counted(), "offset": in_cells(self.farthest), **value}

    def _one(self, rows: FloatArray) -> Statistics:
        labels = assign(rows, self.centers)
        offsets = rows - self.centers[labels]
        length = distances_to(rows, self.centers, labels)
        shorter = np.minimum(1.0, self.farthest / np.maximum(length, self.farthest))
        cut = self._cut("offset", offsets * shorter[:, None])
        count, offset = cell_sums(cut, labels, len(self.centers))
        return Statistics(count=count, offset=offset, square=self.summed(labels, length**2)[1])


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedInertia(_Twin, Inertia):
    """`Inertia` with bounds."""

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """One squared distance, at most that of the farthest corner."""
        farthest = max(largest_distance(self.centers, self.ranges), 1e-280)
        return {"inertia": magnitude(farthest), "rows": lone_count()}

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [self._one(client.features) for client in clients]

    def _one(self, rows: FloatArray) -> Statistics:
        squares = distances_to(rows, self.centers, assign(rows, self.centers)) ** 2
        cut = self._cut("inertia", np.minimum(squares, self.bounds["inertia"].l2))
        return Statistics(inertia=[cut.sum()], rows=[len(rows)])


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedSpread(_Twin, FuzzySpread):
    """`FuzzySpread` with bounds: a record's distance enters all clusters, whatever its memberships.

    So the bound is not that of one cell. For q = 1 it is the largest of the roots of
    sum_i ||x - c_i||^2 over the domain: feature by feature one of its ends.
    """

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """Bounds of the vector of distances, of memberships that sum to 1, and of the row."""
        low, high = (np.square(end - self.centers) for end in (self.ranges.low, self.ranges.high))
        if self.q == 1.0:
            reach = float(np.sqrt(np.maximum(low.sum(axis=0), high.sum(axis=0)).sum()))
        else:
            reach = float(np.linalg.norm(np.maximum(low, high).sum(axis=1) ** (self.q / 2.0)))
        spread = _nonnegative(max(reach, 1e-280))
        return {"spread": spread, "membership": _nonnegative(1.0), "rows": lone_count()}

    def _from(self, distances: FloatArray) -> Statistics:
        spread = self._cut("spread", np.power(distances, self.q / 2.0))
        membership = self._cut("membership", shares(distances, self.m))
        return Statistics(
            spread=spread.sum(axis=1), membership=membership.sum(axis=1), rows=[distances.shape[1]]
        )


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class BoundedTable(_Twin, Contingency):
    """`Contingency` with bounds: a record is counted once, or not at all."""

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """A count in one cell."""
        return {"table": counted()}


TWINS.update(
    {
        Inertia: BoundedInertia,
        ClusterDistances: BoundedDistances,
        ClusterSilhouettes: BoundedSilhouettes,
        ClusterScatter: BoundedScatter,
        FuzzySpread: BoundedSpread,
        Contingency: BoundedTable,
    }
)
OF_CLIENTS[LocalClusterCounts] = {"clients": 1.0}
