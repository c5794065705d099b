"""Splitting a cluster in two, and when to: clustered federated learning (Sattler, Mueller, Samek 2021).

Sattler, Mueller, Samek: Clustered Federated Learning: Model-Agnostic Distributed Multitask Optimization Under
Privacy Constraints, IEEE TNNLS 32, 2021, arXiv 1910.01991. A cluster whose model is near a stationary point
of its members together, but not of each of them, is split so that the greatest cosine similarity across the
halves is as small as possible (equation 12; merging the most similar ones first, algorithm 1: linkage
"single"). The authors' code takes complete linkage instead ("complete"), which keeps halves together that
chains of similar updates connect. Indices here are always those of the updates that were passed: the authors'
notebook takes indices within a cluster for indices of clients, which is wrong from the second split on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.cluster.hierarchy import linkage as agglomerate
from scipy.spatial.distance import squareform

from privfed.core.values.domain import FloatArray
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

    def halves(self, updates: FloatArray, round_number: int) -> IntArray | None:
        """Return the halves of a cluster that is split (`bipartition`); None for one that is not.

        Args:
            updates: of its members, float64 of shape (n, n_parameters).
            round_number: from 1 on.
        """
        if len(updates) < self.min_size or round_number <= self.after:
            return None
        longest = float(np.linalg.norm(updates, axis=1).max())
        if float(np.linalg.norm(updates.mean(axis=0))) >= self.mean_norm or longest <= self.max_norm:
            return None
        similarities = cosine_similarities(updates)
        halves = bipartition(similarities, self.linkage)
        across = float(similarities[np.ix_(halves == 0, halves == 1)].max())
        return halves if np.sqrt((1.0 - across) / 2.0) >= self.gamma_max else None


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
