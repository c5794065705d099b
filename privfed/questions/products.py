"""Means and covariances of the features, from the range sum and one or two sums of products.

The range sum gives a center. A second sum asks for offsets from it and for the products of each two of them,
so that nothing cancels far from the origin. If the center is so far from the mean that a variance lost its
digits, a third sum asks around the new mean, as for moments (`privfed.questions.ranges`).

Reveals to whoever opens the totals: what the range sum shows (`privfed.questions.ranges`), and over all rows
the sum of each feature, of its square, and of its product with each other feature. Of very few rows these
numbers can be solved for the rows themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.asking.declaration import Declaration
from privfed.core.asking.phases import Form, Phase, Phases, Shape
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.conversation import EVERYONE, Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import ArgumentError
from privfed.questions.inertia import SLACK
from privfed.questions.lloyd import check_centers
from privfed.questions.ranges import locate, range_phases


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class CentredProducts(Question):
    """Ask for sums of offsets from a center, and of the products of each two of them.

    Statistics: `rows` (1,), `offset` (n_features,), the sum of rows minus the center, and `product`
    (n_features * (n_features + 1) / 2,), the sums of products in the order of `numpy.triu_indices`.

    Args:
        center: inside the ranges, float64 of shape (n_features,).
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS
    center: FloatArray

    def __post_init__(self) -> None:
        check_centers(self.center[None], self.ranges)
        if (self.center < self.ranges.low).any() or (self.center > self.ranges.high).any():
            raise ArgumentError("the center of products must lie within the ranges.")

    @property
    def declaration(self) -> Declaration:
        """The number of a client's rows, and the sums over the same rows."""
        return Declaration(("rows",))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """At most the rows of a client, each inside the ranges, with steps near the precision of float64."""
        low, high = self.ranges.low - self.center, self.ranges.high - self.center
        rows, (i, j) = self.ranges.rows * SLACK, np.triu_indices(self.ranges.n_features)
        farthest = np.maximum(np.maximum(-low, high), 2.0**-400)
        largest = farthest[i] * farthest[j]
        return StatisticsSpec(
            Entry("rows", (1,), 0.0, self.ranges.rows, 2.0**-10),
            Entry("offset", farthest.shape, rows * low, rows * high, farthest * 2.0**-52),
            Entry(
                "product", i.shape, np.where(i == j, 0.0, -rows * largest), rows * largest, largest * 2.0**-64
            ),
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [self._one(client.features - self.center) for client in clients]

    def _one(self, offsets: FloatArray) -> Statistics:
        products = (offsets.T @ offsets)[np.triu_indices(offsets.shape[1])]
        return Statistics(rows=[len(offsets)], offset=offsets.sum(axis=0), product=products)


@dataclass(frozen=True, slots=True)
class Covariances:
    """Mean and covariances of all rows.

    Args:
        ranges: the declared ones, or bin edges found by the range sum.
        n_rows: number of rows of all clients.
        mean: of each feature, float64 of shape (n_features,).
        scatter: sums of products of offsets from the mean, float64 of shape (n_features, n_features).
    """

    ranges: Ranges
    n_rows: int
    mean: FloatArray
    scatter: FloatArray


@dataclass(frozen=True)
class FeatureProducts:
    """The algorithm that finds means and covariances."""

    fixed: ClassVar[bool] = False

    @property
    def max_sums(self) -> int:
        """Three sums at most: the ranges, the products, and the products around a better center."""
        return 3

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the ranges, then products around one point or two."""
        products = Phase(Form(CentredProducts, center=Shape(setting.n_features)), 1, 2)
        return (*range_phases(setting), products)

    def run(self, setting: Setting) -> Conversation[Covariances]:
        """Find the ranges, then the products."""
        located = yield from locate(setting, upcoming=(EVERYONE,))
        center = located.mean
        found = yield from _around(center, located.ranges)
        shift, variance = np.abs(found.mean - center), np.diagonal(found.scatter) / found.n_rows
        if ((variance < 2.0**-20 * shift**2) & (shift > 2.0**-45 * np.abs(center))).any():
            found = yield from _around(located.ranges.clip(found.mean), located.ranges)
        return found


def _around(center: FloatArray, ranges: Ranges) -> Conversation[Covariances]:
    total = (yield Ask(CentredProducts(ranges=ranges, center=center), purpose="products")).statistics
    n_rows, d = round(float(total["rows"][0])), len(center)
    upper = np.zeros((d, d))
    upper[np.triu_indices(d)] = total["product"]
    shift = total["offset"] / n_rows
    scatter = upper + np.triu(upper, 1).T - n_rows * np.outer(shift, shift)
    return Covariances(ranges, n_rows, center + shift, scatter)
