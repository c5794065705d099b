"""Centers that explain the noised totals of few cells between hyperplanes: a fit of a mixture to them.

Where rows are few, noise allows few cells. Each then holds rows of several clusters, and their mean lies
between these. So here no cell is looked at by itself: centers are sought whose rows, spread as spherical
Gaussians alike, would give all counts and sums together. Hyperplanes are orthogonal, so that a cell's share
of a Gaussian, and the mean of its rows there, are products over hyperplanes.

With b the side of a cell at a hyperplane, z the distance of a center from it in standard deviations s, and F
the Gaussian distribution: the share is F(b z), and the mean s (z + b F'(z) / F(b z)). The derivative of the
share times that mean is the share. Centers have a Gaussian prior. Its variance and s^2 together are that of
the rows, as the radius says it, and several ratios of the two are tried.

Steps are a fixed number of Adam's (Kingma and Ba 2015), without a search along lines: last bits, which differ
between machines that run the program, then stay small.

Reveals nothing: it looks at noised totals only.
"""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
from scipy.special import ndtr, softmax
from scipy.stats import chi2

from privfed.algorithms.private.scale import Scale
from privfed.core.values.domain import FloatArray
from privfed.questions.bounded.bounded_sums import HashSums

# docs/algorithms/dp_kmeans.md, "Where the constants come from", says how these were found.
WITHIN, TRIES, STEPS, FIRST = (0.1, 0.3, 0.6), 4, 100, 0.3
"""Parts of the variance that may lie within clusters; starts for each of them, and steps from each; length of
the first step, in standard deviations of the rows, from which on steps get shorter."""

SHARES, BORDER = 2.0, 50.0
"""Weights of the logarithms of clusters' shares, and of the squared distance, in radii, beyond the domain."""


def decoded(
    scale: Scale,
    question: HashSums,
    totals: tuple[FloatArray, FloatArray],
    noise: tuple[float, float],
    n_clusters: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Return centers that explain the totals best, (n_clusters, n_features), and their numbers of rows.

    Args:
        scale: noised number, centre and radius of the rows.
        question: the cells, between hyperplanes that are orthogonal.
        totals: noised counts and sums of the cells.
        noise: standard deviations of their noise.
        n_clusters: number of clusters.
        rng: source of the starts.
    """
    normals, radius, d = question.normals, question.radius, len(scale.center)
    sides = np.where((np.arange(question.n_cells)[:, None] >> np.arange(len(normals))) & 1, 1.0, -1.0)
    ranges, unit = scale.frame.ranges, radius / sqrt(float(chi2.ppf(0.8, d)))
    within = np.repeat(WITHIN, TRIES)[:, None, None]
    s, prior = unit * np.sqrt(within), 1.0 / (1.0 - within)

    def unlikely(state: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return minus the logarithm of each try's posterior density, up to a constant, and its gradient."""
        centers, shares = unit * state[..., :d], softmax(state[..., d:], axis=1)
        z = (centers @ normals.T / s)[:, :, None]
        part = np.maximum(ndtr(z * sides), 1e-12)
        slope = sides * np.exp(-np.square(z) / 2.0) / sqrt(2.0 * pi) / part
        rows, means = (
            scale.n_rows * shares * part.prod(axis=3),
            centers[:, :, None] + s[..., None] * (slope @ normals),
        )
        counts = (rows.sum(axis=1) - totals[0]) / noise[0]
        sums = (np.einsum("tkc,tkcd->tcd", rows, means) - totals[1]) / noise[1]
        outside = (centers - (ranges.clip(scale.center + centers) - scale.center)) / radius
        density = 0.5 * (np.square(counts).sum(axis=1) + np.square(sums).sum(axis=(1, 2)))
        density += 0.5 * (prior * (np.square(state[..., :d])) - np.log(prior)).sum(axis=(1, 2))
        density += BORDER * np.square(outside).sum(axis=(1, 2)) - SHARES * np.log(shares).sum(axis=(1, 2))
        # A row that moves across a hyperplane takes its count and its mean along.
        taken = counts[:, None] / noise[0] + np.einsum("tcd,tkcd->tkc", sums / noise[1], means)
        left = taken[..., None] - s[..., None] * (z + slope) * (sums / noise[1] @ normals.T)[:, None]
        across = (rows[..., None] * slope * left).sum(axis=2) / s
        of_centers = unit * (rows @ sums / noise[1] + across @ normals + 2.0 * BORDER / radius * outside)
        of_shares = (rows * taken).sum(axis=2, keepdims=True) - SHARES
        of_shares -= shares * of_shares.sum(axis=1, keepdims=True)
        return density, np.concatenate([of_centers + prior * state[..., :d], of_shares], axis=2)

    state = rng.standard_normal((len(within), n_clusters, d + 1)) / np.sqrt(prior)
    state[..., d] = 0.0
    mean, square = np.zeros_like(state), np.zeros_like(state)
    for step in range(STEPS):
        gradient = unlikely(state)[1]
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * np.square(gradient)
        ahead = mean / (1.0 - 0.9 ** (step + 1)) / np.sqrt(square / (1.0 - 0.99 ** (step + 1)) + 1e-12)
        state -= FIRST * (1.0 - step / STEPS) * ahead
    best = state[int(unlikely(state)[0].argmin())]
    return scale.center + unit * best[:, :d], scale.n_rows * softmax(best[:, d])
