"""The work of `privfed measure`: private metrics of a run's centers, each asked once, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from privfed.cli.declared import Declared, declared_of
from privfed.cli.described import check_metrics, check_several, clipped, declared_with, surroundings_of
from privfed.cli.described import load as load_rows
from privfed.cli.output import answer
from privfed.cli.predicting import centroids_of, read_before, schema_of
from privfed.cli.run_folder import Centroids, pretty, source_of, values_of
from privfed.core.stored.files import locked, rewrite
from privfed.core.values.domain import frozen_array
from privfed.errors import ArgumentError, RunFolderError
from privfed.metrics.intervals import Estimate, with_interval
from privfed.metrics.named import ASKS
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
    declared = declared_with(source, for_each(metrics, given))
    declared.check_claim(*source.undeclared)
    if source.schema is None and not source.columns:
        source = msgspec.structs.replace(source, columns=known.columns, drop=())
    tables = load_rows(source, private=True)
    check_columns(run_folder, known, tables.columns, "name these with --columns")
    check_several(tables, source.path, given["protocol"])
    print_measured(run_folder, metrics, known, declared, as_json, given, clipped(tables, declared))


def found_by(folder: Path, schema: Path | None) -> Centroids:
    """Return the centers of a run, whose numbers mean what those of rows read by a schema do.

    Raises:
        ArgumentError: the run scaled its rows, or had another schema.
    """
    known, read = centroids_of(folder), read_before(folder)
    if known.scaling is not None:
        raise ArgumentError(f"{folder} scaled its rows with --scale; measure a run without it.")
    if schema_of(folder, read, known.columns, schema) is not None and schema is None:
        raise ArgumentError(f"{folder} was fitted with a schema; name it with --schema.")
    return known


def check_columns(folder: Path, known: Centroids, columns: Sequence[str], remedy: str) -> None:
    """Check that rows have the columns of a run, in its order.

    Raises:
        ArgumentError: they have others.
    """
    if tuple(columns) != known.columns:
        raise ArgumentError(
            f"{folder} has the columns {', '.join(known.columns)}, got {', '.join(columns)}; {remedy}."
        )


def for_each(metrics: Sequence[str], given: dict[str, Any]) -> Declared:
    """Remove what is declared from the given options; return what each of the metrics is asked under.

    Raises:
        ArgumentError: no metric is named, or several without a budget, from which each has an equal part.
    """
    if not metrics:
        raise ArgumentError("name what is asked with --metrics.")
    if len(metrics) > 1 and given.get("share") is None:
        raise ArgumentError("each metric spends a claim: name one, or pay for all with --budget and --share.")
    if given.get("share") is not None:
        given["share"] /= len(metrics)
    declared = declared_of(given)
    if not declared.claims:
        raise ArgumentError("measure asks under differential privacy: claim it with --epsilon, or --budget.")
    return declared


def print_measured(
    folder: Path,
    metrics: Sequence[str],
    known: Centroids,
    declared: Declared,
    as_json: bool,
    given: dict[str, Any],
    clients: Any = None,
    **surroundings: Any,
) -> None:
    """Ask each metric, add it to the run's `metrics.json`, and print what was found with its claim.

    What was paid for is printed also where a later metric ends in an error.

    Raises:
        ArgumentError: a metric cannot be asked of these centers, or has no bounded form.
        RunFolderError: the file of metrics cannot be read or written, or is in use.
    """
    check_metrics(metrics, len(known.centroids), private=False)
    for name in metrics:
        if name not in ASKS:
            raise ArgumentError(f"measure asks metrics that have a bounded form, and {name} has none.")
    options = {**surroundings_of(values_of(given)), **surroundings}
    found, path = list[Estimate](), folder / MEASURED
    with locked(folder / f".{MEASURED}"):
        before = _measured(path)
        try:
            for name in metrics:
                own = msgspec.structs.replace(declared, purpose=declared.purpose or name)
                privacy: Any = own.privacy()
                found.append(
                    with_interval(name, clients, frozen_array(known.centroids), privacy=privacy, **options)
                )
                rewrite(path, pretty([*before, *(one.to_dict() for one in found)]))
        finally:
            if found:
                # Metrics of one command have the same claim, each for itself.
                claim = found[0].to_dict()["claim"]
                shown = {"metrics": [one.to_dict() for one in found], "privacy": claim}
                answer(shown, as_json, *_said(found, known), f"Written: {path}")


def _said(found: Sequence[Estimate], known: Centroids) -> list[str]:
    """Return metrics in words, what is claimed of them, and what is not."""
    of = "each of these metrics" if len(found) > 1 else "this metric"
    return [
        *map(str, found),
        f"of {of}: {one_line(found[0].claim)}",
        f"of the centroids: {'nothing is claimed' if known.privacy is None else known.privacy.line}",
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
