"""`privfed summary`: the number of rows, and means, deviations and histograms of the columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from privfed.cli.display.summaries import print_summary, summarized
from privfed.cli.folder.run_folder import pretty
from privfed.cli.options import (
    declared_of,
    declared_options,
    json_option,
    numbers,
    source_of,
    source_options,
    sum_options,
)
from privfed.cli.registered import with_own_sum
from privfed.cli.runs.fitting import load
from privfed.errors import ArgumentError
from privfed.estimators.summary import FederatedSummary


def bins(context: click.Context, option: click.Parameter, text: str | None) -> int | list[float] | None:
    """Read a number of bins, or edges with commas between them."""
    found = numbers(context, option, text)
    if found is None or len(found) > 1:
        return None if found is None else list(found)
    if found[0] != int(found[0]):
        raise click.BadParameter(f"{text!r} is neither a whole number of bins nor edges with commas between.")
    return int(found[0])


bins_option = click.option(
    "--bins",
    metavar="N|X,Y,...",
    callback=bins,
    help="Histograms of the columns: a number of bins, or their edges.  [default: none]",
)


@click.command(short_help="Count rows; means, deviations and histograms of the columns.")
@source_options
@bins_option
@sum_options
@declared_options
@json_option
def summary(data: Path, as_json: bool, bins: int | list[float] | None, **given: Any) -> None:
    """Summarize the rows of DATA, whose clients are simulated, from secure sums.

    DATA is a table with a column that names each row's client, or a folder with one table for each client.
    Lowest and highest are the declared domain's, else edges of public bins around all rows.
    """
    source = source_of(data, given)
    declared = declared_of(given)
    tables = load(source, private=declared.epsilon is not None)
    if len(tables.names) == 1 and given["protocol"] != "plain":
        raise ArgumentError(
            f"{source.path} holds one client, whom protocol {given['protocol']!r} cannot protect; name the "
            "column that tells clients apart with --group, or take --protocol plain."
        )
    found = FederatedSummary(bins, **with_own_sum({**declared.words(), **given}))
    found.fit(list(tables.arrays), client_names=tables.names)
    if as_json:
        click.echo(pretty(summarized(found, tables.columns)), nl=False)
    else:
        print_summary(found, tables.columns)
