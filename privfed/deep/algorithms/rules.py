"""When clients are clustered anew: the rules of DCFL and of CFL.

DCFL (Augello, Falzone, Lo Re 2023, algorithm 1): all clients together by affinity propagation, where there is
one cluster or the Dunn index is below 1. CFL (Sattler, Mueller, Samek 2021): each cluster by itself in two
halves, where its members together rest and one by one do not; clusters are never joined again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.deep.clustering.clusterings import (
    PROPAGATING,
    QUANTILES,
    Clustering,
    Propagation,
    SplitRule,
    fit,
)
from privfed.deep.clustering.distances import Metric, dunn_index, outdated, update_distances
from privfed.deep.clustering.noise import SHORTEST, explains_more, moved, never_joined, without_noise
from privfed.numerics.kernels.interpreted import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """What the server sees of a round's updates, in one space: sketches, or whole updates.

    Args:
        starts: models that updates started from, float64 of shape (n, size).
        updates: float64 of shape (n, size).
        labels: cluster that each started from, integers of shape (n,).
        n_clusters: number of clusters, those without an update included.
        variance: of the noise in each number, known to everybody; 0 without noise of clients' own.
        weights: of clients in averages, float64 of shape (n,); None for all alike.
    """

    starts: FloatArray
    updates: FloatArray
    labels: IntArray
    n_clusters: int
    variance: float = 0.0
    weights: FloatArray | None = None

    @property
    def ends(self) -> FloatArray:
        """Where updates end."""
        return self.starts + self.updates


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """What a rule decides.

    Args:
        labels: new cluster of each update, integers of shape (n,); None for clusters that stay.
        landmarks: updates that stand for clusters, by which clients find theirs, integers.
        n_clusters: number of new clusters.
        index: Dunn index of the clusters before, or NaN.
        converged: whether the clustering converged; one that did not changes nothing.
        others: what may be decided instead, from few clusters to many, if held-out rows say so.
    """

    labels: IntArray | None = None
    landmarks: IntArray | None = None
    n_clusters: int = 0
    index: float = math.nan
    converged: bool = True
    others: tuple[Decision, ...] = ()

    def after(self, updates: Updates) -> IntArray:
        """Return the cluster of each update afterwards, integers of shape (n,)."""
        return updates.labels if self.labels is None else self.labels


@dataclass(frozen=True, kw_only=True)
class PropagationRule(Propagation):
    """DCFL: affinity propagation of all updates, where |C| = 1 or DI < 1.

    Fields that are not listed are parameters of DCFL, of the same names and bounds.

    Args:
        decay: of running means, which are compared in place of updates; 0 as published.
    """

    metric: Metric = PROPAGATING.metric
    cluster_after: int = PROPAGATING.cluster_after
    decay: float = 0.0

    @property
    def numbered(self) -> bool:
        """Whether clusters keep their numbers, so that clients keep theirs that missed a clustering.

        Running means are never joined. What is noisy may lie nearer to another cluster's exemplar, so that
        each client finds itself among landmarks. Elsewhere exemplars stand for clusters, by the metric.
        """
        return self.decay > 0.0

    @property
    def least_decay(self) -> float:
        """Least decay of a round: the shorter means are, the sooner a client that changes is moved."""
        return min(self.decay, SHORTEST)

    def decide(self, updates: Updates, round_number: int, seed: int, held: bool = False) -> Decision:
        """Compare all updates, and cluster them where the clusters do not fit.

        Where clients hold rows out (`held`), new clusters of a Dunn index below 1 are for these to choose.
        """
        if self.decay:
            return self._decide_among_means(updates, round_number, seed)
        distances = update_distances(updates.starts, updates.ends, self.metric)
        index = dunn_index(distances, updates.labels)
        resting = not outdated(distances, updates.labels, updates.n_clusters)
        if resting or round_number <= self.cluster_after:
            return Decision(index=index)
        if held:
            some = [
                one for one in self.candidates(distances, seed) if 2 * len(one.exemplars) <= len(distances)
            ]
            clear = [one for one in some if fit(distances, one) >= 1.0]
            if not clear:
                return Decision(index=index, others=tuple(_decided(one, index) for one in some))
            return _decided(max(clear, key=lambda one: fit(distances, one)), index)
        found = self.cluster(distances, seed)
        return Decision(index=index, converged=False) if found is None else _decided(found, index)

    def _decide_among_means(self, updates: Updates, round_number: int, seed: int) -> Decision:
        """Cluster running means without their noise, where that explains them better than the clusters do.

        Else clients move that are nearer to another cluster than noise explains. Where noise prevails, the
        Dunn index says nothing of clusters: this takes its place.
        """
        ends, labels, variance = updates.ends, updates.labels, updates.variance
        distances = update_distances(updates.starts, without_noise(ends, variance), self.metric)
        index = dunn_index(distances, labels)
        if round_number <= self.cluster_after:
            return Decision(index=index)
        found = self.cluster(distances, seed)
        clusters = labels if found is None else never_joined(labels, found.labels, updates.n_clusters)
        if not explains_more(ends, labels, clusters, variance):
            clusters = moved(ends, labels, variance)
        if np.array_equal(clusters, labels):
            return Decision(index=index, converged=found is not None)
        n_clusters = max(updates.n_clusters, int(clusters.max()) + 1)
        return Decision(clusters, np.arange(len(labels)), n_clusters, index)


def _decided(found: Clustering, index: float) -> Decision:
    return Decision(found.labels, found.exemplars, len(found.exemplars), index)


@dataclass(frozen=True, kw_only=True)
class BipartitionRule(SplitRule):
    """CFL: each cluster in two halves by the cosine of its updates, where the norm criteria say so.

    One half keeps the cluster's number, the other one gets the next that is free. Where the paper is silent:
    newcomers join the nearest cluster as in DCFL, by the cosine; in a round in which a member is missing, the
    others are split, and it stays where the number is.

    Args:
        decay: of running means, which are compared in place of updates; 0 as published.
    """

    numbered: ClassVar[bool] = True
    tries: ClassVar[bool] = True
    metric: ClassVar[Metric] = "cosine"
    decay: float = 0.0

    @property
    def least_decay(self) -> float:
        """The same: no client is moved, and splits need long means."""
        return self.decay

    def decide(self, updates: Updates, round_number: int, seed: int, held: bool = False) -> Decision:
        """Split the clusters that are to be split; where clients hold rows out (`held`), these choose one."""
        splits = list[IntArray]()
        for cluster in range(updates.n_clusters):
            members = np.flatnonzero(updates.labels == cluster)
            weights = None if updates.weights is None else updates.weights[members]
            halves = self.halves(updates.updates[members], round_number, weights, updates.variance, held)
            if halves is not None:
                # Halves are of members: what is moved are the clients that these stand for.
                splits.append(members[halves == 1])
        if held:
            return Decision(others=tuple(_split(updates, [one]) for one in splits[: len(QUANTILES)]))
        return _split(updates, splits)


def _split(updates: Updates, splits: Sequence[IntArray]) -> Decision:
    """Return that each of these members get a new cluster of their own."""
    labels = updates.labels.copy()
    for number, own in enumerate(splits, updates.n_clusters):
        labels[own] = number
    return (
        Decision(labels, np.arange(len(labels)), updates.n_clusters + len(splits)) if splits else Decision()
    )


Rule = PropagationRule | BipartitionRule
"""When clients are clustered anew, and how."""
