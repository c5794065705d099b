"""Moments of the features: means and variances, covariances, and how far the clients' own means lie apart.

The range sum gives a center. A second sum asks for offsets from it, and for their squares or the products of
each two of them, so that nothing cancels far from the origin. The center can be so far from the mean that a
variance loses its digits: features that hardly vary, on the coarse grid of a masked range sum. Then a third
sum asks around the new mean.

Where one site measures in another unit, nearly all of the variance of all rows lies between the clients'
means (`ClientMeans`).

Reveals to whoever opens the totals: what the range sum shows (`privfed.questions.ranges`), and over all rows
the sum of each feature and of its square; for covariances also of its product with each other feature. Of
very few rows these numbers can be solved for the rows themselves.

`ClientMeans` reveals for each feature the mean and the variance of the clients' own means, every client
alike. These are two equations for the means of all clients. Of three clients, one that knows its own solves
them for the other two: so clients join no fit of fewer than four. Of four, two that join do it, or one where
another is lost. The total does not say who stands out; a client can compare its own rows with the mean and
deviation of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from privfed.core.asking.declaration import Declaration
from privfed.core.asking.phases import Form, Phase, Phases, Shape
from privfed.core.asking.question import AdditiveOver, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec, Within
from privfed.core.roles.conversation import EVERYONE, Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import ArgumentError
from privfed.questions.lloyd import ROUNDING, check_centers
from privfed.questions.ranges import Located, locate, range_phases

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, kw_only=True, eq=False)
class Centred(Question):
    """Questions about offsets of rows from a center, around which no digits cancel.

    Args:
        center: inside the ranges, float64 of shape (n_features,).
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS
    center: FloatArray

    def __post_init__(self) -> None:
        check_centers(self.center[None], self.ranges)
        if (self.center < self.ranges.low).any() or (self.center > self.ranges.high).any():
            raise ArgumentError("the center of offsets must lie within the ranges.")

    @property
    def declaration(self) -> Declaration:
        """The number of a client's rows, and the sums over the same rows."""
        return Declaration(("rows",))

    @property
    def farthest(self) -> FloatArray:
        """Longest offset of each feature, float64 of shape (n_features,), above 0."""
        low, high = self.ranges.low - self.center, self.ranges.high - self.center
        return np.asarray(np.maximum(np.maximum(-low, high), 2.0**-400))

    def spec_with(self, product: Entry) -> StatisticsSpec:
        """Return the layout: the rows of a client, their offsets, and an entry of products of these.

        All rows lie inside the ranges, and steps are near the precision of float64.
        """
        low, high = self.ranges.low - self.center, self.ranges.high - self.center
        rows, farthest = self.ranges.rows * ROUNDING, self.farthest
        return StatisticsSpec(
            Entry("rows", (1,), 0.0, self.ranges.rows, 2.0**-10),
            Entry(
                "offset",
                farthest.shape,
                rows * low,
                rows * high,
                farthest * 2.0**-52,
                Within("rows", low, high),
            ),
            product,
        )


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class CentredMoments(Centred):
    """Ask for first and second moments around a center.

    Statistics: `rows` (1,), `offset` (n_features,), the sum of rows minus the center, and `square`
    (n_features,), the sum of its squares.
    """

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Squares of at most the rows of a client."""
        largest = self.farthest**2
        most = self.ranges.rows * ROUNDING * largest
        return self.spec_with(
            Entry("square", largest.shape, 0.0, most, largest * 2.0**-64, Within("rows", 0.0, largest))
        )

    def of_rows(self, rows: FloatArray) -> Statistics:
        """Answer for one client's rows."""
        offsets = rows - self.center
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
        mean_error: standard deviation of the noise in each mean, to first order; None without noise.
        var_error: the same of each variance.
        rows_error: standard deviation of the noise in `n_rows`; 0 without noise.
        products: covariances of the population, with noise, float64 of shape (n_features, n_features); None
            where they were not asked.
    """

    ranges: Ranges
    n_rows: int
    mean: FloatArray
    var: FloatArray
    mean_error: FloatArray | None = None
    var_error: FloatArray | None = None
    rows_error: float = 0.0
    products: FloatArray | None = None

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
        """Four sums at most: two for the ranges, the moments, and the moments around a better center."""
        return 4

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the ranges, then moments around one point or two."""
        moments = Phase(Form(CentredMoments, center=Shape(setting.n_features)), 1, 2)
        return (*range_phases(setting), moments) if self.spread else range_phases(setting)

    def run(self, setting: Setting) -> Conversation[Moments]:
        """Find the ranges, then the moments."""
        located = yield from locate(setting, upcoming=(EVERYONE,))
        if not self.spread:
            return Moments(located.ranges, located.n_rows, located.mean, np.full_like(located.mean, np.nan))
        return (yield from _centred(_moments_around, located))


def _moments_around(center: FloatArray, ranges: Ranges) -> Conversation[Moments]:
    total = (yield Ask(CentredMoments(ranges=ranges, center=center), purpose="moments")).statistics
    n_rows = max(round(float(total["rows"][0])), 1)
    shift = total["offset"] / n_rows
    return Moments(ranges, n_rows, center + shift, np.maximum(total["square"] / n_rows - shift**2, 0.0))


Centered = TypeVar("Centered", Moments, "Covariances")


def _centred(
    around: Callable[[FloatArray, Ranges], Conversation[Centered]], located: Located
) -> Conversation[Centered]:
    """Ask around the mean of the range sum, and around the mean found so where a variance lost its digits."""
    ranges, center = located.ranges, located.mean
    found = yield from around(center, ranges)
    shift = np.abs(found.mean - center)
    if ((found.var < 2.0**-20 * shift**2) & (shift > 2.0**-45 * np.abs(center))).any():
        found = yield from around(ranges.clip(found.mean), ranges)
    return found


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
        most = self.ranges.rows * ROUNDING * largest
        return self.spec_with(
            Entry(
                "product",
                i.shape,
                np.where(i == j, 0.0, -most),
                most,
                largest * 2.0**-64,
                Within("rows", np.where(i == j, 0.0, -largest), largest),
            )
        )

    def of_rows(self, rows: FloatArray) -> Statistics:
        """Answer for one client's rows."""
        offsets = rows - self.center
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

    @property
    def var(self) -> FloatArray:
        """Population variance of each feature, float64 of shape (n_features,)."""
        return np.asarray(np.diagonal(self.scatter) / self.n_rows)


@dataclass(frozen=True)
class FeatureProducts:
    """The algorithm that finds means and covariances."""

    fixed: ClassVar[bool] = False

    @property
    def max_sums(self) -> int:
        """Four sums at most: two for the ranges, the products, and the products around a better center."""
        return 4

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the ranges, then products around one point or two."""
        return (*range_phases(setting), Phase(Form(CentredProducts, center=Shape(setting.n_features)), 1, 2))

    def run(self, setting: Setting) -> Conversation[Covariances]:
        """Find the ranges, then the products."""
        return (yield from _centred(_products_around, (yield from locate(setting, upcoming=(EVERYONE,)))))


def _products_around(center: FloatArray, ranges: Ranges) -> Conversation[Covariances]:
    total = (yield Ask(CentredProducts(ranges=ranges, center=center), purpose="products")).statistics
    n_rows = max(round(float(total["rows"][0])), 1)
    shift = total["offset"] / n_rows
    scatter = symmetric(total["product"]) - n_rows * np.outer(shift, shift)
    return Covariances(ranges, n_rows, center + shift, scatter)


def symmetric(upper: FloatArray) -> FloatArray:
    """Return the matrix of what lies on and above its diagonal, in the order of `numpy.triu_indices`."""
    d = int(np.sqrt(2 * len(upper)))
    found = np.zeros((d, d))
    found[np.triu_indices(d)] = upper
    return found + np.triu(found, 1).T


FEWEST_CLIENTS = 4
"""Of fewer a client that knows its own means could solve for those of the others."""


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClientMeans(Centred):
    """Ask for first and second moments of the clients' own means around a center, every client alike.

    Statistics: `clients` (1,), one for a client with rows; `offset` (n_features,), the mean of its rows minus
    the center; `square` (n_features,), the square of that.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS

    @property
    def declaration(self) -> Declaration:
        """No row counts: means over all rows of a client, and a count of clients."""
        return Declaration()

    @cached_property
    def spec(self) -> StatisticsSpec:
        """A mean lies inside the ranges; a client counts once."""
        low, high = ROUNDING * (self.ranges.low - self.center), ROUNDING * (self.ranges.high - self.center)
        farthest = self.farthest
        largest = farthest**2
        return StatisticsSpec(
            Entry("clients", (1,), 0.0, 1.0, 2.0**-10),
            Entry("offset", farthest.shape, low, high, farthest * 2.0**-40),
            Entry("square", farthest.shape, 0.0, ROUNDING * largest, largest * 2.0**-50),
        )

    def of_rows(self, rows: FloatArray) -> Statistics:
        """Answer for one client's rows."""
        offsets = rows - self.center
        # A client without rows is none.
        n_rows = len(offsets)
        mean = offsets.sum(axis=0) / max(n_rows, 1)
        return Statistics(clients=[min(n_rows, 1)], offset=mean, square=np.square(mean))


def check_between(n_clients: int) -> None:
    """Check that clients may be asked how far apart they lie, which each client checks before it joins.

    Raises:
        ArgumentError: they are too few.
    """
    if n_clients < FEWEST_CLIENTS:
        raise ArgumentError(
            f"how far clients lie apart is asked of at least {FEWEST_CLIENTS} clients, got {n_clients}: "
            "of fewer a client could solve for the means of the others; leave between out."
        )


def between_clients(moments: Moments) -> Conversation[FloatArray]:
    """Ask how much of each feature's variance lies between the clients' own means.

    Args:
        moments: of all rows.

    Returns:
        The variance of the clients' means as a share of the variance of all rows, at most 1; 0 for a constant
        feature. float64 of shape (n_features,).
    """
    question = ClientMeans(ranges=moments.ranges, center=moments.ranges.clip(moments.mean))
    total = (yield Ask(question, purpose="between clients")).statistics
    n_clients = max(float(total["clients"][0]), 1.0)
    between = np.maximum(total["square"] / n_clients - np.square(total["offset"] / n_clients), 0.0)
    shown = np.where(moments.constant, 0.0, between / np.where(moments.var > 0.0, moments.var, 1.0))
    return np.asarray(np.minimum(shown, 1.0))
