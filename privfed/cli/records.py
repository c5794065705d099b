"""A party's journal as a table: what it gave, a line for each answer, fit or month."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privfed.core.stored.files import open_file
from privfed.deploy.node import algorithm_name
from privfed.errors import ArgumentError
from privfed.party.journal import FitLine

ANSWER, FIT, MONTH = "answer", "fit", "month"
"""What a line is about."""

_GUARANTEE = ("epsilon", "delta", "unit", "neighbours", "mechanism")


def record(fits: Sequence[FitLine], entries: Sequence[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    """Return lines of what a party gave, name of the column -> value, oldest first.

    Args:
        fits: of its journal.
        entries: of its journal, in order.
        by: "answer", "fit" or "month".
    """
    if by == FIT:
        return [_of_fit(one) for one in fits]
    named = {one.number: one for one in fits}
    answers = [
        {"at": one["at"], "question": one["content"]["question"], **_of_fit(named[one["fit"]])}
        for one in entries
        if one["kind"] == "sum"
    ]
    if by == ANSWER:
        wanted = ("at", "fit", "data_set", "algorithm", "protocol", "question", *_GUARANTEE)
        return [{name: line[name] for name in wanted} for line in answers]
    months: dict[tuple[str, str], dict[str, Any]] = defaultdict(lambda: dict.fromkeys(_COUNTED, 0))
    for line in answers:
        months[line["at"][:7], line["data_set"]]["answers"] += 1
    for one in fits:
        month = months[one.began[:7], one.data_set]
        month["fits"] += 1
        month["fits_without_guarantee"] += one.epsilon is None
        month["epsilon"] += one.epsilon or 0.0
        month["delta"] += one.delta or 0.0
    for entry in entries:
        if entry["kind"] == "lost":
            months[entry["at"][:7], named[entry["fit"]].data_set]["losses"] += entry["content"]["clients"]
    return [{"month": month, "data_set": rows, **values} for (month, rows), values in sorted(months.items())]


_COUNTED = ("fits", "answers", "losses", "fits_without_guarantee", "epsilon", "delta")
"""Columns of a month: answers and losses in it, and sums over the fits that began in it."""


def _of_fit(fit: FitLine) -> dict[str, Any]:
    return {
        "fit": fit.number,
        "began": fit.began,
        "data_set": fit.data_set,
        "algorithm": algorithm_name(fit.algorithm),
        "protocol": fit.protocol,
        "answers": fit.answered,
        "losses": fit.losses,
        **{name: getattr(fit, name) for name in _GUARANTEE},
        "share_paid": None if fit.epsilon is None else fit.spent,
        "state": "ended" if fit.closed else "open",
        "agreement": fit.agreement,
    }


def draw_record(path: Path, lines: Sequence[dict[str, Any]], by: str) -> None:
    """Draw the lines of months as PNG.

    Raises:
        ArgumentError: the file is there already, there is no line, or lines are not of months.
    """
    if by != MONTH:
        raise ArgumentError(f"a picture is drawn by {MONTH}, got {by}: take --by {MONTH}, or a file .csv.")
    _require_new(path, lines)
    from privfed.cli.pictures import draw_months  # Half a second, for this answer alone.

    draw_months(path, lines)


def _require_new(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    if not lines:
        raise ArgumentError("the journal has no fit yet, so that there is nothing to write.")
    if path.exists():
        raise ArgumentError(f"{path} is there already and is never replaced; name another place.")


def write_csv(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write lines as CSV for its owner alone; texts that a spreadsheet would compute are quoted by a '.

    Raises:
        ArgumentError: the file is there already, or there is no line.
    """
    _require_new(path, lines)
    with open_file(path, "x", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(lines[0]))
        table.writeheader()
        table.writerows([{name: _safe(value) for name, value in line.items()} for line in lines])


def _safe(value: Any) -> Any:
    # Names of algorithms come from coordinators.
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
