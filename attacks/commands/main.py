"""The commands `privfed attack` and `privfed audit`, and their options."""

from __future__ import annotations

from contextlib import suppress

import click

from privfed.attacks.base.names import ACTIVE, ATTACKS
from privfed.cli import options
from privfed.cli.program import Naming, command, stacked
from privfed.cli.settings import Setting, settings_of
from privfed.errors import ArgumentError

truth_options = stacked(
    click.option(
        "--truth",
        type=options.PATH,
        help="The clients' rows of the run, to score against.  [default: those of the run]",
    ),
    click.option("--group", metavar="COLUMN", help="Column of the truth that names the client of a row."),
    click.option(
        "--columns",
        metavar="A,B,...",
        callback=options.names,
        help="Feature columns of the truth.  [default: the run's; all but group if its folder names none]",
    ),
    click.option(
        "--label",
        metavar="COLUMN",
        help="Column of classes, of a run of models whose folder names none: the nodes' whole numbers.",
    ),
    options.missing_option,
    options.own_algorithm_option,
    options.own_model_option,
)

audit_options = stacked(
    click.option("--epsilon", type=float, help="Claimed epsilon, for a file."),
    click.option("--delta", type=float, help="Claimed delta, for a file."),
    click.option(
        "--noise",
        type=click.Choice(["gaussian", "any"]),
        default="gaussian",
        show_default=True,
        help="gaussian tests the whole trade-off curve of Gaussian noise, any (epsilon, delta) only.",
    ),
    click.option("--confidence", type=float, help="Confidence of all bounds.  [default: 0.95; a run: 0.999]"),
    truth_options,
    click.option(
        "--trials",
        type=click.IntRange(min=1000),
        default=20_000,
        show_default=True,
        help="For a run: number of draws with its worst unit, and without it.",
    ),
    click.option(
        "--my-rows",
        type=options.PATH,
        help="A client's own rows, in place of --truth: what each moved is printed, and nothing is written.",
    ),
    click.option("--client", metavar="NAME", help="For --my-rows: yours, if the table has several clients."),
    click.option(
        "--id", metavar="COLUMN", help="For --my-rows: column that names the person.  [default: the run's]"
    ),
    click.option(
        "--journal",
        metavar="PARTY",
        type=options.PATH,
        help="For --my-rows: your party's folder; the run must have all that its journal answered.",
    ),
)


class _Attacks(Naming):
    """Names attacks, whose parameters are options too; its help lists those that are registered then."""

    def settings(self, named: str) -> list[Setting]:
        """Return the options of attacks, by their names with commas between; of unknown ones, none."""
        found = dict[str, Setting]()
        for name in filter(None, map(str.strip, named.split(","))):
            from privfed.attacks.base.interface import attack_class

            with suppress(ArgumentError):  # The work says why.
                found |= {str(one.name): one for one in settings_of(attack_class(name))}
        return list(found.values())

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option and its help, with the names of attacks."""
        record, names = super().get_help_record(ctx), [name for name in ATTACKS if name not in ACTIVE]
        return None if record is None else (record[0], f"{record[1]} There are {', '.join(names)}.")


attacks_option = click.option(
    "--attack",
    "wanted",
    cls=_Attacks,
    metavar="A,B,...",
    callback=options.names,
    help="Which attacks, or MODULE:CLASS of your own; all by default.",
)


@command(
    None,
    "privfed.attacks.commands.attacking:attack",
    "Attack a run: what could someone learn from it?",
    click.argument("run_folders", metavar="RUN...", nargs=-1, required=True, type=options.PATH),
    attacks_option,
    truth_options,
    click.option(
        "--public",
        "sample",
        type=options.PATH,
        help="Table of public rows of the same kind, which the attacker knows.",
    ),
    click.option(
        "--candidates",
        type=options.PATH,
        help="Table of rows of which some took part, as the attacker lists them: members, possible rows, or "
        "rows of which one value is unknown.  [default: the clients' rows, and half of the public ones]",
    ),
    click.option(
        "--listed",
        type=click.FloatRange(0, 1, min_open=True),
        help="Share of the members that the candidates hold, as the attacker knows it.  [default: unknown, "
        "with --candidates]",
    ),
    click.option(
        "--known",
        type=options.PATH,
        help="Table of clients' rows that the attacker knows; the others are attacked.",
    ),
    click.option(
        "--known-by",
        metavar="COLUMN",
        help="Column of --known that names the group of a row, where clients answer from groups of rows.",
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
        "--colluding",
        metavar="A,B,...",
        callback=options.names,
        help="Clients that help the attacking party.",
    ),
    click.option("--client", metavar="NAME", help="Client to attack, if the party saw single clients."),
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
    """Attack the runs in folders RUN... with what one party saw, and compare the claims with the true rows.

    Attacks read only what the party saw. The clients' rows are used to score them. Name several runs of the
    same rows to attack them together, because their sums add up.

    Reports go into attacks.json, with a picture of each. An attack that has nothing to work on is left out,
    with the reason. What was shown and no attack read is listed. The same command continues where it was
    stopped.

    `privfed attack RUN --attack NAME --help` shows the options of an attack. docs/attacks says what each
    attack does, and what stops it.
    """


@command(
    None,
    "privfed.attacks.commands.auditing:audit",
    "Test the privacy claim of a run.",
    click.argument("subject", metavar="RUN|FILE", type=options.PATH),
    audit_options,
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
