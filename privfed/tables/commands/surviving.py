"""The work of `privfed survival`: which cluster lives longer, by columns that no cluster was found by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from privfed.cli.declared import declared_of
from privfed.cli.described import (
    check_several,
    clipped,
    declared_with,
    labelled,
    load,
    surroundings_of,
    with_rows,
)
from privfed.cli.measuring import check_columns, found_by
from privfed.cli.output import answer, table
from privfed.cli.run_folder import RUN, Source, pretty, read_run, source_of, values_of
from privfed.core.stored.files import rewrite
from privfed.data.table import ClientTables, LabelArray
from privfed.data.table_files import is_folder, stem
from privfed.errors import PrivacyError
from privfed.estimators.scaling import Scaling
from privfed.federation.opening import PAYMENT
from privfed.privacy.budget_file import check_run
from privfed.privacy.claim import one_line
from privfed.tables.described_tables import numbers_in
from privfed.tables.outcomes import labels_of
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
    grouped = (run_folder / RUN).exists() and read_run(run_folder).parameters.values.get("group_size", 1) != 1
    if not declared.claims and (known.privacy is not None or grouped):
        raise PrivacyError(
            f"noise or groups protect the rows of {run_folder}, and exact counts would undo it: claim "
            "differential privacy for the counts, too (--epsilon, or --budget)."
        )
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
    said = found.to_dict() | {"time": time}
    rewrite(run_folder / SURVIVAL, pretty(said))
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
            (time, *(f"cluster {i}" for i in range(len(centers)))),
            lines,
            f"share without event ({level:.0%} intervals), and rows at risk",
        ),
        f"log-rank test: chi-squared {found.statistic:.4g}, df {found.df}, p {found.p_value:.3g}",
        one_line(found.claim),
        f"Written: {run_folder / SURVIVAL}",
    )
    if picture:
        # Imported here, as matplotlib takes long to load.
        from privfed.plot import SurvivalDisplay, figure_of, save

        figure = figure_of(SurvivalDisplay(found, unit=time), claim=found.claim)
        save(figure, run_folder / "survival.png", found.claim)


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
