"""Splitting a cluster in two, and when to: clustered federated learning (Sattler, Mueller, Samek 2021).

Sattler, Mueller, Samek: Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization Under
Privacy Constraints, IEEE TNNLS 32, 2021, arXiv 1910.01991. A cluster is split if its model is near a
stationary point of its members together, but not of each. The greatest cosine similarity across the halves is
then as small as possible (equation 12; merging the most similar ones first, algorithm 1: linkage "single").
The authors' code takes complete linkage instead ("complete"), which keeps halves together that chains of
similar updates connect. Indices here are always those of the updates that were passed: the authors' notebook
takes indices within a cluster for indices of clients, which is wrong from the second split on.

Affinity propagation of updates: clusters without a number of clusters (Frey and Dueck 2007).

The algorithm is scikit-learn's. Where the DCFL paper is silent: similarity is the negative distance
("negative"), or its negative square ("negative-squared", as Frey and Dueck take for points); the preference
is one of some quantiles (`Propagation`); damping is 0.5. Runs that do not converge give no clustering, and
the one before is kept; with updates that are all equally far apart, nothing tells clients apart, and all are
one cluster.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.cluster.hierarchy import linkage as agglomerate
from scipy.cluster.hierarchy import to_tree
from scipy.spatial.distance import squareform
from sklearn.cluster import AffinityPropagation
from sklearn.exceptions import ConvergenceWarning

from privfed.core.stored.encoding import asdict
from privfed.core.values.domain import FloatArray
from privfed.deep.clustering.distances import dunn_index
from privfed.deep.clustering.noise import explains_more, without_noise
from privfed.deep.parameters import Propagating, Splitting
from privfed.estimators.checking import check_values
from privfed.estimators.declaring import parameters_of
from privfed.numerics.kernels.interpreted import IntArray

SPLITTING, PROPAGATING = Splitting(), Propagating()
"""Defaults of the parameters that rules of these names have."""

MOST_STEPS, CONVERGED = 1000, 15
"""Most steps of affinity propagation, and steps without a change after which it has converged."""


@dataclass(frozen=True, kw_only=True)
class SplitRule:
    """When a cluster is split: equations 29 and 30, and how far apart its halves must be (gamma_max).

    Its fields are parameters of CFL, of the same names and bounds (`privfed.deep.parameters`). gamma_max
    bounds how far a member's gradient may lie from its task's, relative to that.
    """

    split_mean_norm: float = SPLITTING.split_mean_norm
    split_max_norm: float = SPLITTING.split_max_norm
    min_cluster_size: int = SPLITTING.min_cluster_size
    split_after: int = SPLITTING.split_after
    gamma_max: float = SPLITTING.gamma_max
    linkage: Literal["complete", "single"] = SPLITTING.linkage

    def __post_init__(self) -> None:
        check_values(parameters_of(Splitting), asdict(self))

    def halves(
        self,
        updates: FloatArray,
        round_number: int,
        weights: FloatArray | None = None,
        variance: float = 0.0,
        held: bool = False,
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
            held: whether held-out rows decide, in place of rounds and norms; no client is split off alone.
        """
        if len(updates) < self.min_cluster_size or (round_number <= self.split_after and not held):
            return None
        shares = np.full(len(updates), 1.0) if weights is None else weights
        if not shares.sum() > 0.0:
            return None
        shares, noise = shares / shares.sum(), updates.shape[1] * variance
        longest = math.sqrt(max(0.0, float(np.square(updates).sum(axis=1).max()) - noise))
        square = float(np.square(shares @ updates).sum()) - noise * float(shares @ shares)
        if (
            math.sqrt(max(0.0, square)) >= self.split_mean_norm or longest <= self.split_max_norm
        ) and not held:
            return None
        similarities = cosine_similarities(without_noise(updates, variance) if variance else updates)
        halves = bipartition(similarities, self.linkage)
        alone = held and np.bincount(halves).min() < 2
        if alone or (variance and not explains_more(updates, np.zeros_like(halves), halves, variance)):
            return None
        across = float(similarities[np.ix_(halves == 0, halves == 1)].max())
        return halves if np.sqrt((1.0 - across) / 2.0) >= self.gamma_max else None


def cosine_similarities(updates: FloatArray) -> FloatArray:
    """Return the cosine of all pairs of updates, float64 of shape (n, n); 0 with one of length zero."""
    lengths = np.linalg.norm(updates, axis=1, keepdims=True)
    units = np.divide(updates, lengths, out=np.zeros_like(updates), where=lengths > 0.0)
    return np.asarray(np.clip(units @ units.T, -1.0, 1.0))


def bipartition(similarities: FloatArray, linkage: str = "complete") -> IntArray:
    """Return the halves of n >= 2 updates: 0 or 1 for each, the first update's half being 0.

    Args:
        similarities: cosines of all pairs, float64 of shape (n, n).
        linkage: "complete" or "single".
    """
    # 1 - cos is a dissimilarity without negative values; the order of merges is that of -cos.
    apart = 1.0 - (similarities + similarities.T) / 2.0
    np.fill_diagonal(apart, 0.0)
    merges = agglomerate(squareform(apart, checks=False), method=linkage)
    # The two last clusters: where heights are tied, a cut at one may give one or three.
    halves = np.isin(np.arange(len(similarities)), to_tree(merges).get_left().pre_order())
    return np.asarray(halves != halves[0], dtype=np.intp)


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
    """Affinity propagation. Its fields are parameters of DCFL, of the same names and bounds.

    Where neither a preference nor its quantile is given, one of `QUANTILES` is taken, the lowest of several:
    that whose clusters have the highest Dunn index, by which the paper judges clusters. Where clients hold
    rows out, these choose among `candidates` instead.
    """

    similarity: Literal["negative", "negative-squared"] = PROPAGATING.similarity
    preference: float | None = PROPAGATING.preference
    preference_quantile: float | None = PROPAGATING.preference_quantile
    damping: float = PROPAGATING.damping

    def __post_init__(self) -> None:
        check_values(parameters_of(Propagating), asdict(self))

    @property
    def tries(self) -> bool:
        """Whether neither a preference nor its quantile is given."""
        return self.preference is None and self.preference_quantile is None

    def candidates(self, distances: FloatArray, seed: int = 0) -> list[Clustering]:
        """Return the clusterings of all `QUANTILES`, from few clusters to many, each once.

        Args:
            distances: as of `cluster`.
            seed: breaks ties.
        """
        tried = (replace(self, preference_quantile=one).cluster(distances, seed) for one in QUANTILES)
        found = {one.labels.tobytes(): one for one in tried if one is not None}
        return sorted(found.values(), key=lambda one: len(one.exemplars))

    def cluster(self, distances: FloatArray, seed: int = 0) -> Clustering | None:
        """Return the clusters of updates; None where the algorithm did not converge.

        Args:
            distances: of all pairs, float64 of shape (n, n), n >= 1.
            seed: breaks ties.
        """
        if self.tries:
            some = self.candidates(distances, seed)
            return max(some, key=lambda one: fit(distances, one), default=None)
        similarities = -distances if self.similarity == "negative" else -np.square(distances)
        pairs = similarities[~np.eye(len(distances), dtype=bool)]
        if not pairs.size or pairs.min() == pairs.max():
            return Clustering(np.zeros(len(distances), dtype=np.intp), np.zeros(1, dtype=np.intp))
        # The median is scikit-learn's, diagonal included.
        share = self.preference_quantile or 0.0
        quantile = np.median(similarities) if share == 0.5 else np.quantile(pairs, share)
        found = AffinityPropagation(
            affinity="precomputed",
            damping=self.damping,
            preference=float(quantile) if self.preference is None else self.preference,
            max_iter=MOST_STEPS,
            convergence_iter=CONVERGED,
            random_state=seed % 2**32,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            try:
                found.fit(similarities)
            except ConvergenceWarning:
                return None
        return Clustering(found.labels_.astype(np.intp), found.cluster_centers_indices_.astype(np.intp))


def fit(distances: FloatArray, found: Clustering) -> float:
    """Return the Dunn index of clusters; those of one update each do not count as clusters."""
    return dunn_index(distances, found.labels) if len(found.exemplars) < len(distances) else 0.0
