"""The work of `privfed tradeoff` and `privfed compare`, and of `privfed demo`, whose second part is a study.

The demonstration clusters scikit-learn's digits at twenty clients. They are split by k-means, so that clients
have different shapes (the non-IID split of Holzer, Jacob and Kavane 2023). In some rounds clients drop out.
The plain sums leave out the same clients as the masked ones, so that the runs differ only in the secure sum.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import asdict, replace
from importlib.resources import as_file, files
from pathlib import Path

import click
import msgspec
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table
from sklearn.datasets import load_digits

from privfed import experiments
from privfed.cli.described import agree_on
from privfed.cli.output import answer, echo, in_results, kilobytes, table
from privfed.cli.progress import Progress, RoundProgress
from privfed.cli.result import Result, result_of
from privfed.cli.run_folder import pretty
from privfed.core.record.transcript import Transcript
from privfed.core.roles.secure_sum import SIGHTS, SecureSum
from privfed.core.stored.files import make_folder, rewrite
from privfed.core.values.domain import Box
from privfed.data import partition
from privfed.engines.in_process import Fault
from privfed.errors import ArgumentError
from privfed.estimators.local_steps import DWFKMeans
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
from privfed.federation.clients import Clients, gather
from privfed.federation.simulation import Simulation
from privfed.metrics.functions import labels_agreement
from privfed.plot import ConvergenceDisplay, save
from privfed.privacy.claim import one_line
from privfed.protocols import Masked, Plain

N_CLIENTS, N_CLUSTERS, MAX_ITER, TOL = 20, 10, 100, 1e-6
DOMAIN = Box(0, 16)
_FIRST_ROUND, _LAST_LOSSES = 3, 14


class Demonstration(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the contents of `demo.json`.

    Args:
        seed: seed of the split, the dropouts and the starts.
        largest_difference: largest difference between coordinates of the centroids over plain and over
            masked sums (pixels run from 0 to 16).
        seconds: run time of the whole demonstration.
        runs: result of each protocol.
    """

    seed: int
    largest_difference: float
    seconds: float
    runs: dict[str, Result]


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


def demo(out: Path, random_state: int, study: bool) -> None:
    """Do the work of `privfed demo`."""
    began = time.monotonic()
    make_folder(out)
    clients = _digits(random_state)
    drawn = losses(random_state)
    # So many clients are lost here as no fit of real rows should allow: each may be counted three times.
    masked, seen = _run(Masked(losses=3 * len(drawn)), clients, drawn, random_state)
    plain, _ = _run(Plain(), clients, same_losses(seen), random_state)
    difference = float(np.abs(np.subtract(plain.centroids, masked.centroids)).max())
    shown = Demonstration(
        seed=random_state,
        largest_difference=difference,
        seconds=time.monotonic() - began,
        runs={"plain": plain, "masked": masked},
    )
    rewrite(out / "demo.json", pretty(shown))
    _draw(out / "demo.png", shown.runs)
    echo(_table(shown))
    lost = Counter(stage for row in masked.sums for stage in row.dropped.values())
    stages = ", ".join(f"{count} in {stage}" for stage, count in lost.most_common()) or "none"
    click.echo(f"Dropouts over masked: {stages}. The plain totals leave out the same clients.")
    click.echo(f"Largest difference between their centroids: {difference:.1e} (a pixel is 0 to 16).")
    click.echo(f"Of both runs: {one_line(None)}.")
    click.echo(f"Written: {out / 'demo.json'}, {out / 'demo.png'}")
    if study:
        click.echo("\nWhat does each sum give away? The study 'digits', in about a minute:")
        located, folder = load_study("digits")
        checked = plan(located, folder)
        rows = carry_out(checked, out / "study", os.cpu_count() or 1, retry=False, quiet=False)
        tell(checked, rows, out / "study", Store(out / "study"))


def _draw(path: Path, runs: dict[str, Result]) -> None:
    """Draw the centroids of each run, which are digits of 8 by 8 pixels, above the convergence of all."""
    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    above, below = np.ravel(figure.subfigures(2, 1, height_ratios=(1.0, 1.6)))  # type: ignore[arg-type]
    grid = above.subplots(len(runs), N_CLUSTERS).flat
    for axes, centroid in zip(grid, (one for own in runs.values() for one in own.centroids), strict=True):
        axes.imshow(np.reshape(centroid, (8, 8)), cmap="gray_r", vmin=0, vmax=16)
        axes.set(xticks=[], yticks=[])
    above.suptitle(f"Centroids over {' (above) and over '.join(runs)} sums", fontsize=9)
    ConvergenceDisplay({name: own.movements for name, own in runs.items()}, TOL).plot(below.subplots())
    save(figure, path)


def _digits(seed: int) -> Clients:
    images, digits = load_digits(return_X_y=True)
    parts = partition(images, N_CLIENTS, "non-iid", np.random.default_rng(seed))
    return gather([images[rows] for rows in parts], y=[digits[rows] for rows in parts], domain=DOMAIN)


def losses(seed: int) -> list[Fault]:
    """Draw which clients drop out when: before their upload arrives, or after it."""
    rng = np.random.default_rng(seed)
    faults: list[Fault] = []
    for number in range(_FIRST_ROUND, _LAST_LOSSES + 1, 2):
        for stage, n_lost in (("collect", 2), ("unmask", 1)):
            lost = rng.choice(N_CLIENTS, n_lost, replace=False)
            faults += [Fault(int(client), stage, sums=frozenset({number})) for client in lost]
    return faults


def same_losses(transcript: Transcript) -> list[Fault]:
    """Return faults that make plain sums leave out exactly the clients that a transcript's totals lack."""
    return [
        Fault(client, "collect", sums=frozenset({asked.index + 1}))
        for asked, total in transcript.totals()
        for client in sorted(set(asked.clients) - set(total.contributors))
    ]


def _run(protocol: SecureSum, clients: Clients, faults: list[Fault], seed: int) -> tuple[Result, Transcript]:
    """Fit over one protocol; return the result, scored against the digits, and the transcript."""
    simulation = Simulation(faults=faults)
    model = DWFKMeans(
        N_CLUSTERS,
        tol=TOL,
        max_iter=MAX_ITER,
        protocol=protocol,
        engine=simulation,
        domain=DOMAIN,
        random_state=seed,
    )
    agree_on(model, (), n_labels=10)
    began = time.monotonic()
    with RoundProgress(protocol.name, MAX_ITER) as progress, in_results():
        model.fit_clients(clients, watch=progress)
    seconds = time.monotonic() - began
    pixels = [f"pixel {row},{column}" for row in range(8) for column in range(8)]
    agreed = labels_agreement(model.federation_, model.cluster_centers_, n_labels=10)
    return result_of(
        model, algorithm="dwf", columns=pixels, agreement=agreed, seconds=seconds
    ), model.transcript_


def _table(shown: Demonstration) -> Table:
    n_rows = shown.runs["plain"].rows
    title = f"{n_rows} digits at {N_CLIENTS} clients (non-IID), dwf, {N_CLUSTERS} clusters"
    head = ("", "score", "v-measure", "rounds", "a client", "seconds", "dropouts", "the server saw")
    return table(head, ((protocol, *_cells(result)) for protocol, result in shown.runs.items()), title)


def _cells(result: Result) -> list[str]:
    agreed = result.agreement
    return [
        f"{result.score:.2f}",
        "" if agreed is None else f"{agreed.v_measure:.4f}",
        f"{result.n_iter}{' (not converged)' * (result.converged is False)}",
        kilobytes(result.traffic.bytes_per_client),
        f"{result.traffic.seconds:.2f}",
        str(sum(len(row.dropped) for row in result.sums)),
        SIGHTS[result.reveals].short,
    ]
