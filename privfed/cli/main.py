"""The command `privfed`: its subcommands and their options; each names the function that does its work."""

from __future__ import annotations

import click

from privfed.cli import options
from privfed.cli.local_files import budget, check, schema
from privfed.cli.measures import measure
from privfed.cli.parties import flower, journal, keys
from privfed.cli.program import Program, Registered, command, existing
from privfed.version import __version__


@click.group("privfed", cls=Program, no_args_is_help=False, invoke_without_command=True)
@click.version_option(__version__, prog_name="privfed")
@click.pass_context
def main(context: click.Context) -> None:
    """Cluster the data of several clients through sums over the clients.

    Clients are simulated in this process, but those of `flower`.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for other in (budget, check, flower, journal, keys, measure, schema):
    main.add_command(other)


@command(
    main,
    "privfed.cli.fitting:fit",
    "Cluster the clients of a table.",
    options.source_options,
    options.config_option,
    options.schema_option,
    options.classes_option,
    options.algorithm_option,
    options.n_clusters_option,
    options.out_option("run"),
    options.sum_options,
    options.scale_option,
    options.metrics_option,
    options.profile_option,
    options.group_size_option,
    options.declared_options,
    options.clip_option,
    click.option(
        "--plan",
        type=click.IntRange(1),
        metavar="ROWS",
        help="Ask nothing: print what noise --algorithm dp would have on about so many rows.",
    ),
    options.printing_options,
)
def fit() -> None:
    """Cluster the rows of DATA, whose clients are simulated, or train models of their labels.

    DATA is a table (.csv, .csv.gz, .tsv, .parquet, .xlsx, .npz) with a column that names each row's client,
    or a folder with one table for each client. The folder of the run gets the centroids, the result as
    JSON, a picture, and the transcript from which `privfed resume` continues. Options of algorithms without
    a default have the algorithm's own; with an --algorithm of yours, its parameters are options too.
    """


@command(
    main,
    "privfed.cli.fitting:resume",
    "Finish a run that was stopped.",
    options.run_argument,
    click.option("--data", type=options.PATH, callback=existing, help="The clients' data, if it has moved."),
    options.own_algorithm_option,
    click.option(
        "--protocol", metavar="MODULE:NAME", help="Needed again if the run has a protocol of yours."
    ),
    options.own_model_option,
    click.option(
        "--metrics",
        metavar="A,B,...",
        callback=options.names,
        help="Needed again if the run has metrics of yours.",
    ),
    options.printing_options,
)
def resume() -> None:
    """Finish the run in folder RUN: its recorded totals are replayed, and the rest is asked.

    The centroids are those of a run that was never stopped. A finished run's results are written again.
    """


@command(
    main,
    "privfed.cli.predicting:predict",
    "Print the cluster of each row of a table.",
    options.run_argument,
    click.argument("data", type=options.PATH, callback=existing),
    click.option(
        "--out",
        type=options.PATH,
        callback=options.out_file(".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".xlsx"),
        help="Table to write: .csv, .tsv (and .gz), .parquet, .xlsx.  [default: CSV to standard output]",
    ),
    click.option(
        "--out-folder",
        type=options.PATH,
        help="Where DATA is a folder with a table of each client: new folder for a CSV file of each.",
    ),
    click.option(
        "--schema",
        type=options.PATH,
        help="File that says what the columns of DATA mean, for a run of nodes, or where"
        " that of RUN does not name the file.",
    ),
    options.separator_option,
    click.option(
        "--keep",
        metavar="A,B,...",
        callback=options.names,
        help='Columns of DATA to write beside the cluster, as they stand there; "all" for all.',
    ),
    click.option("--cluster", type=click.IntRange(0), help="Of a run that trained models: whose model."),
    options.own_model_option,
)
def predict() -> None:
    """Print the cluster of each row of DATA, a table with the columns of RUN; other columns are ignored.

    Where DATA is a folder with a table of each client, write a file of each (--out-folder).

    RUN is the folder of `privfed fit`, `privfed select-k` (the number of clusters that was chosen) or
    `privfed flower run`. Of a run that trained models, print the class that a cluster's model gives each row.
    Under differential privacy the claim of RUN is printed on stderr. It covers centroids and models only, as
    a row's cluster or class is computed from the row itself.
    """


@command(
    main,
    "privfed.cli.output:show",
    "Print what ran, and what the server saw.",
    options.run_argument,
    options.json_option,
)
def show() -> None:
    """Print what ran in folder RUN, its claim, what the server saw, and each sum, from the transcript."""


@command(
    main,
    "privfed.cli.profiling:profile",
    "Print what the clusters are, column by column.",
    options.run_argument,
    click.option(
        "--out",
        type=options.PATH,
        callback=options.out_file(".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".xlsx", ".svg", ".png"),
        help="Table to write, too: .csv, .tsv (and .gz), .parquet, .xlsx; or the heat map as .svg or .png.",
    ),
    options.picture_option,
    options.json_option,
)
def profile() -> None:
    """Print the size of each cluster of RUN, each column's mean and spread in it, and what sets it apart.

    RUN is the folder of `privfed fit --profile`, which has asked for the sums. Of a run under differential
    privacy sizes and means are those of the released totals, with the intervals that their noise leaves open.
    """


@command(
    main,
    "privfed.cli.reading:summary",
    "Count rows; means, deviations and histograms of the columns.",
    options.source_options,
    options.config_option,
    options.schema_option,
    options.bins_option,
    options.between_option,
    options.sum_options,
    options.group_size_option,
    options.declared_options,
    options.clip_option,
    options.json_option,
)
def summary() -> None:
    """Summarize the rows of DATA, whose clients are simulated, from secure sums.

    DATA is a table with a column that names each row's client, or a folder with one table for each client.
    Lowest and highest are the declared domain's, else edges of public bins around all rows.
    """


@command(
    main,
    "privfed.cli.selecting:select_k",
    "Choose the number of clusters.",
    options.source_options,
    options.config_option,
    options.schema_option,
    click.option("--min-k", type=int, help="Fewest clusters.  [default: 2; see --max-k]"),
    click.option(
        "--max-k",
        type=int,
        help="Most clusters.  [default: clients are asked how many each finds on its own]",
    ),
    options.clustering_option,
    click.option(
        "--index",
        type=Registered("privfed.estimators.choosing:INDICES", also="privfed.metrics.named:METRICS"),
        default="davies_bouldin",
        show_default=True,
        help="Index by which the clusterings are compared: davies_bouldin, fuzzy_davies_bouldin, "
        "simplified_silhouette, calinski_harabasz, mean_distance or inertia; or a metric, with --rule.",
    ),
    click.option(
        "--rule",
        type=click.Choice(["minimum", "maximum", "elbow"]),
        help="Which value of the index is chosen.  [default: the index's best]",
    ),
    options.out_option("selection"),
    options.sum_options,
    options.scale_option,
    options.group_size_option,
    options.declared_options,
    options.clip_option,
    options.printing_options,
)
def select_k() -> None:
    """Cluster the rows of DATA with several numbers of clusters, and choose one by an index.

    DATA is a table with a column that names each row's client, or a folder with one table for each client.
    The same command continues where it was stopped.
    """


@command(
    main,
    "privfed.cli.attacking:attack",
    "Attack a run: what could be learned from what was seen.",
    click.argument("run_folders", metavar="RUN...", nargs=-1, required=True, type=options.PATH),
    options.attacks_option,
    options.truth_options,
    click.option(
        "--public",
        "sample",
        type=options.PATH,
        help="Table of public rows of the same kind, which the attacker knows.",
    ),
    click.option(
        "--known",
        type=options.PATH,
        help="Table of clients' rows that the attacker knows; the others are attacked.",
    ),
    click.option(
        "--low",
        metavar="X[,Y,...]",
        callback=options.numbers,
        help="Lowest value of each feature, known to the attacker; with --high.",
    ),
    click.option(
        "--high",
        metavar="X[,Y,...]",
        callback=options.numbers,
        help="Highest value of each feature, known to the attacker; with --low.",
    ),
    click.option(
        "--party",
        type=click.Choice(["server", "observer", "clients"]),
        default="server",
        show_default=True,
        help="Who attacks: the server, an observer who sees only the final centroids, or the clients that "
        "--colluding names, by what they see together.",
    ),
    click.option(
        "--colluding", metavar="A,B,...", callback=options.names, help="Clients that help the attacker."
    ),
    click.option("--client", metavar="NAME", help="Client to attack, where the view shows single ones."),
    click.option(
        "--most-rows",
        type=click.IntRange(1),
        help="Most rows of a target; time grows with them.  [default: 200 of noisy-differencing, "
        "32 of gradient-inversion]",
    ),
    options.seed_option,
    click.option("--out", type=options.PATH, help="Folder to write to.  [default: RUN/attacks]"),
    click.option(
        "--curve", is_flag=True, help="Of several runs: show also what the first, the first two, ... give."
    ),
    options.printing_options,
)
def attack() -> None:
    """Run attacks on what a party saw of the runs in folders RUN..., and score them against the truth.

    Several runs of the same rows are attacked together: their sums add up, and a client that was away from
    one of them may be solved for. Their reports are in a folder of their own within the first run's.
    Parameters of attacks that --attack names are options, too: --help beside it lists them.
    Attacks read only the party's view of the transcript; the clients' rows are used for scoring. An attack
    that finds nothing to work on is left out, with the reason, and what was shown and read by none is listed.
    Each attack that runs gets a picture beside attacks.json. Each report is stored when it is done: the same
    command continues where it was stopped, and runs only what is new; reports with other settings (client,
    seed, rows) are replaced. Each party, with those who collude with it, has reports of its own, and all of
    them are shown. docs/attacks says what each attack does, and what stops it.
    """


@command(
    main,
    "privfed.cli.auditing:audit",
    "Test a privacy claim against what came out.",
    click.argument("subject", metavar="RUN|FILE", type=options.PATH),
    options.audit_options,
    click.option(
        "--out", type=options.PATH, callback=options.out_file(".json"), help="JSON file to write (.json)."
    ),
    options.json_option,
)
def audit() -> None:
    """Audit the claim and the noise of the run in folder RUN, or releases in FILE.

    For a run, the noise in each total is compared with what was declared. Its questions are also answered
    with and without a worst-case record or client, which bounds the true epsilon from below. FILE is an .npz
    with the releases of a mechanism with and without one unit: "inside" and "outside" of shape (trials,) or
    (trials, n_values). Or it has the canaries of one run: "scores" and "included". With --my-rows a client of
    the run reads how far its own rows moved each noised total, beside what was charged: for its own eyes.
    Exit code 1 says that the claim is violated.
    """


@command(
    main,
    "privfed.cli.studies:tradeoff",
    "Run a study of utility, privacy, leakage and cost.",
    click.argument("study"),
    click.option("--out", type=options.PATH, help="Folder of the study.  [default: the study's name]"),
    click.option("--jobs", type=click.IntRange(1), help="Number of processes.  [default: that of cores]"),
    click.option("--scheduler", metavar="ADDRESS", help="Dask scheduler whose workers run the cells."),
    click.option("--seeds", type=click.IntRange(1), help="Seeds 0, 1, ... in place of the study's."),
    click.option("--retry", is_flag=True, help="Run cells again that failed."),
    click.option("--check", is_flag=True, help="Check the study, list its mistakes, and run nothing."),
    options.quiet_option,
)
def tradeoff() -> None:
    """Run STUDY, a TOML file or the name of a built-in study, and write its report.

    The whole study is checked before anything runs. Each cell is stored when it is done, so the same command
    continues where it was stopped, and runs only the new cells of a study that has grown.
    """


@command(
    main,
    "privfed.cli.studies:compare",
    "Show what changed between two studies.",
    click.argument("first", type=options.PATH),
    click.argument("second", type=options.PATH),
    options.json_option,
)
def compare() -> None:
    """Show what changed from the study in folder FIRST to the one in folder SECOND.

    Configurations are matched by their names. Changes are measured in units of both standard deviations
    combined.
    """


@command(
    main,
    "privfed.cli.studies:demo",
    "Cluster digits over plain and over masked sums.",
    options.out_option("demo"),
    options.seed_option,
    click.option("--study/--no-study", default=True, show_default=True, help="Run the study of digits too."),
)
def demo() -> None:
    """Cluster hand-written digits at 20 clients, some of which drop out: plain sums beside masked ones.

    Then run the built-in study "digits", and write its report.
    """
