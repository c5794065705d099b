"""Infers from counts which clients have rows in a cluster.

A client's own counts show this directly. Totals of changing cohorts show it too, even if there are far fewer
totals than clients: as counts are not negative, a count of zero rules out all members of a cohort at once
(group testing), and other counts must come from the few clients that were not ruled out. Nonnegative least
squares does both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.optimize import nnls

from privfed.algorithms.wf_kmeans import WeightedCentroids
from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.prior import Prior
from privfed.attacks.base.reading import Reads, Shows
from privfed.attacks.base.report import Report
from privfed.attacks.base.results import Result, Truth
from privfed.attacks.evidence.equations import asked
from privfed.core.asking.question import Question
from privfed.core.record.view import SumView, View
from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels.dispatch import assign
from privfed.questions.lloyd import LloydSums

_EVENNESS = 1e-3
"""Weight of an even distribution relative to that of one total; it decides only what totals leave open."""
_SAME = 0.95
"""Share of public rows that must lie in the same cells for a round's clusters to count as the final ones."""


class _Counted(NamedTuple):
    clients: tuple[int, ...]
    counts: FloatArray


@dataclass(frozen=True, kw_only=True)
class Holdings(Result):
    """Holds the claimed number of rows of each client in each cluster.

    Args:
        counts: float64 of shape (n_clients, n_clusters), not negative; above a half claims membership.
        centers: centers of the clusters, float64 of shape (n_clusters, n_features).
    """

    counts: FloatArray = field(repr=False)
    centers: FloatArray = field(repr=False)

    def score(self, truth: Truth) -> Report:
        """Compare the clients claimed for each cluster with those that have rows nearest to its center."""
        k = len(self.centers)
        own = [np.bincount(assign(np.asarray(rows), self.centers), minlength=k) for rows in truth.clients]
        others = [i for i in range(len(own)) if i not in truth.colluding]
        held, said = np.stack(own)[others] > 0, self.counts[others] > 0.5
        share = float(held.mean())
        return Report(
            attack=self.attack,
            goal="pairs of client and cluster told right",
            recovered=float((held == said).mean()),
            precision=float(held[said].mean()) if said.any() else float("nan"),
            claims=int(said.sum()),
            linked=True,
            baseline=max(share, 1.0 - share),
            bound=1.0,
            bound_of="all of them",
            queries=self.queries,
            seconds=self.seconds,
            details={"share of pairs that hold rows": share},
        )


@dataclass(frozen=True)
class ClusterMembership(PassiveAttack[Holdings]):
    """Infers which clients have rows in which final cluster, from answers or totals of changing cohorts."""

    name: ClassVar[str] = "cluster-membership"
    paper: ClassVar[str] = "group testing (Dorfman 1943); disaggregation: Lam et al. 2021 (2106.06089)"
    adversary: ClassVar[str] = "passive server"
    view: ClassVar[str] = "counts: of each client, or totals of changing cohorts"
    algorithms: ClassVar[tuple[str, ...]] = ("dwf", "lloyd")
    prior: ClassVar[str] = "a public sample, to tell which rounds had the final clusters"
    defence: ClassVar[str] = "a secure sum over fixed cohorts; differential privacy at unit client"

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Counts by cluster, of each client or in total."""
        what = "counts by cluster (DWFKMeans)"
        return tuple(
            Reads(what=what, shown=shown, use=lambda question: _counts(question) is not None)
            for shown in (Shows.ANSWERS, Shows.TOTALS)
        )

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> Holdings:
        rounds = [one for one in view.sums if _counted(one)]
        final = _centers(rounds[-1])
        if "centers" in view.result and view.result["centers"].shape == final.shape:
            final = view.result["centers"]
        # A run that stopped before it converged never asked about its final clusters.
        near = [one for one in rounds if _is_final(one, final, prior)] or rounds[-1:]
        seen = [found for one in near for found in _counted(one)]
        cohorts = np.zeros((len(seen), len(view.clients)))
        for row, one in zip(cohorts, seen, strict=True):
            row[list(one.clients)] = 1.0
        totals = np.stack([one.counts for one in seen])
        return Holdings(
            attack=self.name,
            queries=len(rounds),
            counts=even_counts(cohorts, totals),
            centers=final,
        )


def even_counts(cohorts: FloatArray, totals: FloatArray) -> FloatArray:
    """Return nonnegative counts that reproduce the totals and are as even between clients as possible.

    Args:
        cohorts: 1 for clients in a total, else 0, float64 of shape (n_totals, n_clients).
        totals: float64 of shape (n_totals, n_clusters).

    Returns:
        float64 of shape (n_clients, n_clusters).
    """
    n_clients = cohorts.shape[1]
    even = totals.sum(axis=0) / max(1.0, float(cohorts.sum()))
    system = np.vstack([cohorts, _EVENNESS * np.eye(n_clients)])
    targets = np.vstack([totals, np.tile(_EVENNESS * even, (n_clients, 1))])
    return np.stack([nnls(system, column)[0] for column in targets.T], axis=1)


def _counts(question: Question | None) -> str | None:
    """Return the name of the statistic that counts rows by cluster; None if there is none."""
    if isinstance(question, LloydSums):
        return "count"
    if isinstance(question, WeightedCentroids) and question.weights == "dynamic":
        return "weight"
    return None


def _centers(one: SumView) -> FloatArray:
    question = asked(one)
    if not isinstance(question, LloydSums | WeightedCentroids):
        raise TypeError("only sums with counts by cluster have centers here")
    return question.centers


def _counted(one: SumView) -> list[_Counted]:
    """Return the counts that a sum shows with the clients that they are of: single ones, or the cohort."""
    name = _counts(asked(one))
    if name is None:
        return []
    if one.answers:
        return [_Counted((client,), answer[name]) for client, answer in one.answers.items()]
    return [] if one.total is None else [_Counted(one.contributors or one.cohort, one.total[name])]


def _is_final(one: SumView, final: FloatArray, prior: Prior) -> bool:
    """Say whether a round's cells are the final ones, judged on public rows; else by equal centers."""
    centers = _centers(one)
    if centers.shape != final.shape:
        return False
    if prior.sample is None:
        return bool(np.array_equal(centers, final))
    return float((assign(prior.sample, centers) == assign(prior.sample, final)).mean()) >= _SAME
