"""Draw what a party gave in each month: its answers above the epsilon of the fits that began in it.

privfed journal export ward3 --out record.json
python -m examples.operation.months record.json months.png
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator


def months_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a line for each month and data set in a record, the oldest first."""
    fits = {fit["number"]: fit for fit in record["fits"]}
    found: dict[tuple[str, str], Any] = defaultdict(
        lambda: {"answers": 0, "epsilon": 0.0, "fits_without_guarantee": 0}
    )
    for fit in fits.values():
        month = found[fit["began"][:7], fit["data_set"]]
        month["epsilon"] += fit["epsilon"] or 0.0
        month["fits_without_guarantee"] += fit["epsilon"] is None
    for entry in record["entries"]:
        if entry["kind"] == "sum":
            found[entry["at"][:7], fits[entry["fit"]]["data_set"]]["answers"] += 1
    return [{"month": at, "data_set": rows, **month} for (at, rows), month in sorted(found.items())]


def drawn(record: dict[str, Any]) -> Figure:
    """Return a figure of what is in a record; a month without an answer is an empty one."""
    lines = months_of(record)
    first, last = (np.datetime64(line["month"], "M") for line in (lines[0], lines[-1]))
    months, data_sets = np.arange(first, last + 1).astype(str), sorted({line["data_set"] for line in lines})
    unclaimed = {line["month"] for line in lines if int(line["fits_without_guarantee"])}
    figure = Figure(figsize=(min(4.0 + 0.4 * len(months), 24.0), 6.0), layout="constrained")
    panels, width = figure.subplots(2, 1, sharex=True), 0.8 / len(data_sets)
    titles = {"answers": "Sums answered", "epsilon": "Epsilon of the fits that began in it"}
    for axes, (column, title) in zip(panels, titles.items(), strict=True):
        # Data sets stand side by side: epsilon of different rows does not add up.
        for number, rows in enumerate(data_sets):
            own = {line["month"]: float(line[column]) for line in lines if line["data_set"] == rows}
            place = np.arange(len(months)) + (number - (len(data_sets) - 1) / 2) * width
            axes.bar(place, [own.get(month, 0.0) for month in months], width, label=rows)
        axes.set_title(title, loc="left")
        axes.grid(axis="y", color="#dddddd", linewidth=0.5)
        axes.set_axisbelow(True)
    names = [f"{month}{' *' * (month in unclaimed)}" for month in months]
    axes.set_xticks(range(len(months)), names, rotation=90 if len(months) > 8 else 0)
    axes.set_xlabel("month; * a fit in it gave no guarantee of differential privacy")
    panels[0].yaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(*panels[0].get_legend_handles_labels(), title="data set", loc="outside right upper")
    return figure


if __name__ == "__main__":
    drawn(json.loads(Path(sys.argv[1]).read_text())["record"]).savefig(sys.argv[2])
