"""Membership scores and their evaluation: ROC, rates at few false alarms, theory, and the DP curve.

Excludes rows that cannot have taken part, from sums without noise.

If a row took part, each sum without it is a sum over one row fewer. So a row did not take part if a count
that it would be in is 0. Nor did it if it would be alone in its cell and is not the sum of the cell, or if
the mean of the others lies in another cell: cells are convex, so a mean of rows of a cell lies in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from privfed.attacks.base.report import IntArray, Report
from privfed.attacks.base.results import Result, Truth
from privfed.attacks.evidence.equations import Counted, Equations, Rows, counted_in
from privfed.audits.confidence import Rate, mu_bound
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import ArgumentError

FALSE_ALARMS = (0.01, 0.001, 0.0)
"""False-positive rates at which the true-positive rate is reported."""
_ALPHA = 0.05
_GRID = 400


@dataclass(frozen=True, kw_only=True)
class MembershipScores(Result):
    """Holds a score for each candidate; the higher it is, the likelier the candidate took part.

    Args:
        scores: float64 of shape (n_candidates,).
        likelihood: the likelihood ratio alone, (n_candidates,); None where it is the score.
        contradicted: in how many sums the candidate contradicts what was shown, (n_candidates,); None where
            this was not asked. One or more excludes it.
        mu: theoretical distance between the likelihood ratio's distributions with and without the candidate,
            in standard deviations, (n_candidates,); NaN if unknown.
        by_sum: scores from each sum alone, (n_sums, n_candidates).
        gdp_mu: mu of the run's differential privacy; None without.
    """

    scores: FloatArray
    mu: FloatArray
    likelihood: FloatArray | None = None
    contradicted: FloatArray | None = None
    by_sum: FloatArray = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    gdp_mu: float | None = None

    def score(self, truth: Truth) -> Report:
        """Compare members' scores with the others'.

        Confidence limits treat candidates as independent draws. Candidates of one run share its totals, so
        for valid limits pool one candidate from each of many runs.

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
        curves = {"ROC": np.column_stack([alarms, _roc(inside, outside, alarms)])}
        details = {"auc": auc, "auc, standard error": _standard_error(auc, len(inside), len(outside))}
        details |= self._rates(inside, outside)
        excluded = (np.zeros(len(self.scores)) if self.contradicted is None else self.contradicted) > 0.0
        if excluded.any():
            details["others excluded"] = float(excluded[~truth.members].mean())
            details["members excluded"] = float(excluded[truth.members].mean())
        ratio = self.scores if self.likelihood is None else self.likelihood
        details["auc, likelihood ratio"] = area(ratio[truth.members], ratio[~truth.members])
        bound = math.nan
        if np.isfinite(self.mu).all():
            details["auc, theory"] = float(norm.cdf(self.mu / math.sqrt(2.0)).mean())
            curves["theory"] = np.column_stack([alarms, theory_curve(self.mu, alarms)])
        if self.gdp_mu is not None:
            details["auc, most that privacy allows"] = bound = float(norm.cdf(self.gdp_mu / math.sqrt(2.0)))
            details["mu, at least"] = largest_mu(inside, outside)
            details["mu of the claim"] = self.gdp_mu
            curves["privacy allows"] = np.column_stack(
                [alarms, theory_curve(np.array([self.gdp_mu]), alarms)]
            )
        if len(self.by_sum):
            each = [area(one[truth.members], one[~truth.members]) for one in self.by_sum]
            details["auc, best single sum"] = max(each)
        return Report(
            attack=self.attack,
            goal="area under the ROC curve",
            recovered=auc,
            precision=float((~truth.members)[excluded].mean()) if excluded.any() else math.nan,
            claims=int(excluded.sum()) if excluded.any() else len(self.scores),
            linked=True,
            baseline=0.5,
            chance=chance(truth.members),
            bound=bound,
            bound_of="any test under the noise that gdp_mu names, but for chance",
            queries=self.queries,
            seconds=self.seconds,
            details=details,
            scenes=curves,
        )

    def _rates(self, inside: FloatArray, outside: FloatArray) -> dict[str, float]:
        """Return true-positive rates at few false alarms, with confidence limits and theoretical values."""
        found: dict[str, float] = {}
        for alarm in FALSE_ALARMS:
            at = np.quantile(outside, 1.0 - alarm, method="higher")
            rate, name = Rate(int((inside > at).sum()), len(inside)), f"tpr at fpr {alarm:g}"
            found[name] = rate.hits / rate.trials
            found[f"{name}, low"], found[f"{name}, high"] = rate.low(_ALPHA / 2), rate.high(_ALPHA / 2)
            if alarm and np.isfinite(self.mu).all():
                found[f"{name}, theory"] = float(theory_curve(self.mu, np.array([alarm]))[0])
        return found


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


def largest_mu(inside: FloatArray, outside: FloatArray, alpha: float = _ALPHA) -> float:
    """Return a lower bound on mu: the best over several thresholds, with a Bonferroni correction."""
    thresholds = np.quantile(outside, [0.5, 0.75, 0.9, 0.99, 0.999], method="higher")
    return max(
        mu_bound(
            Rate(int((inside > at).sum()), len(inside)),
            Rate(int((outside > at).sum()), len(outside)),
            alpha / len(thresholds),
        )
        for at in thresholds
    )


def _roc(inside: FloatArray, outside: FloatArray, alarms: FloatArray) -> FloatArray:
    thresholds = np.quantile(outside, 1.0 - alarms, method="higher")
    ordered = np.sort(inside)
    rates: FloatArray = 1.0 - np.searchsorted(ordered, thresholds, "right") / len(inside)
    rates[-1] = 1.0
    return rates


def _standard_error(auc: float, n_inside: int, n_outside: int) -> float:
    """Return the standard error of an area (Hanley and McNeil 1982, equation 1)."""
    both_in, both_out = auc / (2.0 - auc), 2.0 * auc**2 / (1.0 + auc)
    spread = auc * (1.0 - auc) + (n_inside - 1) * (both_in - auc**2) + (n_outside - 1) * (both_out - auc**2)
    return math.sqrt(max(0.0, spread) / (n_inside * n_outside))


BoolArray = npt.NDArray[np.bool_]

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
                found[clients] += _too_many(totals, added)
            seen[clients] = True
    return found[seen].min(axis=0) if alone else np.zeros(len(rows))


def _too_many(totals: Mapping[str, FloatArray], own: Rows) -> BoolArray:
    """Say which rows add more to a count than it holds, bool of shape (n_rows,)."""
    excluded = np.zeros(len(own.rows), dtype=np.bool_)
    for name in own.counts:
        left = (totals[name] - own.added[name]).reshape(len(excluded), -1)
        excluded |= left.min(axis=1) < -_ERROR * max(1.0, float(totals[name].max()))
    return excluded


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
