"""The median and quartiles of each column from two noised histograms, the second where the first found rows.

A domain that is plausible for patients (creatinine of 20 to 900) is often fifty times as wide as their
spread. The first histogram, over the domain, shows in which few bins most rows of a column lie; the second
counts rows in finer bins around these. docs/algorithms/dp_kmeans.md has what this reaches beside moments.

Reveals to whoever opens the totals: how many rows lie in each bin of each column, with noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.algorithms.private.scale import frame_of
from privfed.algorithms.summary import Histograms, Summary, histogram_phases, histograms
from privfed.core.asking.phases import Form, Phases, Shape
from privfed.core.roles.conversation import Conversation, Setting
from privfed.core.values.domain import FloatArray
from privfed.questions.histograms import GAUSSIAN_IQR, FeatureHistograms
from privfed.questions.moments import Moments

WIDE_BINS, FINE_BINS = 32, 16
"""Bins of a column over the domain, and around most of its rows."""

MOST, AROUND = 0.6, 3.0
"""Share of the rows in the shortest run of bins that is looked at again, and how much wider a window."""

SURE = 3.0
"""A bin counts for the variance with more rows than so many standard deviations of its noise."""


@dataclass(frozen=True)
class PrivateQuartiles:
    """The algorithm that finds noised medians and quartiles."""

    fixed: ClassVar[bool] = False
    max_sums: ClassVar[int] = 3

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: two histograms; at unit "client" the clients' sizes before."""
        wide = Form(FeatureHistograms, n_bins=WIDE_BINS, edges=None)
        fine = Form(FeatureHistograms, n_bins=0, edges=_Edges(setting.n_features, FINE_BINS + 1))
        return histogram_phases(setting, wide, fine)

    def run(self, setting: Setting) -> Conversation[Summary]:
        """Find both histograms, and join them."""
        ranges, first = frame_of(setting).ranges, list[Histograms]()

        def around(wide: Histograms | None) -> FeatureHistograms:
            assert wide is not None
            first.append(wide)
            return FeatureHistograms(ranges=ranges, edges=_windows(wide.counts[:, 1:-1], wide.edges))

        fine = yield from histograms(
            setting, 1.0, lambda _: FeatureHistograms(ranges=ranges, n_bins=WIDE_BINS), around
        )
        found, (n_rows, mean, var) = _joined(first[0], fine), _moments(first[0])
        quarters = found.quantiles((0.25, 0.75))
        var = np.where(var > 0.0, var, np.square((quarters[:, 1] - quarters[:, 0]) / GAUSSIAN_IQR))
        return Summary(Moments(ranges, n_rows, mean, var), None, found)


def _joined(wide: Histograms, fine: Histograms) -> Histograms:
    """Return one histogram over the edges of both: the bins of the second, and beyond those of the first."""
    edges = np.sort(np.concatenate([wide.edges, fine.edges], axis=1), axis=1)
    below, sure = np.empty_like(edges), _sure(wide)
    for own, at, counts, ends, inside, window in zip(
        below, edges, sure, wide.edges, fine.counts[:, 1:-1], fine.edges, strict=True
    ):
        known = np.interp(at, ends, np.append(0.0, counts.cumsum()))
        # Within the window the first histogram says nothing.
        low, high = np.interp(window[[0, -1]], at, known)
        own[:] = np.minimum(known, low) + np.maximum(known - high, 0.0)
        own += np.interp(at, window, np.append(0.0, inside.cumsum()))
    return Histograms(edges, np.pad(np.diff(below, axis=1), [(0, 0), (1, 1)]), fine.noise_std)


class _Edges(Shape):
    """Edges of bins, of a shape."""

    def example(self) -> FloatArray:
        """Return ones that are allowed."""
        return super().example() + np.arange(FINE_BINS + 1.0)


def _moments(wide: Histograms) -> tuple[int, FloatArray, FloatArray]:
    """Return the number of rows, and means and variances of the bins that surely hold some."""
    sure, middles = _sure(wide), (wide.edges[:, :-1] + wide.edges[:, 1:]) / 2.0
    weights = sure / np.maximum(sure.sum(axis=1, keepdims=True), 1.0)
    mean = (weights * middles).sum(axis=1)
    var = (weights * np.square(middles - mean[:, None])).sum(axis=1)
    return max(1, round(wide.counts[:, 1:-1].sum(axis=1).mean())), mean, var


def _sure(wide: Histograms) -> FloatArray:
    """Return the counts of bins that hold more than noise; of others 0."""
    counts = wide.counts[:, 1:-1]
    return np.where(counts > SURE * wide.noise_std, counts, 0.0)


def _windows(counts: FloatArray, edges: FloatArray) -> FloatArray:
    """Return edges around the shortest run of bins with most rows, (n_features, FINE_BINS + 1)."""
    most = MOST * counts.sum(axis=1).mean()
    below = np.concatenate([np.zeros((len(counts), 1)), counts.cumsum(axis=1)], axis=1)
    n_bins, column = counts.shape[1], np.arange(len(counts))
    first, length = np.zeros(len(counts), dtype=int), np.full(len(counts), n_bins)
    for n in range(n_bins - 1, 0, -1):
        held = below[:, n:] - below[:, :-n]
        enough = held.max(axis=1) >= most
        first, length = np.where(enough, held.argmax(axis=1), first), np.where(enough, n, length)
    low, high = edges[column, first], edges[column, first + length]
    beside = (AROUND - 1.0) / 2.0 * (high - low)
    low, high = np.maximum(low - beside, edges[:, 0]), np.minimum(high + beside, edges[:, -1])
    # A column of one value gets a window of its own size.
    return np.linspace(
        low, np.where(high > low, high, low + np.maximum(np.abs(low), 1.0)), FINE_BINS + 1, axis=1
    )
