"""The style of pictures, what every display has, and how figures are written."""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from privfed.core.stored.files import replaced
from privfed.errors import ArgumentError
from privfed.privacy.claim import PrivacySpent

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#777777")
"""Okabe and Ito's (2008), which colour-blind people tell apart, on white and on dark: no yellow, no black."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")

COLUMN = 3.4
"""Width of one column of a paper, in inches."""

STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.prop_cycle": mpl.rcsetup.cycler(color=COLOURS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "font.size": 8,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "legend.fontsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}
"""Values of `matplotlib.rcParams` that new figures have: for one column of a paper, with texts as texts."""


class Display(ABC):
    """A picture of one pair of axes. `of` makes it, class methods `from_...` draw it, `plot` draws it again.

    Attributes:
        ax_: the axes that it was last drawn into.
        figure_: their figure.
        size: width and height in inches of a figure of its own.
        title: what `figure_of` writes above it; empty for nothing.
    """

    ax_: Axes
    figure_: Figure
    size: tuple[float, float] = (COLUMN, 2.6)
    title = ""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw into axes, or into those of a new figure; return them."""
        if ax is None:
            # Imported here, as commands write files and need no window.
            import matplotlib.pyplot as plt

            with mpl.rc_context(STYLE):
                self._draw(ax := plt.subplots(figsize=self.size, layout="constrained", dpi=150)[1])
        else:
            self._draw(ax)
        self.ax_, self.figure_ = ax, ax.figure.figure
        return ax

    def _shown(self, ax: Axes | None) -> Self:
        """Draw, and return the display, as class methods do."""
        self.plot(ax)
        return self

    @abstractmethod
    def _draw(self, ax: Axes) -> None:
        """Draw into axes."""


def whole_rounds(ax: Axes) -> None:
    """Label whole numbers alone across."""
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def figure_of(
    *displays: Display, title: str = "", claim: PrivacySpent | None = None, columns: int | None = None
) -> Figure:
    """Return a figure of displays side by side; a claim stands below it in two sentences.

    Args:
        *displays: what to draw, from left to right.
        title: title of the whole.
        claim: of differential privacy, such as `model.privacy_claim_`; pass it to `save` too.
        columns: how many stand beside each other, in rows; None for all.
    """
    across = columns or len(displays)
    rows = [displays[i : i + across] for i in range(0, len(displays), across)]
    widths, heights = [one.size[0] for one in rows[0]], [max(one.size[1] for one in row) for row in rows]
    with mpl.rc_context(STYLE):
        size = (sum(widths), sum(heights) + 0.25 * bool(title))
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.add_gridspec(len(rows), across, width_ratios=widths, height_ratios=heights)
        for i, one in enumerate(displays):
            ax = one.plot(figure.add_subplot(grid[divmod(i, across)]))
            if one.title:
                ax.set_title(one.title)
        figure.suptitle(title, fontsize=9)
        if claim is not None:
            said = f"{claim.short} The whole claim is in the metadata of this file."
            figure.supxlabel("\n".join(textwrap.wrap(said, int(20 * size[0]))), fontsize=6.5, color="#444444")
    return figure


def save(figure: Figure, path: str | Path, claim: PrivacySpent | None = None) -> Path:
    """Write a figure as PNG, SVG or PDF, by the file's name, and return the path.

    Texts stay texts in SVG and PDF, so that a paper can set them in its own font. Equal figures are equal
    files.

    Args:
        figure: such as `display.figure_`, or one of `figure_of`.
        path: a file that ends with .png, .svg or .pdf.
        claim: of differential privacy, all of which goes into the file's metadata.

    Raises:
        ArgumentError: the name has another ending.
    """
    path, said = Path(path), "" if claim is None else claim.line
    known: dict[str, dict[str, Any]] = {
        ".png": {"Description": said},
        ".svg": {"Description": said, "Date": None},
        ".pdf": {"Subject": said, "CreationDate": None},
    }
    kind = path.suffix.lower()
    if kind not in known:
        raise ArgumentError(f"{path} has no known format: its name must end with {' or '.join(known)}.")
    # The salt names the parts of equal pictures alike.
    fixed = STYLE | {"svg.hashsalt": path.stem}
    with mpl.rc_context(fixed), replaced(path) as fresh:
        figure.savefig(fresh, format=kind[1:], dpi=200, metadata=known[kind])
    return path
