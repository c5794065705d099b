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
        drawn = [zip(*ax.get_legend_handles_labels(), strict=True) for ax in figure.axes]
        found: dict[str, Any] = {label: handle for own in drawn for handle, label in own}
        legends = [own for ax in figure.axes if (own := ax.get_legend()) is not None]
        title = next((own.get_title().get_text() for own in legends), "")
        for own in legends:
            own.remove()
        columns = max(1, min(4, 100 // max(map(len, found), default=1)))
        figure.legend(
            found.values(),
            list(found),
            loc="outside lower center",
            fontsize=7,
            title=title,
            title_fontsize=7,
            ncols=columns,
        )
        figure.set_figheight(figure.get_figheight() + 0.3 + 0.16 * len(found) / columns)
        return figure


def pictures(rows: Sequence[Row], frame: pl.DataFrame) -> list[Picture]:
    """Return the figures of a study, the trade-off first; those without anything to show are left out."""
    groups = [own for _, own in frame.group_by("data", "partition", maintain_order=True)]
    found = (
        _over_epsilon(groups),
        _against_cost(groups),
        _curves(
            "rounds",
            "Recovered by each attack from what its party saw up to each round.",
            ("rounds seen", "recovered"),
            [(row, title, one) for row in rows for title, one in row.leaks.items()],
        ),
        _curves(
            "fits",
            "From so many fits of the same rows together, with a seed each. Rows that joined stand apart.",
            ("fits seen", "recovered"),
            [(row, title, one) for row in rows for title, one in row.fits.items()],
        ),
        _curves(
            "convergence",
            "Cost of the centers after each round, relative to central k-means; round 0 is the start.",
            ("round", COST),
            [(row, "cost over the rounds", one) for row in rows if (one := row.convergence) is not None],
        ),
        _over_clients(frame),
    )
    return [one for one in found if one is not None and one.panels]


def _names(groups: Sequence[pl.DataFrame]) -> list[str]:
    """Return the names of all lines, so that each has one colour in all panels."""
    return list(dict.fromkeys(name for one in groups for name in lines_of(one, "seed")))


def _title(frame: pl.DataFrame) -> str:
    return f"{frame['data'][0]}, {frame['partition'][0]} clients"


def _over_epsilon(groups: Sequence[pl.DataFrame]) -> Picture | None:
    """Return utility and leakage over epsilon, a column for each data set; None without a guarantee."""
    names = _names(groups)
    if not any(one["epsilon"].is_finite().any() for one in groups):
        return None
    panels: list[Display] = [
        BandsDisplay(
            lines_of(one, measure) if measure in one.columns else {},
            "epsilon",
            measure,
            names,
            _title(one),
            ticks=one["epsilon"],
        )
        for measure in (COST, LEAKAGE)
        for one in groups
    ]
    if not any(LEAKAGE in one.columns and one[LEAKAGE].is_not_null().any() for one in groups):
        panels = panels[: len(groups)]
    about = (
        "Above, the cost of what is released, relative to central k-means without noise; below, "
        "leakage: what the best attack of this study found beyond chance. It is a lower bound. With few "
        "candidates chance is large, and 0 does not say that nothing leaks."
        if len(panels) > len(groups)
        else "The cost of what is released, relative to central k-means without noise."
    )
    return Picture("tradeoff", about, panels, len(groups))


def _against_cost(groups: Sequence[pl.DataFrame]) -> Picture:
    known = [one for one in groups if {COST, LEAKAGE} <= set(one.columns)]
    points = {_title(one): LeakageDisplay.of(one).points for one in known}
    panels = [LeakageDisplay(own, name, _names(known)) for name, own in points.items() if own]
    about = (
        "Better is further left and further down. Leakage is a lower bound. What no attack could read has no "
        "mark."
    )
    return Picture("leakage-against-cost", about, panels, min(len(panels), MOST_COLUMNS))


def _curves(
    name: str, about: str, axes: tuple[str, str], curves: Sequence[tuple[Row, str, Curve]]
) -> Picture:
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
    shown = [BandsDisplay(own, *axes, names, where, log=False) for where, own in panels.items()]
    return Picture(name, about, shown, min(len(shown), MOST_COLUMNS))


def _over_clients(frame: pl.DataFrame) -> Picture:
    """Return leakage and bytes over the number of clients, for each data set on which it varies."""
    keys = ("algorithm", "sum", "privacy", "defence", "kind")
    parted = frame.filter(pl.col("kind") != "given")
    panels = [
        BandsDisplay(lines, "clients", unit, title=data)
        for (data,), own in parted.group_by("data", maintain_order=True)
        for measure, unit in ((LEAKAGE, LEAKAGE), ("bytes [B]", "bytes of a client"))
        if measure in own.columns
        for found in (lines_of(own, measure, across="clients", keys=keys),)
        if (lines := {name: line for name, line in found.items() if len(line) > 1})
    ]
    return Picture("clients", "Leakage, and what one client sends and receives.", panels, min(len(panels), 2))


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
