"""Splitting a cluster in two, and when to: clustered federated learning (Sattler, Mueller, Samek 2021).

Sattler, Mueller, Samek: Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization Under
Privacy Constraints, IEEE TNNLS 32, 2021, arXiv 1910.01991. A cluster whose model is near a stationary point
of its members together, but not of each of them, is split so that the greatest cosine similarity across the
halves is as small as possible (equation 12; merging the most similar ones first, algorithm 1: linkage
"single"). The authors' code takes complete linkage instead ("complete"), which keeps halves together that
chains of similar updates connect. Indices here are always those of the updates that were passed: the authors'
notebook takes indices within a cluster for indices of clients, which is wrong from the second split on.

Affinity propagation of updates: clusters without a number of clusters (Frey and Dueck 2007).

The algorithm is scikit-learn's. Where the DCFL paper is silent: similarity is the negative distance
("negative"), or its negative square ("negative-squared", as Frey and Dueck take for points); the preference
is that of some quantiles whose clusters have the highest Dunn index, by which the paper judges clusters;
damping is 0.5. Runs that do not converge give no clustering, and the one before is
kept; with updates that are all equally far apart, nothing tells clients apart, and all are one cluster.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.cluster.hierarchy import linkage as agglomerate
from scipy.spatial.distance import squareform
from sklearn.cluster import AffinityPropagation
from sklearn.exceptions import ConvergenceWarning

from privfed.core.values.domain import FloatArray
from privfed.deep.clustering.distances import dunn_index
from privfed.deep.clustering.noise import explains_more, without_noise
from privfed.errors import ArgumentError
from privfed.numerics.kernels.interpreted import IntArray

Linkage = Literal["complete", "single"]
LINKAGES = ("complete", "single")


@dataclass(frozen=True, kw_only=True)
class SplitRule:
    """When a cluster is split: equations 29 and 30, and how far apart its halves must be (gamma_max).

    Args:
        mean_norm: eps_1: split only where the mean update is shorter.
        max_norm: eps_2: and the longest update is longer.
        min_size: and at least so many members took part.
        after: and more rounds than this are over.
        gamma_max: and sqrt((1 - a) / 2) is larger, where a is the greatest cosine across the halves; in
            [0, 1]. It bounds how far a member's gradient may lie from its task's, relative to that.
        linkage: how the halves are found, one of `LINKAGES`.
    """

    mean_norm: float = 0.4
    max_norm: float = 1.6
    min_size: int = 3
    after: int = 20
    gamma_max: float = 0.0
    linkage: Linkage = "complete"

    def __post_init__(self) -> None:
        if self.linkage not in LINKAGES:
            raise ArgumentError(
                f"linkage must be one of {LINKAGES}, got linkage={self.linkage!r}.", parameters=["linkage"]
            )
        if not 0.0 <= self.gamma_max <= 1.0:
            raise ArgumentError(
                f"gamma_max must lie in [0, 1], got gamma_max={self.gamma_max}.", parameters=["gamma_max"]
            )
        if self.min_size < 2 or self.after < 0 or not (self.mean_norm >= 0 and self.max_norm >= 0):
            raise ArgumentError(
                "a split needs norms and rounds of at least 0 and min_size >= 2, got "
                f"mean_norm={self.mean_norm}, max_norm={self.max_norm}, after={self.after}, "
                f"min_size={self.min_size}."
            )

    def halves(
        self,
        updates: FloatArray,
        round_number: int,
        weights: FloatArray | None = None,
        variance: float = 0.0,
    ) -> IntArray | None:
        """Return the halves of a cluster that is split (`bipartition`); None for one that is not.

        What noise of a known variance adds to squared lengths is left out. Such a cluster is split only where
        the halves explain more than noise does.

        Args:
            updates: of its members, float64 of shape (n, n_parameters).
            round_number: from 1 on.
            weights: of the members in their mean, float64 of shape (n,), such as their rows (equation 29);
                None for all alike.
            variance: of the noise in each number of an update.
        """
        if len(updates) < self.min_size or round_number <= self.after:
            return None
        shares = np.full(len(updates), 1.0) if weights is None else weights
        if not shares.sum() > 0.0:
            return None
        shares, noise = shares / shares.sum(), updates.shape[1] * variance
        longest = _length(float(np.square(updates).sum(axis=1).max()) - noise)
        mean = _length(float(np.square(shares @ updates).sum()) - noise * float(shares @ shares))
        if mean >= self.mean_norm or longest <= self.max_norm:
            return None
        similarities = cosine_similarities(without_noise(updates, variance) if variance else updates)
        halves = bipartition(similarities, self.linkage)
        if variance and not explains_more(updates, np.zeros_like(halves), halves, variance):
            return None
        across = float(similarities[np.ix_(halves == 0, halves == 1)].max())
        return halves if np.sqrt((1.0 - across) / 2.0) >= self.gamma_max else None


def _length(square: float) -> float:
    return math.sqrt(max(0.0, square))


def cosine_similarities(updates: FloatArray) -> FloatArray:
    """Return the cosine of all pairs of updates, float64 of shape (n, n); 0 with one of length zero."""
    lengths = np.linalg.norm(updates, axis=1, keepdims=True)
    units = np.divide(updates, lengths, out=np.zeros_like(updates), where=lengths > 0.0)
    return np.asarray(np.clip(units @ units.T, -1.0, 1.0))


def bipartition(similarities: FloatArray, linkage: Linkage = "complete") -> IntArray:
    """Return the halves of n >= 2 updates: 0 or 1 for each, the first update's half being 0.

    Args:
        similarities: cosines of all pairs, float64 of shape (n, n).
        linkage: one of `LINKAGES`.
    """
    if len(similarities) < 2:
        raise ArgumentError(f"a split needs at least 2 updates, got {len(similarities)}.")
    # 1 - cos is a dissimilarity without negative values; the order of merges is that of -cos.
    apart = 1.0 - (similarities + similarities.T) / 2.0
    np.fill_diagonal(apart, 0.0)
    merges = agglomerate(squareform(apart, checks=False), method=linkage)
    halves = _two(merges, len(similarities))
    return np.asarray(halves != halves[0], dtype=np.intp)


def _two(merges: FloatArray, n: int) -> IntArray:
    """Return which of the two last clusters each item is in; ties in height must not give one or three."""
    if n == 2:
        return np.array([0, 1])
    first = int(merges[-1, 0])
    return np.isin(np.arange(n), _members(merges, first, n)).astype(np.intp)


def _members(merges: FloatArray, node: int, n: int) -> list[int]:
    if node < n:
        return [node]
    left, right = merges[node - n, :2].astype(int)
    return _members(merges, int(left), n) + _members(merges, int(right), n)


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


QUANTILES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
"""Preferences that are tried where none is given, from few clusters to many."""


@dataclass(frozen=True, kw_only=True)
class Propagation:
    """Parameters of affinity propagation.

    Args:
        similarity: one of `SIMILARITIES`.
        preference: similarity of an update to itself: lower for fewer clusters; None for a quantile of all.
        quantile: which one: 0.5 for the median of all pairs' similarities; None for that of `QUANTILES` whose
            clusters have the highest Dunn index, the lowest of several.
        damping: in [0.5, 1): share of the old messages in the new ones.
        max_iter: most steps.
        convergence_iter: steps without a change after which it has converged.
    """

    similarity: Similarity = "negative"
    preference: float | None = None
    quantile: float | None = None
    damping: float = 0.5
    max_iter: int = 1000
    convergence_iter: int = 15

    def __post_init__(self) -> None:
        if self.similarity not in SIMILARITIES:
            raise ArgumentError(
                f"similarity must be one of {SIMILARITIES}, got {self.similarity!r}.",
                parameters=["similarity"],
            )
        if self.quantile is not None and not 0.0 <= self.quantile <= 1.0:
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
        if self.preference is None and self.quantile is None:
            tried = (replace(self, quantile=one).cluster(distances, seed) for one in QUANTILES)
            found = [one for one in tried if one is not None]
            return max(found, key=lambda one: _fit(distances, one), default=None)
        similarities = -distances if self.similarity == "negative" else -np.square(distances)
        pairs = similarities[~np.eye(len(distances), dtype=bool)]
        if not pairs.size or pairs.min() == pairs.max():
            return Clustering(np.zeros(len(distances), dtype=np.intp), np.zeros(1, dtype=np.intp))
        found = AffinityPropagation(
            affinity="precomputed",
            damping=self.damping,
            preference=self._preference(similarities, pairs, self.quantile),
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

    def _preference(self, similarities: FloatArray, pairs: FloatArray, quantile: float | None) -> float:
        """Return the similarity of an update to itself; the median is scikit-learn's, diagonal included."""
        if self.preference is not None or quantile is None:
            return self.preference or 0.0
        return float(np.median(similarities) if quantile == 0.5 else np.quantile(pairs, quantile))


def _fit(distances: FloatArray, found: Clustering) -> float:
    """Return the Dunn index of clusters; those of one update each do not count as clusters."""
    return dunn_index(distances, found.labels) if len(found.exemplars) < len(distances) else 0.0
