"""What the noise leaves open: intervals of sizes and centers, and warnings, from released totals alone.

It is post-processing: nothing is asked, and no budget is spent. Whoever has the transcript can do it.

The intervals are of the exact answers to the last question about the centers. That asked, for each center as
it then was: how many rows are nearest to it, and the sum of their offsets, clipped to a radius. They are no
intervals of the optimal centers, nor of a cluster in the population. A fuzzy fit asks for sums of memberships
to the power m in place of rows, and its sizes are those.

A mean is a quotient of two noised numbers s and c, of variances v and w. Its interval holds every m with
(s - m c)^2 <= z^2 (v + m^2 w) (Fieller 1954), within the radius, since the exact offset is no longer. Where
the count may be 0, that is the whole radius.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from privfed.algorithms.private.clients import ClientLengths
from privfed.algorithms.private.coreset import FAR_SHELL
from privfed.core.asking.question import Question, parts_of
from privfed.core.record.records import question_of
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import Total
from privfed.core.values.domain import Box, FloatArray
from privfed.errors import ArgumentError, warn
from privfed.estimators.scaling import scaling_of_run
from privfed.numerics.kernels.interpreted import squared_distances
from privfed.numerics.quotients import quotients
from privfed.privacy.claim import Privacy
from privfed.privacy.noised import Noised
from privfed.questions.bounded.bounded_sums import OffsetSums
from privfed.questions.bounded.shells import DistanceHistogram

NEAR_AN_END = 0.05
"""A range is unfit if the intervals of all means lie so near to one end of it, in units of its width."""


@dataclass(frozen=True)
class Intervals:
    """Sizes and means that the last question of a fit asked for, with what its noise leaves open.

    Each interval covers the exact answer with probability `level`, by itself. At unit "client" a larger
    client counts as the typical number of rows, and all are clipped: the intervals are of those sums. Means
    and their intervals are in the columns' units; `noise` and `nearest` are lengths between scaled rows.

    Args:
        level: probability with which one interval covers.
        of_rows: whether sizes are numbers of rows, those nearest to each center; in a fuzzy fit they are sums
            of u^m over all rows, which are less.
        sizes: noised, float64 of shape (n_clusters,).
        sizes_low: lower ends of their intervals, at least 0, likewise.
        sizes_high: upper ends, likewise.
        means: noised means of those rows, in a fuzzy fit of all rows weighted by u^m, float64 of shape
            (n_clusters, n_features).
        low: lower ends of the intervals of each coordinate, likewise.
        high: upper ends, likewise.
        noise: root of the mean squared length of the noise in a mean, float64 of shape (n_clusters,).
        nearest: distance of each final center to the nearest other one; inf for one cluster.
        mostly_noise: whether the size may be 0, or the noise is as long as that distance.
    """

    level: float
    of_rows: bool
    sizes: FloatArray
    sizes_low: FloatArray
    sizes_high: FloatArray
    means: FloatArray
    low: FloatArray
    high: FloatArray
    noise: FloatArray
    nearest: FloatArray
    mostly_noise: FloatArray

    def to_dict(self) -> dict[str, Any]:
        """Return the intervals as JSON types; the distance of a single cluster to another is None."""
        plain = asdict(self)
        plain |= {name: value.tolist() for name, value in plain.items() if isinstance(value, np.ndarray)}
        plain["nearest"] = [one if math.isfinite(one) else None for one in plain["nearest"]]
        return plain


def _asked_last(transcript: Transcript, shape: tuple[int, ...]) -> tuple[Noised, Any, Total] | None:
    """Return the last noised question about such centers, the same without noise, and its total."""
    for asked, total in reversed(transcript.totals()):
        noised: Any = question_of(asked)
        inner: Any = noised.inner if isinstance(noised, Noised) else None
        while isinstance(inner, Question) and not hasattr(inner, "centers"):
            inner = getattr(inner, "inner", None)
        if inner is None or getattr(inner.centers, "shape", None) != shape or not hasattr(inner, "radius"):
            continue
        found = {name: total.statistics[name].shape for name in total.statistics}
        if found.get("count") == shape[:1] and found.get("sum") == shape:
            return noised, inner, total
    return None


def intervals_of(transcript: Transcript, centers: FloatArray, level: float) -> Intervals | None:
    """Return the intervals of a fit; None where no noised total counts the rows of such centers.

    Args:
        transcript: of the run.
        centers: that were released.
        level: in (0, 1).
    """
    known = _asked_last(transcript, centers.shape)
    if known is None:
        return None
    noised, inner, total = known
    z, std = float(ndtri(0.5 + level / 2.0)), noised.noise_std(len(total.contributors))
    count, summed = total.statistics["count"], total.statistics["sum"]
    # At unit "client" counts are in units of a client.
    rows = float(getattr(noised.inner, "rows", 1))
    low, high = quotients(summed, count[:, None], z * std["sum"], z * std["count"], inner.radius)
    ends = inner.ranges.low, inner.ranges.high
    sure = np.maximum(count, max(std["count"], np.finfo(float).tiny))
    noise = std["sum"] * math.sqrt(centers.shape[1]) / sure
    apart = squared_distances(centers, centers)
    np.fill_diagonal(apart, np.inf)
    nearest = np.sqrt(apart.min(axis=1))
    scaling = scaling_of_run(transcript)
    units: Any = (lambda rows: rows) if scaling is None else scaling.original
    return Intervals(
        level=level,
        of_rows=isinstance(inner, OffsetSums),
        sizes=count * rows,
        sizes_low=np.maximum(count - z * std["count"], 0.0) * rows,
        sizes_high=np.maximum(count + z * std["count"], 0.0) * rows,
        means=units(
            np.clip(inner.centers + np.clip(summed / sure[:, None], -inner.radius, inner.radius), *ends)
        ),
        low=units(np.clip(inner.centers + low, *ends)),
        high=units(np.clip(inner.centers + high, *ends)),
        noise=noise,
        nearest=nearest,
        mostly_noise=(count < z * std["count"]) | (noise >= nearest),
    )


class Doubted:
    """Adds to a clustering estimator what the noise of a private fit leaves open."""

    def intervals(self, level: float = 0.95) -> Intervals:
        """Return sizes and means with intervals that cover the exact answers to the last question asked.

        It spends no budget: only totals that were released are used.

        Args:
            level: probability with which each interval covers, in (0, 1).

        Raises:
            ArgumentError: the level is out of its bounds; or no noised total counts the rows of each center,
                as in a fit without privacy, one that asks no rounds, or one that was loaded from a file.
        """
        if not 0.0 < level < 1.0:
            raise ArgumentError(f"level must lie in (0, 1), got level={level!r}.", parameters=["level"])
        fitted: Any = self
        transcript = vars(self).get("transcript_")
        found = None if transcript is None else intervals_of(transcript, fitted.cluster_centers_, level)
        if found is None:
            raise ArgumentError(
                "intervals are of noised totals that count the rows of each center, and this estimator has "
                "none. Fit or resume with privacy=, DPKMeans or an algorithm whose rounds ask all rows."
            )
        return found

    def _warn_of_noise(self, blocks: Sequence[Sequence[int]]) -> None:
        """Warn where the centers are mostly noise, or the declared ranges do not fit the rows.

        Args:
            blocks: columns that are one together, as categories: rare ones lie near the low end.
        """
        fitted: Any = self
        found = intervals_of(fitted.transcript_, fitted.cluster_centers_, 0.95)
        if found is None:
            return
        bad, k = int(found.mostly_noise.sum()), len(found.noise)
        if 2 * bad > k:
            warn(
                f"the centers are mostly noise: {bad} of {k} clusters may have no rows, or have noise in "
                "their mean that is as long as the distance to the nearest center. Claim a larger epsilon, "
                "take fewer clusters, or narrow the domain; intervals() says what is known.",
            )
            return
        if (clipped := clipped_rows(fitted.transcript_, fitted.cluster_centers_)) is not None:
            units = "" if fitted.scaling_ is None else " in scaled units"
            warn(
                f"about {clipped[0]} rows lie far from all centers, and offsets were clipped to "
                f"{clipped[1]:.3g}{units}: they may be clusters that this fit has no center for. Narrow the "
                "domain, claim a larger epsilon, or take more clusters.",
            )
        sure = np.logical_not(found.mostly_noise)
        scaled: Any = (lambda rows: rows) if fitted.scaling_ is None else fitted.scaling_.scaled
        ends = scaled(found.low[sure]), scaled(found.high[sure])
        together = {column for block in blocks for column in block}
        columns = [one for one in unfit_columns(*ends, fitted.privacy) if one not in together]
        if columns:
            names = vars(self).get("feature_names_in_")
            listed = [
                f"{'column ' if names is None else ''}{j if names is None else names[j]}" for j in columns
            ]
            warn(
                f"all centers lie at one end of the declared range of {', '.join(listed)}: values beyond "
                "it are clipped to that end, or the range is far too wide. Declare, without looking at "
                "rows, one that fits.",
            )


def clipped_rows(transcript: Transcript, centers: FloatArray) -> tuple[int, float] | None:
    """Return about how many rows lie far from all centers, and the length that offsets were clipped to.

    The searches for a radius saw more rows beyond some distance than the last round counted at centers from
    which this length reaches beyond it: the others are farther from their center. None where noise alone
    explains them. Memberships and clipped counts explain no rows, so that there all centers are nearer.

    Args:
        transcript: of the run.
        centers: that were released.
    """
    known = _asked_last(transcript, centers.shape)
    if known is None:
        return None
    last, inner, counted = known
    held = counted.statistics["count"] if inner is last.inner and isinstance(inner, OffsetSums) else np.inf
    noise, found = last.noise_std(len(counted.contributors))["count"], 0.0
    for asked, total in transcript.totals():
        noised: Any = question_of(asked)
        shells = next((one for one in parts_of(noised) if isinstance(one, DistanceHistogram)), None)
        if not isinstance(noised, Noised) or shells is None:
            continue
        rows = noised.inner.rows if isinstance(noised.inner, ClientLengths) else 1
        reached = np.linalg.norm(inner.centers - shells.center, axis=1) + inner.radius
        served = reached >= shells.edges()[1:, None]
        beyond = total.statistics["count"].cumsum()[:-1] - np.where(served, held, 0.0).sum(axis=1)
        own = noised.noise_std(len(total.contributors))["count"] ** 2 * np.arange(1, len(served) + 1)
        seen = beyond > FAR_SHELL * np.sqrt(own + noise**2 * served.sum(axis=1))
        found = max(found, float(beyond[seen].max(initial=0.0)) * rows)
    return (round(found), float(inner.radius)) if found else None


def unfit_columns(lows: FloatArray, highs: FloatArray, privacy: Privacy) -> list[int]:
    """Return the columns of a box at whose same end all means lie, with their whole intervals."""
    if not isinstance(privacy.domain, Box) or not len(lows):
        return []
    low, high = privacy.domain.bounds(lows.shape[1])
    room = NEAR_AN_END * (high - low)
    at_end = (highs <= low + room).all(axis=0) | (lows >= high - room).all(axis=0)
    return np.flatnonzero(at_end & (high > low)).tolist()
