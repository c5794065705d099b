"""Displays of results: profiles of clusters, the choice of their number, and a budget over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

from privfed.core.values.domain import FloatArray
from privfed.plot.style import COLOURS, COLUMN, MARKERS, Display, whole_rounds

if TYPE_CHECKING:
    from privfed.metrics.profiles import Profiles
    from privfed.privacy.budget import PrivacyBudget

BETTER = {"minimum": "lower is better", "maximum": "higher is better", "elbow": "the bend counts"}


class ProfileDisplay(Display):
    """How far the mean of each column in each cluster lies from that of all rows, as a heat map.

    Args:
        apart: in standard deviations of all rows, (n_clusters, n_features) float64; NaN without rows.
        sizes: rows of each cluster, (n_clusters,).
        columns: names of the columns.
        names: names of the clusters; None for their numbers.
    """

    def __init__(
        self, apart: FloatArray, sizes: FloatArray, columns: Sequence[str], names: Sequence[str] | None = None
    ) -> None:
        self.apart, self.columns = apart, columns
        named = names or [str(i) for i in range(len(sizes))]
        self.names = [f"{name}\n{size:,.0f}" for name, size in zip(named, sizes, strict=True)]
        k, d = apart.shape
        self.size = (max(COLUMN, min(2.2 + 0.5 * k, 24.0)), min(max(2.4, 1.1 + 0.2 * d), 40.0))

    @classmethod
    def from_profiles(
        cls,
        profiles: Profiles,
        columns: Sequence[str],
        names: Sequence[str] | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw what `privfed.metrics.profiles` found: a display itself asks nobody."""
        return cls(profiles.apart, profiles.sizes, columns, names)._shown(ax)

    def _draw(self, ax: Axes) -> None:
        k, d = self.apart.shape
        image = ax.imshow(self.apart.T, cmap="RdBu_r", vmin=-2.0, vmax=2.0, aspect="auto")
        ax.set_xticks(range(k), self.names, fontsize="small")
        ax.set(xlabel="cluster, and its rows", yticks=range(d), yticklabels=list(self.columns))
        ax.grid(False)
        ax.figure.colorbar(image, ax=ax, label="mean - mean of all rows\n(sd of all rows)", extend="both")
        for i, j in np.ndindex(k, d) if k * d <= 400 else ():
            if not np.isnan(value := float(self.apart[i, j])):
                ax.text(
                    i,
                    j,
                    f"{round(value, 1) + 0.0:+.1f}",
                    ha="center",
                    va="center",
                    fontsize="x-small",
                    color="white" if abs(value) > 1.3 else "black",
                )


class ValidityDisplay(Display):
    """Indices over the number of clusters, one above the other, with the chosen number marked.

    Args:
        curves: name of each index -> numbers of clusters, values, the chosen number and what is better.
    """

    def __init__(self, curves: dict[str, tuple[Sequence[int], Sequence[float], int, str]]) -> None:
        self.curves = curves
        self.size = (COLUMN, 1.2 + 1.4 * len(curves))

    @classmethod
    def from_selection(cls, *selections: Any, ax: Axes | None = None) -> Self:
        """Draw results of `privfed.select_n_clusters`, each with an index of its own."""
        return cls.of(*selections)._shown(ax)

    @classmethod
    def of(cls, *selections: Any) -> Self:
        """Return the display that `from_selection` draws."""
        curves: dict[str, tuple[Sequence[int], Sequence[float], int, str]] = {}
        for one in selections:
            numbers, values = [row.n_clusters for row in one.table], [row.index for row in one.table]
            name = f"{one.index} (noised)" if one.privacy_claim is not None else one.index
            curves[name.replace("_", " ")] = numbers, values, one.n_clusters, BETTER[one.rule]
        return cls(curves)

    def _draw(self, ax: Axes) -> None:
        panels = [ax]
        if len(self.curves) > 1 and (place := ax.get_subplotspec()) is not None:
            ax.set_axis_off()
            panels = [*place.subgridspec(len(self.curves), 1).subplots(squeeze=False).flat]
        for i, (panel, (name, curve)) in enumerate(zip(panels, self.curves.items(), strict=True)):
            numbers, values, best, better = curve
            panel.plot(numbers, values, marker=MARKERS[i], color=COLOURS[0])
            at, said = (best, values[list(numbers).index(best)]), f"chosen: {best}"
            panel.plot(*at, "o", color=COLOURS[1], markersize=10, fillstyle="none", label=said)
            panel.set_ylabel(f"{name}\n({better})")
            panel.margins(0.1)
            whole_rounds(panel)
            panel.legend()
        panels[-1].set_xlabel("number of clusters")


class BudgetDisplay(Display):
    """The share of a budget that was spent, over time.

    Args:
        dates: when each payment was made (UTC).
        shares: share of the budget that each took.
        purposes: what each was for.
    """

    size = (5.0, 2.8)

    def __init__(self, dates: Sequence[datetime], shares: Sequence[float], purposes: Sequence[str]) -> None:
        self.dates, self.shares, self.purposes = dates, shares, purposes

    @classmethod
    def from_budget(cls, budget: PrivacyBudget, ax: Axes | None = None) -> Self:
        """Draw the payments of a budget's log."""
        return cls.of(budget)._shown(ax)

    @classmethod
    def of(cls, budget: PrivacyBudget) -> Self:
        """Return the display that `from_budget` draws."""
        paid = budget.log()
        dates = [datetime.fromisoformat(one.date) for one in paid]
        return cls(dates, [one.share for one in paid], [one.purpose for one in paid])

    def _draw(self, ax: Axes) -> None:
        spent: FloatArray = np.cumsum([0.0, *self.shares])
        when: Any = [*self.dates[:1], *self.dates]
        ax.plot(when, spent[: len(when)], "o-", color=COLOURS[0], drawstyle="steps-post", gid="spent")
        ax.axhline(1.0, color=COLOURS[1], linestyle="--", label="all of it")
        for end, purpose, share in zip(spent[1:], self.purposes, self.shares, strict=True):
            if share >= 0.04:
                ax.annotate(
                    f"{purpose[:28]}: {share:.2g}",
                    (1.02, end - share / 2.0),
                    xycoords=("axes fraction", "data"),
                    va="center",
                    fontsize="small",
                    annotation_clip=False,
                )
        if self.dates:
            room = max((self.dates[-1] - self.dates[0]) / 20, timedelta(hours=12))
            ax.set_xlim(self.dates[0] - room, self.dates[-1] + room)  # type: ignore[arg-type]
        locator = AutoDateLocator(minticks=2, maxticks=4)  # type: ignore[no-untyped-call]
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        # The year stands at the right.
        ax.set_xlabel("paid on (UTC)", loc="left")
        ax.set(ylabel="share of the budget spent", ylim=(0.0, 1.05))
        ax.legend(loc="lower right")
