"""The work of `privfed keys`, `privfed journal` and `privfed flower`: parties on machines of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import click
from msgspec.structs import asdict

from privfed.cli.declared import Declared, declared_of
from privfed.cli.described import (
    agree_on,
    check_metrics,
    estimator,
    measured,
    models,
    needed_by_a_claim,
    surroundings_of,
)
from privfed.cli.hints import unlike_ranges
from privfed.cli.measuring import check_asked, check_columns, for_each, found_by, print_measured
from privfed.cli.output import answer, echo, in_results, table
from privfed.cli.progress import RoundProgress
from privfed.cli.reading import edges_of, print_summary
from privfed.cli.run_folder import (
    CLASSES,
    MODEL,
    SCHEMA,
    TABLE,
    Classes,
    Parameters,
    pretty,
    values_of,
)
from privfed.core.agreed.program import apart
from privfed.core.stored.files import replaced, rewrite, write_new
from privfed.data.table_files import write_table
from privfed.errors import ArgumentError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.moments import FederatedScaler, FederatedSummary
from privfed.federation.clients import Clients
from privfed.nodes.commands.records import record, usages
from privfed.nodes.deploy.folders import new_party, read_card, read_kit
from privfed.nodes.deploy.local import LocalNodes
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.network import DrivenRun, linked
from privfed.nodes.flower.node_messages import About
from privfed.nodes.flower.settings import FederationFile
from privfed.nodes.identity import (
    PARTIES,
    SIGNED_KEY,
    Parties,
    SignedKey,
    read_identity,
    read_parties,
    read_signed_key,
)
from privfed.nodes.journal import Journal
from privfed.privacy.claim import one_line
from privfed.privacy.ledger import spent_line
from privfed.tables.commands.learning import check_new, write_scales
from privfed.tables.described import declared_by, in_files
from privfed.tables.schema import Schema, parse, schema_text, to_toml
from privfed.version import __version__

_UNSCALED = 'nodes scale by their schema, which says scale = "range" or what privfed flower scale has learnt'

_COMPARE = "Read these digits to each other by phone; they must be the same for all."


def new_identity(name: str, out: Path) -> None:
    """Do the work of `privfed keys new`."""
    own = new_party(out, name)
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
        _print_key(read_identity(path).signed_key)
        return
    refused: list[ArgumentError] = []
    for read, show in _SHOWN:
        try:
            return show(read(path))
        except ArgumentError as error:
            refused.append(error)
    raise refused[0]


def _print_key(key: SignedKey) -> None:
    click.echo(f"{key.name}\n{key.fingerprint}\n{_COMPARE}")


def _print_parties(parties: Parties) -> None:
    click.echo(f"server: {parties.server.name}\n    {parties.server.fingerprint}")
    for one in parties.clients:
        click.echo(f"client: {one.name}\n    {one.fingerprint}")
    click.echo(f"all of them:\n    {parties.fingerprint}\n{_COMPARE}")


_SHOWN: tuple[tuple[Callable[[Path], Any], Callable[[Any], None]], ...] = (
    (read_signed_key, _print_key),
    (read_parties, _print_parties),
    (read_card, lambda card: _print_key(card.party)),
    (read_kit, lambda kit: _print_parties(kit.parties)),
)
"""What `privfed keys show` reads, and how it shows that."""


def show_journal(folder: Path) -> None:
    """Do the work of `privfed journal show`."""
    own = read_identity(folder)
    kept = Journal(folder, own)
    click.echo(f"{own.name}: {kept.head.counter} entries, {len(kept.fits)} fits")
    for name, usage in usages(kept).items():
        click.echo(
            f"data set {name}: {usage.fits} fits, {usage.sums} sums answered, {usage.losses} losses or "
            f"changes of clients; {spent_line(usage)}, {usage.unprotected} fits without a guarantee"
        )
    for fit in kept.fits:
        claim = (
            "no guarantee" if fit.epsilon is None else f"epsilon {fit.epsilon:g}, {fit.spent:.1%} of it paid"
        )
        click.echo(
            f"fit {fit.number} ({'ended' if fit.closed else 'open'}, {fit.began}): {fit.data_set}, "
            f"{fit.protocol}, {fit.answered} sums, {fit.losses} losses or changes, {claim}"
        )


def end(folder: Path, fit: int) -> None:
    """Do the work of `privfed journal end`."""
    Journal(folder, read_identity(folder)).end(fit)
    click.echo(f"ended fit {fit}")


def export(folder: Path, out: Path, with_groups: bool) -> None:
    """Do the work of `privfed journal export`."""
    write_new(out, record(folder, with_groups))
    click.echo(f"wrote {out}")


_CLOCK = 60.0
"""Seconds between two machines' clocks that are said."""

LIMITS = {
    "max_fits": "fits",
    "max_losses": "changes or losses of clients",
    "max_starts": "starts",
    "max_epsilon": "epsilon",
}
"""Parameter of a policy that bounds all fits on the same rows together -> what it counts, in words."""


def left_words(left: Mapping[str, float]) -> str:
    """Say what is left of a policy's limits over all fits on the same rows."""
    return ", ".join(f"{number:.4g} {LIMITS[name]}" for name, number in left.items()) or "no limit"


def costs(engine: FlowerEngine) -> list[str]:
    """Return what a fit with these clients costs each, and what is left to it, as far as nodes say so."""
    alike: dict[str, list[str]] = {}
    for name, about in engine.standing().items():
        then = f"; this list of clients takes {about.cost} of the changes" if about.cost else ""
        alike.setdefault(f"{left_words(about.left)}{then}", []).append(name)
    return [f"left before this fit at {', '.join(names)}: {line}" for line, names in alike.items()]


def status(folder: Path, as_json: bool) -> None:
    """Do the work of `privfed flower status`."""
    network = DrivenRun(linked(FederationFile.read(folder)))
    with FlowerEngine(folder, network=network) as engine:
        told, list_ = engine.standing(), engine.parties.fingerprint
        parties = network.listed().parties
    found, lines = {}, list[tuple[str, ...]]()
    for name, link in sorted(parties.items()):
        about = told.get(name)
        why = _why(about, list_) if about else ["no answer; it may be at work"] * link.startswith("connected")
        found[name] = {"link": link, "why": why, "told": about and asdict(about)}
        lines.append(
            (name, link, "; ".join(why or ["ready"] * bool(about)), left_words(about.left) if about else "")
        )
    answer(found, as_json, table(("party", "link", "state", "left over all fits"), lines))


def _why(about: About, parties: str) -> list[str]:
    """Return why a node that answers would take no part in a fit."""
    off, other = about.at - time.time(), about.parties != parties
    return [
        *([f"its clock is {off:+.0f} s from here"] if abs(off) > _CLOCK else ()),
        *(["another list of parties: its owner's move, privfed flower node --kit"] if other else ()),
        *(
            f"{name} {there}, here {here}: the lower is upgraded (privfed {about.versions.get('privfed')}, "
            f"here {__version__})"
            for name, there, here in apart(about.versions)
        ),
    ]


def run(folder: Path, clients: tuple[str, ...], **given: Any) -> None:
    """Do the work of `privfed flower run`."""
    with FlowerEngine(folder, clients=clients or None) as engine:
        for line in costs(engine):
            click.echo(line, err=True)
        _fit(engine, **given)


def simulate(folder: Path, clients: tuple[str, ...], **given: Any) -> None:
    """Do the work of `privfed flower simulate`."""
    here = LocalNodes(FederationFile.read(folder))
    with FlowerEngine(folder, network=here, clients=clients or None) as engine:
        _fit(engine, **given)


def summary(
    folder: Path,
    bins: int | list[float] | None,
    between: bool,
    as_json: bool,
    out: Path | None,
    schema: Path | None,
    clients: tuple[str, ...],
    **given: Any,
) -> None:
    """Do the work of `privfed flower summary`."""
    with FlowerEngine(folder, clients=clients or None) as engine:
        known, declared = _described(engine, schema, declared_of(given))
        values = surroundings_of(declared.parameters() | values_of(given))
        edges = edges_of(bins, known)
        found = FederatedSummary(edges, between=between, engine=engine, run_dir=out, **values).fit()
        print_summary(found, engine.file.columns, known, as_json)
        if not as_json:
            _print_faults(engine)
        engine.end_fits()


def measure(
    folder: Path,
    run_folder: Path,
    metrics: tuple[str, ...],
    as_json: bool,
    schema: Path | None,
    classes: tuple[str, ...],
    clients: tuple[str, ...],
    **given: Any,
) -> None:
    """Do the work of `privfed flower measure`.

    Raises:
        ArgumentError: the nodes have other columns than the run, or their numbers mean something else.
    """
    known = found_by(run_folder, schema)
    if known.scaling is not None:
        raise ArgumentError(
            f"{run_folder} scaled its rows with --scale, and {_UNSCALED}; measure a run that was fitted with "
            "their schema."
        )
    check_asked(metrics, known, classes)
    with FlowerEngine(folder, clients=clients or None) as engine:
        check_columns(run_folder, known, engine.file.columns, "ask the nodes that it was fitted with")
        _, declared = _described(engine, schema, for_each(metrics, given))
        declared.check_claim()
        try:
            print_measured(run_folder, metrics, known, declared, classes, as_json, given, engine=engine)
        finally:
            engine.end_fits()


def scale(
    folder: Path,
    schema: Path,
    out: Path,
    scale: Literal["standard", "robust"],
    clients: tuple[str, ...],
    **given: Any,
) -> None:
    """Do the work of `privfed flower scale`.

    Raises:
        ArgumentError: the schema is not the nodes', or scales already; or the file to write exists.
    """
    check_new(out)
    known = parse(schema_text(schema), str(schema))
    done = [name for name, own in known.columns.items() if known.scaling(own) != (0.0, 1.0)]
    if done:
        raise ArgumentError(
            f"{schema} scales {done[0]!r} already, and nodes answer in its scale; take its scale, shift and "
            "spread out, on the nodes too."
        )
    with FlowerEngine(folder, clients=clients or None) as engine:
        _, declared = _described(engine, schema, declared_of(given))
        options = surroundings_of(declared.parameters() | values_of(given))
        write_scales(out, known, FederatedScaler(scale, engine=engine, **options).fit())
        engine.end_fits()


def _described(
    engine: FlowerEngine, schema: Path | None, declared: Declared
) -> tuple[Schema | None, Declared]:
    """Return the nodes' schema, and what is declared with its ranges as the domain where it has all.

    Raises:
        ArgumentError: the nodes have other features, or an option says what the schema says.
    """
    if schema is None:
        return None, declared
    known = parse(schema_text(schema), str(schema))
    if engine.file.columns != known.features:
        raise ArgumentError(
            f"{schema} has the features {', '.join(known.features)}, and the nodes have "
            f"{', '.join(engine.file.columns)}; name the schema that they joined with."
        )
    if declared.low is not None or declared.high is not None:
        raise ArgumentError("the schema says what --low and --high would; leave them out.")
    return known, declared_by(known, declared)


def _fit(
    engine: FlowerEngine,
    *,
    algorithm: str,
    n_clusters: int,
    out: Path,
    resume: bool,
    schema: Path | None,
    classes: tuple[str, ...],
    **given: Any,
) -> None:
    known, declared = _described(engine, schema, declared_of(given))
    parameters = Parameters(
        algorithm=algorithm,
        n_clusters=n_clusters,
        declared=declared,
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
    clients = Clients.elsewhere(engine.members)
    fitted: Any = model
    if isinstance(model, FederatedClusterer):
        with RoundProgress(algorithm, model.max_iter, model.n_init) as progress, in_results():
            model.fit_clients(clients, resume=resume, watch=progress)
    else:
        models().train(model, algorithm, clients, resume, quiet=False)
    # The model is kept before anything else is asked, and whatever comes of that the nodes close the fit.
    with replaced(out / MODEL) as path:
        model.save(path)
    try:
        if isinstance(model, FederatedClusterer):
            lines = []
            _write_centers(out, model, engine.file.columns, known)
            if (unlike := unlike_ranges(model, engine.file.columns)) is not None:
                lines.append(f"{unlike[0]}: {_UNSCALED}.{unlike[1]}")
            for name, value in measured(model, parameters.metrics).items():
                lines.append(f"{name} {'is not defined' if value is None else f'{value:.6g}'}")
        else:
            rewrite(out / CLASSES, pretty(Classes(tuple(engine.file.columns), classes)))
            if known is not None:
                rewrite(out / SCHEMA, to_toml(known).encode())
            n_models, n_parameters = fitted.models_.shape
            lines = [f"{n_models} models of {n_parameters} parameters, after {fitted.n_iter_} rounds"]
        _print_fit(fitted, engine, out, lines)
    finally:
        engine.end_fits()


def _write_centers(
    out: Path, model: FederatedClusterer, columns: Sequence[str], schema: Schema | None
) -> None:
    """Print centroids by the names of their columns, and write them; with a schema in its units, and it."""
    centers = model.cluster_centers_
    found: dict[str, Any] = dict(zip(columns, centers.T, strict=True))
    write_table(out / TABLE, found)
    if schema is not None:
        for name, found in in_files(to_toml(schema), centers).items():
            write_table(out / name, found)
        rewrite(out / SCHEMA, to_toml(schema).encode())
    lines = (
        (name, *(one if isinstance(one, str) else f"{one:.6g}" for one in values.tolist()))
        for name, values in found.items()
    )
    echo(table(("column", *(f"cluster {i}" for i in range(len(centers)))), lines))


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
