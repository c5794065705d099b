"""Membership inference from totals: what all sums say of all candidates together.

All totals are one system of equations in the candidates' shares (`privfed.attacks.evidence.system`). A row
that contradicts a sum without noise is excluded first (`privfed.attacks.membership.scores`). One that must be
in a total of few rows is named (`privfed.attacks.evidence.subsets`). The others are solved for together.

Alone, a row's ratio is the whitened matched filter, so that AUC = Phi(mu / sqrt(2)) and TPR = Phi(Phi^-1(FPR)
+ mu). Without noise mu = sqrt(leverage of x / n): in D observed dimensions the average unit has leverage D,
so more different partitions give more power, however many clients are in the sum. Together, candidates
explain each other: where the list holds all members, and there are more equations than candidates, nothing is
left open.

How much of the members the list holds (`listed`) is what the attacker is given. Where it is unknown, it is
taken as the share under which the totals are likeliest, of a few.

Sources: Homer et al. 2008 and Sankararaman et al. 2009 (membership inference from totals); Dong, Roth, Su
2022 (the curve that differential privacy allows).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_array

from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Prepared, Prior, Target
from privfed.attacks.base.reading import Reads, Shows
from privfed.attacks.base.results import NotRun, Truth
from privfed.attacks.evidence.equations import equations_of, summed
from privfed.attacks.evidence.exchanges import exchanged
from privfed.attacks.evidence.subsets import named
from privfed.attacks.evidence.system import MOST_UNITS, System
from privfed.attacks.membership.scores import BoolArray, MembershipScores, contradictions
from privfed.core.asking.question import ClientData
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_number
from privfed.errors import ArgumentError

_SHARES = (1.0, 0.9, 0.75, 0.5, 0.1)
"""Shares of the members that a list may hold, where the attacker does not know."""
_HIDDEN = 2.0
"""Noise hides a row that moves the totals by no more standard deviations: the best test errs in a sixth."""


@dataclass(frozen=True)
class Membership(PassiveAttack[MembershipScores]):
    """Scores candidates by what the totals of a run, or its final centroids, say of all of them together.

    Args:
        candidates: rows, (n_candidates, n_features), or clients: a list of tables (n_i, n_features).
        reference: units of the same kind from the same population, known to the attacker. None takes
            the prior's sample as rows; for clients it must be given.
        units: how many units each total is over, if the attacker knows it; None estimates it from the
            totals. Final centroids do not show it, so without it `mu` is NaN there.
        sums: indices of the sums to use; None for all.
        gdp_mu: mu of the run's differential privacy, shown beside the curve; None without.
        listed: share of the members that the candidates hold, in (0, 1]; None if the attacker does not know.
    """

    candidates: FloatArray | Sequence[FloatArray]
    reference: FloatArray | Sequence[FloatArray] | None = None
    units: int | None = None
    sums: Sequence[int] | None = None
    gdp_mu: float | None = None
    listed: float | None = None

    def __post_init__(self) -> None:
        check_number("listed", self.listed, "(0, 1]", or_none=True)

    name: ClassVar[str] = "membership"
    paper: ClassVar[str] = "Homer et al. 2008; Sankararaman et al. 2009; whitened over partitions: ours"
    adversary: ClassVar[str] = "passive server, colluding clients, or observer of the final centroids"
    view: ClassVar[str] = "totals, or the final centroids"
    prior: ClassVar[str] = "the distribution of rows (or of clients)"
    defence: ClassVar[str] = "differential privacy; a secure sum alone only dilutes it as 1/sqrt(n)"

    public_rows: ClassVar[int] = 4
    """Two for candidates that took no part, two for what it knows of the population."""

    @classmethod
    def prepare(cls, target: Target, parameters: Mapping[str, Any]) -> Prepared[Self]:
        """Take half of the public rows for candidates that took no part, the other half as known."""
        public = target.candidates if target.public is None else target.public
        if public is None or len(public) < cls.public_rows:
            raise ArgumentError(
                f"membership compares with public rows: pass at least {cls.public_rows}, Prior(sample=...)."
            )
        members, others, known = candidates_of(target, public)
        n_members = sum(len(own) for i, own in enumerate(target.clients) if i not in target.colluding)
        share = len(members) / n_members if target.candidates is None else None
        given = {"gdp_mu": target.gdp_mu, "listed": share, **parameters}
        made = cls._made({**given, "candidates": np.concatenate([members, others])})
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
        by_row, n = isinstance(self.candidates, np.ndarray), len(candidates)
        chosen = (one for one in view.sums if self.sums is None or one.index in self.sums)
        seen = replace(view, sums=() if alone else tuple(chosen))
        # Known members of groups are candidates, too, until their groups are told.
        told = [row for own in prior.known for row in own] if by_row else []
        system = System.of(
            seen, [*candidates, *(ClientData(row[None]) for row in told), *reference], by_row=by_row
        )
        if system is None:
            return NotRun(
                attack=self.name, why=f"none of the sums {list(self.sums or ())} adds up over units"
            )
        contradicted, known = np.zeros(n), np.zeros(n + len(told), dtype=np.bool_)
        if isinstance(self.candidates, np.ndarray):
            contradicted = contradictions(self.candidates, equations_of(seen), len(view.clients))
            known = named(seen, np.array([*self.candidates, *told]))[0]
        known[n:] = True
        # Whoever is named is taken out of the totals.
        every, system = system, system.without(np.flatnonzero(known))
        given = float(self.units - known.sum() if self.units else system.units)
        known, first = known[:n], len(known)
        counted = math.isfinite(given)
        shares = _SHARES[not counted :] if self.listed is None else (self.listed,)
        possible = np.flatnonzero((contradicted == 0.0) & ~known)
        scores, mu = np.full(n, -np.inf), np.full(n, np.nan)
        # More candidates than can be solved for together are solved for in parts.
        for part in np.array_split(possible, -(-len(possible) // MOST_UNITS) or 1):
            whole = len(part) / max(len(possible), 1)
            found = max(
                (
                    system.posterior(part, share * whole, given if counted else n / 2, first)
                    for share in shares
                ),
                key=lambda one: one.evidence,
            )
            # A ratio rests on how many took part.
            scores[part] = found.ratio if counted else found.mean
            mu[part] = found.mu if counted else np.nan
        least, most = (float(one(scores[possible], initial=0.0)) for one in (np.min, np.max))
        scores = np.where(contradicted > 0.0, least - 1.0 - contradicted, np.where(known, most + 1.0, scores))
        return MembershipScores(
            attack=self.name,
            queries=system.n_sums,
            scores=scores,
            contradicted=contradicted,
            mu=mu,
            gdp_mu=self.gdp_mu,
            named=known,
            given=f"{n} candidates, which hold "
            f"{f'{self.listed:.3g}' if self.listed else 'an unknown share'} of the members; "
            f"{len(reference)} public units; {'n' if self.units else 'n as the totals show it'}",
            others=partial(_others, view, self.candidates, every)
            if isinstance(self.candidates, np.ndarray) and self.sums is None
            else None,
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
        made = ([ClientData(np.atleast_2d(one)) for one in own] for own in (self.candidates, reference))
        return next(made), next(made)


def _others(view: View, candidates: FloatArray, system: System, truth: Truth) -> BoolArray:
    """Say of which candidates other rows are shown that give all that a view shows."""
    members, noised = np.asarray(truth.members), system.noise > 0.0
    # How far a row moves all noised totals, in deviations: a short way leaves who knows all others unsure.
    own = system.left[noised][:, : len(members)].multiply(system.noise[noised, None] ** -0.5)
    hidden = np.asarray(own.multiply(own).sum(axis=0)).ravel() <= _HIDDEN**2
    if noised.all():
        return np.asarray(hidden)
    left = system.left[~noised][:, : len(members)]
    if all(one.total is None for one in view.sums):
        # Final centers follow from rows by all of a fit, so that only equal rows are known to give the same.
        _, same = np.unique(candidates, axis=0, return_inverse=True)
        left = csr_array((np.ones(len(members)), (same.ravel(), np.arange(len(members)))))
    return hidden & exchanged(view, truth.clients, candidates, members * 1.0, left, 1.0)


def candidates_of(target: Target, public: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return rows that took part, public rows that did not, and public rows that the attacker knows."""
    honest = [rows for i, rows in enumerate(target.clients) if i not in target.colluding]
    members, most = np.concatenate(honest), target.most_candidates
    if target.candidates is not None:
        rows = {row.tobytes() for row in members}
        took_part = np.array([row.tobytes() in rows for row in target.candidates])
        return target.candidates[took_part], target.candidates[~took_part], public
    if most is None:
        return members, public[::2], public[1::2]
    # As many of one kind as of the other: then half of all guesses are right without any access.
    others, known = np.array_split(public[: 2 * most], 2)
    n = min(len(others), most // 2, len(members))
    chosen = np.random.default_rng([target.seed, 3]).choice(len(members), n, replace=False)
    return members[chosen], others[:n], known
