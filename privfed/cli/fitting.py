"""The work of `privfed fit` and `privfed resume`: a fit of simulated clients, in a run's folder."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from privfed.cli.declared import declared_of
from privfed.cli.described import (
    agree_on,
    check_metrics,
    check_own,
    clients_of,
    declared_with,
    estimator,
    load,
    measured,
    models,
    needed_by_a_claim,
    profile_of,
    write_in_units,
)
from privfed.cli.hints import hints
from privfed.cli.output import answer, draw, echo, in_results, result_table, write_results
from privfed.cli.progress import RoundProgress
from privfed.cli.result import Result, TrainedResult, in_columns_units, result_of, stating_the_claim
from privfed.cli.run_folder import (
    FORMAT,
    RUN,
    DiskFullError,
    Parameters,
    Run,
    Source,
    create,
    discard,
    former_seconds,
    read_run,
    reporting_a_full_disk,
    source_of,
    values_of,
)
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import question_from_bytes
from privfed.core.record.records import FILE, SCALING, Ended
from privfed.core.record.transcript import Transcript, has_begun
from privfed.core.stored.files import locked
from privfed.core.values.domain import Box
from privfed.core.values.guarantee import Noise
from privfed.data.table import ClientTables
from privfed.errors import ArgumentError, DataError, PrivFedError, ProtocolError, RunFolderError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.registry import TRAINED
from privfed.federation.clients import Clients
from privfed.metrics.functions import labels_agreement
from privfed.metrics.named import METRICS
from privfed.privacy.plan import Plan
from privfed.version import __version__

if TYPE_CHECKING:
    from privfed.deep.estimators.base import FederatedModel

    Labels = Any


def fit(
    data: Path,
    out: Path,
    algorithm: str,
    n_clusters: int,
    metrics: tuple[str, ...],
    profile: bool,
    quiet: bool,
    picture: bool,
    as_json: bool,
    plan: int | None,
    **given: Any,
) -> None:
    """Do the work of `privfed fit`."""
    source = source_of(data, given)
    declared = declared_with(source, declared_of(given))
    if algorithm not in TRAINED:
        given |= declared.scaling(given.pop("scale", None))
    parameters = Parameters(
        algorithm=algorithm,
        n_clusters=n_clusters,
        values=values_of(given),
        declared=declared,
        metrics=metrics,
        profile=profile,
    )
    declared.check_claim(*source.undeclared, *needed_by_a_claim(parameters, source.classes))
    private = declared.epsilon is not None
    model = estimator(parameters, out)
    _check_options(model, source, parameters)
    check_metrics(metrics, n_clusters, private=private)
    tables = load(source, private=private)
    if plan is not None:
        click.echo(_planned(parameters, plan, tables))
        return
    # The columns that were found are stored, so that `resume` and `predict` use the same ones.
    source = msgspec.structs.replace(source, columns=tables.columns, drop=())
    if not isinstance(model, FederatedClusterer):
        # Classes in the order of their codes: those declared, or found.
        classes = source.classes or tuple(map(str, tables.label_names or ()))
        source = msgspec.structs.replace(source, classes=classes)
    run = Run(format=FORMAT, privfed=__version__, command="fit", source=source, parameters=parameters)
    clients = clients_of(tables, run)
    create(out, run)
    try:
        result = carry_out(out, run, tables, clients, quiet=quiet, picture=picture)
    except DiskFullError:
        raise  # `resume` can finish a run that has at least begun.
    except PrivFedError:
        if not has_begun(out) and not has_begun(out / SCALING):
            discard(out, RUN, FILE)
        raise
    _show(result, out, as_json)


def _planned(parameters: Parameters, n_rows: int, tables: ClientTables) -> Plan:
    """Return the plan of a fit, of whose rows only the columns are looked at.

    Raises:
        ArgumentError: it is not that of DPKMeans under a claim.
    """
    privacy, values = parameters.declared.privacy(), parameters.values
    if privacy is None or parameters.algorithm != "dp":
        raise ArgumentError("--plan is for --algorithm dp under a claim: --epsilon, or --budget.")
    if (scale := values.get("scale")) is not None:
        if scale != "range":
            raise ArgumentError(f"under a claim --plan knows --scale range alone, got --scale {scale}.")
        privacy = replace(privacy, domain=Box(0.0, 1.0))
    copies = len(tables.names) if values["protocol"] == "plain" or privacy.noise == Noise.LOCAL else 1
    return privacy.plan(n_rows, parameters.n_clusters, len(tables.columns), copies=copies)


def _check_options(
    model: FederatedClusterer | FederatedModel, source: Source, parameters: Parameters
) -> None:
    """Check that options which only some algorithms have were given to one of these.

    Raises:
        ArgumentError: one was not.
    """
    trains = not isinstance(model, FederatedClusterer)
    if source.classes and not trains:
        raise ArgumentError("--classes is for models (fedavg, ifca, cfl, dcfl); leave it out.")
    if parameters.profile and (trains or parameters.declared.claims):
        raise ArgumentError(
            "--profile asks two sums more, of rows: leave it out for models, and with --epsilon, where "
            "privfed profile prints sizes and means of the released totals."
        )
    if trains and parameters.metrics:
        raise ArgumentError("--metrics is for clusterings; leave it out.")
    if trains and source.label is None:
        raise ArgumentError("training needs labels: name their column with --label.")
    asked = click.get_current_context().get_parameter_source("n_clusters")
    if asked == click.core.ParameterSource.COMMANDLINE and "n_clusters" not in model.get_params(deep=False):
        raise ArgumentError(f"{type(model).__name__} takes no --n-clusters here; leave it out.")


def resume(
    run_folder: Path,
    data: Path | None,
    algorithm: str | None,
    protocol: str | None,
    model: str | None,
    metrics: tuple[str, ...],
    quiet: bool,
    picture: bool,
    as_json: bool,
) -> None:
    """Do the work of `privfed resume`."""
    run = read_run(run_folder)
    check_own(run_folder, run.parameters, algorithm, protocol, model)
    own = [one for one in run.parameters.metrics if one not in METRICS and one not in metrics]
    if own:
        raise RunFolderError(
            f"{run_folder} uses {own[0]!r}, which is not registered here. No name in a file is imported: "
            f"name it again: privfed resume {run_folder} --metrics {','.join(own)}"
        )
    if data is not None:
        run = msgspec.structs.replace(
            run, source=msgspec.structs.replace(run.source, path=str(data.absolute()))
        )
    finished = has_begun(run_folder) and bool(Transcript.load(run_folder).of(Ended))
    tables = load(run.source, private=run.parameters.declared.epsilon is not None)
    result = carry_out(run_folder, run, tables, clients_of(tables, run), quiet=quiet, picture=picture)
    if finished:
        echo(f"privfed: {run_folder} was finished already; its results were written again.", err=True)
    _show(result, run_folder, as_json)


def check_same_rows(clients: Clients, policy: ClientPolicy | None, transcript: Transcript) -> None:
    """Compare the number of rows with the one in the run's first total, where an entry counts all rows.

    Not for runs under differential privacy: no total shows the number, and an error would depend on it.

    Raises:
        DataError: the numbers differ, so the data is not what the run began with.
    """
    now = sum(own.n_rows for own in clients.answering(policy) or ())
    for asked, total in transcript.totals()[:1]:
        declared = question_from_bytes(asked.question).declaration
        counted = [total.statistics[one] for one in (() if declared is None else declared.row_counts)]
        whole = [round(float(one.ravel()[0])) for one in counted if one.size == 1]
        everyone = len(total.contributors) == len(asked.clients) == len(clients.names)
        if everyone and whole and whole[0] != now:
            raise DataError(
                f"the data has {now} rows, the run began with {whole[0]}; resume it with the same data "
                "(--data)."
            )


def carry_out(
    folder: Path, run: Run, tables: ClientTables, clients: Clients, *, quiet: bool, picture: bool
) -> Result | TrainedResult:
    """Fit, or finish the fit that has begun in the folder, and write all files of a run folder.

    Args:
        folder: folder of the run.
        run: what is asked for.
        tables: what was read.
        clients: the clients that take part.
        quiet: whether no progress is shown.
        picture: whether the picture is among the files.
    """
    parameters, private = run.parameters, run.parameters.declared.epsilon is not None
    model = estimator(parameters, folder, run.source.classes)
    with (
        locked(folder / RUN),
        stating_the_claim(folder),
        resumable(folder, f"privfed resume {shlex.quote(str(folder))}"),
    ):
        begun = Transcript.load(folder) if has_begun(folder) else None
        # Under differential privacy an error must not depend on the number of rows.
        if begun is not None and not private:
            check_same_rows(clients, model.policy, begun)
        label = f"{parameters.algorithm}{' (noised)' if private else ''}"
        # Under differential privacy the agreement with labels would be a further release without a budget.
        n_labels = None if run.source.label is None or private else len(tables.label_names or ())
        began = time.monotonic()
        if not isinstance(model, FederatedClusterer):
            models().train(model, label, clients, begun is not None, quiet)
        else:
            agree_on(model, parameters.metrics, n_labels, parameters.profile)
            with RoundProgress(label, model.max_iter, model.n_init, quiet) as progress, in_results():
                model.fit_clients(clients, resume=begun is not None, watch=progress)
        seconds = time.monotonic() - began
        if begun is not None and begun.of(Ended):
            # Everything was replayed and nothing asked, so the time of the first run is kept.
            seconds = former_seconds(folder) or seconds
        if not isinstance(model, FederatedClusterer):
            return cast(TrainedResult, models().write_trained(folder, run, model, clients, seconds, picture))
        result = result_of(
            model,
            algorithm=parameters.algorithm,
            columns=tables.columns,
            seconds=seconds,
            agreement=None
            if n_labels is None
            else labels_agreement(model.federation_, model.cluster_centers_, n_labels=n_labels),
            metrics=measured(model, parameters.metrics),
            profile=profile_of(model) if parameters.profile else None,
        )
        write_results(folder, result, model)
        for hint in hints(model, result, tables.blocks):
            echo(f"privfed: {hint}", err=True)
        write_in_units(folder, run.source, in_columns_units(model))
        if picture:
            # Imported here, as matplotlib takes long to load.
            from privfed.plot import ClusterMapDisplay, ConvergenceDisplay

            moved = ConvergenceDisplay({result.protocol: result.movements}, model.tol or 0.0)
            draw(folder, result, moved, ClusterMapDisplay.of(model))
    return result


@contextmanager
def resumable(folder: Path, command: str) -> Iterator[None]:
    """Say how to continue if a run is stopped, by Ctrl-C or because too few clients were left.

    Args:
        folder: that is written to.
        command: that continues.
    """
    try:
        with reporting_a_full_disk(folder, f"finish the run with: {command}"):
            yield
    except KeyboardInterrupt:
        click.echo(f"privfed: stopped; finish the run with: {command}", err=True)
        raise click.exceptions.Exit(130) from None
    except ProtocolError as error:
        raise ProtocolError(f"{error} What was summed is kept; finish the run with: {command}") from error


def _show(result: Result | TrainedResult, folder: Path, as_json: bool) -> None:
    """Print the result, and nothing else, to stdout."""
    shows: Any = result_table if isinstance(result, Result) else models().show_trained
    answer(result, as_json, shows(result, folder))
