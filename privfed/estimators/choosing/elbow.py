"""Chooses a number of clusters from an index, by its best value or its elbow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError

Rule = Literal["minimum", "maximum", "elbow"]

FEWEST_FOR_ELBOW = 3
"""Fewest candidates for an elbow, which lies between the first and the last one."""


def elbow_heights(candidates: Sequence[int], values: Sequence[float], *, rising: bool) -> FloatArray:
    """Return the difference curve of kneedle, float64 of shape (n_candidates,), NaN where a value is NaN.

    Satopaa, Albrecht, Irwin and Raghavan, Finding a "Kneedle" in a Haystack, 2011, section III: both axes
    are normalised to [0, 1], a falling curve is flipped, and the elbow is where the curve lies highest above
    the diagonal. Unlike there, the curve is not smoothed, and of several elbows only the highest counts.

    Args:
        candidates: numbers of clusters, ascending.
        values: the index of each; NaN if it has none.
        rising: whether the index grows with the number of clusters; otherwise it falls.
    """
    x, y = np.asarray(candidates, dtype=np.float64), np.asarray(values, dtype=np.float64)
    known = np.isfinite(y)
    span = np.ptp(y[known])
    height = (y - y[known].min()) / (span if span > 0 else 1.0)
    turned = height if rising else 1.0 - height
    above: FloatArray = turned - (x - x[known].min()) / np.ptp(x[known])
    return above


def chosen(candidates: Sequence[int], values: Sequence[float], rule: Rule, *, rising: bool = False) -> int:
    """Return the number of clusters of the best value; among equals the smallest.

    With the rule "elbow", a curve that nowhere bends away from its chord gives the first candidate.

    Raises:
        ArgumentError: no value is known, or fewer than three are known for an elbow.
    """
    known = int(np.isfinite(np.asarray(values, dtype=np.float64)).sum())
    needed = FEWEST_FOR_ELBOW if rule == "elbow" else 1
    if known < needed:
        raise ArgumentError(
            f"the index has a value for {known} of {len(values)} numbers of clusters, rule={rule!r} needs "
            f"{needed}; try more of them, or another index."
        )
    if rule == "minimum":
        return candidates[int(np.nanargmin(values))]
    if rule == "maximum":
        return candidates[int(np.nanargmax(values))]
    return candidates[int(np.nanargmax(elbow_heights(candidates, values, rising=rising)))]
