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
    Source,
    create,
    discard,
    has_transcript,
    read_run,
    read_transcript,
)
from privfed.cli.measuring import check_measures
from privfed.cli.options import (
    algorithm_option,
    classes_option,
    declared_of,
    declared_options,
    json_option,
    metrics_option,
    own_algorithm_option,
    picture_option,
    quiet_option,
    source_of,
    source_options,
    word_options,
    words_of,
)
from privfed.cli.runs.fitting import carry_out, check_own, clients_of, estimator, load, show
from privfed.cli.runs.training import classes_of
from privfed.core.record.transcript import Ended
from privfed.deep.estimators.base import FederatedModel
from privfed.errors import ArgumentError, PrivFedError
from privfed.estimators.base import FederatedClusterer


@click.command(short_help="Cluster the clients of a table.")
@source_options
@classes_option
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
@metrics_option
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
    """Cluster the rows of DATA, whose clients are simulated, or train models of their labels.

    DATA is a table (.csv, .csv.gz, .tsv, .parquet, .npz) with a column that names each row's client, or a
    folder with one table for each client. The folder of the run gets the centroids, the result as JSON, a
    picture, and the transcript from which `privfed resume` continues. Options without a default have the
    algorithm's own.
    """
    source = source_of(data, given)
    parameters = Parameters(
        algorithm=algorithm,
        n_clusters=n_clusters,
        words=words_of(given),
        declared=declared_of(given),
        metrics=given.pop("metrics"),
    )
    model, private = estimator(parameters, out), parameters.declared.epsilon is not None
    _check_words(model, source, parameters.metrics)
    check_measures(parameters.metrics, n_clusters, private=private)
    tables = load(source, private=private)
    # The columns that were found are stored, so that `resume` and `predict` use the same ones.
    source = msgspec.structs.replace(source, columns=tables.columns)
    if isinstance(model, FederatedModel):
        source = msgspec.structs.replace(source, classes=classes_of(source, tables, private))
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


def _check_words(
    model: FederatedClusterer | FederatedModel, source: Source, metrics: tuple[str, ...]
) -> None:
    """Check that options which only some algorithms have were given to one of these.

    Raises:
        ArgumentError: one was not.
    """
    trains = isinstance(model, FederatedModel)
    if source.classes and not trains:
        raise ArgumentError("--classes is for models (fedavg, ifca, cfl, dcfl, rdpcfl); leave it out.")
    if trains and metrics:
        raise ArgumentError("--metrics is for clusterings; leave it out.")
    if trains and source.label is None:
        raise ArgumentError("training needs labels: name their column with --label.")
    asked = click.get_current_context().get_parameter_source("n_clusters")
    counted = "n_clusters" in model.get_params(deep=False)
    if asked == click.core.ParameterSource.COMMANDLINE and not counted:
        raise ArgumentError(f"{type(model).__name__} takes no n_clusters= here; leave it out.")


@click.command(short_help="Finish a run that was stopped.")
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--data", type=click.Path(path_type=Path), help="The clients' data, if it has moved.")
@own_algorithm_option
@click.option("--protocol", metavar="MODULE:NAME", help="Needed again if the run has a protocol of yours.")
@click.option("--model", metavar="MODULE:NAME", help="Needed again if the run trains a model of yours.")
@quiet_option
@picture_option
@json_option
def resume(
    run_folder: Path,
    data: Path | None,
    algorithm: str | None,
    protocol: str | None,
    model: str | None,
    quiet: bool,
    picture: bool,
    as_json: bool,
) -> None:
    """Finish the run in folder RUN: its recorded totals are replayed, and the rest is asked.

    The centroids are the same as if the run had never been stopped. For a finished run the results are
    written again.
    """
    run = read_run(run_folder)
    check_own(run_folder, run.parameters, algorithm, protocol, model)
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
