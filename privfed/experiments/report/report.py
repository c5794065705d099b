"""Writes all files of a study's report, from the results stored in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from privfed.core.stored.files import replaced
from privfed.experiments.report.advice import Advice, advise, telling
from privfed.experiments.report.equal import marked
from privfed.experiments.report.page import page
from privfed.experiments.report.pictures import by_data
from privfed.experiments.report.summary import Row, summarise
from privfed.experiments.report.tables import write_tables
from privfed.experiments.running.planning import Plan
from privfed.experiments.running.store import Store

PAGE, STUDY = "report.html", "study.toml"
BOUNDS = ((0.01, 1.05), (0.01, 1.5), (0.1, 1.05), (0.5, 1.05))
"""Bounds on leakage and cost ratio for which every report gives advice."""


def answers(plan: Plan, rows: Sequence[Row]) -> list[tuple[str, Advice]]:
    """Answer "what should I use?" for each data set and partition on which attacks were run.

    Only for clusterings: models have no cost ratio.
    """
    want = plan.located.study.want
    wanted = None if want is None else (want.leakage, want.score_ratio)
    bounds = [*([] if wanted is None else [wanted]), *BOUNDS]
    return telling(
        [
            (name, advise([row for _, row in own], leakage, score_ratio))
            for name, own in by_data(rows)
            if any({"leakage", "score_ratio"} <= row.stats.keys() for _, row in own)
            for leakage, score_ratio in dict.fromkeys(bounds)
        ],
        wanted,
    )


def write_report(folder: Path, plan: Plan, store: Store) -> list[Row]:
    """Write the report on the results stored so far.

    Args:
        folder: folder of the study.
        plan: plan of the study.
        store: results of the study.

    Returns:
        The configurations that it shows: those with at least one stored part.
    """
    rows = marked([row for row in summarise(plan, store) if row.cells or row.errors])
    advice = answers(plan, rows)
    write_tables(folder, plan, rows, advice)
    with replaced(folder / PAGE) as path:
        path.write_text(page(plan, rows, advice), encoding="utf-8")
    with replaced(folder / STUDY) as path:
        path.write_text(plan.located.text, encoding="utf-8")
    return rows
