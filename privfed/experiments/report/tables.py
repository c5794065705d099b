"""Writes the results of a study: CSV, Parquet and JSON for programs, Markdown and LaTeX for a paper."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from privfed import __version__
from privfed.core.stored.files import replaced
from privfed.experiments.report.advice import Advice
from privfed.experiments.report.claims import SCORED
from privfed.experiments.report.compare import FORMAT
from privfed.experiments.report.composed_budget import composed_budgets
from privfed.experiments.report.remarks import remarks
from privfed.experiments.report.summary import COSTS, Row, Stat, claims_of, metric_column, plain
from privfed.experiments.running.planning import Plan
from privfed.experiments.study.cells import AXES
from privfed.experiments.study.study import MEASURES, Study
from privfed.privacy.claim import PrivacySpent, one_line

NAMES = {
    "score_ratio": "cost ratio",
    "ari": "ARI",
    "v_measure": "v-measure",
    "accuracy": "accuracy",
    "fuzzy_davies_bouldin": "FedFuzzDB",
    "leakage": "leakage",
    "audited_epsilon": "audited epsilon",
    "bytes_up": "bytes up",
    "bytes_down": "bytes down",
    "bytes": "bytes",
    "exchanges": "exchanges",
    "rounds": "rounds",
    "sums": "sums",
    "client_seconds": "client CPU s",
    "server_seconds": "server CPU s",
}
"""Names of measures in tables."""


def columns(study: Study, rows: Sequence[Row]) -> list[str]:
    """Return the measures that a table shows, in order: utility, privacy, leakage, cost."""
    attacks = list(dict.fromkeys(attack for row in rows for attack in row.attacks))
    utility = [name if name in MEASURES else metric_column(name) for name in study.metrics]
    names = [*utility, "audited_epsilon", "leakage"]
    for attack in attacks:
        names += [f"{attack}: {word}" for word in ("recovered", "precision", "baseline", "bound")]
    return [name for name in [*names, *COSTS] if any(name in row.stats for row in rows)]


def axes(rows: Sequence[Row]) -> list[str]:
    """Return the axes on which the rows differ; at least one."""
    differing = [axis for axis in AXES if len({row.setup.labels[axis] for row in rows}) > 1]
    return differing or ["algorithm"]


def name_of(column: str) -> str:
    """Return the name of a measure in tables."""
    return NAMES.get(column, column)


def write_tables(folder: Path, plan: Plan, rows: Sequence[Row], advice: Sequence[tuple[str, Advice]]) -> None:
    """Write results.{csv,parquet,json}, table.md and table.tex, each atomically."""
    study = plan.located.study
    frame = _frame(rows)
    with replaced(folder / "results.csv") as path:
        frame.write_csv(path)
    with replaced(folder / "results.parquet") as path:
        frame.write_parquet(path)
    with replaced(folder / "results.json") as path:
        path.write_text(json.dumps(_document(plan, rows, advice), indent=2) + "\n", encoding="utf-8")
    cells = [[row.setup.labels[axis] for axis in axes(rows)] for row in rows]
    head = [*axes(rows), *map(name_of, columns(study, rows))]
    stats = [[row.stats.get(name) for name in columns(study, rows)] for row in rows]
    told = [remarks(row) for row in rows]
    with replaced(folder / "table.md") as path:
        text = _markdown(head, cells, stats) + _claims_markdown(rows) + _remarked(cells, told)
        path.write_text(text, encoding="utf-8")
    with replaced(folder / "table.tex") as path:
        text = _latex(study.name, head, cells, stats, claims_of(rows)) + _remarked(cells, told, "% ")
        path.write_text(text, encoding="utf-8")


def _frame(rows: Sequence[Row]) -> pl.DataFrame:
    names = list(dict.fromkeys(name for row in rows for name in row.stats))
    table: dict[str, list[Any]] = {"id": [row.id for row in rows]}
    table |= {axis: [row.setup.labels[axis] for row in rows] for axis in AXES}
    for name in names:
        stats = [row.stats.get(name) for row in rows]
        table[name] = [None if one is None else one.mean for one in stats]
        table[f"{name} (sd)"] = [None if one is None or math.isnan(one.sd) else one.sd for one in stats]
        table[f"{name} (n)"] = [0 if one is None else one.n for one in stats]
    table["privacy claim"] = [one_line(row.claim) for row in rows]
    table["cells"] = [" ".join(row.cells.values()) for row in rows]
    table["failed"] = [len(row.errors) for row in rows]
    table["remarks"] = ["; ".join(remarks(row)) for row in rows]
    return pl.DataFrame(table, strict=False)


def _document(plan: Plan, rows: Sequence[Row], advice: Sequence[tuple[str, Advice]]) -> dict[str, Any]:
    study = plan.located.study
    return {
        "format": FORMAT,
        "study": study.name,
        "about": study.about,
        "privfed": __version__,
        "seeds": plan.seeds,
        "configurations": [plain(row) for row in rows],
        "scored": SCORED,
        "together": [asdict(one) for one in composed_budgets(rows)],
        "advice": [
            {
                "data": name,
                "leakage": one.leakage,
                "score_ratio": one.score_ratio,
                "configuration": None if one.row is None else one.row.id,
                "caveats": one.caveats,
            }
            for name, one in advice
        ],
    }


def _markdown(head: list[str], cells: list[list[str]], stats: list[list[Stat | None]]) -> str:
    lines = [_line(head), _line(["---"] * len(head))]
    for labels, own in zip(cells, stats, strict=True):
        lines.append(_line([*labels, *("" if one is None else str(one) for one in own)]))
    return "\n".join(lines) + "\n\nMean ± standard deviation over the seeds.\n"


def _claims_markdown(rows: Sequence[Row]) -> str:
    claims = [f"- {name}: {claim.line}." for name, claim in claims_of(rows).items()]
    return "\n".join(["", *claims, f"- {SCORED}", ""]) if claims else ""


def _remarked(cells: list[list[str]], told: list[list[str]], before: str = "") -> str:
    """Return remarks on the table's rows, one line for each."""
    lines = [
        f"{before}{', '.join(own)}: {'; '.join(one)}." for own, one in zip(cells, told, strict=True) if one
    ]
    return "".join(f"\n{line}\n" for line in lines)


def _line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def _latex(
    title: str,
    head: list[str],
    cells: list[list[str]],
    stats: list[list[Stat | None]],
    claims: Mapping[str, PrivacySpent],
) -> str:
    notes = [f"{name}: {claim.line}." for name, claim in claims.items()] + [SCORED] * bool(claims)
    lines = [
        "% \\usepackage{booktabs}",
        "\\begin{table}",
        f"\\caption{{{_escaped(title)}: mean $\\pm$ standard deviation over the seeds.}}",
        f"\\begin{{tabular}}{{{'l' * len(cells[0])}{'r' * len(stats[0])}}}",
        "\\toprule",
        " & ".join(map(_escaped, head)) + " \\\\",
        "\\midrule",
    ]
    for labels, own in zip(cells, stats, strict=True):
        figures = ["" if one is None else f"${str(one).replace('±', chr(92) + 'pm')}$" for one in own]
        lines.append(" & ".join([*map(_escaped, labels), *figures]) + " \\\\")
    told = [f"\\par{{\\footnotesize {_escaped(note)}}}" for note in notes]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", *told, "\\end{table}", ""])


def _escaped(text: str) -> str:
    return "".join(f"\\{one}" if one in "&%$#_{}" else one for one in text)
