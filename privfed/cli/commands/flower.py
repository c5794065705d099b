"""`privfed flower`: the same run over several machines, whose bytes Flower carries."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from privfed.cli.commands.summary import bins_option
from privfed.cli.display.summaries import print_summary, summarized
from privfed.cli.folder.run_folder import MODEL, Parameters, pretty
from privfed.cli.measuring import agree_on, check_measures, measured
from privfed.cli.options import (
    algorithm_option,
    declared_of,
    declared_options,
    json_option,
    listed,
    metrics_option,
    names,
    source_of,
    source_options,
    sum_options,
    word_options,
    words_of,
)
from privfed.cli.registered import with_own_sum
from privfed.cli.runs.fitting import estimator, load
from privfed.core.stored.files import replaced
from privfed.deep.estimators.base import FederatedModel
from privfed.deploy.certificates import (
    AUTHORITY,
    CERTIFICATES,
    NODE_KEY,
    NODE_PUBLIC,
    write_certificates,
    write_node_key,
)
from privfed.deploy.folders import COORDINATOR, make_local, new_party, write_app, write_node
from privfed.deploy.node import run_node, stop
from privfed.deploy.processes import Processes, register
from privfed.deploy.simulating import simulated
from privfed.engines.flower import FlowerEngine
from privfed.engines.flower.federation_file import FederationFile
from privfed.engines.flower.running import DrivenRun
from privfed.errors import ArgumentError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.summary import FederatedSummary
from privfed.party.identity import CARD
from privfed.privacy.claim import one_line

file_argument = click.Path(path_type=Path)
folder_argument = click.argument("folder", type=file_argument)


@click.group(short_help="Run over several machines, by Flower.")
def flower() -> None:
    """Run over several machines: each party keeps its rows and keys, and Flower carries the bytes.

    The coordinator makes a federation (new, superlink, run), each client a node (join, node). A trial on one
    machine needs local and simulate only. docs/flower.md goes through it.
    """


@flower.command(short_help="Make the coordinator's folder, with a thin Flower app.")
@folder_argument
@click.option("--columns", metavar="A,B,...", callback=names, required=True, help="Columns of all clients.")
@click.option(
    "--host", "hosts", multiple=True, required=True, help="Name or address by which nodes reach this machine."
)
@click.option("--port", type=int, default=9092, show_default=True, help="Port of the SuperLink.")
@click.option("--name", default=COORDINATOR, show_default=True, help="The coordinator's name.")
def new(folder: Path, columns: tuple[str, ...], hosts: tuple[str, ...], port: int, name: str) -> None:
    """Make FOLDER for the coordinator: its identity, certificates, a thin Flower app and federation.toml."""
    write_certificates(folder / CERTIFICATES, [*hosts, "127.0.0.1"])
    write_app(
        folder, columns, superlink=f"127.0.0.1:{port}", root_certificates=Path(CERTIFICATES) / AUTHORITY
    )
    own = new_party(folder / COORDINATOR, name)
    click.echo(f"made {folder}; nodes get {folder / CERTIFICATES / AUTHORITY}, and the list of parties:")
    click.echo(
        f"privfed keys registry CARD... --server {folder / COORDINATOR / CARD} --out {folder / 'parties'}"
    )
    click.echo(own.card.fingerprint)


@flower.command(short_help="Make a federation with all its parties on this machine, for trials.")
@source_options
@click.option("--out", type=file_argument, default=Path("federation"), show_default=True)
@click.option("--port", type=int, default=9092, show_default=True, help="Port of the SuperLink.")
def local(data: Path, out: Path, port: int, **given: Any) -> None:
    """Make a federation from DATA, as privfed fit reads it, with a folder for each client under nodes/."""
    tables = load(source_of(data, given), private=False)
    rows = {one.name: one.features for one in tables.tables}
    labels = {one.name: one.labels for one in tables.tables if one.labels is not None} or None
    make_local(out, rows, tables.columns, labels, superlink=f"127.0.0.1:{port}")
    click.echo(f"made {out} with {len(rows)} nodes; try: privfed flower simulate {out} -k 3")
    if labels:
        classes = ",".join(tables.label_names or ())
        click.echo(f"or: privfed flower simulate {out} --algorithm fedavg --classes {shlex.quote(classes)}")


@flower.command(short_help="Make a party's folder a node: its rows, its policy, its key for the SuperLink.")
@folder_argument
@click.option("--data", required=True, help="Table with this node's rows; relative paths start in FOLDER.")
@click.option("--data-set", required=True, help="Your own name of these rows, for the journal.")
@click.option("--columns", metavar="A,B,...", callback=names, help="Feature columns, in the agreed order.")
@click.option(
    "--labels",
    metavar="COLUMN",
    help="Column of classes, for models: whole numbers from 0 that mean the same at all clients.",
)
@click.option("--tells", is_flag=True, help="Tell the coordinator's process totals that only clients open.")
@click.option(
    "--module",
    "modules",
    multiple=True,
    help="Module here that registers an algorithm or a model of yours; repeatable.",
)
def join(folder: Path, data: str, data_set: str, columns: tuple[str, ...], **given: Any) -> None:
    """Write node.toml and a key for the SuperLink into FOLDER, the party's of privfed keys new."""
    write_node(folder, data, data_set, columns or None, **given)
    write_node_key(folder)
    click.echo(f"send {folder / CARD} and {folder / NODE_PUBLIC} to the coordinator; put its list of parties")
    click.echo(
        f"into {folder / 'parties'} once you have compared its digits. {folder / NODE_KEY} stays here."
    )


@flower.command(short_help="Be a node, until stopped.")
@folder_argument
@click.option("--superlink", required=True, metavar="HOST:PORT", help="Address of the SuperLink.")
@click.option("--root-certificates", type=file_argument, help="The coordinator's ca.crt; without it no TLS.")
@click.option(
    "--plain", is_flag=True, help="Run the app that a run brings, with a process a message, as Flower does."
)
def node(folder: Path, superlink: str, root_certificates: Path | None, plain: bool) -> None:
    """Be the node of the party in FOLDER, until stopped: connect to the SuperLink and answer what is agreed.

    The installed privfed answers, in forks of one process, whatever code a run brings. With --plain it is
    the code of the run: then whoever may submit a run chooses what reads the rows.
    """
    run_node(folder, superlink, root_certificates, launcher=not plain)


@flower.command(short_help="Run the SuperLink of a federation, until stopped.")
@folder_argument
@click.option("--listen", default="0.0.0.0", show_default=True, help="Address to listen on.")
@click.option(
    "--node-key", "keys", multiple=True, type=file_argument, help="Public key of a node that may connect."
)
def superlink(folder: Path, listen: str, keys: tuple[Path, ...]) -> None:
    """Run Flower's SuperLink for the federation in FOLDER: offline, with TLS, for nodes with these keys."""
    signal.signal(signal.SIGTERM, stop)
    with Processes(FederationFile.read(folder)) as running:
        running.start_superlink(keys, listen)
        click.echo(f"the SuperLink listens at {listen}, for {len(keys)} nodes; stop it with Ctrl-C.")
        if running.superlink is not None:
            running.superlink.wait()


@flower.command(short_help="Let more nodes connect to a running SuperLink.")
@folder_argument
@click.argument("keys", metavar="KEY...", nargs=-1, required=True, type=file_argument)
def admit(folder: Path, keys: tuple[Path, ...]) -> None:
    """Tell the running SuperLink of the federation in FOLDER the public KEYs of more nodes."""
    register(FederationFile.read(folder), keys)


def _import(context: click.Context, option: click.Parameter, modules: tuple[str, ...]) -> None:
    """Import modules before other options are read, which may name what these register."""
    for name in modules:
        try:
            import_module(name)
        except ImportError:
            raise click.BadParameter(
                f"{name} cannot be imported here; install it, or set PYTHONPATH."
            ) from None


def _fit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        declared_options,
        metrics_option,
        click.option(
            "--classes",
            metavar="A,B,...|@FILE",
            callback=listed,
            help="For models: the classes, in the order of the whole numbers that the nodes' labels are.",
        ),
        click.option(
            "--module",
            multiple=True,
            callback=_import,
            is_eager=True,
            expose_value=False,
            help="Module here that registers a model of yours, as on the nodes; repeatable.",
        ),
        word_options,
        click.option("--resume", is_flag=True, help="Finish the run in --out that was stopped."),
        click.option(
            "--out", type=file_argument, default=Path("run"), show_default=True, help="Folder of the run."
        ),
        click.option(
            "-k", "--n-clusters", type=int, default=5, show_default=True, help="Number of clusters."
        ),
        algorithm_option,
        folder_argument,
    ):
        command = option(command)
    return command


@flower.command(short_help="Cluster the nodes' rows.")
@_fit_options
def run(folder: Path, **given: Any) -> None:
    """Cluster the rows of the nodes of the federation in FOLDER, on the machine of its SuperLink."""
    with FlowerEngine(folder) as engine:
        _fit(engine, **given)


@flower.command(short_help="Cluster over a simulation, all on this machine.")
@_fit_options
def simulate(folder: Path, **given: Any) -> None:
    """Cluster over Flower's simulation of the federation in FOLDER, whose nodes are on this machine."""
    with FlowerEngine(folder, network=DrivenRun(simulated(FederationFile.read(folder)))) as engine:
        _fit(engine, **given)


@flower.command(short_help="Count the nodes' rows; means, deviations and histograms of the columns.")
@folder_argument
@bins_option
@sum_options
@declared_options
@json_option
@click.option("--out", type=file_argument, help="Folder for the transcript.  [default: none is kept]")
def summary(
    folder: Path, bins: int | list[float] | None, as_json: bool, out: Path | None, **given: Any
) -> None:
    """Summarize the rows of the nodes of the federation in FOLDER, on the machine of its SuperLink."""
    with FlowerEngine(folder) as engine:
        words = with_own_sum(declared_of(given).words() | given)
        found = FederatedSummary(bins, engine=engine, run_dir=out, **words).fit()
        if as_json:
            click.echo(pretty(summarized(found, engine.file.columns)), nl=False)
        else:
            print_summary(found, engine.file.columns)
            _tell_faults(engine)
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
        words=words_of(given),
        declared=declared_of(given),
        metrics=given.pop("metrics"),
    )
    model = estimator(parameters, out, classes)
    model.set_params(engine=engine)
    if isinstance(model, FederatedModel):
        said = _trained(model, parameters, classes, resume)
    else:
        said = _clustered(model, parameters, resume)
    with replaced(out / MODEL) as path:
        model.save(path)
    _tell(model, engine, out, said)
    engine.end_fits()


def _clustered(model: FederatedClusterer, parameters: Parameters, resume: bool) -> list[str]:
    """Fit; return what there is to say of the clusters."""
    private = parameters.declared.epsilon is not None
    check_measures(parameters.metrics, parameters.n_clusters, private=private)
    agree_on(model, parameters.metrics, None)
    fitted = model.resume() if resume else model.fit()
    said = ["  ".join(f"{value:.6g}" for value in row) for row in fitted.cluster_centers_]
    for name, value in measured(fitted, parameters.metrics).items():
        said.append(f"{name} {'is not defined' if value is None else f'{value:.6g}'}")
    return said


def _trained(
    model: FederatedModel, parameters: Parameters, classes: tuple[str, ...], resume: bool
) -> list[str]:
    """Train; return what there is to say of the models."""
    if not classes:
        raise ArgumentError(
            f"{parameters.algorithm} trains models: name the classes with --classes, in the order of the "
            "whole numbers from 0 that the nodes' labels are."
        )
    if parameters.metrics:
        raise ArgumentError(f"--metrics are of centroids, and {parameters.algorithm} has none; leave it out.")
    fitted = model.resume() if resume else model.fit()
    n_models, n_parameters = fitted.models_.shape
    return [f"{n_models} models of {n_parameters} parameters, after {fitted.n_iter_} rounds"]


def _tell(fitted: Any, engine: FlowerEngine, out: Path, said: list[str]) -> None:
    for line in said:
        click.echo(line)
    traffic = fitted.federation_.traffic
    up = sum(traffic.up.values()) / max(1, len(traffic.up)) / 1000
    click.echo(f"{len(traffic.up)} clients, {traffic.exchanges} exchanges, {up:.1f} kB up a client")
    click.echo(one_line(fitted.privacy_claim_))
    _tell_faults(engine)
    click.echo(f"the model is in {out / MODEL}, the transcript beside it")


def _tell_faults(engine: FlowerEngine) -> None:
    for fault in engine.faults:
        click.echo(f"{fault.client}, stage {fault.stage}, sum {fault.number}: {fault.what}")
