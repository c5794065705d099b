"""Displays of attacks: what was found beside no access, rows beside claims, and scores of membership."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from matplotlib.axes import Axes

from privfed.plot.style import COLOURS, DASHES, Display

if TYPE_CHECKING:
    from privfed.attacks.base.report import Report


SHADES = ("0.6", COLOURS[1], COLOURS[0], "0.85")
"""Of no access, what was recovered, its precision and the bound."""


class ReportDisplay(Display):
    """What an attack recovered beside the same attacker without access, its precision and the bound.

    Args:
        report: of the attack.
    """

    def __init__(self, report: Report) -> None:
        self.report = report

    @classmethod
    def from_report(cls, report: Report, ax: Axes | None = None) -> Self:
        """Draw the report of an attack."""
        return cls(report)._shown(ax)

    def _draw(self, ax: Axes) -> None:
        one, names = self.report, ("no access", "recovered", "precision", "bound")
        known = [*zip(names, (one.baseline, one.recovered, one.precision, one.bound), SHADES, strict=True)]
        shown = [bar for bar in known if math.isfinite(bar[1])]
        heights, colours = [bar[1] for bar in shown], [bar[2] for bar in shown]
        bars = ax.bar([bar[0] for bar in shown], heights, color=colours, edgecolor="0.3")
        ax.bar_label(bars, fmt="%.2f", fontsize="small")
        ax.set(ylim=(min([0.0, *heights]), 1.1), ylabel="share, or area under the curve")


class SceneDisplay(ReportDisplay):
    """Rows beside what an attack claims of them; it may show rows, so only their owner should see it."""

    def _draw(self, ax: Axes) -> None:
        for i, (name, points) in enumerate(self.report.scenes.items()):
            style: dict[str, Any] = {"marker": "ox"[i], "color": ("0.7", COLOURS[1])[i], "linewidths": 1}
            ax.scatter(points[:, 0], points[:, 1], s=12, label=name, **style)
        ax.set(xlabel="first principal direction", ylabel="second principal direction")
        ax.ticklabel_format(scilimits=(-2, 3))
        ax.legend()


class RocDisplay(ReportDisplay):
    """The ROC curve of an attack on membership, with theory and what privacy allows, where known."""

    def _draw(self, ax: Axes) -> None:
        for i, (name, points) in enumerate(self.report.scenes.items()):
            label = f"attack (area {self.report.recovered:.3g})" if name == "ROC" else name
            ax.plot(points[:, 0], points[:, 1], DASHES[i], color=COLOURS[1 - i], label=label)
        ax.plot([0, 1], [0, 1], ":", color="0.5", label="guesses (area 0.5)")
        ax.set(xlabel="share of others taken for members", ylabel="share of members found")
        ax.legend(loc="lower right")


class ListedDisplay(Display):
    """How well members are told over the share of them that the attacker's list holds.

    Args:
        reports: share of the members that the list holds, in (0, 1] -> the report of that attack.
    """

    def __init__(self, reports: Mapping[float, Report]) -> None:
        self.reports = dict(sorted(reports.items()))

    @classmethod
    def from_reports(cls, reports: Mapping[float, Report], ax: Axes | None = None) -> Self:
        """Draw attacks on one run that differ in the list that the attacker has."""
        return cls(reports)._shown(ax)

    def _draw(self, ax: Axes) -> None:
        found, shares = list(self.reports.values()), list(self.reports)
        ax.plot(shares, [one.recovered for one in found], "o-", color=COLOURS[1], label=found[0].attack)
        ax.plot(shares, [one.baseline for one in found], ":", color="0.5", label="no access")
        ax.set(
            xlabel="share of members that are listed",
            ylabel=found[0].goal,
            xlim=(0.0, 1.05),
            ylim=(0.0, 1.05),
        )
        ax.legend(loc="lower right")
