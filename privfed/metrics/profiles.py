"""What clusters are: the size of each, and the mean and spread of each column in it, from one sum.

Under differential privacy counts, offsets from the centers and their squares are noised, and rows are clipped
to the declared domain, or to a radius around their center (`privfed.metrics.functions`). The interval of a
mean is Fieller's of a quotient of two noised sums. That of a variance is of a difference: of the mean square,
and the square of the mean, which hold together with the level at least (Bonferroni). Intervals are of what
the sums would say without noise; of rows as they are only where none is clipped.

Reveals: what `privfed.questions.cluster_spread` says of `ClusterProfiles` and `ClusterClients`. The profile
of a cluster of few rows is nearly these rows: ask groups of rows (`ClientPolicy.group_size`) where clusters
may be small. Under differential privacy it reveals the same with noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from privfed.core.record.records import question_of
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_number
from privfed.core.values.shown import as_table
from privfed.federation.opening import claim_of
from privfed.federation.request import protocol_of
from privfed.metrics.asked import AskedMetric
from privfed.metrics.functions import checked_centers, measured, opened
from privfed.metrics.intervals import two_sided, unit_of
from privfed.numerics.quotients import quotients
from privfed.privacy.claim import Privacy, PrivacySpent, one_line
from privfed.privacy.noised import Noised
from privfed.questions.cluster_spread import ClusterClients, ClusterProfiles, moments_of
from privfed.questions.lloyd import LEAST_ROWS


@dataclass(frozen=True)
class Profiles:
    """Sizes, means and spreads of clusters, and of all rows.

    Args:
        sizes: rows nearest to each center, float64 of shape (n_clusters,).
        means: mean of each column, float64 of shape (n_clusters, n_features); NaN without rows.
        stds: standard deviation of each column, likewise.
        mean: mean of each column over all rows, float64 of shape (n_features,).
        std: its standard deviation, likewise.
        clients: how many clients have rows in each cluster (`clients_per_cluster`), float64 of shape
            (n_clusters,); None where nobody was asked.
        missing: share of each cluster's rows without a value in each column, (n_clusters, n_features); None
            where values are known of all (only `privfed.tables.columns_by_cluster` tells them apart).
        quartiles: the three of each column in each cluster, (3, n_clusters, n_features), to the width of the
            bins that they were found in; None likewise.
        low: under differential privacy the lower ends of the intervals of all these; NaN where there is none,
            as over all rows. Means, spreads and their ends are NaN where noise hides whether a cluster, or
            all together, have rows.
        high: the upper ends.
        level: with which each interval covers, at least.
        radius: length to which rows' offsets from their center were clipped; None for rows of the domain.
        claim: of what was asked; None without differential privacy.
    """

    sizes: FloatArray
    means: FloatArray
    stds: FloatArray
    mean: FloatArray
    std: FloatArray
    clients: FloatArray | None = None
    missing: FloatArray | None = None
    quartiles: FloatArray | None = None
    low: Profiles | None = None
    high: Profiles | None = None
    level: float | None = None
    radius: float | None = None
    claim: PrivacySpent | None = None

    _repr_html_ = as_table(
        lambda self: [
            ("cluster", "rows", *(f"column {place}, mean and deviation" for place in range(len(self.mean)))),
            *(
                (
                    name,
                    f"{size:.6g}",
                    *(f"{mean:.4g} ± {std:.3g}" for mean, std in zip(means, stds, strict=True)),
                )
                for name, size, means, stds in zip(
                    [*range(len(self.sizes)), "all"],
                    [*self.sizes, self.sizes.sum()],
                    [*self.means, self.mean],
                    [*self.stds, self.std],
                    strict=True,
                )
            ),
            *([("claim", one_line(self.claim))] if self.claim is not None else []),
        ]
    )

    @property
    def apart(self) -> FloatArray:
        """How far a mean lies from that of all rows, in their standard deviations, (n_clusters, n_features).

        It is 0 for a column that does not vary, and NaN where noise hides one of the two means.
        """
        unit = np.where(self.std == 0.0, np.inf, self.std)
        return np.asarray((self.means - self.mean) / unit + 0.0)

    def mapped(self, shift: FloatArray, scale: FloatArray) -> Profiles:
        """Return the profiles of rows `row * scale + shift`, such as those before rows were scaled."""
        means, mean = self.means * scale + shift, self.mean * scale + shift
        stds, std = self.stds * np.abs(scale), self.std * np.abs(scale)
        low, high = (one and one.mapped(shift, scale) for one in (self.low, self.high))
        own = None if self.quartiles is None else self.quartiles * scale + shift
        return replace(self, means=means, stds=stds, mean=mean, std=std, low=low, high=high, quartiles=own)

    def to_dict(self) -> dict[str, Any]:
        """Return them as JSON types; what is of no rows is None."""
        return {
            name: one.to_dict()
            if isinstance(one, Profiles | PrivacySpent)
            else plain(np.asarray(one).tolist())
            for name, one in vars(self).items()
            if one is not None
        }

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Profiles:
        """Read what `to_dict` wrote."""
        read: dict[str, Callable[[Any], Any]] = {
            **dict.fromkeys(("low", "high"), cls.from_dict),
            **dict.fromkeys(("level", "radius"), float),
            "claim": PrivacySpent.from_dict,
        }
        return cls(
            **{name: read.get(name, partial(np.array, dtype=float))(one) for name, one in plain.items()}
        )


def plain(value: Any) -> Any:
    """Return numbers, or lists of them, as JSON has them: what is not finite is None."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value if np.isfinite(value) else None


def profiles(
    clients: Any, centers: Any, *, privacy: Privacy | None = None, level: float = 0.95, **options: Any
) -> Profiles:
    """Return size, means and spreads of the rows nearest to each center.

    Args:
        clients: list of tables of shape (n_i, n_features), or a federation. Centers of a fit with `scale=`
            are those of scaled rows, and rows that are not are refused where that is known: give
            `scaling_.scaled(rows)`. `Profiles.mapped` gives the columns' units.
        centers: (n_clusters, n_features).
        privacy: None, or a `privfed.Privacy` that is spent on these (for a list of tables only).
        level: with which each interval covers, in (0, 1).
        **options: `radius` (`privfed.metrics.functions`); and `protocol`, `domain`, `policy`, `random_state`,
            `groups`, `client_names`, if `clients` is not a federation.

    Raises:
        ArgumentError: a parameter is out of its bounds, or the rows were not scaled as the centers were.
        PrivacyError: the federation has spent its budget. `intervals()` of a private fit has sizes and means,
            for no budget.
    """
    check_number("level", level, "(0, 1)")
    checked = checked_centers(centers)
    asked = AskedMetric.about(ClusterProfiles, checked)
    federation, asked = opened(clients, None, privacy, options, asked)
    total: dict[str, FloatArray] = dict(federation.measure(asked, "profile"))
    record, released = federation.transcript.totals()[-1]
    noised: Any = question_of(record)
    if not isinstance(noised, Noised):
        means, variances, mean, whole = moments_of(total, checked)
        empty = np.where((total["count"] > LEAST_ROWS)[:, None], 0.0, np.nan)
        return Profiles(total["count"], means + empty, np.sqrt(variances) + empty, mean, np.sqrt(whole))
    rows, inner = unit_of(noised.inner)
    units = {"count": np.ones((1, 1)), "offset": inner.units, "square": np.square(inner.units)}
    std = noised.noise_std(len(released.contributors))
    signed = {name: rows * as_columns(released.statistics[name]) * one for name, one in units.items()}
    # A row that is clipped at a radius lies between its place in the ranges and its center.
    ends = np.minimum(inner.ranges.low, checked), np.maximum(inner.ranges.high, checked)
    error = {name: rows * std[name] * one for name, one in units.items()}
    return replace(
        noised_profiles(signed, error, checked, ends, inner.bounds["offset"].l2 * inner.units, level),
        sizes=total["count"],
        radius=inner.radius,
        claim=claim_of(federation, protocol_of(options.get("protocol", "masked"))),
    )


def as_columns(counts: FloatArray) -> FloatArray:
    """Return counts of clusters, (n_clusters,), as a column; sums by cluster and column stay as they are."""
    return counts if counts.ndim == 2 else counts[:, None]


def noised_profiles(
    signed: Mapping[str, FloatArray],
    error: Mapping[str, FloatArray],
    centers: FloatArray,
    ends: tuple[FloatArray, FloatArray],
    longest: FloatArray,
    level: float,
) -> Profiles:
    """Return the profiles that noised sums say, with their intervals; sizes are of the first column.

    Args:
        signed: `count` (n_clusters, 1 or n_features), `offset` and `square` (n_clusters, n_features) of rows,
            in their units and with whatever sign noise gave them.
        error: standard deviation of the noise of each, which broadcasts against it.
        centers: from which offsets are taken, (n_clusters, n_features).
        ends: the lowest and the highest value of rows of each cluster, likewise.
        longest: bound on offsets, (n_features,).
        level: of the intervals.
    """
    # Of all clusters together nothing is raised to zero: that would add up over clusters without rows.
    total = dict(signed) | {name: np.maximum(signed[name], 0.0) for name in ("count", "square")}
    count = np.maximum(total["count"], np.finfo(float).tiny)

    def between(name: str, most: FloatArray, z: float) -> tuple[FloatArray, FloatArray]:
        """Return both ends of the quotients of sums and counts, each (n_clusters, n_features)."""
        return quotients(total[name], count, z * error[name], z * error["count"], most)

    z, both = two_sided(level), two_sided((1.0 + level) / 2.0)
    hidden = np.where(total["count"] > z * error["count"], 0.0, np.nan)
    surely = signed["count"].sum(axis=0) > z * error["count"] * np.sqrt(len(centers))
    (means, variances, *_), (*_, mean, whole) = (moments_of(one, centers) for one in (total, signed))
    shifts, squares = between("offset", longest, both), between("square", np.square(longest), both)
    stds = [
        np.minimum(np.sqrt(np.maximum(one, 0.0)), (ends[1] - ends[0]) / 2.0) + hidden
        for one in (
            squares[0] - np.maximum(*map(np.square, shifts)),
            variances,
            squares[1] - np.where(shifts[0] * shifts[1] > 0.0, np.minimum(*map(np.square, shifts)), 0.0),
        )
    ]
    low, high = (
        Profiles(
            np.maximum(total["count"] + sign * z * error["count"], 0.0)[:, 0],
            np.clip(centers + shift, *ends) + hidden,
            std,
            *np.full((2, *mean.shape), np.nan),
        )
        for sign, shift, std in zip((-1.0, 1.0), between("offset", longest, z), stds[::2], strict=True)
    )
    least, most = ends[0].min(axis=0), ends[1].max(axis=0)
    unknown = np.where(surely, 0.0, np.nan).ravel()
    return Profiles(
        total["count"][:, 0],
        np.clip(means, *ends) + hidden,
        stds[1],
        np.clip(mean, least, most) + unknown,
        np.minimum(np.sqrt(whole), (most - least) / 2.0) + unknown,
        low=low,
        high=high,
        level=level,
    )


def clients_per_cluster(clients: Any, centers: Any, **options: Any) -> FloatArray:
    """Return how many clients have rows nearest to each center, float64 of shape (n_clusters,).

    A large cluster of one client alone may be a group of its own, or a client that measures in another unit.

    Args:
        clients: list of tables of shape (n_i, n_features), or a federation.
        centers: (n_clusters, n_features).
        **options: as for `profiles`.

    Raises:
        PrivacyError: the federation has a guarantee of differential privacy.
    """
    return measured(
        clients, None, None, options, AskedMetric.about(ClusterClients, checked_centers(centers)), "profile"
    )["clients"]
