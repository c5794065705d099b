"""Who lives longer: events and numbers at risk by cluster and time, Kaplan-Meier curves and log-rank test.

A row has a time, and whether its event happened then; otherwise it was last seen then (censored). Public
edges cut time into bins, and a row counts as if its time were the end of its bin. So a row has one of
2 n_bins + 1 labels, and one sum of counts by label and cluster (`privfed.questions.lloyd.Contingency`) says
all there is: adding a record changes the counts by 1 in L2 norm. With each time of the rows as an edge
nothing is lost.

    S(t) = product over bins up to t of 1 - events / at risk               (Kaplan and Meier 1958)
    var log S(t) = sum over them of events / (at risk (at risk - events))  (Greenwood 1926)

Intervals are pointwise, and of log(-log S). Under differential privacy they are of log S, whose variance is
raised by that of the noise, carried over by its derivative. So is the covariance of the log-rank test (Mantel
1966). Noised curves are made to fall (isotonic regression).

Reveals to whoever opens the total: how many rows of each cluster had their event, or were last seen, in each
bin. A bin can hold a single row. Who lies in which cluster stays with the clients.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.stats import chi2

from privfed.core.values.domain import FloatArray, frozen_array
from privfed.core.values.numbers import as_numbers, check_number
from privfed.core.values.origin import carrying
from privfed.data.table import ClientTables, LabelArray
from privfed.errors import ArgumentError, DataError, warn
from privfed.federation.request import check_kinds
from privfed.metrics.asked import AskedMetric
from privfed.metrics.functions import check_labels, checked_centers
from privfed.metrics.intervals import two_sided
from privfed.metrics.profiles import plain
from privfed.privacy.claim import Privacy, PrivacySpent
from privfed.questions.lloyd import Contingency
from privfed.tables.beside import ClusterTimes, asked_once, wider

SURE = 2.0
"""Curves end where fewer rows are at risk than so many standard deviations of their noise."""


@dataclass(frozen=True, eq=False)
class Survival:
    """Survival of clusters over time, and whether it differs.

    Args:
        edges: ends of the bins, (n_bins,); the first begins at 0.
        events: events in each bin, (n_bins, n_clusters); noised ones may be below 0.
        at_risk: rows whose time lies in the bin or after it, likewise.
        beyond: rows that were seen after the last edge, (n_clusters,); at risk throughout, without event.
        survival: share without event up to each edge, (n_bins, n_clusters); NaN where nobody is at risk,
            or noise hides who is.
        low: lower end of its interval, likewise.
        high: upper end.
        level: of the intervals.
        statistic: of the log-rank test.
        df: its degrees of freedom: clusters that hold rows, less one.
        p_value: of equal survival in all clusters; NaN where fewer than two hold rows.
        claim: of what was asked; None without differential privacy.
    """

    edges: FloatArray
    events: FloatArray
    at_risk: FloatArray
    beyond: FloatArray
    survival: FloatArray
    low: FloatArray
    high: FloatArray
    level: float
    statistic: float
    df: int
    p_value: float
    claim: PrivacySpent | None = field(default=None, repr=False)

    @property
    def median(self) -> FloatArray:
        """First edge by which half of a cluster's rows had their event, (n_clusters,); infinite if none."""
        reached = np.vstack([self.survival <= 0.5, np.ones_like(self.survival[:1], dtype=bool)])
        return np.asarray(np.r_[self.edges, np.inf][reached.argmax(axis=0)])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON types; what is no finite number is None."""
        own = asdict(replace(self, claim=None)) | {"median": self.median}
        return {name: plain(np.asarray(one).tolist()) for name, one in own.items() if name != "claim"} | {
            "privacy": None if self.claim is None else self.claim.to_dict()
        }


def survival_from(said: dict[str, Any]) -> Survival:
    """Return what `Survival.to_dict` said; the claim stays in what was said."""
    names = [one.name for one in fields(Survival) if one.name != "claim"]
    known: dict[str, Any] = {name: np.array(said[name], dtype=np.float64) for name in names}
    return Survival(**known)


def checked_edges(edges: Any) -> FloatArray:
    """Return edges of bins of time.

    Raises:
        ArgumentError: they are not above 0 and rising.
    """
    found = np.atleast_1d(as_numbers("edges", edges))
    if (
        found.ndim != 1
        or not found.size
        or not np.isfinite(found).all()
        or not (np.diff(found, prepend=0) > 0).all()
    ):
        raise ArgumentError(
            f"edges must be finite ends of bins of time, above 0 and rising, got {edges!r}.",
            parameters=["edges"],
        )
    return found


def labels_of(times: Any, events: Any, edges: Any) -> LabelArray:
    """Return the label of each row: 2 * bin, 1 more with its event; -1 without a usable time or event.

    Pass them as labels (`fit(X, y)`) where the clients of a federation are to be asked later.

    Args:
        times: of the rows, (n_rows,), in the unit of the edges.
        events: 1 or True where the event happened at this time, 0 where the row was last seen.
        edges: ends of the bins; public, and not to be found in the rows under differential privacy.
    """
    ends, times, events = checked_edges(edges), np.asarray(times, np.float64), np.asarray(events, np.float64)
    if times.ndim != 1 or times.shape != events.shape:
        raise ArgumentError(
            f"times and events must have one value a row, got shapes {times.shape} and {events.shape}.",
            parameters=["times", "events"],
        )
    found = 2 * np.searchsorted(ends, times) + (events * (times <= ends[-1]) == 1.0)
    return np.where((times >= 0.0) & ((events == 0.0) | (events == 1.0)), found, -1).astype(np.int64)


def survival(
    clients: Any,
    centers: Any,
    times: Any = None,
    events: Any = None,
    *,
    edges: Any,
    level: float = 0.95,
    privacy: Privacy | None = None,
    **options: Any,
) -> Survival:
    """Return the survival of the rows nearest to each center, from one sum.

    Args:
        clients: list of tables of shape (n_i, n_features); or a federation, or `ClientTables`, whose clients
            have the labels of `labels_of`. Centers of a fit with `scale=` are those of scaled rows.
        centers: (n_clusters, n_features).
        times: list of times of rows, one array a client (with `groups=` one array); None for labels.
        events: likewise, 1 where the event happened at this time, 0 where the row was last seen.
        edges: ends of the bins of time, (n_bins,), rising; public.
        level: of the pointwise intervals, in (0, 1).
        privacy: None, or a `privfed.Privacy` that is spent on this (for a list of tables only). Rows without
            a usable time or event are then not counted, and nothing says so.
        **options: `protocol`, `domain`, `policy`, `random_state`, `groups`, `client_names`, if `clients` is
            not a federation.

    Raises:
        ArgumentError: a parameter is out of its bounds.
        DataError: without differential privacy, rows have a time below 0 or none, or no event of 0 or 1.
    """
    check_number("level", level, "(0, 1)")
    check_kinds({"privacy": privacy})
    ends, checked = checked_edges(edges), checked_centers(centers)
    asked = AskedMetric.about(Contingency, checked, n_labels=2 * len(ends) + 1)
    whole = options.get("groups") is not None
    labels: Any = None
    if times is not None:
        each = [(times, events)] if whole else list(zip(times, events, strict=True))
        labels = [labels_of(*one, ends) for one in each]
    check_labels(clients, labels)
    held = clients.labels if labels is None and isinstance(clients, ClientTables) else labels
    if privacy is None and (odd := sum(int((one < 0).sum()) for one in held or ())):
        raise DataError(
            f"{odd} rows have a time that is below 0 or no number, or an event neither 1, it happened, nor "
            "0, it did not (--happened and --censored give its words); correct them, or leave them out."
        )
    labels = labels[0] if whole and labels else labels
    total, _, rows, std, claim = asked_once(clients, labels, asked, "survival", privacy=privacy, **options)
    return replace(of_counts(rows * total["table"], ends, level, rows * std["table"]), claim=claim)


def survival_of_columns(
    centers: Any,
    *,
    edges: Any,
    scale: tuple[float, float] = (0.0, 1.0),
    values: tuple[float, float] = (1.0, 0.0),
    level: float = 0.95,
    privacy: Privacy | None = None,
    **options: Any,
) -> Survival:
    """Return the survival of rows of an engine's clients, whose last two columns are time and event.

    Args:
        centers: (n_clusters, n_features), of the columns before those.
        edges: as for `survival`, in the unit of time.
        scale: what clients subtract of a time, and what they divide the rest by.
        values: of the last column where the event happened, and where the row was last seen then.
        level: as for `survival`.
        privacy: likewise; its domain is of the columns before the last two.
        **options: likewise, with `engine`.

    Raises:
        ArgumentError: a parameter is out of its bounds.
        RefusedError: the clients' policies do not allow it: they answer from groups, or did not approve it.

    Warns:
        UserWarning: rows have no usable time or event, and are not counted.
    """
    check_number("level", level, "(0, 1)")
    ends, checked = checked_edges(edges), checked_centers(centers)
    own = (np.r_[0.0, ends] - scale[0]) / scale[1]
    k, p = checked.shape
    whole = carrying(frozen_array(np.hstack([checked, np.zeros((k, 2))])), checked)
    words = dict(zip(("happened", "censored"), values, strict=True))
    asked = AskedMetric.about(ClusterTimes, whole, placing=p, edges=frozen_array(own[None]), **words)
    # What is beyond a domain is moved to it, and must not become usable there.
    far = [[2.0 * own[0] - own[-1], min(values) - 1.0], [2.0 * own[-1] - own[0], max(values) + 1.0]]
    privacy, options = wider(privacy, options, p, np.array(far))
    total, _, rows, noise, claim = asked_once(None, None, asked, "survival", privacy=privacy, **options)
    table, std = rows * total["table"].reshape(-1, k), rows * noise["table"]
    # Five standard deviations: of two, noise alone would warn in one of forty sound calls.
    if (odd := float(table[-1].sum())) > max(5.0 * std * np.sqrt(k), 0.5):
        warn(
            f"{odd:.0f} rows have a time below 0, or an event that is neither of the two values; they are "
            "not counted. Their owners correct them, or leave them out."
        )
    return replace(of_counts(table[:-1], ends, level, std), claim=claim)


def of_counts(table: FloatArray, edges: FloatArray, level: float = 0.95, std: float = 0.0) -> Survival:
    """Return the survival that counts by label and cluster say.

    Args:
        table: (2 * n_bins + 1, n_clusters), by the labels of `labels_of`.
        edges: ends of the bins.
        level: of the intervals.
        std: standard deviation of the noise of each count; 0 without.
    """
    table = table if std else np.rint(table)
    n_bins, events = len(edges), table[1::2]
    at_risk: FloatArray = np.cumsum(table[::-1], axis=0)[::-1][:-1:2]
    # At risk is a sum of the noised counts of all later labels.
    later: FloatArray = np.arange(2.0 * n_bins + 1.0, 1.0, -2.0)[:, None]
    known = np.logical_and.accumulate(at_risk > SURE * std * np.sqrt(later), axis=0)
    n, d = np.where(known, at_risk, 1.0), np.where(known, events, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        curves = np.asarray(np.cumprod(1.0 - d / n, axis=0))
        # Greenwood's sum is the derivative by the counts of all that are later, too.
        slope = np.cumsum(d / (n * (n - d)), axis=0)
        moved = np.cumsum(np.square(slope) + np.square(slope - 1.0 / (n - d)), axis=0)
        half = two_sided(level) * np.sqrt(
            np.maximum(slope, 0.0) + std**2 * (moved + (later - 2.0) * np.square(slope))
        )
        if std:
            fallen = [isotonic_regression(one, increasing=False).x for one in curves.T]
            curves = np.asarray(np.clip(np.stack(fallen, axis=1), 0.0, 1.0))
            low, high = curves * np.exp(-half), np.minimum(curves * np.exp(half), 1.0)
        else:
            low, high = (np.power(curves, np.exp(by * half / np.log(curves))) for by in (-1.0, 1.0))
            low, high = (np.where((curves == 0.0) | (curves == 1.0), curves, one) for one in (low, high))
    curves, low, high = (np.asarray(np.where(known, one, np.nan)) for one in (curves, low, high))
    statistic, df = _log_rank(table, at_risk, std, later)
    return Survival(
        edges,
        events,
        at_risk,
        table[-1],
        curves,
        low,
        high,
        level,
        statistic,
        df,
        p_value=float(chi2.sf(statistic, df)) if df else float("nan"),
    )


def _log_rank(table: FloatArray, at_risk: FloatArray, std: float, later: FloatArray) -> tuple[float, int]:
    """Return the statistic of the log-rank test of all clusters, and its degrees of freedom."""
    held = at_risk[0] > SURE * std * np.sqrt(later[0])
    n, d, k = at_risk[:, held], table[1::2][:, held], int(held.sum())
    if k < 2:
        return float("nan"), 0
    whole, happened = n.sum(axis=1), d.sum(axis=1)
    known = np.logical_and.accumulate(whole > SURE * std * np.sqrt(k * later[:, 0]))
    whole = np.where(known, whole, 1.0)
    happened, shares = happened * known, n / whole[:, None] * known[:, None]
    differ = (d * known[:, None] - happened[:, None] * shares).sum(axis=0)
    ties, one = happened * (whole - happened) / np.maximum(whole - 1.0, 1.0), np.eye(k)
    covariance = np.einsum("b,bi,ij->ij", ties, shares, one) - np.einsum("b,bi,bj->ij", ties, shares, shares)
    # Derivatives of `differ` by the counts of each bin and cluster: of all that are later, and of events.
    risk = -np.cumsum((happened / whole)[:, None, None] * (one - shares[:, :, None]), axis=0)
    event = risk + (one - shares[:, :, None]) * known[:, None, None]
    noise = sum(np.einsum("bim,bjm->ij", by, by) for by in (risk, event, risk[-1:]))
    return float(differ @ np.linalg.pinv(covariance + std**2 * noise, hermitian=True) @ differ), k - 1
