"""The work of `privfed survival` and `stability`: who lives longer, and whether clusters are found again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from privfed.cli.declared import Declared, declared_of
from privfed.cli.described import (
    check_several,
    clipped,
    declared_with,
    estimator,
    labelled,
    load,
    surroundings_of,
    with_rows,
)
from privfed.cli.measuring import check_columns, found_by
from privfed.cli.output import answer, table
from privfed.cli.run_folder import MODEL, RUN, Source, pretty, read_run, source_of, values_of
from privfed.core.stored.files import rewrite
from privfed.core.values.domain import FloatArray
from privfed.data.table import ClientTables, LabelArray
from privfed.data.table_files import is_folder, stem
from privfed.errors import PrivacyError
from privfed.estimators.saving import load as load_model
from privfed.estimators.scaling import Scaling
from privfed.federation.opening import PAYMENT
from privfed.metrics.profiles import plain
from privfed.metrics.stable import stability as stability_of
from privfed.privacy.budget_file import check_run
from privfed.privacy.claim import one_line
from privfed.tables.described_tables import numbers_in
from privfed.tables.outcomes import Survival, labels_of
from privfed.tables.outcomes import survival as survival_of
from privfed.tables.schema import File, parse

SURVIVAL = "survival.json"
"""In a run's folder: what was asked last."""


def survival(
    run_folder: Path,
    data: Path,
    time: str,
    event: str,
    happened: str,
    censored: str,
    edges: tuple[float, ...],
    level: float,
    picture: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Do the work of `privfed survival`.

    Raises:
        ArgumentError: the rows have other columns than the run, or an option is out of its bounds.
        DataError: without a claim, rows have no usable time or event.
        PrivacyError: exact counts would follow a run whose rows are protected by noise or by groups.
    """
    known = found_by(run_folder, given["schema"])
    # A row's time is read as an id is, as text; without one it is left out under a claim.
    source = source_of(
        data, given | {"label": event, "id": time, "classes": (censored, happened), "columns": ()}
    )
    given = {name: one for name, one in given.items() if name not in Source.__struct_fields__}
    declared = declared_with(source, declared_of(given))
    declared.check_claim(*source.undeclared)
    check_exact(run_folder, known.privacy is not None, declared)
    if source.schema is None:
        source = msgspec.structs.replace(source, columns=known.columns)
    tables = load(source, private=declared.claims)
    check_columns(run_folder, known, tables.columns, "name these in the table's header")
    check_several(tables, source.path, given["protocol"])
    rows = clipped(labelled(tables, _labels(tables, source, edges)), declared)
    rows = replace(rows, tables=tuple(replace(one, ids=None) for one in rows.tables))
    centers, options = (
        np.array(known.centroids),
        surroundings_of({**declared.parameters(), **values_of(given)}),
    )
    if (scaling := Scaling.from_dict(known.scaling)) is not None:
        rows, centers = with_rows(rows, scaling.scaled), scaling.scaled(centers)
        if declared.claims:
            options["privacy"] = replace(
                options["privacy"], domain=scaling.domain(options["privacy"].domain, len(known.columns))
            )
        options.pop("domain", None)
    if declared.budget is not None:
        check_run(Path(declared.budget), run_folder / PAYMENT)
    found = survival_of(rows, centers, edges=edges, level=level, **options)
    print_survival(run_folder, found, time, picture, as_json)


def print_survival(folder: Path, found: Survival, time: str, picture: bool, as_json: bool) -> None:
    """Print what was found, and keep it in a run's folder."""
    said = found.to_dict() | {"time": time}
    rewrite(folder / SURVIVAL, pretty(said))
    curves = np.stack([found.survival, found.low, found.high, found.at_risk], axis=-1)
    lines = [
        [
            f"{edge:g}",
            *(f"{s:.3f} ({low:.3f} to {high:.3f}), {n:.0f}" if s == s else "" for s, low, high, n in one),
        ]
        for edge, one in zip(found.edges, curves.tolist(), strict=True)
    ]
    lines += [
        ["median", *(f"{one:g}" if one < np.inf else "not reached" for one in found.median)],
        ["later", *(f"{one:.0f} at risk" for one in found.beyond)],
    ]
    answer(
        said,
        as_json,
        table(
            (time, *(f"cluster {i}" for i in range(len(found.beyond)))),
            lines,
            f"share without event ({found.level:.0%} intervals), and rows at risk",
        ),
        f"log-rank test: chi-squared {found.statistic:.4g}, df {found.df}, p {found.p_value:.3g}",
        one_line(found.claim),
        f"Written: {folder / SURVIVAL}",
    )
    if picture:
        # Imported here, as matplotlib takes long to load.
        from privfed.plot import SurvivalDisplay, figure_of, save

        figure = figure_of(SurvivalDisplay(found, unit=time), claim=found.claim)
        save(figure, folder / "survival.png", found.claim)


def check_exact(folder: Path, private: bool, declared: Declared) -> None:
    """Check that sums without noise may follow a run.

    Raises:
        PrivacyError: noise or groups protect its rows, and no claim is declared for the sums.
    """
    grouped = (folder / RUN).exists() and read_run(folder).parameters.values.get("group_size", 1) != 1
    if not declared.claims and (private or grouped):
        raise PrivacyError(
            f"noise or groups protect the rows of {folder}, and exact counts would undo it: claim "
            "differential privacy for the counts, too (--epsilon, or --budget)."
        )


def _labels(tables: ClientTables, source: Source, edges: Sequence[float]) -> list[LabelArray]:
    """Return the label of each client's rows, whose times its file writes as it writes other numbers."""
    files = {} if source.schema is None else parse(source.schema).files
    found, path = [], Path(source.path)
    for one, codes in zip(tables.tables, tables.labels or (), strict=True):
        file = files.get(one.name if is_folder(path) else stem(path), File())
        times = numbers_in(
            pl.Series(list(one.ids or ()), dtype=pl.String), file.decimal, file.thousands
        ).fill_null(np.nan)
        found.append(labels_of(times.to_numpy(), codes, edges))
    return found


STABILITY = "stability.json"
"""In a run's folder: how well each cluster was found again."""


def stability(run_folder: Path, parts: str, resamples: int, share: float, as_json: bool) -> None:
    """Do the work of `privfed stability`.

    Raises:
        ArgumentError: an option is out of its bounds.
        PrivacyError: the run has differential privacy, or groups of rows.
    """
    run = read_run(run_folder)
    fitted: Any = load_model(run_folder / MODEL)
    fitted.set_params(**estimator(run.parameters, run_folder).set_params(run_dir=None).get_params(deep=False))
    rows = clipped(load(run.source, private=False), run.parameters.declared).arrays
    found = stability_of(fitted, list(rows), parts=parts, n_resamples=resamples, share=share)
    print_stability(run_folder, found, as_json)


def print_stability(folder: Path, found: FloatArray, as_json: bool) -> None:
    """Print the mean coefficient of each cluster, and keep all in a run's folder."""
    known = np.isfinite(found)
    means = np.where(known, found, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    lost = (np.where(known, found, 1.0) <= HALF).sum(axis=0)
    result = {"coefficients": plain(found.tolist()), "means": means.tolist(), "dissolved": lost.tolist()}
    rewrite(folder / STABILITY, pretty(result))
    lines = (
        (f"cluster {i}", f"{mean:.3f}" if n else "", str(n), str(gone), _said(mean) if n else "no rows drawn")
        for i, (mean, n, gone) in enumerate(zip(means, known.sum(axis=0), lost, strict=True))
    )
    answer(
        result,
        as_json,
        table(
            ("", "mean Jaccard", "refits with its rows", "dissolved", ""),
            lines,
            "how well clusters are found again (Hennig 2007)",
        ),
        f"Written: {folder / STABILITY}",
    )


HALF = 0.5
"""Coefficient up to which a cluster dissolved."""


def _said(mean: float) -> str:
    """Return what a mean coefficient says, by Hennig's guide."""
    bounds = ((0.85, "highly stable"), (0.75, "valid"), (0.6, "a pattern, whose rows are doubtful"))
    return next((what for least, what in bounds if mean >= least), "not to be trusted")
