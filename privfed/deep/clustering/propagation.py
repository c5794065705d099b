"""Affinity propagation of updates: clusters without a number of clusters (Frey and Dueck 2007).

The algorithm is scikit-learn's. Where the DCFL paper is silent: similarity is the negative distance
("negative"), or its negative square ("negative-squared", as Frey and Dueck take for points); the preference
is the median similarity; damping is 0.5. Runs that do not converge give no clustering, and the one before is
kept; with updates that are all equally far apart, nothing tells clients apart, and all are one cluster.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from sklearn.cluster import AffinityPropagation
from sklearn.exceptions import ConvergenceWarning

from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.numerics.kernels.interpreted import IntArray

Similarity = Literal["negative", "negative-squared"]
SIMILARITIES = ("negative", "negative-squared")


@dataclass(frozen=True, slots=True, eq=False)
class Clustering:
    """Clusters of n updates.

    Args:
        labels: cluster of each, integers of shape (n,), from 0 on.
        exemplars: for each cluster the update that stands for it, integers of shape (n_clusters,). Each
            update is nearer to the exemplar of its own cluster than to any other one.
    """

    labels: IntArray
    exemplars: IntArray


@dataclass(frozen=True, kw_only=True)
class Propagation:
    """Words of affinity propagation.

    Args:
        similarity: one of `SIMILARITIES`.
        preference: similarity of an update to itself: lower for fewer clusters; None for a quantile of all.
        quantile: which one: 0.5 for the median of all pairs' similarities.
        damping: in [0.5, 1): share of the old messages in the new ones.
        max_iter: most steps.
        convergence_iter: steps without a change after which it has converged.
    """

    similarity: Similarity = "negative"
    preference: float | None = None
    quantile: float = 0.5
    damping: float = 0.5
    max_iter: int = 1000
    convergence_iter: int = 15

    def __post_init__(self) -> None:
        if self.similarity not in SIMILARITIES:
            raise ArgumentError(
                f"similarity must be one of {SIMILARITIES}, got {self.similarity!r}.",
                parameters=["similarity"],
            )
        if not 0.0 <= self.quantile <= 1.0:
            raise ArgumentError(f"the quantile of preferences must lie in [0, 1], got {self.quantile}.")
        if not 0.5 <= self.damping < 1.0:
            raise ArgumentError(
                f"damping must lie in [0.5, 1), got damping={self.damping}.", parameters=["damping"]
            )
        if self.max_iter < 1 or self.convergence_iter < 1:
            raise ArgumentError(
                "affinity propagation needs max_iter >= 1 and convergence_iter >= 1.", parameters=["max_iter"]
            )

    def cluster(self, distances: FloatArray, seed: int = 0) -> Clustering | None:
        """Return the clusters of updates; None where the algorithm did not converge.

        Args:
            distances: of all pairs, float64 of shape (n, n), n >= 1.
            seed: breaks ties.
        """
        similarities = -distances if self.similarity == "negative" else -np.square(distances)
        pairs = similarities[~np.eye(len(distances), dtype=bool)]
        if not pairs.size or pairs.min() == pairs.max():
            return Clustering(np.zeros(len(distances), dtype=np.intp), np.zeros(1, dtype=np.intp))
        found = AffinityPropagation(
            affinity="precomputed",
            damping=self.damping,
            preference=self._preference(similarities, pairs),
            max_iter=self.max_iter,
            convergence_iter=self.convergence_iter,
            random_state=seed % 2**32,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            try:
                found.fit(similarities)
            except ConvergenceWarning:
                return None
        return Clustering(found.labels_.astype(np.intp), found.cluster_centers_indices_.astype(np.intp))

    def _preference(self, similarities: FloatArray, pairs: FloatArray) -> float:
        """Return the similarity of an update to itself; the median is scikit-learn's, diagonal included."""
        if self.preference is not None:
            return self.preference
        return float(np.median(similarities) if self.quantile == 0.5 else np.quantile(pairs, self.quantile))
