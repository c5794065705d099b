"""Options that several commands share: source of the rows, secure sum, domain and privacy, output."""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from privfed.cli.program import ALGORITHM, CLUSTERING, CONFIG, Decorator, Registered, existing, stacked
from privfed.errors import ArgumentError


def names(context: click.Context, option: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Split names at commas; a name that contains a comma is put in double quotes."""
    if text is None:
        return ()
    found = tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True), []))
    if not found or not all(found):
        raise click.BadParameter(f"{text!r} has an empty name; write names with commas between them.")
    return found


def listed(context: click.Context, option: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Split names at commas, or read the lines of a file whose path follows an @."""
    if text is None or not text.startswith("@"):
        return names(context, option, text)
    try:
        lines = Path(text[1:]).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise click.BadParameter(f"{text[1:]} is no text that can be read; write one name a line.") from None
    found = tuple(name for line in lines if (name := line.strip()))
    if not found:
        raise click.BadParameter(f"{text[1:]} holds no names; write one name a line.")
    return found


def numbers(context: click.Context, option: click.Parameter, text: str | None) -> tuple[float, ...] | None:
    """Read one number, or one for each feature with commas between them."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number, nor numbers with commas between them.") from None


def bins(context: click.Context, option: click.Parameter, text: str | None) -> int | list[float] | None:
    """Read a number of bins, or edges with commas between them."""
    found = numbers(context, option, text)
    if found is None or len(found) > 1:
        return None if found is None else list(found)
    if found[0] != int(found[0]):
        raise click.BadParameter(f"{text!r} is neither a whole number of bins nor edges with commas between.")
    return int(found[0])


def missing(context: click.Context, option: click.Parameter, text: str | None) -> Any:
    """Read the rule for rows without a number: a word, or a number."""
    if text is None:
        return None
    from privfed.data.table import missing_rule

    return missing_rule(text, error=False)


def out_file(*suffixes: str) -> Callable[..., Path | None]:
    """Return a callback that refuses a file with another suffix, or in a folder that does not exist."""

    def check(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
        if path is not None and not path.name.lower().endswith(suffixes):
            raise ArgumentError(
                f"{path} has no known format: its name must end with {' or '.join(suffixes)}."
            )
        if path is not None and not path.parent.is_dir():
            raise ArgumentError(f"{path.parent}, the folder of {path.name}, does not exist; make it first.")
        return path

    return check


PATH = click.Path(path_type=Path)

run_argument = click.argument("run_folder", metavar="RUN", type=PATH)
folder_argument = click.argument("folder", type=PATH)
columns_option = click.option(
    "--columns",
    metavar="A,B,...",
    callback=names,
    help="Feature columns.  [default: all but group, label and id]",
)
separator_option = click.option(
    "--separator", metavar="CHAR", help="Between the fields of a CSV file.  [default: found]"
)
seed_option = click.option(
    "--seed",
    "random_state",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Random seed.",
)
quiet_option = click.option(
    "--quiet", is_flag=True, help="Print nothing but errors, warnings, and what --json asks for."
)
picture_option = click.option(
    "--picture/--no-picture", default=True, show_default=True, help="Draw pictures of the results."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
printing_options = stacked(quiet_option, picture_option, json_option, heading="Output")


def out_option(default: str) -> Decorator:
    """Return the option of the folder that a command writes to."""
    return click.option(
        "--out", type=PATH, default=Path(default), show_default=True, help="Folder to write to."
    )


own_algorithm_option = click.option(
    "--algorithm", metavar="MODULE:NAME", help="Needed again if the run has an algorithm of yours."
)
own_model_option = click.option("--model", metavar="MODULE:NAME", help="Needed again for a model of yours.")

missing_option = click.option(
    "--missing",
    metavar="leave-out|NUMBER",
    callback=missing,
    help="Rule for rows without a number in some column: leave them out, or put a public number in its "
    "place, row by row.  [default: an error; with --epsilon leave-out]",
)

between_option = click.option(
    "--between",
    is_flag=True,
    help="Ask how much of each column's variance lies between the clients' own means: one sum more, of four "
    "clients at least, not with --epsilon.",
)

bins_option = click.option(
    "--bins",
    metavar="N|X,Y,...",
    callback=bins,
    help="Histograms of the columns: a number of bins, or their edges.  [default: none]",
)


clients_options = stacked(
    click.argument("data", type=PATH, callback=existing),
    click.option("--group", metavar="COLUMN", help="Column that says which client a row belongs to."),
    click.option(
        "--clients",
        metavar="A,B,...|@FILE",
        callback=listed,
        help="All clients, or a file with one name a line; declares them if --epsilon and --group are given.",
    ),
    heading="Rows",
)

id_option = click.option(
    "--id",
    metavar="COLUMN",
    help="Column with whose each row is, for --group-size and --unit user; never a feature.",
)

source_options = stacked(
    clients_options,
    click.option(
        "--label",
        metavar="COLUMN",
        help="Column of true labels, to score against (not with --epsilon); never a feature.",
    ),
    columns_option,
    click.option(
        "--drop", metavar="A,B,...", callback=names, help="Columns that are no features; not with --columns."
    ),
    id_option,
    separator_option,
    missing_option,
    heading="Rows",
)

config_option = click.option(
    CONFIG,
    type=PATH,
    expose_value=False,
    help="TOML file of options, such as n-clusters = 4; options on the command line override it.",
)

schema_option = click.option(
    "--schema",
    type=PATH,
    help="File that says what the columns mean (docs/tables.md); its ranges are the declared domain.",
)

scale_option = click.option(
    "--scale",
    type=click.Choice(["standard", "range", "robust", "none"]),
    help="Scale the columns over all clients first: to mean 0 and variance 1, to [0, 1], or by their "
    "quartiles. Centroids are written in the columns' units. With --epsilon standard takes 30 % of the "
    "budget and robust 25 %; range maps --low and --high and asks nothing.  [default: none; with --epsilon "
    "robust, if the ranges differ]",
)

learnt_scale_option = click.option(
    "--scale",
    type=click.Choice(["standard", "robust"]),
    default="standard",
    help="By means and deviations, or by quartiles.  [default: standard]",
)

classes_option = click.option(
    "--classes",
    metavar="A,B,...|@FILE",
    callback=listed,
    help="Classes of the --label that a model tells apart; needed with --epsilon.  [default: found]",
)

group_size_option = click.option(
    "--group-size",
    type=click.IntRange(1),
    help="Clients answer from the means of groups of so many alike rows, or ids, and more (docs/groups.md); "
    "not with --epsilon.  [default: 1]",
)

metrics_option = click.option(
    "--metrics",
    metavar="A,B,...",
    callback=names,
    help="Metrics that clients are asked for after the fit: names of privfed.metrics, such as "
    "davies_bouldin,calinski_harabasz, or MODULE:NAME of your own.",
)

profile_option = click.option(
    "--profile",
    is_flag=True,
    help="Ask for two sums more: size, means and spreads of the clusters, and how many clients are in each; "
    "privfed profile prints them.",
)

_CLUSTERING = (
    "dp: k-means under differential privacy; dwf, ewf: dynamically or equally weighted federated "
    "k-means; lloyd: dwf with one local step; minibatch: federated mini-batch k-means; fkm, kfed; fuzzy: "
    "federated fuzzy c-means."
)
algorithm_option, clustering_option = (
    click.option("--algorithm", type=kind, default="dwf", show_default=True, help=text)
    for kind, text in (
        (ALGORITHM, f"{_CLUSTERING} Models of the --label: fedavg; ifca, cfl, dcfl for clusters of clients."),
        (CLUSTERING, _CLUSTERING),
    )
)
n_clusters_option = click.option(
    "-k", "--n-clusters", type=int, default=5, show_default=True, help="Number of clusters."
)

sum_options = stacked(
    click.option(
        "--protocol",
        type=Registered("privfed.protocols.secure_sums:SECURE_SUMS"),
        default="masked",
        show_default=True,
        help="Secure sum: masked shows the server only totals; with masked-verified clients get and check "
        "them too. With group-masked and ckks the clients open the totals and the server sees none. Plain "
        "shows the server every client's statistics.",
    ),
    seed_option,
    heading="Secure sum",
)

clip_option = stacked(
    click.option(
        "--clip",
        is_flag=True,
        help="Values below --low or above --high become these, as under --epsilon.  [default: an error]",
    ),
    heading="Declared ranges and differential privacy",
)

_bound = partial(click.option, metavar="X[,Y,...]", callback=numbers)
declared_options = stacked(
    _bound("--low", help="Declared lowest value of the features; with --high."),
    _bound("--high", help="Declared highest value of the features; with --low."),
    click.option("--max-rows", type=int, help="Declared most rows of a client; with --low and --high."),
    click.option(
        "--epsilon",
        type=float,
        help="Claim differential privacy: with --delta, --unit, --neighbours, --low, --high, and beside "
        "--group with --clients. Or see --budget.",
    ),
    click.option("--delta", type=float, help="Delta of the claim, far below one over the number of units."),
    click.option(
        "--unit",
        type=click.Choice(["record", "user", "client"]),
        help="The unit that is protected; user with --id and --rows-per-user.",
    ),
    click.option(
        "--rows-per-user", type=click.IntRange(1), help="With --unit user: most rows of a user that count."
    ),
    click.option(
        "--neighbours",
        type=click.Choice(["add-remove", "replace-one"]),
        help="Which inputs count as neighbouring.",
    ),
    click.option(
        "--noise",
        type=click.Choice(["distributed", "local", "server"]),
        help="Who adds the noise: the clients of a sum together (the default), each client alone, or the "
        "server, to sums that only clients open.",
    ),
    click.option(
        "--mechanism",
        type=click.Choice(["gaussian", "skellam"]),
        help="Distribution of the noise: discrete Gaussian by default.",
    ),
    click.option(
        "--spare", type=float, help="Share of the budget kept for sums that have to be asked again."
    ),
    click.option(
        "--budget",
        metavar="FILE",
        help="Pay from this budget (privfed budget), which says epsilon, delta, unit and neighbours; with "
        "--share, --low and --high.",
    ),
    click.option("--share", type=float, help="Share of the whole --budget that this command spends."),
    click.option("--purpose", metavar="TEXT", help="For the --budget's log.  [default: what is asked]"),
    heading="Declared ranges and differential privacy",
)
