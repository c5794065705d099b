"""`privfed predict` and `privfed show`: read from a run's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np
from numpy.typing import NDArray

from privfed.cli.display.output import claim_lines, facts_table, printed, sums_table
from privfed.cli.folder.claim import claim_of_run, to_json
from privfed.cli.folder.result import SumRow, began_of, server_saw, sum_rows
from privfed.cli.folder.run_folder import (
    MODEL,
    RESULT_FORMAT,
    RUN,
    Centroids,
    has_transcript,
    pretty,
    read_centroids,
    read_run,
    read_transcript,
)
from privfed.cli.folder.trained import holds_models, read_trained
from privfed.cli.options import table_file
from privfed.cli.runs.fitting import check_own
from privfed.cli.runs.selecting import FOUND
from privfed.core.names.registry import imported
from privfed.core.record.transcript import Ended, Transcript
from privfed.core.values.domain import FloatArray
from privfed.data import load_features
from privfed.data.writing import write_table
from privfed.errors import ArgumentError, RunFolderError
from privfed.estimators.saving import load
from privfed.numerics.kernels.steps import assign
from privfed.privacy.claim import PrivacySpent


@click.command(short_help="Print the cluster of each row of a table.")
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    callback=table_file,
    help="Table to write: .csv, .tsv (also with .gz) or .parquet.  [default: CSV to standard output]",
)
@click.option("--separator", metavar="CHAR", help="Between the fields of a CSV file.  [default: found]")
@click.option("--cluster", type=click.IntRange(0), help="Of a run that trained models: whose model.")
@click.option("--model", metavar="MODULE:NAME", help="Needed again if the run trained a model of yours.")
def predict(
    run_folder: Path,
    data: Path,
    out: Path | None,
    separator: str | None,
    cluster: int | None,
    model: str | None,
) -> None:
    """Print the cluster of each row of DATA, a table with the columns of RUN; other columns are ignored.

    RUN is the folder of `privfed fit`, `privfed select-k` (the number of clusters that was chosen) or
    `privfed flower run`. Of a run that trained models, print the class that a cluster's model gives each row.
    Under differential privacy the claim of RUN is printed on stderr. It covers centroids and models only, as
    a row's cluster or class is computed from the row itself.
    """
    if (run_folder / RUN).exists() and holds_models(run_folder):
        parameters = read_run(run_folder).parameters
        protocol = str(parameters.words["protocol"])
        check_own(run_folder, parameters, parameters.algorithm, protocol, model, "predict")
        rows = load_features(data, read_trained(run_folder).columns, separator=separator)
        _classes(run_folder, rows, out, cluster, model)
        return
    if cluster is not None:
        raise ArgumentError("--cluster is for runs that trained models; leave it out.")
    known = centroids_of(run_folder)
    rows = load_features(data, known.columns, separator=separator)
    labels = assign(rows, np.array(known.centroids, dtype=np.float64))
    claim = known.privacy
    if known.format == 1 and has_transcript(run_folder):
        claim = claim_of_run(run_folder, read_transcript(run_folder))
    if claim is not None:
        click.echo(f"privfed: for the centroids, not for the clusters of DATA's rows: {claim.line}", err=True)
    _write(out, "cluster", labels)


def centroids_of(folder: Path) -> Centroids:
    """Return columns, centroids and claim from the folder of a fit, a selection or a run over Flower.

    Raises:
        RunFolderError: the folder holds none of them, or the run there is not finished.
    """
    if (folder / FOUND).exists() and not (folder / RUN).exists():
        return read_centroids(folder, FOUND)
    if (folder / RUN).exists() or not (folder / MODEL).exists():
        read_run(folder)
        return read_centroids(folder)
    model = load(folder / MODEL)
    columns = vars(model).get("feature_names_in_")
    if columns is None:
        raise RunFolderError(
            f"the model in {folder} does not name its columns; in Python, privfed.load reads it, and its "
            "predict takes rows."
        )
    return Centroids(tuple(columns), model.cluster_centers_.tolist(), model.privacy_claim_, RESULT_FORMAT)


def _classes(
    run_folder: Path, rows: FloatArray, out: Path | None, cluster: int | None, own: str | None
) -> None:
    known = read_trained(run_folder)
    if cluster is None and known.n_clusters > 1:
        raise ArgumentError(f"the run trained {known.n_clusters} models: name one with --cluster.")
    model = load(run_folder / MODEL)
    if own is not None:
        model.set_params(model=imported(own))
    codes = model.predict(rows, cluster or 0)
    if model.privacy_claim_ is not None:
        line = model.privacy_claim_.line
        click.echo(f"privfed: for the models, not for the classes of DATA's rows: {line}", err=True)
    _write(out, "class", np.array(known.classes)[codes])


def _write(out: Path | None, name: str, values: NDArray[Any]) -> None:
    if out is None:
        click.echo("\n".join([name, *map(str, values.tolist())]))
    else:
        write_table(out, {name: values})


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what `privfed show --json` prints."""

    algorithm: str
    parameters: dict[str, object]
    protocol: str
    server_saw: str
    privacy: dict[str, object] | None
    clients: tuple[str, ...]
    columns: int
    finished: bool
    sums: list[SumRow]


@click.command(short_help="Print what ran, and what the server saw.")
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def show(run_folder: Path, as_json: bool) -> None:
    """Print what ran in folder RUN, its claim, what the server saw, and each sum, from the transcript."""
    transcript = read_transcript(run_folder)
    claim = claim_of_run(run_folder, transcript)
    shown = _shown(transcript, claim)
    if as_json:
        click.echo(pretty(shown), nl=False)
        return
    words = {name: value for name, value in shown.parameters.items() if value is not None}
    facts = {
        "algorithm": shown.algorithm,
        "parameters": ", ".join(f"{name} {value}" for name, value in words.items()),
        "protocol": shown.protocol,
        "the server saw": shown.server_saw,
        **claim_lines(claim),
        "clients, columns": f"{len(shown.clients)}, {shown.columns}",
        "state": "finished" if shown.finished else f"not finished after {len(shown.sums)} sums",
    }
    printed(facts_table(run_folder, facts))
    printed(sums_table(shown.sums))


def _shown(transcript: Transcript, claim: PrivacySpent | None) -> Shown:
    began, configuration = began_of(transcript), transcript.configuration
    try:
        parameters = dict(json.loads(configuration.algorithm))
    except (ValueError, TypeError):
        parameters = {"algorithm": configuration.algorithm}
    parameters.pop("n_features", None)
    return Shown(
        algorithm=parameters.pop("algorithm", "unknown"),
        parameters=parameters,
        protocol=configuration.protocol,
        server_saw=server_saw(began.opens_to, began.reveals),
        privacy=to_json(claim),
        clients=configuration.clients,
        columns=configuration.n_features,
        finished=bool(transcript.of(Ended)),
        sums=sum_rows(transcript),
    )
