"""What a round of several local steps says of a client's rows: counts and sums of its last step's cells.

A client answers with local centroids c_j, each weighed by its rows in the first step. Each c_j is the mean of
the rows nearest to a centroid of the step before the last, which was not sent: the sums are exact, and the
cells are those around the c_j only where the steps had come to rest. The other rounds have a row or two in
another cell. So what such rounds show is doubted, the more the fewer the steps, and a round that a claimed
row contradicts is left out (`privfed.attacks.reconstruction.residual`).
"""

from __future__ import annotations

import numpy as np

from privfed.algorithms.kmeans.weighted import WeightedCentroids
from privfed.attacks.base.bounds import Cells
from privfed.attacks.base.measures import IntArray
from privfed.core.domain import FloatArray
from privfed.core.statistics import Statistics
from privfed.numerics.distances import assign
from privfed.numerics.local_kmeans import local_updates

# Chosen on breast_cancer for two, three and five steps, where .2, .5 and .9 of the rounds are at rest.
_DOUBT, _MOST_DOUBT = 8.0, 4.0


def after_local_steps(
    received: FloatArray, statistics: Statistics, n_rows: float, row_sum: FloatArray
) -> tuple[Cells, FloatArray, FloatArray] | None:
    """Return likely cells, counts and sums: the last step's counts are whole numbers that fit its means.

    The weights are the first step's counts. If they fit, no row moved, and the cells are surely those of the
    received centroids. Else the counts may follow from sum_j n_j c_j = S and sum_j n_j = n; likely cells are
    those of the local centroids c_j.

    Args:
        received: the centroids that were sent, float64 of shape (n_clusters, n_features).
        statistics: `weight` and `weighted` of a client.
        n_rows: number of its rows.
        row_sum: their sum, (n_features,).

    Returns:
        None where no whole numbers follow.
    """
    weight, weighted = statistics["weight"], statistics["weighted"]
    held = weight > 0
    means = np.where(held[:, None], weighted / np.where(held, weight, 1.0)[:, None], received)
    left = np.vstack([means[held].T, np.ones(int(held.sum()))])
    right = np.append(row_sum, n_rows)
    error = 1e-9 * (np.abs(weighted).sum() + np.abs(row_sum).sum() + n_rows)
    if np.abs(left @ weight[held] - right).max() <= error:
        return Cells.around(received), weight, weighted
    solved, _, rank, _ = np.linalg.lstsq(left, right, rcond=1e-9)
    whole = np.rint(solved)
    if rank < len(solved) or (whole < 1).any() or np.abs(left @ whole - right).max() > error:
        return None
    counts = np.zeros(len(means))
    counts[held] = whole
    return Cells.around(means), counts, counts[:, None] * means


def doubt_of(question: WeightedCentroids) -> float:
    """Return what is taken off the log-odds of a row that shows only in rounds of so many local steps."""
    return min(_MOST_DOUBT, _DOUBT / max(question.local_iter - 1, 1))


def last_step(question: WeightedCentroids) -> Cells:
    """Return the cells that the sums are really of, for scoring: they depend on all rows of the client."""

    def place(rows: FloatArray) -> IntArray:
        n_steps = question.local_iter
        after = _steps(question, rows, n_steps)
        # Where nothing moved any more, an earlier step was the last one.
        while n_steps > 1 and np.array_equal(_steps(question, rows, n_steps - 1), after):
            n_steps -= 1
        return assign(rows, _steps(question, rows, n_steps - 1))

    return Cells(place, np.ones(len(question.centers), dtype=np.bool_))


def _steps(question: WeightedCentroids, rows: FloatArray, n_steps: int) -> FloatArray:
    """Return the local centroids after so many steps."""
    if n_steps == 0:
        return question.centers
    update = local_updates(
        [rows],
        question.centers,
        local_iter=n_steps,
        local_tol=question.local_tol,
        relocate_empty=question.relocate_empty,
    )[0]
    return update.centers
