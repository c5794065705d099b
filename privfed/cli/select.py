"""`privfed select-k`: fit several numbers of clusters and choose one by an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from privfed.cli.fit import _names, _numbers, json_option, quiet_option
from privfed.cli.fitting import load
from privfed.cli.output import printed
from privfed.cli.run_folder import Source, pretty
from privfed.cli.selecting import FOUND, Asked, carry_out, selection_table
from privfed.core.domain import Box
from privfed.data import ClientTables
from privfed.errors import ArgumentError
from privfed.face.clients import Clients, gather
from privfed.face.selection import ESTIMATORS, INDICES

_WORDS = {
    "--init": (click.Choice(["coreset", "kfed", "random"]), "How starting centroids are found."),
    "--n-init": (int, "Restarts of each fit, of which the best is kept."),
    "--max-iter": (int, "Most rounds."),
    "--tol": (float, "Stop when centroids move by less."),
    "--local-iter": (int, "Most local steps in a round."),
    "--clients-per-round": (int, "Clients drawn for each round."),
}
"""Words of the estimators that are passed on where they are given; without, the estimator's own hold."""


def _words(command: Any) -> Any:
    for name, (kind, text) in reversed(_WORDS.items()):
        command = click.option(name, type=kind, help=f"{text}  [default: the algorithm's]")(command)
    return command


@click.command("select-k", short_help="Choose the number of clusters.")
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--group", metavar="COLUMN", help="Column that says which client a row belongs to.")
@click.option("--label", metavar="COLUMN", help="Column of labels, which is no feature.")
@click.option(
    "--columns",
    metavar="A,B,...",
    callback=_names,
    help="Feature columns.  [default: all but group and label]",
)
@click.option("--separator", metavar="CHAR", help="Between the fields of a CSV file.  [default: found]")
@click.option("--min-k", type=int, help="Fewest clusters.  [default: 2; see --max-k]")
@click.option(
    "--max-k", type=int, help="Most clusters.  [default: clients are asked how many each finds on its own]"
)
@click.option(
    "--algorithm",
    type=click.Choice(list(ESTIMATORS)),
    default="dwf",
    show_default=True,
    help="What is fitted; lloyd is dwf with one local step.",
)
@click.option(
    "--index",
    type=click.Choice(list(INDICES)),
    default="davies_bouldin",
    show_default=True,
    help="What the clusterings are judged by.",
)
@click.option(
    "--rule",
    type=click.Choice(["minimum", "maximum", "elbow"]),
    help="Which value of the index is chosen.  [default: the index's best]",
)
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
    default=Path("selection"),
    show_default=True,
    help="Folder to write to.",
)
@_words
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
def select_k(
    data: Path, out: Path, quiet: bool, as_json: bool, seed: int, protocol: str, **given: Any
) -> None:
    """Cluster the rows of DATA with several numbers of clusters, and choose one by an index.

    DATA is a table with a column that names each row's client, or a folder of one table a client. The same
    command goes on where it was stopped.
    """
    source = Source(
        path=str(data.absolute()),
        **{name: given.pop(name) for name in ("group", "label", "separator", "columns")},
    )
    named = [name.removeprefix("--").replace("-", "_") for name in _WORDS]
    words = {name: value for name in named if (value := given.pop(name)) is not None}
    asked = Asked(source=source, words={**words, "protocol": protocol, "random_state": seed}, **given)
    domain = _domain(asked)
    tables = load(source)
    numbers = _range(asked, sum(len(rows) for rows in tables.arrays))
    found = carry_out(out, asked, tables, _clients(tables, asked, domain), numbers, domain, quiet)
    if as_json:
        click.echo(pretty(found), nl=False)
        return
    printed(selection_table(found))
    click.echo(f"{found.n_clusters} clusters: {found.rule} of {found.index}.")
    click.echo(f"Written: {out / FOUND}, {out / 'picture.png'}, {out / 'model.npz'}")


def _domain(asked: Asked) -> Box | None:
    low, high = asked.low, asked.high
    if (low is None) != (high is None):
        raise ArgumentError("--low and --high go together; give both, or none.")
    if low is None or high is None:
        if asked.max_rows is not None:
            raise ArgumentError("--max-rows goes with --low and --high; give all three, or none.")
        return None
    return Box(low[0] if len(low) == 1 else low, high[0] if len(high) == 1 else high, max_rows=asked.max_rows)


def _clients(tables: ClientTables, asked: Asked, domain: Box | None) -> Clients:
    if len(tables.names) == 1 and asked.words["protocol"] != "plain":
        raise ArgumentError(
            f"{asked.source.path} holds one client, whom protocol {asked.words['protocol']!r} cannot "
            "protect; name the column that tells clients apart with --group, or take --protocol plain."
        )
    return gather(tables.arrays, names=tables.names, domain=domain)


def _range(asked: Asked, n_rows: int) -> range | None:
    """Return the numbers of clusters that were asked for, or None for the rule of thumb."""
    if asked.max_k is None:
        if asked.min_k is not None:
            raise ArgumentError("--min-k goes with --max-k; give both, or none.")
        return None
    low = 2 if asked.min_k is None else asked.min_k
    if not 2 <= low <= asked.max_k <= n_rows:
        raise ArgumentError(
            f"--min-k and --max-k must satisfy 2 <= min <= max <= {n_rows}, the rows, "
            f"got {low} and {asked.max_k}."
        )
    return range(low, asked.max_k + 1)
