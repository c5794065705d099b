"""Displays of studies: measures over epsilon, rounds or fits, with bands, and leakage against cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from privfed.errors import ArgumentError, RunFolderError
from privfed.plot.style import COLOURS, DASHES, MARKERS, Display

TABLE = "study.csv"
COST, LEAKAGE, AT_LEAST = "cost ratio", "leakage", "leakage, at least"
KEYS = ("algorithm", "sum", "defence")
"""Columns that a line stands for, beside those that have one value."""

SHARES = (LEAKAGE, "recovered")
"""First words of measures that lie in [0, 1]."""

DRAWS, MOST_TICKS = 1000, 8

Line = dict[float, Sequence[float]]
"""Value across -> a measure, one value for each seed."""


def read(folder: str | Path) -> pl.DataFrame:
    """Return the table of a finished study, one row for each fit; `pandas.read_csv` reads `study.csv` too.

    Columns are the study's axes, `epsilon` (inf without a guarantee), `delta`, `seed`, the cell, and all that
    was measured, with units in brackets.

    Raises:
        RunFolderError: the folder holds no finished study, or its table was changed.
    """
    try:
        return pl.read_csv(Path(folder) / TABLE, infer_schema_length=None, raise_if_empty=False)
    except (OSError, pl.exceptions.PolarsError):
        raise RunFolderError(
            f"{folder} holds no {TABLE} that can be read; name a folder that 'privfed tradeoff' wrote."
        ) from None


def band(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median over seeds, and the ends of its bootstrap interval (percentiles 2.5 and 97.5)."""
    own = np.asarray(values, dtype=np.float64)
    drawn = np.random.default_rng(0).choice(own, (DRAWS, len(own)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return float(np.median(own)), float(low), float(high)


def lines_of(
    frame: pl.DataFrame, measure: str, *beside: str, across: str = "epsilon", keys: Sequence[str] = KEYS
) -> dict[str, dict[float, list[float]]]:
    """Return name of each line -> value across -> measure on each seed, where it and those beside are known.

    What names a line depends on all rows of the frame, so that it has one name for every measure.
    """
    keys = [one for one in keys if frame[one].n_unique() > 1] or [keys[0]]
    found: dict[str, dict[float, list[float]]] = {}
    for row in frame.drop_nulls([measure, *beside]).iter_rows(named=True):
        name = ", ".join(row[key] for key in keys if row[key] != "none")
        found.setdefault(name, {}).setdefault(row[across], []).append(row[measure])
    return found


def chosen(study: str | Path | pl.DataFrame, measure: str, data: str | None) -> pl.DataFrame:
    """Return the rows of one data set and partition.

    Args:
        study: a finished study's folder, or what `read` returned, filtered as you like.
        measure: a column that it must have.
        data: name of the data set; None where there is one.

    Raises:
        ArgumentError: there is no such column or data set, or there are several data sets or partitions.
    """
    whole = study if isinstance(study, pl.DataFrame) else read(study)
    frame = whole if data is None else whole.filter(pl.col("data") == data)
    for what, one, known in (("data set", data, whole["data"]), ("column", measure, frame.columns)):
        if not len(whole) or one not in (None, *known):
            raise ArgumentError(f"the study has no {what} {one!r}; it has {', '.join(dict.fromkeys(known))}.")
    for key in ("data", "partition"):
        if frame[key].n_unique() > 1:
            listed = ", ".join(frame[key].unique(maintain_order=True))
            raise ArgumentError(
                f"the study has several values of {key}: {listed}; filter the frame of read()."
            )
    return frame


class BandsDisplay(Display):
    """Medians over seeds, with a bootstrap band where there are several; a line for each name.

    Args:
        lines: name -> value across -> the measure, one for each seed.
        across: name of the axis below.
        up: name of the axis beside.
        names: all names, which fix colours and marks; by default those of `lines`.
        title: of the panel.
        log: whether the axis below is logarithmic, where all of it is above 0.
        ticks: values across that have a place on the axis, also where no line has them.
    """

    def __init__(
        self,
        lines: Mapping[str, Mapping[float, Sequence[float]]],
        across: str,
        up: str,
        names: Iterable[str] = (),
        title: str = "",
        log: bool = True,
        ticks: Iterable[float] = (),
    ) -> None:
        self.lines, self.across, self.up, self.title, self.log = lines, across, up, title, log
        self.names, self.ticks = list(names) or list(lines), ticks

    def numbers(self) -> list[dict[str, Any]]:
        """Return what is drawn: a row for each point, with the number of seeds behind it."""
        return [
            {"panel": self.title, "measure": self.up, "line": name, self.across: at, "n": len(values)}
            | dict(zip(("median", "low", "high"), band(values), strict=True))
            for name, line in self.lines.items()
            for at, values in sorted(line.items())
        ]

    def _draw(self, ax: Axes) -> None:
        all_at = sorted({at for line in self.lines.values() for at in line} | {*self.ticks})
        finite = [at for at in all_at if math.isfinite(at)] or [1.0]
        # What has no bound stands at the right end, apart.
        end = 2.5 * finite[-1]
        ax.update_datalim([(min(at, end), 0.0) for at in all_at], updatey=False)
        for name, line in self.lines.items():
            i = self.names.index(name)
            # Open marks show those below them.
            style: dict[str, Any] = {"color": COLOURS[i % 7], "marker": MARKERS[i % 7], "mfc": "none"}
            points = [(at, *band(line[at])) for at in sorted(line)]
            inner = np.array([one for one in points if math.isfinite(one[0])]).reshape(-1, 4).T
            ax.plot(inner[0], inner[1], DASHES[i % 4], label=name, **style)
            ax.fill_between(inner[0], inner[2], inner[3], color=style["color"], alpha=0.15, linewidth=0)
            for _, middle, low, high in (one for one in points if not math.isfinite(one[0])):
                # Without a bound there is no place on the axis, and room to stand beside each other.
                ax.errorbar(
                    end * (1.0 + 0.25 * i / len(self.names)),
                    middle,
                    [[middle - low], [high - middle]],
                    **style,
                )
        if self.log and finite[0] > 0.0:
            ax.set_xscale("log", subs=[])
        if len(all_at) <= MOST_TICKS:
            ax.set_xticks(
                [min(at, end) for at in all_at], [f"{at:g}".replace("inf", "none") for at in all_at]
            )
        ax.set(xlabel=self.across, ylabel={LEAKAGE: AT_LEAST}.get(self.up, self.up))
        if self.up.split()[0] in SHARES:
            # A share near 0 is not to look large.
            ax.set_ylim(-0.02, max(ax.get_ylim()[1], 0.25))
        if self.lines:
            ax.legend(title=self.seeds(), title_fontsize="x-small")

    def seeds(self) -> str:
        """Say how many seeds the lines rest on."""
        counts = {len(values) for line in self.lines.values() for values in line.values()}
        many = " to ".join(map(str, sorted({min(counts), max(counts)}))) if counts else "no"
        return "one seed, no bands" if counts == {1} else f"median of {many} seeds, 95 % bootstrap band"


class EpsilonDisplay(BandsDisplay):
    """A measure over epsilon, a line for each algorithm, sum and defence; no guarantee is at the right."""

    @classmethod
    def from_study(
        cls,
        study: str | Path | pl.DataFrame,
        measure: str = COST,
        data: str | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw a study's folder, or the frame of `privfed.experiments.read`; raises as `chosen`."""
        return cls.of(study, measure, data)._shown(ax)

    @classmethod
    def of(cls, study: str | Path | pl.DataFrame, measure: str = COST, data: str | None = None) -> Self:
        """Return the display that `from_study` draws."""
        frame = chosen(study, measure, data)
        return cls(lines_of(frame, measure), "epsilon", measure, title=frame["data"][0])


class LeakageDisplay(Display):
    """Leakage against cost: a mark for each configuration, with bootstrap intervals over seeds.

    Args:
        points: name -> text beside the mark -> costs and leakages, one for each seed.
        title: of the panel.
        names: all names, which fix colours and marks; by default those of `points`.
    """

    def __init__(
        self,
        points: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]],
        title: str = "",
        names: Iterable[str] = (),
    ) -> None:
        self.points, self.title, self.names = points, title, list(names) or list(points)

    @classmethod
    def from_study(
        cls, study: str | Path | pl.DataFrame, data: str | None = None, ax: Axes | None = None
    ) -> Self:
        """Draw a study's folder, or the frame of `privfed.experiments.read`; raises as `chosen`."""
        return cls.of(study, data)._shown(ax)

    @classmethod
    def of(cls, study: str | Path | pl.DataFrame, data: str | None = None) -> Self:
        """Return the display that `from_study` draws."""
        frame = chosen(chosen(study, COST, data), LEAKAGE, data)
        costs, leaked = lines_of(frame, COST, LEAKAGE), lines_of(frame, LEAKAGE, COST)
        points = {
            name: {
                f"{at:g}" if math.isfinite(at) else "": (values, leaked[name][at])
                for at, values in costs[name].items()
            }
            for name in costs
        }
        return cls(points, frame["data"][0])

    def _draw(self, ax: Axes) -> None:
        for name, own in self.points.items():
            i, label = self.names.index(name), name
            for text, pair in own.items():
                (x, left, right), (y, low, high) = map(band, pair)
                style: dict[str, Any] = {"color": COLOURS[i % 7], "marker": MARKERS[i % 7], "mfc": "none"}
                ax.errorbar(
                    x,
                    y,
                    [[y - low], [high - y]],
                    [[x - left], [right - x]],
                    label=label,
                    linewidth=0.8,
                    **style,
                )
                # Marks at one place have their texts around it.
                ax.annotate(
                    text,
                    (x, y),
                    (3 - 10 * (i // 2 % 2), 3 - 10 * (i % 2)),
                    textcoords="offset points",
                    fontsize="x-small",
                    color=style["color"],
                )
                label = "_"
        ax.set(xlabel=f"{COST} to central k-means", ylabel=AT_LEAST)
        ax.set_ylim(-0.03, max(ax.get_ylim()[1], 0.25))
        if self.points:
            ax.legend(title="beside a mark: epsilon", title_fontsize="x-small")
