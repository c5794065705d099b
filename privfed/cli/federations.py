"""The work of `privfed keys`, `privfed journal` and `privfed flower`: parties on machines of their own."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from privfed.cli.described import (
    agree_on,
    check_metrics,
    estimator,
    measured,
    needed_by_a_claim,
    surroundings_of,
)
from privfed.cli.described import load as load_rows
from privfed.cli.parties import APPROVED
from privfed.cli.reading import print_summary, summarized
from privfed.cli.run_folder import MODEL, Parameters, declared_of, pretty, source_of, values_of
from privfed.core.agreed.policy import GROUP_SIZE, MOST_FITS, Usage
from privfed.core.stored.files import replaced
from privfed.deploy.folders import (
    AUTHORITY,
    CERTIFICATES,
    COORDINATOR,
    NODE_KEY,
    NODE_PUBLIC,
    make_local,
    new_party,
    write_app,
    write_certificates,
    write_node,
    write_node_key,
)
from privfed.deploy.folders import admit as admit_keys
from privfed.deploy.node import Processes, run_node, stop
from privfed.deploy.simulating import SimulatedRun, simulated
from privfed.engines.flower import FlowerEngine
from privfed.engines.flower.node import report
from privfed.engines.flower.settings import SETTINGS, FederationFile
from privfed.errors import ArgumentError, PrivFedError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.moments import FederatedSummary
from privfed.party.identity import (
    PARTIES,
    SIGNED_KEY,
    OwnIdentity,
    Parties,
    read_identity,
    read_parties,
    read_signed_key,
    write_identity,
    write_new,
)
from privfed.party.journal import FitLine, Journal
from privfed.privacy.claim import one_line
from privfed.privacy.ledger import spent_line

_COMPARE = "Read these digits to each other by phone; they must be the same for all."

APPROVALS = ("algorithms", "group_size", "max_epsilon", "max_fits")
"""What `join` asks an owner for; node.toml takes every parameter of a policy."""


def new_identity(name: str, out: Path) -> None:
    """Do the work of `privfed keys new`."""
    own = OwnIdentity.generate(name)
    if out.exists() and any(out.iterdir()):
        raise ArgumentError(f"{out} is not empty; name a new folder, one for each identity.")
    Journal.create(out, own)
    # Last: a folder with an identity has its journal.
    write_identity(out, own)
    click.echo(f"made the identity of {name} in {out}; send {out / SIGNED_KEY} to the others.")
    click.echo(own.signed_key.fingerprint)
    click.echo(_COMPARE)


def registry(signed_keys: tuple[Path, ...], server: Path, out: Path) -> None:
    """Do the work of `privfed keys registry`."""
    parties = Parties.of(read_signed_key(server), map(read_signed_key, signed_keys))
    write_new(out, PARTIES.to_bytes(parties))
    _print_parties(parties)


def show_keys(path: Path) -> None:
    """Do the work of `privfed keys show`."""
    if path.is_dir():
        signed_key = read_identity(path).signed_key
    else:
        try:
            signed_key = read_signed_key(path)
        except ArgumentError as error:
            try:
                _print_parties(read_parties(path))
            except ArgumentError:
                raise error from None
            return
    click.echo(f"{signed_key.name}\n{signed_key.fingerprint}\n{_COMPARE}")


def _print_parties(parties: Parties) -> None:
    click.echo(f"server: {parties.server.name}\n    {parties.server.fingerprint}")
    for one in parties.clients:
        click.echo(f"client: {one.name}\n    {one.fingerprint}")
    click.echo(f"all of them:\n    {parties.fingerprint}\n{_COMPARE}")


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what `privfed journal export` writes: no key, no state, no total, no row."""

    name: str
    counter: int
    head: str
    data_sets: dict[str, Usage]
    fits: tuple[FitLine, ...]
    entries: tuple[dict[str, object], ...] = ()


def _shown(folder: Path, *, whole: bool) -> Shown:
    own = read_identity(folder)
    kept = Journal(folder, own)
    fits, head = kept.fits, kept.head
    return Shown(
        name=own.name,
        counter=head.counter,
        head=head.head.hex(),
        data_sets={name: kept.usage(name) for name in sorted({one.data_set for one in fits})},
        fits=fits,
        entries=kept.entries() if whole else (),
    )


def show_journal(folder: Path) -> None:
    """Do the work of `privfed journal show`."""
    shown = _shown(folder, whole=False)
    click.echo(f"{shown.name}: {shown.counter} entries, {len(shown.fits)} fits")
    for name, usage in shown.data_sets.items():
        click.echo(
            f"data set {name}: {usage.fits} fits, {usage.sums} sums answered, {usage.losses} losses; "
            f"{spent_line(usage)}, {usage.unprotected} fits without a guarantee"
        )
    for fit in shown.fits:
        claim = (
            "no guarantee" if fit.epsilon is None else f"epsilon {fit.epsilon:g}, {fit.spent:.1%} of it paid"
        )
        click.echo(
            f"fit {fit.number} ({'ended' if fit.closed else 'open'}, {fit.began}): {fit.data_set}, "
            f"{fit.protocol}, {fit.answered} sums, {fit.losses} losses, {claim}"
        )


def end(folder: Path, fit: int) -> None:
    """Do the work of `privfed journal end`."""
    Journal(folder, read_identity(folder)).end(fit)
    click.echo(f"ended fit {fit}")


def export(folder: Path, out: Path) -> None:
    """Do the work of `privfed journal export`."""
    write_new(out, pretty(_shown(folder, whole=True)))
    click.echo(f"wrote {out}")


def new_federation(
    folder: Path, columns: tuple[str, ...], hosts: tuple[str, ...], port: int, name: str
) -> None:
    """Do the work of `privfed flower new`."""
    write_certificates(folder / CERTIFICATES, [*hosts, "127.0.0.1"])
    write_app(
        folder, columns, superlink=f"127.0.0.1:{port}", root_certificates=Path(CERTIFICATES) / AUTHORITY
    )
    own = new_party(folder / COORDINATOR, name)
    click.echo(f"made {folder}; nodes get {folder / CERTIFICATES / AUTHORITY}, and the list of parties:")
    click.echo(
        f"privfed keys registry KEY... --server {folder / COORDINATOR / SIGNED_KEY} "
        f"--out {folder / 'parties'}"
    )
    click.echo(own.signed_key.fingerprint)


def local(data: Path, out: Path, port: int, **given: Any) -> None:
    """Do the work of `privfed flower local`."""
    tables = load_rows(source_of(data, given), private=False)
    rows = {one.name: one.features for one in tables.tables}
    labels = {one.name: one.labels for one in tables.tables if one.labels is not None} or None
    n_classes = max(2, len(tables.label_names or ()))
    make_local(out, rows, tables.columns, labels, n_classes, superlink=f"127.0.0.1:{port}")
    click.echo(f"made {out} with {len(rows)} nodes; try: privfed flower simulate {out} -k 3")
    if labels:
        classes = ",".join(tables.label_names or ())
        click.echo(f"or: privfed flower simulate {out} --algorithm fedavg --classes {shlex.quote(classes)}")


def join(folder: Path, data: str, data_set: str, columns: tuple[str, ...], **given: Any) -> None:
    """Do the work of `privfed flower join`."""
    approved = _approved_of({name: given.pop(name) for name in APPROVALS})
    write_node(folder, data, data_set, columns or None, **given, approved=approved)
    try:
        check(folder)
    except PrivFedError:
        (folder / SETTINGS).unlink()
        raise
    write_node_key(folder)
    click.echo(
        f"send {folder / SIGNED_KEY} and {folder / NODE_PUBLIC} to the coordinator; put its list of parties"
    )
    click.echo(
        f"into {folder / 'parties'} once you have compared its digits. {folder / NODE_KEY} stays here."
    )


def _approved_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return what a node's owner approves, asked for at a terminal where no option says it."""
    approved = {name: value for name, value in given.items() if value}
    if not sys.stdin.isatty():
        return approved
    if "algorithms" not in approved:
        listed = click.prompt(f"Which algorithms may run on these rows ({APPROVED}; A,B,...)", type=str)
        approved["algorithms"] = tuple(one.strip() for one in listed.split(","))
    if not {"group_size", "max_epsilon"} & set(approved):
        asked = "Answer from means of groups of how many rows (1: from single rows)"
        approved["group_size"] = click.prompt(asked, type=click.IntRange(1), default=GROUP_SIZE)
    if "max_fits" not in approved:
        asked = "How many fits may there be on these rows"
        approved["max_fits"] = click.prompt(asked, type=click.IntRange(1), default=MOST_FITS)
    return approved


def check(folder: Path) -> None:
    """Do the work of `privfed flower check`."""
    for line in report(folder):
        click.echo(line)


def node(folder: Path, superlink: str, root_certificates: Path | None, plain: bool) -> None:
    """Do the work of `privfed flower node`."""
    run_node(folder, superlink, root_certificates, launcher=not plain)


def superlink(folder: Path, listen: str, keys: tuple[Path, ...]) -> None:
    """Do the work of `privfed flower superlink`."""
    signal.signal(signal.SIGTERM, stop)
    with Processes(FederationFile.read(folder)) as running:
        running.start_superlink(keys, listen)
        click.echo(f"the SuperLink listens at {listen}, for {len(keys)} nodes; stop it with Ctrl-C.")
        if running.superlink is not None:
            running.superlink.wait()


def admit(folder: Path, keys: tuple[Path, ...]) -> None:
    """Do the work of `privfed flower admit`."""
    admit_keys(FederationFile.read(folder).folder, keys)


def run(folder: Path, clients: tuple[str, ...], **given: Any) -> None:
    """Do the work of `privfed flower run`."""
    with FlowerEngine(folder, clients=clients or None) as engine:
        _fit(engine, **given)


def simulate(folder: Path, clients: tuple[str, ...], **given: Any) -> None:
    """Do the work of `privfed flower simulate`."""
    simulation = SimulatedRun(simulated(FederationFile.read(folder)))
    with FlowerEngine(folder, network=simulation, clients=clients or None) as engine:
        _fit(engine, **given)


def summary(
    folder: Path,
    bins: int | list[float] | None,
    as_json: bool,
    out: Path | None,
    clients: tuple[str, ...],
    **given: Any,
) -> None:
    """Do the work of `privfed flower summary`."""
    with FlowerEngine(folder, clients=clients or None) as engine:
        values = surroundings_of(declared_of(given).parameters() | values_of(given))
        found = FederatedSummary(bins, engine=engine, run_dir=out, **values).fit()
        if as_json:
            click.echo(pretty(summarized(found, engine.file.columns)), nl=False)
        else:
            print_summary(found, engine.file.columns)
            _print_faults(engine)
        engine.end_fits()


def _fit(
    engine: FlowerEngine,
    *,
    algorithm: str,
    n_clusters: int,
    out: Path,
    resume: bool,
    classes: tuple[str, ...],
    **given: Any,
) -> None:
    parameters = Parameters(
        algorithm=algorithm,
        n_clusters=n_clusters,
        declared=declared_of(given),
        metrics=given.pop("metrics"),
        values=values_of(given),
    )
    parameters.declared.check_claim(*needed_by_a_claim(parameters, classes))
    model = estimator(parameters, out, classes)
    model.set_params(engine=engine)
    if isinstance(model, FederatedClusterer):
        check_metrics(parameters.metrics, n_clusters, private=parameters.declared.epsilon is not None)
        agree_on(model, parameters.metrics, None)
    else:
        _check_training(parameters, classes)
    fitted: Any = model.resume() if resume else model.fit()
    # The model is kept before anything else is asked, and whatever comes of that the nodes close the fit.
    with replaced(out / MODEL) as path:
        model.save(path)
    try:
        if isinstance(model, FederatedClusterer):
            lines = ["  ".join(f"{value:.6g}" for value in row) for row in model.cluster_centers_]
            for name, value in measured(model, parameters.metrics).items():
                lines.append(f"{name} {'is not defined' if value is None else f'{value:.6g}'}")
        else:
            n_models, n_parameters = fitted.models_.shape
            lines = [f"{n_models} models of {n_parameters} parameters, after {fitted.n_iter_} rounds"]
        _print_fit(fitted, engine, out, lines)
    finally:
        engine.end_fits()


def _check_training(parameters: Parameters, classes: tuple[str, ...]) -> None:
    """Check that models have classes, and no metrics.

    Raises:
        ArgumentError: it is otherwise.
    """
    if not classes:
        raise ArgumentError(
            f"{parameters.algorithm} trains models: name the classes with --classes, in the order of the "
            "whole numbers from 0 that the nodes' labels are."
        )
    if parameters.metrics:
        raise ArgumentError(f"--metrics are of centroids, and {parameters.algorithm} has none; leave it out.")


def _print_fit(fitted: Any, engine: FlowerEngine, out: Path, lines: list[str]) -> None:
    for line in lines:
        click.echo(line)
    traffic = fitted.federation_.traffic
    up = sum(traffic.up.values()) / max(1, len(traffic.up)) / 1000
    click.echo(f"{len(traffic.up)} clients, {traffic.exchanges} exchanges, {up:.1f} kB up a client")
    click.echo(one_line(fitted.privacy_claim_))
    _print_faults(engine)
    click.echo(f"the model is in {out / MODEL}, the transcript beside it")


def _print_faults(engine: FlowerEngine) -> None:
    for fault in engine.faults:
        click.echo(f"{fault.client}, stage {fault.stage}, sum {fault.number}: {fault.what}")
