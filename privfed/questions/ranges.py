"""The range sum: the range and mean of each feature and a bound on a client's rows, in one sum.

Reveals to whoever opens the total: for each feature, how many clients have their smallest or largest
value in each bin of a public logarithmic grid, and the sum over all rows; how many clients have a number of
rows between two consecutive powers of two; and the number of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.asking.declaration import Declaration
from privfed.core.asking.phases import Form, Kept, Origin, Phase, Phases, Rule
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, StatisticsSpec, StatisticsTable
from privfed.core.roles.conversation import Ask, Conversation, Setting, Total
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

SMALLEST = 2.0**SMALLEST_EXPONENT
"""Where the bin around zero ends: of smaller values no narrower ranges are found."""

ROW_BINS = 41
_MAX_BINS = 1 << 13
_SLACK = 1.0 + 2.0**-20


def subdivisions(n_features: int) -> int:
    """Return into how many bins each octave is divided; with more features, there are fewer bins."""
    fitting = [parts for parts in (16, 8, 4, 2) if n_features * _n_bins(parts) <= _MAX_BINS]
    return fitting[0] if fitting else 1


def _n_bins(parts: int) -> int:
    return 2 * (LARGEST_EXPONENT - SMALLEST_EXPONENT) * parts + 1


def edges(parts: int) -> FloatArray:
    """Return the bins' edges, ascending, float64 of shape (n_bins + 1,)."""
    exponents = np.arange(SMALLEST_EXPONENT, LARGEST_EXPONENT)
    mantissas = 1.0 + np.arange(parts) / parts
    positive = np.append((2.0 ** exponents[:, None] * mantissas).ravel(), LARGEST)
    return np.concatenate([-positive[::-1], positive])


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureRanges(Question):
    """Ask for the ranges of the features, and for numbers and sums of rows.

    Statistics: `extremes` (n_features, n_bins) if `find_ranges`, `row_bins` (ROW_BINS,),
    `rows` (1,), `sum` (n_features,).

    Args:
        find_ranges: whether to ask for the ranges too, and not only for numbers and sums of rows.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    find_ranges: bool

    @property
    def _parts(self) -> int:
        return subdivisions(self.ranges.n_features)

    @property
    def declaration(self) -> Declaration:
        """The number of a client's rows."""
        return Declaration(("rows",), row_sums=("rows", "sum"))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Histograms, to which a client adds 2 for each feature and 1 for its rows; sums over its rows."""
        d, rows = self.ranges.n_features, self.ranges.rows
        value = np.maximum(np.abs(self.ranges.low), np.abs(self.ranges.high))
        # Slightly larger, so that rounding in a client's sum is not counted as clipping.
        largest = rows * value * _SLACK
        step = np.where(value > 0, np.minimum(value * 2.0**-20, 2.0**-10), 2.0**-10)
        entries = [
            Entry("row_bins", (ROW_BINS,), 0.0, 1.0, 2.0**-10),
            Entry("rows", (1,), 0.0, rows, 2.0**-10),
            # The mean only places the cells of the initialisation, so that a coarse grid suffices.
            Entry("sum", (d,), -largest, largest, step),
        ]
        if self.find_ranges:
            entries.insert(0, Entry("extremes", (d, _n_bins(self._parts)), 0.0, 2.0, 2.0**-10))
        return StatisticsSpec(*entries)

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> StatisticsTable:
        """Answer for several clients."""
        spec, each = self.spec, np.arange(len(clients))
        extremes = np.stack([client.extremes for client in clients])
        vectors = np.zeros((len(clients), spec.size))
        first = spec.size - ROW_BINS - 1 - self.ranges.n_features
        if self.find_ranges:
            starts = np.arange(self.ranges.n_features) * _n_bins(self._parts)
            for values in (extremes[:, 0], extremes[:, 1]):
                vectors[each[:, None], starts + _bins(values, self._parts)] += 1.0
        sizes = [client.n_rows for client in clients]
        row_bins = [min((size - 1).bit_length(), ROW_BINS - 1) for size in sizes]
        vectors[each, first + np.array(row_bins)] = 1.0
        vectors[:, first + ROW_BINS] = sizes
        vectors[:, first + ROW_BINS + 1 :] = [client.features.sum(axis=0) for client in clients]
        return StatisticsTable(spec.layout, frozen(vectors))


def _bins(values: FloatArray, parts: int) -> IntArray:
    """Return the bin of each value, in its shape."""
    return np.clip(np.searchsorted(edges(parts), values, side="right") - 1, 0, _n_bins(parts) - 1)


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
    """Find ranges, means and the number of rows with one sum; a declared domain is kept.

    Raises:
        ArgumentError: the clients hold no rows.
        DataError: values exceed 2**50 and no domain is declared, or rows or values exceed the declared one.
    """
    d, domain = setting.n_features, setting.domain
    universal, find = _universal(setting)
    low, high = universal.low, universal.high
    question = FeatureRanges(ranges=universal, find_ranges=find)
    total = yield Ask(question, upcoming=upcoming, purpose="range")
    if total.clipped and domain is not None:
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
    if domain is None:
        low, high = _found(total, subdivisions(d))
    mean = np.clip(total.statistics["sum"] / n_rows, low, high)
    return Located(Ranges(low, high, rows), mean, n_rows)


def _universal(setting: Setting) -> tuple[Ranges, bool]:
    """Return the ranges within which rows are located, and whether their own ranges are to be found."""
    d, domain = setting.n_features, setting.domain
    low, high = (np.full(d, -LARGEST), np.full(d, LARGEST)) if domain is None else domain.bounds(d)
    return Ranges(low, high, setting.max_rows or 2 ** (ROW_BINS - 1)), domain is None


def _found(total: Total, parts: int) -> tuple[FloatArray, FloatArray]:
    marked, all_edges = np.rint(total.statistics["extremes"]) > 0, edges(parts)
    first = marked.argmax(axis=1)
    last = marked.shape[1] - 1 - marked[:, ::-1].argmax(axis=1)
    return all_edges[first], all_edges[last + 1]


def range_phases(setting: Setting) -> Phases:
    """Return what `locate` asks."""
    universal, find = _universal(setting)
    return (Phase(Form(FeatureRanges, ranges=universal, find_ranges=find)),)


@dataclass(frozen=True, slots=True)
class Found(Rule):
    """Ranges that `locate` may find: bounds of its bins, and a power of two of rows; declared ones are kept.

    Args:
        setting: what is known before the sum.
    """

    setting: Setting

    @property
    def origin(self) -> Origin:
        """Any ends of bins where ranges are found, else the declared ones."""
        return Origin.ANY if self.setting.max_rows is None else Origin.EQUAL

    def read(self, value: object, kept: Kept) -> Kept | None:
        """Compare the ends with those of the bins, or with the declared ones."""
        if not isinstance(value, Ranges) or value.n_features != self.setting.n_features:
            return None
        universal, find = _universal(self.setting)
        declared = self.setting.max_rows
        if self.setting.privacy is not None:
            declared = declared or MOST_ROWS
        rows = value.rows & (value.rows - 1) == 0 if declared is None else value.rows == declared
        if find:
            known = edges(subdivisions(value.n_features))
            ends = bool(np.isin(value.low, known).all() and np.isin(value.high, known).all())
        else:
            ends = np.array_equal(value.low, universal.low) and np.array_equal(value.high, universal.high)
        return kept if rows and ends and value.rows <= universal.rows else None
