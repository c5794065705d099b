"""Private metrics with intervals of what their noise leaves open, from the released total alone.

An interval is for the metric of the exact total: of the sums that the question asked for, without noise. It
says nothing of a population, or of clipping.

A quotient of two entries has Fieller's interval. The fuzzy index rises with each of several entries. So it
lies between its values at their lower and upper ends, if all their intervals hold at once. They are
independent, so that each of n has the n-th root of the level (Sidak 1967): wider than the level needs.

Of the others noise is drawn, from the released total and its standard deviations alone:

- Davies-Bouldin is a mean of maxima. It differs from the exact one by at most the mean of the largest error,
  over the neighbours that may be the worst; these contain the worst one with the probability that is left
  out. So much is proven. A spread's error is drawn by Fieller's pivot: a standard normal gives the quotient
  that is so many standard deviations away. It is drawn at the noised spreads, in place of the exact ones.
- Calinski-Harabasz is a quotient of two scatters, which draws show to be normal and by how much noise shifts
  them. Where the scatter within may be 0 the upper end is infinite. If it is 0, as where each row lies on
  its center, the index is 1 by convention, which the interval of the quotient leaves out.

Both cover in measurements (docs/measurements/validity.md), and have no proof: 96.5 to 100 % of 200 draws
for Davies-Bouldin, at 1.1 to 2.2 times the width that 95 % of the values need, and 94.5 to 100 % for
Calinski-Harabasz, where most upper ends are infinite. An interval of all spreads at once, which is proven for
Davies-Bouldin, was 1.3 to 3.9 times too wide.

Exact entries are not negative, and an interval contains the value that the metric returns, so that it never
shrinks to nothing.

No interval is given of an index where a cluster may be empty.

Reveals: what the metric reveals. An interval is post-processing, and spends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from inspect import signature
from typing import Any, cast

import numpy as np
from scipy.special import ndtri

from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import question_of
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_number
from privfed.core.values.origin import radius_of
from privfed.errors import ArgumentError, UndefinedIndexError
from privfed.federation.opening import claim_of
from privfed.federation.request import protocol_of
from privfed.metrics.functions import check_labels, checked_centers, opened
from privfed.metrics.named import ASKS, METRICS, OF_LABELS, OF_TWO, following
from privfed.numerics.quotients import quotients
from privfed.privacy.bounds import RecordBounded
from privfed.privacy.claim import Privacy, PrivacySpent, one_line
from privfed.privacy.noised import Noised
from privfed.questions.bounded.client_shares import AsOneRecord
from privfed.questions.cluster_spread import ClusterDistances, ClusterScatter, scatters
from privfed.questions.fuzzy_spread import FuzzySpread, index_from
from privfed.questions.lloyd import agreement

Ends = tuple[float, float] | str

DRAWS = 1000
"""How often the noise of a released total is drawn."""

_SEED = 0
"""From which noise of a released total is drawn: an interval repeats."""

_EMPTY = "a cluster may have no rows, and would be left out"

_NO_INTERVAL = {
    "clients_per_cluster": "has no bound under differential privacy",
    "knowledge_gap": "compares centers and asks nobody, so that it has no noise",
    "labels_agreement": "is several scores, each of which has its own",
    "profiles": "returns the intervals of its own numbers",
}
"""Why functions of `privfed.metrics` have no interval."""

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
        level: probability with which the interval covers, at least; for `davies_bouldin` and
            `calinski_harabasz` that is measured, not proven.
        low: lower end; None for no interval.
        high: upper end, likewise; infinite where noise leaves no bound.
        no_interval: why there is none; empty if there is one.
        radius: length to which rows' offsets from their nearest center were clipped, so that value and
            interval are of clipped rows; None for rows as they are.
        claim: of what the metric was asked under.
    """

    metric: str
    value: float
    level: float
    low: float | None = None
    high: float | None = None
    no_interval: str = ""
    radius: float | None = None
    claim: PrivacySpent | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types; what is infinite, as where centers coincide, is None."""
        plain = asdict(replace(self, claim=None))
        found = {name: None if one in (math.inf, -math.inf) else one for name, one in plain.items()}
        return found | {"claim": None if self.claim is None else self.claim.to_dict()}

    def __str__(self) -> str:
        """Return it in words."""
        of = "" if self.radius is None else f" of rows clipped at {self.radius:.3g} from their center"
        if self.low is None:
            return f"{self.metric}{of} {self.value:.6g} (no interval: {self.no_interval})"
        return f"{self.metric}{of} {self.value:.6g} ({self.level:.0%}: {self.low:.6g} to {self.high:.6g})"


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
        **options: those of the metric (`q`, `m`, `n_labels`); `radius`, at which rows are clipped, None for
            none, by default that of the centers of a private fit; and `protocol`, `policy`,
            `random_state`, `groups`, `client_names`.

    Raises:
        ArgumentError: the metric is unknown, or a parameter is out of its bounds.
        UndefinedIndexError: noise hides the clusters.
    """
    return with_intervals((metric,), clients, centers, labels, privacy=privacy, level=level, **options)[0]


def with_intervals(
    metrics: Sequence[str],
    clients: Any,
    centers: Any,
    labels: Any = None,
    *,
    privacy: Privacy,
    level: float = 0.95,
    **options: Any,
) -> list[Estimate]:
    """Ask one metric, or several scores of labels at once, and return each, with an interval if there is one.

    All scores of labels follow from one table, so that together they cost what one does. Arguments and errors
    are those of `with_interval`; `metrics` are one name, or several of `OF_LABELS`.
    """
    known = sorted({*ASKS} & {*METRICS})
    several = len(metrics) > 1 and not set(metrics) <= set(OF_LABELS)
    if not metrics or several or not set(metrics) <= set(known) or not isinstance(privacy, Privacy):
        why = [
            f"{one} {_NO_INTERVAL.get(one, 'is none of which the effect of noise is known')}"
            for one in map(str, metrics)
            if one not in known
        ]
        raise ArgumentError(
            f"with_interval takes privacy=Privacy(...) and one of {', '.join(known)}, or several scores of "
            f"labels; got {', '.join(map(repr, metrics))}, privacy={privacy!r}."
            + f" No interval: {'; '.join(why)}."
            * bool(why)
        )
    check_number("level", level, "(0, 1)")
    first = metrics[0]
    own = {name: options.pop(name) for name in signature(ASKS[first]).parameters if name in options}
    checked = checked_centers(centers, 2 if first in OF_TWO else 1)
    radius = options.pop("radius", radius_of(centers))
    asked = replace(following(len(checked), {first: own})[0], centers=checked, radius=radius)
    if first in OF_LABELS:
        check_labels(clients, labels)
    federation, _ = opened(clients, labels, privacy, options, asked)
    claim = partial(claim_of, federation, protocol_of(options.get("protocol", "masked")))
    try:
        values = {first: METRICS.find(first)(federation, checked, radius=radius, **own)}
    except UndefinedIndexError as error:
        error.add_note(f"It was asked under the claim: {one_line(claim())}.")
        raise
    record, total = federation.transcript.totals()[-1]
    noised: Any = question_of(record)
    for name in metrics[1:]:
        rows = unit_of(noised.inner)[0] * np.maximum(total.statistics["table"], 0.0)
        values[name] = asdict(agreement(rows))[name]
    std = noised.noise_std(len(total.contributors))
    estimates = []
    for name, value in values.items():
        ends = _ends(name, noised, total.statistics, std, level, np.random.default_rng(_SEED))
        found = Estimate(name, value, level, radius=asked.limits.get("radius"), claim=claim())
        if isinstance(ends, str):
            estimates.append(replace(found, no_interval=ends))
        else:
            estimates.append(replace(found, low=min(ends[0], value), high=max(ends[1], value)))
    return estimates


def two_sided(level: float) -> float:
    """Return how many standard deviations a normal variable is within, with a probability."""
    return float(ndtri(0.5 + level / 2.0))


def _ends(
    metric: str, noised: Noised, total: Statistics, std: Any, level: float, rng: np.random.Generator
) -> Ends:
    """Return the interval's ends, given a noised total and its noise; `rng` draws what is simulated."""
    rows, inner = unit_of(noised.inner)
    if metric == "inertia":
        half, found = two_sided(level) * std["inertia"], rows * max(float(total["inertia"][0]), 0.0)
        return max(found - rows * half, 0.0), found + rows * half
    if metric in OF_A_QUOTIENT:
        above, below = OF_A_QUOTIENT[metric]
        return _mean(total, std, above, below, two_sided(level), cast(RecordBounded, inner).bounds[above].l2)
    if isinstance(inner, ClusterDistances):
        return _davies_bouldin(inner, total, std, level, rng)
    if isinstance(inner, ClusterScatter):
        return _calinski_harabasz(inner, rows, total, std, level, rng)
    if isinstance(inner, FuzzySpread):
        return _fuzzy(inner, total, std, two_sided(level ** (1.0 / (2 * len(inner.centers) + 1))))
    return "of a score of labels none is proven"


def unit_of(asked: Any) -> tuple[float, Any]:
    """Return of how many rows the unit of a question's sums is, and the question about rows.

    At unit "client" it is a client of so many rows.
    """
    return (asked.rows, asked.inner) if isinstance(asked, AsOneRecord) else (1.0, asked)


def _mean(total: Statistics, std: Any, above: str, below: str, z: float, most: float) -> Ends:
    s, c = (np.array([max(float(total[name].sum()), 0.0)]) for name in (above, below))
    s_error, c_error = (z * std[name] * np.sqrt(total[name].size) for name in (above, below))
    if c[0] <= c_error:
        return "its divisor may be 0"
    low, high = quotients(s, c, s_error, c_error, most)
    return max(float(low[0]), 0.0), float(high[0])


def _davies_bouldin(
    inner: ClusterDistances, total: Statistics, std: Any, level: float, rng: np.random.Generator
) -> Ends:
    k, most, centers = len(inner.centers), inner.farthest**inner.power, inner.centers
    apart = np.linalg.norm(centers[:, None] - centers[None], axis=-1)
    np.fill_diagonal(apart, np.inf)
    # A tenth of what may fail is for the neighbours that are left out.
    left_out = (1.0 - level) / 10.0
    z = np.full(k, two_sided((1.0 - left_out) ** (1.0 / k)))
    if (total["count"] <= z * std["count"]).any():
        return _EMPTY
    if not apart.all():
        return "two centers coincide"

    def spreads(at: FloatArray) -> FloatArray:
        """Return the spreads that are so many standard deviations of their noise below the noised ones."""
        errors = np.abs(at) * std["distance"], np.abs(at) * std["count"]
        low, high = quotients(total["distance"], total["count"], *errors, most)
        found = np.where(at > 0.0, low, high)
        return np.sign(found) * np.abs(found) ** (1.0 / inner.power)

    def similar(spread: FloatArray) -> FloatArray:
        return np.asarray((spread[:, None] + spread) / apart)

    low, high = (similar(np.maximum(spreads(at), 0.0)) for at in (z, -z))
    worst = (high >= low.max(axis=1, keepdims=True)) & np.isfinite(apart)
    middle, drawn = spreads(np.zeros(k)), np.empty((2, DRAWS))
    for i, error in enumerate(spreads(rng.standard_normal((DRAWS, k))) - middle):
        both = (np.where(worst, similar(one), -np.inf) for one in (-error, error))
        drawn[:, i] = [one.max(axis=1).mean() for one in both]
    found = float(similar(middle).max(axis=1).mean())
    below, above = np.quantile(drawn, 1.0 - (1.0 - level - left_out) / 2.0, axis=1)
    return max(found - float(below), 0.0), found + float(above)


def _calinski_harabasz(
    inner: ClusterScatter, rows: float, total: Statistics, std: Any, level: float, rng: np.random.Generator
) -> Ends:
    if (total["count"] <= two_sided(level ** (1.0 / len(inner.centers))) * std["count"]).any():
        return _EMPTY
    names = ("count", "offset", "square")

    def drawn(scale: float) -> tuple[float, float]:
        noisy = [total[one] + scale * std[one] * rng.standard_normal(total[one].shape) for one in names]
        noisy[0] = np.maximum(noisy[0], std["count"])
        return scatters(rows * noisy[0], rows * noisy[1], rows * noisy[2], inner.centers)

    draws, z = np.array([drawn(1.0) for _ in range(DRAWS)]), two_sided(level)
    # Noise shifts both scatters, which are quadratic, by as much again as in the draws.
    above, below = 2.0 * np.array(drawn(0.0)) - draws.mean(axis=0)
    (aa, ab), (_, bb) = z**2 * np.cov(draws, rowvar=False)
    a, b, c = below**2 - bb, above * below - ab, above**2 - aa
    root = np.sqrt(max(b**2 - a * c, 0.0))
    return float(c / (b + root) if c > 0.0 and b + root > 0.0 else 0.0), float(
        (b + root) / a
    ) if a > 0.0 and below > 0.0 else math.inf


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
