"""From draws of sets of rows to single claims: which row of a set is which in another, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from privfed.core.domain import FloatArray

AGREE = 0.5
"""Share of the draws that makes a row more likely there than not."""


class Claims(NamedTuple):
    """Rows, and how sure each is.

    Attributes:
        points: float64 of shape (n, n_features).
        confidence: in [0, 1], shape (n,).
    """

    points: FloatArray
    confidence: FloatArray


def aligned(
    reference: FloatArray, sets: Sequence[FloatArray], weights: FloatArray, tolerance: float
) -> Claims:
    """Find each row of a reference set in other sets, and say where it is and how surely.

    Rows of a set have no order: each set is matched with the reference at least squared distance (Stephens
    2000 calls it relabelling). A row is claimed at the median of its places; where most places are within the
    tolerance of that, at their mean, and else at the mean of all places, which errs least.

    Args:
        reference: float64 of shape (n, n_features).
        sets: each (n_i, n_features).
        weights: what each set counts; confidence is the weight of the sets with the row within the tolerance.
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
    """Return the chance that one of so many rows of the prior lies within a tolerance of each point, (n,).

    Args:
        points: float64 of shape (n, n_features).
        draws: rows of the prior, (n_draws, n_features).
        n_rows: number of rows.
        tolerance: largest difference in any feature.
    """
    hits = np.array([(np.abs(draws - point) <= tolerance).all(axis=1).sum() for point in points])
    share = (hits + 1.0) / (len(draws) + 1.0)
    return np.asarray(1.0 - (1.0 - share) ** n_rows)
