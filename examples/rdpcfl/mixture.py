"""Gaussians of the first round's updates, in the plane of their principal components (R-DPCFL).

Malekmohammadi, Taik, Farnadi: Differentially Private Clustered Federated Learning, TMLR 2025, with the
authors' code: two principal components, each scaled to [0, 1]; round Gaussians of equal weights, fitted by
scikit-learn's `GaussianMixture`. The separation of two is the distance of their means over twice the wider
one's standard deviation; two overlap by 1 - erf(separation / sqrt 2). Of several numbers of clusters the one
is taken whose least separation is greatest.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from privfed.core.asking.question import Part
from privfed.core.values.domain import FloatArray, frozen_array
from privfed.extend import ArgumentError, Declaration, register

PLANE = 2
"""Principal components that updates are compared in."""

TOLERANCE = 1e-6
"""Of the log-likelihood, as in the authors' code."""

MOST_CLUSTERS = 10
"""Largest number of clusters that is tried where none is given."""


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Mixture(Part):
    """Round Gaussians of equal weights in a plane of updates.

    Args:
        axes: of the plane, float64 of shape (2, n_parameters).
        low: least coordinate of the first round's updates on each axis, float64 of shape (2,).
        width: the greatest less the least, positive, float64 of shape (2,).
        means: of the Gaussians in coordinates from 0 to 1, float64 of shape (n_clusters, 2).
        variances: of each coordinate, positive, float64 of shape (n_clusters,).
    """

    axes: FloatArray
    low: FloatArray
    width: FloatArray
    means: FloatArray
    variances: FloatArray

    def __post_init__(self) -> None:
        n = len(self.means)
        shapes = (
            self.axes.shape[:1],
            self.low.shape,
            self.width.shape,
            self.means.shape,
            self.variances.shape,
        )
        if self.axes.ndim != 2 or not n or shapes != ((PLANE,), (PLANE,), (PLANE,), (n, PLANE), (n,)):
            raise ArgumentError(f"a mixture's arrays do not fit together: {shapes}.")
        held = (self.axes, self.low, self.width, self.means, self.variances)
        if not all(np.isfinite(one).all() for one in held):
            raise ArgumentError("a mixture must be finite.")
        if not ((self.width > 0.0).all() and (self.variances > 0.0).all()):
            raise ArgumentError("widths and variances of a mixture must be positive.")

    @property
    def declaration(self) -> Declaration:
        """No centers of rows: of updates."""
        return Declaration()

    def chances(self, updates: FloatArray) -> FloatArray:
        """Return the chance of each cluster, float64 of shape (n, n_clusters).

        Args:
            updates: of the first round, float64 of shape (n, n_parameters).
        """
        points = (updates @ self.axes.T - self.low) / self.width
        apart = ((points[:, None, :] - self.means[None]) ** 2).sum(axis=2)
        logs = -0.5 * apart / self.variances - np.log(self.variances)
        logs -= logs.max(axis=1, keepdims=True)
        found: FloatArray = np.exp(logs)
        return np.asarray(found / found.sum(axis=1, keepdims=True))


def fitted_mixture(updates: FloatArray, n_clusters: int | None, seed: int) -> Mixture:
    """Return the mixture of a round's updates.

    Args:
        updates: float64 of shape (n, n_parameters), at least three of them.
        n_clusters: number of Gaussians; None for the number of the greatest least separation.
        seed: of the fit's starts.
    """
    axes = np.linalg.svd(updates - updates.mean(axis=0), full_matrices=False)[2][:PLANE]
    points = updates @ axes.T
    low, width = points.min(axis=0), np.ptp(points, axis=0)
    width = np.where(width > 0.0, width, 1.0)
    tried = range(2, min(MOST_CLUSTERS, len(updates) - 1) + 1) if n_clusters is None else [n_clusters]
    found = [_gaussians((points - low) / width, n, seed) for n in tried]
    means, variances = max(found, key=lambda one: separation(*one))
    return Mixture(
        axes=frozen_array(axes),
        low=frozen_array(low),
        width=frozen_array(width),
        means=frozen_array(means),
        variances=frozen_array(variances),
    )


def _gaussians(points: FloatArray, n: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return means and variances of round Gaussians."""
    model = GaussianMixture(
        n, covariance_type="spherical", tol=TOLERANCE, init_params="k-means++", random_state=seed % 2**32
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(points)
    return np.asarray(model.means_), np.asarray(model.covariances_)


def separation(means: FloatArray, variances: FloatArray) -> float:
    """Return the least separation of two Gaussians; infinite where there is one."""
    radii, least = np.sqrt(variances), math.inf
    for i in range(len(means)):
        for j in range(i):
            apart = float(np.linalg.norm(means[i] - means[j]))
            least = min(least, apart / (2.0 * max(radii[i], radii[j])))
    return least


def overlap(means: FloatArray, variances: FloatArray) -> float:
    """Return the largest overlap of two Gaussians, from 0 to 1; 0 where there is one."""
    return 1.0 - math.erf(separation(means, variances) / math.sqrt(2.0))


def shares(mixture: Mixture, updates: Sequence[FloatArray] | FloatArray) -> FloatArray:
    """Return each cluster's mean of updates, weighted by their chances, float64 of shape (n_clusters, n)."""
    table = np.asarray(updates)
    chances = mixture.chances(table)
    return np.asarray((chances.T @ table) / np.maximum(chances.sum(axis=0), 1e-12)[:, None])
