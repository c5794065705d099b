"""What rows of each cluster are like in columns by which no cluster was found: the questions, and their sums.

The first columns of a table place a row at its nearest center; the others are told of beside them. Public
edges cut each of these into bins, and a value below the first edge stands for a missing one. One sum has the
rows of each cluster, how many of them lie in each bin of each column, and sums of offsets and of their
squares. A row adds 1 to one cluster and to one bin of a column, and offsets whose lengths the edges bound.
These are truncated to a millionth of the length: means and deviations are within about a millionth of the
edges' width.

`ClusterTimes` counts events and censored rows by cluster and bin of time (`privfed.tables.outcomes`), from
two columns. Means of groups have no such times: clients refuse it that answer from groups.

Reveals to whoever opens the totals, over all clients: these counts and sums. A bin can hold a single row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.agreed.program import from_agreed
from privfed.core.asking.declaration import STEP, Declaration, Effort
from privfed.core.asking.question import register
from privfed.core.asking.statistics import Statistics, StatisticsSpec
from privfed.core.record.records import question_of
from privfed.core.values.domain import Box, FloatArray, frozen_array
from privfed.core.values.numbers import LEAST_BOUND, as_numbers, check_number, check_whole
from privfed.core.values.origin import carrying, origin_of, released, scaled_of
from privfed.data.table import ClientTables, marked
from privfed.errors import ArgumentError
from privfed.federation.clients import table_of
from privfed.federation.driver import Federation
from privfed.federation.opening import claim_of
from privfed.federation.passed import as_passed, is_client_list, is_named
from privfed.federation.request import protocol_of
from privfed.metrics.asked import AskedMetric
from privfed.metrics.functions import checked_centers, opened
from privfed.metrics.intervals import two_sided, unit_of
from privfed.metrics.profiles import Profiles, as_columns, noised_profiles
from privfed.numerics.kernels.dispatch import assign
from privfed.numerics.kernels.interpreted import IntArray
from privfed.privacy.bounds import (
    HAIR,
    MOST_SHARED,
    Bound,
    RecordBounded,
    bounded_spec,
    check_sizes,
    counted,
    in_cells,
    nonnegative,
)
from privfed.privacy.claim import Privacy, PrivacySpent
from privfed.privacy.contributions import Contribution
from privfed.privacy.noised import Noised
from privfed.questions.cluster_spread import moments_of
from privfed.questions.histograms import check_edges
from privfed.questions.lloyd import check_centers


@dataclass(frozen=True, kw_only=True, eq=False)
class Beside(RecordBounded):
    """Questions about the rows nearest to each center, in columns that place none of them.

    Args:
        centers: float64 of shape (n_clusters, n_features); in the columns that place no row the same in all
            clusters, the point from which offsets are taken.
        placing: number of columns that place rows, the first ones.
        edges: of the bins, ascending, float64 of shape (n_columns, n_edges); a column with fewer bins repeats
            its last edge.
    """

    centers: FloatArray
    placing: int
    edges: FloatArray

    def __post_init__(self) -> None:
        check_centers(self.centers, self.ranges)
        check_sizes("centers", self.centers)
        check_sizes("ranges", self.ranges.low, self.ranges.high)
        check_whole("n_centers", len(self.centers), 1, MOST_SHARED)
        check_whole("placing", self.placing, 1, self.ranges.n_features - 1)

    def placed(self, rows: FloatArray) -> IntArray:
        """Return the cluster of each row."""
        places = np.ascontiguousarray(rows[:, : self.placing])
        return assign(places, np.ascontiguousarray(self.centers[:, : self.placing]))


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterColumns(Beside):
    """Ask what the other columns are like in each cluster.

    Statistics: `count` (n_clusters,); `column_0`, `column_1`, ..., each (n_clusters * (n_edges + 1),), rows
    of a cluster below the first edge, in each bin, and above the last; `offset` and `square`, each
    (n_clusters, n_columns), the sums of offsets from the centers, divided by `units`, and of their squares,
    of rows from the first edge on. A value above the last edge is moved to it.

    Args:
        gaps: whether a missing value stands below the first edge (`gaps_below`). Means of groups have no such
            values: clients refuse it that answer from groups.
    """

    gaps: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_edges(self.edges, self.ranges.n_features - self.placing)
        check_sizes("offsets in units of widths", self.units, 1.0 / self.units)

    @property
    def declaration(self) -> Declaration:
        """Clusters and each column's bins count rows."""
        return Declaration(("count", *self.names), (self.centers,), singly=self.gaps)

    def effort(self, n_features: int) -> Effort:
        """Each column has an entry of its own, which takes far more than its bins."""
        return Effort(numbers=STEP * n_features, work=8 * STEP * n_features, row_work=64 * n_features)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the entries of counts, one a column."""
        return tuple(f"column_{j}" for j in range(len(self.edges)))

    @property
    def units(self) -> FloatArray:
        """Longest offset in each column, float64 of shape (n_columns,)."""
        ends = np.abs(self.edges[:, [0, -1]] - self.centers[:1, self.placing :].T)
        return np.asarray(np.maximum(ends.max(axis=1), LEAST_BOUND))

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """A count in one bin of each column; offsets of at most 1 in each column, and their squares."""
        length = float(np.sqrt(len(self.edges)))
        own = {"offset": in_cells(length), "square": nonnegative(length)}
        return dict.fromkeys(("count", *self.names), counted()) | own

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Counts and sums of at most the rows of a client."""
        k, (m, n_edges) = len(self.centers), self.edges.shape
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(self.names, (k * (n_edges + 1),))
        limits = {name: bound.l2 for name, bound in self.bounds.items()}
        shapes |= {"count": (k,), "offset": (k, m), "square": (k, m)}
        return bounded_spec(limits, shapes, self.ranges.rows, signed=("offset",))

    def contributions(self, rows: FloatArray, labels: IntArray) -> Mapping[str, Contribution]:
        """Return each row's bin of each column in its cluster, its offsets, and their squares."""
        cells, own, found = self.placed(rows), rows[:, self.placing :], dict[str, Contribution]()
        for name, edges, values in zip(self.names, self.edges, own.T, strict=True):
            bins = np.searchsorted(edges, values, side="right")
            # The last edge belongs to the bin before it.
            bins[values == edges[-1]] = np.searchsorted(edges, edges[-1])
            found[name] = Contribution(cells=cells * (len(edges) + 1) + bins)
        inside = np.minimum(own, self.edges[:, -1]) - self.centers[0, self.placing :]
        offsets = np.where(own < self.edges[:, 0], 0.0, HAIR * np.clip(inside / self.units, -1.0, 1.0))
        return found | {
            "count": Contribution(cells=cells),
            "offset": Contribution(offsets, cells),
            "square": Contribution(np.square(offsets), cells),
        }


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterTimes(Beside):
    """Ask how many rows had their event, or were last seen, in each bin of time, from the last two columns.

    Statistics: `table` ((2 * n_bins + 2) * n_clusters,): by the labels of `privfed.tables.outcomes`, and last
    the rows whose time or event cannot be used.

    Args:
        edges: (1, n_bins + 1), the first is time 0.
        happened: value of the last column of a row with its event.
        censored: its value of a row that was last seen then.
    """

    happened: float = 1.0
    censored: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_edges(self.edges, 1)
        check_whole("placing", self.placing, self.ranges.n_features - 2, self.ranges.n_features - 2)

    @property
    def declaration(self) -> Declaration:
        """A row is counted once, from single rows."""
        return Declaration(("table",), (self.centers,), singly=True)

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """The bound of a count in one cell."""
        return {"table": counted()}

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Counts of at most the rows of a client."""
        size = 2 * self.edges.shape[1] * len(self.centers)
        return bounded_spec({"table": 1.0}, {"table": (size,)}, self.ranges.rows)

    def contributions(self, rows: FloatArray, labels: IntArray) -> Mapping[str, Contribution]:
        """Return the cell of each row's time and event, and its cluster."""
        (zero, *ends), (times, events) = self.edges[0], rows[:, self.placing :].T
        happened = events == self.happened
        usable = (times >= zero) & (happened | (events == self.censored))
        label = 2 * np.searchsorted(ends, times) + (happened & (times <= ends[-1]))
        label = np.where(usable, label, 2 * len(ends) + 1)
        return {"table": Contribution(cells=label * len(self.centers) + self.placed(rows))}


QUARTILES = (0.25, 0.5, 0.75)
_NO_NOISE: Mapping[str, float] = defaultdict(float)


def columns_by_cluster(
    clients: Any,
    centers: Any,
    *,
    edges: Sequence[Any],
    gaps: bool = True,
    privacy: Privacy | None = None,
    level: float = 0.95,
    **options: Any,
) -> Profiles:
    """Return what columns are like in each cluster by which no cluster was found, from one sum.

    Args:
        clients: list of tables, (n_i, n_placing + n_columns), or `ClientTables`: the first columns are those
            of the centers, and NaN in the others is a missing value. Or a federation, or None with `engine=`,
            whose clients have numbers below the first edge for missing values.
        centers: (n_clusters, n_placing). Those of a fit with `scale=` are of scaled rows, and rows that are
            not are refused where that is known: give `np.hstack([scaling_.scaled(first), others])`.
        edges: of the bins of each of the other columns, a list of rising numbers: 2 to 65, public. Values
            above the last edge count as if they were there.
        gaps: whether missing values are counted, which takes single rows: give False for clients that answer
            from groups of rows.
        privacy: None, or a `privfed.Privacy` that is spent on this; its domain is of the first columns.
        level: with which each interval covers, in (0, 1).
        **options: `protocol`, `domain`, `policy`, `random_state`, `client_names`, `engine`, `run_dir`, if
            `clients` is not a federation.

    Returns:
        Profiles of the other columns alone; means and spreads are of rows with a value.

    Raises:
        ArgumentError: a parameter is out of its bounds.
        PrivacyError: privacy is claimed, and a form or a budget does not allow it.
    """
    check_number("level", level, "(0, 1)")
    if gaps and isinstance(policy := options.get("policy"), ClientPolicy) and policy.group_size > 1:
        raise ArgumentError(
            "means of groups have no missing values: give gaps=False and rows without any, or no group_size.",
            parameters=["gaps"],
        )
    known, checked = rising(edges), checked_centers(centers)
    k, p = checked.shape
    middle = (known[:, 0] + known[:, -1]) / 2.0
    whole = released(
        frozen_array(np.hstack([checked, np.tile(middle, (k, 1))])),
        origin_of(checked),
        scaled=scaled_of(checked),
    )
    asked = AskedMetric.about(ClusterColumns, whole, placing=p, edges=known, gaps=gaps)
    gap = gaps_below(known)
    if isinstance(clients, ClientTables) and gaps:
        own = (replace(one, features=marked(one.features, gap)) for one in clients.tables)
        clients = replace(clients, tables=tuple(own))
    elif gaps and (is_named(clients) or is_client_list(clients)):
        tables, _, _, options["client_names"] = as_passed(clients, names=options.get("client_names"))
        # What tables carry goes on: where they come from, and that a fit scaled them.
        clients = [
            released(marked(table_of(one, str(i)), gap), origin_of(one), scaled=scaled_of(one))
            for i, one in enumerate(tables)
        ]
    privacy, options = wider(privacy, options, p, np.stack([gap, 2.0 * known[:, -1] - known[:, 0]]))
    total, inner, rows, std, claim = asked_once(clients, None, asked, "profile", privacy=privacy, **options)
    units = {"count": 1.0, "offset": inner.units, "square": np.square(inner.units)}
    bins = np.stack([rows * total[name].reshape(k, -1) for name in inner.names], axis=1)
    signed = {name: rows * as_columns(total[name]) * one for name, one in units.items()}
    sizes, below = signed["count"], bins[:, :, 0]
    signed["count"] = sizes - below
    error = {name: rows * std[name] * one for name, one in units.items()}
    error["count"] = np.hypot(error["count"], rows * np.array([std[name] for name in inner.names]))
    if std is not _NO_NOISE:
        ends = np.tile(known[:, 0], (k, 1)), np.tile(known[:, -1], (k, 1))
        found = replace(noised_profiles(signed, error, whole[:, p:], ends, inner.units, level), claim=claim)
    else:
        means, variances, mean, spread = moments_of(signed, whole[:, p:])
        empty = np.where(signed["count"] > 0.0, 0.0, np.nan)
        found = Profiles(sizes, means + empty, np.sqrt(variances) + empty, mean, np.sqrt(spread))
    # Of a column that is always missing that share is known.
    lost = np.clip(below / np.where(sizes > 0.0, sizes, 1.0), 0.0, 1.0)
    lost += np.where(sizes > two_sided(level) * rows * std["count"], 0.0, np.nan)
    return replace(
        found,
        sizes=np.maximum(sizes, 0.0)[:, 0],
        missing=lost if gaps else None,
        # What noise hides has no mean either.
        quartiles=_quartiles(bins[:, :, 1:], known) + found.means * 0.0,
        low=_sized(found.low, sizes, -two_sided(level) * rows * std["count"]),
        high=_sized(found.high, sizes, two_sided(level) * rows * std["count"]),
    )


def asked_once(
    clients: Any, labels: Any, asked: AskedMetric, purpose: str, *, privacy: Privacy | None, **options: Any
) -> tuple[Statistics, Any, float, Mapping[str, float], PrivacySpent | None]:
    """Ask clients once about centers, and return the total with what is known of its noise.

    Args:
        clients: list of tables, `ClientTables`, a federation, or None with `engine=`.
        labels: of their rows; None where clients have them, or none are counted.
        asked: what is asked.
        purpose: what the total is for, in a word.
        privacy: None, or what is spent.
        **options: as for `columns_by_cluster`.

    Returns:
        The total, the question before it had noise, the rows that a unit of the total stands for, the
        standard deviation of each entry's noise in the total's units, and what is claimed.
    """
    if not isinstance(clients, Federation):
        options["purpose"] = purpose
    federation, asked = opened(clients, labels, privacy, options, asked)
    federation.measure(asked, purpose)
    record, total = federation.transcript.totals()[-1]
    question: Any = question_of(record)
    claim = claim_of(federation, protocol_of(options.get("protocol", "masked")))
    if not isinstance(question, Noised):
        return total.statistics, question, 1.0, _NO_NOISE, claim
    rows, inner = unit_of(question.inner)
    return total.statistics, inner, rows, question.noise_std(len(total.contributors)), claim


def _sized(ends: Profiles | None, sizes: FloatArray, by: float) -> Profiles | None:
    """Return ends of intervals, with those of sizes."""
    return ends and replace(ends, sizes=np.maximum(sizes[:, 0] + by, 0.0))


def rising(edges: Sequence[Any]) -> FloatArray:
    """Return edges of several columns in one table, (n_columns, n_edges); the last ones are repeated.

    Raises:
        ArgumentError: they are no lists of rising numbers.
    """
    each = [np.atleast_1d(as_numbers("edges", one)) for one in edges]
    if not each or any(one.ndim != 1 or len(one) < 2 for one in each):
        raise ArgumentError("edges must be a list of rising numbers for each column.", parameters=["edges"])
    most = max(map(len, each))
    found = frozen_array(np.stack([np.append(one, np.full(most - len(one), one[-1])) for one in each]))
    check_edges(found, len(found))
    return found


def wider(
    privacy: Privacy | None, options: dict[str, Any], placing: int, ends: FloatArray
) -> tuple[Privacy | None, dict[str, Any]]:
    """Return a claim and options whose domain, of the columns that place rows, has further columns' ends."""
    declared = options.pop("domain", None) if privacy is None else privacy.domain
    if declared is None:
        return privacy, options
    both = zip(declared.bounds(placing), ends, strict=True)
    low, high = (carrying(np.concatenate(one), one[0]) for one in both)
    box = Box(low, high, max_rows=declared.max_rows)
    return (None, options | {"domain": box}) if privacy is None else (replace(privacy, domain=box), options)


def gaps_below(edges: FloatArray) -> FloatArray:
    """Return the numbers that stand for missing values, (n_columns,), below edges (n_columns, n_edges)."""
    return np.asarray(2.0 * edges[:, 0] - edges[:, -1])


def gaps_in(configuration: Configuration) -> FloatArray:
    """Return what stands for missing values of the last columns, where only their count is agreed."""
    agreed = configuration.program
    metrics = [] if agreed is None or agreed.algorithm else list(map(from_agreed, agreed.metrics))
    if len(metrics) == 1 and metrics[0].kind is ClusterColumns and metrics[0].options.get("gaps", True):
        return gaps_below(np.asarray(metrics[0].options["edges"]))
    return np.empty(0)


def _quartiles(bins: FloatArray, edges: FloatArray) -> FloatArray:
    """Return the quartiles that counts say, (3, n_clusters, n_columns).

    Args:
        bins: rows from the first edge on and above the last one, (n_clusters, n_columns, n_edges).
        edges: (n_columns, n_edges).
    """
    inside = np.concatenate([bins[..., :-2], bins[..., -2:].sum(axis=2, keepdims=True)], axis=2)
    found = np.full((len(QUARTILES), *inside.shape[:2]), np.nan)
    for i, j in np.ndindex(*inside.shape[:2]):
        # Noised counts may be below 0: the nearest sums that do not fall.
        rising_sums = np.r_[0.0, isotonic_regression(np.cumsum(inside[i, j])).x.clip(min=0.0)]
        found[:, i, j] = np.interp(np.array(QUARTILES) * rising_sums[-1], rising_sums, edges[j])
    return found
