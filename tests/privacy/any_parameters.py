"""Questions with whatever parameters a lying server may choose, asked of rows that are as odd.

Parameters are tiny, huge, denormal, equal, on rows, far away, or no numbers at all. A question is refused,
for what it asks and never for the rows it is asked of, or its bound holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from privfed.algorithms.private.baselines import NearSums, RowSums
from privfed.algorithms.private.evolution import NearestCounts
from privfed.algorithms.private.moments import SquareSum
from privfed.algorithms.private.steps import FuzzyRelativeSums
from privfed.core.asking.question import ClientData, Question, question_from_bytes
from privfed.core.values.domain import LARGEST, NARROWEST, Ball, Box, Domain, Ranges
from privfed.errors import ArgumentError
from privfed.privacy.bounds import LEAST_BOUND, MOST_BOUND, RecordBounded
from privfed.privacy.noised import Noised
from privfed.questions.bounded.bounded_metrics import (
    BoundedDistances,
    BoundedInertia,
    BoundedScatter,
    BoundedSilhouettes,
    BoundedSpread,
    BoundedTable,
)
from privfed.questions.bounded.bounded_sums import (
    CenterSum,
    GridSums,
    HashSums,
    RelativeSums,
    SizeSums,
)
from privfed.questions.bounded.shells import DistanceHistogram
from privfed.questions.bounded.slabs import SlabSums
from privfed.questions.histograms import FeatureHistograms

MOST_ROWS = 1 << 20
N_LABELS = 3

SMALL = [0.0, -0.0, *(2.0**-power for power in (1074, 1022, 900, 537, 451, 450, 226, 200, 52, 10, 0))]
LARGE = [1.0 + 2.0**-52, 3.0, 12.0, 1e6, 1e16, 1e30, 2.0**199, LARGEST]
ABSURD = [np.nextafter(LARGEST, np.inf), 1e100, 1e150, 1e154, 1e160, 2.0**900, 1.7e308]
NO_NUMBERS = [np.inf, np.nan]
LENGTHS = [0.0, 2.0**-1000, 1e-160, np.nextafter(LEAST_BOUND, 0.0), LEAST_BOUND, 1e-100, 1.0, MOST_BOUND]


class Draw:
    """Draws domains, parameters and rows.

    Args:
        seed: two draws of the same seed are alike.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.wild, self.tiny = self.rng.random() < 0.25, 0.0

    def among(self, values: Sequence[float]) -> float:
        """Return one of some values."""
        return float(values[self.rng.integers(len(values))])

    def number(self, finite: bool = False) -> float:
        """Return a number; where the draw is wild, an absurd one or none."""
        kinds = [SMALL, LARGE, [self.rng.uniform(-2.0, 2.0)], [2.0 ** self.rng.uniform(-460, 200)]]
        if finite or self.wild:
            kinds += [ABSURD]
        if self.wild and not finite:
            kinds += [NO_NUMBERS]
        sign = 1.0 if self.rng.random() < 0.5 else -1.0
        return sign * self.among(kinds[self.rng.integers(len(kinds))])

    def domain(self) -> tuple[Domain, int]:
        """Return a domain that may be declared, and a number of features."""
        d, size = int(self.rng.integers(1, 12)), self.among([NARROWEST, 1e-30, 1e-3, 1.0, 12.0, 2.0**190])
        middle = size * self.rng.choice([0.0, 1.0, -7.0, 1e3], d)
        if self.rng.random() < 0.5:
            return Ball(size, middle, MOST_ROWS), d
        return Box(middle - size, middle + size, MOST_ROWS), d

    def points(self, ranges: Ranges, n: int) -> np.ndarray:
        """Return points: in the ranges, nearly equal to each other, next to nothing, or anywhere."""
        d = ranges.n_features
        points = self.rng.uniform(ranges.low - 0.1 * ranges.width, ranges.high)
        points = points + self.rng.uniform(0.0, 0.1, (n, d)) * ranges.width
        if self.rng.random() < 0.5:
            points = np.array([self.number() for _ in range(n * d)]).reshape(n, d)
        elif self.rng.random() < 0.4:
            # Around a row of zeros, so near that squares vanish.
            self.tiny = 10.0 ** -self.rng.uniform(100, 310)
            points = self.rng.standard_normal((n, d)) * self.tiny
        if n and self.rng.random() < 0.3:
            points[1:] = points[0] + self.among([0.0, 1e-300, 1e-165, 1e-16])
        return points

    def centers(self, ranges: Ranges) -> np.ndarray:
        """Return a few points."""
        return self.points(ranges, int(self.rng.integers(1, 6)))

    def length(self, ranges: Ranges) -> float:
        """Return a radius, or another length: of the size of the ranges, or any.

        Where points are next to nothing, mostly one that is much less.
        """
        if self.tiny and self.rng.random() < 0.8:
            return self.tiny * 10.0 ** -self.rng.uniform(0, 60)
        own = float(ranges.width.max()) * 10.0 ** self.rng.uniform(-9, 1)
        return self.among([own, self.among([own, self.among(LENGTHS), abs(self.number())])])

    def reach(self, ranges: Ranges) -> float | None:
        """Return the radius of a ball that rows are said to lie in."""
        return None if self.rng.random() < 0.5 else self.length(ranges)

    def power(self, high: float) -> float:
        """Return a power, or a fuzzifier."""
        known = [1.0, 1.0 + 2.0**-52, 1.5, 2.0, high, self.rng.uniform(1.0, high)]
        return self.among([*known, abs(self.number())] if self.wild else known)

    def rows(self, question: Question, n: int) -> np.ndarray:
        """Return raw rows: at a parameter of the question or a corner of the ranges, a little or far off.

        Many are as far off as the question's bounds say that rows may be, or some times that.
        """
        ranges, d = question.ranges, question.ranges.n_features
        places = [np.zeros(d), ranges.low, ranges.high, (ranges.low + ranges.high) / 2.0]
        for name in ("center", "centers", "origin"):
            places += list(np.atleast_2d(getattr(question, name, np.empty((0, d)))))
        rows = np.array([places[i] for i in self.rng.integers(len(places), size=n)])
        off = np.array([[self.number(finite=True) for _ in range(d)] for _ in range(n)])
        far = [0.0, 1.0, 1e-13, float(ranges.width.max())]
        if isinstance(question, RecordBounded):
            far += [
                bound.l2 * share for bound in question.bounds.values() for share in (1e-3, 1.0, 10.0, 1e20)
            ]
        with np.errstate(over="ignore"):
            rows = rows + off * self.rng.choice(far, (n, 1))
        return np.where(np.isfinite(rows), rows, 1.7e308)


Made = Callable[[Draw, Ranges], Question]


def _from_point(kind: type[Question], **more: Callable[[Draw], object]) -> Made:
    return lambda draw, ranges: kind(
        ranges=ranges,
        center=draw.points(ranges, 1)[0],  # type: ignore[call-arg]
        radius=draw.length(ranges),
        **{name: drawn(draw) for name, drawn in more.items()},
    )


def _from_centers(kind: type[Question]) -> Made:
    return lambda draw, ranges: kind(
        ranges=ranges,
        centers=draw.centers(ranges),  # type: ignore[call-arg]
        radius=draw.length(ranges),
    )


def _index(kind: type[Question], **more: Callable[[Draw], object]) -> Made:
    return lambda draw, ranges: kind(
        ranges=ranges,
        centers=draw.centers(ranges),  # type: ignore[call-arg]
        reach=draw.reach(ranges),
        **{name: drawn(draw) for name, drawn in more.items()},
    )


def _grid(draw: Draw, ranges: Ranges) -> GridSums:
    """Make a grid over the ranges; or, of two cells an axis, over any box and with cells cut again."""
    if draw.rng.random() < 0.5:
        sides = int(draw.among([1, 2, 3, 1 << 10, 1 << 40]))
        return GridSums(ranges=ranges, radius=draw.length(ranges), per_axis=sides)
    low, high = np.sort(draw.points(ranges, 2), axis=0)
    cuts = draw.rng.integers(1, 4, 2 ** min(ranges.n_features, 16)).astype(np.float64)
    return GridSums(ranges=ranges, radius=draw.length(ranges), per_axis=2, low=low, high=high, cuts=cuts)


def _histograms(draw: Draw, ranges: Ranges) -> FeatureHistograms:
    """Make histograms of bins of equal width, or between any points."""
    if draw.rng.random() < 0.5:
        return FeatureHistograms(ranges=ranges, n_bins=int(draw.among([1, 2, 64, 1 << 40])))
    edges = np.sort(draw.points(ranges, int(draw.rng.integers(2, 6))).T, axis=1)
    return FeatureHistograms(ranges=ranges, edges=edges)


BOUNDED: dict[type[Question], Made] = {
    FeatureHistograms: _histograms,
    SizeSums: _from_point(SizeSums),
    CenterSum: _from_point(CenterSum),
    SquareSum: _from_point(SquareSum),
    DistanceHistogram: _from_point(
        DistanceHistogram, n_bins=lambda draw: int(draw.among([1, 2, 24, 1 << 17]))
    ),
    HashSums: lambda draw, ranges: HashSums(
        ranges=ranges,
        center=draw.points(ranges, 1)[0],
        radius=draw.length(ranges),
        normals=draw.points(ranges, int(draw.rng.integers(0, 5))),
    ),
    SlabSums: lambda draw, ranges: SlabSums(
        ranges=ranges,
        center=draw.points(ranges, 1)[0],
        radius=draw.length(ranges),
        axis=draw.points(ranges, 1)[0],
        reach=draw.length(ranges),
        n_slabs=int(draw.among([1, 2, 30, 1 << 17])),
    ),
    GridSums: lambda draw, ranges: _grid(draw, ranges),
    RelativeSums: _from_centers(RelativeSums),
    NearSums: _from_centers(NearSums),
    NearestCounts: _from_centers(NearestCounts),
    RowSums: lambda draw, ranges: RowSums(
        ranges=ranges,
        centers=draw.centers(ranges),
        radius=draw.length(ranges),
        origin=draw.points(ranges, 1)[0],
    ),
    FuzzyRelativeSums: lambda draw, ranges: FuzzyRelativeSums(
        ranges=ranges, centers=draw.centers(ranges), radius=draw.length(ranges), m=draw.power(100.0)
    ),
    BoundedInertia: _index(BoundedInertia),
    BoundedDistances: _index(BoundedDistances, power=lambda draw: draw.power(8.0)),
    BoundedSilhouettes: _index(BoundedSilhouettes),
    BoundedScatter: _index(BoundedScatter),
    BoundedSpread: _index(BoundedSpread, m=lambda draw: draw.power(100.0), q=lambda draw: draw.power(64.0)),
    BoundedTable: _index(BoundedTable, n_labels=lambda draw: N_LABELS),
}
"""Each question with a bound for one record, with parameters that are drawn."""


def sent(make: Made, draw: Draw, ranges: Ranges, limits: Sequence[float] = ()) -> Noised | None:
    """Return a noised question as a client reads it, or None where nobody can ask it."""
    try:
        inner = make(draw, ranges)
        asked = Noised(
            ranges=ranges,
            inner=inner,
            sigma=np.full(len(inner.spec.entries), 1e3),
            limits=np.resize(limits, len(inner.spec.entries) if limits else 0),
            rehearsal=True,
        )
        data = asked.to_bytes()
    except ArgumentError:
        return None
    read = question_from_bytes(data)
    assert isinstance(read, Noised)
    return read


Answer = list[np.ndarray]
"""A client's answer without noise, in steps, by entry: int64."""


def answered(question: Noised, raw: np.ndarray, labels: np.ndarray, domain: Domain) -> Answer:
    """Return a client's answer from its raw rows, on the way that a fit goes."""
    data = ClientData(raw, labels).inside(domain).within(question.ranges)[0]
    answer = replace(question, by_server=True).answer(data, np.random.default_rng(0))
    found = []
    for entry, step in zip(question.inner.spec.entries, question.steps, strict=True):
        values = answer[entry.name] / step
        assert (np.abs(values) < 2.0**30).all() and (values == np.rint(values)).all()
        found.append(values.astype(np.int64))
    return found


def apart(one: Answer, other: Answer, question: Noised) -> list[Fraction]:
    """Return the squared distance of two answers, by entry, in units of the squared bound: exactly."""
    inner, limits = question.inner, question.limits.tolist()
    if not limits:
        assert isinstance(inner, RecordBounded)
        limits = [inner.bounds[entry.name].l2 for entry in inner.spec.entries]
    steps = [Fraction(limit) / Fraction(step) for limit, step in zip(limits, question.steps, strict=True)]
    squares = [int(np.square(a - b).sum()) for a, b in zip(one, other, strict=True)]
    return [square / bound**2 for square, bound in zip(squares, steps, strict=True)]
