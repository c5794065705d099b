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
from privfed.cli.run_folder import RESULT, SELECTION, pretty, read_centroids, source_of, values_of
from privfed.core.stored.files import rewrite
from privfed.core.values.domain import FloatArray, frozen_array
from privfed.errors import ArgumentError
from privfed.metrics.intervals import Estimate, with_interval
from privfed.privacy.claim import one_line

MEASURED = "metrics.json"
"""In a run's folder: all metrics that were asked of its centers so."""


def measure(run_folder: Path, data: Path, metrics: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Do the work of `privfed measure`.

    Raises:
        ArgumentError: the rows have other columns than the run, or the run scaled its rows.
    """
    known = read_centroids(run_folder, SELECTION if (run_folder / SELECTION).exists() else RESULT)
    if known.scaling is not None:
        raise ArgumentError(f"{run_folder} scaled its rows with --scale; measure a run without it.")
    source = source_of(data, given)
    declared = declared_with(source, for_each(metrics, given))
    declared.check_claim(*source.undeclared)
    if source.schema is None and not source.columns:
        source = msgspec.structs.replace(source, columns=known.columns, drop=())
    tables = load_rows(source, private=True)
    if tables.columns != known.columns:
        raise ArgumentError(
            f"{run_folder} has the columns {', '.join(known.columns)}, got {', '.join(tables.columns)}; name "
            "these with --columns."
        )
    check_several(tables, source.path, given["protocol"])
    print_measured(
        run_folder,
        metrics,
        frozen_array(known.centroids),
        declared,
        as_json,
        given,
        clipped(tables, declared),
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
    centers: FloatArray,
    declared: Declared,
    as_json: bool,
    given: dict[str, Any],
    clients: Any = None,
    **surroundings: Any,
) -> None:
    """Ask each metric, print it with its interval and its claim, and add it to the run's `metrics.json`."""
    check_metrics(metrics, len(centers), private=False)
    options = {**surroundings_of(values_of(given)), **surroundings}
    found, path = list[Estimate](), folder / MEASURED
    for name in metrics:
        own = msgspec.structs.replace(declared, purpose=declared.purpose or name)
        privacy: Any = own.privacy()
        found.append(with_interval(name, clients, centers, privacy=privacy, **options))
        before = msgspec.json.decode(path.read_bytes()) if path.exists() else []
        rewrite(path, pretty([*before, found[-1].to_dict()]))
    claim = f"{'each of these: ' * (len(found) > 1)}{one_line(found[0].claim)}"
    shown = [one.to_dict() for one in found]
    answer(shown, as_json, *map(str, found), claim, f"Written: {path}")
