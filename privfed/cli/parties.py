"""The commands of parties on their own machines: `privfed keys`, `privfed journal` and `privfed flower`."""

from __future__ import annotations

from importlib import import_module

import click

from privfed.cli.options import (
    PATH,
    algorithm_option,
    bins_option,
    declared_options,
    folder_argument,
    json_option,
    listed,
    metrics_option,
    missing_option,
    n_clusters_option,
    names,
    out_option,
    source_options,
    sum_options,
)
from privfed.cli.program import command, stacked


@click.group(short_help="Make a party's identity, and the list of all parties.")
def keys() -> None:
    """Make a party's identity and journal, and the list of all parties.

    Each party makes its identity on its own machine and sends its signed public key to the others. Each makes
    the list of all keys. They compare its digits by phone: whoever writes the list decides who takes part.
    """


@command(
    keys,
    "privfed.cli.federations:new_identity",
    "Make an identity, with its signed public key and its journal.",
    click.argument("name"),
    click.option("--out", type=PATH, required=True, help="Folder to make, for its owner alone."),
)
def new() -> None:
    """Make the identity of party NAME, as configurations will call it, in a folder of its own.

    The folder holds the secret key (identity), the signed public key for the others (public), and the journal
    of all that the party will answer. The three belong together: keep the folder, never go back to a copy.
    """


@command(
    keys,
    "privfed.cli.federations:registry",
    "Make the list of all parties from their signed public keys.",
    click.argument("signed_keys", metavar="KEY...", nargs=-1, required=True, type=PATH),
    click.option("--server", type=PATH, required=True, help="Signed public key of the coordinator."),
    click.option("--out", type=PATH, required=True, help="File to write; it must not exist."),
)
def registry() -> None:
    """Make the list of all parties from the clients' CARDs and the coordinator's."""


@command(
    keys,
    "privfed.cli.federations:show_keys",
    "Print the digits of a folder, a signed public key or a list.",
    click.argument("path", type=PATH),
)
def show() -> None:
    """Print whose keys PATH holds (a party's folder, a public key or a list), and their digits to compare."""


@click.group(short_help="Print or export what a party has given, or end a fit.")
def journal() -> None:
    """Print or export what a party has given over all its fits, or end one."""


@command(
    journal,
    "privfed.cli.federations:show_journal",
    "Print what each data set has given.",
    folder_argument,
)
def show_() -> None:
    """Print what each data set has given, and each fit, from the journal in a party's FOLDER."""


@command(
    journal,
    "privfed.cli.federations:end",
    "End a fit: erase its keys, answer no more of it.",
    folder_argument,
    click.argument("fit", type=int),
)
def end() -> None:
    """End the FIT of this number in the journal in a party's FOLDER, as privfed journal show numbers them.

    Its keys are erased and it is not answered any more, whoever asks; what it gave stays counted. A party
    that gives no more ends a fit so, also one that its coordinator left unfinished.
    """


@command(
    journal,
    "privfed.cli.federations:export",
    "Write the whole journal as JSON.",
    folder_argument,
    click.option("--out", type=PATH, required=True, help="File to write."),
)
def export() -> None:
    """Write the journal in a party's FOLDER as JSON, after checking that its entries are as written."""


@click.group(short_help="Run over several machines, by Flower.")
def flower() -> None:
    """Run over several machines: each party keeps its rows and keys, and Flower carries the bytes.

    The coordinator makes a federation (new, superlink, run), each client a node (join, node). A trial on one
    machine needs local and simulate only. docs/flower.md goes through it.
    """


port_option = click.option("--port", type=int, default=9092, show_default=True, help="Port of the SuperLink.")


@command(
    flower,
    "privfed.cli.federations:new_federation",
    "Make the coordinator's folder, with a thin Flower app.",
    folder_argument,
    click.option(
        "--columns", metavar="A,B,...", callback=names, required=True, help="Columns of all clients."
    ),
    click.option(
        "--host",
        "hosts",
        multiple=True,
        required=True,
        help="Name or address by which nodes reach this machine.",
    ),
    port_option,
    click.option("--name", default="coordinator", show_default=True, help="The coordinator's name."),
)
def new_() -> None:
    """Make FOLDER for the coordinator: its identity, certificates, a thin Flower app and federation.toml."""


@command(
    flower,
    "privfed.cli.federations:local",
    "Make a federation with all its parties on this machine, for trials.",
    source_options,
    out_option("federation"),
    port_option,
)
def local() -> None:
    """Make a federation from DATA, as privfed fit reads it, with a folder for each client under nodes/."""


APPROVED = "such as WeightedKMeans, FuzzyCMeans, PrivateKMeans, FeatureMoments"
"""Examples of what an owner approves, by its registered name."""


@command(
    flower,
    "privfed.cli.federations:join",
    "Make a party's folder a node: its rows, its policy, its key for the SuperLink.",
    folder_argument,
    click.option(
        "--data", required=True, help="Table with this node's rows; relative paths start in FOLDER."
    ),
    click.option("--data-set", required=True, help="Your own name of these rows, for the journal."),
    click.option(
        "--columns", metavar="A,B,...", callback=names, help="Feature columns, in the agreed order."
    ),
    click.option(
        "--labels",
        metavar="COLUMN",
        help="Column of classes, for models: whole numbers from 0 that mean the same at all clients.",
    ),
    click.option(
        "--id", metavar="COLUMN", help="Column with whose each row is, for groups of rows; no feature."
    ),
    click.option(
        "--classes",
        type=click.IntRange(2),
        help="How many classes labels tell apart; others are none. [default: any]",
    ),
    click.option(
        "--times",
        metavar="A,B",
        callback=names,
        help="Columns that say in which rounds a row is there, the last two of the columns.  [default: none]",
    ),
    missing_option,
    click.option(
        "--tells", is_flag=True, help="Tell the coordinator's process totals that only clients open."
    ),
    click.option(
        "--module",
        "modules",
        multiple=True,
        help="Module here that registers an algorithm or a model of yours; repeatable.",
    ),
    click.option("--algorithms", metavar="A,B,...", callback=names, help=f"What may run here: {APPROVED}."),
    click.option("--group-size", type=click.IntRange(1), help="Rows of a group whose mean stands for them."),
    click.option(
        "--max-epsilon", type=float, help="Only under differential privacy, of so much over all fits."
    ),
    click.option("--max-fits", type=click.IntRange(1), help="Most fits on these rows."),
)
def join() -> None:
    """Write node.toml and a key for the SuperLink into FOLDER, the party's of privfed keys new.

    The node answers what you approve, and asks for what no option says: which algorithms may run on the rows,
    and whether they answer from means of groups or under differential privacy. The rows are read as a running
    node reads them, and counted for you alone: nothing of it is sent.
    """


@command(
    flower,
    "privfed.cli.federations:check",
    "Read a node's rows as it would, and count what it finds.",
    folder_argument,
)
def check() -> None:
    """Check the rows of the node in FOLDER, as join does, and with its owner's copies of agreements."""


@command(
    flower,
    "privfed.cli.federations:node",
    "Be a node, until stopped.",
    folder_argument,
    click.option("--superlink", required=True, metavar="HOST:PORT", help="Address of the SuperLink."),
    click.option("--root-certificates", type=PATH, help="The coordinator's ca.crt; without it no TLS."),
    click.option(
        "--plain",
        is_flag=True,
        help="Run the app that a run brings, with a process a message, as Flower does.",
    ),
)
def node() -> None:
    """Be the node of the party in FOLDER, until stopped: connect to the SuperLink and answer what is agreed.

    The installed privfed answers, in forks of one process, whatever code a run brings. With --plain it is
    the code of the run: then whoever may submit a run chooses what reads the rows.
    """


@command(
    flower,
    "privfed.cli.federations:superlink",
    "Run the SuperLink of a federation, until stopped.",
    folder_argument,
    click.option("--listen", default="0.0.0.0", show_default=True, help="Address to listen on."),
    click.option(
        "--node-key", "keys", multiple=True, type=PATH, help="Public key of a node that may connect."
    ),
)
def superlink() -> None:
    """Run Flower's SuperLink for the federation in FOLDER: offline, with TLS, for nodes with these keys."""


@command(
    flower,
    "privfed.cli.federations:admit",
    "Let more nodes connect to the SuperLink.",
    folder_argument,
    click.argument("keys", metavar="KEY...", nargs=-1, required=True, type=PATH),
)
def admit() -> None:
    """Admit nodes by their public KEYs to the SuperLink of the federation in FOLDER, running or not.

    Nothing is stopped, and nothing started again. To shut a node out, delete its key from FOLDER/admitted.
    """


def _import(context: click.Context, option: click.Parameter, modules: tuple[str, ...]) -> None:
    """Import modules before other options are read, which may name what these register."""
    for name in modules:
        try:
            import_module(name)
        except ImportError:
            raise click.BadParameter(
                f"{name} cannot be imported here; install it, or set PYTHONPATH."
            ) from None


clients_option = click.option(
    "--clients",
    metavar="A,B,...",
    callback=names,
    help="Who takes part, of the list of parties.  [default: all of it]",
)

fit_options = stacked(
    folder_argument,
    algorithm_option,
    n_clusters_option,
    out_option("run"),
    click.option("--resume", is_flag=True, help="Finish the run in --out that was stopped."),
    sum_options,
    click.option(
        "--module",
        multiple=True,
        callback=_import,
        is_eager=True,
        expose_value=False,
        help="Module here that registers a model of yours, as on the nodes; repeatable.",
    ),
    click.option(
        "--classes",
        metavar="A,B,...|@FILE",
        callback=listed,
        help="For models: the classes, in the order of the whole numbers that the nodes' labels are.",
    ),
    clients_option,
    metrics_option,
    declared_options,
)


@command(flower, "privfed.cli.federations:run", "Cluster the nodes' rows.", fit_options)
def run() -> None:
    """Cluster the rows of the nodes of the federation in FOLDER, on the machine of its SuperLink."""


@command(
    flower,
    "privfed.cli.federations:simulate",
    "Cluster over a simulation, all on this machine.",
    fit_options,
)
def simulate() -> None:
    """Cluster over Flower's simulation of the federation in FOLDER, whose nodes are on this machine."""


@command(
    flower,
    "privfed.cli.federations:summary",
    "Count the nodes' rows; means, deviations and histograms of the columns.",
    folder_argument,
    clients_option,
    bins_option,
    sum_options,
    declared_options,
    json_option,
    click.option("--out", type=PATH, help="Folder for the transcript.  [default: none is kept]"),
)
def summary() -> None:
    """Summarize the rows of the nodes of the federation in FOLDER, on the machine of its SuperLink."""
