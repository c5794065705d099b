"""Iterative removal: rows found in counts and sums are subtracted from them, and the search repeats.

Each difference of sums that could be a row is scored: by whether it fits its cells, how often it was found,
how often independently, and how far it lies from the centroids. docs/attacks/differencing.md explains it.
"""

from __future__ import annotations

import numpy as np

from privfed.attacks.evidence.cells import Evidence, Observation, Scored
from privfed.attacks.reconstruction.derivations import (
    Derivations,
    derive,
    derive_unions,
    doubts,
    groups,
    support,
    surely_alone,
)
from privfed.attacks.reconstruction.residual import Residual, holds
from privfed.core.values.domain import FloatArray

LEVELS = (0.9999, 0.999, 0.997, 0.99, 0.98, 0.95, 0.9, 0.8, 0.7)
"""Confidence levels, from the highest down, at which claims are made; none are made below the last.

The surest claims come first, because removing them decides about others.
"""

# Log-odds of a verified difference: weights of one logistic regression on synthetic mixtures and
# scikit-learn's data, whose script was not kept. For unions of cells it gave 0.3; -1.5 was chosen by hand.
# No record says how the caps and the degrees of freedom were chosen. Precision is .955 where k > d + 1 and
# rows are many, and was .85 on one-hot columns (docs/attacks/differencing.md).
_ODDS, _UNION, _SUPPORT, _REPEATED, _TYPICAL = 1.18, -1.5, 2.02, 0.37, 1.07
_MOST_SUPPORT, _MOST_REPEATED, _MOST_FEATURES, _FREEDOM = 8, 256, 16, 10


def removed(
    evidence: Evidence, rng: np.random.Generator, known: tuple[FloatArray, FloatArray] | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return claimed rows, (n_claims, n_features), and the confidence in each, (n_claims,).

    Args:
        evidence: counts and sums in public cells.
        rng: draws a projection by which equal vectors are found.
        known: the result for part of the evidence, to continue from.
    """
    found = [] if known is None else list(zip(*known, strict=True))
    tolerance = error_of(evidence.observations)
    if tolerance is not None and known is None:
        found = _removed_rows(
            [one for one in evidence.observations if not one.local], [], evidence, tolerance, rng
        )
    # Cells after several local steps are only likely. Rows that need none of them are claimed first and
    # test them.
    if tolerance is not None and (known is not None or any(one.local for one in evidence.observations)):
        rows = np.array([point for point, _ in found]).reshape(-1, evidence.n_features)
        held = [one for one in evidence.observations if not one.local or holds(one, rows, 10 * tolerance)]
        found = _removed_rows(held, found, evidence, tolerance, rng)
    points = np.array([point for point, _ in found]).reshape(-1, evidence.n_features)
    return points, np.array([sure for _, sure in found])


def _removed_rows(
    observations: list[Observation],
    known: list[tuple[FloatArray, float]],
    evidence: Evidence,
    tolerance: float,
    rng: np.random.Generator,
) -> list[tuple[FloatArray, float]]:
    """Remove the known rows from some observations, then claim rows until none is sure enough."""
    if not observations:
        return known
    residual, found = Residual(tuple(observations), tolerance), list(known)
    for point, _ in known:
        residual.remove(point, residual.place(point[None])[:, 0])
    low, high = evidence.low - 10 * tolerance, evidence.high + 10 * tolerance
    while True:
        claims = _claims(residual, derive(residual, low, high, rng), _ODDS, evidence.scored, rng)
        if not claims:
            claims = _claims(residual, derive_unions(residual, low, high, rng), _UNION, evidence.scored, rng)
        if not claims:
            return found
        found += claims


def error_of(observations: tuple[Observation, ...]) -> float | None:
    """Return the largest error of a sum, found by comparing the grand totals of all observations.

    Without noise the grand totals are equal, up to rounding to float64 or to the grid of a secure sum.

    Returns:
        The error in the data's units; None if nothing was seen, or noise hides single rows.
    """
    if not observations:
        return None
    counts = np.array([one.counts.sum() for one in observations])
    whole = [one for one, count in zip(observations, counts, strict=True) if count == counts.max()]
    scale = float(np.sqrt(np.mean([np.square(one.sums).sum() for one in whole]) / whole[0].sums.shape[1]))
    scale /= max(float(counts.max()), 1.0)
    # A hidden sum may be anything.
    totals = [one.sums.sum(axis=0) for one in whole if one.cells.shown[one.counts > 0.5].all()]
    error = float(np.abs(totals - np.median(totals, axis=0)).max()) if totals else 0.0
    if any(np.abs(one.counts - np.rint(one.counts)).max() > 1e-3 for one in observations) or error > scale:
        return None
    return 1e-8 * scale + 4.0 * error


def _claims(
    residual: Residual,
    found: Derivations,
    odds: float,
    scored: tuple[Scored, ...],
    rng: np.random.Generator,
) -> list[tuple[FloatArray, float]]:
    """Make the surest claims on what is left; none if no difference is sure enough."""
    if not len(found):
        return []
    numbers = groups(found.points, residual.tolerance, rng)
    points = found.points[np.unique(numbers, return_index=True)[1]]
    rows = residual.place(points)
    fits = residual.fits(points, rows)
    alone = np.zeros(len(points), dtype=np.bool_)
    alone[numbers[surely_alone(residual, found)]] = True
    log_odds = (
        odds
        - doubts(residual, found, numbers)
        + _SUPPORT * np.log2(np.minimum(support(residual, found, numbers, rows), _MOST_SUPPORT))
        + _REPEATED * np.log2(np.minimum(np.bincount(numbers), _MOST_REPEATED))
        + _TYPICAL * typicality(points, scored)
    )
    sure = np.where(alone, 1.0, 1.0 / (1.0 + np.exp(-np.clip(log_odds, -50.0, 30.0)))) * fits
    level = next((level for level in LEVELS if sure.max() >= level), np.inf)
    claims, chosen = [], np.flatnonzero(sure >= level)
    # The surest are removed first; those that no longer fit what is left are skipped.
    for i in chosen[np.argsort(-sure[chosen], kind="stable")]:
        if residual.has_room(points[i], rows[:, i]):
            residual.remove(points[i], rows[:, i])
            claims.append((points[i], float(sure[i])))
    return claims


def typicality(points: FloatArray, scored: tuple[Scored, ...]) -> FloatArray:
    """Return the log-likelihood ratio of a row against a combination x + y - z, from its distance alone.

    Let q be the squared distance to the nearest centroid, in units of its mean. Both are modelled by
    Student's t in e dimensions with v = 10 degrees of freedom, as rows have outliers; a combination has three
    times the variance. The ratio is e/2 log 3 - (v + e)/2 log((1 + eq/v) / (1 + eq/3v)). As features depend
    on each other, e is the number of features, but at most 16.

    Args:
        points: float64 of shape (n_points, n_features).
        scored: last centroids and mean squared distances of restarts; without any the ratio is 0.
    """
    if not scored:
        return np.zeros(len(points))
    e = min(points.shape[1], _MOST_FEATURES)
    scaled: FloatArray = e / _FREEDOM * np.median([one.squared(points) for one in scored], axis=0)
    tails = np.log1p(scaled) - np.log1p(scaled / 3.0)
    return np.asarray(e / 2.0 * np.log(3.0) - (_FREEDOM + e) / 2.0 * tails)
