"""Histograms of the features over public edges, for a summary of all rows.

Edges are public: declared, or of bins of equal width between the ends of the ranges. Each feature has its
own histogram. A row adds 1 to one bin of each, whatever the other rows are: adding a record changes each
histogram by 1 in L2 norm, and replacing one changes two of its bins by 1, or none.

Reveals to whoever opens the total: how many rows of all clients lie in each bin of each feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privfed.core.asking.declaration import STEP, Declaration, Effort
from privfed.core.asking.question import register
from privfed.core.asking.statistics import Entry, StatisticsSpec
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_whole
from privfed.errors import ArgumentError
from privfed.numerics.kernels.interpreted import IntArray
from privfed.privacy.bounds import Bound, RecordBounded, check_sizes, counted, step_of
from privfed.privacy.contributions import Contribution

GAUSSIAN_IQR = 1.3489795003921634
"""Interquartile range of a Gaussian column of standard deviation 1."""

MOST_BINS = 64
"""Most bins of a feature: of many more, each would hold about one row."""


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureHistograms(RecordBounded):
    """Ask how many rows lie in each bin of each feature.

    Bins include their lower edge, and the last one both, as in `numpy.histogram`. Two more count the rows
    below the first edge and above the last.

    Statistics: `feature_0`, `feature_1`, ..., each (n_bins + 2,): below, in each bin, above.

    Args:
        n_bins: number of bins of equal width between the ends of each feature's range; 0 with `edges`.
        edges: of the bins, ascending, float64 of shape (n_features, n_edges). A feature with fewer bins
            repeats its last edge: the bins between equal edges are empty. None with `n_bins`.
    """

    n_bins: int = 0
    edges: FloatArray | None = None

    def __post_init__(self) -> None:
        if (self.edges is None) == (self.n_bins == 0):
            raise ArgumentError("a histogram needs either n_bins or edges.")
        if self.edges is not None:
            check_edges(self.edges, self.ranges.n_features)
        else:
            check_whole("n_bins", self.n_bins, 1, MOST_BINS)

    @property
    def declaration(self) -> Declaration:
        """Each feature's histogram counts rows."""
        return Declaration(tuple(self.names))

    def effort(self, n_features: int) -> Effort:
        """Each feature has an entry of its own, which takes far more than its bins."""
        return Effort(numbers=STEP * n_features, work=8 * STEP * n_features, row_work=64 * n_features)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the entries, one a feature."""
        return tuple(f"feature_{j}" for j in range(self.ranges.n_features))

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """The bound of a count in one bin, for each feature."""
        return dict.fromkeys(self.names, counted())

    @cached_property
    def all_edges(self) -> FloatArray:
        """Edges of each feature's bins, float64 of shape (n_features, n_edges)."""
        if self.edges is not None:
            return self.edges
        return np.linspace(self.ranges.low, self.ranges.high, self.n_bins + 1, axis=1)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Counts of at most the rows of a client."""
        shape = (self.all_edges.shape[1] + 1,)
        return StatisticsSpec(
            *(Entry(name, shape, 0.0, self.ranges.rows, step_of(1.0)) for name in self.names)
        )

    def contributions(self, rows: FloatArray, labels: IntArray) -> Mapping[str, Contribution]:
        """Return each row's bin of each feature."""
        counted_in = zip(self.names, self.all_edges, rows.T, strict=True)
        return {name: Contribution(cells=_bins(edges, values)) for name, edges, values in counted_in}


def _bins(edges: FloatArray, values: FloatArray) -> IntArray:
    """Return the bin of each value: below the edges, in one of them, or above, intp of shape (n_values,)."""
    bins = np.searchsorted(edges, values, side="right")
    # The last edge belongs to the bin before it.
    bins[values == edges[-1]] = np.searchsorted(edges, edges[-1])
    return bins


def check_edges(edges: FloatArray, n_features: int) -> None:
    """Check the edges of a histogram.

    Raises:
        ArgumentError: there is not one row of them for each feature, or they do not ascend.
    """
    if edges.ndim != 2 or len(edges) != n_features or not 2 <= edges.shape[1] <= MOST_BINS + 1:
        raise ArgumentError(
            f"edges must be {n_features} rows, one a feature, of 2 to {MOST_BINS + 1} numbers, got shape "
            f"{edges.shape}."
        )
    check_sizes("edges", edges)
    ascends, ended = np.diff(edges, axis=1) > 0.0, edges[:, 1:] == edges[:, -1:]
    good = ascends[:, 0] & (ascends | ended).all(axis=1)
    if not good.all():
        raise ArgumentError(
            "the edges of each feature must ascend, and only the last one may be repeated, got "
            f"{edges[~good][0].tolist()}."
        )
