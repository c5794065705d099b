"""The range sum: the range and mean of each feature and a bound on a client's rows, in one sum or two.

Bins of the first sum grow by octaves around zero. A column far from zero, or closer to it than the innermost
bin, gets a range there that may be many times its spread. Where the bins leave room for more than twice the
spread, the column is loose, and one more sum asks for the loose columns alone, with bins that grow by octaves
around the mean. If no column is loose, nothing more is asked.

Reveals to whoever opens the totals: for each feature, how many clients have their smallest or largest
value in each bin of a public logarithmic grid, and the sum over all rows; how many clients have a number of
rows between two consecutive powers of two; and the number of all rows. For each loose feature besides, how
many clients have their smallest or largest value in each bin around the mean.

Whoever has a complete list of candidate rows names those that are alone in a bin that a client marks. Of
half of the wine table's rows over four clients, the first sum names .07, and the second one, of the columns
that are loose, .03; if each client has one row, .07 and .23. Asked of all columns, bins by octaves would name
.33 and .93, and 256 bins of one width .45 and .98, which besides reach no spread below a 256th of the first
range (`benchmarks/range_bins.py`).

Whoever opens the totals can choose the point around which bins grow, and the ranges, over masked sums the
server. Clients do not compare either with anything. A chosen window tells for certain whether a listed row is
there. Groups of rows and differential privacy hold whatever the window is; exact rows have no protection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privfed.core.asking.declaration import Declaration
from privfed.core.asking.phases import Form, Kept, Origin, Phase, Phases, Rule, Shape
from privfed.core.asking.question import ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec, StatisticsTable
from privfed.core.roles.conversation import RANGE, Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges, frozen
from privfed.errors import ArgumentError, DataError
from privfed.numerics.kernels.interpreted import IntArray

MOST_ROWS = 1 << 24
"""Rows of a client that grids have room for under differential privacy, where no bound is declared; more are
clipped from the sums."""

LARGEST = 2.0**50
"""Largest magnitude for which ranges are found; larger values need a declared domain."""

SMALLEST_EXPONENT, LARGEST_EXPONENT = -20, 50
"""Exponents of the bins' edges; magnitudes below 2**SMALLEST_EXPONENT share one bin."""

ROW_BINS = 41
_MAX_BINS = 1 << 13
_SLACK = 1.0 + 2.0**-20

_OCTAVES = LARGEST_EXPONENT - SMALLEST_EXPONENT
FINER_OCTAVES = 50
"""Octaves of the bins around a mean, from the width of the range downwards: float64 has no more digits."""


def subdivisions(n_features: int, octaves: int = _OCTAVES) -> int:
    """Return into how many bins each octave is divided; with more features, there are fewer bins."""
    return next((parts for parts in (16, 8, 4, 2) if n_features * (2 * octaves * parts + 1) <= _MAX_BINS), 1)


def edges(parts: int, first: int = SMALLEST_EXPONENT, last: int = LARGEST_EXPONENT) -> FloatArray:
    """Return the edges of bins from octave `first` to `last`, ascending, float64 of shape (n_bins + 1,)."""
    mantissas = 1.0 + np.arange(parts) / parts
    positive = np.append((2.0 ** np.arange(first, last)[:, None] * mantissas).ravel(), 2.0**last)
    return np.concatenate([-positive[::-1], positive])


def loose(ranges: Ranges) -> IntArray:
    """Return the features whose ranges may be more than twice their spread, by the bins of the range sum.

    A spread is at least the distance from the upper edge of the lowest bin to the lower edge of the highest.
    """
    known = edges(subdivisions(ranges.n_features))
    above = known[np.clip(np.searchsorted(known, ranges.low, side="right"), 0, len(known) - 1)]
    below = known[np.maximum(np.searchsorted(known, ranges.high, side="left") - 1, 0)]
    return np.flatnonzero((ranges.width > 0.0) & (ranges.width > 2.0 * (below - above)))


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureRanges(Question):
    """Ask for the ranges of the features, and for numbers and sums of rows.

    Statistics: `extremes` (n_asked, n_bins) of those features whose ranges are asked for, if there are any;
    `row_bins` (ROW_BINS,), `rows` (1,), `sum` (n_features,).

    Args:
        find_ranges: whether to ask for the ranges too, and not only for numbers and sums of rows.
        center: asks for the ranges of loose features alone (`loose`), in bins around this point, float64 of
            shape (n_features,). None asks for those of all features, in bins around zero.
    """

    find_ranges: bool
    center: FloatArray | None = None

    def __post_init__(self) -> None:
        found = self.center is None or (
            self.center.shape == self.ranges.low.shape and np.isfinite(self.center).all()
        )
        if not (found and (self.center is None or loose(self.ranges).size)):
            raise ArgumentError("finer ranges need a loose feature, and a finite center.")

    @property
    def declaration(self) -> Declaration:
        """The number of a client's rows."""
        return Declaration(("rows",), row_sums=("rows", "sum"))

    @cached_property
    def features(self) -> IntArray:
        """The features whose ranges are asked for."""
        every = np.arange(self.ranges.n_features) if self.find_ranges else np.empty(0, dtype=np.intp)
        return every if self.center is None else loose(self.ranges)

    @cached_property
    def edges(self) -> FloatArray:
        """Edges of their bins, float64 of shape (n_asked, n_bins + 1); around zero one row for all."""
        n_asked = len(self.features)
        if self.center is None:
            return edges(subdivisions(n_asked))[None]
        around = edges(subdivisions(n_asked, FINER_OCTAVES), -FINER_OCTAVES, 0)
        # A power of two above the width of the range, which holds all rows.
        return (self.center[:, None] + np.ldexp(1.0, np.frexp(self.ranges.width)[1])[:, None] * around)[
            self.features
        ]

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Histograms, to which a client adds 2 for each feature and 1 for its rows; sums over its rows."""
        d, rows = self.ranges.n_features, self.ranges.rows
        value = np.maximum(np.abs(self.ranges.low), np.abs(self.ranges.high))
        # Slightly larger, so that rounding in a client's sum is not counted as clipping.
        largest = rows * value * _SLACK
        # Around a center the mean is found anew, on a grid that follows the width of the ranges.
        size = value if self.center is None else self.ranges.width
        step = np.where(size > 0, np.minimum(size * 2.0**-20, 2.0**-10), 2.0**-10)
        entries = [
            Entry("row_bins", (ROW_BINS,), 0.0, 1.0, 2.0**-10),
            Entry("rows", (1,), 0.0, rows, 2.0**-10),
            # The mean only places the cells of the initialisation, so that a coarse grid suffices.
            Entry("sum", (d,), -largest, largest, step),
        ]
        if self.features.size:
            shape = len(self.features), self.edges.shape[1] - 1
            entries.insert(0, Entry("extremes", shape, 0.0, 2.0, 2.0**-10))
        return StatisticsSpec(*entries)

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> StatisticsTable:
        """Answer for several clients."""
        vectors, first = np.zeros((len(clients), self.spec.size)), self.spec.size - self.ranges.n_features
        extremes = np.stack([client.extremes for client in clients])[:, :, self.features]
        if self.center is None:
            above = np.searchsorted(self.edges[0], extremes, side="right")
        else:
            columns = zip(self.edges, np.moveaxis(extremes, 2, 0), strict=True)
            above = np.stack([np.searchsorted(*one, side="right") for one in columns], axis=2)
        n_bins, each = self.edges.shape[1] - 1, np.arange(len(clients))
        bins = np.clip(above - 1, 0, n_bins - 1) + np.arange(len(self.features)) * n_bins
        for own in (bins[:, 0], bins[:, 1]):
            vectors[each[:, None], own] += 1.0
        octaves = [min((client.n_rows - 1).bit_length(), ROW_BINS - 1) for client in clients]
        vectors[each, first - 1 - ROW_BINS + np.array(octaves)] = 1.0
        vectors[:, first - 1] = [client.n_rows for client in clients]
        vectors[:, first:] = [client.features.sum(axis=0) for client in clients]
        return StatisticsTable(self.spec.layout, frozen(vectors))

    def ends(self, total: Statistics) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the marked bins of each feature that is asked for."""
        marked, each = np.rint(total["extremes"]) > 0, np.arange(len(self.features)) % len(self.edges)
        beyond = marked.shape[1] - marked[:, ::-1].argmax(axis=1)
        return self.edges[each, marked.argmax(axis=1)], self.edges[each, beyond]


@dataclass(frozen=True, slots=True)
class Located:
    """The result of the range sum.

    Args:
        ranges: range of each feature, and bound on a client's rows.
        mean: mean of each feature over all rows, float64 of shape (n_features,).
        n_rows: number of rows of all clients.
    """

    ranges: Ranges
    mean: FloatArray
    n_rows: int


def locate(setting: Setting, upcoming: tuple[int, ...]) -> Conversation[Located]:
    """Find ranges, means and the number of rows with one sum, or two if a range is loose (`loose`).

    A declared domain is kept.

    Raises:
        ArgumentError: the clients hold no rows.
        DataError: values exceed 2**50 and no domain is declared, or rows or values exceed the declared one.
    """
    universal, find = _universal(setting)
    low, high = universal.low, universal.high
    question = FeatureRanges(ranges=universal, find_ranges=find)
    total = yield Ask(question, upcoming=upcoming, purpose=RANGE)
    if total.clipped and not find:
        raise DataError(
            f"{total.clipped} values lie outside its declared domain or max_rows; declare a larger domain, "
            "or clip the data.",
            parameters=["max_rows"],
        )
    if total.clipped:
        raise DataError(
            f"{total.clipped} values lie outside +-{LARGEST:.3g}, beyond which no ranges are found; remove "
            "codes for missing values such as 1e30, divide such columns by a public number, or declare a "
            "domain (domain=)."
        )
    n_rows = round(float(total.statistics["rows"][0]))
    if n_rows < 1:
        raise ArgumentError("the clients hold no rows.")
    rows = setting.max_rows or 2 ** int(np.flatnonzero(np.rint(total.statistics["row_bins"]) > 0)[-1])
    if find:
        low, high = question.ends(total.statistics)
    ranges = Ranges(low, high, rows)
    mean = ranges.clip(total.statistics["sum"] / n_rows)
    if find and (features := loose(ranges)).size:
        question = FeatureRanges(ranges=ranges, find_ranges=True, center=mean)
        finer = yield Ask(question, upcoming=upcoming, purpose=RANGE)
        own, rows_seen = question.ends(finer.statistics), np.maximum(finer.statistics["rows"], 1.0)
        mean = finer.statistics["sum"] / rows_seen
        low[features], high[features] = np.maximum(low[features], own[0]), np.minimum(high[features], own[1])
        ranges = Ranges(low, high, rows)
    return Located(ranges, ranges.clip(mean), n_rows)


def _universal(setting: Setting) -> tuple[Ranges, bool]:
    """Return the ranges within which rows are located, and whether their own ranges are to be found."""
    d, domain = setting.n_features, setting.domain
    low, high = (np.full(d, -LARGEST), np.full(d, LARGEST)) if domain is None else domain.bounds(d)
    return Ranges(low, high, setting.max_rows or 2 ** (ROW_BINS - 1)), domain is None


def range_phases(setting: Setting) -> Phases:
    """Return what `locate` asks."""
    universal, find = _universal(setting)
    asked = Phase(Form(FeatureRanges, ranges=universal, find_ranges=find))
    finer = Form(FeatureRanges, ranges=Found(setting), find_ranges=True, center=Shape(setting.n_features))
    return (asked, Phase(finer, 0)) if find else (asked,)


@dataclass(frozen=True, slots=True)
class Found(Rule):
    """Ranges that `locate` may find: any for all rows, and a power of two of rows; declared ones are kept.

    Args:
        setting: what is known before the sum.
    """

    setting: Setting

    @property
    def origin(self) -> Origin:
        """Any ends where ranges are found, else the declared ones."""
        return Origin.ANY if self.setting.max_rows is None else Origin.EQUAL

    def read(self, value: object, kept: Kept) -> Kept | None:
        """Compare the ends with the declared ones, or with the largest that are found."""
        if not isinstance(value, Ranges) or value.n_features != self.setting.n_features:
            return None
        universal, find = _universal(self.setting)
        declared = self.setting.max_rows
        if self.setting.privacy is not None:
            declared = declared or MOST_ROWS
        rows = value.rows & (value.rows - 1) == 0 if declared is None else value.rows == declared
        if find:
            ends = bool((np.abs([value.low, value.high]) <= LARGEST).all())
        else:
            ends = np.array_equal(value.low, universal.low) and np.array_equal(value.high, universal.high)
        return kept if rows and ends and value.rows <= universal.rows else None
