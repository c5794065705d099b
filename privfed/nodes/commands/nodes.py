"""The work of `privfed flower join`, `add`, `node`, `superlink`, `check` and `local`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from privfed.cli.declared import Declared
from privfed.cli.described import declared_with
from privfed.cli.described import load as load_rows
from privfed.cli.run_folder import source_of
from privfed.core.agreed.configuration import SLOTTED
from privfed.core.agreed.policy import (
    GROUP_SIZE,
    HIDING,
    MOST_DELTA,
    MOST_FITS,
    MOST_LOSSES,
    ClientPolicy,
)
from privfed.core.asking.question import own_names
from privfed.core.names import ALGORITHMS
from privfed.core.stored.files import rewrite
from privfed.errors import ArgumentError, PrivFedError
from privfed.nodes.commands.federations import costs
from privfed.nodes.commands.main import APPROVED
from privfed.nodes.commands.records import read_record
from privfed.nodes.deploy.adding import add, approve, news
from privfed.nodes.deploy.certificates import CERTIFICATES, ends
from privfed.nodes.deploy.folders import KIT, new_party, read_kit, write_card, write_node
from privfed.nodes.deploy.local import make_local
from privfed.nodes.deploy.node import alone
from privfed.nodes.deploy.processes import check_flwr, node_command, stop_by_signals
from privfed.nodes.deploy.testimonies import TESTIMONIES
from privfed.nodes.deploy.testimonies import carried as of_testimonies
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.network import RunLostError, environment
from privfed.nodes.flower.node import check_node, report
from privfed.nodes.flower.settings import HOME, SETTINGS, FederationFile
from privfed.nodes.identity import IDENTITY, read_checked, read_identity
from privfed.nodes.journal import FitLine, raw
from privfed.nodes.party import Party
from privfed.privacy.filters import suggested_order
from privfed.tables.schema import schema_text

APPROVALS = ("algorithms", "group_size", "max_epsilon", "order", "max_fits", "max_losses")
"""What `join` asks an owner for; node.toml takes every parameter of a policy."""

_LEAST = 3


def join(
    folder: Path, data: Path, name: str | None, data_set: str | None, columns: tuple[str, ...], **given: Any
) -> None:
    """Do the work of `privfed flower join`."""
    approved = _approved_of({one: given.pop(one) for one in APPROVALS})
    name = name or folder.absolute().name
    if (folder / IDENTITY).exists():
        if (own := read_identity(folder).name) != name:
            raise ArgumentError(f"{folder} is the folder of {own!r}; leave --name out, or name a new folder.")
    else:
        new_party(folder, name)
    _carry(folder, given.pop("carry"), data_set or data.name, approved)
    if (schema := given.pop("schema")) is not None:
        given["schema"] = schema_text(schema)
    table = str(data.absolute())
    write_node(folder, table, data_set or data.name, columns or None, **given, approved=approved)
    try:
        check(folder)
    except PrivFedError:
        (folder / SETTINGS).unlink()
        raise
    click.echo(f"the digits of {name}: {read_identity(folder).signed_key.fingerprint}")
    click.echo(f"your move: send it to the coordinator. Keep {folder}; never go back to a copy of it.")
    click.echo("the coordinator's move: add it to the list, and send you fed.kit.")


def _carry(folder: Path, carried: tuple[Path, ...], data_set: str, approved: dict[str, Any]) -> None:
    """Take over what an earlier identity gave of the same rows.

    Raises:
        ArgumentError: the record is of other data sets, testimonies are too few, or this party has fits.
    """
    if not carried:
        return
    journal, about = Party(folder).journal, dict[str, Any]()
    if len(carried) > 1:
        found = [read_checked(TESTIMONIES, path, "privfed journal testify writes one") for path in carried]
        data_sets, fits = of_testimonies(found, data_set, ClientPolicy.closed(**approved))
        about |= {"key": found[0].lost.hex(), "witnesses": sorted({one.writer.hex() for one in found})}
        for path, one in zip(carried, found, strict=True):
            click.echo(f"{path}: {len(one.fits)} fits")
        said = f"as others say; the digits of their list, to be compared:\n    {found[0].parties.fingerprint}"
    else:
        record = read_record(carried[0])
        data_sets, fits = record["data_sets"], raw(msgspec.convert(record["fits"], list[FitLine]))
        about |= {"key": record["key"], "counter": record["counter"], "at": record["entries"][-1]["at"]}
        said = f"of {record['name']}, until {about['at']}; later ones are not counted."
    if journal.fits or (data_sets and data_set not in data_sets):
        raise ArgumentError(
            f"--carry is for a new folder, and for rows of {', '.join(data_sets)}: "
            f"name them with --data-set, got {data_set!r}."
        )
    journal.carry(data_sets, fits, **about)
    click.echo(f"carried {len(fits)} fits {said}")


_ASKED: tuple[tuple[str, set[str], str, dict[str, Any]], ...] = (
    (
        "algorithms",
        {"algorithms"},
        f"Which algorithms may run on these rows ({APPROVED}; A,B,...)",
        {"value_proc": lambda text: tuple(one.strip() for one in text.split(","))},
    ),
    (
        "group_size",
        {"group_size", "max_epsilon"},
        "Answer from means of groups of how many rows (1: from single rows)",
        {"type": click.IntRange(1), "default": GROUP_SIZE},
    ),
    (
        "max_fits",
        {"max_fits"},
        "How many fits may there be on these rows",
        {"type": click.IntRange(1), "default": MOST_FITS},
    ),
    (
        "max_losses",
        {"max_losses", "max_epsilon"},
        "How often, over the life of these rows, may the group of clients change, or another be away in "
        "a fit (each time may tell one client's answers apart from the others')",
        {"type": click.IntRange(0), "default": MOST_LOSSES},
    ),
)
"""What an owner approves -> options that say it, the question where none does, and how it is asked."""


def _approved_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return what a node's owner approves, asked for at a terminal where no option says it."""
    approved = {name: value for name, value in given.items() if value}
    for name, options, question, how in _ASKED if sys.stdin.isatty() else ():
        if not options & set(approved):
            approved[name] = click.prompt(question, **how)
    return approved


def check(folder: Path) -> None:
    """Do the work of `privfed flower check`."""
    for line in report(folder):
        click.echo(line)
    place = folder.absolute().with_name(f"{folder.absolute().name}.pub")
    rewrite(place, write_card(folder).read_bytes())
    click.echo(f"the card is {place}")


def add_nodes(
    folder: Path, cards: tuple[Path, ...], remove: tuple[str, ...], hosts: tuple[str, ...], **given: Any
) -> None:
    """Do the work of `privfed flower add`."""
    added = add(folder, cards, remove=remove, hosts=hosts, **given)
    for line in added.changes or ("nothing changed",):
        click.echo(line)
    names = [one.name for one in added.kit.parties.clients]
    click.echo(f"{len(names)} clients: {', '.join(names)}, of columns {', '.join(added.kit.columns)}")
    if len(names) < _LEAST:
        click.echo(f"a sum over masks needs {_LEAST} clients; add the others before a fit.")
    click.echo(f"nodes reach the SuperLink at {added.kit.address} (another name: --host)")
    click.echo(f"its certificate holds until {ends(folder / CERTIFICATES):%Y-%m-%d} (a new one: --renew)")
    if added.changes:
        for line in _costs(folder):
            click.echo(line)
    click.echo(f"the digits of the list, kit {added.kit.number}:\n    {added.kit.parties.fingerprint}")
    click.echo(f"your move: send {added.path} to all of them, and read the digits to them by phone. Then:")
    click.echo(f"    privfed flower superlink {shlex.quote(str(folder))}")
    click.echo(f"their move: privfed flower node FOLDER --kit {added.path.name}")


def _costs(folder: Path) -> list[str]:
    """Say what the list costs its clients, of those that are there."""
    try:
        with FlowerEngine(folder) as engine:
            return costs(engine)
    except RunLostError:
        return ["the first fit with a new list of clients takes one of the changes that each client allows."]


def node(folder: Path, kit: Path | None, yes: bool) -> None:
    """Do the work of `privfed flower node`."""
    if kit is not None:
        _ask_owner(folder, kit, yes)
    elif not (folder / KIT).exists():
        raise ArgumentError(
            f"no kit was approved in {folder}. The coordinator's move: send fed.kit. Yours then: "
            f"privfed flower node {folder} --kit fed.kit."
        )
    with alone(folder) as only:
        if not only and kit is None:
            raise ArgumentError(f"a node of {folder} runs already; your move: none, or stop that one first.")
    if not only:
        return click.echo("the node runs already, and goes on with this kit.")
    click.echo("reading the rows, and grouping them if they answer from groups: minutes where there are many")
    check_node(folder, read_kit(folder / KIT).columns)
    # Another program: reading the table left threads in this one, and a node forks.
    sys.stdout.flush()
    os.execv(sys.executable, node_command(folder))


def _ask_owner(folder: Path, path: Path, yes: bool) -> None:
    """Show a kit's list and its digits, and keep it if the owner says yes.

    Raises:
        ArgumentError: the owner does not, or nobody is there to be asked.
    """
    kit = read_kit(path)
    lines = news(folder, kit)
    if not lines:
        click.echo("you approved this kit before.")
        return
    for line in lines:
        click.echo(line)
    click.echo(f"the digits of the list:\n    {kit.parties.fingerprint}")
    asked = "Did the coordinator and the others read the same digits to you?"
    if not yes:
        if not sys.stdin.isatty():
            raise ArgumentError("nobody is here to be asked; your move: compare the digits, then add --yes.")
        if not click.confirm(asked):
            raise ArgumentError(
                "the list was not approved; nothing was changed. The coordinator's move: send the right kit."
            )
    approve(folder, kit)


def superlink(folder: Path, listen: str) -> None:
    """Do the work of `privfed flower superlink`."""
    file = FederationFile.read(folder)
    check_flwr()
    with alone(file.folder) as only:
        if not only:
            raise ArgumentError(f"a SuperLink of {folder} runs already; your move: none, or stop it first.")
        # Before flwr is imported, which reads it.
        os.environ.update(environment(file.folder / HOME))
        stop_by_signals()
        from privfed.nodes.deploy.superlink import serve

        serve(file, listen)


def local(
    data: Path, out: Path, port: int, max_epsilon: float | None, modules: tuple[str, ...], **given: Any
) -> None:
    """Do the work of `privfed flower local`."""
    source = source_of(data, given)
    declared_with(source, Declared())
    tables = load_rows(source, private=False)
    rows = {one.name: one.features for one in tables.tables}
    labels = {one.name: one.labels for one in tables.tables if one.labels is not None} or None
    n_classes = max(2, len(tables.label_names or ()))
    ids = {one.name: one.ids for one in tables.tables if one.ids is not None} or None
    # A metric of one's own is approved by its question.
    runs = (*ALGORITHMS.names(), "ClusterColumns", "ClusterPairs", "ClusterTimes", *own_names())
    approved: dict[str, Any] = {"algorithms": runs, "max_epsilon": max_epsilon}
    if labels:
        # CFL and DCFL show sketches of updates, in slots.
        approved |= {"models": True, "protocols": sorted({*HIDING, *(f"{SLOTTED}{one}" for one in HIDING)})}
        # DP-SGD composes by a Renyi filter.
        approved["order"] = max_epsilon and suggested_order(max_epsilon, MOST_DELTA)
    make_local(
        out,
        rows,
        tables.columns,
        labels,
        n_classes,
        approved={name: value for name, value in approved.items() if value is not None},
        ids=ids,
        modules=modules,
        superlink=f"127.0.0.1:{port}",
    )
    if labels and max_epsilon:
        click.echo(
            f"models train by DP-SGD under a Renyi filter of order {approved['order']}, fixed now: a fit "
            f"takes more than its own epsilon, so that one of about {0.85 * max_epsilon:.2g} fits, and none "
            f"of {max_epsilon:g}. privfed flower run says what a fit takes; join --order fixes another order."
        )
    click.echo(f"made {out} with {len(rows)} nodes; try: privfed flower simulate {out} -k 3")
    if labels:
        classes = ",".join(tables.label_names or ())
        click.echo(f"or: privfed flower simulate {out} --algorithm fedavg --classes {shlex.quote(classes)}")
