"""Turns draws of sets of rows into single claims, by matching rows between sets and counting agreement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from privfed.core.values.domain import FloatArray

AGREE = 0.5
"""Share of the draws above which a row is more likely there than not."""


class Claims(NamedTuple):
    """Holds claimed rows and the confidence in each.

    Attributes:
        points: float64 of shape (n, n_features).
        confidence: in [0, 1], float64 of shape (n,).
    """

    points: FloatArray
    confidence: FloatArray


def aligned(
    reference: FloatArray, sets: Sequence[FloatArray], weights: FloatArray, tolerance: float
) -> Claims:
    """Find each row of a reference set in other sets; return its position and confidence.

    Rows of a set have no order, so each set is matched with the reference at the least squared distance
    (called relabelling by Stephens 2000). A row is claimed at the mean of its matches within the tolerance of
    their median, if these have most of the weight; otherwise at the mean of all matches, which has the least
    expected error.

    Args:
        reference: float64 of shape (n, n_features).
        sets: sets of rows, each (n_i, n_features).
        weights: weight of each set; a row's confidence is the weight of the sets with a match within the
            tolerance of the median.
        tolerance: largest difference in any feature.
    """
    if not len(reference) or not sets:
        return Claims(reference, np.zeros(len(reference)))
    places = np.full((len(sets), *reference.shape), np.nan)
    for place, one in zip(places, sets, strict=True):
        rows, columns = linear_sum_assignment(cdist(reference, one, "sqeuclidean"))
        place[rows] = one[columns]
    missing = np.isnan(places[..., 0])
    known = np.where(missing[..., None], reference, places)
    near = (np.abs(known - np.median(known, axis=0)) <= tolerance).all(axis=2) & ~missing
    confidence = weights @ near
    chosen = np.where(confidence / weights.sum() > AGREE, near, ~missing) * weights[:, None]
    chosen += np.where(chosen.sum(axis=0) > 0.0, 0.0, 1.0)
    points = np.einsum("sn,snd->nd", chosen, known) / chosen.sum(axis=0)[:, None]
    return Claims(points, confidence)


def by_chance(points: FloatArray, draws: FloatArray, n_rows: float, tolerance: float) -> FloatArray:
    """Return the chance that some row of the prior, of `n_rows`, lies within a tolerance of each point, (n,).

    Args:
        points: float64 of shape (n, n_features).
        draws: rows drawn from the prior, (n_draws, n_features).
        n_rows: number of the target's rows.
        tolerance: largest difference in any feature.
    """
    hits = np.array([(np.abs(draws - point) <= tolerance).all(axis=1).sum() for point in points])
    share = (hits + 1.0) / (len(draws) + 1.0)
    return np.asarray(1.0 - (1.0 - share) ** n_rows)
