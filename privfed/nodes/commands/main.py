"""The commands of parties on their own machines: `privfed keys`, `privfed journal` and `privfed flower`."""

from __future__ import annotations

from functools import partial
from importlib import import_module

import click

from privfed.cli import options
from privfed.cli.program import command, existing, stacked


@click.group(short_help="Make a party's identity, and the list of all parties.")
def keys() -> None:
    """Make a party's identity and journal, and the list of all parties.

    Each party makes its identity on its own machine and sends its signed public key to the others. Each makes
    the list of all keys. They compare its digits by phone: whoever writes the list decides who takes part.
    """


@command(
    keys,
    "privfed.nodes.commands.federations:new_identity",
    "Make an identity, with its signed public key and its journal.",
    click.argument("name"),
    click.option("--out", type=options.PATH, required=True, help="Folder to make, for its owner alone."),
)
def new() -> None:
    """Make the identity of party NAME, as configurations will call it, in a folder of its own.

    The folder holds the secret key (identity), the signed public key for the others (public), and the journal
    of all that the party will answer. The three belong together: keep the folder, never go back to a copy.
    """


@command(
    keys,
    "privfed.nodes.commands.federations:registry",
    "Make the list of all parties from their signed public keys.",
    click.argument("signed_keys", metavar="KEY...", nargs=-1, required=True, type=options.PATH),
    click.option("--server", type=options.PATH, required=True, help="Signed public key of the coordinator."),
    click.option("--out", type=options.PATH, required=True, help="File to write; it must not exist."),
)
def registry() -> None:
    """Make the list of all parties from the clients' CARDs and the coordinator's."""


@command(
    keys,
    "privfed.nodes.commands.federations:show_keys",
    "Print the digits of a folder, a signed public key or a list.",
    click.argument("path", type=options.PATH),
)
def show() -> None:
    """Print whose keys PATH holds (a party's folder, a public key or a list), and their digits to compare."""


@click.group(short_help="Print or export what a party has given, or end a fit.")
def journal() -> None:
    """Print or export what a party has given over all its fits, or end one."""


@command(
    journal,
    "privfed.nodes.commands.federations:show_journal",
    "Print what each data set has given.",
    options.folder_argument,
)
def show_() -> None:
    """Print what each data set has given, and each fit, from the journal in a party's FOLDER."""


@command(
    journal,
    "privfed.nodes.commands.federations:end",
    "End a fit: erase its keys, answer no more of it.",
    options.folder_argument,
    click.argument("fit", type=int),
)
def end() -> None:
    """End the FIT of this number in the journal in a party's FOLDER, as privfed journal show numbers them.

    Its keys are erased and it is not answered any more, whoever asks; what it gave stays counted. A party
    that gives no more ends a fit so, also one that its coordinator left unfinished.
    """


@command(
    journal,
    "privfed.nodes.commands.federations:export",
    "Write a signed record of what was given, to whom and under which guarantee.",
    options.folder_argument,
    click.option("--out", type=options.PATH, required=True, help="File to write; it must not exist."),
    click.option(
        "--with-groups",
        is_flag=True,
        help="And the groups of rows, for join --carry: then it is as secret as the rows.",
    ),
)
def export() -> None:
    """Write what the journal in a party's FOLDER says, as JSON that is signed with the party's key.

    It has each fit with its coordinator, participants, columns, clusters, sum and guarantee, each answer, and
    what each data set has given in all. No row, total or secret key is in it, unless with --with-groups.
    """


@command(
    journal,
    "privfed.nodes.commands.records:write_testimony",
    "Write what is known here that a client gave which lost its folder, for its join --carry.",
    options.folder_argument,
    click.argument("name"),
    click.option("--out", type=options.PATH, required=True, help="File to write; it must not exist."),
)
def testify() -> None:
    """Write which fits client NAME took part in, as the node in FOLDER knows, or the coordinator in its own.

    It is for a client whose folder is lost and that has no record of its own: signed, and before its card is
    replaced in the list. No row, total or secret key is in it.
    """


@click.group(short_help="Run over several machines, by Flower.")
def flower() -> None:
    """Run over several machines: each party keeps its rows and keys, and Flower carries the bytes.

    Each client makes a card (join), the coordinator adds it (add), and each client starts with the kit
    it gets (node). The coordinator serves (superlink) and clusters (run). A trial on one machine needs
    local and simulate only. docs/flower.md goes through it.
    """


@command(
    flower,
    "privfed.nodes.commands.nodes:add_nodes",
    "Add nodes to the coordinator's list, or remove some; write the kit for all.",
    options.folder_argument,
    click.argument("cards", metavar="CARD...", nargs=-1, type=options.PATH),
    click.option("--remove", metavar="NAME", multiple=True, help="Take this party off the list; repeatable."),
    click.option(
        "--host",
        "hosts",
        multiple=True,
        help="Name or address by which nodes reach this machine; repeatable.  [default: its own name]",
    ),
    click.option("--port", type=int, help="Port of the SuperLink.  [default: 9092]"),
    click.option(
        "--columns",
        metavar="A,B,...",
        callback=options.names,
        help="Names of the columns, if tables have none.",
    ),
    click.option("--renew", is_flag=True, help="Give the SuperLink a new certificate."),
    click.option(
        "--name", default="coordinator", show_default=True, help="Name of the coordinator, in a new FOLDER."
    ),
)
def add() -> None:
    """Add the nodes of these CARDs (ward3.pub) to the list in FOLDER, and write FOLDER.kit for everybody.

    The first time it makes FOLDER: identity, certificates, federation.toml. Later it keeps all keys. A
    running SuperLink goes by the new list within seconds; each client approves the new kit by one command.
    """


def _import(context: click.Context, option: click.Parameter, modules: tuple[str, ...]) -> tuple[str, ...]:
    """Import modules before other options are read, which may name what these register."""
    for name in modules:
        try:
            import_module(name)
        except ImportError:
            raise click.BadParameter(
                f"{name} cannot be imported here; install it, or set PYTHONPATH."
            ) from None
    return modules


module_option = partial(
    click.option,
    "--module",
    "modules",
    multiple=True,
    help="Module here that registers an algorithm or a model of yours, as on the nodes; repeatable.",
)

max_epsilon_option = click.option(
    "--max-epsilon", type=float, help="Differential privacy alone, and at most this epsilon over all fits."
)


@command(
    flower,
    "privfed.nodes.commands.nodes:local",
    "Make a federation with all its parties on this machine, for trials.",
    options.source_options,
    options.schema_option,
    options.out_option("federation"),
    click.option("--port", type=int, default=9092, show_default=True, help="Port of the SuperLink."),
    max_epsilon_option,
    module_option(callback=_import, is_eager=True),
)
def local() -> None:
    """Make a federation from DATA, as privfed fit reads it, with a folder for each client under nodes/.

    Its nodes answer every algorithm from means of groups of 5 rows, or with --max-epsilon from rows under
    differential privacy alone.
    """


APPROVED = "such as WeightedKMeans, FuzzyCMeans, PrivateKMeans, FeatureMoments"
"""Examples of what an owner approves, by its registered name."""


@command(
    flower,
    "privfed.nodes.commands.nodes:join",
    "Make a party: its identity and keys, its rows and policy, its card for the coordinator.",
    options.folder_argument,
    click.option(
        "--data", type=options.PATH, callback=existing, required=True, help="Table with this node's rows."
    ),
    click.option(
        "--schema", type=options.PATH, help="What its columns mean (privfed schema draft), same for all."
    ),
    click.option("--name", help="The party's name, as all will see it.  [default: the folder's]"),
    click.option("--data-set", help="Your own name of these rows, for the journal.  [default: the file's]"),
    click.option(
        "--columns", metavar="A,B,...", callback=options.names, help="Feature columns, in the agreed order."
    ),
    click.option(
        "--labels",
        metavar="COLUMN",
        help="Column of classes, for models: whole numbers from 0 that mean the same at all clients.",
    ),
    click.option(
        "--id",
        metavar="COLUMN",
        help="Column that names the person of each row, for groups of rows and unit user. It is no feature.",
    ),
    click.option(
        "--classes",
        type=click.IntRange(2),
        help="Number of classes; other labels are none.  [default: any]",
    ),
    click.option(
        "--times",
        metavar="A,B",
        callback=options.names,
        help="Columns that say in which rounds a row is there, the last two of the columns.  [default: none]",
    ),
    options.missing_option,
    click.option(
        "--tells", is_flag=True, help="Tell the coordinator's process totals that only clients open."
    ),
    module_option(),
    click.option(
        "--algorithms", metavar="A,B,...", callback=options.names, help=f"What may run here: {APPROVED}."
    ),
    click.option("--group-size", type=click.IntRange(1), help="Rows of a group whose mean stands for them."),
    max_epsilon_option,
    click.option(
        "--order",
        type=click.IntRange(2),
        help="Order of the Renyi filter, for fits with DP-SGD or Skellam noise.",
    ),
    click.option("--max-fits", type=click.IntRange(1), help="Most fits on these rows."),
    click.option(
        "--carry",
        type=options.PATH,
        multiple=True,
        help="Record of these rows' journal on a machine that was lost: what it gave stays counted. Or three "
        "or more testimonies (privfed journal testify), of the coordinator and other clients; repeatable.",
    ),
    click.option(
        "--max-losses",
        type=click.IntRange(0),
        help="How often the group of clients may change or others be away, over all fits.  [default: 10]",
    ),
)
def join() -> None:
    """Make FOLDER for a party, with identity, journal, keys and settings, and FOLDER.pub to send.

    The node answers only what you approve. If no option says it, you are asked which algorithms may run on
    the rows, and whether they answer from means of groups or under differential privacy. The rows are read as
    a running node reads them, and counted for you alone: nothing of it is sent.
    """


@command(
    flower,
    "privfed.nodes.commands.nodes:check",
    "Read a node's rows as it would, and count what it finds.",
    options.folder_argument,
)
def check() -> None:
    """Check the rows of the node in FOLDER, as join does, and with its owner's copies of agreements.

    It writes the card anew, FOLDER.pub, as node.toml is now: after wrong columns, put them right there.
    """


@command(
    flower,
    "privfed.nodes.commands.nodes:node",
    "Be a node, until stopped.",
    options.folder_argument,
    click.option(
        "--kit", type=options.PATH, help="The coordinator's fed.kit, to approve; kept for later starts."
    ),
    click.option("--yes", is_flag=True, help="Approve the kit without asking: you compared its digits."),
)
def node() -> None:
    """Be the node of the party in FOLDER, until stopped: connect to the SuperLink and answer what is agreed.

    A new kit is shown with its digits, and approved here. Where the node runs already, it goes on with that.
    The installed privfed answers, in forks of one process; no code comes over the network.
    """


@command(
    flower,
    "privfed.nodes.commands.nodes:superlink",
    "Run the SuperLink of a federation, until stopped.",
    options.folder_argument,
    click.option("--listen", default="0.0.0.0", show_default=True, help="Address to listen on."),
)
def superlink() -> None:
    """Run the SuperLink of the federation in FOLDER: offline, with TLS, for the nodes of its list."""


@command(
    flower,
    "privfed.nodes.commands.federations:status",
    "Say who is there, who is not and why, and what is left of each node's limits.",
    options.folder_argument,
    options.json_option,
)
def status() -> None:
    """Say of each party of the federation in FOLDER whether its node is there and takes part, or why not.

    Its SuperLink is asked, and each node that is connected: for its clock, versions, list of parties, and
    what is left over all fits on its rows. Nothing of that depends on rows. It fails where no SuperLink runs.
    """


clients_option = click.option(
    "--clients",
    metavar="A,B,...",
    callback=options.names,
    help="Who takes part, of the list of parties.  [default: all of it]",
)

fit_options = stacked(
    options.folder_argument,
    options.algorithm_option,
    options.n_clusters_option,
    options.out_option("run"),
    click.option("--resume", is_flag=True, help="Finish the run in --out that was stopped."),
    options.sum_options,
    module_option(callback=_import, is_eager=True, expose_value=False),
    click.option(
        "--classes",
        metavar="A,B,...|@FILE",
        callback=options.listed,
        help="For models: the classes, in the order of the whole numbers that the nodes' labels are.",
    ),
    clients_option,
    options.columns_option,
    options.metrics_option,
    options.schema_option,
    options.declared_options,
)


@command(flower, "privfed.nodes.commands.federations:run", "Cluster the nodes' rows.", fit_options)
def run() -> None:
    """Cluster the rows of the nodes of the federation in FOLDER, on the machine of its SuperLink."""


@command(
    flower,
    "privfed.nodes.commands.federations:simulate",
    "Cluster over nodes that are all on this machine, in one process.",
    fit_options,
)
def simulate() -> None:
    """Cluster the rows of the federation in FOLDER, whose nodes are on this machine, without Flower."""


@command(
    flower,
    "privfed.nodes.commands.federations:summary",
    "Count the nodes' rows; means, deviations and histograms of the columns.",
    options.folder_argument,
    clients_option,
    options.bins_option,
    options.between_option,
    options.schema_option,
    options.sum_options,
    options.declared_options,
    options.json_option,
    click.option("--out", type=options.PATH, help="Folder for the transcript.  [default: none is kept]"),
)
def summary() -> None:
    """Summarize the rows of the nodes of the federation in FOLDER, on the machine of its SuperLink."""


@command(
    flower,
    "privfed.nodes.commands.federations:scale",
    "Learn the scale of each column of the nodes' schema.",
    options.folder_argument,
    clients_option,
    click.option(
        "--schema",
        type=options.PATH,
        callback=existing,
        required=True,
        help="What the columns mean, as the nodes joined with it.",
    ),
    click.option(
        "--out", type=options.PATH, required=True, help="File to write: the schema with what was learnt."
    ),
    options.learnt_scale_option,
    options.sum_options,
    options.declared_options,
)
def scale() -> None:
    """Write a schema with each number's shift and spread over all nodes, and each category's weight.

    Nodes scale their own rows once they have joined with the new schema. Under --epsilon the numbers are
    noised, and what they cost is spent besides any fit: draw both from one --budget.
    """


@command(
    flower,
    "privfed.nodes.commands.federations:measure",
    "Ask private metrics of a run's clusters, with intervals.",
    options.folder_argument,
    options.run_argument,
    clients_option,
    options.schema_option,
    options.classes_option,
    options.metrics_option,
    options.sum_options,
    options.declared_options,
    options.json_option,
)
def measure() -> None:
    """Ask the nodes of the federation in FOLDER for metrics of the centroids in RUN, like privfed measure."""


beside_options = stacked(
    options.folder_argument,
    options.run_argument,
    clients_option,
    options.schema_option,
    options.sum_options,
    options.declared_options,
)


@command(
    flower,
    "privfed.nodes.commands.federations:profile",
    "Ask what the clusters of a run are, or further columns in them.",
    beside_options,
    click.option(
        "--beside",
        metavar="A,B,...",
        callback=options.names,
        help="Columns of the nodes that the clusters were not found by, with ranges in --schema.",
    ),
    click.option(
        "--gaps/--no-gaps",
        default=True,
        help="Count missing values of --beside, which takes single rows. With --no-gaps nodes may answer "
        "from groups, and fill gaps or leave rows out as their owners say.",
    ),
    options.json_option,
)
def profile() -> None:
    """Ask the nodes of the federation in FOLDER for the profile of the clusters in RUN, like privfed profile.

    With --beside they are asked what further columns are like in them: owners approve ClusterColumns for it.
    """


@command(
    flower,
    "privfed.nodes.commands.federations:survival",
    "Compare how long the nodes' rows of each cluster survive.",
    beside_options,
    options.survival_options,
    options.picture_option,
    options.json_option,
)
def survival() -> None:
    """Ask the nodes of the federation in FOLDER for the survival of RUN's clusters, like privfed survival.

    Times and events are columns of theirs that RUN was fitted without (privfed flower run --columns). Owners
    approve ClusterTimes for it, and answer from rows or under differential privacy: groups have no times.
    """


@command(
    flower,
    "privfed.nodes.commands.federations:stability",
    "Say whether the clusters of a run are found again in parts of the nodes.",
    options.folder_argument,
    options.run_argument,
    clients_option,
    options.stability_options,
    options.json_option,
)
def stability() -> None:
    """Fit RUN again over parts of the nodes of the federation in FOLDER, like privfed stability.

    Each refit is two agreements with other clients than before: policies bound how many there are (max_fits,
    max_losses). Owners approve ClusterPairs for it.
    """
