"""The display of clusters of clients: how many models there are, round by round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from privfed.plot.style import COLOURS, Display, whole_rounds


class ClustersDisplay(Display):
    """The number of models in each round, and where clients were clustered anew.

    Args:
        counts: number of models after each round, the first round first.
        changed: rounds, counted from 1, that clustered clients anew.
    """

    def __init__(self, counts: Sequence[int], changed: Sequence[int]) -> None:
        self.counts, self.changed = counts, changed

    @classmethod
    def of(cls, estimator: Any) -> Self:
        """Return the display of a fitted estimator of models."""
        changed = [one.round for one in estimator.regrouped_ if one.changed]
        return cls([len(models) for models in estimator.history_[1:]], changed)

    def _draw(self, ax: Axes) -> None:
        ax.step(range(1, len(self.counts) + 1), self.counts, where="mid", color=COLOURS[0], label="models")
        if self.changed:
            own = [self.counts[number - 1] for number in self.changed]
            ax.plot(self.changed, own, "v", color=COLOURS[1], label="clients clustered anew")
        ax.set(xlabel="round", ylabel="number of models", ylim=(0, max(self.counts) + 1))
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        whole_rounds(ax)
        ax.legend()
