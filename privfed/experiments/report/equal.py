"""Finds configurations that are the same computation under two names, or gave the same results bit by bit."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import replace

from privfed.experiments.report.summary import Row, Same
from privfed.experiments.study.cells import Setup

NAMED_APART = ("estimator", "words")
"""Parts of a configuration that describe its algorithm by the study's own name and parameters."""


def computation(setup: Setup, ran: str) -> str:
    """Return a configuration as text, with the algorithm that actually ran."""
    content = {name: value for name, value in setup.content.items() if name not in NAMED_APART}
    return json.dumps({**content, "ran": ran}, sort_keys=True)


def marked(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, marking those that equal an earlier one of the same data, sum and guarantee."""
    first: dict[Hashable, Row] = {}
    found = []
    for row in rows:
        same = None
        for is_computation, key in enumerate((_results_of(row), _computed(row))):
            other = row if key is None else first.setdefault(key, row)
            if other is not row:
                same = Same(other.id, other.name, bool(is_computation))
        found.append(replace(row, same_as=same))
    return found


def _computed(row: Row) -> Hashable:
    return (computation(row.setup, row.ran),) if row.ran else None


def _results_of(row: Row) -> Hashable:
    if not row.outcomes:
        return None
    setting = computation(row.setup, "")
    return setting, *sorted(row.outcomes.items())
