"""The work of `privfed tradeoff` and `privfed compare`."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import asdict, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import click

from privfed import experiments
from privfed.cli.output import answer, echo, table
from privfed.cli.progress import Progress
from privfed.errors import ArgumentError
from privfed.experiments.planning import Plan, plan
from privfed.experiments.plot import TABLE
from privfed.experiments.reading import StudyError, StudyFile, read_study
from privfed.experiments.report.advice import Advice, answers, to_run
from privfed.experiments.report.claims import SCORED, composed_budgets, lines_of
from privfed.experiments.report.curves import shown
from privfed.experiments.report.figures import FOLDER
from privfed.experiments.report.page import PAGE, write_report
from privfed.experiments.report.summary import Row, claims_of
from privfed.experiments.report.tables import SECONDS, changes, configurations
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
    if check:
        kinds, seeds_each = len(checked.setups), len(checked.seeds)
        click.echo(f"{checked.file.name} is valid: {kinds} configurations, {kinds * seeds_each} cells")
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
            click.echo(
                f"privfed: stopped; {len(missing(checked, store, retry))} cells are left: the same command "
                "continues",
                err=True,
            )
            raise click.exceptions.Exit(130) from None
        return write_report(out, checked, store)


def tell(checked: Plan, rows: list[Row], out: Path, store: Store) -> None:
    """Print the results in a few lines."""
    claims, budgets = claims_of(rows), composed_budgets(checked.setups, store.asked())
    echo(*map(_answered, answers(checked, rows)), *lines_of(claims))
    echo(*(f"All fits together, {budget}" for budget in budgets), *[SCORED] * bool(claims))
    if unsettled := sum(len(row.unconverged) for row in rows):
        echo(f"{unsettled} fits did not converge: the report says why, and what helps", err=True)
    if failed := sum(len(row.errors) for row in rows):
        click.echo(f"{failed} measurements failed: see the report", err=True)
    echo(f"Written: {out / PAGE}, {out / TABLE} (a row a fit), {out / FOLDER} (PDF and SVG), and tables")


def _answered(one: Advice) -> str:
    found = "none of the measured settings meets these limits"
    if one.row is not None:
        size = shown(one.row.stats["bytes"].mean / 1000)
        found = f"{one.row.setup.title} ({size} kB a client; {one.evidence}; run it {to_run(one.row)})"
    limits = f"leakage <= {one.leakage:g} and cost ratio <= {one.score_ratio:g}"
    return f"Against {one.adversary}, with {limits} on {one.data}: {found}"


def compare(first: Path, second: Path, as_json: bool) -> None:
    """Do the work of `privfed compare`."""
    before, after = configurations(first), configurations(second)
    found, both = changes(before, after), before.keys() & after.keys()
    only = {"only_first": sorted(before.keys() - both), "only_second": sorted(after.keys() - both)}
    others = sorted(name for name in both if before[name].data != after[name].data)
    claims = {
        str(folder): {name: one.claim for name, one in own.items() if one.claim != one_line(None)}
        for folder, own in ((first, before), (second, after))
    }
    moved = {one.configuration for one in found if not one.measure.endswith(SECONDS)}
    lines: list[Any] = [
        f"only in {folder}: {name}"
        for folder, names in zip((first, second), only.values(), strict=True)
        for name in names
    ]
    lines.append(f"{len(both - moved)} configurations agree in everything but seconds.")
    if found:
        head = ("configuration", "measure", str(first), str(second), "spreads")
        cells = (
            (one.configuration, one.measure, _shown(one.before), _shown(one.after), _shown(one.spreads))
            for one in found[:_MOST]
        )
        lines.append(table(head, cells))
    if len(found) > _MOST:
        lines.append(f"{len(found) - _MOST} smaller differences are left out; --json has them all.")
    lines += [f"of other data in {second} than in {first}: {name}" for name in others]
    claimed = Counter(f"{name}: {claim}." for own in claims.values() for name, claim in own.items())
    lines += [
        line if claimed[line] > 1 else f"{folder}, {line}"
        for folder, own in claims.items()
        for line in (f"{name}: {claim}." for name, claim in own.items())
    ]
    lines = [*dict.fromkeys(lines), *[SCORED] * bool(claimed)]
    answer(
        {**only, "changes": [asdict(one) for one in found], "other_data": others, "claims": claims},
        as_json,
        *lines,
    )


def _shown(value: float) -> str:
    return shown(value) if math.isfinite(value) else ""


_MOST = 40
"""Most differences that are printed."""
