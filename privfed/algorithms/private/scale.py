"""The number of rows, their centre and their radius, under differential privacy.

Three sums with 7 % of the budget find them. They determine to which length later offsets are clipped, and
so how much noise each later sum needs. Where the rows fill only a small part of the domain, the first centre
is off by more than their radius: then two more sums, with 5.5 %, search again around it, up to four times.

Reveals to whoever opens the totals, with noise: the number of rows; the sum of their distances to the
domain's midpoint; their sum; a histogram of their distances to the centre, and the sum of these distances.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import log2, sqrt

import numpy as np
from scipy.stats import chi

from privfed.core.asking.phases import NEAR, Cycle, Form, Near, Phase, Phases, Shape, Within
from privfed.core.roles.conversation import Ask, Conversation, Setting
from privfed.core.values.domain import Ball, FloatArray, Ranges
from privfed.core.values.guarantee import Neighbours, Unit
from privfed.errors import PrivacyError
from privfed.questions.bounded.bounded_sums import CenterSum, SizeSums
from privfed.questions.bounded.shells import SHELLS_PER_OCTAVE, DistanceHistogram
from privfed.questions.ranges import MOST_ROWS

SHARES = {"rows": 0.006, "spread": 0.009, "center": 0.03, "shells": 0.015, "distance": 0.01}
"""Share of the budget of each release."""

N_SHELLS = 24

MOST_PASSES, FIXED_PASSES = 5, 2
"""Most searches for centre and radius; their number where it must not depend on totals."""

SCALE_SUMS = 1 + 2 * MOST_PASSES
"""Most sums of `scaled`."""

MUCH_SMALLER, CENTER_ERROR = 0.4, 0.05
"""A search is repeated around its result, if that is smaller by this factor, and the error of its centre
longer than this part of its radius."""

SURE_SHELL, OUTERMOST = 2.5, 3.5
"""Least count of a shell, in standard deviations of its noise, to be used; and to be the outermost one."""

FAR = 3.0
"""Radii from the center beyond which next to none of a Gaussian's rows lie."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The declared domain, in the form that algorithms under differential privacy use.

    Args:
        ranges: range of each feature, and most rows of a client.
        middle: midpoint of the domain, float64 of shape (n_features,).
        radius: radius of the domain around the midpoint: a ball's radius, or half a box's diagonal.
        widths: half the width of each feature, in which its offsets are measured; None for all in the same
            unit. All lengths are in these units then.
    """

    ranges: Ranges
    middle: FloatArray
    radius: float
    widths: FloatArray | None = None

    @property
    def unit(self) -> float:
        """Half the width of the cube whose half diagonal is the domain's radius."""
        return self.radius / sqrt(self.ranges.n_features)


@dataclass(frozen=True, slots=True)
class Scale:
    """Noised number, centre and radius of all rows.

    Args:
        frame: the domain.
        budget: mu^2 with respect to the noise that totals actually contain, which predicts later noise.
        replaced: whether neighbours replace a record, rather than add or remove one.
        n_rows: noised number of rows, positive.
        center: noised mean, shrunk; float64 of shape (n_features,).
        radius: distance from the center within which about four in five rows lie.
        spent: share of the budget that was spent.
        extent: distance from the center within which all rows lie, as far as noise shows.
        count_length: largest L2 norm that one unit adds to counts in cells; 1 for a record.
        sum_length: largest L2 norm that one unit adds to sums in cells, in units of the radius; 1 for a
            record.
        rows_error: standard deviation of the noise in `n_rows`, as a share of it.
        shells: distances from the center up to which rows are seen, those up to which these may lie (infinite
            in a search's outermost shell, which has all rows beyond its cap), and how many, (3, n).
        shell_noise: standard deviation of the noise in such a number.
    """

    frame: Frame
    budget: float
    replaced: bool
    n_rows: float
    center: FloatArray
    radius: float
    spent: float
    extent: float = float("inf")
    count_length: float = 1.0
    sum_length: float = 1.0
    rows_error: float = 0.0
    shells: FloatArray = field(default_factory=lambda: np.zeros((3, 0)))
    shell_noise: float = 0.0

    def reach(self, usual: float, share: float, power: int = 1) -> tuple[float, float]:
        """Return how long powers of offsets may be, and what clipping to that takes of their mean, at most.

        Rows that are seen beyond twice the radius are clipped where the noise of longer ones costs more. They
        may lie along one axis, so that a power of their whole length is an entry of its own.

        Args:
            usual: the least length, to which offsets of that power are clipped.
            share: the question's share of the budget.
            power: of the offsets.
        """
        ends, rows = self.ends(), self.shells[2]
        far = ends > 2.0 * self.radius
        lengths = ends[far] ** power
        tried = np.append(usual, lengths[lengths > usual])
        lost = np.maximum(lengths - tried[:, None], 0.0) @ rows[far]
        noise = self.noise(share, 0.0) / sqrt(self.frame.ranges.n_features)
        best = int((np.square(noise * tried) + np.square(lost)).argmin())
        return float(tried[best]), float(lost[best]) / self.n_rows

    def ends(self) -> FloatArray:
        """Return up to which distance the rows of each shell lie, float64 of shape (n,).

        Rows beyond a search's cap lie anywhere in the domain, unless the cap is that near to the radius that
        they are the tail of the others.
        """
        beyond = self.shells[0] >= FAR * 2.0 ** (1.0 / SHELLS_PER_OCTAVE) * self.radius
        most = min(self.frame.radius + self._length(self.center - self.frame.middle), 2.0 * self.frame.radius)
        return np.asarray(np.minimum(np.where(beyond, self.shells[1], self.shells[0]), most))

    def moved(self, center: FloatArray) -> Scale:
        """Return the same rows from another center, from which they may lie farther than they were seen."""
        farther = self._length(center - self.center)
        return replace(self, center=center, shells=self.shells + np.array([[0.0], [farther], [0.0]]))

    def _length(self, offset: FloatArray) -> float:
        return float(np.linalg.norm(offset if self.frame.widths is None else offset / self.frame.widths))

    def noise(self, share: float, counts: float) -> float:
        """Predict the L2 norm of the noise in a cell's sum, in units of the clipping radius.

        Args:
            share: the question's share of the budget.
            counts: part of that share for counts; the rest is for sums.
        """
        one = self.sum_length * self._replacement_factor(counts)
        return one * sqrt(self.frame.ranges.n_features / (share * (1.0 - counts) * self.budget))

    def count_noise(self, share: float, counts: float) -> float:
        """Predict the standard deviation of the noise in a cell's count; arguments as for `noise`."""
        return self.count_length * self._replacement_factor(counts) / sqrt(share * counts * self.budget)

    def _replacement_factor(self, counts: float) -> float:
        # Replacing a record changes a sum within its cell, or moves its count and sum to another cell.
        return sqrt(max(4.0 * (1.0 - counts), 2.0)) if self.replaced else 1.0


def frame_of(setting: Setting, columnwise: bool = False) -> Frame:
    """Return the frame of a setting that declares a domain.

    Args:
        setting: of the run.
        columnwise: measure the features of a box whose widths differ in units of their widths.

    Raises:
        PrivacyError: there is no privacy, or no domain.
    """
    if setting.privacy is None or setting.domain is None:
        raise PrivacyError("this algorithm is for differential privacy: pass privacy=Privacy(...).")
    low, high = setting.domain.bounds(setting.n_features)
    radius = float(np.linalg.norm(high - low) / 2.0)
    if isinstance(setting.domain, Ball):
        radius = setting.domain.radius
    elif columnwise and (high - low).min() < (high - low).max():
        ranges = Ranges(low, high, setting.domain.most_rows or MOST_ROWS)
        return Frame(ranges, (low + high) / 2.0, sqrt(len(low)), (high - low) / 2.0)
    return Frame(Ranges(low, high, setting.domain.most_rows or MOST_ROWS), (low + high) / 2.0, radius)


def chi_ratio(n_features: int) -> float:
    """Return the 0.8-quantile over the mean of a chi distribution (distances to a Gaussian's centre)."""
    return float(chi.ppf(0.8, n_features) / chi.mean(n_features))


def replaces_records(setting: Setting) -> bool:
    """Say whether neighbours replace a record, rather than add or remove one."""
    terms = setting.privacy
    return terms is not None and terms.neighbours == Neighbours.REPLACE_ONE and terms.unit == Unit.RECORD


def octave(length: float, unit: float) -> float:
    """Return the value unit / 2^j, with j from 0 to 40, whose ratio to `length` is nearest to 1."""
    return unit * 2.0 ** -min(max(round(log2(unit / max(length, unit * 2.0**-41))), 0), 40)


def radius_rule(frame: Frame) -> Within:
    """Return the rule for a length to which offsets are clipped: at most the domain's diameter."""
    return Within(0.0, 2.0 * frame.radius * (1.0 + 2.0**-30))


def size_phase(frame: Frame) -> Phase:
    """Return what is asked for the number of rows."""
    return Phase(
        Form(SizeSums, center=Near((frame.middle,)), radius=near(frame.radius), widths=widths_rule(frame))
    )


def widths_rule(frame: Frame) -> Near | None:
    """Return the rule for the units of offsets."""
    return None if frame.widths is None else Near((frame.widths,))


def near(length: float) -> Within:
    """Return the rule for a length that each machine computes itself from what is agreed."""
    return Within(length * (1.0 - NEAR), length * (1.0 + NEAR))


def scale_phases(setting: Setting, octaves: bool = False, columnwise: bool = False) -> Phases:
    """Return what `scaled` asks, with the same arguments."""
    frame = frame_of(setting, columnwise)
    known = {
        "center": Shape(setting.n_features),
        "radius": radius_rule(frame),
        "widths": widths_rule(frame),
    }
    center, shells = Form(CenterSum, **known), Form(DistanceHistogram, **known, n_bins=N_SHELLS)
    fewest, most = (FIXED_PASSES, FIXED_PASSES) if octaves else (1, MOST_PASSES)
    return (size_phase(frame), Cycle((Phase(center), Phase(shells)), fewest, most))


def scaled(
    setting: Setting, n_clusters: int, octaves: bool = False, columnwise: bool = False
) -> Conversation[Scale]:
    """Find the number of rows, their centre and their radius, with three to eleven sums.

    Args:
        setting: declares privacy and a domain.
        n_clusters: number of clusters.
        octaves: clip to the domain's radius over powers of two, so that sigma, in steps, is the same for all.
        columnwise: measure features in units of their widths, where these differ.
    """
    frame, replaced = frame_of(setting, columnwise), replaces_records(setting)
    ranges = frame.ranges
    total = yield Ask(
        SizeSums(ranges=ranges, center=frame.middle, radius=frame.radius, widths=frame.widths),
        purpose="size",
        weights={"count": SHARES["rows"], "distance": SHARES["spread"]},
    )
    noise = dict(total.noise_std or {})
    budget = (frame.radius / noise["distance"]) ** 2 / SHARES["spread"]
    n_rows = max(float(total.statistics["count"][0]), 2.0 * n_clusters, 1.0)
    spread, unsure = float(total.statistics["distance"][0]) / n_rows, noise["distance"] / n_rows
    cap = frame.radius
    if unsure <= 0.25 * frame.radius:
        cap = float(np.clip(1.2 * (spread + unsure), 0.2 * frame.radius, frame.radius))
    spent = SHARES["rows"] + SHARES["spread"]
    scale = Scale(
        frame,
        budget,
        replaced,
        n_rows,
        frame.middle,
        cap,
        spent,
        extent=2.0 * frame.radius,
        rows_error=noise["count"] / n_rows,
    )
    return (yield from _searched(scale, octaves))


def _searched(scale: Scale, octaves: bool) -> Conversation[Scale]:
    """Find centre and radius, again around the result while that is much smaller than where it was sought."""
    frame, passes = scale.frame, FIXED_PASSES if octaves else MOST_PASSES
    for number in range(passes):
        around = scale.radius
        scale, error = yield from _centered(scale, octaves)
        scale = yield from _with_radius(scale, min(1.5 * around, 2.0 * frame.radius), octaves)
        if octaves and number + 1 < passes:
            scale = replace(scale, radius=min(1.5 * scale.radius, around))
        elif octaves or scale.radius >= MUCH_SMALLER * around or error < CENTER_ERROR * scale.radius:
            break
        elif number + 1 < passes:
            scale = replace(scale, radius=1.5 * scale.radius)
    # After a single pass, rows beyond may be too few to be seen, but far enough to matter.
    small = number > 0 or scale.extent < 0.1 * frame.radius
    return scale if small else replace(scale, extent=2.0 * frame.radius)


def _centered(scale: Scale, octaves: bool) -> Conversation[tuple[Scale, float]]:
    """Find the centre of the rows within the scale's radius; also return the length of its error."""
    frame, d = scale.frame, len(scale.center)
    cap = octave(scale.radius, frame.radius) if octaves else scale.radius
    total = yield Ask(
        CenterSum(ranges=frame.ranges, center=scale.center, radius=cap, widths=frame.widths),
        purpose="center",
        weights={"sum": SHARES["center"]},
    )
    offset = total.statistics["sum"][0] / scale.n_rows
    variance = ((total.noise_std or {})["sum"] / scale.n_rows) ** 2
    # The positive-part James-Stein estimator shrinks the offset towards the midpoint by the share that noise
    # explains. The prior shrinks it again, for noise that is longer than any mean within the cap.
    shrunk = 1.0 - d * variance / max(float(offset @ offset), d * variance, np.finfo(float).tiny)
    prior = (0.5 * cap) ** 2 / d
    offset = clipped(offset[None] * shrunk * prior / (prior + variance), cap)[0]
    offset = offset if frame.widths is None else offset * frame.widths
    center = np.clip(scale.center + offset, frame.ranges.low, frame.ranges.high)
    return replace(scale.moved(center), spent=scale.spent + SHARES["center"]), sqrt(d * variance)


def _with_radius(scale: Scale, cap: float, octaves: bool) -> Conversation[Scale]:
    """Find within which radius four in five rows lie, and within which all of them, as far as noise shows."""
    frame, n_rows = scale.frame, scale.n_rows
    cap = octave(cap, frame.radius * 2.0) if octaves else cap
    question = DistanceHistogram(
        ranges=frame.ranges, center=scale.center, radius=cap, n_bins=N_SHELLS, widths=frame.widths
    )
    total = yield Ask(
        question,
        purpose="radius",
        weights={"count": SHARES["shells"], "distance": SHARES["distance"]},
    )
    noise, spent = dict(total.noise_std or {}), scale.spent + SHARES["shells"] + SHARES["distance"]
    radius, counts = min(0.7 * frame.radius, cap), total.statistics["count"]
    seen = np.where(counts > OUTERMOST * noise["count"], counts, 0.0)
    sure = np.where(counts > SURE_SHELL * noise["count"], counts, 0.0)
    found = sure.sum() > 0.5 * n_rows and noise["count"] < 0.1 * n_rows
    if found:
        radius = _quantile(question.edges(), sure)
    elif (unsure := noise["distance"] / n_rows) < 0.25 * cap:
        mean = float(total.statistics["distance"][0]) / n_rows
        least, most = max(0.1 * cap, 2.0 * unsure), min(cap, 0.7 * frame.radius)
        radius = float(np.clip(mean * min(chi_ratio(len(scale.center)), 1.3), least, max(least, most)))
    shells, extent = _together(scale.shells, question.edges(), seen, radius), min(cap, 2.0 * radius)
    scale = replace(
        scale, radius=radius, extent=extent, spent=spent, shells=shells, shell_noise=noise["count"]
    )
    if not found:
        return scale
    return replace(scale, extent=float(scale.ends()[shells[2] > 0.0].max(initial=0.0)) or cap)


def _together(before: FloatArray, edges: FloatArray, rows: FloatArray, radius: float) -> FloatArray:
    """Return the shells that a search has seen, and those beyond its cap that an earlier one did.

    Its own outermost shell holds all rows beyond its cap. Where these lie far beyond the radius, those that
    an earlier search saw are not counted again.
    """
    own, far = np.array([edges, edges, rows]), before[:, before[0] > edges[0]]
    own[1, 0] = np.inf
    if edges[1] >= FAR * radius:
        own[2, 0] = max(rows[0] - far[2].sum(), 0.0)
    return np.hstack([far, own])


def _quantile(edges: FloatArray, counts: FloatArray) -> float:
    """Return the radius beyond which a fifth of the rows lie, given counts in shells, from the outermost."""
    beyond, wanted = counts.cumsum(), 0.2 * counts.sum()
    shell = int(np.flatnonzero(beyond >= wanted)[0])
    inside = (wanted - beyond[shell] + counts[shell]) / counts[shell]
    return float(edges[shell] * 2.0 ** (-inside / SHELLS_PER_OCTAVE))


def clipped(vectors: FloatArray, radius: FloatArray | float) -> FloatArray:
    """Scale each row (n, d) to a norm of at most `radius`."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    # The floor keeps the ratio from overflowing for vectors of length zero.
    return np.asarray(vectors * np.minimum(1.0, radius / np.maximum(lengths, 1e-150)))
