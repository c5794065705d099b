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
import numpy.typing as npt
from scipy.special import ndtri
from scipy.stats import chi

from privfed.algorithms.mixtures import AtComponents
from privfed.algorithms.private.clients import ClientLengths
from privfed.algorithms.private.coreset import FAR_SHELL
from privfed.algorithms.private.noised_rounds import FuzzyRelativeSums
from privfed.core.asking.question import Question, parts_of
from privfed.core.record.records import question_of
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import Total
from privfed.core.values.domain import Box, FloatArray
from privfed.core.values.numbers import check_number, check_whole
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


MOST_OF_CATEGORIES = 0.8
"""Share of the squares between clusters that categories may make unsaid, where there are numbers too."""

Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Intervals:
    """Sizes and means that the last question of a fit asked for, with what its noise leaves open.

    Each interval covers the exact answer with probability `level`, by itself or all together. At unit
    "client" a larger client counts as the typical number of rows, and all are clipped: the intervals are of
    those sums. Means and their intervals are in the columns' units; `noise` and `nearest` are lengths between
    scaled rows.

    Args:
        level: probability with which one interval covers, or all of them do.
        joint: whether it is that of all sizes and coordinates together (Bonferroni).
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
        sampling: whether intervals are of what rows drawn like these would show, and not only of these rows.
        radius: length to which offsets of rows from the centers were clipped; None where those of clients'
            own steps were. Private metrics of these centers are of rows clipped so.
    """

    level: float
    joint: bool
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
    radius: float | None = None
    sampling: bool = False

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
        if isinstance(inner, AtComponents):  # Its means are of no rows counted one by one.
            return None
        if inner is None or getattr(inner.centers, "shape", None) != shape or not hasattr(inner, "radius"):
            continue
        found = {name: total.statistics[name].shape for name in total.statistics}
        if found.get("count") == shape[:1] and found.get("sum") == shape:
            return noised, inner, total
    return None


def intervals_of(
    transcript: Transcript, centers: FloatArray, level: float, joint: bool = False, sampling: bool = False
) -> Intervals | None:
    """Return the intervals of a fit; None where no noised total counts the rows of such centers.

    Args:
        transcript: of the run.
        centers: that were released.
        level: in (0, 1).
        joint: whether all intervals together cover with that probability.
        sampling: whether they include sampling error.

    Raises:
        ArgumentError: sampling error is asked for, and the totals are not of single rows.
    """
    known = _asked_last(transcript, centers.shape)
    if known is None:
        return None
    noised, inner, total = known
    missed = (1.0 - level) / (len(centers) * (1 + centers.shape[1]) if joint else 1)
    z, std = -float(ndtri(missed / 2.0)), noised.noise_std(len(total.contributors))
    count, summed = total.statistics["count"], total.statistics["sum"]
    # At unit "client" counts are in units of a client.
    rows, held = float(getattr(noised.inner, "rows", 1)), np.maximum(count, 0.0)[:, None]
    sizes_std, sums_std = (np.asarray(std[name]) for name in ("count", "sum"))
    if sampling:
        if inner is not noised.inner or not isinstance(inner, OffsetSums):
            raise ArgumentError("sampling error is of totals over single rows; leave sampling out.")
        # A number of rows varies by no more than itself; an offset, whose length is clipped, by its square.
        sizes_std, sums_std = (
            np.sqrt(one**2 + held * by) for one, by in ((sizes_std, 1.0), (sums_std, inner.radius**2))
        )
    low, high = quotients(summed, count[:, None], z * sums_std, z * std["count"], inner.radius)
    # Most questions add up offsets from the centers, and some from one point.
    base, ends = getattr(inner, "origin", inner.centers), (inner.ranges.low, inner.ranges.high)
    sure = np.maximum(count, max(std["count"], np.finfo(float).tiny))
    noise = std["sum"] * math.sqrt(centers.shape[1]) / sure
    apart = squared_distances(centers, centers)
    np.fill_diagonal(apart, np.inf)
    nearest, scaling = np.sqrt(apart.min(axis=1)), scaling_of_run(transcript)
    units: Any = (lambda rows: rows) if scaling is None else scaling.original
    return Intervals(
        level=level,
        joint=joint,
        of_rows=isinstance(inner, OffsetSums),
        sizes=count * rows,
        sizes_low=np.maximum(count - z * np.ravel(sizes_std), 0.0) * rows,
        sizes_high=np.maximum(count + z * np.ravel(sizes_std), 0.0) * rows,
        means=units(np.clip(base + np.clip(summed / sure[:, None], -inner.radius, inner.radius), *ends)),
        low=units(np.clip(base + low, *ends)),
        high=units(np.clip(base + high, *ends)),
        noise=noise,
        nearest=nearest,
        radius=float(inner.radius) if isinstance(inner, OffsetSums | FuzzyRelativeSums) else None,
        sampling=sampling,
        mostly_noise=(count < ndtri(0.5 + level / 2.0) * std["count"]) | (noise >= nearest),
    )


class Doubted:
    """Adds to a clustering estimator what the noise of a private fit leaves open."""

    def sample(
        self, n_samples: int = 1, random_state: Any = None, *, uncertain: bool = False
    ) -> tuple[FloatArray, npt.NDArray[np.int32]]:
        """Draw made-up rows from the released sizes and centers, with the cluster of each; it spends nothing.

        Rows lie around the center of their cluster, alike in each direction and in all clusters: as far, in
        the mean, as the last total says that rows lie from their nearest center. They are clipped to the
        domain. So they show where clusters are and how large, and no shape, correlation or outlier.

        Args:
            n_samples: number of rows.
            random_state: seed, or a generator.
            uncertain: draw sizes and centers first, from what their noise leaves open. What varies between
                several such samples is not known.

        Returns:
            Rows in the columns' units, float64 of shape (n_samples, n_features), and their clusters.

        Raises:
            ArgumentError: `n_samples` is no number of rows; or no noised total has sizes and distances.
        """
        check_whole("n_samples", n_samples, 1)
        fitted: Any = self
        transcript = vars(self).get("transcript_")
        known = transcript and _asked_last(transcript, fitted.cluster_centers_.shape)
        if not known or "distance" not in known[2].statistics:
            raise ArgumentError("sample draws from noised sizes and distances, and this estimator has none.")
        (_, inner, total), found, rng = known, self.intervals(), np.random.default_rng(random_state)
        (k, d), each = fitted.cluster_centers_.shape, found.noise[:, None] / math.sqrt(found.means.shape[1])
        std = (found.sizes_high - found.sizes) / -float(ndtri(0.025))
        sizes = np.maximum(found.sizes + uncertain * std * rng.standard_normal(k), 0.0)
        shares = sizes / sizes.sum() if sizes.any() else np.full(k, 1.0 / k)
        centers = np.array(fitted.cluster_centers_) + uncertain * each * rng.standard_normal((k, d))
        labels = rng.choice(k, size=n_samples, p=shares).astype(np.int32)
        far = float(total.statistics["distance"][0]) / max(float(total.statistics["count"].sum()), 1.0)
        spread = np.clip(far, 0.0, inner.radius) / chi.mean(d)
        rows = inner.ranges.clip(centers[labels] + spread * rng.standard_normal((n_samples, d)))
        return (rows if fitted.scaling_ is None else fitted.scaling_.original(rows)), labels

    def intervals(self, level: float = 0.95, joint: bool = False, sampling: bool = False) -> Intervals:
        """Return sizes and means with intervals that cover the exact answers to the last question asked.

        It spends no budget: only totals that were released are used.

        Args:
            level: probability with which each interval covers, in (0, 1).
            joint: whether it is the probability with which all sizes and coordinates are covered together, as
                they are read in a table or a picture.
            sampling: whether to include sampling error: the intervals then cover the expected sizes and means
                of clipped offsets at these centers, of rows that are drawn like these, independently. They
                bound how far offsets vary by the radius, and so are wide where noise is small.

        Raises:
            ArgumentError: the level is out of its bounds; or no noised total counts the rows of each center,
                as in a fit without privacy, one that asks no rounds, or one that was loaded from a file.
        """
        check_number("level", level, "(0, 1)")
        fitted: Any = self
        transcript = vars(self).get("transcript_")
        found = (
            None
            if transcript is None
            else intervals_of(transcript, fitted.cluster_centers_, level, joint, sampling)
        )
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
        low, high = at_ends(scaled(found.low[sure]), scaled(found.high[sure]), fitted.privacy)
        numbers = np.setdiff1d(np.arange(low.shape[1]), [column for block in blocks for column in block])
        columns = [one for one in numbers if low[:, one].all() or high[:, one].all()]
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
        elif len(numbers) > 1 and 2 * (corners := int((low | high)[:, numbers].all(axis=1).sum())) >= max(
            2, k
        ):
            warn(
                f"{corners} of {k} centers lie in corners of the declared domain, where rows beyond it are "
                "clipped to. Declare, without looking at rows, a domain that holds them.",
            )
        means, weights = scaled(found.means[sure]), found.sizes[sure]
        between = weights @ np.square(means - np.average(means, axis=0, weights=weights))
        share = 1.0 - between[numbers].sum() / between.sum() if len(numbers) and between.any() else 0.0
        if share > MOST_OF_CATEGORIES and (fitted.scaling_ is None or fitted.scaling_.kind == "range"):
            warn(
                f"categories make {share:.0%} of what tells the clusters apart, and the numbers the rest. If "
                'they should count alike, scale the columns: scale="robust".',
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


def at_ends(lows: FloatArray, highs: FloatArray, privacy: Privacy) -> tuple[Marks, Marks]:
    """Return which intervals lie at the low and which at the high end of a box, each of their shape."""
    none = np.zeros(lows.shape, dtype=bool)
    if not isinstance(privacy.domain, Box) or not len(lows):
        return none, none
    low, high = privacy.domain.bounds(lows.shape[1])
    room, wide = NEAR_AN_END * (high - low), high > low
    return (highs <= low + room) & wide, (lows >= high - room) & wide
