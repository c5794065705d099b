"""`privfed fit` and `privfed resume`: cluster simulated clients, in a folder from which it can go on."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import click
import msgspec

from privfed import __version__
from privfed.cli.fitting import carry_out, clients_of, domain_of, load, show
from privfed.cli.run_folder import (
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
from privfed.core.transcript import Ended
from privfed.errors import ArgumentError, PrivFedError


def _names(context: click.Context, option: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Split names at commas; one that holds a comma stands in double quotes."""
    if text is None:
        return ()
    names = tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True), []))
    if not names or not all(names):
        raise click.BadParameter(f"{text!r} has an empty name; write names with commas between them.")
    return names


def _numbers(context: click.Context, option: click.Parameter, text: str | None) -> tuple[float, ...] | None:
    """Read one number, or one for each feature with commas between them."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number, nor numbers with commas between them.") from None


quiet_option = click.option("--quiet", is_flag=True, help="Show no progress.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.command(short_help="Cluster the clients of a table.")
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--group", metavar="COLUMN", help="Column that says which client a row belongs to.")
@click.option("--label", metavar="COLUMN", help="Column of true labels, to score against; never a feature.")
@click.option(
    "--columns",
    metavar="A,B,...",
    callback=_names,
    help="Feature columns.  [default: all but group and label]",
)
@click.option("--separator", metavar="CHAR", help="Between the fields of a CSV file.  [default: found]")
@click.option(
    "--algorithm",
    type=click.Choice(["dwf", "ewf", "lloyd"]),
    default="dwf",
    show_default=True,
    help="Dynamically or equally weighted federated k-means; lloyd is dwf with one local step.",
)
@click.option("-k", "--n-clusters", type=int, default=5, show_default=True, help="Number of clusters.")
@click.option(
    "--protocol",
    type=click.Choice(["masked", "plain"]),
    default="masked",
    show_default=True,
    help="Secure sum: masked shows the server totals only, plain every client's statistics.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("run"),
    show_default=True,
    help="Folder of the run.",
)
@click.option("--local-iter", type=int, help="Most local steps in a round.  [default: 5; lloyd: 1]")
@click.option("--learning-rate", type=float, default=1.0, show_default=True, help="In (0, 1].")
@click.option("--momentum", type=float, default=0.0, show_default=True, help="In [0, 1).")
@click.option("--tol", type=float, default=1e-6, show_default=True, help="Stop when centroids move by less.")
@click.option("--max-iter", type=int, default=300, show_default=True, help="Most rounds.")
@click.option("--min-iter", type=int, default=1, show_default=True, help="Fewest rounds.")
@click.option("--patience", type=int, help="Stop when the movement did not shrink over as many rounds.")
@click.option("--n-init", type=int, default=1, show_default=True, help="Restarts, of which the best is kept.")
@click.option(
    "--init",
    type=click.Choice(["coreset", "kfed", "random"]),
    default="coreset",
    show_default=True,
    help="How starting centroids are found.",
)
@click.option("--clients-per-round", type=int, help="Clients drawn for each round.  [default: all]")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Random seed.")
@click.option(
    "--low",
    metavar="X[,Y,...]",
    callback=_numbers,
    help="Declared lowest value of the features; goes with --high.",
)
@click.option(
    "--high",
    metavar="X[,Y,...]",
    callback=_numbers,
    help="Declared highest value of the features; goes with --low.",
)
@click.option("--max-rows", type=int, help="Declared most rows of a client; goes with --low and --high.")
@quiet_option
@json_option
def fit(data: Path, out: Path, quiet: bool, as_json: bool, **words: Any) -> None:
    """Cluster the rows of DATA, whose clients are simulated.

    DATA is a table (.csv, .csv.gz, .tsv, .parquet, .npz) with a column that names each row's client, or a
    folder of one table a client. The folder of the run takes the centroids, the result as JSON, a picture,
    and the transcript from which `privfed resume` goes on.
    """
    source = Source(
        path=str(data.absolute()),
        **{name: words.pop(name) for name in ("group", "label", "separator", "columns")},
    )
    parameters = _parameters(words)
    domain_of(parameters)
    tables = load(source)
    # The columns that were found are kept, so that `resume` and `predict` take the same ones.
    source = msgspec.structs.replace(source, columns=tables.columns)
    run = Run(format=FORMAT, privfed=__version__, command="fit", source=source, parameters=parameters)
    clients = clients_of(tables, run)
    create(out, run)
    try:
        result = carry_out(out, run, tables, clients, quiet)
    except PrivFedError:
        if not has_transcript(out):
            discard(out)
        raise
    show(result, out, as_json)


def _parameters(words: dict[str, Any]) -> Parameters:
    if words["algorithm"] == "lloyd" and words["local_iter"] not in (None, 1):
        raise ArgumentError(
            f"lloyd takes one local step, got --local-iter {words['local_iter']}; take --algorithm dwf."
        )
    default = 1 if words["algorithm"] == "lloyd" else 5
    local_iter = default if words["local_iter"] is None else words["local_iter"]
    return Parameters(**{**words, "local_iter": local_iter})


@click.command(short_help="Finish a run that was stopped.")
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--data", type=click.Path(path_type=Path), help="The clients' data, where it has moved.")
@quiet_option
@json_option
def resume(run_folder: Path, data: Path | None, quiet: bool, as_json: bool) -> None:
    """Finish the run in folder RUN: its totals are replayed, the rest is asked.

    The centroids are those of a run that was never stopped. Of a finished run the results are written anew.
    """
    run = read_run(run_folder)
    if data is not None:
        run = msgspec.structs.replace(
            run, source=msgspec.structs.replace(run.source, path=str(data.absolute()))
        )
    finished = has_transcript(run_folder) and bool(read_transcript(run_folder).of(Ended))
    tables = load(run.source)
    result = carry_out(run_folder, run, tables, clients_of(tables, run), quiet)
    if finished:
        click.echo(f"privfed: {run_folder} was finished already; its results were written anew.", err=True)
    show(result, run_folder, as_json)
