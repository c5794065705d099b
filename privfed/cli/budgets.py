"""The commands `privfed budget`: a budget is a file from which all releases of the same rows are paid."""

from __future__ import annotations

import click

from privfed.cli import options
from privfed.cli.program import command


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
        "--out",
        type=options.PATH,
        callback=options.out_file(".png", ".svg", ".pdf"),
        help="Picture to draw of what was spent when, as PNG, SVG or PDF.",
    ),
    options.json_option,
)
def show() -> None:
    """Print the guarantee of the budget in FILE, its payments with date, purpose and claim, and what is left.

    The guarantee is also said as mu of Gaussian differential privacy, at other deltas, and as the rate at
    which a test for one unit misses it.
    """
