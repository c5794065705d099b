"""Derives counts and sums of a client's rows from the centroids of its own k-means.

A start or a method that clusters clients' own centroids asks for these, either directly (gathered) or as
counts and sums in public cells, from which they are recovered like rows. Each centroid c_j is the mean of
the n_j rows in its cell. The n_j were not sent, but with the client's number n and sum S of rows

    sum_j n_j c_j + x_1 + ... + x_m = S    and    sum_j n_j + m = n,

where the x are rows that are alone in their cell, whose centroids were left out. Once the x are known, the
integers n_j follow (`privfed.attacks.base.whole_numbers`), and with them the counts and sums of a
further partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privfed.algorithms.fkm import SteppedMeans
from privfed.algorithms.kfed import LocalCentroids
from privfed.algorithms.starts import KMeansCentroids
from privfed.attacks.base.report import Cells
from privfed.attacks.base.whole_numbers import sizes_of
from privfed.attacks.evidence.cells import Evidence, Observation
from privfed.attacks.evidence.equations import asked
from privfed.attacks.reconstruction.iterative_removal import error_of
from privfed.attacks.reconstruction.residual import Residual, holds
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.record.view import SumView
from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels.interpreted import squared_distances
from privfed.questions.gathered import GatheredPoints
from privfed.questions.local_points import LocalPoints, PointCells, PointSums

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
