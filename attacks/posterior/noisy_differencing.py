"""Recovers likely rows from noised counts and sums, given the known noise distribution and a prior.

Under differential privacy exact differences are gone, but the size of the noise in every total is public, and
so is what any row adds (`privfed.attacks.evidence.system`). The attack draws sets of rows from their
posterior (`privfed.attacks.posterior.chains`) and claims the rows on which independently found sets agree.
docs/attacks/noisy-differencing.md explains it.

A bound, under Gaussian differential privacy, on any attack that lists claimed rows.

Let x be one of the target's rows, drawn from a prior; the attacker may know all other rows. An attack makes
at most m claims. If x is not in the data (or replaced by another row), the claims do not depend on x, so
one of them is within the tolerance of x with probability at most

    kappa = the largest prior probability that m balls of that radius can cover.

As the run is mu-GDP, an event of probability kappa without x has at most probability Phi(Phi^-1(kappa) + mu)
with it (Dong, Roth and Su 2022). This is concave in kappa, so by Jensen's inequality it can be averaged over
x: the same bound holds for the expected share of rows that are claimed. For one claim it is the bound on
reconstruction robustness of Balle, Cherubin and Hayes 2022 (arXiv:2201.04845), definition 2, for a Gaussian
trade-off curve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.stats import norm

from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Aim, Prior
from privfed.attacks.base.reading import Reads, own_or_total
from privfed.attacks.base.report import Report, matched_rmse, matches, spread
from privfed.attacks.base.results import NEAR, NotRun, Points, Truth
from privfed.attacks.evidence.cells import answers_of
from privfed.attacks.evidence.equations import noise_of
from privfed.attacks.evidence.system import System
from privfed.attacks.posterior.chains import Chain, drawn
from privfed.core.asking.question import ClientData
from privfed.core.record.records import SumView, View
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.privacy.noised import Noised
from privfed.questions.bounded.bounded_sums import OffsetSums

BoolArray = npt.NDArray[np.bool_]

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
    return np.asarray(1.0 - (1.0 - (hits + 1.0) / (len(draws) + 1.0)) ** n_rows)


EXPECTED = "the expected share among so many claims under this noise, of rows drawn from the prior"
"""The quantity that the bound of `NoisyPoints` limits, in words for a report."""


@dataclass(frozen=True, kw_only=True)
class NoisyPoints(Points):
    """Holds rows claimed from noised sums.

    Args:
        likeliest: all rows of the target at their likeliest positions, claimed or not, (n, n_features).
        prior_rows: draws from the attacker's prior, (n, n_features), for the bound.
        mu: mu of the Gaussian differential privacy of what was seen; NaN if nothing was.
        explained: share of the chains that explain the sums, in [0, 1].
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
            "chains that explain the sums": self.explained,
        }
        return replace(report, bound=bounds[0], bound_of=EXPECTED, details=details)

    def _bound(self, most: int, radius: float) -> float:
        if math.isnan(self.mu):
            return math.nan
        return reconstruction_bound(coverage(self.prior_rows, most, radius), self.mu)


CHAINS = 8
"""Chains, each of which draws from a pool of its own, so that their agreement is evidence."""
_LIFT = 10.0
"""Least factor by which a claim's odds must exceed those without access."""
_SURE = 4.0
"""Chains explain the sums if their misfit is at most this many standard deviations above that of noise."""
_DRAWS, _GUESSES = 600, 48
"""Rows in a pool; sets of guesses without access."""


class NoisyDifferencing(PassiveAttack[NoisyPoints]):
    """Draws the rows behind noised sums of one client, or of all, and claims the sure ones.

    Args:
        client: position of the client whose answers are read; None reads totals, for rows of any client.
        confidence: least confidence of a claim, in [0, 1); at 0 all rows are claimed at their likeliest
            position.
        n_sweeps: how often each row of each chain is moved, at least 10; three quarters of the sweeps are at
            full likelihood.
        most_rows: most rows of the target; time grows with their number
            (docs/attacks/noisy-differencing.md).
    """

    name: ClassVar[str] = "noisy-differencing"
    paper: ClassVar[str] = "own; posterior of the rows by annealed sampling; the bound after arXiv:2201.04845"
    adversary: ClassVar[str] = "passive server (honest but curious), alone or with colluding clients"
    view: ClassVar[str] = "noised counts and sums in cells: a client's own, or totals; the noise's size"
    prior: ClassVar[str] = "a public sample of the kind of data; without it the declared domain"
    defence: ClassVar[str] = "differential privacy with a small epsilon for one record"
    aim: ClassVar[Aim] = Aim.SHOWN_CLIENT

    def __init__(
        self,
        client: int | None = None,
        *,
        confidence: float = 0.8,
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
        return (
            Reads(
                what=what,
                shown=shown,
                client=self.client,
                use=lambda question: isinstance(question, OffsetSums),
                noised=True,
            ),
        )

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> NoisyPoints | NotRun:
        of = [one for one, _ in answers_of(view, self.client) if _read_in(one) is not None]
        if not of:
            return NotRun(attack=self.name, why="noised sums in cells are of other clients than most totals")
        seen = replace(view, sums=tuple(of))
        every = (question.ranges for one in of if (question := _read_in(one)) is not None)
        ranges = min(every, key=lambda one: float(one.width.sum()))
        draws = drawn(prior.sample, ranges, _DRAWS * (CHAINS + 1), rng).reshape(CHAINS + 1, _DRAWS, -1)
        every_draw = draws.reshape(-1, draws.shape[2])
        tolerance = NEAR * spread(every_draw)

        def read(pool: FloatArray) -> System:
            found = System.of(seen, [ClientData(row[None]) for row in pool], client=self.client)
            assert found is not None  # Sums of offsets add up over rows.
            return found

        units, most = read(draws[0]).units, ranges.rows * (len(view.clients) if self.client is None else 1)
        n_rows = float(np.clip(units, 1, most)) if math.isfinite(units) else float(most)
        if n_rows > self.most_rows:
            fewer = ", or attack one client where the view shows its answers" if self.client is None else ""
            why = (
                f"the target has about {n_rows:.0f} rows, more than most_rows={self.most_rows}: pass more, "
                f"and wait in proportion{fewer}"
            )
            return NotRun(attack=self.name, why=why)
        chains = [Chain(read, pool, ranges, n_rows, most, rng) for pool in draws[1:]]
        for one in chains:
            one.move(self.n_sweeps)
        claims, fits = claimed(chains, tolerance)
        sure, chance = (
            claims.confidence >= self.confidence,
            by_chance(claims.points, every_draw, n_rows, tolerance),
        )
        if self.confidence > 0.0:
            odds = claims.confidence / np.maximum(1.0 - claims.confidence, 1e-9)
            sure &= odds >= _LIFT * chance / np.maximum(1.0 - chance, 1e-9)
        size = (_GUESSES, max(1, round(n_rows)))
        guesses = list(every_draw[rng.integers(len(every_draw), size=size)])
        return NoisyPoints(
            attack=self.name,
            queries=len(of),
            points=claims.points[sure],
            confidence=claims.confidence[sure],
            client=self.client,
            without_access=aligned(guesses[0], guesses, np.ones(len(guesses)), tolerance).points,
            likeliest=claims.points,
            prior_rows=every_draw,
            mu=mu_of(seen, self.client),
            explained=float(fits.mean()),
        )


def _read_in(one: SumView) -> OffsetSums | None:
    """Return the question of a noised sum in cells; None of others."""
    inner = one.question.inner if isinstance(one.question, Noised) else None
    return inner if isinstance(inner, OffsetSums) else None


def mu_of(view: View, client: int | None) -> float:
    """Return the largest shift by one row, in units of the noise: the mu of Gaussian differential privacy.

    The row may be added or replaced; the smaller of the two shifts counts.
    """
    added = turned = 0.0
    for one in view.sums:
        question = _read_in(one)
        costs = [
            np.array([1.0, bound.stay, bound.move])
            * bound.l2**2
            / noise_of(view, one, (name,), own=client is not None)[0]
            for name, bound in ({} if question is None else question.bounds).items()
        ]
        cost = sum(costs, np.zeros(3))
        added, turned = added + cost[0], turned + max(cost[1], cost[2])
    return math.sqrt(min(added, turned))


def claimed(chains: Sequence[Chain], tolerance: float) -> tuple[Claims, BoolArray]:
    """Claim the rows of the chain that explains the sums best, with confidence from the other chains' rows.

    All chains that explain the sums have equal weight, and one more vote counts against each claim. So a
    row that only one chain has never gets a confidence above one half. If no chain explains the sums, all
    confidences are zero.

    Returns:
        The claims, and which chains explain the sums, bool of shape (n_chains,).
    """
    fits = np.array([one.misfit <= 1.0 + _SURE * math.sqrt(2.0 / one.n_values) for one in chains])
    best = min(chains, key=lambda one: one.misfit)
    sets, times = [own for one in chains for own in one.sets], len(best.sets)
    used = np.repeat(fits if fits.any() else ~fits, times)
    found = aligned(best.sets[-1], sets, used / times / (used.sum() / times + 1.0), tolerance)
    return (found if fits.any() else found._replace(confidence=np.zeros(len(found.points)))), fits


_MOST = 2000


def coverage(sample: FloatArray, n_claims: int, radius: float) -> float:
    """Bound the share of a sample that `n_claims` balls of the maximum norm can cover, in (0, 1].

    Among the rows that a ball covers, take the lowest in the first feature. All others lie at most two radii
    above it in that feature, and within two radii on either side in the others. So a box around that row
    covers the ball's rows. Boxes are chosen greedily; any n boxes cover at most as many rows as the greedy
    ones so far plus the n largest further gains (Nemhauser, Wolsey and Fisher 1978).

    Args:
        sample: rows of the prior, float64 of shape (n, n_features); thinned to at most 2,000.
        n_claims: number of balls.
        radius: radius of the balls.
    """
    rows = sample[:: max(1, -(-len(sample) // _MOST))]
    if not n_claims:
        return 1.0 / len(rows)
    covers = np.zeros((len(rows), len(rows)), dtype=np.bool_)
    for i, near in enumerate(cKDTree(rows).query_ball_point(rows, 2.0 * radius, p=np.inf)):
        covers[i, near] = rows[near, 0] >= rows[i, 0]
    gains, covered, best = covers.sum(axis=1), np.zeros(len(rows), dtype=np.bool_), len(rows)
    for _ in range(n_claims):
        best = min(best, int(covered.sum() + np.sort(gains)[-n_claims:].sum()))
        new = covers[np.argmax(gains)] & ~covered
        if not new.any():
            break
        covered |= new
        gains = gains - covers[:, new].sum(axis=1)
    return min(best, len(rows)) / len(rows)


def reconstruction_bound(kappa: float, mu: float) -> float:
    """Return the largest expected share of rows that an attack can claim: Phi(Phi^-1(kappa) + mu)."""
    return float(norm.cdf(norm.ppf(kappa) + mu))
