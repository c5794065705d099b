"""The command `privfed`: its subcommands and their options; each names the function that does its work."""

from __future__ import annotations

import click

from privfed.cli import options
from privfed.cli.budgets import budget
from privfed.cli.program import Program, Registered, command, existing
from privfed.version import __version__


@click.group("privfed", cls=Program, no_args_is_help=False, invoke_without_command=True)
@click.version_option(__version__, prog_name="privfed")
@click.pass_context
def main(context: click.Context) -> None:
    """Cluster the rows of several clients, of whom the server sees sums alone.

    All commands simulate the clients in this process, except `privfed flower`, which connects machines.
    To begin: `privfed example clients.csv` writes a table, and prints the next command.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


main.add_command(budget)


@command(
    main,
    "privfed.cli.example:example",
    "Write a table to try the commands on.",
    click.argument("file", type=options.PATH, callback=options.out_file(".csv")),
)
def example() -> None:
    """Write FILE, a CSV table of 800 made-up patients in four hospitals, and print the next command.

    Each row has the name of its hospital, age in years, systolic blood pressure in mmHg, and body-mass index
    in kg/m2. The same rows are written each time.
    """


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
        help="Ask nothing; print how much noise --algorithm dp would have on about this many rows.",
    ),
    options.printing_options,
)
def fit() -> None:
    """Cluster the rows of DATA, or train models of their labels. Clients are simulated in this process.

    DATA is a table (.csv, .csv.gz, .tsv, .parquet, .xlsx, .npz) with a column that names each row's client
    (--group), or a folder with one table for each client. The folder --out gets the centroids, the result
    as JSON, a picture, and the transcript from which `privfed resume` continues.
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
    """Finish the run in folder RUN. Totals that it recorded are not asked again.

    The centroids are those of a run that was never stopped. The results of a finished run are written again.
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
        help="New folder for a CSV file of each client, if DATA is a folder with one table for each.",
    ),
    click.option(
        "--schema",
        type=options.PATH,
        help="Schema of DATA, for a run of nodes, or if the schema of RUN does not name this file.",
    ),
    options.separator_option,
    click.option(
        "--keep",
        metavar="A,B,...",
        callback=options.names,
        help='Columns of DATA to write beside the cluster, unchanged; "all" for all.',
    ),
    click.option(
        "--cluster", type=click.IntRange(0), help="Cluster whose model is used, if RUN trained models."
    ),
    click.option(
        "--merged", is_flag=True, help="Print the cluster that privfed merge gave to the row's center."
    ),
    options.own_model_option,
)
def predict() -> None:
    """Print the cluster of each row of DATA, a table with the columns of RUN; other columns are ignored.

    If DATA is a folder with one table for each client, a file for each is written into --out-folder.

    RUN is the folder of `privfed fit`, `privfed select-k` or `privfed flower run`. If it trained models, the
    class that a cluster's model gives each row is printed. Under differential privacy the claim of RUN is
    printed on stderr. It covers centroids and models only: a row's cluster is computed from the row itself.
    """


@command(
    main,
    "privfed.cli.joining:merge",
    "Join the centers of a run to clusters of any shape.",
    options.run_argument,
    click.option(
        "-k", "--n-clusters", type=click.IntRange(1), help="Number of clusters.  [default: read off the tree]"
    ),
    click.option(
        "--linkage",
        type=click.Choice(["single", "average", "complete", "ward"]),
        default="single",
        show_default=True,
        help="Distance between clusters. single, of their nearest centers, finds any shape; the others find "
        "compact ones.",
    ),
    options.picture_option,
    options.json_option,
)
def merge() -> None:
    """Join the centers of RUN by a tree of their distances, and cut it: clusters may then have any shape.

    Fit many centers first (-k 40). Nobody is asked, and no budget is spent. The result is merged.json of RUN,
    with a picture of the tree and the map; `privfed predict RUN DATA --merged` names the cluster of each row.
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
    """Count the rows of DATA, and print mean, deviation and range of each column, from secure sums.

    DATA is a table with a column that names each row's client, or a folder with one table for each client.
    The clients are simulated. Lowest and highest are the declared ones, or edges of public bins around all
    rows: never the values of single rows.
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
        help="Most clusters.  [default: clients say how many each finds on its own]",
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
    "privfed.cli.measuring:measure",
    "Ask for private metrics of a run's clusters.",
    options.run_argument,
    options.source_options,
    options.config_option,
    options.schema_option,
    options.classes_option,
    options.metrics_option,
    options.sum_options,
    options.declared_options,
    options.json_option,
)
def measure() -> None:
    """Ask the clients of DATA for metrics of the centroids in folder RUN, under differential privacy.

    Each metric is printed with an interval that allows for its noise, and added to metrics.json of RUN.
    Scores against labels, such as accuracy, need --label and --classes; one question answers all of them.
    """
