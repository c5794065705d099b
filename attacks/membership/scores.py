"""Membership scores and their evaluation: ROC, rates at few false alarms, theory, and the DP curve.

Excludes rows that cannot have taken part, from sums without noise.

If a row took part, each sum without it is a sum over one row fewer. So a row did not take part if a count
that it would be in is 0. Nor did it if it would be alone in its cell and is not the sum of the cell, or if
the mean of the others lies in another cell: cells are convex, so a mean of rows of a cell lies in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.stats import norm
from sklearn.metrics import roc_curve

from privfed.attacks.base.report import IntArray, Report, Status
from privfed.attacks.base.results import Result, Truth
from privfed.attacks.evidence.equations import Counted, Equations, counted_in
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import ArgumentError

FALSE_ALARMS = (0.01, 0.001, 0.0)
"""False-positive rates at which the true-positive rate is reported."""
_GRID = 400
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class MembershipScores(Result):
    """Holds a score for each candidate; the higher it is, the likelier the candidate took part.

    Args:
        scores: float64 of shape (n_candidates,).
        contradicted: in how many sums the candidate contradicts what was shown, (n_candidates,); None where
            this was not asked. One or more excludes it.
        mu: theoretical distance between the likelihood ratio's distributions with and without the candidate,
            in standard deviations, (n_candidates,); NaN if unknown.
        gdp_mu: mu of the run's differential privacy; None without.
        named: whether a total determines that the candidate took part, bool of shape (n_candidates,); None
            where this was not asked.
        given: what the attacker was given, in words.
        others: says of which candidates other rows give all that was shown, bool of shape (n_candidates,),
            given the truth (`privfed.attacks.evidence.exchanges`); None if that is unknown.
    """

    scores: FloatArray
    mu: FloatArray
    contradicted: FloatArray | None = None
    gdp_mu: float | None = None
    named: BoolArray | None = None
    given: str = ""
    others: Callable[[Truth], BoolArray] | None = field(default=None, repr=False)

    def score(self, truth: Truth) -> Report:
        """Compare members' scores with the others', and what is claimed: who is named, and who excluded.

        Raises:
            ArgumentError: the truth does not say which of these candidates are members, or all are, or none.
        """
        if truth.members is None or truth.members.shape != self.scores.shape:
            raise ArgumentError(f"scores of {len(self.scores)} candidates need Truth(members=...) for each.")
        inside, outside = self.scores[truth.members], self.scores[~truth.members]
        if not inside.size or not outside.size:
            raise ArgumentError("membership is scored on candidates of both kinds, members and others.")
        auc = area(inside, outside)
        alarms = np.linspace(0.0, 1.0, _GRID + 1)
        false, true, _ = roc_curve(truth.members, self.scores)
        curves, details = {"ROC": np.column_stack([false, true])}, {"auc": auc}
        for alarm in FALSE_ALARMS:
            details[f"tpr at fpr {alarm:g}"] = float(true[false <= alarm].max())
        nobody = np.zeros(len(self.scores), dtype=np.bool_)
        excluded = nobody if self.contradicted is None else self.contradicted > 0.0
        named = nobody if self.named is None else self.named
        if excluded.any():
            details["others excluded"] = float(excluded[~truth.members].mean())
            details["members excluded"] = float(excluded[truth.members].mean())
        if named.any():
            details["members named"] = float(named[truth.members].mean())
        claimed, bound = named | excluded, math.nan
        open_ = nobody if self.others is None else self.others(truth)
        if np.isfinite(self.mu).all():
            details["auc, theory"] = float(norm.cdf(self.mu / math.sqrt(2.0)).mean())
            details |= {
                f"tpr at fpr {alarm:g}, theory": float(theory_curve(self.mu, np.array([alarm]))[0])
                for alarm in FALSE_ALARMS
                if alarm
            }
            curves["theory"] = np.column_stack([alarms, theory_curve(self.mu, alarms)])
        if self.gdp_mu is not None:
            details["auc, most that privacy allows one record"] = float(
                norm.cdf(self.gdp_mu / math.sqrt(2.0))
            )
            bound = float(norm.cdf(self.gdp_mu))
            curves["privacy allows"] = np.column_stack(
                [alarms, theory_curve(np.array([self.gdp_mu]), alarms)]
            )
        return Report(
            attack=self.attack,
            goal="area under the ROC curve",
            recovered=auc,
            precision=float((truth.members == named)[claimed].mean()) if claimed.any() else math.nan,
            claims=int(claimed.sum()),
            linked=True,
            baseline=0.5,
            chance=chance(truth.members),
            bound=bound,
            bound_of="the largest area of any test under this noise, of pairs of which one took part",
            given=self.given,
            witness=float(open_.mean()) if self.others else math.nan,
            statuses=[
                Status.FOUND if told else Status.NOT_CERTAIN if other else Status.OPEN
                for told, other in zip(claimed, open_, strict=True)
            ],
            queries=self.queries,
            seconds=self.seconds,
            details=details,
            scenes=curves,
        )


def chance(members: npt.NDArray[np.bool_]) -> float:
    """Return by how much an area under the ROC curve exceeds one half by chance in one study of twenty.

    This is 1.645 standard deviations of the Mann-Whitney statistic (Mann and Whitney 1947) when members and
    others do not differ.
    """
    inside, outside = int(members.sum()), int((~members).sum())
    return 1.645 * math.sqrt((inside + outside + 1) / (12 * inside * outside))


def area(inside: FloatArray, outside: FloatArray) -> float:
    """Return the area under the ROC curve: how often a member scores above a non-member, ties half."""
    ordered = np.sort(outside)
    below = np.searchsorted(ordered, inside, "left") + np.searchsorted(ordered, inside, "right")
    return float(below.mean() / (2 * len(outside)))


def theory_curve(mu: FloatArray, alarms: FloatArray) -> FloatArray:
    """Return true-positive rates Phi(Phi^-1(alarm) + mu), averaged over the candidates' mu.

    Args:
        mu: float64 of shape (n_candidates,).
        alarms: false-positive rates, float64 of shape (n,).
    """
    rates: FloatArray = norm.cdf(norm.ppf(alarms)[:, None] + mu).mean(axis=1)
    return rates


_ERROR = 1e-6
"""Largest error of an exact sum, from rounding in masked sums, as a share of the ranges."""


def contradictions(rows: FloatArray, sums: Iterable[Equations], n_clients: int) -> FloatArray:
    """Return in how many sums each row contradicts what was shown, float64 of shape (n_rows,).

    A row of a client contradicts only sums that the client is in. The client is unknown, so the one with
    fewest contradictions counts. The number is 0 for a row that took part, but for rounding at the border of
    a cell. Nothing is said unless some cell holds a single row: clients that answer from groups of rows never
    show one, and the means that they count instead contradict the rows themselves.

    Args:
        rows: candidates, float64 of shape (n_rows, n_features).
        sums: what was shown; sums with noise, and those without cells, are left out.
        n_clients: number of clients.
    """
    found, seen = np.zeros((n_clients, len(rows))), np.zeros(n_clients, dtype=np.bool_)
    alone = False
    for one in sums:
        declared = one.question.declaration
        # One number for all rows excludes none.
        if not one.exact or declared is None or not (declared.centers or declared.n_cells):
            continue
        cells, ranges = counted_in(one.question), one.question.ranges
        inside = np.clip(rows, ranges.low, ranges.high)
        added = one.of_rows(rows) if cells is None else None
        place = None if cells is None else cells.cells.place(inside)
        for shown in one.shown:
            clients, totals = list(shown.clients), one.parts(shown.values)
            if cells is not None:
                alone |= bool((np.abs(totals[cells.count] - 1.0) < 0.5).any())
            if cells is not None and place is not None:
                found[clients] += _misplaced(totals, cells, place, inside, ranges)
            elif added is not None:
                for name in added.counts:
                    left = (totals[name] - added.added[name]).reshape(len(rows), -1).min(axis=1)
                    found[clients] += left < -_ERROR * max(1.0, float(totals[name].max()))
            seen[clients] = True
    return found[seen].min(axis=0) if alone else np.zeros(len(rows))


def _misplaced(
    totals: Mapping[str, FloatArray], found: Counted, place: IntArray, rows: FloatArray, ranges: Ranges
) -> BoolArray:
    """Say which rows are in an empty cell, or do not fit to the others of their cell, bool (n_rows,)."""
    others = np.rint(totals[found.count].ravel())[place] - 1.0
    excluded = others < 0.0
    if not found.sum:
        return np.asarray(excluded)
    error = _ERROR * np.maximum(ranges.width, np.abs(ranges.low))
    rest = found.sums(totals)[place] - rows
    excluded |= (others == 0.0) & (np.abs(rest) > error).any(axis=1)
    more = np.flatnonzero(others > 0.0)
    if more.size:
        mean = rest[more] / others[more, None]
        beyond = ((mean < ranges.low - error) | (mean > ranges.high + error)).any(axis=1)
        at = found.cells.place(np.clip(mean, ranges.low, ranges.high))
        excluded[more] = beyond | (at != place[more])
    return np.asarray(excluded)
