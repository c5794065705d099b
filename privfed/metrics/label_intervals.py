"""Intervals of scores of labels (accuracy, entropies, adjusted Rand index), from one noised table of counts.

A score is a quotient of sums over a table's cells, its margins and its whole. Each sum is estimated with a
bias of which a range is known:

- The sum of the clusters' largest counts is too large by at most the mean of the largest noise, over the
  labels that may be the largest.
- Pairs of rows are quadratic: the variance of the noise is taken off, and draws show the rest.
- n log n has no unbiased estimate near 0. The range is that of one count, over all that it may be.

The interval has all quotients q for which numerator less q times denominator may be 0: its bias within the
range, its noise normal, with covariances that are drawn from the released total. One range of bias holds for
all tables, so that empty cells do not pass for rows. That the level is met is measured, not proven
(docs/measurements/validity.md).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.special import ndtri

from privfed.core.values.domain import FloatArray

DRAWS = 1000
"""How often the noise of a released total is drawn."""


def two_sided(level: float) -> float:
    """Return how many standard deviations a normal variable is within, with a probability."""
    return float(ndtri(0.5 + level / 2.0))


def quotient_of_labels(
    metric: str, table: FloatArray, std: float, level: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the ends of a score's interval.

    Args:
        metric: name of a score.
        table: noised counts, float64 of shape (n_labels, n_clusters); below 0 where noise made them so.
        std: standard deviation of the noise of each count, in rows.
        level: with which the interval covers, in (0, 1).
        rng: draws noise.
    """
    of, above, below, least = _SCORES[metric]
    left_out = (1.0 - level) / 10.0
    # How far, in deviations, counts and margins may lie from the noised ones, if all of it holds at once.
    n_labels, k = table.shape
    far = two_sided((1.0 - left_out) ** (1.0 / ((n_labels + 1) * (k + 1))))
    found = of(table, std)
    rivals = table >= table.max(axis=0) - 2.0 * far * std
    most, drawn, at_once = 0.0, np.empty((DRAWS, len(found))), max(1, (1 << 18) // table.size)
    for first in range(0, DRAWS, at_once):
        here = drawn[first : first + at_once]
        noise = std * rng.standard_normal((len(here), *table.shape))
        here[:] = of(table + noise, std)
        most += float(np.where(rivals, noise, -np.inf).max(axis=-2).sum()) / DRAWS
    covariances = np.cov(drawn, rowvar=False)
    if metric == "accuracy":
        bias = np.array([[0.0, 0.0], [max(most, 0.0), 0.0]])
        # Of the exact largest counts: the largest noised ones have noise that varies no more.
        covariances = k * std**2 * np.array([[1.0, 1.0], [1.0, n_labels]])
    elif metric == "adjusted_rand_index":
        # What products of noised sums are too large by, as it is where noise is added to the released table.
        bias = np.stack([drawn.mean(axis=0) - of(table, 0.0)] * 2)
    else:
        bias = _bias_of_entropies(table, std, far)
    tried = np.linspace(least, 1.0, 4001)
    sums = np.array(above) - tried[:, None] * np.array(below)
    variances = np.einsum("qi,ij,qj->q", sums, covariances, sums)
    half = two_sided(level + left_out) * np.sqrt(np.maximum(variances, 0.0))
    low, high = np.sort(sums * bias[:, None], axis=0).sum(axis=-1)
    may = tried[(sums @ found >= low - half) & (sums @ found <= high + half)]
    if not len(may):
        return least, 1.0
    step = tried[1] - tried[0]
    return max(float(may[0] - step), least), min(float(may[-1] + step), 1.0)


def _largest(tables: FloatArray, std: float) -> FloatArray:
    """Return the sum of the clusters' largest counts, and of all, of each table, (..., 2)."""
    return np.stack([tables.max(axis=-2).sum(axis=-1), tables.sum(axis=(-1, -2))], axis=-1)


def _pairs(tables: FloatArray, std: float) -> FloatArray:
    """Return numerator and denominator of the adjusted Rand index, times the number of pairs, (..., 2).

    Squares of noised counts are lowered by the variance of their noise, by which they are too large.
    """
    n = tables.sum(axis=(-1, -2))
    same, labels, clusters, whole = (
        (np.square(counts).sum(axis=-1) - counts.shape[-1] * noise**2 - n) / 2.0
        for counts, noise in _margins(tables, std)
    )
    chance = labels * clusters
    return np.stack([same * whole - chance, (labels + clusters) / 2.0 * whole - chance], axis=-1)


def _n_log_n(tables: FloatArray, std: float) -> FloatArray:
    """Return estimates of the sums of n log n over cells, labels, clusters and the whole of tables, (..., 4).

    `_bias_of_entropies` says by how much they are too large.
    """
    sums = [
        noise * _one_log(counts / noise).sum(axis=-1) + np.log(noise) * counts.sum(axis=-1)
        for counts, noise in _margins(tables, std)
    ]
    return np.stack(sums, axis=-1)


def _one_log(y: FloatArray) -> FloatArray:
    """Return estimates of n log n from counts n with noise of deviation 1.

    y log y is too large by half of its second derivative, 1 / y, where y is large.
    """
    filled = np.where(y > 0.0, y, 1.0)
    return np.where(y > 0.0, filled * np.log(filled) - 0.5 / np.maximum(filled, 1.0), 0.0)


def _margins(tables: FloatArray, std: float) -> list[tuple[FloatArray, float]]:
    """Return cells, labels, clusters and the whole of tables, (..., size), each with the noise."""
    *first, n_labels, k = tables.shape
    labels, clusters = tables.sum(axis=-1), tables.sum(axis=-2)
    known = (tables.reshape(*first, n_labels * k), 1), (labels, k), (clusters, n_labels)
    whole = labels.sum(axis=-1, keepdims=True), n_labels * k
    return [(counts, std * float(np.sqrt(cells))) for counts, cells in (*known, whole)]


@cache
def _bias_of_logs() -> FloatArray:
    """Return least and largest bias of `_one_log` for counts from each twentieth up to 16 on, (2, 321)."""
    counts, noise = np.linspace(0.0, 16.0, 321), np.linspace(-8.0, 8.0, 1601)
    density = np.exp(-np.square(noise) / 2.0)
    exact = counts * np.log(np.maximum(counts, 1e-300))
    bias = (_one_log(counts[:, None] + noise) @ density / density.sum() - exact)[::-1]
    return np.stack([one.accumulate(bias)[::-1] for one in (np.minimum, np.maximum)])


def _bias_of_entropies(table: FloatArray, std: float, far: float) -> FloatArray:
    """Return least and largest biases of `_n_log_n`, (2, 4), of counts at most so many deviations away."""
    found = []
    for counts, noise in _margins(table, std):
        least = np.clip(counts / noise - far, 0.0, 16.0)
        found.append(noise * _bias_of_logs()[:, (20.0 * least).astype(np.intp)].sum(axis=-1))
    return np.stack(found, axis=-1)


_SHARED = (1.0, -1.0, -1.0, 1.0)
"""Coefficients of the information that labels and clusters share, times rows, in `_n_log_n`."""

_SCORES: dict[
    str, tuple[Callable[[FloatArray, float], FloatArray], tuple[float, ...], tuple[float, ...], float]
] = {
    "accuracy": (_largest, (1.0, 0.0), (0.0, 1.0), 0.0),
    "adjusted_rand_index": (_pairs, (1.0, 0.0), (0.0, 1.0), -1.0),
    "completeness": (_n_log_n, _SHARED, (0.0, 0.0, -1.0, 1.0), 0.0),
    "homogeneity": (_n_log_n, _SHARED, (0.0, -1.0, 0.0, 1.0), 0.0),
    "v_measure": (_n_log_n, _SHARED, (0.0, -0.5, -0.5, 1.0), 0.0),
}
"""Sums that a score is a quotient of: their estimates, numerator, denominator, and the least quotient."""
