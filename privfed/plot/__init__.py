"""Pictures for notebooks and papers: displays in scikit-learn's habit, drawn by matplotlib.

A class method makes and draws a display (`ConvergenceDisplay.from_estimator(model)`); it then has `ax_` and
`figure_`. `display.plot(ax)` draws it again into axes of yours, and returns them. `figure_of` sets displays
side by side, and `save` writes a figure as PNG, SVG or PDF with its texts as texts. `STYLE` is for
`matplotlib.rcParams.update`.

Reveals: nothing. A display shows what was released, never a row, and asks nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privfed.core.names import lazily

if TYPE_CHECKING:
    from privfed.attacks.base.displays import ListedDisplay, ReportDisplay, RocDisplay
    from privfed.experiments.plot import EpsilonDisplay, LeakageDisplay
    from privfed.plot.fits import ClusterMapDisplay, ConvergenceDisplay, DendrogramDisplay
    from privfed.plot.results import BudgetDisplay, ProfileDisplay, ValidityDisplay
    from privfed.plot.style import STYLE, Display, figure_of, save
    from privfed.tables.plot import SurvivalDisplay

__all__ = [
    "STYLE",
    "BudgetDisplay",
    "ClusterMapDisplay",
    "ConvergenceDisplay",
    "DendrogramDisplay",
    "Display",
    "EpsilonDisplay",
    "LeakageDisplay",
    "ListedDisplay",
    "ProfileDisplay",
    "ReportDisplay",
    "RocDisplay",
    "SurvivalDisplay",
    "ValidityDisplay",
    "figure_of",
    "save",
]

# Another part adds a display by one line: its name here and in `__all__`, and the module that has it.
__getattr__ = lazily(
    __name__,
    {
        "BudgetDisplay": "privfed.plot.results",
        "ClusterMapDisplay": "privfed.plot.fits",
        "ConvergenceDisplay": "privfed.plot.fits",
        "DendrogramDisplay": "privfed.plot.fits",
        "Display": "privfed.plot.style",
        "EpsilonDisplay": "privfed.experiments.plot",
        "LeakageDisplay": "privfed.experiments.plot",
        "ReportDisplay": "privfed.attacks.base.displays",
        "ListedDisplay": "privfed.attacks.base.displays",
        "ProfileDisplay": "privfed.plot.results",
        "RocDisplay": "privfed.attacks.base.displays",
        "STYLE": "privfed.plot.style",
        "SurvivalDisplay": "privfed.tables.plot",
        "ValidityDisplay": "privfed.plot.results",
        "figure_of": "privfed.plot.style",
        "save": "privfed.plot.style",
    },
)
