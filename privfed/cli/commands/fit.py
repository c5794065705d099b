"""`privfed fit` and `privfed resume`: cluster simulated clients, in a folder from which a run can resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from privfed import __version__
from privfed.cli.folder.disk import DiskFullError
from privfed.cli.folder.run_folder import (
    FORMAT,
    Parameters,
    Run,
    create,
    discard,
    has_transcript,
    read_run,
    read_transcript,
)
from privfed.cli.options import (
    algorithm_option,
    declared_of,
    declared_options,
    json_option,
    picture_option,
    quiet_option,
    source_of,
    source_options,
    word_options,
    words_of,
)
from privfed.cli.runs.fitting import carry_out, check_own, clients_of, estimator, load, show
from privfed.core.record.transcript import Ended
from privfed.errors import PrivFedError


@click.command(short_help="Cluster the clients of a table.")
@source_options
@algorithm_option
@click.option("-k", "--n-clusters", type=int, default=5, show_default=True, help="Number of clusters.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("run"),
    show_default=True,
    help="Folder of the run.",
)
@word_options
@declared_options
@quiet_option
@picture_option
@json_option
def fit(
    data: Path,
    out: Path,
    algorithm: str,
    n_clusters: int,
    quiet: bool,
    picture: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Cluster the rows of DATA, whose clients are simulated.

    DATA is a table (.csv, .csv.gz, .tsv, .parquet, .npz) with a column that names each row's client, or a
    folder with one table for each client. The folder of the run gets the centroids, the result as JSON, a
    picture, and the transcript from which `privfed resume` continues. Options without a default have the
    algorithm's own.
    """
    source = source_of(data, given)
    parameters = Parameters(
        algorithm=algorithm, n_clusters=n_clusters, words=words_of(given), declared=declared_of(given)
    )
    estimator(parameters, out)
    tables = load(source, private=parameters.declared.epsilon is not None)
    # The columns that were found are stored, so that `resume` and `predict` use the same ones.
    source = msgspec.structs.replace(source, columns=tables.columns)
    run = Run(format=FORMAT, privfed=__version__, command="fit", source=source, parameters=parameters)
    clients = clients_of(tables, run)
    create(out, run)
    try:
        result = carry_out(out, run, tables, clients, quiet=quiet, picture=picture)
    except DiskFullError:
        raise  # `resume` can finish a run that has at least begun.
    except PrivFedError:
        if not has_transcript(out):
            discard(out)
        raise
    show(result, out, as_json)


@click.command(short_help="Finish a run that was stopped.")
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--data", type=click.Path(path_type=Path), help="The clients' data, if it has moved.")
@click.option("--algorithm", metavar="MODULE:NAME", help="Needed again if the run has an algorithm of yours.")
@click.option("--protocol", metavar="MODULE:NAME", help="Needed again if the run has a protocol of yours.")
@quiet_option
@picture_option
@json_option
def resume(
    run_folder: Path,
    data: Path | None,
    algorithm: str | None,
    protocol: str | None,
    quiet: bool,
    picture: bool,
    as_json: bool,
) -> None:
    """Finish the run in folder RUN: its recorded totals are replayed, and the rest is asked.

    The centroids are the same as if the run had never been stopped. For a finished run the results are
    written again.
    """
    run = read_run(run_folder)
    check_own(run_folder, run.parameters, algorithm, protocol)
    if data is not None:
        run = msgspec.structs.replace(
            run, source=msgspec.structs.replace(run.source, path=str(data.absolute()))
        )
    finished = has_transcript(run_folder) and bool(read_transcript(run_folder).of(Ended))
    tables = load(run.source, private=run.parameters.declared.epsilon is not None)
    result = carry_out(run_folder, run, tables, clients_of(tables, run), quiet=quiet, picture=picture)
    if finished:
        click.echo(f"privfed: {run_folder} was finished already; its results were written again.", err=True)
    show(result, run_folder, as_json)
