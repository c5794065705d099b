"""Private metrics with intervals of what their noise leaves open, from the released total alone.

An interval covers, with at least its level, the metric of the exact total: of the sums that the question
asked for, without noise. It says nothing of a population, or of clipping.

A quotient of two entries has Fieller's interval. An index that rises with each of several quotients or
entries lies between its values at their lower and upper ends, if all their intervals hold at once. They are
independent, so that each of n has the n-th root of the level (Sidak 1967). Such an interval is wider than its
level needs.

Exact entries are not negative. So a negative numerator counts as 0, nearer to whatever was exact, and an
interval never shrinks to nothing.

No interval is given of what is not such: of scatter, of a table of labels, of an index where a cluster may be
empty. A simulation from the released total would not cover there, as noise shifts such an index.

Reveals: what the metric reveals. An interval is post-processing, and spends nothing.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from inspect import signature
from typing import Any, cast

import numpy as np
from scipy.special import ndtri

from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import question_of
from privfed.core.values.domain import FloatArray, frozen_array
from privfed.core.values.numbers import as_numbers
from privfed.errors import ArgumentError
from privfed.federation.opening import federation_over
from privfed.metrics.functions import worst_ratios
from privfed.metrics.named import ASKS, METRICS, following
from privfed.numerics.quotients import quotients
from privfed.privacy.bounds import RecordBounded
from privfed.privacy.claim import Privacy
from privfed.privacy.noised import Noised
from privfed.questions.bounded.whole_clients import AsOneRecord
from privfed.questions.cluster_spread import ClusterDistances, FuzzySpread, index_from

Ends = tuple[float, float] | str

OF_A_QUOTIENT = {
    "mean_distance": ("distance", "count"),
    "score": ("inertia", "rows"),
    "simplified_silhouette": ("silhouette", "count"),
}
"""Metrics that are one entry's sum divided by another's. Of the silhouette this is the mean over all rows,
where a row that is alone in its cluster counts with its own."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A private metric, and the interval of its value without noise.

    Args:
        metric: its name.
        value: as the metric's function returns it.
        level: probability with which the interval covers, at least.
        low: lower end; None for no interval.
        high: upper end, likewise.
        no_interval: why there is none; empty if there is one.
    """

    metric: str
    value: float
    level: float
    low: float | None = None
    high: float | None = None
    no_interval: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types; what is infinite, as where centers coincide, is None."""
        plain = asdict(self)
        return {name: None if one in (math.inf, -math.inf) else one for name, one in plain.items()}

    def __str__(self) -> str:
        """Return it in words."""
        if self.low is None:
            return f"{self.metric} {self.value:.6g} (no interval: {self.no_interval})"
        return f"{self.metric} {self.value:.6g} ({self.level:.0%}: {self.low:.6g} to {self.high:.6g})"


def with_interval(
    metric: str,
    clients: Any,
    centers: Any,
    labels: Any = None,
    *,
    privacy: Privacy,
    level: float = 0.95,
    **options: Any,
) -> Estimate:
    """Ask a metric once under differential privacy, and return it with an interval.

    Args:
        metric: name of one of `privfed.metrics` that returns a number, such as "davies_bouldin".
        clients: list of tables of shape (n_i, n_features).
        centers: (n_clusters, n_features).
        labels: list of integer codes, one array a client, for a metric of labels.
        privacy: is spent on this metric; the interval spends nothing.
        level: probability with which the interval covers, in (0, 1).
        **options: those of the metric (`q`, `m`, `n_labels`); and `protocol`, `policy`, `random_state`,
            `groups`, `client_names`.

    Raises:
        ArgumentError: the metric is unknown, or a parameter is out of its bounds.
        UndefinedIndexError: noise hides the clusters.
    """
    if metric not in ASKS or metric not in METRICS or not isinstance(privacy, Privacy):
        raise ArgumentError(
            f"with_interval takes privacy=Privacy(...) and one of {', '.join(sorted({*ASKS} & {*METRICS}))}; "
            f"got metric={metric!r}, privacy={privacy!r}."
        )
    if not 0.0 < level < 1.0:
        raise ArgumentError(f"level must lie in (0, 1), got level={level!r}.", parameters=["level"])
    own = {name: options.pop(name) for name in signature(ASKS[metric]).parameters if name in options}
    checked = frozen_array(as_numbers("centers", centers))
    asked = replace(following(len(checked), {metric: own})[0], centers=checked)
    options |= {"privacy": privacy, "n_clusters": asked.n_clusters}
    federation = federation_over(clients, labels, metric=asked, **options)
    value = METRICS.find(metric)(federation, checked, **own)
    record, total = federation.transcript.totals()[-1]
    noised: Any = question_of(record)
    found = _ends(metric, noised, total.statistics, noised.noise_std(len(total.contributors)), level)
    if isinstance(found, str):
        return Estimate(metric, value, level, no_interval=found)
    return Estimate(metric, value, level, *found)


def _ends(metric: str, noised: Noised, total: Statistics, std: Any, level: float) -> Ends:
    """Return the interval's ends, given a noised total and its noise."""
    # At unit "client" sums are in units of a client of so many rows.
    rows, inner = 1.0, noised.inner
    if isinstance(inner, AsOneRecord):
        rows, inner = inner.rows, inner.inner
    if metric == "inertia":
        half = _z(level) * std["inertia"]
        found = rows * max(float(total["inertia"][0]), 0.0)
        return max(found - rows * half, 0.0), found + rows * half
    if metric in OF_A_QUOTIENT:
        above, below = OF_A_QUOTIENT[metric]
        most = cast(RecordBounded, inner).bounds[above].l2
        return _mean(total, std, above, below, _z(level), most)
    if isinstance(inner, ClusterDistances):
        return _davies_bouldin(inner, total, std, _z(level ** (1.0 / len(inner.centers))))
    if isinstance(inner, FuzzySpread):
        return _fuzzy(inner, total, std, _z(level ** (1.0 / (2 * len(inner.centers) + 1))))
    return "none is known that covers this metric"


def _z(level: float) -> float:
    return float(ndtri(0.5 + level / 2.0))


def _mean(total: Statistics, std: Any, above: str, below: str, z: float, most: float) -> Ends:
    s, c = (np.array([max(float(total[name].sum()), 0.0)]) for name in (above, below))
    s_error, c_error = (z * std[name] * np.sqrt(total[name].size) for name in (above, below))
    if c[0] <= c_error:
        return "its divisor may be 0"
    low, high = quotients(s, c, s_error, c_error, most)
    return max(float(low[0]), 0.0), float(high[0])


def _davies_bouldin(inner: ClusterDistances, total: Statistics, std: Any, z: float) -> Ends:
    if (total["count"] <= z * std["count"]).any():
        return "a cluster may have no rows, and would be left out"
    most = inner.farthest**inner.power
    distance = np.maximum(total["distance"], 0.0)
    ends = quotients(distance, total["count"], z * std["distance"], z * std["count"], most)
    spreads: list[FloatArray] = [np.maximum(end, 0.0) ** (1.0 / inner.power) for end in ends]
    low, high = (worst_ratios(spread, inner.centers, 2.0) for spread in spreads)
    return low, high


def _fuzzy(inner: FuzzySpread, total: Statistics, std: Any, z: float) -> Ends:
    if total["rows"][0] <= z * std["rows"]:
        return "its divisor may be 0"
    found = []
    for sign in (-1.0, 1.0):
        end = {
            name: np.maximum(np.maximum(total[name], 0.0) + sign * z * std[name], 0.0)
            for name in ("spread", "membership")
        }
        rows = total["rows"] - sign * z * std["rows"]
        found.append(index_from(Statistics(**end, rows=rows), inner.centers, 2.0, inner.q))
    return found[0], found[1]
