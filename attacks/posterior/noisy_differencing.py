"""Recovers likely rows from noised counts and sums, given the known noise distribution and a prior.

Under differential privacy exact differences are gone, but the size of the noise in every total is public, and
so are the cells. The attack draws sets of rows from their posterior (`chains`, `moves`) and claims the rows
on which independently found sets agree. docs/attacks/noisy-differencing.md explains it.

Turns draws of sets of rows into single claims, by matching rows between sets and counting agreement.

Rows claimed from noised sums, and the bound that Gaussian differential privacy sets on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Aim, Prior
from privfed.attacks.base.reading import Reads, own_or_total
from privfed.attacks.base.report import Report, matched_rmse, matches, spread
from privfed.attacks.base.results import NEAR, NotRun, Points, Truth
from privfed.attacks.posterior.chains import Chains, Moves, coverage, reconstruction_bound
from privfed.attacks.posterior.evidence import (
    BoolArray,
    NoisyEvidence,
    RowPrior,
    is_of_offsets,
    noisy_evidence_of,
)
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError

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


EXPECTED = "the expected share among so many claims under this noise, of rows drawn from the prior"
"""The quantity that the bound of `NoisyPoints` limits, in words for a report."""


@dataclass(frozen=True, kw_only=True)
class NoisyPoints(Points):
    """Holds rows claimed from noised sums.

    Args:
        likeliest: all rows of the target at their likeliest positions, claimed or not, (n, n_features).
        prior_rows: draws from the attacker's prior, (n, n_features), for the bound.
        mu: mu of the Gaussian differential privacy of what was seen; NaN if nothing was.
        explained: share of the families of chains that explain the sums, in [0, 1].
    """

    likeliest: FloatArray = field(repr=False)
    prior_rows: FloatArray = field(repr=False)
    mu: float
    explained: float

    def score(self, truth: Truth) -> Report:
        """Match claims to rows; the bound is on the expected share of rows found by as many claims."""
        report = super().score(truth)
        rows, _ = truth.rows(self.client)
        unit, most = spread(rows), max(len(rows), len(self.points))
        bounds = [self._bound(most, share * unit) for share in (truth.tolerance, max(NEAR, truth.tolerance))]
        near = matches(self.likeliest, rows, max(NEAR, truth.tolerance) * unit) >= 0
        details = {
            **report.details,
            "recovered within .05 sd, all rows": float(near.sum()) / len(rows),
            "matched rmse / sd, all rows": matched_rmse(self.likeliest, rows) / unit,
            "bound within .05 sd": bounds[1],
            "mu of what was seen": self.mu,
            "families that explain the sums": self.explained,
        }
        return replace(report, bound=bounds[0], bound_of=EXPECTED, details=details)

    def _bound(self, most: int, radius: float) -> float:
        if math.isnan(self.mu):
            return math.nan
        return reconstruction_bound(coverage(self.prior_rows, most, radius), self.mu)


FAMILIES = 8
_CHAINS = 6
_LIFT = 10.0
"""Least factor by which a claim's odds must exceed those without access."""
_SURE = 4.0
"""Chains explain the sums if their misfit is at most this many standard deviations above that of noise."""
_KEPT = 6
"""Number of times at which the sets of all chains are kept."""
_DRAWS = 2000


class NoisyDifferencing(PassiveAttack[NoisyPoints]):
    """Draws the rows behind noised sums of one client, or of all, and claims the sure ones.

    Args:
        client: position of the client whose answers are read; None reads totals, for rows of any client.
        confidence: least confidence of a claim, in [0, 1); at 0 all rows are claimed at their likeliest
            position.
        n_sweeps: how often each row of each chain is moved, at least 10; a third of the sweeps are at full
            likelihood.
        most_rows: most rows of the target; time grows with their number
            (docs/attacks/noisy-differencing.md).
    """

    name: ClassVar[str] = "noisy-differencing"
    paper: ClassVar[str] = "own; posterior of the rows by annealed sampling; the bound after arXiv:2201.04845"
    adversary: ClassVar[str] = "passive server (honest but curious), alone or with colluding clients"
    view: ClassVar[str] = "noised counts and sums in cells: a client's own, or totals; the noise's size"
    algorithms: ClassVar[tuple[str, ...]] = ("dp",)
    prior: ClassVar[str] = "a public sample of the kind of data; without it the declared domain"
    defence: ClassVar[str] = "differential privacy with a small epsilon for one record"
    aim: ClassVar[Aim] = Aim.SHOWN_CLIENT

    def __init__(
        self,
        client: int | None = None,
        *,
        confidence: float = 0.75,
        n_sweeps: int = 80,
        most_rows: int = 200,
    ) -> None:
        if not 0.0 <= confidence < 1.0 or n_sweeps < 10 or most_rows < 1:
            raise ArgumentError(
                "confidence must lie in [0, 1), n_sweeps be at least 10 and most_rows at least 1, "
                f"got {confidence=}, {n_sweeps=}, {most_rows=}.",
                parameters=["confidence", "most_rows"],
            )
        self.client, self.confidence = client, confidence
        self.n_sweeps, self.most_rows = n_sweeps, most_rows

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Noised counts and sums of offsets in cells."""
        whose = "of all clients together" if self.client is None else f"of client {self.client} alone"
        what, shown = f"noised counts and sums in cells, {whose}", own_or_total(self.client)
        return (Reads(what=what, shown=shown, client=self.client, use=is_of_offsets, noised=True),)

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> NoisyPoints | NotRun:
        evidence, name = noisy_evidence_of(view, self.client), self.name
        if evidence is None:
            return NotRun(attack=name, why="noised sums in cells are of other clients than most totals")
        ranges = evidence.ranges
        belief = RowPrior.of(prior.sample, ranges, rng)
        draws = belief.draw(_DRAWS, ranges, rng)
        tolerance = NEAR * spread(draws)
        n_rows, n_slots = slots_for(evidence, len(view.clients) if self.client is None else 1)
        if n_rows > self.most_rows:
            fewer = ", or attack one client where the view shows its answers" if self.client is None else ""
            why = (
                f"the target has about {n_rows:.0f} rows, more than most_rows={self.most_rows}: pass more, "
                f"and wait in proportion{fewer}"
            )
            return NotRun(attack=name, why=why)
        chains = Chains(evidence, belief, n_slots, min(1.0, n_rows / n_slots), (FAMILIES, _CHAINS), rng)
        sets = sampled(chains, self.n_sweeps)
        fits = explains(chains)
        claims = claimed(chains, sets, fits, tolerance)
        sure = self._sure(claims, by_chance(claims.points, draws, n_rows, tolerance))
        guesses = [belief.draw(max(1, round(n_rows)), ranges, rng) for _ in sets]
        return NoisyPoints(
            attack=name,
            queries=len(evidence.releases),
            points=claims.points[sure],
            confidence=claims.confidence[sure],
            client=self.client,
            without_access=aligned(guesses[0], guesses, np.ones(len(guesses)), tolerance).points,
            likeliest=claims.points,
            prior_rows=draws,
            mu=evidence.mu,
            explained=float(fits.reshape(FAMILIES, -1).any(axis=1).mean()),
        )

    def _sure(self, claims: Claims, chance: FloatArray) -> BoolArray:
        """Say which claims are confident enough, and much more likely than without access."""
        sure = claims.confidence >= self.confidence
        if self.confidence > 0.0:
            odds = claims.confidence / np.maximum(1.0 - claims.confidence, 1e-9)
            sure &= odds >= _LIFT * chance / np.maximum(1.0 - chance, 1e-9)
        return np.asarray(sure)


def slots_for(evidence: NoisyEvidence, n_clients: int) -> tuple[float, int]:
    """Return the likely number of rows, at least 1, and a number of slots that leaves room for its error."""
    seen, error = evidence.count()
    most = evidence.ranges.rows * n_clients
    likely = float(np.clip(max(seen, min(error, most)), 1.0, most))
    # If the number is hardly known, neither is anything else, and room for as many again is enough.
    room = 3.0 * min(error, likely / 3.0)
    return likely, int(np.clip(np.ceil(likely + room), 1, most))


def sampled(chains: Chains, n_sweeps: int) -> list[FloatArray]:
    """Move chains while their likelihood is raised to the full one, and on; return their later sets of rows.

    Returns:
        Tables (n_rows, n_features): those of all chains at one time, then those at the next, and so on.
    """
    moves, raised = Moves(chains), n_sweeps - n_sweeps // 3
    # The first power is so small that no row moves the sums by more than their tempered noise.
    first = min(0.5, 1.0 / float(np.square(chains.of.blocks).sum(axis=(2, 3)).max()))
    sets: list[FloatArray] = []
    for number in range(n_sweeps):
        if number < raised:
            chains.raise_to(first ** (1.0 - number / (raised - 1)))
        moves.sweep()
        if number >= raised and (n_sweeps - 1 - number) % max(1, (n_sweeps - raised) // _KEPT) == 0:
            sets += [rows[held] for rows, held in zip(chains.rows, chains.held, strict=True)]
    return sets


def explains(chains: Chains) -> BoolArray:
    """Say which chains explain the sums, as their residual is no larger than noise, bool of (n_chains,)."""
    return np.asarray(chains.misfit() <= 1.0 + _SURE * np.sqrt(2.0 / chains.evidence.n_values))


def claimed(chains: Chains, sets: list[FloatArray], fits: BoolArray, tolerance: float) -> Claims:
    """Claim the rows of the chain that explains the sums best, with confidence from other families' rows.

    All families that explain the sums have equal weight, and one more vote counts against each claim. So a
    row that only one family has never gets a confidence above one half. If no family explains the sums, all
    confidences are zero.
    """
    each = fits.reshape(FAMILIES, -1)
    votes = each / np.maximum(each.sum(axis=1, keepdims=True), 1)
    times = len(sets) // len(fits)
    weights = np.tile(votes.ravel() / (each.any(axis=1).sum() + 1) / times, times)
    best = len(sets) - len(fits) + int(np.argmin(chains.misfit()))
    if not fits.any():
        points, _ = aligned(sets[best], sets, np.ones(len(sets)), tolerance)
        return Claims(points, np.zeros(len(points)))
    return aligned(sets[best], sets, weights, tolerance)
