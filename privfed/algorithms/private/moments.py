"""Mean and variance of each feature under differential privacy, from five noised sums or more.

Three sums, or more for rows in a small part of the domain, find the number of rows, their centre and the
clipping radius (`privfed.algorithms.private.scale`). Two more, with the rest of the budget, give the sum of
offsets from the noised centre and the sum of squared offsets. At unit "client" one more sum finds the
clients' sizes.

Reveals to whoever opens the totals: these sums, with noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.algorithms.private.clients import by_client, client_phases
from privfed.algorithms.private.scale import (
    SCALE_SUMS,
    Scale,
    frame_of,
    radius_rule,
    scale_phases,
    scaled,
    size_phase,
)
from privfed.core.asking.phases import Form, Phase, Phases, Shape, Within
from privfed.core.asking.question import register
from privfed.core.roles.conversation import Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import Unit
from privfed.numerics.distances import IntArray
from privfed.questions.bounded.bounded_sums import CenterSum, SizeSums
from privfed.questions.client_sizes import SIZE_SHARE, ClientSizes, typical_size
from privfed.questions.moments import Moments


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class SquareSum(CenterSum):
    """Ask for the sum of squared offsets from a point, feature by feature, clipped as a vector."""

    asks: ClassVar[tuple[str, ...]] = ("sum",)

    def place(self, rows: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return squared offsets from the point."""
        cells, offsets = super().place(rows)
        return cells, np.square(offsets)


@dataclass(frozen=True)
class PrivateMoments:
    """The algorithm that finds noised moments; with `spread=False` only the number of rows.

    Args:
        spread: whether to find mean and variance too.
    """

    fixed: ClassVar[bool] = False

    spread: bool = True

    @property
    def max_sums(self) -> int:
        """Most sums: the clients' sizes, those of the scale, offsets and squares."""
        return SCALE_SUMS + 3

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the scale, then offsets and squares; at unit "client" sizes before."""
        frame, center = frame_of(setting), Shape(setting.n_features)
        moments: Phases = (size_phase(frame),)
        if self.spread:
            means = Form(CenterSum, center=center, radius=radius_rule(frame))
            longest = radius_rule(frame).high ** 2
            squares = Form(SquareSum, center=center, radius=Within(0.0, longest))
            moments = (*scale_phases(setting), Phase(means), Phase(squares))
        if setting.privacy is None or setting.privacy.unit == Unit.RECORD:
            return moments
        return (Phase(Form(ClientSizes)), *client_phases(moments))

    def run(self, setting: Setting) -> Conversation[Moments]:
        """Find the moments; at unit "client" each client takes the role of a record."""
        conversation = self._moments(setting) if self.spread else _rows(setting)
        if setting.privacy is None or setting.privacy.unit == Unit.RECORD:
            return (yield from conversation)
        size = yield from typical_size(frame_of(setting).ranges)
        found = yield from by_client(conversation, size, 1.0 - SIZE_SHARE)
        return Moments(found.ranges, round(found.n_rows * size), found.mean, found.var)

    def _moments(self, setting: Setting) -> Conversation[Moments]:
        scale = yield from scaled(setting, 1)
        share, ranges, d = (1.0 - scale.spent) / 2.0, scale.frame.ranges, setting.n_features
        # Four in five rows lie within the radius, and almost all Gaussian rows within twice the radius.
        radius = min(2.0 * scale.radius, 2.0 * scale.frame.radius)
        asked = CenterSum(ranges=ranges, center=scale.center, radius=radius)
        shift = yield from _mean(asked, scale, share, "mean")
        # For d similar features, the vector of squares is sqrt(d) times shorter than their sum.
        reach = radius**2 / min(np.sqrt(d), 4.0)
        center = ranges.clip(scale.center + shift)
        square = SquareSum(ranges=ranges, center=center, radius=reach)
        variance = yield from _mean(square, scale, share, "variance")
        # Noise may make a small variance negative: it is at least that of a thousandth of the range.
        least = (1e-3 * ranges.width) ** 2
        return Moments(ranges, round(scale.n_rows), center, np.maximum(variance, least))


def _mean(question: CenterSum, scale: Scale, share: float, purpose: str) -> Conversation[FloatArray]:
    total = yield Ask(question, purpose=purpose, weights={"sum": share})
    mean: FloatArray = total.statistics["sum"][0] / scale.n_rows
    return mean


def _rows(setting: Setting) -> Conversation[Moments]:
    frame = frame_of(setting)
    question = SizeSums(ranges=frame.ranges, center=frame.middle, radius=frame.radius)
    total = yield Ask(question, purpose="size", weights={"count": 0.99, "distance": 0.01})
    n_rows = max(1, round(float(total.statistics["count"][0])))
    return Moments(frame.ranges, n_rows, frame.middle, np.full_like(frame.middle, np.nan))
