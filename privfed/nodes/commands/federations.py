"""The work of `privfed keys`, `privfed journal` and `privfed flower`: parties on machines of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click
import msgspec
import numpy as np
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
from privfed.cli.predicting import centroids_of, read_before, schema_of
from privfed.cli.progress import RoundProgress
from privfed.cli.reading import edges_of, print_summary
from privfed.cli.run_folder import (
    CLASSES,
    MODEL,
    SCHEMA,
    TABLE,
    Centroids,
    Classes,
    Parameters,
    pretty,
    values_of,
)
from privfed.core.agreed.program import apart
from privfed.core.stored.files import replaced, rewrite, write_new
from privfed.core.values.domain import FloatArray
from privfed.core.values.origin import Origin, released
from privfed.data.table_files import write_table
from privfed.errors import ArgumentError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.moments import FederatedScaler, FederatedSummary
from privfed.estimators.saving import load
from privfed.federation.clients import Clients
from privfed.federation.opening import PAYMENT
from privfed.metrics.profiles import clients_per_cluster, profiles
from privfed.metrics.stable import stability as stability_of
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
from privfed.privacy.budget_file import check_run
from privfed.privacy.claim import one_line
from privfed.privacy.ledger import spent_line
from privfed.questions.histograms import MOST_BINS
from privfed.tables.beside import columns_by_cluster
from privfed.tables.commands.learning import check_new, write_scales
from privfed.tables.commands.profiling import FEW_BINS
from privfed.tables.commands.surviving import check_exact, print_stability, print_survival
from privfed.tables.described import check_meaning, declared_by, in_files, units_of
from privfed.tables.outcomes import survival_of_columns
from privfed.tables.profiled import differences, lines_of
from privfed.tables.profiled import edges_of as bins_of
from privfed.tables.schema import CATEGORY, NUMBER, Column, Schema, parse, schema_text, to_toml
from privfed.version import __version__

PROFILE = "profile.json"
"""In the folder of a run over nodes: the profile that was asked last."""

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


def run(folder: Path, clients: tuple[str, ...], columns: tuple[str, ...], **given: Any) -> None:
    """Do the work of `privfed flower run`."""
    with FlowerEngine(folder, clients=clients or None, columns=columns or None) as engine:
        for line in costs(engine):
            click.echo(line, err=True)
        _fit(engine, **given)


def simulate(folder: Path, clients: tuple[str, ...], columns: tuple[str, ...], **given: Any) -> None:
    """Do the work of `privfed flower simulate`."""
    here = LocalNodes(FederationFile.read(folder))
    with FlowerEngine(folder, network=here, clients=clients or None, columns=columns or None) as engine:
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
        print_summary(found, engine.columns, known, as_json)
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
    _check_unscaled(run_folder, known)
    check_asked(metrics, known, classes)
    with FlowerEngine(folder, clients=clients or None) as engine:
        check_columns(run_folder, known, engine.file.columns, "ask the nodes that it was fitted with")
        _, declared = _described(engine, schema, for_each(metrics, given))
        declared.check_claim()
        try:
            print_measured(run_folder, metrics, known, declared, classes, as_json, given, engine=engine)
        finally:
            engine.end_fits()


def _check_unscaled(run_folder: Path, known: Centroids) -> None:
    """Check that a run's centroids are in the scale of nodes.

    Raises:
        ArgumentError: the run scaled its rows.
    """
    if known.scaling is not None:
        raise ArgumentError(
            f"{run_folder} scaled its rows with --scale, and {_UNSCALED}; measure a run that was fitted with "
            "their schema."
        )


class _Asked(NamedTuple):
    """Nodes that are asked of a run's clusters: their schema, options, and the centers in their scale."""

    engine: FlowerEngine
    schema: Schema
    options: dict[str, Any]
    centers: FloatArray
    shift: FloatArray
    factor: FloatArray

    def columns(self, first: int) -> Schema:
        """Return what the engine's columns mean, from one on."""
        some = {name.partition("=")[0] for name in self.engine.columns[first:]}
        return Schema(columns={name: own for name, own in self.schema.columns.items() if name in some})


@contextmanager
def _asked(
    folder: Path,
    run_folder: Path,
    columns: Sequence[str],
    schema: Path | None,
    clients: tuple[str, ...],
    given: dict[str, Any],
) -> Iterator[_Asked]:
    """Yield nodes that answer from a run's columns and further ones.

    Raises:
        ArgumentError: the nodes lack a column, or a number means something else than in the run.
        PrivacyError: noise protected the rows, and no claim is declared now.
    """
    known = centroids_of(run_folder)
    _check_unscaled(run_folder, known)
    own = schema_of(run_folder, read_before(run_folder), known.columns, None)
    with FlowerEngine(folder, clients=clients or None, columns=[*known.columns, *columns]) as engine:
        whole, declared = _described(engine, schema, declared_of(given))
        if own is not None and (whole is None or schema is None):
            raise ArgumentError(f"{run_folder} was fitted with a schema; name the nodes' with --schema.")
        if own is not None and whole is not None and schema is not None:
            check_meaning(own, whole, run_folder, schema)
        numbers = whole or Schema(columns={name: Column(kind=NUMBER) for name in engine.columns})
        places = [numbers.features.index(name) for name in engine.columns]
        shift, factor = (one[places] for one in units_of(numbers))
        p = len(known.columns)
        if whole is not None and declared.low is not None and declared.high is not None:
            ends = (tuple(one[place] for place in places[:p]) for one in (declared.low, declared.high))
            declared = msgspec.structs.replace(declared, **dict(zip(("low", "high"), ends, strict=True)))
        declared.check_claim()
        check_exact(run_folder, known.privacy is not None, declared)
        if declared.budget is not None:
            check_run(Path(declared.budget), run_folder / PAYMENT)
        options = surroundings_of({**declared.parameters(), **values_of(given), "engine": engine})
        centers = (np.array(known.centroids) - shift[:p]) / factor[:p]
        centers = released(centers, Origin.DECLARED, known.radius)
        try:
            yield _Asked(engine, numbers, options, centers, shift, factor)
        finally:
            engine.end_fits()


def profile(
    folder: Path,
    run_folder: Path,
    beside: tuple[str, ...],
    gaps: bool,
    as_json: bool,
    schema: Path | None,
    clients: tuple[str, ...],
    **given: Any,
) -> None:
    """Do the work of `privfed flower profile`.

    Raises:
        ArgumentError: a further column has no range.
    """
    with _asked(folder, run_folder, beside, schema, clients, given) as asked:
        centers, options, private = asked.centers, asked.options, asked.options.get("privacy") is not None
        k, first = len(centers), centers.shape[1] if beside else 0
        shift, factor = asked.shift[first:], asked.factor[first:]
        if beside:
            of = {name: asked.schema.columns[name.partition("=")[0]] for name in asked.engine.columns[first:]}
            if lacking := [name for name, one in of.items() if one.range is None]:
                raise ArgumentError(
                    f"{', '.join(lacking)} have no range; name a schema with low and high for them, between "
                    "which bins lie: --schema."
                )
            each = (bins_of(one, FEW_BINS if private else MOST_BINS) for one in of.values())
            edges = [(ends - a) / b for ends, a, b in zip(each, shift, factor, strict=True)]
            found = columns_by_cluster(None, centers, edges=edges, gaps=gaps, **options)
        else:
            found = profiles(None, centers, **options)
            if not private:
                found = replace(found, clients=clients_per_cluster(None, centers, **options))
        found, shown, names = found.mapped(shift, factor), asked.columns(first), asked.engine.columns[first:]
    rewrite(run_folder / PROFILE, pretty({"columns": names, **found.to_dict()}))
    between = differences(found, names, shown) if found.claim is None else {}
    lines = lines_of(names, found, None, shown, between)
    head = ("column", *(f"cluster {i}" for i in range(k)), "all", *["between"] * bool(between))
    answer(
        found.to_dict(),
        as_json,
        table(head, ([one.name, *one.cells, one.all, *one.between] for one in lines)),
        one_line(found.claim),
        f"Written: {run_folder / PROFILE}",
    )


def survival(
    folder: Path,
    run_folder: Path,
    time: str,
    event: str,
    happened: str,
    censored: str,
    edges: tuple[float, ...],
    level: float,
    picture: bool,
    as_json: bool,
    schema: Path | None,
    clients: tuple[str, ...],
    **given: Any,
) -> None:
    """Do the work of `privfed flower survival`.

    Raises:
        ArgumentError: an event has other values than these two.
    """
    with _asked(folder, run_folder, (time, event), schema, clients, given) as asked:
        engine, p = asked.engine, asked.centers.shape[1]
        own = asked.schema.columns[event]
        if own.kind == CATEGORY:
            if {happened, censored} != {*own.categories}:
                raise ArgumentError(
                    f"{event!r} must have the two categories of --happened and --censored in the schema, and "
                    "leave out rows without one."
                )
            # One of the two tells both.
            engine.columns = (*engine.columns[: p + 1], f"{event}={happened}")
            values = own.weight, 0.0
        else:
            a, b = asked.shift[-1], asked.factor[-1]
            values = (_number(happened) - a) / b, (_number(censored) - a) / b
        found = survival_of_columns(
            asked.centers,
            edges=edges,
            scale=(float(asked.shift[p]), float(asked.factor[p])),
            values=values,
            level=level,
            **asked.options,
        )
    print_survival(run_folder, found, time, picture, as_json)


def stability(
    folder: Path, run_folder: Path, clients: tuple[str, ...], resamples: int, share: float, as_json: bool
) -> None:
    """Do the work of `privfed flower stability`."""
    known = centroids_of(run_folder)
    _check_unscaled(run_folder, known)
    fitted: Any = load(run_folder / MODEL)
    with FlowerEngine(folder, clients=clients or None, columns=known.columns) as engine:
        found = stability_of(fitted, engine=engine, n_resamples=resamples, share=share)
    print_stability(run_folder, found, as_json)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentError(
            f"the nodes' events are numbers where no schema names their categories, got {text!r}; take "
            "--happened 1 and --censored 0.",
            parameters=["happened", "censored"],
        ) from None


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
    asked = {one.partition("=")[0] for one in engine.columns} | set(engine.columns)
    some = {name: own for name, own in known.columns.items() if name in asked or not own.is_feature}
    known = msgspec.structs.replace(known, columns=some)
    if set(known.features) != set(engine.columns):
        raise ArgumentError("name columns of categories whole, with --columns.", parameters=["columns"])
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
            _write_centers(out, model, engine.columns, known)
            if (unlike := unlike_ranges(model, engine.columns)) is not None:
                lines.append(f"{unlike[0]}: {_UNSCALED}.{unlike[1]}")
            for name, value in measured(model, parameters.metrics).items():
                lines.append(f"{name} {'is not defined' if value is None else f'{value:.6g}'}")
        else:
            rewrite(out / CLASSES, pretty(Classes(tuple(engine.columns), classes)))
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
