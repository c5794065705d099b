"""Mean, variance and range of each feature, from two or three sums.

The range sum gives a center; a second sum asks for first and second moments around it, so that nothing
cancels far from the origin. If the center is so far from the mean that the variance lost its digits (features
that hardly vary, on the coarse grid of a masked range sum), a third sum asks around the new mean.

Reveals to whoever opens the totals: what the range sum shows (`privfed.questions.ranges`), and for each
feature the sum and the sum of squares over all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from privfed.core.asking.declaration import Declaration, RowCounts
from privfed.core.asking.phases import Form, Phase, Phases, Shape
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.conversation import EVERYONE, Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import ArgumentError
from privfed.questions.inertia import SLACK
from privfed.questions.lloyd import check_centers
from privfed.questions.ranges import locate, range_phases

_EPSILON = float(np.finfo(np.float64).eps)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class CentredMoments(Question):
    """Ask for first and second moments around a center.

    Statistics: `rows` (1,), `offset` (n_features,), the sum of rows minus the center, and `square`
    (n_features,), the sum of its squares.

    Args:
        center: inside the ranges, float64 of shape (n_features,).
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS
    center: FloatArray

    def __post_init__(self) -> None:
        check_centers(self.center[None], self.ranges)
        if (self.center < self.ranges.low).any() or (self.center > self.ranges.high).any():
            raise ArgumentError("the center of moments must lie within the ranges.")

    @property
    def declaration(self) -> Declaration:
        """The number of a client's rows, and the sums over the same rows."""
        return Declaration(row_counts=(RowCounts("rows", ("offset", "square")),))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most the rows of a client, each inside the ranges, with steps near the precision of float64."""
        low, high = self.ranges.low - self.center, self.ranges.high - self.center
        rows, d = self.ranges.rows * SLACK, (self.ranges.n_features,)
        farthest = np.maximum(np.maximum(-low, high), 2.0**-400)
        return StatisticsSpec(
            Entry("rows", (1,), 0.0, self.ranges.rows, 2.0**-10),
            Entry("offset", d, rows * low, rows * high, farthest * 2.0**-52),
            Entry("square", d, 0.0, rows * farthest**2, farthest**2 * 2.0**-64),
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [self._one(client.features - self.center) for client in clients]

    def _one(self, offsets: FloatArray) -> Statistics:
        return Statistics(
            rows=[len(offsets)], offset=offsets.sum(axis=0), square=np.square(offsets).sum(axis=0)
        )


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of all rows.

    Args:
        ranges: the declared ones, or bin edges found by the range sum.
        n_rows: number of rows of all clients.
        mean: of each feature, float64 of shape (n_features,).
        var: population variance of each feature, float64 of shape (n_features,).
    """

    ranges: Ranges
    n_rows: int
    mean: FloatArray
    var: FloatArray

    @property
    def constant(self) -> npt.NDArray[np.bool_]:
        """Which features are constant up to rounding, by the rule of scikit-learn's scalers."""
        bound = self.n_rows * _EPSILON * self.var + (self.n_rows * self.mean * _EPSILON) ** 2
        return np.asarray(self.var <= bound, dtype=np.bool_)


@dataclass(frozen=True)
class FeatureMoments:
    """The algorithm that finds moments; with `spread=False` only the ranges and a coarse mean."""

    fixed: ClassVar[bool] = False

    spread: bool = True

    @property
    def max_sums(self) -> int:
        """Three sums at most: the ranges, the moments, and the moments around a better center."""
        return 3

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the ranges, then moments around one point or two."""
        moments = Phase(Form(CentredMoments, center=Shape(setting.n_features)), 1, 2)
        return (*range_phases(setting), moments) if self.spread else range_phases(setting)

    def run(self, setting: Setting) -> Conversation[Moments]:
        """Find the ranges, then the moments."""
        located = yield from locate(setting, upcoming=(EVERYONE,))
        ranges, center = located.ranges, located.mean
        if not self.spread:
            return Moments(ranges, located.n_rows, center, np.full_like(center, np.nan))
        moments = yield from _around(center, ranges)
        shift = np.abs(moments.mean - center)
        lost = (moments.var < 2.0**-20 * shift**2) & (shift > 2.0**-45 * np.abs(center))
        if lost.any():
            moments = yield from _around(ranges.clip(moments.mean), ranges)
        return moments


def _around(center: FloatArray, ranges: Ranges) -> Conversation[Moments]:
    total = (yield Ask(CentredMoments(ranges=ranges, center=center), purpose="moments")).statistics
    n_rows = round(float(total["rows"][0]))
    shift = total["offset"] / n_rows
    var = np.maximum(total["square"] / n_rows - shift**2, 0.0)
    return Moments(ranges, n_rows, center + shift, var)
