"""The work of `privfed measure`: private metrics of a run's centers, each asked once, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from privfed.cli.declared import Declared, declared_of
from privfed.cli.described import (
    check_metrics,
    check_several,
    clipped,
    declared_with,
    labelled,
    labels_of,
    surroundings_of,
    with_rows,
)
from privfed.cli.described import load as load_rows
from privfed.cli.output import answer
from privfed.cli.predicting import centroids_of, read_before, schema_of
from privfed.cli.run_folder import Centroids, pretty, source_of, values_of
from privfed.core.stored.files import locked, rewrite
from privfed.core.values.origin import Origin
from privfed.errors import ArgumentError, RunFolderError
from privfed.estimators.scaling import Scaling
from privfed.federation.opening import PAYMENT
from privfed.metrics.intervals import Estimate, with_intervals
from privfed.metrics.named import ASKS, OF_LABELS
from privfed.privacy.budget_file import check_run
from privfed.privacy.claim import one_line

MEASURED = "metrics.json"
"""In a run's folder: all metrics that were asked of its centers so."""


def measure(run_folder: Path, data: Path, metrics: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Do the work of `privfed measure`.

    Raises:
        ArgumentError: the rows have other columns than the run, or their numbers mean something else.
    """
    known = found_by(run_folder, given["schema"])
    source = source_of(data, given)
    if source.classes and source.label is None:
        raise ArgumentError("--classes are those of a column of labels: name it with --label.")
    check_asked(metrics, known, source.classes)
    declared = declared_with(source, for_each(metrics, given))
    declared.check_claim(*source.undeclared)
    if source.schema is None and not source.columns:
        source = msgspec.structs.replace(source, columns=known.columns, drop=())
    tables = load_rows(source, private=True)
    check_columns(run_folder, known, tables.columns, "name these with --columns")
    check_several(tables, source.path, given["protocol"])
    labels = labels_of(tables, source.classes) if source.classes else None
    clients = clipped(labelled(tables, labels), declared)
    if (scaling := Scaling.from_dict(known.scaling)) is not None:
        clients = with_rows(clients, scaling.scaled)
    print_measured(run_folder, metrics, known, declared, source.classes, as_json, given, clients)


def found_by(folder: Path, schema: Path | None) -> Centroids:
    """Return the centers of a run, whose numbers mean what those of rows read by a schema do.

    Raises:
        ArgumentError: the run had another schema.
    """
    known, read = centroids_of(folder), read_before(folder)
    if schema_of(folder, read, known.columns, schema) is not None and schema is None:
        raise ArgumentError(f"{folder} was fitted with a schema; name it with --schema.")
    return known


def check_asked(metrics: Sequence[str], known: Centroids, classes: Sequence[str]) -> None:
    """Check that metrics can be asked of a run's centers, before anything is paid.

    Raises:
        ArgumentError: one is unknown, has no bounded form, or needs classes that were not named.
    """
    check_metrics(metrics, len(known.centroids), private=False, labels=True)
    for name in metrics:
        if name not in ASKS:
            raise ArgumentError(f"measure asks metrics that have a bounded form, and {name} has none.")
        if name in OF_LABELS and not classes:
            raise ArgumentError(
                f"{name} compares clusters with labels: name all classes that there may be with --classes, "
                "and the column with --label. A list of classes that is read from the rows would reveal them."
            )


def check_columns(folder: Path, known: Centroids, columns: Sequence[str], remedy: str) -> None:
    """Check that rows have the columns of a run, in its order.

    Raises:
        ArgumentError: they have others.
    """
    if tuple(columns) != known.columns:
        raise ArgumentError(
            f"{folder} has the columns {', '.join(known.columns)}, got {', '.join(columns)}; {remedy}."
        )


def questions_of(metrics: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the metrics of each question that is asked: all scores of labels follow from one table."""
    of_labels = tuple(name for name in metrics if name in OF_LABELS)
    first = next(iter(of_labels), None)
    return [
        of_labels if name == first else (name,) for name in metrics if name == first or name not in OF_LABELS
    ]


def for_each(metrics: Sequence[str], given: dict[str, Any]) -> Declared:
    """Remove what is declared from the given options; return what each question is asked under.

    Raises:
        ArgumentError: no metric is named, or several without a budget, from which each has an equal part.
    """
    if not metrics:
        raise ArgumentError("name what is asked with --metrics.")
    asked = len(questions_of(metrics))
    if asked > 1 and given.get("share") is None:
        raise ArgumentError("each metric spends a claim: name one, or pay for all with --budget and --share.")
    if given.get("share") is not None:
        given["share"] /= asked
    declared = declared_of(given)
    if not declared.claims:
        raise ArgumentError("measure asks under differential privacy: claim it with --epsilon, or --budget.")
    return declared


def print_measured(
    folder: Path,
    metrics: Sequence[str],
    known: Centroids,
    declared: Declared,
    classes: Sequence[str],
    as_json: bool,
    given: dict[str, Any],
    clients: Any = None,
    **surroundings: Any,
) -> None:
    """Ask each metric, add it to the run's `metrics.json`, and print what was found with its claim.

    What was paid for is printed also where a later metric ends in an error.

    Raises:
        BudgetError: the budget's file is an older copy, or too little is left.
        RunFolderError: the file of metrics cannot be read or written, or is in use.
    """
    options = {**surroundings_of(values_of(given)), **surroundings}
    found, path, centers = list[Estimate](), folder / MEASURED, np.array(known.centroids)
    scaling, asked = Scaling.from_dict(known.scaling), questions_of(metrics)
    if scaling is not None:
        centers = scaling.scaled(centers)
    if declared.budget is not None:
        check_run(Path(declared.budget), folder / PAYMENT)
    with locked(folder / f".{MEASURED}"):
        before = _measured(path)
        try:
            for names in asked:
                own = msgspec.structs.replace(declared, purpose=declared.purpose or ", ".join(names))
                privacy: Any = own.privacy()
                if scaling is not None:
                    # The numbers of the scale are as public as the centers, of which is said what is claimed.
                    public = replace(scaling, origin=Origin.DECLARED)
                    privacy = replace(privacy, domain=public.domain(privacy.domain, len(known.columns)))
                more = {"n_labels": len(classes)} if names[0] in OF_LABELS else {"radius": known.radius}
                found += with_intervals(names, clients, centers, privacy=privacy, **more, **options)
                rewrite(path, pretty([*before, *(one.to_dict() for one in found)]))
        finally:
            if found:
                # Metrics of one command have the same claim, each question for itself.
                answer(
                    {"metrics": [one.to_dict() for one in found], "privacy": found[0].to_dict()["claim"]},
                    as_json,
                    *_said(found, known, len(asked)),
                    f"Written: {path}",
                )


def _said(found: Sequence[Estimate], known: Centroids, asked: int) -> list[str]:
    """Return metrics in words, what is claimed of them, and what is not."""
    of = "this metric" if len(found) == 1 else "these metrics together"
    if asked > 1:
        of = "each of these metrics" + ", scores of labels together" * (len(found) > asked)
    centroids = "the centroids" if known.scaling is None else "the centroids, and of their scale"
    return [
        *map(str, found),
        *([] if known.scaling is None else ["Distances are of scaled rows."]),
        *(
            ["They are of rows clipped as the fit clipped them, and do not see how far rows lie beyond."]
            if any(one.radius is not None for one in found)
            else []
        ),
        f"of {of}: {one_line(found[0].claim)}",
        f"of {centroids}: {'nothing is claimed' if known.privacy is None else known.privacy.line}",
        "Claims on the same rows add up.",
    ]


def _measured(path: Path) -> list[dict[str, Any]]:
    """Return what was measured before, from a file that can be written anew.

    Raises:
        RunFolderError: it is not what was written, or cannot be written.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=list[dict[str, Any]]) if path.exists() else []
        rewrite(path, pretty(found))
    except (OSError, msgspec.DecodeError) as error:
        raise RunFolderError(f"{path} cannot be added to ({error}); remove it, nothing was asked.") from None
    return found
