"""Membership inference from totals alone: a likelihood-ratio test of whether a row or a client took part.

A total is s = sum of phi(x) over n units, where phi is the answer of a single unit; this is exact for
questions that add up over records. Given the distribution of the units, s is nearly Gaussian, so the best
test of "x is in" against "another unit is in its place" is linear (the whitened matched filter)

    z = (phi(x) - m)' M^-1 (s - n m) / mu,  mu^2 = (phi(x) - m)' M^-1 (phi(x) - m),  M = n C + N,

where m and C are mean and covariance of phi, and N is the covariance of the noise of differential privacy. z
is normal with standard deviation 1, around 0 without x and around mu with it: AUC = Phi(mu / sqrt(2)),
TPR = Phi(Phi^-1(FPR) + mu). Without noise mu = sqrt(leverage of x / n). In D observed dimensions the
average unit has leverage D, so more different partitions give more power, however many clients are in the
sum.

Sources: Homer et al. 2008 and Sankararaman et al. 2009 (membership inference from totals); Dong, Roth, Su
2022 (the curve that differential privacy allows).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Prepared, Prior, Target
from privfed.attacks.base.reading import Reads, Shows
from privfed.attacks.base.results import NotRun
from privfed.attacks.evidence.equations import Equations, equations_of, summed
from privfed.attacks.membership.scores import MembershipScores, contradictions
from privfed.core.asking.question import ClientData
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import ArgumentError
from privfed.questions.lloyd import LloydSums

_UNITS_A_DIMENSION = 5
"""Least reference units for each dimension used; a covariance estimated from fewer is mostly noise."""
_LEADING = 1e-4
"""Least share of the largest variance. Weaker directions come from a few rare cells, far from Gaussian."""
_AGREE, _MOST = 2.0, 0.9
"""Ratio of two estimates of a variance, and the share of the candidates within it that a theory needs."""
_FLAT = 1e-7
"""Least share of the largest standard deviation; values that vary less show only rounding."""


class Observed(NamedTuple):
    """Holds what one or more sums show, and what single units would have answered.

    Attributes:
        total: the totals, float64 of shape (n_values,).
        units: how many units each value is a sum of, float64 of shape (n_values,); NaN if unknown.
        noise: variance of the noise in each value, float64 of shape (n_values,).
        candidates: answers of the candidates, (n_candidates, n_values).
        reference: answers of the reference units, (n_reference, n_values).
    """

    total: FloatArray
    units: FloatArray
    noise: FloatArray
    candidates: FloatArray
    reference: FloatArray

    @classmethod
    def together(cls, parts: Sequence[Observed]) -> Observed:
        """Return several sums as one."""
        return cls(*(np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Membership(PassiveAttack[MembershipScores]):
    """Scores candidates by the likelihood ratio on the totals of a run, or on its final centroids.

    Args:
        candidates: rows, (n_candidates, n_features), or clients: a list of tables (n_i, n_features).
        reference: units of the same kind from the same population, known to the attacker. None takes
            the prior's sample as rows; for clients it must be given.
        units: how many units each total is over, if the attacker knows it; None estimates it from the
            totals. Final centroids do not show it, so without it `mu` is NaN there.
        sums: indices of the sums to use; None for all.
        gdp_mu: mu of the run's differential privacy, shown beside the curve; None without.
    """

    candidates: FloatArray | Sequence[FloatArray]
    reference: FloatArray | Sequence[FloatArray] | None = None
    units: int | None = None
    sums: Sequence[int] | None = None
    gdp_mu: float | None = None

    name: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Homer et al. 2008; Sankararaman et al. 2009; whitened over partitions: ours"
    adversary: ClassVar[str] = "passive server, colluding clients, or observer of the final centroids"
    view: ClassVar[str] = "totals, or the final centroids"
    algorithms: ClassVar[tuple[str, ...]] = (
        "dp",
        "dwf",
        "ewf",
        "lloyd",
        "minibatch",
        "fkm",
        "kfed",
        "fuzzy",
        "fedavg",
    )
    prior: ClassVar[str] = "the distribution of rows (or of clients)"
    defence: ClassVar[str] = "differential privacy; a secure sum alone only dilutes it as 1/sqrt(n)"

    public_rows: ClassVar[int] = 4
    """Two for candidates that took no part, two for what it knows of the population."""

    @classmethod
    def prepare(cls, target: Target, parameters: Mapping[str, Any]) -> Prepared[Self]:
        """Take half of the public rows for candidates that took no part, the other half as known."""
        if target.public is None or len(target.public) < cls.public_rows:
            raise ArgumentError(
                f"membership compares with public rows: pass at least {cls.public_rows}, Prior(sample=...)."
            )
        members, others, known = candidates_of(target, target.public)
        made = cls._made(
            {"gdp_mu": target.gdp_mu, **parameters, "candidates": np.concatenate([members, others])}
        )
        inside = np.arange(len(members) + len(others)) < len(members)
        return Prepared(made, replace(target.prior, sample=known), replace(target.truth, members=inside))

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Totals that add up over units; for an observer, who sees no totals, the final centers."""
        by_row = isinstance(self.candidates, np.ndarray)
        return (
            Reads(
                what="totals that add up over rows" if by_row else "totals",
                shown=Shows.TOTALS,
                use=lambda question: bool(summed(question, by_row=by_row)),
            ),
            Reads(what="the final centers", shown=Shows.MODEL),
        )

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> MembershipScores | NotRun:
        candidates, reference = self._units(prior)
        alone = view.party == "observer" and not view.colluding
        by_row = isinstance(self.candidates, np.ndarray)
        sums = [] if alone else list(equations_of(self._chosen(view), by_row=by_row))
        parts = list(self._observed(sums, candidates, reference))
        if not parts and "centers" in view.result:
            parts = [_converged(view, candidates, reference, self.units)]
        name = self.name
        if not parts:
            return NotRun(attack=name, why=f"none of the sums {list(self.sums or ())} adds up over units")
        likelihood, mu = matched_filter(Observed.together(parts))
        contradicted = np.zeros(len(candidates))
        if isinstance(self.candidates, np.ndarray):
            contradicted = contradictions(self.candidates, sums, len(view.clients))
        return MembershipScores(
            attack=name,
            queries=len(parts),
            scores=likelihood - contradicted * (np.ptp(likelihood) + 1.0),
            likelihood=likelihood,
            contradicted=contradicted,
            mu=mu,
            by_sum=np.stack([matched_filter(part)[0] for part in parts]),
            gdp_mu=self.gdp_mu,
        )

    def _chosen(self, view: View) -> View:
        """Return the view of the sums to use; of those with single answers, totals too."""
        return replace(
            view, sums=tuple(one for one in view.sums if self.sums is None or one.index in self.sums)
        )

    def _units(self, prior: Prior) -> tuple[list[ClientData], list[ClientData]]:
        by_row = isinstance(self.candidates, np.ndarray)
        reference = self.reference
        if reference is None and by_row:
            reference = prior.sample
        if reference is None or len(reference) < 2 or not len(self.candidates):
            raise ArgumentError(
                "membership compares candidates with a population: pass Prior(sample=...) for rows, "
                "reference=[...] for clients."
            )
        return _as_units(self.candidates), _as_units(reference)

    def _observed(
        self, sums: Sequence[Equations], candidates: list[ClientData], reference: list[ClientData]
    ) -> Iterator[Observed]:
        by_row, seen = isinstance(self.candidates, np.ndarray), set[bytes]()
        for one in sums:
            total = next((shown for shown in one.shown if not shown.own), None)
            if total is None:
                continue
            # Without noise, the same question to the same clients has the same answer and adds nothing.
            key = one.question.to_bytes() + repr(total.clients).encode()
            if one.exact and key in seen:
                continue
            seen.add(key)
            own, others = one.of_units(candidates), one.of_units(reference)
            n = float("nan") if self.units is None else float(self.units)
            if self.units is None:
                known = np.concatenate([own, others])
                n = _count(one, total.values, known) if by_row else len(total.clients)
            yield Observed(total.values, np.full(total.values.size, n), one.noise, own, others)


def candidates_of(target: Target, public: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return rows that took part, public rows that did not, and public rows that the attacker knows."""
    honest = [rows for i, rows in enumerate(target.clients) if i not in target.colluding]
    members, most = np.concatenate(honest), target.most_candidates
    if most is None:
        return members, public[::2], public[1::2]
    # As many of one kind as of the other: then half of all guesses are right without any access.
    others, known = np.array_split(public[: 2 * most], 2)
    n = min(len(others), most // 2, len(members))
    chosen = np.random.default_rng([target.seed, 3]).choice(len(members), n, replace=False)
    return members[chosen], others[:n], known


def matched_filter(seen: Observed) -> tuple[FloatArray, FloatArray]:
    """Return z and mu of each candidate, each float64 of shape (n_candidates,).

    The filter is estimated on two thirds of the reference units, and the variance of its score on the rest.
    So overfitting to few units does not overstate the score. The mean of the reference units has variance C /
    n_reference, which adds that of n^2 / n_reference further units.

    If the number of units is unknown, z is right up to a factor and mu is NaN. So is mu if both parts do not
    agree on the variance within a factor of two, for nine candidates in ten: then there are too few reference
    units for theory, or some are too far out. If the sums are over different
    cohorts, the covariance is computed for their mean size.
    """
    mean, scale = seen.reference.mean(axis=0), seen.reference.std(axis=0)
    varies = scale > _FLAT * max(1.0, float(scale.max()))
    known = bool(np.isfinite(seen.units).all())
    units = seen.units if known else np.ones_like(seen.units)
    if not varies.any():
        return np.zeros(len(seen.candidates)), np.zeros(len(seen.candidates))
    offsets = (seen.reference[:, varies] - mean[varies]) / scale[varies]
    behind = float(units.mean()) * (1.0 + float(units.mean()) / len(offsets) * known)
    noise = seen.noise[varies] / np.square(scale[varies])
    making = np.arange(len(offsets)) % 3 > 0
    candidates = (seen.candidates - mean)[:, varies] / scale[varies]
    filters = _filters(offsets[making], candidates, behind, noise)
    # What a filter picks out may be rare, and so in none of the other units: the larger variance counts.
    first, second = (np.square(offsets[part] @ filters.T).mean(axis=0) for part in (making, ~making))
    variance = behind * np.maximum(first, second) + np.square(filters) @ noise
    alike = (first <= _AGREE * second) & (second <= _AGREE * first)
    known &= bool(alike.mean() >= _MOST)
    deviation = np.sqrt(np.maximum(variance, np.finfo(np.float64).tiny))
    residual = (seen.total - units * mean)[varies] / scale[varies]
    mu = np.einsum("ij,ij->i", filters, candidates) / deviation
    return (filters @ residual) / deviation, mu if known else np.full(len(mu), np.nan)


def _filters(offsets: FloatArray, candidates: FloatArray, behind: float, noise: FloatArray) -> FloatArray:
    """Return M^-1 (phi - m) of each candidate in the leading directions, (n_candidates, n_values).

    Args:
        offsets: offsets of the reference units from their mean, (n_units, n_values).
        candidates: offsets of the candidates, (n_candidates, n_values).
        behind: number of units whose covariance is in the total.
        noise: variance of the noise in each value, (n_values,).
    """
    _, spread, directions = np.linalg.svd(offsets, full_matrices=False)
    values = np.square(spread) / len(offsets)
    kept = np.flatnonzero(values > _LEADING * values[0])[: max(1, len(offsets) // _UNITS_A_DIMENSION)]
    basis = directions[kept]
    covariance = behind * np.diag(values[kept]) + (basis * noise) @ basis.T
    found: FloatArray = np.linalg.solve(covariance, basis @ candidates.T).T @ basis
    return found


def _count(one: Equations, total: FloatArray, units: FloatArray) -> float:
    """Return how many units a total is over, from an array whose entries add up to one for every unit.

    Counts over all cells do, a count of rows does, and so do memberships. NaN if there is none: a combination
    of values that is one for the known units alone would say nothing of the others.
    """
    totals = one.parts(total)
    for name, values in one.parts(units).items():
        if np.allclose(values.reshape(len(units), -1).sum(axis=1), 1.0, rtol=0.0, atol=1e-6):
            return float(max(1.0, np.rint(totals[name].sum())))
    return math.nan


def _as_units(units: FloatArray | Sequence[FloatArray]) -> list[ClientData]:
    """Return each row, or each table, as the data of one unit."""
    if isinstance(units, np.ndarray):
        return [ClientData(row[None]) for row in units]
    return [ClientData(table) for table in units]


def _converged(
    view: View, candidates: list[ClientData], reference: list[ClientData], units: int | None
) -> Observed:
    """Return what final centroids show: the offsets of a cluster's rows from its centroid add up to zero."""
    centers = view.result["centers"]
    rows = np.concatenate([unit.features for unit in (*candidates, *reference)])
    question = LloydSums(ranges=Ranges(rows.min(axis=0), rows.max(axis=0), len(rows)), centers=centers)

    def offsets(units: list[ClientData]) -> FloatArray:
        answers = question.answer_all(units, [np.random.default_rng(0)] * len(units))
        return np.stack([(one["sum"] - one["count"][:, None] * centers).ravel() for one in answers])

    nothing = np.zeros(centers.size)
    n = np.full(centers.size, np.nan if units is None else float(units))
    return Observed(nothing, n, nothing, offsets(candidates), offsets(reference))
