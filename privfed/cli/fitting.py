"""From what was asked for to a finished run in its folder: what `fit` and `resume` share."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from privfed.cli.output import printed, result_table, write_results
from privfed.cli.picture import draw_run
from privfed.cli.progress import RoundProgress
from privfed.cli.result import Result, result_of
from privfed.cli.run_folder import (
    Parameters,
    Run,
    Source,
    former_seconds,
    has_transcript,
    held,
    pretty,
    read_transcript,
)
from privfed.core.domain import Box
from privfed.core.transcript import FILE as TRANSCRIPT
from privfed.core.transcript import Ended, Transcript
from privfed.data import ClientTables, load_clients
from privfed.errors import ArgumentError, DataError, ProtocolError
from privfed.face.base import FederatedClusterer
from privfed.face.clients import Clients, gather
from privfed.face.estimators import DWFKMeans, EWFKMeans


def estimator(parameters: Parameters, folder: Path) -> FederatedClusterer:
    """Return the estimator that the parameters describe."""
    kind = EWFKMeans if parameters.algorithm == "ewf" else DWFKMeans
    return kind(
        parameters.n_clusters,
        local_iter=parameters.local_iter,
        learning_rate=parameters.learning_rate,
        momentum=parameters.momentum,
        tol=parameters.tol,
        max_iter=parameters.max_iter,
        min_iter=parameters.min_iter,
        patience=parameters.patience,
        n_init=parameters.n_init,
        init=parameters.init,
        clients_per_round=parameters.clients_per_round,
        protocol=parameters.protocol,
        domain=domain_of(parameters),
        run_dir=folder,
        random_state=parameters.seed,
    )


def domain_of(parameters: Parameters) -> Box | None:
    """Return the declared domain, or None.

    Raises:
        ArgumentError: only a part of it is declared.
    """
    low, high = parameters.low, parameters.high
    if (low is None) != (high is None):
        raise ArgumentError("--low and --high go together; give both, or none.")
    if low is None or high is None:
        if parameters.max_rows is not None:
            raise ArgumentError("--max-rows goes with --low and --high; give all three, or none.")
        return None
    return Box(
        low[0] if len(low) == 1 else low, high[0] if len(high) == 1 else high, max_rows=parameters.max_rows
    )


def load(source: Source) -> ClientTables:
    """Load the clients of a run."""
    return load_clients(
        source.path,
        group=source.group,
        label=source.label,
        columns=source.columns or None,
        separator=source.separator,
    )


def clients_of(tables: ClientTables, run: Run) -> Clients:
    """Return the clients, checked against the parameters of the run.

    Raises:
        ArgumentError: more clusters than rows, or a single client over a protocol that needs several.
        DataError: rows outside the declared domain.
    """
    n_rows, wanted = sum(len(rows) for rows in tables.arrays), run.parameters.n_clusters
    if wanted > n_rows:
        raise ArgumentError(f"{wanted} clusters cannot be found in {n_rows} rows; take a smaller -k.")
    if len(tables.names) == 1 and run.parameters.protocol != "plain":
        raise ArgumentError(
            f"{run.source.path} holds one client, whom protocol {run.parameters.protocol!r} cannot protect; "
            "name the column that tells clients apart with --group, or take --protocol plain."
        )
    labels = None if run.source.label is None else tables.labels
    return gather(tables.arrays, y=labels, names=tables.names, domain=domain_of(run.parameters))


def check_same_rows(tables: ClientTables, transcript: Transcript) -> None:
    """Compare the number of rows with what the run's first total said.

    Raises:
        DataError: it differs, so that the data is not what the run began with.
    """
    now = sum(len(rows) for rows in tables.arrays)
    for asked, total in transcript.totals()[:1]:
        everyone = len(total.contributors) == len(asked.clients) == len(tables.names)
        if everyone and "rows" in total.statistics and round(total.statistics["rows"][0]) != now:
            began = round(total.statistics["rows"][0])
            raise DataError(
                f"the data has {now} rows, the run began with {began}; resume it with the same data (--data)."
            )


def carry_out(folder: Path, run: Run, tables: ClientTables, clients: Clients, quiet: bool) -> Result:
    """Fit, or finish the fit that has begun in the folder, and write everything that a run folder holds."""
    model = estimator(run.parameters, folder)
    with held(folder), resumable(folder):
        begun = _begun(folder)
        if begun is not None:
            check_same_rows(tables, begun)
        seconds = _fit(model, run.parameters, clients, begun is not None, quiet)
        if begun is not None and begun.of(Ended):
            # Nothing was asked but replayed: what it took at first still stands in the former result.
            seconds = former_seconds(folder) or seconds
        n_labels = None if run.source.label is None else len(tables.label_names or ())
        result = result_of(
            model,
            algorithm=run.parameters.algorithm,
            columns=tables.columns,
            n_labels=n_labels,
            seconds=seconds,
        )
        write_results(folder, result, model)
        draw_run(folder / "picture.png", model.history_, result, run.parameters.tol)
    return result


def _begun(folder: Path) -> Transcript | None:
    if has_transcript(folder):
        return read_transcript(folder)
    # Stopped within its first line: nothing was agreed on yet, so that the run begins anew.
    (folder / TRANSCRIPT).unlink(missing_ok=True)
    return None


def _fit(
    model: FederatedClusterer, parameters: Parameters, clients: Clients, resume: bool, quiet: bool
) -> float:
    """Fit and return how many seconds it took."""
    began = time.monotonic()
    with RoundProgress(parameters.algorithm, parameters.max_iter, parameters.n_init, quiet) as progress:
        model.fit_clients(clients, resume=resume, watch=progress)
    return time.monotonic() - began


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Say how to go on where a run is stopped, by Ctrl-C or because too few clients were left."""
    command = f"privfed resume {shlex.quote(str(folder))}"
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"privfed: stopped; finish the run with: {command}", err=True)
        raise click.exceptions.Exit(130) from None
    except ProtocolError as error:
        raise ProtocolError(f"{error} What was summed is kept; finish the run with: {command}") from error


def show(result: Result, folder: Path, as_json: bool) -> None:
    """Print the result, and nothing else, to stdout."""
    if as_json:
        click.echo(pretty(result), nl=False)
    else:
        printed(result_table(result, folder))
