"""The figures of a report: what each shows, as displays, and their files."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib.figure import Figure

from privfed.core.stored.files import make_folder, rewrite
from privfed.experiments.plot import COST, LEAKAGE, BandsDisplay, LeakageDisplay, Line, lines_of
from privfed.experiments.report.curves import Curve
from privfed.experiments.report.summary import Row
from privfed.experiments.report.tables import short
from privfed.plot.style import Display, figure_of, save

FOLDER = "figures"
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 10.0)

ANCHORS: dict[str, dict[str, tuple[float, ...]]] = {
    "big": {
        "diffprivlib k-means (IBM)": (2.699, 1.789, 1.734, 1.418, 1.322, 1.293),
        "FastLloyd": (1.877, 1.311, 1.244, 1.249, 1.203, 1.203),
        "LSH clustering (Google), central": (2.373, 1.576, 1.361, 1.238, 1.220, 1.179),
    },
    "blobs": {
        "diffprivlib k-means (IBM)": (2.001, 1.168, 1.149, 1.042, 1.013, 1.006),
        "FastLloyd": (1.368, 1.222, 1.210, 1.213, 1.208, 1.207),
        "LSH clustering (Google), central": (2.989, 1.344, 1.253, 1.079, 1.125, 1.096),
    },
    "digits": {
        "diffprivlib k-means (IBM)": (5.057, 2.843, 2.144, 1.901, 1.761, 1.568),
        "FastLloyd": (2.025, 1.704, 1.579, 1.463, 1.410, 1.350),
        "LSH clustering (Google), central": (3.234, 1.988, 1.684, 1.517, 1.424, 1.342),
    },
    "g2": {
        "diffprivlib k-means (IBM)": (6.082, 2.402, 1.656, 1.251, 1.051, 1.011),
        "FastLloyd": (1.480, 1.084, 1.052, 1.002, 1.001, 1.000),
        "LSH clustering (Google), central": (2.125, 1.271, 1.144, 1.099, 1.051, 1.025),
    },
}
"""Published differentially private clusterings: source of a set -> method -> cost ratio for each epsilon.

The sets are those of `privfed.experiments.datasets`. A number is the cost of the released centers relative to
central k-means: mean of 20 seeds (10 on "big"), record level, add or remove, delta = 1 / (n ln n) with n rows
(IBM's is pure epsilon). FastLloyd is run as published, although its released code does not satisfy its claim:
noise is truncated to integers, and sums and counts share one seed.
"""

WIDE, MOST_COLUMNS, MOST_PANELS = 7.0, 3, 12


@dataclass(frozen=True)
class Picture:
    """Holds a figure of the report: its name among the files, what it shows, and its panels, row by row."""

    name: str
    about: str
    panels: Sequence[Display]
    columns: int

    @property
    def figure(self) -> Figure:
        """The panels as one figure with one legend."""
        for one in self.panels:
            one.size = (max(WIDE / self.columns, 2.2), 2.3)
        figure = figure_of(*self.panels, columns=self.columns)
        found: dict[str, Any] = {}
        title = ""
        for ax in figure.axes:
            found |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
            if (legend := ax.get_legend()) is not None:
                title = title or legend.get_title().get_text()
                legend.remove()
        columns = max(1, min(4, 100 // max(map(len, found), default=1)))
        text: dict[str, Any] = {"title": title, "title_fontsize": 7, "ncols": columns}
        figure.legend(found.values(), list(found), loc="outside lower center", fontsize=7, **text)
        figure.set_figheight(figure.get_figheight() + 0.3 + 0.16 * len(found) / columns)
        return figure


def pictures(rows: Sequence[Row], frame: pl.DataFrame) -> list[Picture]:
    """Return the figures of a study, the trade-off first; those without anything to show are left out."""
    groups = [own for _, own in frame.group_by("data", "partition", maintain_order=True)]
    leaks = [(row, title, one) for row in rows for title, one in row.leaks.items()]
    fits = [(row, title, one) for row in rows for title, one in row.fits.items()]
    costs = [(row, "cost over the rounds", row.convergence) for row in rows if row.convergence is not None]
    seen = "Recovered by each attack from what its party saw up to each round."
    pooled = "From so many fits of the same rows together, with a seed each. Rows that joined stand apart."
    started = "Cost of the centers after each round, relative to central k-means; round 0 is the start."
    found = (
        _over_epsilon(rows, groups),
        _against_cost(groups),
        _curves("rounds", seen, "rounds seen", "recovered", leaks),
        _curves("fits", pooled, "fits seen", "recovered", fits),
        _curves("convergence", started, "round", COST, costs),
        _over_clients(rows),
    )
    return [one for one in found if one is not None and one.panels]


def _names(groups: Sequence[pl.DataFrame]) -> list[str]:
    """Return the names of all lines, so that each has one colour in all panels."""
    return list(dict.fromkeys(name for one in groups for name in lines_of(one, "seed")))


def _title(frame: pl.DataFrame) -> str:
    return f"{frame['data'][0]}, {frame['partition'][0]} clients"


def _over_epsilon(rows: Sequence[Row], groups: Sequence[pl.DataFrame]) -> Picture | None:
    """Return utility and leakage over epsilon, a column for each data set; None without a guarantee."""
    names = _names(groups)
    if not any(one["epsilon"].is_finite().any() for one in groups):
        return None
    first = {row.setup.labels["data"]: row for row in reversed(rows)}
    panels: list[Display] = []
    for measure in (COST, LEAKAGE):
        for one in groups:
            lines = lines_of(one, measure) if measure in one.columns else {}
            known = anchors(first[one["data"][0]]) if measure == COST else {}
            published = {
                f"{name} (published)": dict(zip(EPSILONS, own, strict=True)) for name, own in known.items()
            }
            panels.append(BandsDisplay(lines, "epsilon", measure, published, names, _title(one)))
    if not any(LEAKAGE in one.columns and one[LEAKAGE].is_not_null().any() for one in groups):
        panels = panels[: len(groups)]
    about = (
        "Above, the cost of what is released, relative to central k-means without noise; below, the largest "
        "advantage of any attack of this study."
    )
    if any(one.published for one in panels if isinstance(one, BandsDisplay)):
        about += " Published: record level, central or federated, delta = 1 / (n ln n), mean of 20 seeds."
    return Picture("tradeoff", about, panels, len(groups))


def _against_cost(groups: Sequence[pl.DataFrame]) -> Picture:
    known = [one for one in groups if {COST, LEAKAGE} <= set(one.columns)]
    points = {_title(one): LeakageDisplay.of(one).points for one in known}
    panels = [LeakageDisplay(own, name, _names(known)) for name, own in points.items() if own]
    about = "Better is further left and further down. What no attack could read has no mark."
    return Picture("leakage-against-cost", about, panels, min(len(panels), MOST_COLUMNS))


def _curves(name: str, about: str, across: str, up: str, curves: Sequence[tuple[Row, str, Curve]]) -> Picture:
    """Return curves over rounds or fits: a panel for each title, data set and algorithm."""
    groups: dict[str, list[tuple[Row, Curve]]] = {}
    for row, title, curve in curves:
        labels = row.setup.labels
        where = textwrap.fill(f"{title}: {labels['data']}, {labels['partition']}, {labels['algorithm']}", 27)
        groups.setdefault(where, []).append((row, curve))
    panels: dict[str, dict[str, Line]] = {}
    for where, own in list(groups.items())[:MOST_PANELS]:
        name_of = short([row for row, _ in own])
        panels[where] = {
            name_of(row): dict(zip(map(float, one.rounds), (at.values for at in one.values), strict=True))
            for row, one in own
        }
    names = list(dict.fromkeys(line for own in panels.values() for line in own))
    shown = [BandsDisplay(own, across, up, None, names, where, log=False) for where, own in panels.items()]
    return Picture(name, about, shown, min(len(shown), MOST_COLUMNS))


def _over_clients(rows: Sequence[Row]) -> Picture:
    """Return leakage and bytes over the number of clients, for each data set on which it varies."""
    panels = []
    for data in dict.fromkeys(row.setup.labels["data"] for row in rows):
        for measure in (LEAKAGE, "bytes"):
            lines: dict[str, Line] = {}
            for row in rows:
                labels, how = row.setup.labels, row.setup.partition.kind
                if labels["data"] == data and how != "given" and {measure, "clients"} <= row.stats.keys():
                    named = [labels[axis] for axis in ("algorithm", "sum", "privacy", "defence")]
                    line = ", ".join([*(one for one in named if one != "none"), how])
                    lines.setdefault(line, {})[row.stats["clients"].mean] = row.stats[measure].values
            lines = {name: own for name, own in lines.items() if len(own) > 1}
            if lines:
                unit = "bytes of a client" if measure == "bytes" else measure
                panels.append(BandsDisplay(lines, "clients", unit, title=data))
    return Picture("clients", "Leakage, and what one client sends and receives.", panels, min(len(panels), 2))


def anchors(row: Row) -> dict[str, tuple[float, ...]]:
    """Return the published figures for a configuration's data; none where it is not scaled like theirs."""
    data = row.setup.data
    # The published figures are for rows in [-1, 1].
    if (data.low, data.high) != (-1.0, 1.0) or data.standardise or data.public:
        return {}
    scale = (8.0, 8.0) if data.source == "digits" else (0.0, 1.0)
    return ANCHORS.get(data.source, {}) if (data.center, data.unit) == scale else {}


def write_figures(folder: Path, found: Iterable[Picture]) -> dict[str, str]:
    """Write each figure as PDF, SVG and the table of its numbers; return its name -> HTML that shows it."""
    shown, place = {}, folder / FOLDER
    make_folder(place)
    for one in found:
        figure = one.figure
        for kind in ("pdf", "svg"):
            save(figure, place / f"{one.name}.{kind}")
        numbers = [
            line for panel in one.panels if isinstance(panel, BandsDisplay) for line in panel.numbers()
        ]
        if numbers:
            rewrite(place / f"{one.name}.csv", pl.DataFrame(numbers).write_csv().encode())
        drawn = base64.b64encode((place / f"{one.name}.svg").read_bytes()).decode()
        about = f"{one.about} ({FOLDER}/{one.name}.pdf, .svg{', .csv' * bool(numbers)})"
        shown[one.name] = (
            f'<figure><img alt="{escape(one.about)}" src="data:image/svg+xml;base64,{drawn}">'
            f"<figcaption>{escape(about)}</figcaption></figure>"
        )
    return shown
