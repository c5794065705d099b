"""A summary of all rows: their number, each feature's mean, variance and range, and histograms.

Without privacy two or three sums find ranges and moments (`privfed.questions.moments`).

With it, `PrivateMoments` asks five sums or more. Three, or more for rows in a small part of the domain, find
the number of rows, their centre and the clipping radius (`privfed.algorithms.private.scale`). Two more, with
the rest of the budget, give the sum of offsets from the noised centre and the sum of squared offsets. At unit
"client" one more sum finds the clients' sizes. Offsets are in units of the features' declared widths: else a
narrow feature would have the noise of a wide one.

Histograms are one sum more, at unit "client" two. Under differential privacy they have half of the budget,
the same share for each feature. How far clients lie apart is one sum more, without differential privacy only
(`privfed.questions.moments`).

Reveals to whoever opens the totals: what the moments' sums show, and how many rows of all clients lie in each
bin; under differential privacy both with noise. Where it is asked for: mean and variance of the clients' own
means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from privfed.algorithms.private.clients import MOST_ROWS, by_client, client_phases
from privfed.algorithms.private.scale import (
    SCALE_SUMS,
    Scale,
    frame_of,
    radius_rule,
    scale_phases,
    scaled,
    size_phase,
    widths_rule,
)
from privfed.core.asking.phases import Form, Phase, Phases, Shape, Within
from privfed.core.asking.question import register
from privfed.core.roles.conversation import Ask, Conversation, Setting, changed
from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import Unit
from privfed.errors import warn
from privfed.numerics.kernels.interpreted import IntArray
from privfed.questions.bounded.bounded_sums import CenterSum, SizeSums
from privfed.questions.bounded.client_shares import AsOneRecord
from privfed.questions.client_sizes import SIZE_SHARE, ClientSizes, typical_size
from privfed.questions.histograms import FeatureHistograms
from privfed.questions.moments import (
    ClientMeans,
    FeatureMoments,
    Moments,
    between_clients,
    check_between,
    symmetric,
)

MEAN, NOISE = 0.15, 0.02
"""Share of the mean in what it and the products of all features have of the budget. And how large the noise
in products may be, in units of the radius of four in five rows, where they are clipped farther away."""

HISTOGRAM_SHARE = 0.5
"""Share of the budget for the histograms."""


@dataclass(frozen=True, slots=True, eq=False)
class Histograms:
    """Histograms of the features.

    Args:
        edges: of each feature's bins, float64 of shape (n_features, n_edges).
        counts: rows below the edges, in each bin and above, float64 of shape (n_features, n_edges + 1).
        noise_std: standard deviation of the noise in a count, in rows; 0 without differential privacy.
    """

    edges: FloatArray
    counts: FloatArray
    noise_std: float

    def quantiles(self, shares: Sequence[float]) -> FloatArray:
        """Return quantiles of each feature, interpolated within bins, of shape (n_features, n_shares).

        Noise may leave no rows at all; the quantiles are then those of the bins' ends.
        """
        inside = self.counts[:, 1:-1]
        inside = np.where(inside.sum(axis=1, keepdims=True) > 0.0, inside, 1.0)
        below = np.concatenate([np.zeros((len(inside), 1)), np.cumsum(inside, axis=1)], axis=1)
        each = [
            np.interp(np.array(shares) * own[-1], own, edges)
            for own, edges in zip(below, self.edges, strict=True)
        ]
        return np.stack(each)


class Summary(NamedTuple):
    """What a summary finds; None for what was not asked."""

    moments: Moments
    between: FloatArray | None
    histograms: Histograms | None


@dataclass(frozen=True, eq=False)
class FeatureSummary:
    """The algorithm that summarizes all rows.

    Args:
        n_bins: bins of equal width of each feature's histogram; 0 for none, or with `edges`.
        edges: of the bins, float64 of shape (n_features, n_edges), or None.
        between: whether to ask how far clients lie apart; without differential privacy.
    """

    fixed: ClassVar[bool] = False

    n_bins: int = 0
    edges: FloatArray | None = None
    between: bool = False

    @property
    def counts(self) -> bool:
        """Whether histograms are asked for."""
        return self.n_bins > 0 or self.edges is not None

    @property
    def max_sums(self) -> int:
        """Those of the moments, one between clients, and two for histograms."""
        return PrivateMoments().max_sums + 3

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the moments, then what lies between clients, then histograms.

        Raises:
            ArgumentError: clients are to be compared, and are too few.
        """
        if self.between:
            check_between(len(setting.clients))
        if setting.privacy is None:
            moments = FeatureMoments().phases(setting)
            if self.between:
                moments = (*moments, Phase(Form(ClientMeans, center=Shape(setting.n_features))))
        else:
            moments = PrivateMoments().phases(setting)
        if not self.counts:
            return moments
        return (
            *moments,
            *histogram_phases(setting, Form(FeatureHistograms, n_bins=self.n_bins, edges=self.edges)),
        )

    def run(self, setting: Setting) -> Conversation[Summary]:
        """Find the moments, what lies between clients, then the histograms."""
        between = None
        if setting.privacy is None:
            moments = yield from FeatureMoments().run(setting)
            between = (yield from between_clients(moments)) if self.between else None
        else:
            share = 1.0 - HISTOGRAM_SHARE if self.counts else 1.0
            moments = yield from changed(
                PrivateMoments().run(setting),
                lambda ask: replace(ask, weights={n: one * share for n, one in (ask.weights or {}).items()}),
            )
        if not self.counts:
            return Summary(moments, between, None)
        question = FeatureHistograms(ranges=moments.ranges, n_bins=self.n_bins, edges=self.edges)
        counted = yield from histograms(setting, HISTOGRAM_SHARE, lambda _: question)
        return Summary(moments, between, counted)


def histogram_phases(setting: Setting, *forms: Form) -> Phases:
    """Return what is asked for histograms; at unit "client" the clients' sizes before."""
    if setting.privacy is None or setting.privacy.unit.of_rows:
        return tuple(map(Phase, forms))
    return (
        Phase(Form(ClientSizes)),
        *map(Phase, [Form(AsOneRecord, inner=form, rows=MOST_ROWS) for form in forms]),
    )


def histograms(
    setting: Setting, share: float, *found: Callable[[Histograms | None], FeatureHistograms]
) -> Conversation[Histograms]:
    """Ask for histograms, each of which may follow from the one before; return the last.

    Args:
        setting: of the run.
        share: of the budget, for all of them together; without privacy it is not looked at.
        *found: how each question follows from the histograms before it.
    """
    last, size, each = None, 1.0, share * (1.0 - 1e-9) / len(found)
    for ask_of in found:
        question = ask_of(last)
        ask = Ask(question, purpose="histogram")
        if setting.privacy is not None:
            if setting.privacy.unit == Unit.CLIENT:
                if last is None:
                    each -= SIZE_SHARE / len(found)
                    size = yield from typical_size(question.ranges, SIZE_SHARE)
                shares = AsOneRecord(ranges=question.ranges, inner=question, rows=size)
                ask = replace(ask, question=shares, limits=shares.limits)
            ask = replace(ask, weights=dict.fromkeys(question.names, each / len(question.names)))
        total = yield ask
        # Noise may make a count negative.
        counts = np.stack([np.maximum(total.statistics[name], 0.0) for name in question.names])
        noise = size * max((total.noise_std or {"": 0.0}).values())
        last = Histograms(question.all_edges, size * counts, noise)
    assert last is not None
    return last


MOST_NOISE_OF_A_VARIANCE = 2.0
"""A variance is mostly noise below so many standard deviations of its noise."""


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class SquareSum(CenterSum):
    """Ask for the sum of squared offsets from a point, feature by feature, clipped as a vector."""

    asks: ClassVar[tuple[str, ...]] = ("sum",)

    def place(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return squared offsets from the point."""
        cells, offsets = super().place(rows)
        return cells, np.square(offsets)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ProductSum(SquareSum):
    """Ask for the sum of products of each two offsets from a point, clipped as a vector.

    They are in the order of `numpy.triu_indices`. Those of two features count sqrt(2) times, so that the
    products of an offset of length r are r^2 long.
    """

    @property
    def width(self) -> int:
        """Number of pairs of features."""
        return self.ranges.n_features * (self.ranges.n_features + 1) // 2

    @property
    def values_of_a_row(self) -> int:
        """A row adds to every pair."""
        return 3 * self.width

    def place(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return products of offsets from the point."""
        offsets, (i, j) = self.offsets(rows), np.triu_indices(self.ranges.n_features)
        products = offsets[:, i] * (offsets[:, j] * np.where(i == j, 1.0, np.sqrt(2.0)))
        return np.zeros(len(rows), dtype=np.intp), products


@dataclass(frozen=True)
class PrivateMoments:
    """The algorithm that finds noised moments; with `spread=False` only the number of rows.

    Args:
        spread: whether to find mean and variance too.
        products: whether to find all covariances (Analyze Gauss: Dwork, Talwar, Thakurta and Zhang, STOC
            2014); the products of all features then take the most of the budget.
    """

    fixed: ClassVar[bool] = False

    spread: bool = True
    products: bool = False

    @property
    def _second(self) -> type[SquareSum]:
        return ProductSum if self.products else SquareSum

    @property
    def max_sums(self) -> int:
        """Most sums: the clients' sizes, those of the scale, offsets and squares."""
        return SCALE_SUMS + 3

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the scale, then offsets and squares; at unit "client" sizes before."""
        frame = frame_of(setting, columnwise=self.spread)
        moments: Phases = (size_phase(frame),)
        if self.spread:
            known = {"center": Shape(setting.n_features), "widths": widths_rule(frame)}
            means = Form(CenterSum, **known, radius=radius_rule(frame))
            squares = Form(self._second, **known, radius=Within(0.0, radius_rule(frame).high ** 2))
            moments = (*scale_phases(setting, columnwise=True), Phase(means, purpose="mean"), Phase(squares))
        if setting.privacy is None or setting.privacy.unit.of_rows:
            return moments
        return (Phase(Form(ClientSizes)), *client_phases(moments))

    def run(self, setting: Setting) -> Conversation[Moments]:
        """Find the moments; at unit "client" each client takes the role of a record."""
        conversation = self._moments(setting) if self.spread else _rows(setting)
        if setting.privacy is None or setting.privacy.unit.of_rows:
            return (yield from conversation)
        size = yield from typical_size(frame_of(setting).ranges)
        found = yield from by_client(conversation, size, 1.0 - SIZE_SHARE)
        return replace(found, n_rows=round(found.n_rows * size), rows_error=found.rows_error * size)

    def _moments(self, setting: Setting) -> Conversation[Moments]:
        scale = yield from scaled(setting, 1, columnwise=True)
        widths = scale.frame.widths
        ranges, d, left = scale.frame.ranges, setting.n_features, 1.0 - scale.spent
        unit, share = np.ones(d) if widths is None else widths, left * (MEAN if self.products else 0.5)
        # Four in five rows lie within the radius, and almost all Gaussian rows within twice the radius.
        radius = min(2.0 * scale.radius, 2.0 * scale.frame.radius)
        most, lost = scale.reach(radius, share)
        asked = CenterSum(ranges=ranges, center=scale.center, radius=most, widths=widths)
        shift, mean_error = yield from _mean(asked, scale, share, "mean")
        center = ranges.clip(scale.center + shift * unit)
        # For d similar features, the vector of squares is sqrt(d) times shorter than their sum.
        usual = radius**2 / min(np.sqrt(d), 4.0)
        if self.products:
            # Clipping keeps the direction of an offset: it takes of variances, and little of components.
            noise = np.sqrt(2.0) * scale.noise(left - share, 0.0) / scale.n_rows
            usual = radius**2 * float(np.clip(NOISE / noise, 1.0, 4.0)) / 4.0
        reach, lost_squares = scale.moved(center).reach(usual, left - share, power=2)
        square = self._second(ranges=ranges, center=center, radius=reach, widths=widths)
        second, var_error = yield from _mean(square, scale, left - share, "variance")
        products = None
        if self.products:
            products = symmetric(second) / np.sqrt(2.0 - np.eye(d))
            second, products = np.diagonal(products), products * np.outer(unit, unit)
        # Noise may make a small variance negative: it is at least that of a thousandth of the range.
        least, found = (1e-3 * ranges.width) ** 2, second * np.square(unit)
        variance = np.maximum(found, least)
        # Sums are divided by the noised number of rows, whose error is a part of each quotient.
        mean_error, var_error = np.hypot(mean_error, lost), np.hypot(var_error, lost_squares)
        errors = (
            np.hypot(mean_error, np.abs(shift) * scale.rows_error) * unit,
            np.hypot(np.hypot(var_error * np.square(unit), variance * scale.rows_error), variance - found),
        )
        return Moments(
            ranges, round(scale.n_rows), center, variance, *errors, scale.rows_error * scale.n_rows, products
        )


def _mean(
    question: CenterSum, scale: Scale, share: float, purpose: str
) -> Conversation[tuple[FloatArray, float]]:
    """Ask for a mean; return it, and the standard deviation of its noise."""
    total = yield Ask(question, purpose=purpose, weights={"sum": share})
    mean: FloatArray = total.statistics["sum"][0] / scale.n_rows
    return mean, dict(total.noise_std or {}).get("sum", 0.0) / scale.n_rows


def _rows(setting: Setting) -> Conversation[Moments]:
    frame = frame_of(setting)
    question = SizeSums(ranges=frame.ranges, center=frame.middle, radius=frame.radius)
    total = yield Ask(question, purpose="size", weights={"count": 0.99, "distance": 0.01})
    n_rows = max(1, round(float(total.statistics["count"][0])))
    return Moments(frame.ranges, n_rows, frame.middle, np.full_like(frame.middle, np.nan))


def warn_of_variances(var: FloatArray, error: FloatArray, columns: Sequence[str] | None = None) -> None:
    """Warn where noise alone may be what a variance consists of.

    Args:
        var: noised variance of each feature, float64 of shape (n_features,).
        error: standard deviation of the noise in it, likewise.
        columns: names of the features; None if they have none.
    """
    doubtful = np.flatnonzero(var < MOST_NOISE_OF_A_VARIANCE * error).tolist()
    if doubtful:
        named = ", ".join(str(one) if columns is None else columns[one] for one in doubtful[:8])
        more = f" and {len(doubtful) - 8} more" if len(doubtful) > 8 else ""
        warn(
            f"the variances of {len(doubtful)} of {len(var)} columns are mostly noise "
            f"({'from 0: ' * (columns is None)}{named}{more}), and so is whatever is scaled by them. Claim a "
            "larger epsilon, narrow the domain, or scale by the declared range.",
        )
