"""The display of survival: a curve for each cluster, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from matplotlib.axes import Axes

from privfed.plot.style import DASHES, Display
from privfed.tables.outcomes import Survival


class SurvivalDisplay(Display):
    """Kaplan-Meier curves of clusters, each with its pointwise interval; they end where nobody is at risk.

    Args:
        survival: what `privfed.tables.survival` found.
        names: of the clusters; None for their numbers.
        unit: name of the time, below the axis.
    """

    def __init__(self, survival: Survival, names: Sequence[str] | None = None, unit: str = "time") -> None:
        self.survival, self.unit = survival, unit
        self.names = names or [f"cluster {i}" for i in range(survival.survival.shape[1])]

    @classmethod
    def from_survival(
        cls, survival: Survival, names: Sequence[str] | None = None, ax: Axes | None = None
    ) -> Self:
        """Draw what `privfed.tables.survival` found: a display itself asks nobody."""
        return cls(survival, names)._shown(ax)

    def _draw(self, ax: Axes) -> None:
        found, times = self.survival, np.r_[0.0, self.survival.edges]
        for i, name in enumerate(self.names):
            curve, low, high = (np.r_[1.0, one[:, i]] for one in (found.survival, found.low, found.high))
            (line,) = ax.step(
                times,
                curve,
                where="post",
                linestyle=DASHES[i % len(DASHES)],
                label=f"{name} ({found.at_risk[0, i]:,.0f})",
            )
            ax.fill_between(times, low, high, step="post", alpha=0.15, color=line.get_color(), linewidth=0)
        sure = "< 0.001" if found.p_value < 0.001 else f"= {found.p_value:.2g}"
        ax.set_title(f"log-rank p {sure}; bands: {found.level:.0%} at each time", fontsize="small")
        ax.set(xlabel=self.unit, ylabel="share without event", ylim=(0.0, 1.02), xlim=(0.0, None))
        ax.legend()
