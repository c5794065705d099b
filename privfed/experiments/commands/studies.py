"""The work of `privfed tradeoff` and `privfed compare`."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict, replace
from importlib.resources import as_file, files
from pathlib import Path

import click

from privfed import experiments
from privfed.cli.output import answer, echo, table
from privfed.cli.progress import Progress
from privfed.errors import ArgumentError
from privfed.experiments.planning import Plan, plan
from privfed.experiments.plot import TABLE
from privfed.experiments.reading import StudyError, StudyFile, read_study
from privfed.experiments.report.advice import answers, to_run
from privfed.experiments.report.claims import SCORED, composed_budgets, lines_of
from privfed.experiments.report.curves import shown
from privfed.experiments.report.figures import FOLDER
from privfed.experiments.report.page import PAGE, write_report
from privfed.experiments.report.summary import Row, claims_of
from privfed.experiments.report.tables import Comparison, name_of, read_claims, read_data, read_results
from privfed.experiments.report.tables import compare as compared
from privfed.experiments.running import Store, missing, run
from privfed.privacy.claim import one_line


def tradeoff(
    study: str,
    out: Path | None,
    jobs: int | None,
    scheduler: str | None,
    seeds: int | None,
    retry: bool,
    check: bool,
    quiet: bool,
) -> None:
    """Do the work of `privfed tradeoff`."""
    try:
        checked = plan(*load_study(study))
    except StudyError as error:
        if check:
            click.echo("\n".join(f"privfed: error: {one}" for one in error.mistakes), err=True)
            raise click.exceptions.Exit(2) from None
        raise
    if seeds is not None:
        checked = replace(checked, seeds=list(range(seeds)))
    n_cells = len(checked.setups) * len(checked.seeds)
    if check:
        click.echo(f"{checked.file.name} is valid: {len(checked.setups)} configurations, {n_cells} cells")
        return
    out = Path(Path(study).stem) if out is None else out
    if scheduler is not None and jobs is not None:
        raise ArgumentError("--jobs counts processes here, and --scheduler has workers elsewhere; name one.")
    rows = carry_out(checked, out, scheduler or jobs or os.cpu_count() or 1, retry=retry, quiet=quiet)
    tell(checked, rows, out, Store(out))


def _own() -> list[str]:
    """Return the names of the built-in studies."""
    folder = files(experiments).joinpath("studies")
    return sorted(one.name.removesuffix(".toml") for one in folder.iterdir() if one.name.endswith(".toml"))


def load_study(name: str) -> tuple[StudyFile, Path]:
    """Read a study from a file, or a built-in one by name; also return the folder of its relative paths.

    Raises:
        ArgumentError: there is no such study, or it is invalid.
    """
    if name in _own():
        with as_file(files(experiments).joinpath("studies").joinpath(f"{name}.toml")) as path:
            return read_study(path), Path.cwd()
    path = Path(name)
    if not path.exists():
        raise ArgumentError(
            f"there is no study {name!r}: name a TOML file, or one of privfed's own: {', '.join(_own())}."
        )
    return read_study(path), path.absolute().parent


def carry_out(checked: Plan, out: Path, workers: int | str, *, retry: bool, quiet: bool) -> list[Row]:
    """Run the missing cells of a plan, and write its report; Ctrl-C keeps every finished cell."""
    store = Store(out)
    with store.alone():
        jobs = missing(checked, store, retry)
        known = len(checked.setups) * len(checked.seeds) - len(jobs)
        if known:
            echo(f"privfed: {known} cells are stored already, {len(jobs)} are to be run", err=True)
        try:
            with Progress("cells", quiet) as progress:
                run(checked, store, jobs, workers, lambda done, of, *_: progress.count("cell", done, of))
        except KeyboardInterrupt:
            left = len(missing(checked, store, retry))
            click.echo(f"privfed: stopped; {left} cells are left: the same command continues", err=True)
            raise click.exceptions.Exit(130) from None
        return write_report(out, checked, store)


def tell(checked: Plan, rows: list[Row], out: Path, store: Store) -> None:
    """Print the results in a few lines."""
    failed = sum(len(row.errors) for row in rows)
    for one in answers(checked, rows):
        within = f"leakage <= {one.leakage:g} and cost ratio <= {one.score_ratio:g}"
        found = "none of the measured settings meets these limits"
        if one.row is not None:
            size = shown(one.row.stats["bytes"].mean / 1000)
            found = f"{one.row.setup.title} ({size} kB a client; {one.evidence}; run it {to_run(one.row)})"
        echo(f"Against {one.adversary}, with {within} on {one.data}: {found}")
    for line in lines_of(claims_of(rows)):
        echo(line)
    for budget in composed_budgets(checked.setups, store.asked()):
        echo(f"All fits together, {budget}")
    if claims_of(rows):
        echo(SCORED)
    if unsettled := sum(len(row.unconverged) for row in rows):
        echo(f"{unsettled} fits did not converge: the report says why, and what helps", err=True)
    if failed:
        click.echo(f"{failed} measurements failed: see the report", err=True)
    echo(f"Written: {out / PAGE}, {out / TABLE} (a row a fit), {out / FOLDER} (PDF and SVG), and tables")


def compare(first: Path, second: Path, as_json: bool) -> None:
    """Do the work of `privfed compare`."""
    found = compared(read_results(first), read_results(second))
    claims = {str(folder): read_claims(folder) for folder in (first, second)}
    before, after = read_data(first), read_data(second)
    others = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
    if as_json:
        answer({**asdict(found), "other_data": others, "claims": claims}, as_json)
        return
    _tell(found, first, second)
    for name in others:
        click.echo(f"of other data in {second} than in {first}: {name}")
    _tell_claims(claims)


def _tell(found: Comparison, first: Path, second: Path) -> None:
    for folder, only in ((first, found.only_first), (second, found.only_second)):
        for name in only:
            click.echo(f"only in {folder}: {name}")
    click.echo(f"{found.same} configurations agree in everything but seconds.")
    if not found.changes:
        return
    lines = (
        (
            one.configuration,
            name_of(one.measure),
            _shown(one.before),
            _shown(one.after),
            "" if one.spreads == float("inf") else f"{one.spreads:.1f}",
        )
        for one in found.changes[:_MOST]
    )
    echo(table(("configuration", "measure", str(first), str(second), "spreads"), lines))
    if len(found.changes) > _MOST:
        click.echo(f"{len(found.changes) - _MOST} smaller differences are left out; --json has them all.")


def _tell_claims(claims: dict[str, dict[str, str]]) -> None:
    """Print what the private configurations of each study claim; a claim of both is printed once."""
    none = one_line(None)
    both = Counter((name, claim) for own in claims.values() for name, claim in own.items() if claim != none)
    for (name, claim), studies in both.items():
        where = [folder for folder, own in claims.items() if own.get(name) == claim]
        click.echo(f"{'' if studies > 1 else where[0] + ', '}{name}: {claim}.")
    if both:
        click.echo(SCORED)


def _shown(value: float) -> str:
    return "" if value != value else shown(value)


_MOST = 40
