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


def most_rows(context: click.Context, option: click.Parameter, text: str | None) -> Any:
    """Read the most rows of a client: one number, or NAME=NUMBER of each with commas between them."""
    if text is None:
        return None
    try:
        named = [one.rpartition("=") for one in text.split(",")]
        found = {name.strip(): int(rows) for name, _, rows in named}
        if len(found) < len(named) or ("" in found) is ("=" in text):
            raise ValueError
    except ValueError:
        raise click.BadParameter("take a number, or NAME=NUMBER once for each client, with commas.") from None
    return found.get("", found)


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
    "--separator", metavar="CHAR", help="Character between the fields of a CSV file.  [default: found]"
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
    help="What becomes of a row with a missing number: it is left out, or this public number takes its place."
    "  [default: an error; with --epsilon leave-out]",
)

between_option = click.option(
    "--between",
    is_flag=True,
    help="Ask which share of each column's variance lies between the clients' means (one more sum). It needs "
    "four clients, and is not for --epsilon.",
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
        help="Names of all clients, or a file with one name a line; needed with --epsilon and --group.",
    ),
    heading="Rows",
)

id_option = click.option(
    "--id",
    metavar="COLUMN",
    help="Column that names the person of each row, for --group-size and --unit user. It is no feature.",
)

source_options = stacked(
    clients_options,
    click.option(
        "--label",
        metavar="COLUMN",
        help="Column of true labels. It is no feature; clusters are compared with it (not with --epsilon).",
    ),
    columns_option,
    click.option(
        "--drop", metavar="A,B,...", callback=names, help="Columns to leave out; not with --columns."
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
    "quartiles. Centroids stay in the columns' units. With --epsilon, standard takes 30 % of the budget, "
    "robust 25 %, and range, which uses --low and --high, nothing.  [default: none; with --epsilon robust, "
    "if the ranges differ]",
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
    help="Clients answer from means of groups of at least this many similar rows, or ids (docs/groups.md). "
    "Not with --epsilon.  [default: 1]",
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
    help="Also ask for the size, means and spreads of each cluster, and how many clients are in it (two more "
    "sums); privfed profile prints them.",
)

_CLUSTERING = (
    "dp: k-means under differential privacy; dwf, ewf: dynamically or equally weighted federated "
    "k-means; lloyd: dwf with one local step; minibatch: federated mini-batch k-means; fkm, kfed: of each "
    "client's own clusters; fuzzy: federated fuzzy c-means; mixture: Gaussian mixture."
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
        help="Secure sum. With masked the server sees totals only; with masked-verified clients read and "
        "check them, too; with masked-proven they prove bounds of their answers. With group-masked "
        "and ckks clients open the totals, and the server sees none. "
        "With plain the server sees every client's statistics.",
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
    _bound(
        "--low",
        help="Lowest possible value: one number, or one for each column. Do not read it off the rows.",
    ),
    _bound("--high", help="Highest possible value, likewise."),
    click.option(
        "--max-rows",
        metavar="N|NAME=N[,...]",
        callback=most_rows,
        help="Most rows that a client may have, or of each client by name; with --low and --high.",
    ),
    click.option(
        "--epsilon",
        type=float,
        help="Claim differential privacy with this epsilon. It needs --delta, --unit, --neighbours, --low, "
        "--high, and beside --group also --clients. Or see --budget.",
    ),
    click.option(
        "--delta", type=float, help="Delta of the claim: far below 1 / number of protected rows or people."
    ),
    click.option(
        "--unit",
        type=click.Choice(["record", "user", "client"]),
        help="What is protected: one row, all rows of one user (with --id and --rows-per-user), or a whole "
        "client.",
    ),
    click.option(
        "--rows-per-user", type=click.IntRange(1), help="With --unit user: how many rows of a user count."
    ),
    click.option(
        "--neighbours",
        type=click.Choice(["add-remove", "replace-one"]),
        help="Whether the protected unit may be added or removed, or replaced by another.",
    ),
    click.option(
        "--noise",
        type=click.Choice(["distributed", "local", "server"]),
        help="Who adds the noise: all clients together (the default), each client alone, or the server, to "
        "sums that only clients open.",
    ),
    click.option(
        "--mechanism",
        type=click.Choice(["gaussian", "skellam"]),
        help="Distribution of the noise: discrete Gaussian by default.",
    ),
    click.option(
        "--spare", type=float, help="Share of the budget that is kept for sums that are asked again."
    ),
    click.option(
        "--budget",
        metavar="FILE",
        help="Pay from this budget (privfed budget), which says epsilon, delta, unit and neighbours; with "
        "--share, --low and --high.",
    ),
    click.option(
        "--share", type=float, help="Share of the whole --budget that this command spends: .3 is 30 %."
    ),
    click.option("--purpose", metavar="TEXT", help="For the --budget's log.  [default: what is asked]"),
    heading="Declared ranges and differential privacy",
)


survival_options = stacked(
    click.option("--time", metavar="COLUMN", required=True, help="Column of times: numbers of at least 0."),
    click.option("--event", metavar="COLUMN", required=True, help="Column that says what happened then."),
    click.option("--happened", default="1", show_default=True, help="What --event says of an event."),
    click.option(
        "--censored", default="0", show_default=True, help="What it says of a row that was last seen then."
    ),
    click.option(
        "--edges",
        metavar="X,Y,...",
        callback=numbers,
        required=True,
        help="Ends of the bins of time, rising; declare them, and do not take them from the rows.",
    ),
    click.option("--level", type=float, default=0.95, show_default=True, help="Of the pointwise intervals."),
)

stability_options = stacked(
    click.option("--resamples", type=click.IntRange(1), default=10, show_default=True, help="Refits."),
    click.option(
        "--sample",
        "share",
        type=float,
        default=0.5,
        show_default=True,
        help="Share of the clients, or of the rows of each, that a refit takes.",
    ),
)
