"""The work of `privfed example`: a table of made-up patients to try the other commands on."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import numpy as np
import polars as pl

from privfed.core.stored.files import write_new

COLUMNS = {
    "age": ((30.0, 46.0, 70.0, 82.0), 5.0),
    "systolic": ((116.0, 136.0, 162.0, 124.0), 7.0),
    "bmi": ((22.0, 34.0, 28.0, 20.0), 1.5),
}
"""In years, mmHg and kg/m2: the means of four kinds of patients, and the deviation within a kind."""


def example(file: Path) -> None:
    """Do the work of `privfed example`."""
    rng = np.random.default_rng(0)
    kinds, hospitals = rng.integers(4, size=800), np.resize(["aarhus", "odense", "viborg", "horsens"], 800)
    drawn = {name: rng.normal(np.array(means)[kinds], sd).round(1) for name, (means, sd) in COLUMNS.items()}
    write_new(file, pl.DataFrame({"hospital": hospitals, **drawn}).write_csv().encode())
    click.echo(
        f"Written: {file}, 800 made-up patients of four hospitals ({', '.join(COLUMNS)}). Cluster them:\n\n"
        f"    privfed fit {shlex.quote(str(file))} --group hospital -k 4 --scale standard"
        " --profile --out run/\n"
    )
