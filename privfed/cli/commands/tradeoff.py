"""`privfed tradeoff`: runs a study and writes its report; it can be stopped and continued."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import timedelta
from importlib.resources import as_file, files
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from privfed import experiments
from privfed.cli.display.progress import SECONDS_BETWEEN_LINES
from privfed.errors import ArgumentError
from privfed.experiments.report.claims import SCORED, lines_of
from privfed.experiments.report.composed_budget import composed_budgets
from privfed.experiments.report.report import PAGE, answers, write_report
from privfed.experiments.report.summary import Row, claims_of, shown
from privfed.experiments.running.planning import Plan, plan
from privfed.experiments.running.running import Job, missing, run
from privfed.experiments.running.store import Store
from privfed.experiments.study.located import Located, StudyError
from privfed.experiments.study.reading import read_study


def _own() -> list[str]:
    """Return the names of the built-in studies."""
    folder = files(experiments).joinpath("studies")
    return sorted(one.name.removesuffix(".toml") for one in folder.iterdir() if one.name.endswith(".toml"))


def load_study(name: str) -> tuple[Located, Path]:
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


class CellProgress:
    """Shows on stderr how many cells are done and how much time is left, as a context manager.

    Args:
        n_jobs: number of cells to run.
        quiet: show nothing.
    """

    def __init__(self, n_jobs: int, quiet: bool) -> None:
        self._console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        self._live, self._quiet = self._console.is_terminal and not quiet, quiet
        self._bar = Progress(
            TextColumn("cells"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            console=self._console,
            transient=True,
            disable=not self._live,
        )
        self._task = self._bar.add_task("cells", total=n_jobs, left="")
        self._began = self._last = time.monotonic()
        self.failed = 0

    def __enter__(self) -> CellProgress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, of: int, job: Job, well: bool) -> None:
        """Count one finished cell."""
        self.failed += not well
        now = time.monotonic()
        seconds = (now - self._began) / done * (of - done)
        left = f"about {timedelta(seconds=round(seconds))} left"
        if self._live:
            self._bar.update(self._task, completed=done, left=left)
        elif not self._quiet and (now - self._last >= SECONDS_BETWEEN_LINES or done == of):
            self._last = now
            self._console.print(f"cell {done} of {of}, {now - self._began:.0f} s, {left}", soft_wrap=True)


def carry_out(checked: Plan, out: Path, n_processes: int, *, retry: bool, quiet: bool) -> list[Row]:
    """Run the missing cells of a plan, and write its report; Ctrl-C keeps every finished cell."""
    store = Store(out)
    with store.alone():
        jobs = missing(checked, store, retry)
        known = len(checked.setups) * len(checked.seeds) - len(jobs)
        if known:
            click.echo(f"privfed: {known} cells are stored already, {len(jobs)} are to be run", err=True)
        try:
            with CellProgress(len(jobs), quiet) as progress:
                run(checked, store, jobs, n_processes, progress)
        except KeyboardInterrupt:
            left = len(missing(checked, store, retry))
            click.echo(f"privfed: stopped; {left} cells are left: the same command continues", err=True)
            raise click.exceptions.Exit(130) from None
        return write_report(out, checked, store)


def tell(checked: Plan, rows: list[Row], out: Path) -> None:
    """Print the results in a few lines."""
    failed = sum(len(row.errors) for row in rows)
    for name, answer in answers(checked, rows):
        found = "nothing measured" if answer.row is None else answer.row.label
        within = f"leakage <= {answer.leakage:g} and cost ratio <= {answer.score_ratio:g}"
        cost = "" if answer.row is None else f" ({shown(answer.row.stats['bytes'].mean / 1000)} kB a client)"
        click.echo(f"Fewest bytes with {within} on {name}: {found}{cost}")
    for line in lines_of(claims_of(rows)):
        click.echo(line)
    for one in composed_budgets(rows):
        click.echo(f"All fits together, {one}")
    if claims_of(rows):
        click.echo(SCORED)
    unsettled = sum(len(row.unconverged) for row in rows)
    if unsettled:
        click.echo(f"{unsettled} fits did not converge: the report says why, and what helps", err=True)
    if failed:
        click.echo(f"{failed} measurements failed: see the report", err=True)
    click.echo(f"Written: {out / PAGE}, and tables beside it")


@click.command(short_help="Run a study of utility, privacy, leakage and cost.")
@click.argument("study")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder of the study.  [default: the study's name]"
)
@click.option("--jobs", type=click.IntRange(1), help="Number of processes.  [default: that of cores]")
@click.option("--seeds", type=click.IntRange(1), help="Seeds 0, 1, ... in place of the study's.")
@click.option("--retry", is_flag=True, help="Run cells again that failed.")
@click.option("--check", is_flag=True, help="Check the study, list all mistakes, and run nothing.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def tradeoff(
    study: str, out: Path | None, jobs: int | None, seeds: int | None, retry: bool, check: bool, quiet: bool
) -> None:
    """Run STUDY, a TOML file or the name of a built-in study, and write its report.

    The whole study is checked before anything runs. Each cell is stored when it is done, so the same command
    continues where it was stopped, and runs only the new cells of a study that has grown.
    """
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
        click.echo(
            f"{checked.located.where.name} is valid: {len(checked.setups)} configurations, {n_cells} cells"
        )
        return
    out = Path(Path(study).stem) if out is None else out
    rows = carry_out(checked, out, jobs or os.cpu_count() or 1, retry=retry, quiet=quiet)
    tell(checked, rows, out)
