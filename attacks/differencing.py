"""Exact rows from counts and sums of many rounds and restarts, without knowing any assignment.

The server knows the centroids that it sent, so that it knows the cells of space; each sum tells how many
of the target's rows lie in each cell, and their sum. Where the counts of two cells differ by one, the
difference of the sums may be a row. Each such claim is weighed and verified on the whole trajectory, taken
out of all sums, and the search begins anew on what is left. docs/attacks/differencing.md explains it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from privfed.attacks.collusion import without_colluders
from privfed.attacks.derivations import derive, groups, movement, support
from privfed.attacks.evidence import Evidence, Observation, Scored, evidence_of
from privfed.attacks.interface import PassiveAttack, Prior
from privfed.attacks.measures import IntArray
from privfed.attacks.residual import Residual
from privfed.attacks.results import Points
from privfed.core.distances import squared_distances
from privfed.core.domain import FloatArray
from privfed.core.view import View

LEVELS = (1.0, 0.99, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Claims are made from the surest down: a sure one, taken out, decides about others."""

# Log-odds of a verified difference, by logistic regression on synthetic mixtures and scikit-learn's data.
_ODDS, _SUPPORT, _TYPICAL, _FOREIGN, _MOVED = 3.3, 2.0, 1.44, 3.1, 0.35
_MOST_SUPPORT, _MOST_MOVED, _MOST_FEATURES = 8, 8.0, 4


class Differencing(PassiveAttack[Points]):
    """Peels rows off the counts and sums of one client, or of a secure sum's totals.

    Args:
        client: position of the client whose answers are read; None reads the totals: rows of any client.
    """

    paper: ClassVar[str] = (
        "own; the assignment-aware bound beside it after TAR, arXiv:2511.07073; refutes arXiv:2312.07992"
    )
    adversary: ClassVar[str] = "passive server (honest but curious), alone or with colluding clients"
    view: ClassVar[str] = "counts and sums (or centroids) of each round: a client's own, or totals"
    prior: ClassVar[str] = "none"
    defence: ClassVar[str] = (
        "differential privacy; secure sums and one restart leave little; fewer rounds and minimum counts "
        "only lower the yield"
    )

    def __init__(self, client: int | None = None) -> None:
        self.client = client

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> Points:
        if prior.colluders:
            view = without_colluders(view, prior.colluders)
        evidence = evidence_of(view, self.client)
        points, confidence = peel(evidence, rng)
        n_guesses = len(points) if np.isnan(evidence.n_rows) else round(evidence.n_rows)
        return Points(
            attack=type(self).__name__,
            queries=len(evidence.observations),
            points=points,
            client=self.client,
            confidence=confidence,
            evidence=[one.cells for one in evidence.observations],
            without_access=prior.guesses(max(n_guesses, 1), rng),
        )


def peel(evidence: Evidence, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return claimed rows, (n_claims, n_features), and how sure each is, (n_claims,).

    Args:
        evidence: counts and sums in public cells.
        rng: draws a projection by which equal vectors are found.
    """
    found: list[tuple[FloatArray, float]] = []
    tolerance = error_of(evidence.observations)
    # Cells after local steps are likely, not sure: what needs none of them is claimed first.
    sure = tuple(one for one in evidence.observations if not one.local)
    stages = [sure, evidence.observations] if len(sure) < len(evidence.observations) else [sure]
    for observations in stages:
        if tolerance is None or not observations:
            continue
        residual = Residual(observations, tolerance)
        for point, _ in found:
            residual.remove(point, residual.place(point[None])[:, 0])
        while claims := _claims(residual, evidence, rng):
            found += claims
    points = np.array([point for point, _ in found]).reshape(-1, evidence.n_features)
    return points, np.array([sure for _, sure in found])


def error_of(observations: tuple[Observation, ...]) -> float | None:
    """Return the largest error of a sum, found by comparing the grand totals of all observations.

    Without noise these are equal up to rounding, to float64 or to the grid of a secure sum.

    Returns:
        The error in the data's units; None where nothing was seen, or noise hides single rows.
    """
    if not observations:
        return None
    counts = np.array([one.counts.sum() for one in observations])
    whole = [one for one, count in zip(observations, counts, strict=True) if count == counts.max()]
    totals = np.stack([one.sums.sum(axis=0) for one in whole])
    scale = float(np.sqrt(np.mean([np.square(one.sums).sum() for one in whole]) / totals[0].size))
    scale /= max(float(counts.max()), 1.0)
    error = float(np.abs(totals - np.median(totals, axis=0)).max())
    if any(np.abs(one.counts - np.rint(one.counts)).max() > 1e-3 for one in observations) or error > scale:
        return None
    return 1e-8 * scale + 4.0 * error


def _claims(
    residual: Residual, evidence: Evidence, rng: np.random.Generator
) -> list[tuple[FloatArray, float]]:
    """Make the surest claims on what is left; none where no difference is likelier right than wrong."""
    margin = 10 * residual.tolerance
    found = derive(residual, evidence.low - margin, evidence.high + margin, rng)
    if not len(found):
        return []
    numbers = groups(found.points, residual.tolerance, rng)
    points = found.points[np.unique(numbers, return_index=True)[1]]
    rows = residual.place(points)
    fits = residual.fits(points, rows)
    alone = np.zeros(len(points), dtype=np.bool_)
    alone[numbers[found.less < 0]] = True
    foreign = np.full(len(points), np.inf)
    np.minimum.at(foreign, numbers, movement(residual, found))
    odds = (
        _ODDS
        + _SUPPORT * np.log2(np.minimum(support(residual, found, numbers, rows), _MOST_SUPPORT))
        + _TYPICAL * typicality(points, evidence.scored)
        - np.where(np.isinf(foreign), _FOREIGN, _MOVED * np.minimum(foreign, _MOST_MOVED))
    )
    sure = np.where(alone, 1.0, 1.0 / (1.0 + np.exp(-np.clip(odds, -50.0, 30.0)))) * fits
    level = next((level for level in LEVELS if sure.max() >= level), np.inf)
    return _taken(residual, points, rows, sure, np.flatnonzero(sure >= level))


def _taken(
    residual: Residual, points: FloatArray, rows: IntArray, sure: FloatArray, chosen: IntArray
) -> list[tuple[FloatArray, float]]:
    """Take claims out one by one, the surest first, as long as there is room for each."""
    claims = []
    for i in chosen[np.argsort(-sure[chosen], kind="stable")]:
        if residual.has_room(points[i], rows[:, i]):
            residual.remove(points[i], rows[:, i])
            claims.append((points[i], float(sure[i])))
    return claims


def typicality(points: FloatArray, scored: tuple[Scored, ...]) -> FloatArray:
    """Return the log-likelihood ratio of a row against a combination x + y - z, from its distance alone.

    With q the squared distance to the nearest centroid in units of its mean: both Gaussian, the second of
    three times the variance, e features: e/2 (log 3 - 2q/3). Rows are no Gaussians; so e is at most 4.

    Args:
        points: float64 of shape (n_points, n_features).
        scored: last centroids and mean squared distances of restarts; without any the ratio is 0.
    """
    if not scored:
        return np.zeros(len(points))
    distances = [
        squared_distances(points, one.centers).min(axis=1) / max(one.mean_squared, np.finfo(np.float64).tiny)
        for one in scored
    ]
    typical: FloatArray = np.median(distances, axis=0)
    return np.asarray(min(points.shape[1], _MOST_FEATURES) / 2.0 * (np.log(3.0) - 2.0 / 3.0 * typical))
