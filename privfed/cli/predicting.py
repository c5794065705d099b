"""The work of `privfed predict`: rows read as the fit read them, and the cluster or class of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from privfed.cli.declared import Declared
from privfed.cli.described import check_own, models, schemas
from privfed.cli.result import TrainedResult, holds_models, in_columns_units
from privfed.cli.run_folder import (
    ASKED,
    CLASSES,
    MERGED,
    MODEL,
    RESULT_FORMAT,
    RUN,
    SCHEMA,
    SELECTION,
    Centroids,
    Classes,
    Source,
    read_centroids,
    read_result,
    read_run,
)
from privfed.core.stored.files import make_folder
from privfed.core.values.domain import FloatArray
from privfed.data.conversion import as_text
from privfed.data.features import features_in, frame_of
from privfed.data.table import ERROR, NO_LABEL, missing_rule, natural_key
from privfed.data.table_files import STDIN, files_of, is_folder, stem, suffix, write_table
from privfed.errors import ArgumentError, DataError, RunFolderError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.mixtures import FederatedGaussianMixture
from privfed.estimators.saving import load
from privfed.estimators.scaling import Scaling
from privfed.numerics.kernels.dispatch import assign

if TYPE_CHECKING:
    from privfed.tables.schema import Schema

ALL = ("all",)
"""What `--keep` says for all columns."""

KeptColumns = dict[str, NDArray[Any]]
"""Columns that are written beside what is found."""


def predict(run_folder: Path, data: Path, out: Path | None, out_folder: Path | None, **given: Any) -> None:
    """Do the work of `privfed predict`.

    Raises:
        ArgumentError: there is no place for what is found in a folder's tables, or too many; or the place is
            that of the rows.
    """
    several = data != STDIN and is_folder(data)
    if several != (out_folder is not None) or (several and out is not None):
        raise ArgumentError(
            f"{data} is a folder with a table of each client; name a new folder for what is found with "
            "--out-folder, and leave --out out."
            if several
            else f"--out-folder is for a folder of tables, and {data} is one table; take --out."
        )
    if out is not None and data != STDIN and out.exists() and out.samefile(data):
        raise ArgumentError(f"--out {out} is the table of the rows, and would be lost; name another file.")
    if out_folder is None:
        return _predict(run_folder, data, out, **given)
    paths = sorted(files_of(data), key=lambda path: natural_key(stem(path)))
    if out_folder.exists() and (not out_folder.is_dir() or any(out_folder.iterdir())):
        raise ArgumentError(f"{out_folder} exists and is not an empty folder; name a new one.")
    make_folder(out_folder)
    for path in paths:
        _predict(
            run_folder, path, out_folder / f"{stem(path)}.csv", **given, claim_was_printed=path != paths[0]
        )
    return None


def _predict(
    run_folder: Path,
    data: Path,
    out: Path | None,
    schema: Path | None,
    separator: str | None,
    keep: tuple[str, ...] | None,
    cluster: int | None,
    model: str | None,
    merged: bool,
    claim_was_printed: bool = False,
) -> None:
    """Write what is found in one table; `claim_was_printed` says whether the claim was printed before."""
    read, trained = read_before(run_folder), None
    if (run_folder / RUN).exists() and holds_models(run_folder):
        if schema is not None:
            raise ArgumentError(f"{run_folder} trained models, which take no --schema; leave it out.")
        parameters = read_run(run_folder).parameters
        protocol = str(parameters.values["protocol"])
        check_own(run_folder, parameters, parameters.algorithm, protocol, model, "predict")
        found = read_result(run_folder, TrainedResult)
        trained = Classes(found.columns, found.classes)
    elif (run_folder / CLASSES).exists():
        trained = read_result(run_folder, Classes, CLASSES)
    if trained is not None:
        rows, kept, kept_columns = _rows(run_folder, data, trained.columns, read, schema, separator, keep)
        _classes(
            run_folder, trained.classes, rows, kept, out, cluster, model, kept_columns, claim_was_printed
        )
        return
    if cluster is not None:
        raise ArgumentError("--cluster is for runs that trained models; leave it out.")
    known = centroids_of(run_folder)
    rows, kept, kept_columns = _rows(run_folder, data, known.columns, read, schema, separator, keep)
    found_clusters = _nearest(run_folder, known, rows)
    if merged:
        joined = read_result(run_folder, dict[str, Any], MERGED, "merge")["joined"]
        found_clusters = np.array(joined)[found_clusters]
    labels = np.where(kept, found_clusters, NO_LABEL)
    if known.privacy is not None and not claim_was_printed:
        line = known.privacy.line
        click.echo(f"privfed: for the centroids, not for the clusters of DATA's rows: {line}", err=True)
    _write(out, kept_columns, "cluster", labels)


def _nearest(run_folder: Path, known: Centroids, rows: FloatArray) -> NDArray[Any]:
    """Return the cluster of each row: of a mixture the likeliest, else that of the nearest center."""
    with suppress(RunFolderError):  # Of a class of the user's own there are centers alone.
        if isinstance(model := load(run_folder), FederatedGaussianMixture):
            return np.asarray(model.predict(rows))
    scaling, centers = Scaling.from_dict(known.scaling), np.array(known.centroids, dtype=np.float64)
    if scaling is not None:
        rows, centers = scaling.scaled(rows), scaling.scaled(centers)
    return assign(rows, centers)


def _rows(
    run_folder: Path,
    data: Path,
    columns: tuple[str, ...],
    read: _Read | None,
    schema: Path | None,
    separator: str | None,
    keep: tuple[str, ...] | None,
) -> tuple[FloatArray, NDArray[np.bool_], KeptColumns]:
    """Return rows as a run read its own, which of them are kept, and columns to keep."""
    described = schema_of(run_folder, read, columns, schema)
    if described is None:
        with _with("If the nodes have a schema, name it with --schema." if read is None else ""):
            return _numbers(data, columns, read, separator, keep)
    new = schema is None and stem(data) not in described.files
    hint = f"A copy of the schema with [files.{stem(data)}] is named with --schema." if new else ""
    with _with(hint):
        return cast(
            tuple[FloatArray, NDArray[np.bool_], KeptColumns], schemas().rows_of(data, described, keep)
        )


@contextmanager
def _with(hint: str) -> Iterator[None]:
    """Say what else helps where rows cannot be read."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{error} {hint}".rstrip()) from None


class _Read(msgspec.Struct, frozen=True):
    """Says how a fit or a selection read its rows."""

    source: Source
    declared: Declared


def read_before(folder: Path) -> _Read | None:
    """Return how the rows of a fit or a selection were read; None for a run over Flower."""
    if (folder / RUN).exists():
        run = read_run(folder)
        return _Read(source=run.source, declared=run.parameters.declared)
    return read_result(folder, _Read, ASKED) if (folder / ASKED).exists() else None


def schema_of(folder: Path, read: _Read | None, columns: tuple[str, ...], path: Path | None) -> Schema | None:
    """Return what the columns of DATA mean: as the run says, or as a file says with the same features.

    Raises:
        ArgumentError: the run has no schema, or one in which a feature means something else.
    """
    if read is None:
        own = schemas().read_schema(folder / SCHEMA) if (folder / SCHEMA).exists() else None
    else:
        own = None if read.source.schema is None else schemas().parse(read.source.schema)
    if path is None:
        return own
    if read is not None and own is None:
        raise ArgumentError(f"{folder} was fitted without a schema; leave --schema out.")
    given: Schema = schemas().read_schema(path)
    if given.features != columns:
        raise ArgumentError(
            f"{path} has the features {', '.join(given.features)}, and {folder} has {', '.join(columns)}; "
            "name the schema that it was fitted with, or a copy with further [files]."
        )
    if own is not None:
        schemas().check_meaning(own, given, folder, path)
    return given


def _numbers(
    data: Path,
    columns: tuple[str, ...],
    read: _Read | None,
    separator: str | None,
    keep: tuple[str, ...] | None,
) -> tuple[FloatArray, NDArray[np.bool_], KeptColumns]:
    """Return rows after the run's rules for gaps and range, which of them are kept, and columns to keep.

    The table is read once, as standard input can be.
    """
    frame = frame_of(data, separator)
    rule = ERROR if read is None or read.source.missing is None else missing_rule(read.source.missing)
    rows, kept = features_in(frame, columns, data, rule)
    domain = None if read is None or not read.declared.clip else read.declared.domain()
    if domain is not None:
        rows = np.clip(rows, *domain.bounds(len(columns)))
    # A row that was left out is given numbers, as kernels take no others, and gets no cluster.
    # The ids that the fit named are written beside what is found.
    return (
        np.where(kept[:, None], rows, 0.0),
        kept,
        _columns_to_keep(
            data, frame, keep or tuple(one for one in frame.columns if read and one == read.source.id)
        ),
    )


def _columns_to_keep(data: Path, frame: pl.DataFrame, keep: tuple[str, ...] | None) -> KeptColumns:
    """Return the columns of a table that are written beside what is found, as text.

    Raises:
        ArgumentError: its columns have no names.
        DataError: it has no such column.
    """
    if not keep:
        return {}
    if suffix(data) == ".npz":
        raise ArgumentError(f"--keep needs a file whose columns have names, got {data}; name a CSV file.")
    for name in () if keep == ALL else keep:
        if name not in frame.columns:
            raise DataError(f"{data} has no column {name!r} to keep; it has {', '.join(frame.columns)}.")
    text = as_text(data, frame)
    return {name: text[name].to_numpy() for name in (text.columns if keep == ALL else keep)}


def centroids_of(folder: Path) -> Centroids:
    """Return columns, centroids and claim from the folder of a fit, a selection or a run over Flower.

    Raises:
        RunFolderError: the folder holds none of them, or the run there is not finished.
    """
    if (folder / SELECTION).exists() and not (folder / RUN).exists():
        return read_centroids(folder, SELECTION)
    if (folder / RUN).exists() or not (folder / MODEL).exists():
        read_run(folder)
        return read_centroids(folder)
    model = load(folder / MODEL)
    columns = vars(model).get("feature_names_in_")
    if not isinstance(model, FederatedClusterer):
        raise RunFolderError(
            f"{folder} holds models of {type(model).__name__}, which have no centroids, and does not name "
            "their classes; in Python, privfed.load reads them, and predict and score take rows."
        )
    if columns is None:
        raise RunFolderError(
            f"the model in {folder} does not name its columns; in Python, privfed.load reads it, and its "
            "predict takes rows."
        )
    scaling = None if model.scaling_ is None else model.scaling_.to_dict()
    return Centroids(
        tuple(columns), in_columns_units(model).tolist(), model.privacy_claim_, RESULT_FORMAT, scaling
    )


def _classes(
    run_folder: Path,
    classes: tuple[str, ...],
    rows: FloatArray,
    kept: NDArray[np.bool_],
    out: Path | None,
    cluster: int | None,
    own: str | None,
    kept_columns: KeptColumns,
    claim_was_printed: bool,
) -> None:
    model: Any = load(run_folder / MODEL)
    if cluster is None and len(model.models_) > 1:
        raise ArgumentError(f"the run trained {len(model.models_)} models: name one with --cluster.")
    if own is not None:
        model.set_params(model=models().model_named(own))
    codes = model.predict(rows, cluster or 0)
    if model.privacy_claim_ is not None and not claim_was_printed:
        line = model.privacy_claim_.line
        click.echo(f"privfed: for the models, not for the classes of DATA's rows: {line}", err=True)
    _write(out, kept_columns, "class", np.where(kept, np.array(classes)[codes], ""))


def _write(out: Path | None, kept_columns: KeptColumns, name: str, found: NDArray[Any]) -> None:
    if name in kept_columns:
        raise ArgumentError(f"DATA has a column {name!r}, too; name the columns to --keep without it.")
    columns = {**kept_columns, name: found}
    if out is not None:
        write_table(out, columns)
        return
    click.echo(pl.DataFrame(columns).write_csv(), nl=False)
