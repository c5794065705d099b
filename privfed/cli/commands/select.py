"""`privfed select-k`: fits several numbers of clusters and chooses one by an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from privfed.cli.display.output import printed
from privfed.cli.display.unconverged import in_its_words
from privfed.cli.folder.claim import claim_from
from privfed.cli.folder.run_folder import MODEL, pretty
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
from privfed.cli.registered import Registered
from privfed.cli.runs.fitting import load
from privfed.cli.runs.selecting import FOUND, Asked, carry_out, selection_table
from privfed.cli.speaking import Part
from privfed.data import ClientTables
from privfed.errors import ArgumentError
from privfed.estimators.choosing.indices import INDICES
from privfed.estimators.choosing.private_selection import SHARED
from privfed.federation.clients import Clients, gather
from privfed.metrics.registry import METRICS
from privfed.privacy.claim import one_line


@click.command("select-k", short_help="Choose the number of clusters.")
@source_options
@click.option(
    "--min-k",
    cls=Part,
    part_of=("range",),
    type=int,
    help="Fewest clusters.  [default: 2; see --max-k]",
)
@click.option(
    "--max-k",
    cls=Part,
    part_of=("range",),
    type=int,
    help="Most clusters.  [default: clients are asked how many each finds on its own]",
)
@algorithm_option
@click.option(
    "--index",
    type=Registered(INDICES, also=METRICS),
    default="davies_bouldin",
    show_default=True,
    help="Index by which the clusterings are compared, or a metric, with --rule.",
)
@click.option(
    "--rule",
    type=click.Choice(["minimum", "maximum", "elbow"]),
    help="Which value of the index is chosen.  [default: the index's best]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("selection"),
    show_default=True,
    help="Folder to write to.",
)
@word_options
@declared_options
@quiet_option
@picture_option
@json_option
def select_k(data: Path, out: Path, quiet: bool, picture: bool, as_json: bool, **given: Any) -> None:
    """Cluster the rows of DATA with several numbers of clusters, and choose one by an index.

    DATA is a table with a column that names each row's client, or a folder with one table for each client.
    The same command continues where it was stopped.
    """
    source = source_of(data, given)
    asked = Asked(source=source, words=words_of(given), declared=declared_of(given), **given)
    asked.declared.words()
    tables = load(source, private=asked.declared.epsilon is not None)
    numbers = _range(asked, sum(len(rows) for rows in tables.arrays))
    found = carry_out(out, asked, tables, _clients(tables, asked), numbers, quiet=quiet, picture=picture)
    if as_json:
        click.echo(pretty(found), nl=False)
        return
    printed(selection_table(found))
    claim = claim_from(found.privacy)
    click.echo(one_line(None) if claim is None else f"{SHARED}\n{claim}")
    for row in found.table:
        if row["remedy"]:
            click.echo(f"{row['n_clusters']} clusters did not converge: {in_its_words(row['remedy'])}")
    click.echo(f"{found.n_clusters} clusters: {found.rule} of {found.index}.")
    drawn = f"{out / 'picture.png'}, " * picture
    click.echo(f"Written: {out / FOUND}, {drawn}{out / MODEL}")


def _clients(tables: ClientTables, asked: Asked) -> Clients:
    if len(tables.names) == 1 and asked.words["protocol"] != "plain":
        raise ArgumentError(
            f"{asked.source.path} holds one client, whom protocol {asked.words['protocol']!r} cannot "
            "protect; name the column that tells clients apart with --group, or take --protocol plain."
        )
    private = asked.declared.epsilon is not None
    return gather(tables.arrays, names=tables.names, domain=asked.declared.domain(), private=private)


def _range(asked: Asked, n_rows: int) -> range | None:
    """Return the numbers of clusters that were asked for; None to ask clients for a rule of thumb."""
    if asked.max_k is None:
        if asked.min_k is not None:
            raise ArgumentError("--min-k goes with --max-k; give both, or none.")
        return None
    low = 2 if asked.min_k is None else asked.min_k
    # Under differential privacy an error must not depend on the number of rows.
    most = asked.max_k if asked.declared.epsilon is not None else n_rows
    if not 2 <= low <= asked.max_k <= most:
        rows = "" if asked.declared.epsilon is not None else f" <= {n_rows}, the rows"
        raise ArgumentError(
            f"--min-k and --max-k must satisfy 2 <= min <= max{rows}, got {low} and {asked.max_k}."
        )
    return range(low, asked.max_k + 1)
