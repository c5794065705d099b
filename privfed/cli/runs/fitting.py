"""Carries out a run in its folder, for `fit` and `resume`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from privfed.cli.display.models_picture import draw_models
from privfed.cli.display.output import printed, result_table, write_model, write_results
from privfed.cli.display.picture import draw_run
from privfed.cli.display.progress import RoundProgress
from privfed.cli.display.unconverged import in_results
from privfed.cli.folder.claim import saying_the_claim
from privfed.cli.folder.disk import telling_when_full
from privfed.cli.folder.result import Result, result_of
from privfed.cli.folder.run_folder import (
    RUN,
    Parameters,
    Run,
    Source,
    former_seconds,
    has_transcript,
    held,
    pretty,
    read_run,
    read_transcript,
)
from privfed.cli.folder.trained import TrainedResult
from privfed.cli.measuring import agree_on
from privfed.cli.registered import with_own_sum
from privfed.cli.runs.training import labels_of, model_of, show_trained, trained, trained_result
from privfed.core.asking.question import question_from_bytes
from privfed.core.asking.statistics import Statistics
from privfed.core.names.registry import Registry
from privfed.core.record.transcript import Ended, Transcript
from privfed.data import ClientTables, load_clients
from privfed.deep.estimators.base import FederatedModel
from privfed.deep.training.trainer import MODELS
from privfed.errors import ArgumentError, DataError, ProtocolError, RunFolderError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.choosing.selection import estimator_of
from privfed.estimators.local_centers import FKM, KFED
from privfed.estimators.registry import ESTIMATORS
from privfed.federation.builder import protocol_of
from privfed.federation.clients import Clients, gather
from privfed.protocols.registry import SECURE_SUMS
from privfed.protocols.slotted import Slotted


def estimator(
    parameters: Parameters, folder: Path, classes: tuple[str, ...] = ()
) -> FederatedClusterer | FederatedModel:
    """Return the estimator that the parameters describe.

    Args:
        parameters: of the run.
        folder: of the run.
        classes: that a model tells apart, once they are known.

    Raises:
        ArgumentError: it does not have one of the parameters, or domain or privacy is incomplete.
    """
    if parameters.algorithm == "lloyd" and parameters.words.get("local_iter", 1) != 1:
        steps = parameters.words["local_iter"]
        raise ArgumentError(f"lloyd takes one local step, got --local-iter {steps}; take --algorithm dwf.")
    words = with_own_sum({**parameters.words, **parameters.declared.words(), "run_dir": folder})
    kind = ESTIMATORS.resolve(parameters.algorithm)
    if isinstance(kind, type) and issubclass(kind, FederatedModel):
        return model_of(kind, words, parameters.n_clusters, classes)
    model = estimator_of(parameters.algorithm, words)
    model.set_params(n_clusters=parameters.n_clusters)
    if parameters.words.get("merge") == "slotted" and isinstance(model, FKM | KFED):
        # In Python slots belong to the secure sum. Here --merge asks for them, for as many sums as need them.
        model.set_params(protocol=Slotted(protocol_of(model.protocol), sums=model.gathered_sums))
    return model


def check_own(
    folder: Path,
    parameters: Parameters,
    algorithm: str | None,
    protocol: str | None,
    model: str | None,
    command: str = "resume",
) -> None:
    """Check that whoever goes on with a run names the user's own classes again that its folder names.

    Nothing is imported only because a file names it; `estimator` resolves names that a person typed.

    Args:
        folder: folder of the run.
        parameters: of the run.
        algorithm: the algorithm as it was typed now; None if it was not. Likewise the next two.
        protocol: the secure sum.
        model: the model.
        command: the command that runs, for the message.

    Raises:
        RunFolderError: a class was not named again, or another one was named.
    """
    named: dict[str, tuple[str, str | None, Registry[Any]]] = {
        "algorithm": (parameters.algorithm, algorithm, ESTIMATORS),
        "protocol": (str(parameters.words["protocol"]), protocol, SECURE_SUMS),
        "model": (str(parameters.words.get("model", "softmax")), model, MODELS),
    }
    for option, (kept, given, registry) in named.items():
        if given is not None and given != kept:
            raise RunFolderError(f"{folder} was begun with --{option} {kept}, got --{option} {given}.")
        if given is None and kept not in registry:
            raise RunFolderError(
                f"{folder} names {kept!r}, which is not registered here, and nothing is imported because a "
                f"file names it; name it again: privfed {command} {folder} --{option} {kept}"
            )


def know_questions(folder: Path, algorithm: str | None, command: str) -> None:
    """Import the algorithm of a run, so that what it asked can be read from its transcript.

    Args:
        folder: folder of the run; where it has no `run.json`, only what was typed is imported.
        algorithm: the algorithm as it was typed now; None if it was not.
        command: the command that runs, for messages.

    Raises:
        ArgumentError: nothing can be imported by this name.
        RunFolderError: the run has an algorithm of the user's own, which was not named, or another one was.
    """
    if (folder / RUN).exists():
        parameters = read_run(folder).parameters
        protocol, model = str(parameters.words["protocol"]), str(parameters.words.get("model", "softmax"))
        check_own(folder, parameters, algorithm, protocol, model, command)
        ESTIMATORS.resolve(parameters.algorithm)
    elif algorithm is not None:
        ESTIMATORS.resolve(algorithm)


def load(source: Source, *, private: bool) -> ClientTables:
    """Load the clients of a run; under differential privacy they are declared, and may have no rows."""
    return load_clients(
        source.path,
        group=source.group,
        label=source.label,
        columns=source.columns or None,
        separator=source.separator,
        clients=source.clients or None,
        private=private,
    )


def clients_of(tables: ClientTables, run: Run) -> Clients:
    """Return the clients, checked against the parameters of the run.

    Raises:
        ArgumentError: there are more clusters than rows, or one client over a protocol that needs several.
        DataError: rows lie outside the declared domain.
    """
    protocol = run.parameters.words["protocol"]
    private = run.parameters.declared.epsilon is not None
    n_rows, wanted = sum(len(rows) for rows in tables.arrays), run.parameters.n_clusters
    # Under differential privacy no error may depend on the number of rows or on rows outside the domain.
    if wanted > n_rows and not private and not run.source.classes:
        raise ArgumentError(f"{wanted} clusters cannot be found in {n_rows} rows; take a smaller -k.")
    if len(tables.names) == 1 and protocol != "plain":
        raise ArgumentError(
            f"{run.source.path} holds one client, whom protocol {protocol!r} cannot protect; "
            "name the column that tells clients apart with --group, or take --protocol plain."
        )
    labels: Any = None if run.source.label is None else tables.labels
    if run.source.classes:
        labels = labels_of(tables, run.source.classes)
    domain = run.parameters.declared.domain()
    return gather(tables.arrays, y=labels, names=tables.names, domain=domain, private=private)


def _rows_counted(question: bytes, statistics: Statistics) -> float | None:
    """Return the number of rows in a total, if an entry counts all rows together; None otherwise."""
    declared = question_from_bytes(question).declaration
    counted = () if declared is None else declared.row_counts
    whole = [statistics[one.entry] for one in counted if statistics[one.entry].size == 1]
    return float(whole[0].ravel()[0]) if whole else None


def check_same_rows(tables: ClientTables, transcript: Transcript) -> None:
    """Compare the number of rows with the one in the run's first total.

    Not for runs under differential privacy: no total shows the number, and an error would depend on it.

    Raises:
        DataError: the numbers differ, so the data is not what the run began with.
    """
    now = sum(len(rows) for rows in tables.arrays)
    for asked, total in transcript.totals()[:1]:
        everyone = len(total.contributors) == len(asked.clients) == len(tables.names)
        counted = _rows_counted(asked.question, total.statistics)
        if everyone and counted is not None and (began := round(counted)) != now:
            raise DataError(
                f"the data has {now} rows, the run began with {began}; resume it with the same data (--data)."
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
    model = estimator(run.parameters, folder, run.source.classes)
    private = run.parameters.declared.epsilon is not None
    with held(folder), saying_the_claim(folder), resumable(folder):
        begun = _begun(folder)
        # Under differential privacy an error must not depend on the number of rows.
        if begun is not None and not private:
            check_same_rows(tables, begun)
        label = f"{run.parameters.algorithm}{' (noised)' if private else ''}"
        # Under differential privacy the agreement with labels would be a further release without a budget.
        scored = run.source.label is not None and not private
        n_labels = len(tables.label_names or ()) if scored else None
        if isinstance(model, FederatedModel):
            seconds = trained(model, label, clients, begun is not None, quiet)
        else:
            agree_on(model, run.parameters.metrics, n_labels)
            seconds = _fit(model, label, clients, begun is not None, quiet)
        if begun is not None and begun.of(Ended):
            # Everything was replayed and nothing asked, so the time of the first run is kept.
            seconds = former_seconds(folder) or seconds
        if isinstance(model, FederatedModel):
            words: dict[str, Any] = {"algorithm": run.parameters.algorithm, "source": run.source}
            found = trained_result(model, clients, **words, seconds=seconds)
            write_model(folder, model, found)
            if picture:
                draw_models(folder / "picture.png", model.history_, found)
            return found
        result = result_of(
            model,
            algorithm=run.parameters.algorithm,
            columns=tables.columns,
            n_labels=n_labels,
            metrics=run.parameters.metrics,
            seconds=seconds,
        )
        write_results(folder, result, model)
        if picture:
            draw_run(folder / "picture.png", model.history_, result, model.tol)
    return result


def _begun(folder: Path) -> Transcript | None:
    return read_transcript(folder) if has_transcript(folder) else None


def _fit(
    model: FederatedClusterer,
    label: str,
    clients: Clients,
    resume: bool,
    quiet: bool,
) -> float:
    """Fit, and return the number of seconds that it took."""
    began = time.monotonic()
    with RoundProgress(label, model.max_iter, model.n_init, quiet) as progress, in_results():
        model.fit_clients(clients, resume=resume, watch=progress)
    return time.monotonic() - began


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Say how to continue if a run is stopped, by Ctrl-C or because too few clients were left."""
    command = f"privfed resume {shlex.quote(str(folder))}"
    try:
        with telling_when_full(folder, f"finish the run with: {command}"):
            yield
    except KeyboardInterrupt:
        click.echo(f"privfed: stopped; finish the run with: {command}", err=True)
        raise click.exceptions.Exit(130) from None
    except ProtocolError as error:
        raise ProtocolError(f"{error} What was summed is kept; finish the run with: {command}") from error


def show(result: Result | TrainedResult, folder: Path, as_json: bool) -> None:
    """Print the result, and nothing else, to stdout."""
    if as_json:
        click.echo(pretty(result), nl=False)
    elif isinstance(result, TrainedResult):
        printed(show_trained(result, folder))
    else:
        printed(result_table(result, folder))
