"""The commands `privfed schema`, `check`, `profile`, `survival` and `stability`: tables, and what follows."""

from __future__ import annotations

import click

from privfed.cli import options
from privfed.cli.program import command, existing


@click.group(short_help="Draft and merge schemas of tables.")
def schema() -> None:
    """Draft what the columns of a table mean, and merge what parties say (docs/tables.md)."""


out_file_option = click.option("--out", type=options.PATH, help="File to write.  [default: standard output]")


@command(
    schema,
    "privfed.tables.commands.tabular:draft",
    "Draft the schema of a table.",
    click.argument("data", type=options.PATH, callback=existing),
    out_file_option,
    options.separator_option,
    click.option("--encoding", metavar="NAME", help="Of the file's text, such as latin-1.  [default: UTF-8]"),
    click.option("--decimal", type=click.Choice([".", ","]), help="Decimal sign of the file.  [default: .]"),
    click.option(
        "--thousands",
        type=click.Choice([".", ",", " ", "'"]),
        help="Sign between thousands.  [default: none]",
    ),
    click.option("--date-format", metavar="FORMAT", help="How days are written, such as %d/%m/%Y."),
    click.option(
        "--pivot", type=int, metavar="YEAR", help="First of the hundred years that two digits may mean."
    ),
)
def draft() -> None:
    """Draft a schema of DATA: kinds, categories and codes; nothing leaves this machine.

    Each guess that may lose or change data is one line, and is marked in the draft until you confirm it.

    No range is drafted, as lowest and highest values are those of single rows: declare what is plausible.
    """


@command(
    schema,
    "privfed.tables.commands.tabular:merge_schemas",
    "Make one schema of several.",
    click.argument("files", type=options.PATH, nargs=-1, required=True, metavar="FILE FILE..."),
    out_file_option,
    click.option("--common", is_flag=True, help="Leave out columns that not all FILEs have."),
)
def merge() -> None:
    """Make one schema of all FILEs, with pairs of columns, categories and units that seem to mean the same.

    Each pair is one line, and is marked in the schema. The exit code is 1 where something is left to settle.
    """


@command(
    schema,
    "privfed.tables.commands.tabular:declare",
    "Say that a schema's categories were known.",
    click.argument("file", type=options.PATH, callback=existing),
    out_file_option,
    click.option(
        "--columns",
        metavar="A,B,...",
        callback=options.names,
        required=True,
        help="Columns that you declare.",
    ),
)
def declare() -> None:
    """Write FILE anew, with your word that what it says of some columns was known without any rows.

    A draft has categories and codes as rows have them, and a claim of differential privacy refuses these: a
    category that one row has would tell of it. Complete them from a code list first.
    """


@command(
    schema,
    "privfed.tables.commands.learning:fill",
    "Learn what stands for missing values.",
    options.clients_options,
    options.id_option,
    options.config_option,
    options.schema_option,
    click.option(
        "--out", type=options.PATH, required=True, help="File to write: the schema with what was learnt."
    ),
    click.option(
        "--fill",
        metavar="A,B,...",
        callback=options.names,
        help="Columns to fill.  [default: those whose missing values are an error]",
    ),
    options.sum_options,
    options.declared_options,
)
def fill() -> None:
    """Write a schema in which missing values become the mean, or the most frequent category, of all clients.

    The clients of DATA are simulated. Sums tell the means and how many values there are, over all clients.
    Under --epsilon both are noised, and what it costs is spent besides any fit: draw both from one --budget.
    """


@command(
    schema,
    "privfed.tables.commands.learning:scale",
    "Learn the scale of each column.",
    options.clients_options,
    options.id_option,
    options.config_option,
    options.schema_option,
    click.option(
        "--out", type=options.PATH, required=True, help="File to write: the schema with what was learnt."
    ),
    options.learnt_scale_option,
    options.sum_options,
    options.declared_options,
)
def scale() -> None:
    """Write a schema with each number's shift and spread over all clients, and each category's weight.

    Clients, nodes too, scale their own rows by it wherever it is taken. The clients of DATA are simulated.
    Under --epsilon the numbers are noised, and what they cost is spent besides any fit: draw both from one
    --budget.
    """


@command(
    schema,
    "privfed.tables.commands.learning:categories",
    "Learn which of many categories rows have.",
    options.clients_options,
    options.id_option,
    options.config_option,
    options.schema_option,
    click.option("--out", type=options.PATH, required=True, help="File to write: the schema with these."),
    click.option("--column", metavar="NAME", required=True, help="Column of categories."),
    options.sum_options,
    options.declared_options,
)
def categories() -> None:
    """Write a schema with those of a column's categories that enough rows have, by one sum of counts.

    List in SCHEMA all codes that there may be, as of a code list: one that was found in the rows would tell
    of them. Rows of the others are read as missing values are. The clients of DATA are simulated. Under
    --epsilon counts are noised, and what they cost is spent besides any fit: draw both from one --budget.
    """


@command(
    None,
    "privfed.tables.commands.tabular:check",
    "Check a table against a schema.",
    click.argument("data", type=options.PATH, callback=existing),
    click.option(
        "--schema",
        type=options.PATH,
        help="File that says what the columns mean.  [default: none; rows without a number count]",
    ),
    click.option(
        "--allow",
        metavar="A,B,...",
        callback=options.names,
        help="Columns of which more than 5 % may be clipped, left out or filled.",
    ),
    click.option("--label", metavar="COLUMN", help="Without a schema: column of labels."),
    click.option("--id", metavar="COLUMN", help="Without a schema: column with whose each row is."),
    options.json_option,
)
def check() -> None:
    """Print per column what would be clipped, left out or filled in DATA, a table or a folder of tables.

    Nothing leaves this machine. Exit code 1 says that DATA cannot be used as it is, or that more than 5 % of
    a column would be clipped, left out or filled (docs/tables.md).
    """


@command(
    None,
    "privfed.tables.commands.profiling:profile",
    "Print what the clusters are, column by column.",
    options.run_argument,
    click.option(
        "--out",
        type=options.PATH,
        callback=options.out_file(
            ".html", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".xlsx", ".svg", ".png", ".pdf"
        ),
        help="Page to write, too: .html; or a table: .csv, .tsv (and .gz), .parquet, .xlsx; or the heat map: "
        ".svg, .pdf or .png.  [default: profile.png in RUN]",
    ),
    click.option("--names", metavar="A,B,...", callback=options.names, help="Names of the clusters."),
    click.option(
        "--ask",
        is_flag=True,
        help="Ask for it now, in two sums more, where the fit did not. They are runs of their own, in "
        "RUN/profile and RUN/profile_clients: name them to privfed attack, too.",
    ),
    click.option(
        "--beside",
        type=options.PATH,
        callback=existing,
        help="Schema of further columns of the same tables, with a range for each: what they are like in the "
        "clusters, in one sum more (RUN/profile_beside).",
    ),
    click.option(
        "--clients",
        metavar="A,B,...|@FILE",
        callback=options.listed,
        help="Names of all clients, where a claim needs them and the fit did not.",
    ),
    options.declared_options,
    click.option("--title", default="Clusters of rows over several sites", help="Title of the page."),
    options.picture_option,
    options.json_option,
)
def profile() -> None:
    """Print the size of each cluster of RUN, each column's mean and spread in it, and what sets it apart.

    A page (--out page.html) says it for readers: who is in it, the clusters, what was protected, and methods.

    RUN is the folder of `privfed fit --profile`, which has asked for the sums; otherwise --ask does. Of a run
    under differential privacy sizes and means are those of the released totals, with the intervals that their
    noise leaves open. With --epsilon, or --budget, what is asked now has a claim of its own, of any run.
    """


@command(
    None,
    "privfed.tables.commands.surviving:survival",
    "Compare how long rows of each cluster survive.",
    options.run_argument,
    options.clients_options,
    options.separator_option,
    options.missing_option,
    options.config_option,
    options.schema_option,
    options.survival_options,
    options.sum_options,
    options.declared_options,
    options.picture_option,
    options.json_option,
)
def survival() -> None:
    """Print Kaplan-Meier curves of the clusters of RUN with intervals, and the log-rank test, from one sum.

    The clients of DATA are simulated; RUN is a folder with centroids. A row counts as if its time were the
    end of its bin, and one beyond the last edge as seen so long without event. The result is survival.json of
    RUN, beside a picture. With --epsilon the counts are noised, and the intervals and the test know of it
    (docs/survival.md).
    """


@command(
    None,
    "privfed.tables.commands.surviving:stability",
    "Say whether the clusters are found again in parts of the clients.",
    options.run_argument,
    click.option(
        "--parts",
        type=click.Choice(["clients", "rows"]),
        default="clients",
        show_default=True,
        help="Refits take some of the clients, or some rows of each.",
    ),
    options.stability_options,
    options.json_option,
)
def stability() -> None:
    """Fit RUN again over parts of its clients, or of their rows, and print how well each cluster comes back.

    Its clients are simulated; each refit is a run with the parameters of RUN, whose totals say more together
    than one does. After noise or groups it is refused: read the intervals of the fit.
    """
