"""Means and covariances of the features, from the range sum and one or two sums of products.

The range sum gives a center. A second sum asks for offsets from it and for the products of each two of them,
so that nothing cancels far from the origin. If the center is so far from the mean that a variance lost its
digits, a third sum asks around the new mean, as for moments (`privfed.questions.ranges`).

Reveals to whoever opens the totals: what the range sum shows (`privfed.questions.ranges`), and over all rows
the sum of each feature, of its square, and of its product with each other feature. Of very few rows these
numbers can be solved for the rows themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.asking.phases import Form, Phase, Phases, Shape
from privfed.core.asking.question import register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.conversation import EVERYONE, Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges
from privfed.questions.inertia import SLACK
from privfed.questions.ranges import Centred, locate, range_phases


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class CentredProducts(Centred):
    """Ask for sums of offsets from a center, and of the products of each two of them.

    Statistics: `rows` (1,), `offset` (n_features,), the sum of rows minus the center, and `product`
    (n_features * (n_features + 1) / 2,), the sums of products in the order of `numpy.triu_indices`.
    """

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Products of at most the rows of a client; squares are at least 0."""
        i, j = np.triu_indices(self.ranges.n_features)
        largest = self.farthest[i] * self.farthest[j]
        most = self.ranges.rows * SLACK * largest
        return self.spec_with(
            Entry("product", i.shape, np.where(i == j, 0.0, -most), most, largest * 2.0**-64)
        )

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
