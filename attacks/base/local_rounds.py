"""Derives counts and sums of a client's rows from a round of several local steps.

A client answers with local centroids c_j, each weighted by its number of rows in the first step. Each c_j is
the mean of the rows nearest to a centroid of the last step but one, which was not sent. So the sums are
exact, but the cells are those around the c_j only if the local steps had converged; otherwise a row or two
lie in another cell. Evidence from such rounds is therefore doubted, the more the fewer the steps, and a
round that contradicts a claimed row is left out (`privfed.attacks.reconstruction.residual`).
"""

from __future__ import annotations

import numpy as np

from privfed.algorithms.wf_kmeans import WeightedCentroids
from privfed.attacks.base.report import Cells, IntArray
from privfed.attacks.base.whole_numbers import sizes_of
from privfed.core.asking.data import Stacked
from privfed.core.asking.statistics import Statistics
from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels.dispatch import assign
from privfed.numerics.kmeans import local_updates

# Chosen on breast_cancer for two, three and five steps, where .2, .5 and .9 of the rounds had converged.
_DOUBT, _MOST_DOUBT = 8.0, 4.0


def after_local_steps(
    received: FloatArray, statistics: Statistics, n_rows: float, row_sum: FloatArray
) -> tuple[Cells, FloatArray, FloatArray] | None:
    """Return likely cells, counts and sums of the last local step, from integer counts that fit its means.

    The weights are the first step's counts n_j. If sum_j n_j c_j equals the sum of the rows, no row moved,
    and the cells are certainly those of the received centroids. Otherwise integers n_j with
    sum_j n_j c_j = S and sum_j n_j = n are sought; the likely cells are those of the local centroids c_j.

    Args:
        received: the centroids sent to the clients, float64 of shape (n_clusters, n_features).
        statistics: `weight` and `weighted` of a client.
        n_rows: n, the number of its rows.
        row_sum: S, the sum of its rows, float64 of shape (n_features,).

    Returns:
        Cells, counts and sums; None if no integer counts were found.
    """
    weight, weighted = statistics["weight"], statistics["weighted"]
    held = weight > 0
    means = np.where(held[:, None], weighted / np.where(held, weight, 1.0)[:, None], received)
    right = np.append(row_sum, n_rows)
    error = 1e-9 * (np.abs(weighted).sum() + np.abs(row_sum).sum() + n_rows)
    if np.abs(np.append((weight[:, None] * means).sum(axis=0), weight.sum()) - right).max() <= error:
        return Cells.around(received), weight, weighted
    solved = sizes_of(means[held], right[None], weight[None, held])
    if solved is None:
        return None
    counts = np.zeros(len(means))
    counts[held] = solved[1]
    return Cells.around(means), counts, counts[:, None] * means


def doubt_of(question: WeightedCentroids) -> float:
    """Return what to subtract from the log-odds of a row that appears only in rounds of this question."""
    return min(_MOST_DOUBT, _DOUBT / max(question.local_iter - 1, 1))


def last_step(question: WeightedCentroids) -> Cells:
    """Return the cells that the sums are really of, for scoring; they depend on all rows of the client."""

    def place(rows: FloatArray) -> IntArray:
        n_steps = question.local_iter
        after = _steps(question, rows, n_steps)
        # If the last steps moved nothing, an earlier step was the last one.
        while n_steps > 1 and np.array_equal(_steps(question, rows, n_steps - 1), after):
            n_steps -= 1
        return assign(rows, _steps(question, rows, n_steps - 1))

    return Cells(place, np.ones(len(question.centers), dtype=np.bool_))


def _steps(question: WeightedCentroids, rows: FloatArray, n_steps: int) -> FloatArray:
    """Return the local centroids after `n_steps` local steps."""
    if n_steps == 0:
        return question.centers
    update = local_updates(
        Stacked.of([rows]),
        question.centers,
        local_iter=n_steps,
        local_tol=question.local_tol,
        relocate_empty=question.relocate_empty,
    )[0]
    return update.centers
