"""`privfed compare`: what changed between two studies."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table

from privfed.cli.display.output import printed
from privfed.experiments.report.claims import SCORED
from privfed.experiments.report.compare import Comparison, read_claims, read_results
from privfed.experiments.report.compare import compare as compared
from privfed.experiments.report.summary import shown
from privfed.experiments.report.tables import name_of
from privfed.privacy.claim import one_line

_MOST = 40


@click.command(short_help="Show what changed between two studies.")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def compare(first: Path, second: Path, as_json: bool) -> None:
    """Show what changed from the study in folder FIRST to the one in folder SECOND.

    Configurations are matched by their names. Changes are measured in units of both standard deviations
    combined.
    """
    found = compared(read_results(first), read_results(second))
    claims = {str(folder): read_claims(folder) for folder in (first, second)}
    if as_json:
        click.echo(json.dumps({**asdict(found), "claims": claims}, indent=2))
        return
    _tell(found, first, second)
    _tell_claims(claims)


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


def _tell_claims(claims: dict[str, dict[str, str]]) -> None:
    """Print what the private configurations of each study claim; a claim of both is printed once."""
    none = one_line(None)
    told = Counter((name, said) for own in claims.values() for name, said in own.items() if said != none)
    for (name, said), studies in told.items():
        where = [folder for folder, own in claims.items() if own.get(name) == said]
        click.echo(f"{'' if studies > 1 else where[0] + ', '}{name}: {said}.")
    if told:
        click.echo(SCORED)


def _shown(value: float) -> str:
    return "" if value != value else shown(value)
