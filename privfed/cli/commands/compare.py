"""`privfed compare`: what changed between two studies."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table

from privfed.cli.display.output import printed
from privfed.experiments.report.compare import Comparison, read_results
from privfed.experiments.report.compare import compare as compared
from privfed.experiments.report.summary import shown
from privfed.experiments.report.tables import name_of

_MOST = 40


@click.command(short_help="Show what changed between two studies.")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def compare(first: Path, second: Path, as_json: bool) -> None:
    """Show what changed from the study in folder FIRST to the one in folder SECOND.

    Configurations are matched by what the studies call them. A spread is the two standard deviations
    together.
    """
    found = compared(read_results(first), read_results(second))
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
        return
    _tell(found, first, second)


def _tell(found: Comparison, first: Path, second: Path) -> None:
    for folder, only in ((first, found.only_first), (second, found.only_second)):
        for name in only:
            click.echo(f"only in {folder}: {name}")
    click.echo(f"{found.same} configurations agree in everything but seconds.")
    if not found.changes:
        return
    table = Table("configuration", "measure", str(first), str(second), "spreads")
    for one in found.changes[:_MOST]:
        spreads = "" if one.spreads == float("inf") else f"{one.spreads:.1f}"
        table.add_row(one.configuration, name_of(one.measure), _shown(one.before), _shown(one.after), spreads)
    printed(table)
    if len(found.changes) > _MOST:
        click.echo(f"{len(found.changes) - _MOST} smaller differences are left out; --json has them all.")


def _shown(value: float) -> str:
    return "" if value != value else shown(value)
