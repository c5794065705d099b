"""What options describe: the estimator, its clients and the metrics that are asked after its fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from privfed.cli.declared import Declared
from privfed.cli.run_folder import RUN, Parameters, Run, Source, read_run
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.names import PARTS, Registry
from privfed.core.record.transcript import Transcript
from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import Noise, Unit
from privfed.data import ClientTables, load_clients
from privfed.data.table_files import write_table
from privfed.errors import ArgumentError, DataError, RunFolderError, UndefinedIndexError
from privfed.estimators.base import FederatedClusterer, estimator_of
from privfed.estimators.parameters import Surroundings
from privfed.estimators.registry import ESTIMATORS
from privfed.federation.clients import Clients, gather
from privfed.federation.request import protocol_of
from privfed.metrics.named import ASKS, METRICS, OF_LABELS, USUAL
from privfed.metrics.profiles import Profiles, clients_per_cluster, profiles
from privfed.protocols.secure_sums import SECURE_SUMS, made

if TYPE_CHECKING:
    from privfed.deep.estimators.base import FederatedModel

OF_ONE = ("inertia", "mean_distance", "score")
"""Metrics that one cluster has, too."""


def models() -> Any:
    """Return the module of runs that train models, which other runs do not import."""
    return PARTS.find("models")


def _trains(kind: object) -> bool:
    """Say whether a registered estimator trains models."""
    return isinstance(kind, type) and issubclass(kind, Surroundings) and kind.trains


def schemas() -> Any:
    """Return the module of schemas, which runs without one do not import."""
    return PARTS.find("schemas")


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
    name, values = parameters.algorithm, dict[str, Any](parameters.values)
    if name == "lloyd" and values.get("local_iter", 1) != 1:
        steps = values["local_iter"]
        raise ArgumentError(f"lloyd takes one local step, got --local-iter {steps}; take --algorithm dwf.")
    kind = ESTIMATORS.resolve(name)
    trains = _trains(kind)
    model: Any = kind() if trains else estimator_of(name, {})
    taken = model.get_params(deep=False)
    values = surroundings_of({**values, **parameters.declared.parameters(), "run_dir": folder})
    unknown = sorted(set(values) - set(taken))
    if unknown:
        listed = ", ".join(f"{one}=" for one in unknown)
        raise ArgumentError(f"--algorithm {name} takes no {listed} here; leave it out.")
    if "n_clusters" in taken:
        values["n_clusters"] = parameters.n_clusters
    if trains:
        values |= {"n_classes": len(classes)} if classes else {}
        values |= {"model": models().model_named(values["model"])} if "model" in values else {}
    elif values.get("merge") == "slotted" and "gathered_sums" in dir(model):
        # In Python slots belong to the secure sum. Here --merge asks for them, for as many sums as need them.
        from privfed.protocols.slotted import Slotted

        merged = model.set_params(**values)
        values["protocol"] = Slotted(protocol_of(merged.protocol), sums=merged.gathered_sums)
    return cast("FederatedClusterer | FederatedModel", model.set_params(**values))


def surroundings_of(values: dict[str, Any]) -> dict[str, Any]:
    """Return parameters with a secure sum in place of "module:Name", and a policy in place of a group size.

    Raises:
        ArgumentError: the sum cannot be imported, or not be made without arguments.
    """
    values = dict(values)
    if (size := values.pop("group_size", None)) is not None:
        values["policy"] = ClientPolicy(group_size=size)
    typed = values.get("protocol")
    if isinstance(typed, str) and typed not in SECURE_SUMS:
        values["protocol"] = made(typed, SECURE_SUMS.resolve(typed))
    return values


def needed_by_a_claim(parameters: Parameters, classes: Sequence[str]) -> list[str]:
    """Return the options that differential privacy needs for an algorithm, and that are missing.

    Args:
        parameters: of the run.
        classes: that are declared.
    """
    kind, declared = ESTIMATORS.resolve(parameters.algorithm), parameters.declared
    if not declared.claims or not _trains(kind):
        return []
    missing = [] if classes else ["--classes"]
    if declared.unit != Unit.CLIENT:
        missing += [] if "rows_per_client" in parameters.values else ["--rows-per-client"]
        missing += [] if declared.noise == Noise.LOCAL else ["--noise local"]
    return missing


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
        "protocol": (str(parameters.values["protocol"]), protocol, SECURE_SUMS),
    }
    if "model" in parameters.values or model is not None:
        kept = str(parameters.values.get("model", "softmax"))
        named["model"] = (kept, model, models().MODELS)
    for option, (kept, given, registry) in named.items():
        if given is not None and given != kept:
            raise RunFolderError(f"{folder} was begun with --{option} {kept}, got --{option} {given}.")
        if given is None and kept not in registry:
            raise RunFolderError(
                f"{folder} uses {kept!r}, which is not registered here. No name in a file is imported: name "
                f"it again: privfed {command} {folder} --{option} {kept}"
            )


def know_questions(folder: Path, algorithm: str | None, command: str, model: str | None = None) -> None:
    """Import the algorithm and model of a run, so that what it asked can be read from its transcript.

    Args:
        folder: folder of the run; where it has no `run.json`, only what was typed is imported.
        algorithm: the algorithm as it was typed now; None if it was not.
        command: the command that runs, for messages.
        model: the model, likewise.

    Raises:
        ArgumentError: nothing can be imported by this name.
        RunFolderError: the run has an algorithm or model of the user's own, which was not named, or another
            one was.
    """
    if (folder / RUN).exists():
        parameters = read_run(folder).parameters
        check_own(folder, parameters, algorithm, str(parameters.values["protocol"]), model, command)
        ESTIMATORS.resolve(parameters.algorithm)
    elif algorithm is not None:
        ESTIMATORS.resolve(algorithm)
    if model is not None:
        models().registered(model)


def declared_with(source: Source, declared: Declared) -> Declared:
    """Return what is declared, with the schema's ranges as its domain where there is a schema.

    Raises:
        ArgumentError: an option says what the schema says.
        PrivacyError: differential privacy is claimed, and a row could cause an error.
    """
    if source.schema is None:
        return declared
    said = [
        source.columns or None,
        source.drop or None,
        source.separator,
        source.missing,
        declared.low,
        declared.high,
    ]
    if any(one is not None for one in said):
        raise ArgumentError(
            "the schema says what --columns, --drop, --separator, --missing, --low and --high would; leave "
            "them out."
        )
    return schemas().declared_by(schemas().parse(source.schema), declared)  # type: ignore[no-any-return]


def load(source: Source, *, private: bool, gaps: Collection[str] = ()) -> ClientTables:
    """Load the clients of a run; under differential privacy they are declared, and may have no rows.

    In a schema's columns `gaps` a missing value is NaN.
    """
    classes, label, drop = source.classes or None, source.label, source.drop
    if private and classes is None and label is not None:
        # Labels have no public codes, and clusterings under a claim need none; their column is no feature.
        drop, label = () if source.columns else (*drop, label), None
    if source.schema is not None:
        return cast(
            ClientTables,
            schemas().load_described(
                Path(source.path),
                schemas().parse(source.schema),
                group=source.group,
                label=label,
                classes=classes,
                id=source.id,
                clients=source.clients or None,
                private=private,
                gaps=gaps,
            ),
        )
    return load_clients(
        source.path,
        group=source.group,
        label=label,
        classes=classes,
        id=source.id,
        columns=source.columns or None,
        drop=drop,
        separator=source.separator,
        clients=source.clients or None,
        private=private,
        missing=cast(Any, source.missing),
    )


def other_columns(transcript: Transcript, columns: tuple[str, ...]) -> str | None:
    """Return that rows were read from other columns than a run's; None where not, or arrays have no names."""
    agreed, of_arrays = transcript.configuration.columns, tuple(f"x{i}" for i in range(len(columns)))
    if agreed is None or columns == agreed or (columns == of_arrays and len(columns) == len(agreed)):
        return None
    return (
        f"the rows are of the columns {', '.join(columns)}, and the run is of {', '.join(agreed)}, in this "
        "order; name these with --columns."
    )


def write_in_units(folder: Path, source: Source, centers: FloatArray) -> None:
    """Write centers as people read them, where a schema says what the columns mean."""
    for name, values in schemas().in_files(source.schema, centers).items() if source.schema else ():
        write_table(folder / name, values)


def check_several(tables: ClientTables, path: str, protocol: object) -> None:
    """Check that a secure sum has several clients.

    Raises:
        ArgumentError: there is one, over a protocol that cannot protect it.
    """
    if len(tables.names) == 1 and protocol != "plain":
        raise ArgumentError(
            f"{path} holds one client, whom protocol {protocol!r} cannot protect; name the column that tells "
            "clients apart with --group, or take --protocol plain."
        )


def clients_of(tables: ClientTables, run: Run) -> Clients:
    """Return the clients, checked against the parameters of the run.

    Raises:
        ArgumentError: there are more clusters than rows, or one client over a protocol that needs several.
        DataError: rows lie outside the declared domain.
    """
    private = run.parameters.declared.epsilon is not None
    n_rows, wanted = sum(len(rows) for rows in tables.arrays), run.parameters.n_clusters
    # Under differential privacy no error may depend on the number of rows or on rows outside the domain.
    if wanted > n_rows and not private and not run.source.classes:
        raise ArgumentError(f"{wanted} clusters cannot be found in {n_rows} rows; take a smaller -k.")
    check_several(tables, run.source.path, run.parameters.values["protocol"])
    labels: Any = None if run.source.label is None else tables.labels
    if run.source.classes:
        labels = labels_of(tables, run.source.classes)
        if not private and run.source.missing is None:
            check_labels(tables.names, labels)
    declared = run.parameters.declared
    return gather(clipped(labelled(tables, labels), declared), domain=declared.domain(), private=private)


def labels_of(tables: ClientTables, classes: Sequence[str]) -> list[Any]:
    """Return each client's labels as codes of the classes; -1 for a label that is none of them."""
    codes = {name: code for code, name in enumerate(classes)}
    recoded = np.array([*[codes.get(str(name), -1) for name in tables.label_names or ()], -1], dtype=np.int64)
    return [recoded[np.asarray(labels)] for labels in tables.labels or ()]


def check_labels(names: Sequence[str], labels: Sequence[Any]) -> None:
    """Check that each row has one of the classes.

    Raises:
        DataError: some have none; the message names the client and how many.
    """
    for name, codes in zip(names, labels, strict=True):
        if odd := int((codes < 0).sum()):
            raise DataError(
                f"client {name!r} has {odd} rows whose labels are none of the classes; name all classes "
                'with classes=, or leave such rows out of training with missing="leave-out".'
            )


def clipped(tables: ClientTables, declared: Declared) -> ClientTables:
    """Return the clients with values outside the declared domain at its nearest end, where that is asked."""
    domain = declared.domain()
    if domain is None or not declared.clip:
        return tables
    low, high = domain.bounds(len(tables.columns))
    return with_rows(tables, lambda rows: np.clip(rows, low, high))


def with_rows(tables: ClientTables, mapped: Callable[[FloatArray], FloatArray]) -> ClientTables:
    """Return the clients with rows that a function maps, each by itself."""
    return replace(tables, tables=tuple(replace(one, features=mapped(one.features)) for one in tables.tables))


def labelled(tables: ClientTables, labels: Sequence[Any] | None) -> ClientTables:
    """Return clients with other labels, or without; their rows are grouped within classes."""
    own = [None] * len(tables.tables) if labels is None else labels
    found = (replace(table, labels=codes) for table, codes in zip(tables.tables, own, strict=True))
    return replace(tables, tables=tuple(found), label_names=None)


def check_metrics(names: Sequence[str], n_clusters: int, *, private: bool, labels: bool = False) -> None:
    """Check the metrics that are asked for; own ones are imported, as a person typed them.

    Args:
        names: of the metrics.
        n_clusters: of the centroids.
        private: whether the run has spent its budget on its fit.
        labels: whether scores of labels are among those that may be asked.

    Raises:
        ArgumentError: one is unknown, named twice, or compares clusters where there is one; or the run is
            private, whose budget its fit spends.
    """
    known = [one for one in METRICS.names() if one in ASKS or is_own(one)]
    known = [one for one in known if labels or one not in OF_LABELS]
    for name in names:
        if (name not in known and ":" not in name) or names.count(name) > 1:
            twice = names.count(name) > 1
            raise ArgumentError(
                f"--metrics names {name!r} {names.count(name)} times; name it once."
                if twice
                else f"there is no metric {name!r}; take {', '.join(known)}, or MODULE:NAME of your own."
            )
        if not callable(METRICS.resolve(name)):
            raise ArgumentError(f"--metrics takes functions of clients and centers, and {name} is none.")
        if n_clusters < 2 and name not in OF_ONE and not is_own(name):
            raise ArgumentError(f"--metrics {name} compares clusters; take -k 2 or more, or leave it out.")
    if names and private:
        raise ArgumentError(
            "--metrics releases further totals, and --epsilon is spent on the fit; leave it out, and ask "
            "afterwards with privfed measure, or privfed flower measure."
        )


def is_own(metric: str) -> bool:
    """Say whether a metric is not privfed's own."""
    return ":" in metric or metric in METRICS.added()


def agree_on(
    model: FederatedClusterer, names: Sequence[str], n_labels: int | None, profile: bool = False
) -> None:
    """Set what the clients agree to be asked after the fit, where that is not the usual: metrics, labels.

    An own metric does not say beforehand what it asks: each metric is then an agreement of its own.
    """
    if any(map(is_own, names)) or (not names and n_labels is None and not profile):
        return
    profiles = ("profiles", "clients_per_cluster") if profile else ()
    metrics: dict[str, dict[str, Any]] = {name: {} for name in (*(names or USUAL), *profiles)}
    if n_labels is not None:
        metrics["labels_agreement"] = {"n_labels": n_labels}
    model.set_params(metrics=metrics)


def measured(model: FederatedClusterer, names: Sequence[str]) -> dict[str, float | None]:
    """Ask the fitted model's clients for each metric; None where an index is not defined."""
    found: dict[str, float | None] = {}
    for name in names:
        try:
            found[name] = float(METRICS.resolve(name)(model.federation_, model.cluster_centers_))
        except UndefinedIndexError:
            found[name] = None
    return found


def profile_of(model: FederatedClusterer) -> Profiles:
    """Ask a fitted model's clients for its clusters' profiles, and return them in the columns' units."""
    there = clients_per_cluster(model.federation_, model.cluster_centers_)
    found = replace(profiles(model.federation_, model.cluster_centers_), clients=there)
    scaling = model.scaling_
    return found if scaling is None else found.mapped(np.array(scaling.shift), np.array(scaling.scale))
