"""Recovers exact rows from counts and sums of many rounds and restarts, without knowing any assignment.

The server knows the centroids that it sent, and so the cells of space. Each sum shows how many of the
target's rows lie in each cell, and their sum. If the counts of two cells differ by one, the difference of
their sums may be a row. Each such claim is scored, checked against all rounds and subtracted from all sums;
then the search repeats on what is left (`privfed.attacks.reconstruction.iterative_removal`).
docs/attacks/differencing.md explains it.

**The clients' own clusterings** are turned into counts and sums in further cells. A start or a method that
clusters clients' own centroids asks for these, either directly (gathered) or as counts and sums in public
cells, from which they are recovered like rows. Each centroid c_j is the mean of the n_j rows in its cell. The
n_j were not sent, but with the client's number n and sum S of rows

    sum_j n_j c_j + x_1 + ... + x_m = S    and    sum_j n_j + m = n,

where the x are rows that are alone in their cell, whose centroids were left out. Once the x are known, the
integers n_j follow (`privfed.attacks.base.whole_numbers`), and with them the counts and sums of a
further partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privfed.algorithms.fkm import SteppedMeans
from privfed.algorithms.kfed import LocalCentroids
from privfed.algorithms.starts import KMeansCentroids
from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Aim, Prior
from privfed.attacks.base.reading import Reads, Shows, own_or_total
from privfed.attacks.base.report import Cells
from privfed.attacks.base.results import NotRun, Points
from privfed.attacks.base.whole_numbers import sizes_of
from privfed.attacks.evidence.cells import (
    Evidence,
    Observation,
    answers_of,
    cells_of,
    evidence_of,
    on_grid,
    read_in_cells,
)
from privfed.attacks.evidence.equations import asked
from privfed.attacks.evidence.known import last_rows
from privfed.attacks.reconstruction.iterative_removal import error_of, removed
from privfed.attacks.reconstruction.residual import Residual, holds
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import SumView, View
from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels.interpreted import squared_distances
from privfed.questions.gathered import GatheredPoints
from privfed.questions.local_points import LocalPoints, PointCells, PointSums


class Differencing(PassiveAttack[Points]):
    """Recovers rows from the counts and sums of one client, or from a secure sum's totals.

    Args:
        client: position of the client whose answers are read; None reads totals, for rows of any client.
    """

    name: ClassVar[str] = "differencing"
    paper: ClassVar[str] = (
        "own; the assignment-aware bound is after TAR, arXiv:2511.07073; refutes arXiv:2312.07992"
    )
    adversary: ClassVar[str] = "passive server (honest but curious), alone or with colluding clients"
    view: ClassVar[str] = (
        "counts and sums (or centroids) of each round: a client's own, or totals; a client's own centroids"
    )
    prior: ClassVar[str] = "none"
    defence: ClassVar[str] = (
        "differential privacy; with secure sums and one restart little follows from one fit, but fits "
        "add up; fewer rounds and several local steps only lower the yield"
    )
    aim: ClassVar[Aim] = Aim.SHOWN_CLIENT

    def __init__(self, client: int | None = None) -> None:
        self.client = client

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Counts and sums in cells, without noise; for one client also its own centroids."""
        whose = "of all clients together" if self.client is None else f"of client {self.client} alone"
        found = read_in_cells(self.client, f"counts and sums in cells, without noise, {whose}", noised=False)
        shown = own_or_total(self.client)
        one = Reads(
            what="the number and the sum of one row",
            shown=shown,
            client=self.client,
            use=lambda question: cells_of(question) == 1,
            noised=False,
        )
        found = (*found, one)
        if self.client is None:
            return found
        what, shown = f"client {self.client}'s own centroids", Shows.ANSWERS
        own = Reads(what=what, shown=shown, client=self.client, use=of_clustering, noised=False)
        return (*found, own)

    def rows_of(self, view: View, rng: np.random.Generator) -> FloatArray:
        """Return the rows that are claimed from a view without colluders' answers, (n_claims, n_features)."""
        found = self._attack(view, Prior(), rng)
        if isinstance(found, NotRun):
            return np.empty((0, evidence_of(view, self.client).n_features))
        return found.points

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> Points | NotRun:
        whole = evidence_of(view, self.client)
        whole = whole if prior.step is None else on_grid(whole, prior.step)
        # Cells after several local steps are only likely: they come last and are tested by known rows.
        likely = tuple(one for one in whole.observations if one.local)
        evidence = replace(whole, observations=tuple(one for one in whole.observations if not one.local))
        own = [] if self.client is None else readings(evidence, view, rng)
        if not (whole.observations or own):
            why = "it reads counts and sums in cells, or number and sum of one row: here is neither"
            return NotRun(attack=self.name, why=why)
        evidence, found = with_clusterings(evidence, removed(evidence, rng), own, rng)
        if likely:
            evidence = replace(evidence, observations=(*evidence.observations, *likely))
            found = removed(evidence, rng, found)
        points, confidence = found
        if prior.known and self.client is None:
            last = last_rows(view, prior.known, prior.sample)
            points, confidence = np.vstack([points, last]), np.append(confidence, np.ones(len(last)))
        n_guesses = len(points) if np.isnan(evidence.n_rows) else round(evidence.n_rows)
        return Points(
            attack=self.name,
            queries=len(evidence.observations),
            points=points,
            client=self.client,
            confidence=confidence,
            # Known rows tell more than linear algebra on cells.
            evidence=() if prior.known else evidence.partitions,
            without_access=prior.guesses(max(n_guesses, 1), rng),
        )


def with_clusterings(
    evidence: Evidence,
    found: tuple[FloatArray, FloatArray],
    left: list[Reading],
    rng: np.random.Generator,
) -> tuple[Evidence, tuple[FloatArray, FloatArray]]:
    """Add a client's own clusterings to the evidence, while the rows found solve further clusterings.

    Args:
        evidence: the evidence about one client.
        found: rows that were found in the evidence, and the confidence in each.
        left: the clusterings, from `readings`.
        rng: draws a projection by which equal vectors are found.

    Returns:
        The larger evidence, and the rows found in it with their confidences.
    """
    while left:
        next_sequence = min((one.sequence for one in evidence.observations), default=0) - 1
        solved: list[Observation] = []
        unsolved: list[Reading] = []
        for clustering, sets in left:
            sequence = next_sequence - len(solved)
            tried = (observed(clustering, means, found[0], evidence, sequence) for means in sets)
            one = next((observation for observation in tried if observation is not None), None)
            solved += [] if one is None else [one]
            unsolved += [(clustering, sets)] if one is None else []
        if not solved:
            break
        left, evidence = unsolved, replace(evidence, observations=(*evidence.observations, *solved))
        found = removed(evidence, rng, found)
    return evidence, found


def readings(evidence: Evidence, view: View, rng: np.random.Generator) -> list[Reading]:
    """Return the client's clusterings, each with the sets of means that it may have."""
    clusterings = clusterings_of(list(answers_of(view, evidence.client)))
    inner = [replace(evidence, observations=one.observations, scored=()) for one in clusterings]
    taken = [removed(one, rng)[0] for one in inner]
    offered = np.concatenate(taken) if taken else np.empty((0, evidence.n_features))
    return [
        (clustering, clustering.sent + completed(clustering, own, offered))
        for clustering, own in zip(clusterings, taken, strict=True)
    ]


_OUTERMOST = 12
"""Number of rows, those farthest from its centroids, that may be alone in a cell of a client's clustering."""


@dataclass(frozen=True, eq=False)
class LocalClustering:
    """Holds what was seen of a client's own partition of its rows.

    Args:
        most: number of its cells; means of cells with one row or none were not sent.
        cells: the partition, if it is public; None if its cells are those around the client's own means.
        sent: sets of means that were sent directly, or could be read from the cells of one sum.
        observations: counts and sums of the means in public cells, where each mean counts once.
    """

    most: int
    cells: Cells | None
    sent: tuple[FloatArray, ...]
    observations: tuple[Observation, ...]


Reading = tuple[LocalClustering, tuple[FloatArray, ...]]
"""A client's own clustering, and the sets of means that it may have."""


def of_clustering(question: Question) -> bool:
    """Say whether a question is about a client's own clustering."""
    if not isinstance(question, GatheredPoints | PointCells | PointSums):
        return False
    return isinstance(question.points, SteppedMeans | KMeansCentroids | LocalCentroids)


def clusterings_of(seen: Sequence[tuple[SumView, Statistics]]) -> list[LocalClustering]:
    """Collect what was seen of each of the client's own clusterings."""
    asked_about: dict[tuple[object, ...], tuple[LocalPoints, list[tuple[SumView, Statistics]]]] = {}
    for one, statistics in seen:
        question = asked(one)
        if isinstance(question, GatheredPoints | PointCells | PointSums):
            points = question.points
            asked_about.setdefault((type(points), *points.key()), (points, []))[1].append((one, statistics))
    return [
        LocalClustering(len(points.centers), Cells.around(points.centers), tuple(map(_cell_means, own)), ())
        if isinstance(points, SteppedMeans)
        else LocalClustering(points.n_clusters, None, _gathered(own), _counted(own))
        for points, own in asked_about.values()
        if isinstance(points, SteppedMeans | KMeansCentroids | LocalCentroids)
    ]


def _cell_means(one: tuple[SumView, Statistics]) -> FloatArray:
    """Return the mean of each cell's points; if a cell holds two, no integer counts will fit later."""
    statistics = one[1]
    if isinstance(asked(one[0]), GatheredPoints):
        return statistics["point"][statistics["weight"] > 0]
    held = statistics["count"] > 0
    return np.asarray(statistics["sum"][held] / statistics["count"][held][:, None])


def _gathered(own: Sequence[tuple[SumView, Statistics]]) -> tuple[FloatArray, ...]:
    return tuple(_cell_means(one) for one in own if isinstance(asked(one[0]), GatheredPoints))


def _counted(own: Sequence[tuple[SumView, Statistics]]) -> tuple[Observation, ...]:
    found = []
    for one, statistics in own:
        question = asked(one)
        if isinstance(question, PointSums):
            found.append(
                Observation(0, Cells.around(question.centers), statistics["count"], statistics["sum"])
            )
        elif isinstance(question, PointCells):
            cells = Cells(question.cells, np.ones(question.n_cells, dtype=np.bool_))
            found.append(Observation(-1 - one.index, cells, statistics["count"], statistics["sum"]))
    return tuple(found)


def completed(clustering: LocalClustering, taken: FloatArray, offered: FloatArray) -> tuple[FloatArray, ...]:
    """Return the sets of means that a clustering may have.

    If two means share a cell in all sums, only their sum is known. Often one of them also occurs in another
    of the client's clusterings.

    Args:
        clustering: what was seen.
        taken: means that follow from its observations, float64 of shape (n_taken, n_features).
        offered: means of the client's other clusterings, (n_offered, n_features).
    """
    tolerance = error_of(clustering.observations)
    if tolerance is None:
        return ()
    residual = Residual(clustering.observations, tolerance)
    for mean in taken:
        residual.remove(mean, residual.place(mean[None])[:, 0])
    left = np.flatnonzero(residual.counts)
    if not left.size:
        return (taken,)
    if len(left) > len(residual) or (residual.counts[left] != 2).any():
        return ()
    other = residual.sums[left[0]] - offered
    share = [(residual.place(one) == left[:, None]).all(axis=0) for one in (offered, other)]
    return tuple(np.vstack([taken, offered[i], other[i]]) for i in np.flatnonzero(share[0] & share[1]))


def observed(
    clustering: LocalClustering, means: FloatArray, rows: FloatArray, evidence: Evidence, sequence: int
) -> Observation | None:
    """Return counts and sums of a client's rows in the cells of its own partition.

    Args:
        clustering: the partition.
        means: the means that were seen, float64 of shape (n_means, n_features).
        rows: known rows of the client, (n_known, n_features).
        evidence: holds the number and the sum of the client's rows.
        sequence: number of the sequence that the observation gets.

    Returns:
        The observation; None if number and sum were not seen, no integers fit, or known rows contradict it.
    """
    n_rows, row_sum = evidence.n_rows, evidence.row_sum
    if row_sum is None or not len(means):
        return None
    if clustering.cells is None:
        alone = rows[np.argsort(-squared_distances(rows, means).min(axis=1))[:_OUTERMOST]]
        subsets = np.arange(1 << len(alone))[:, None] >> np.arange(len(alone)) & 1
        subsets = subsets[subsets.sum(axis=1) <= clustering.most - len(means)]
    else:
        alone = rows[~np.isin(clustering.cells.place(rows), clustering.cells.place(means))]
        subsets = np.ones((1, len(alone)), dtype=np.intp)
    targets = np.append(row_sum, n_rows) - subsets @ np.hstack([alone, np.ones((len(alone), 1))])
    solved = sizes_of(means, targets, np.repeat(targets[:, -1:] / len(means), len(means), axis=1))
    if solved is None:
        return None
    which, sizes = solved
    centers = np.vstack([means, alone[subsets[which] > 0]])
    sizes = np.append(sizes, np.ones(len(centers) - len(means)))
    cells = Cells.around(centers) if clustering.cells is None else clustering.cells
    counts, sums = np.zeros(cells.n_cells), np.zeros((cells.n_cells, centers.shape[1]))
    own = cells.place(centers)
    np.add.at(counts, own, sizes)
    np.add.at(sums, own, sizes[:, None] * centers)
    found = Observation(sequence, cells, counts, sums, local=clustering.cells is None)
    error = 1e-10 * n_rows * max(1.0, float(np.abs(means).max()))
    return found if holds(found, rows, error) else None
