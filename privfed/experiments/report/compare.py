"""Compares two studies, from the results.json of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from privfed.core.stored.formats import Format
from privfed.errors import RunFolderError
from privfed.privacy.claim import PrivacySpent, one_line

FILE = "results.json"
FORMAT = 2
"""Format of the results; format 1 named no format and no claim."""

RESULTS = Format(name=FILE, version=FORMAT, again="write it anew with 'privfed tradeoff'")
SAME = 1e-9
"""Relative difference below which measures count as equal, as rounding differs between machines."""

Configurations = dict[tuple[str, ...], dict[str, Any]]


@dataclass(frozen=True)
class Change:
    """Describes a measure that differs between the studies.

    Args:
        configuration: labels of the configuration in one line.
        measure: name of the measure.
        before: mean in the first study.
        after: mean in the second study.
        spreads: difference in units of both standard deviations combined; infinite without any.
    """

    configuration: str
    measure: str
    before: float
    after: float
    spreads: float


@dataclass(frozen=True)
class Comparison:
    """Holds the differences between two studies.

    Args:
        only_first: labels of configurations that only the first study has.
        only_second: labels of configurations that only the second study has.
        same: number of configurations that agree in every measure except seconds.
        changes: all measures that differ, largest difference first; seconds only beyond two spreads.
    """

    only_first: list[str]
    only_second: list[str]
    same: int
    changes: list[Change]


def read_results(folder: Path) -> Configurations:
    """Read the configurations of a study's folder, by their labels.

    Raises:
        RunFolderError: the folder holds no finished study, or one that is damaged or from a newer privfed.
    """
    return {labels: stats for labels, (stats, _) in _read(folder).items()}


def read_claims(folder: Path) -> dict[str, str]:
    """Return what is claimed of the differential privacy of each configuration, by its labels in one line.

    Raises:
        RunFolderError: the folder holds no finished study, or its results are damaged.
    """
    return {" / ".join(labels): claim for labels, (_, claim) in _read(folder).items()}


def _claim(configuration: Mapping[str, Any]) -> str:
    if "privacy" not in configuration:
        return "not stored: these results are of format 1; write them anew with 'privfed tradeoff'"
    plain = configuration["privacy"]
    return one_line(None if plain is None else PrivacySpent.from_dict(plain))


def _read(folder: Path) -> dict[tuple[str, ...], tuple[dict[str, Any], str]]:
    """Return measures and claim of each configuration in a study's results, by its labels."""
    try:
        document = msgspec.json.decode((folder / FILE).read_bytes())
        RESULTS.check(document.get("format", 1), folder / FILE)
        found = document["configurations"]
        return {tuple(one["labels"].values()): (dict(one["stats"]), _claim(one)) for one in found}
    except OSError:
        raise RunFolderError(
            f"{folder} holds no {FILE}; name a folder that 'privfed tradeoff' wrote."
        ) from None
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError):
        raise RunFolderError(f"{folder / FILE} is damaged; write it again with 'privfed tradeoff'.") from None


def compare(first: Configurations, second: Configurations) -> Comparison:
    """Compare two studies, configuration by configuration."""
    changes: list[Change] = []
    same = 0
    for labels in first.keys() & second.keys():
        found = _changes(" / ".join(labels), first[labels], second[labels])
        same += not any(not one.measure.endswith("_seconds") for one in found)
        changes += found
    return Comparison(
        sorted(" / ".join(labels) for labels in first.keys() - second.keys()),
        sorted(" / ".join(labels) for labels in second.keys() - first.keys()),
        same,
        sorted(changes, key=lambda one: (-one.spreads, one.configuration, one.measure)),
    )


def _changes(configuration: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Change]:
    found = []
    for measure in first.keys() | second.keys():
        before, after = first.get(measure), second.get(measure)
        a, b = (math.nan if one is None else float(one["mean"]) for one in (before, after))
        if math.isclose(a, b, rel_tol=SAME, abs_tol=1e-12):
            continue
        sds = [one["sd"] for one in (before, after) if one is not None and one["sd"] is not None]
        spread = math.hypot(*sds)
        spreads = abs(a - b) / spread if spread > 0 and math.isfinite(a - b) else math.inf
        # Seconds are never the same twice.
        if not measure.endswith("_seconds") or spreads > 2:
            found.append(Change(configuration, measure, a, b, spreads))
    return found
