"""The commands `privfed tradeoff` and `privfed compare`."""

from __future__ import annotations

import click

from privfed.cli import options
from privfed.cli.program import command


@command(
    None,
    "privfed.experiments.commands.studies:tradeoff",
    "Run a study of utility, privacy, leakage and cost.",
    click.argument("study"),
    click.option("--out", type=options.PATH, help="Folder of the study.  [default: the study's name]"),
    click.option("--jobs", type=click.IntRange(1), help="Number of processes.  [default: that of cores]"),
    click.option("--scheduler", metavar="ADDRESS", help="Dask scheduler whose workers run the cells."),
    click.option("--seeds", type=click.IntRange(1), help="Seeds 0, 1, ... in place of the study's."),
    click.option("--retry", is_flag=True, help="Run cells again that failed."),
    click.option("--check", is_flag=True, help="Check the study, list its mistakes, and run nothing."),
    options.quiet_option,
)
def tradeoff() -> None:
    """Run STUDY, a TOML file or the name of a built-in study, and write its report.

    The whole study is checked before anything runs. Each cell is stored when it is done, so the same command
    continues where it was stopped, and runs only the new cells of a study that has grown.
    """


@command(
    None,
    "privfed.experiments.commands.studies:compare",
    "Show what changed between two studies.",
    click.argument("first", type=options.PATH),
    click.argument("second", type=options.PATH),
    options.json_option,
)
def compare() -> None:
    """Show what changed from the study in folder FIRST to the one in folder SECOND.

    Configurations are matched by their names. Changes are measured in units of both standard deviations
    combined.
    """
