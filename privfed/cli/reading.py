"""The work of `privfed predict` and `privfed summary`: clusters of new rows, and a summary of all rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from privfed.cli.declared import declared_of
from privfed.cli.described import check_own, check_several, clipped, declared_with, surroundings_of
from privfed.cli.described import load as load_rows
from privfed.cli.output import echo
from privfed.cli.result import (
    ROWS,
    TrainedResult,
    claim_of_run,
    holds_models,
    in_columns_units,
    measured_on,
    to_json,
)
from privfed.cli.run_folder import (
    ASKED,
    MODEL,
    RESULT_FORMAT,
    RUN,
    SELECTION,
    Centroids,
    Source,
    pretty,
    read_centroids,
    read_result,
    read_run,
    read_transcript,
    source_of,
    values_of,
)
from privfed.core.names import imported
from privfed.core.record.transcript import has_begun
from privfed.core.stored.files import make_folder
from privfed.core.values.domain import FloatArray
from privfed.data import load_features
from privfed.data.described_tables import read_described, text_frame
from privfed.data.schema import ID, File, parse
from privfed.data.table import NO_LABEL, natural_key
from privfed.data.table_files import STDIN, files_of, is_folder, stem, suffix, write_table
from privfed.errors import ArgumentError, DataError, RunFolderError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.moments import FederatedSummary
from privfed.estimators.saving import load
from privfed.estimators.scaling import Scaling
from privfed.numerics.kernels.dispatch import assign
from privfed.privacy.claim import one_line

ALL = ("all",)
"""What `--keep` says for all columns."""


def predict(run_folder: Path, data: Path, out: Path | None, out_folder: Path | None, **given: Any) -> None:
    """Do the work of `privfed predict`.

    Raises:
        ArgumentError: there is no place for what is found in a folder's tables, or too many.
    """
    several = data != STDIN and is_folder(data)
    if several != (out_folder is not None) or (several and out is not None):
        raise ArgumentError(
            f"{data} is a folder with a table of each client; name a new folder for what is found with "
            "--out-folder, and leave --out out."
            if several
            else f"--out-folder is for a folder of tables, and {data} is one; take --out."
        )
    if out_folder is None:
        return _predict(run_folder, data, out, **given)
    paths = sorted(files_of(data), key=lambda path: natural_key(stem(path)))
    if out_folder.exists() and (not out_folder.is_dir() or any(out_folder.iterdir())):
        raise ArgumentError(f"{out_folder} exists and is not an empty folder; name a new one.")
    make_folder(out_folder)
    for path in paths:
        _predict(run_folder, path, out_folder / f"{stem(path)}.csv", **given, told=path != paths[0])
    return None


def _predict(
    run_folder: Path,
    data: Path,
    out: Path | None,
    separator: str | None,
    keep: tuple[str, ...] | None,
    cluster: int | None,
    model: str | None,
    told: bool = False,
) -> None:
    """Write what is found in one table; `told` says whether the claim was printed before."""
    if (run_folder / RUN).exists() and holds_models(run_folder):
        parameters = read_run(run_folder).parameters
        protocol = str(parameters.values["protocol"])
        check_own(run_folder, parameters, parameters.algorithm, protocol, model, "predict")
        rows = load_features(data, read_result(run_folder, TrainedResult).columns, separator=separator)
        _classes(run_folder, rows, out, cluster, model, _beside(data, separator, keep), told)
        return
    source = _source_of(run_folder)
    if cluster is not None:
        raise ArgumentError("--cluster is for runs that trained models; leave it out.")
    known = centroids_of(run_folder)
    kept = None
    if source is None or source.schema is None:
        rows, beside = load_features(data, known.columns, separator=separator), _beside(data, separator, keep)
    else:
        schema = parse(source.schema)
        read = read_described(data, schema, also=None if keep == ALL else keep or ()).checked()
        rows, kept = read.features, read.kept
        wanted = read.frame.columns if keep == ALL else (*schema.of(ID), *(keep or ()))
        there = [name for name in dict.fromkeys(wanted) if name in read.frame.columns]
        beside = {name: read.frame[name].to_numpy() for name in there}
    scaling, centers = Scaling.from_dict(known.scaling), np.array(known.centroids, dtype=np.float64)
    if scaling is not None:
        rows, centers = scaling.scaled(rows), scaling.scaled(centers)
    labels = assign(rows, centers)
    if kept is not None:
        labels = np.where(kept, labels, NO_LABEL)
    claim = known.privacy
    if known.format == 1 and has_begun(run_folder):
        claim = claim_of_run(run_folder, read_transcript(run_folder))
    if claim is not None and not told:
        click.echo(f"privfed: for the centroids, not for the clusters of DATA's rows: {claim.line}", err=True)
    _write(out, beside, "cluster", labels)


def _beside(data: Path, separator: str | None, keep: tuple[str, ...] | None) -> dict[str, NDArray[Any]]:
    """Return the columns of a table that are written beside what is found, as text.

    Raises:
        ArgumentError: the table cannot be read a second time.
        DataError: it has no such column.
    """
    if not keep:
        return {}
    if data == STDIN or suffix(data) == ".npz":
        raise ArgumentError(f"--keep needs a file whose columns have names, got {data}; name a CSV file.")
    frame = text_frame(data, File(separator=separator))
    for name in () if keep == ALL else keep:
        if name not in frame.columns:
            raise DataError(f"{data} has no column {name!r} to keep; it has {', '.join(frame.columns)}.")
    return {name: frame[name].to_numpy() for name in (frame.columns if keep == ALL else keep)}


class _Sourced(msgspec.Struct, frozen=True):
    source: Source


def _source_of(folder: Path) -> Source | None:
    """Return where the rows of a fit or a selection came from; None for a run over Flower."""
    if (folder / RUN).exists():
        return read_run(folder).source
    return read_result(folder, _Sourced, ASKED).source if (folder / ASKED).exists() else None


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
            f"{folder} holds a {type(model).__name__}, whose classes this folder does not name; in Python, "
            "privfed.load reads it, and its predict takes rows."
        )
    if columns is None:
        raise RunFolderError(
            f"the model in {folder} does not name its columns; in Python, privfed.load reads it, and its "
            "predict takes rows."
        )
    scaling = None if model.scaling_ is None else model.scaling_.to_dict()
    centers = in_columns_units(model).tolist()
    return Centroids(tuple(columns), centers, model.privacy_claim_, RESULT_FORMAT, scaling)


def _classes(
    run_folder: Path,
    rows: FloatArray,
    out: Path | None,
    cluster: int | None,
    own: str | None,
    beside: dict[str, NDArray[Any]],
    told: bool,
) -> None:
    known = read_result(run_folder, TrainedResult)
    if cluster is None and known.n_clusters > 1:
        raise ArgumentError(f"the run trained {known.n_clusters} models: name one with --cluster.")
    model = load(run_folder / MODEL)
    if own is not None:
        model.set_params(model=imported(own))
    codes = model.predict(rows, cluster or 0)
    if model.privacy_claim_ is not None and not told:
        line = model.privacy_claim_.line
        click.echo(f"privfed: for the models, not for the classes of DATA's rows: {line}", err=True)
    _write(out, beside, "class", np.array(known.classes)[codes])


def _write(out: Path | None, beside: dict[str, NDArray[Any]], name: str, found: NDArray[Any]) -> None:
    if name in beside:
        raise ArgumentError(f"DATA has a column {name!r}, too; name the columns to --keep without it.")
    columns = {**beside, name: found}
    if out is not None:
        write_table(out, columns)
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(one.tolist() for one in columns.values()), strict=True))
    click.echo(text.getvalue(), nl=False)


def summary(data: Path, as_json: bool, bins: int | list[float] | None, between: bool, **given: Any) -> None:
    """Do the work of `privfed summary`."""
    source = source_of(data, given)
    declared = declared_with(source, declared_of(given))
    declared.check_claim(*source.undeclared)
    tables = clipped(load_rows(source, private=declared.epsilon is not None), declared)
    check_several(tables, source.path, given["protocol"])
    surroundings = surroundings_of({**declared.parameters(), **values_of(given)})
    found = FederatedSummary(bins, between=between, **surroundings)
    found.fit(tables)
    if as_json:
        click.echo(pretty(summarized(found, tables.columns)), nl=False)
    else:
        print_summary(found, tables.columns)


APART = 0.5
"""Share of a column's variance between clients above which they do not look alike."""

FEW = 10
"""Rows a client below which means differ anyway."""

ENDS = "lowest, highest: ends of the declared domain, else of public bins around all rows"

NOISE = "; \u00b1: standard deviation of the noise"


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one column's histogram."""

    edges: list[float]
    counts: list[float]
    below: float
    above: float


class ColumnSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is known of one column; under a claim also the standard deviation of the noise."""

    name: str
    mean: float
    std: float
    low: float
    high: float
    mean_noise: float | None = None
    std_noise: float | None = None
    between: float | None = None
    histogram: Histogram | None = None


class Summarized(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what `privfed summary --json` prints."""

    rows: int
    columns: list[ColumnSummary]
    noise_std_of_counts: float | None
    privacy: dict[str, object] | None
    of: str = ROWS


def summarized(found: FederatedSummary, columns: Sequence[str]) -> Summarized:
    """Return a fitted summary with the names of its columns."""
    histograms: list[Any] = [None] * len(columns)
    if found.bins is not None:
        each = zip(found.edges_, found.histograms_, found.below_, found.above_, strict=True)
        histograms = [
            Histogram(edges=edges.tolist(), counts=counts.tolist(), below=float(below), above=float(above))
            for edges, counts, below, above in each
        ]
    ends = (found.mean_, found.std_, found.data_min_, found.data_max_)
    between = found.between_.tolist() if found.between else [None] * len(columns)
    noise: list[Any] = [[None] * len(columns)] * 2
    if found.privacy is not None:
        noise = [found.mean_error_.tolist(), (found.var_error_ / (2.0 * found.std_)).tolist()]
    numbers = zip(columns, *(one.tolist() for one in ends), *noise, between, histograms, strict=True)
    return Summarized(
        rows=found.n_samples_seen_,
        columns=[
            ColumnSummary(
                name=name,
                mean=mean,
                std=std,
                low=low,
                high=high,
                mean_noise=mean_noise,
                std_noise=std_noise,
                between=share,
                histogram=histogram,
            )
            for name, mean, std, low, high, mean_noise, std_noise, share, histogram in numbers
        ],
        noise_std_of_counts=None if found.bins is None else found.noise_std_,
        privacy=to_json(found.privacy_claim_),
        of=measured_on(found),
    )


def print_summary(found: FederatedSummary, columns: Sequence[str]) -> None:
    """Print a fitted summary as tables."""
    shown = summarized(found, columns)
    echo(*_tables(shown))
    if shown.noise_std_of_counts:
        print(f"standard deviation of the noise in a count: {shown.noise_std_of_counts:.3g} rows")
    apart = [one.name for one in shown.columns if (one.between or 0.0) > APART]
    if apart and shown.rows >= FEW * len(found.federation_.setting.clients):
        print(
            f"clients do not look alike in {', '.join(apart)}: most of the variance lies between their means."
            " Is one of them in another unit? Each can compare its own rows with mean and std."
        )
    print(one_line(found.privacy_claim_))


def _tables(shown: Summarized) -> Iterator[Table]:
    """Yield a table of all columns, then one for each histogram."""
    between = any(one.between is not None for one in shown.columns)
    table = Table("column", "mean", "std", "lowest", "highest", *(["between clients"] * between))
    of = "" if shown.of == ROWS else f"; all other numbers of {shown.of}"
    table.title, table.title_justify = f"{shown.rows} rows{of}", "left"
    noised = any(one.mean_noise is not None for one in shown.columns)
    table.caption, table.caption_justify = f"{ENDS}{NOISE if noised else ''}", "left"
    for one in shown.columns:
        numbers = ((one.mean, one.mean_noise), (one.std, one.std_noise), (one.low, None), (one.high, None))
        share = [] if one.between is None else [f"{one.between:.1%}"]
        table.add_row(one.name, *(_with_noise(*number) for number in numbers), *share)
    yield table
    for one in shown.columns:
        if one.histogram is not None:
            yield _bins(one.name, one.histogram)


def _with_noise(number: float, noise: float | None) -> str:
    return f"{number:.6g}" if noise is None else f"{number:.6g} \u00b1 {noise:.2g}"


def _bins(name: str, own: Histogram) -> Table:
    table = Table(name, "rows")
    table.columns[1].justify = "right"
    bins = [f"{low:.6g} to {high:.6g}" for low, high in zip(own.edges, own.edges[1:], strict=False)]
    for where, count in zip(bins, own.counts, strict=True):
        table.add_row(where, f"{count:.6g}")
    for where, count in ((f"below {own.edges[0]:.6g}", own.below), (f"above {own.edges[-1]:.6g}", own.above)):
        if count:
            table.add_row(where, f"{count:.6g}")
    return table
