"""The number of rows, their centre and their radius, under differential privacy.

Three sums with 6.5 % of the budget find them. They determine to which length later offsets are clipped, and
so how much noise each later sum needs.

Reveals to whoever opens the totals, with noise: the number of rows; the sum of their distances to the
domain's midpoint; their sum; a histogram of their distances to the centre, and the sum of these distances.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2, sqrt

import numpy as np
from scipy.stats import chi

from privfed.core.asking.phases import NEAR, Form, Near, Phase, Phases, Shape, Within
from privfed.core.roles.conversation import Ask, Conversation, Setting
from privfed.core.values.domain import Ball, FloatArray, Ranges
from privfed.core.values.guarantee import Neighbours, Unit
from privfed.errors import PrivacyError
from privfed.questions.bounded.bounded_sums import CenterSum, DistanceHistogram, SizeSums
from privfed.questions.ranges import MOST_ROWS

SHARES = {"rows": 0.006, "spread": 0.009, "center": 0.03, "shells": 0.01, "distance": 0.01}
"""Share of the budget of each release."""

N_SHELLS = 24


@dataclass(frozen=True, slots=True)
class Frame:
    """The declared domain, in the form that algorithms under differential privacy use.

    Args:
        ranges: range of each feature, and most rows of a client.
        middle: midpoint of the domain, float64 of shape (n_features,).
        radius: radius of the domain around the midpoint: a ball's radius, or half a box's diagonal.
    """

    ranges: Ranges
    middle: FloatArray
    radius: float

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
        count_length: largest L2 norm that one unit adds to counts in cells; 1 for a record.
        sum_length: largest L2 norm that one unit adds to sums in cells, in units of the radius; 1 for a
            record.
    """

    frame: Frame
    budget: float
    replaced: bool
    n_rows: float
    center: FloatArray
    radius: float
    spent: float
    count_length: float = 1.0
    sum_length: float = 1.0

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


def frame_of(setting: Setting) -> Frame:
    """Return the frame of a setting that declares a domain.

    Raises:
        PrivacyError: there is no privacy, or no domain.
    """
    if setting.privacy is None or setting.domain is None:
        raise PrivacyError("this algorithm is for differential privacy: pass privacy=Privacy(...).")
    low, high = setting.domain.bounds(setting.n_features)
    radius = float(np.linalg.norm(high - low) / 2.0)
    if isinstance(setting.domain, Ball):
        radius = setting.domain.radius
    return Frame(Ranges(low, high, setting.domain.max_rows or MOST_ROWS), (low + high) / 2.0, radius)


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
    return Phase(Form(SizeSums, center=Near((frame.middle,)), radius=near(frame.radius)))


def near(length: float) -> Within:
    """Return the rule for a length that each machine computes itself from what is agreed."""
    return Within(length * (1.0 - NEAR), length * (1.0 + NEAR))


def scale_phases(setting: Setting) -> Phases:
    """Return what `scaled` asks."""
    frame = frame_of(setting)
    radius = radius_rule(frame)
    center = Form(CenterSum, center=Near((frame.middle,)), radius=radius)
    shells = Form(DistanceHistogram, center=Shape(setting.n_features), radius=radius, n_bins=N_SHELLS)
    return (size_phase(frame), Phase(center), Phase(shells))


def scaled(setting: Setting, n_clusters: int, octaves: bool = False) -> Conversation[Scale]:
    """Find the number of rows, their centre and their radius with three sums.

    Args:
        setting: declares privacy and a domain.
        n_clusters: number of clusters.
        octaves: clip to the domain's radius over powers of two, so that sigma, in steps, is the same for all.
    """
    frame, replaced = frame_of(setting), replaces_records(setting)
    ranges, d = frame.ranges, setting.n_features
    total = yield Ask(
        SizeSums(ranges=ranges, center=frame.middle, radius=frame.radius),
        purpose="size",
        weights={"count": SHARES["rows"], "distance": SHARES["spread"]},
    )
    noise = _noise(total.noise_std)
    budget = (frame.radius / noise["distance"]) ** 2 / SHARES["spread"]
    n_rows = max(float(total.statistics["count"][0]), 2.0 * n_clusters, 1.0)
    spread, unsure = float(total.statistics["distance"][0]) / n_rows, noise["distance"] / n_rows
    cap = frame.radius
    if unsure <= 0.25 * frame.radius:
        cap = float(np.clip(1.2 * (spread + unsure), 0.2 * frame.radius, frame.radius))
    cap = octave(cap, frame.radius) if octaves else cap

    total = yield Ask(
        CenterSum(ranges=ranges, center=frame.middle, radius=cap),
        purpose="center",
        weights={"sum": SHARES["center"]},
    )
    offset = total.statistics["sum"][0] / n_rows
    variance = (_noise(total.noise_std)["sum"] / n_rows) ** 2
    # The positive-part James-Stein estimator shrinks the offset towards the midpoint by the share that noise
    # explains. The prior shrinks it again, for noise that is longer than any mean within the cap.
    shrunk = 1.0 - d * variance / max(float(offset @ offset), d * variance, np.finfo(float).tiny)
    prior = (0.5 * cap) ** 2 / d
    offset = clipped(offset[None] * shrunk * prior / (prior + variance), cap)[0]
    center = np.clip(frame.middle + offset, ranges.low, ranges.high)
    scale = Scale(frame, budget, replaced, n_rows, center, cap, 0.0)
    return (yield from _with_radius(scale, min(1.5 * cap, 2.0 * frame.radius)))


def _with_radius(scale: Scale, cap: float) -> Conversation[Scale]:
    frame, n_rows = scale.frame, scale.n_rows
    total = yield Ask(
        DistanceHistogram(ranges=frame.ranges, center=scale.center, radius=cap, n_bins=N_SHELLS),
        purpose="radius",
        weights={"count": SHARES["shells"], "distance": SHARES["distance"]},
    )
    noise = _noise(total.noise_std)
    unsure = noise["count"] * sqrt(N_SHELLS)
    radius = min(0.7 * frame.radius, cap)
    if unsure < 0.15 * n_rows:
        reached = np.flatnonzero(total.statistics["count"].cumsum() >= 0.8 * n_rows - 0.5 * unsure)
        radius = cap * (reached[0] + 1) / N_SHELLS if reached.size else cap
    elif noise["distance"] / n_rows < 0.25 * cap:
        mean = float(total.statistics["distance"][0]) / n_rows
        radius = float(
            np.clip(mean * min(chi_ratio(len(scale.center)), 1.3), 0.25 * cap, min(cap, 0.7 * frame.radius))
        )
    return replace(scale, radius=radius, spent=sum(SHARES.values()))


def clipped(vectors: FloatArray, radius: FloatArray | float) -> FloatArray:
    """Scale each row (n, d) to a norm of at most `radius`."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    # The floor keeps the ratio from overflowing for vectors of length zero.
    shorter: FloatArray = vectors * np.minimum(1.0, radius / np.maximum(lengths, 1e-150))
    return shorter


def _noise(noise_std: object) -> dict[str, float]:
    if not isinstance(noise_std, dict):
        raise PrivacyError("a total came without the standard deviation of its noise.")
    return noise_std
