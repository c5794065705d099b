"""`privfed attack`: measures what a party could learn from a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from privfed.attacks import PassiveAttack, Report
from privfed.cli.commands.fit import fit
from privfed.cli.display.output import printed
from privfed.cli.folder.claim import claim_of_run, to_json
from privfed.cli.folder.run_folder import read_transcript
from privfed.cli.options import json_option, names, numbers, picture_option, quiet_option, truth_options
from privfed.cli.runs.attacking import chosen, known, run_one, target_of
from privfed.cli.runs.findings import FORMAT as REPORT_FORMAT
from privfed.cli.runs.findings import REPORT, keep, keys_of, picture_of, stored
from privfed.cli.runs.fitting import know_questions
from privfed.cli.speaking import said
from privfed.core.stored.files import make_folder
from privfed.errors import ArgumentError
from privfed.privacy.claim import PrivacySpent

_FIGURES = {
    "recovered": "recovered",
    "precision": "precision",
    "claims": "claims",
    "no access": "baseline",
    "bound": "bound",
}
"""Heads of the table's columns, with the names of the figures in a report."""

SCORED = "these figures are scored against the clients' rows: the claim does not cover what is printed here"


class AttackNames(click.Option):
    """Lists in its help the attacks that are registered when it is shown."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option and its help, with the names of attacks."""
        record = super().get_help_record(ctx)
        return None if record is None else (record[0], f"{record[1]} There are {', '.join(known())}.")


@click.command(short_help="Attack a run: what could be learned from what was seen.")
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--attack",
    "wanted",
    cls=AttackNames,
    metavar="A,B,...",
    callback=names,
    help="Which attacks, or MODULE:CLASS of your own; all by default.",
)
@truth_options
@click.option(
    "--public",
    "sample",
    type=click.Path(path_type=Path),
    help="Table of public rows of the same kind, which the attacker knows.",
)
@click.option(
    "--low",
    metavar="X[,Y,...]",
    callback=numbers,
    help="Lowest value of each feature, known to the attacker; with --high.",
)
@click.option(
    "--high",
    metavar="X[,Y,...]",
    callback=numbers,
    help="Highest value of each feature, known to the attacker; with --low.",
)
@click.option(
    "--party",
    type=click.Choice(["server", "observer", "clients"]),
    default="server",
    show_default=True,
    help="Who attacks: the server, an observer who sees only the final centroids, or the clients that are "
    "named with --colluding, by what they see together.",
)
@click.option("--colluding", metavar="A,B,...", callback=names, help="Clients that help the attacker.")
@click.option("--client", metavar="NAME", help="Client to attack, where the view shows single ones.")
@click.option(
    "--most-rows",
    type=click.IntRange(1),
    default=200,
    show_default=True,
    help="Most rows of a target that noisy-differencing takes on; its time grows in proportion.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Random seed.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write to.  [default: RUN/attacks]")
@quiet_option
@picture_option
@json_option
def attack(
    run_folder: Path,
    wanted: tuple[str, ...],
    algorithm: str | None,
    seed: int,
    out: Path | None,
    quiet: bool,
    picture: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Run attacks on what a party saw of the run in folder RUN, and score them against the truth.

    Attacks read only the party's view of the transcript; the clients' rows are used for scoring. An attack
    that finds nothing to work on is left out, with the reason. Each attack that runs gets a picture beside
    attacks.json. Each report is stored when it is done: the same command continues where it was stopped, and
    runs only what is new; reports with other settings (party, client, seed, rows) are replaced. docs/attacks
    says what each attack does, and what stops it.
    """
    transcript = read_transcript(run_folder)
    know_questions(run_folder, algorithm, "attack")
    view, target = target_of(run_folder, transcript, **given)
    which = chosen(wanted)
    folder = run_folder / "attacks" if out is None else out
    claim = claim_of_run(run_folder, transcript)
    keys = keys_of(run_folder, view, target, known() | which, seed)
    found: dict[str, Any] = {
        "format": REPORT_FORMAT,
        "protocol": transcript.configuration.protocol,
        "privacy": to_json(claim),
        "party": view.party,
        "colluding": [view.clients[i] for i in view.colluding],
        "attacks": stored(folder, keys, pictured=picture),
        "left_out": {},
    }
    before = [name for name in which if name in found["attacks"]]
    if before:
        click.echo(f"privfed: stored already: {', '.join(before)}", err=True)
    for name in _shown([name for name in which if name not in before], quiet):
        try:
            used, report = run_one(view, target, which[name], seed)
        except ArgumentError as error:
            found["left_out"][name] = said(error, attack, fit).removesuffix(".")
            continue
        # A picture that lies there shows an earlier report.
        picture_of(folder, name).unlink(missing_ok=True)
        if picture:
            _draw(picture_of(folder, name), report)
        found["attacks"][name] = {"key": keys[name], **_words(used), **report.to_dict()}
        keep(folder, found)
    found["left_out"] |= {name: one["why"] for name, one in found["attacks"].items() if one["why"]}
    # The file also lists what was left out, even if nothing was run.
    keep(folder, found)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    _tell(found, claim)
    drawn = picture and any(not one["why"] for one in found["attacks"].values())
    click.echo(f"Written: {folder / REPORT}{', and a picture of each attack' * drawn}.")


def _tell(found: dict[str, Any], claim: PrivacySpent | None) -> None:
    """Print the reports and the run's claim."""
    ran = {name: one for name, one in found["attacks"].items() if not one["why"]}
    table = Table(Column("attack", no_wrap=True), *_FIGURES, box=box.SIMPLE_HEAD, pad_edge=False)
    for name, one in ran.items():
        table.add_row(name, *_figures(one))
    if ran:
        printed(table)
    if claim is not None:
        click.echo(f"{claim}\n{SCORED}")
    for name, one in ran.items():
        click.echo(f"{name}: {one['status']}; {_meaning(one)}")
    for name, why in found["left_out"].items():
        click.echo(f"{name} was left out: {said(why, attack, fit)}.")


def _shown(which: list[str], quiet: bool) -> Iterator[str]:
    """Yield the attacks, and show progress and remaining time on stderr."""
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("attacks", total=len(which))
        for name in which:
            bar.update(task, description=name)
            yield name
            bar.advance(task)


def _words(used: PassiveAttack[Any]) -> dict[str, str]:
    return {
        "paper": used.paper,
        "adversary": used.adversary,
        "view": used.view,
        "prior": used.prior,
        "defence": used.defence,
    }


def _meaning(report: dict[str, Any]) -> str:
    """Say what the figures of a report measure."""
    bound = f" Bound: {report['bound_of']}." if report.get("bound_of") else ""
    above = " Recovered lies above it: it limits no other reasoning." if report.get("remark") else ""
    return f"recovered is of {report['goal']}.{bound}{above}"


def _figures(report: dict[str, Any]) -> list[str]:
    figures = [report[name] for name in _FIGURES.values()]
    return ["" if one is None else f"{one:.3g}" for one in figures]


def _draw(path: Path, report: Report) -> None:
    make_folder(path.parent)
    report.picture(path)
