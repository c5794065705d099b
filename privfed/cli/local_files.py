"""The commands of files at hand: `privfed schema` and `privfed check` (columns of tables), `privfed budget`.

A budget is a file from which all releases of the same rows are paid.
"""

from __future__ import annotations

import click

from privfed.cli import options
from privfed.cli.program import command, existing


@click.group(short_help="Draft and merge schemas of tables.")
def schema() -> None:
    """Draft what the columns of a table mean, and merge what parties say (docs/tables.md)."""


out_file_option = click.option("--out", type=options.PATH, help="File to write.  [default: standard output]")

learnt_scale_option = click.option(
    "--scale",
    type=click.Choice(["standard", "robust"]),
    default="standard",
    help="By means and deviations, or by quartiles.  [default: standard]",
)


@command(
    schema,
    "privfed.cli.tabular:draft",
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
)
def draft() -> None:
    """Draft a schema of DATA: kinds, categories and codes; nothing leaves this machine.

    No range is drafted, as lowest and highest values are those of single rows: declare what is plausible.
    """


@command(
    schema,
    "privfed.cli.tabular:merge_schemas",
    "Make one schema of several.",
    click.argument("files", type=options.PATH, nargs=-1, required=True, metavar="FILE FILE..."),
    out_file_option,
)
def merge() -> None:
    """Make one schema of all FILEs; where two contradict each other, say where."""


@command(
    schema,
    "privfed.cli.learning:fill",
    "Learn what stands for missing values.",
    options.clients_options,
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
    "privfed.cli.learning:scale",
    "Learn the scale of each column.",
    options.clients_options,
    options.config_option,
    options.schema_option,
    click.option(
        "--out", type=options.PATH, required=True, help="File to write: the schema with what was learnt."
    ),
    learnt_scale_option,
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
    None,
    "privfed.cli.tabular:check",
    "Say what a schema makes of a table.",
    click.argument("data", type=options.PATH, callback=existing),
    click.option("--schema", type=options.PATH, required=True, help="File that says what the columns mean."),
    options.json_option,
)
def check() -> None:
    """Print per column what would be clipped, left out or filled in DATA, a table or a folder of tables.

    Nothing leaves this machine. Exit code 1 says that DATA cannot be used as it is (docs/tables.md).
    """


@click.group(short_help="Make, show and plan budgets of differential privacy.")
def budget() -> None:
    """Make a budget for all releases of the same rows, show what was spent of it, and plan what comes.

    Commands draw from it with --budget FILE --share SHARE (docs/privacy/accounting.md, section 7).
    """


file_argument = click.argument("file", type=options.PATH)


@command(
    budget,
    "privfed.cli.paying:new",
    "Make a budget.",
    file_argument,
    click.option("--epsilon", type=float, required=True, help="Of everything together."),
    click.option("--delta", type=float, required=True, help="Far below one over the number of units."),
    click.option(
        "--unit",
        type=click.Choice(["record", "user", "client"]),
        required=True,
        help="The unit that is protected.",
    ),
    click.option(
        "--neighbours",
        type=click.Choice(["add-remove", "replace-one"]),
        required=True,
        help="Which inputs count as neighbouring.",
    ),
    click.option(
        "--order",
        type=int,
        help="Order of a Renyi filter, which Skellam noise and subsampled DP-SGD need; Gaussian fits get "
        "less then.  [default: Gaussian noise alone]",
    ),
)
def new() -> None:
    """Make FILE, a budget that never changes: what is paid from it is final.

    All releases of the same rows draw from one budget, also where rows were added or corrected meanwhile.
    """


@command(
    budget,
    "privfed.cli.paying:plan",
    "Say what shares of what is left would be worth.",
    file_argument,
    options.json_option,
)
def plan() -> None:
    """Print for shares of the budget in FILE how many of them are left, and the epsilon of one.

    The noise is that of one number of rows, asked for with the whole share. What a fit would have,
    `privfed fit --budget FILE --share SHARE --plan ROWS` says.
    """


@command(
    budget,
    "privfed.cli.paying:show",
    "Show what was spent, and what is left.",
    file_argument,
    click.option(
        "--picture",
        type=options.PATH,
        callback=options.out_file(".svg"),
        help="SVG file to draw what was spent.",
    ),
    options.json_option,
)
def show() -> None:
    """Print the guarantee of the budget in FILE, its payments with date, purpose and claim, and what is left.

    The guarantee is also said as mu of Gaussian differential privacy, at other deltas, and as the rate at
    which a test for one unit misses it.
    """
