"""Tables of a study's results: on the page, in files, and read again to compare two studies."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs

from privfed.core.stored.files import rewrite
from privfed.errors import RunFolderError
from privfed.experiments.cells import AXES
from privfed.experiments.planning import Plan
from privfed.experiments.plot import TABLE, read
from privfed.experiments.report.claims import SCORED, ComposedBudget
from privfed.experiments.report.curves import Stat
from privfed.experiments.report.summary import COSTS, Row, claims_of, metric_column, plain
from privfed.experiments.study import MEASURES, Study
from privfed.privacy.claim import one_line
from privfed.version import __version__

NAMES = {
    "score_ratio": "cost ratio",
    "ari": "ARI",
    "v_measure": "v-measure",
    "fuzzy_davies_bouldin": "FedFuzzDB",
    "audited_epsilon": "audited epsilon",
    "bytes_up": "bytes up",
    "bytes_down": "bytes down",
    "client_seconds": "client CPU s",
    "server_seconds": "server CPU s",
}
"""Names of measures in tables, where they differ from those in the results."""

SECONDS = " [s]"
UNITS = {name: " [B]" for name in ("bytes", "bytes_up", "bytes_down")}
UNITS |= {name: SECONDS for name in ("client_seconds", "server_seconds")}
"""Units of measures, which stand in the heads of `study.csv`."""

RESULTS_FILE = "results.json"
BESIDE = ("data hash", "privacy claim")
"""Columns of `study.csv` that are compared beside the measures."""

SAME = 1e-9
"""Relative difference below which measures count as equal, as rounding differs between machines."""


def figure(value: float, sd: float, n: int, row: Row, name: str) -> str:
    """Return a measured number as HTML with its origin."""
    return (
        f'<data value="{value!r}" data-id="{row.id}" data-name="{escape(name)}" '
        f'title="{n or len(row.cells)} cells: {" ".join(row.cells.values())}">{Stat(value, sd, n)}</data>'
    )


def stat(row: Row, name: str) -> str:
    """Return a configuration's measure as HTML; empty where there is none."""
    found = row.stats.get(name)
    return "" if found is None else figure(found.mean, found.sd, found.n, row, f"stats.{name}")


class Cell(str):
    """A cell of a table that is HTML already; other texts are escaped."""

    __slots__ = ()


def number(html: str, style: str = "") -> Cell:
    """Return the cell of a number."""
    return Cell(f'<td class="number"{style}>{html}</td>')


def scrolled(head: Sequence[str], rows: Iterable[Iterable[object]], kind: str = "", about: str = "") -> str:
    """Return a table that scrolls where it is wider than the page; empty where it has no rows.

    Args:
        head: texts of its head.
        rows: cells, line by line: `Cell`, or what is written as text.
        kind: its class.
        about: HTML that stands before it.
    """
    lines = "".join(
        f"<tr>{''.join(one if isinstance(one, Cell) else f'<td>{escape(str(one))}</td>' for one in row)}</tr>"
        for row in rows
    )
    named = "".join(f"<th>{escape(str(one))}</th>" for one in head)
    style = f' class="{kind}"' if kind else ""
    body = f"<thead><tr>{named}</tr></thead><tbody>{lines}</tbody>"
    return f'{about}<div class="scroll"><table{style}>{body}</table></div>' if lines else ""


def listed(numbers: Iterable[int]) -> str:
    """Return row numbers as the report shows them."""
    return ", ".join(f"#{i}" for i in numbers)


def grouped(said: Iterable[tuple[int, tuple[str, ...]]], head: Sequence[str], title: str, text: str) -> str:
    """Return a table of what was said of configurations, each once, with their numbers last."""
    found: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, cells in said:
        found[cells].append(i)
    lines = ((*cells, listed(numbers)) for cells, numbers in found.items())
    return scrolled((*head, "configurations"), lines, about=f"<h3>{title}</h3><p>{text}</p>")


def remarks(row: Row) -> str:
    """Return the remarks on a configuration, in one line."""
    said = [] if row.same_as is None else [str(row.same_as)]
    said += [f"not applicable: {name}" for name in row.not_applicable if name not in row.attacks]
    said += [f"{len(row.unconverged)} of {len(row.cells)} fits did not converge"] * bool(row.unconverged)
    return "; ".join(said)


def axes(rows: Sequence[Row]) -> list[str]:
    """Return the axes on which the rows differ; at least one."""
    return [axis for axis in AXES if len({row.setup.labels[axis] for row in rows}) > 1] or ["algorithm"]


def short(rows: Sequence[Row]) -> Callable[[Row], str]:
    """Return a function that names a row by the axes on which the rows differ."""
    differing = axes(rows)

    def name(row: Row) -> str:
        labels = row.setup.labels
        return ", ".join(f"privacy {labels[one]}" if one == "privacy" else labels[one] for one in differing)

    return name


def by_data(rows: Sequence[Row]) -> list[tuple[str, list[tuple[int, Row]]]]:
    """Return the rows of each data set and partition, with their numbers in the report."""
    groups: dict[str, list[tuple[int, Row]]] = defaultdict(list)
    for i, row in enumerate(rows, start=1):
        groups[f"{row.setup.labels['data']}, {row.setup.labels['partition']} clients"].append((i, row))
    return list(groups.items())


def columns(study: Study, rows: Sequence[Row]) -> list[str]:
    """Return the measures that a table shows, in order: utility, privacy, leakage, cost."""
    names = [name if name in MEASURES else metric_column(name) for name in study.metrics]
    names += ["audited_epsilon", "leakage"]
    for attack in dict.fromkeys(attack for row in rows for attack in row.attacks):
        names += [f"{attack}: {word}" for word in ("recovered", "precision", "baseline", "bound")]
    return [name for name in [*names, *COSTS] if any(name in row.stats for row in rows)]


def name_of(column: str) -> str:
    """Return the name of a measure in tables."""
    return NAMES.get(column, column)


def write_tables(
    folder: Path,
    plan: Plan,
    rows: Sequence[Row],
    advice: Sequence[Mapping[str, Any]],
    budgets: Sequence[ComposedBudget],
) -> None:
    """Write study.csv, results.json and table.tex, each atomically.

    Args:
        folder: folder of the study.
        plan: plan of the study.
        rows: its configurations.
        advice: the answers of the report, as values for JSON.
        budgets: what all fits of its folder amount to.
    """
    study = plan.file.study
    rewrite(folder / TABLE, long_form(rows).write_csv().encode())
    document = {
        "format": 2,
        "study": study.name,
        "about": study.about,
        "privfed": __version__,
        "seeds": plan.seeds,
        "configurations": [plain(row) for row in rows],
        "scored": SCORED,
        "together": [asdict(one) for one in budgets],
        "advice": advice,
    }
    head = [*axes(rows), *map(name_of, columns(study, rows))]
    cells = [[row.setup.labels[axis] for axis in axes(rows)] for row in rows]
    figures = [[str(row.stats.get(name, "")) for name in columns(study, rows)] for row in rows]
    claims = [f"{name}: {claim.line}." for name, claim in claims_of(rows).items()]
    remarked = [
        f"{', '.join(own)}: {said}." for own, row in zip(cells, rows, strict=True) if (said := remarks(row))
    ]
    texts = {
        RESULTS_FILE: json.dumps(document, indent=2) + "\n",
        "table.tex": _latex(study.name, head, cells, figures, [*claims, *[SCORED] * bool(claims)])
        + "".join(f"\n% {line}\n" for line in remarked),
    }
    for name, text in texts.items():
        rewrite(folder / name, text.encode())


def long_form(rows: Sequence[Row]) -> pl.DataFrame:
    """Return one row for each fit: its axes, its guarantee, its seed and cell, and all that was measured."""
    names = dict.fromkeys(name for row in rows for own in row.measured.values() for name in own)
    heads = {name: f"{name_of(name).removesuffix(' s')}{UNITS.get(name, '')}" for name in names}
    lines = [
        {axis: row.setup.labels[axis] for axis in AXES}
        | {"epsilon": math.inf if row.setup.privacy is None else row.setup.privacy.epsilon}
        | {"delta": None if row.setup.privacy is None else row.setup.privacy.delta}
        | {"seed": seed, "cell": row.setup.cell(seed)}
        | {"data hash": row.setup.digest, "kind": row.setup.partition.kind}
        | {head: own.get(name) for name, head in heads.items() if name != "epsilon"}
        | {"privacy claim": one_line(row.claim), "remarks": remarks(row)}
        for row in rows
        for seed, own in row.measured.items()
    ]
    return pl.DataFrame(lines, infer_schema_length=None, strict=False)


def _latex(
    title: str, head: list[str], cells: list[list[str]], figures: list[list[str]], notes: list[str]
) -> str:
    lines = [
        "% \\usepackage{booktabs}",
        "\\begin{table}",
        f"\\caption{{{_escaped(title)}: mean $\\pm$ standard deviation over the seeds.}}",
        f"\\begin{{tabular}}{{{'l' * len(cells[0])}{'r' * len(figures[0])}}}",
        "\\toprule",
        " & ".join(map(_escaped, head)) + " \\\\",
        "\\midrule",
    ]
    numbers = [[f"${one.replace('±', chr(92) + 'pm')}$" if one else "" for one in own] for own in figures]
    lines += [
        " & ".join([*map(_escaped, own), *more]) + " \\\\" for own, more in zip(cells, numbers, strict=True)
    ]
    said = [f"\\par{{\\footnotesize {_escaped(note)}}}" for note in notes]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", *said, "\\end{table}", ""])


def _escaped(text: str) -> str:
    return "".join(f"\\{one}" if one in "&%$#_{}" else one for one in text)


@dataclass(frozen=True)
class Configuration:
    """Holds what is compared of a configuration: its figures, the hash of its data, and what it claims."""

    stats: dict[str, Stat]
    data: str
    claim: str


@dataclass(frozen=True)
class Change:
    """Describes a measure that differs between two studies.

    Args:
        configuration: labels of the configuration in one line.
        measure: name of the measure, as in `study.csv`.
        before: mean in the first study.
        after: mean in the second study.
        spreads: difference in units of both standard deviations combined; infinite without any.
    """

    configuration: str
    measure: str
    before: float
    after: float
    spreads: float


def configurations(folder: Path) -> dict[str, Configuration]:
    """Return the configurations of a study's folder by their labels in one line.

    Raises:
        RunFolderError: the folder holds no finished study, or its table is damaged or of another privfed.
    """
    frame = read(folder)
    if not {*AXES, *BESIDE} <= {*frame.columns}:
        raise RunFolderError(
            f"{folder / TABLE} is damaged, or of another privfed; write it with 'privfed tradeoff'."
        )
    measures = frame.select(cs.numeric().exclude("seed", "epsilon", "delta")).columns
    return {
        " / ".join(map(str, labels)): Configuration(
            {name: Stat.of(own[name].drop_nulls().to_list()) for name in measures if own[name].count()},
            *(str(own[name][0]) for name in BESIDE),
        )
        for labels, own in frame.group_by(AXES, maintain_order=True)
    }


def changes(first: Mapping[str, Configuration], second: Mapping[str, Configuration]) -> list[Change]:
    """Return all measures that differ, largest difference first; seconds only beyond two spreads."""
    found, none = [], Stat(math.nan, math.nan, 0)
    for labels in first.keys() & second.keys():
        before, after = first[labels].stats, second[labels].stats
        for measure in before.keys() | after.keys():
            a, b = before.get(measure, none), after.get(measure, none)
            spread = math.hypot(*(one.sd for one in (a, b) if not math.isnan(one.sd)))
            spreads = abs(a.mean - b.mean) / spread if spread > 0 and a.n and b.n else math.inf
            # Seconds are never the same twice.
            same = math.isclose(a.mean, b.mean, rel_tol=SAME, abs_tol=1e-12)
            if not same and (not measure.endswith(SECONDS) or spreads > 2):
                found.append(Change(labels, measure, a.mean, b.mean, spreads))
    return sorted(found, key=lambda one: (-one.spreads, one.configuration, one.measure))
