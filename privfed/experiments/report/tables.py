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

import msgspec
import polars as pl

from privfed.core.stored.files import Format, rewrite
from privfed.errors import RunFolderError
from privfed.experiments.cells import AXES
from privfed.experiments.planning import Plan
from privfed.experiments.plot import TABLE
from privfed.experiments.report.claims import SCORED, ComposedBudget
from privfed.experiments.report.curves import Stat, shown
from privfed.experiments.report.summary import COSTS, Row, claims_of, metric_column, plain
from privfed.experiments.study import MEASURES, Study
from privfed.privacy.claim import PrivacySpent, one_line
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

UNITS = {name: " [B]" for name in ("bytes", "bytes_up", "bytes_down")}
UNITS |= {name: " [s]" for name in ("client_seconds", "server_seconds")}
"""Units of measures, which stand in the heads of `study.csv`."""

RESULTS_FILE = "results.json"
RESULTS = Format(name=RESULTS_FILE, version=2, again="write it anew with 'privfed tradeoff'")
SAME = 1e-9
"""Relative difference below which measures count as equal, as rounding differs between machines."""

Configurations = dict[tuple[str, ...], dict[str, Any]]


def figure(value: float, sd: float, n: int, row: Row, name: str) -> str:
    """Return a measured number as HTML with its origin."""
    text = str(Stat(value, sd, n)) if not math.isnan(sd) else shown(value)
    cells = " ".join(row.cells.values())
    return (
        f'<data value="{value!r}" data-id="{row.id}" data-name="{escape(name)}" '
        f'title="{n or len(row.cells)} cells: {cells}">{text}</data>'
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
        "format": RESULTS.version,
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
    claims += [SCORED] if claims else []
    remarked = [
        f"{', '.join(own)}: {said}." for own, row in zip(cells, rows, strict=True) if (said := remarks(row))
    ]
    texts = {
        RESULTS_FILE: json.dumps(document, indent=2) + "\n",
        "table.tex": _latex(study.name, head, cells, figures, claims)
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
    for own, values in zip(cells, figures, strict=True):
        numbers = [f"${value.replace('±', chr(92) + 'pm')}$" if value else "" for value in values]
        lines.append(" & ".join([*map(_escaped, own), *numbers]) + " \\\\")
    said = [f"\\par{{\\footnotesize {_escaped(note)}}}" for note in notes]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", *said, "\\end{table}", ""])


def _escaped(text: str) -> str:
    return "".join(f"\\{one}" if one in "&%$#_{}" else one for one in text)


@dataclass(frozen=True)
class Change:
    """Describes a measure that differs between two studies.

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
    """Read the measures of each configuration of a study's folder, by the configuration's labels.

    Raises:
        RunFolderError: the folder holds no finished study, or its results are damaged or of another format.
    """
    return {labels: stats for labels, (stats, _, _) in _read(folder).items()}


def read_data(folder: Path) -> dict[str, str]:
    """Return the hash of each configuration's data, by its labels in one line; none where no hash is kept.

    Raises:
        RunFolderError: as `read_results`.
    """
    return {" / ".join(labels): digest for labels, (_, _, digest) in _read(folder).items() if digest}


def read_claims(folder: Path) -> dict[str, str]:
    """Return what is claimed of the differential privacy of each configuration, by its labels in one line.

    Raises:
        RunFolderError: as `read_results`.
    """
    return {" / ".join(labels): one_line(claim) for labels, (_, claim, _) in _read(folder).items()}


def _read(folder: Path) -> dict[tuple[str, ...], tuple[dict[str, Any], PrivacySpent | None, str]]:
    try:
        document = msgspec.json.decode((folder / RESULTS_FILE).read_bytes())
        RESULTS.check(document.get("format", 1), folder / RESULTS_FILE)
        return {
            tuple(one["labels"].values()): (
                dict(one["stats"]),
                None if one["privacy"] is None else PrivacySpent.from_dict(one["privacy"]),
                str(one.get("data", "")),
            )
            for one in document["configurations"]
        }
    except OSError:
        raise RunFolderError(
            f"{folder} holds no {RESULTS_FILE}; name a folder that 'privfed tradeoff' wrote."
        ) from None
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError):
        raise RunFolderError(
            f"{folder / RESULTS_FILE} is damaged; write it again with 'privfed tradeoff'."
        ) from None


def compare(first: Configurations, second: Configurations) -> Comparison:
    """Compare two studies, configuration by configuration."""
    found = {
        labels: _changes(labels, first[labels], second[labels]) for labels in first.keys() & second.keys()
    }
    changes = [one for own in found.values() for one in own]
    return Comparison(
        sorted(" / ".join(labels) for labels in first.keys() - second.keys()),
        sorted(" / ".join(labels) for labels in second.keys() - first.keys()),
        sum(all(one.measure.endswith("_seconds") for one in own) for own in found.values()),
        sorted(changes, key=lambda one: (-one.spreads, one.configuration, one.measure)),
    )


def _changes(labels: Sequence[str], first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Change]:
    found = []
    for measure in first.keys() | second.keys():
        before, after = first.get(measure), second.get(measure)
        a, b = (math.nan if one is None else float(one["mean"]) for one in (before, after))
        if math.isclose(a, b, rel_tol=SAME, abs_tol=1e-12):
            continue
        spread = math.hypot(
            *(one["sd"] for one in (before, after) if one is not None and one["sd"] is not None)
        )
        spreads = abs(a - b) / spread if spread > 0 and math.isfinite(a - b) else math.inf
        # Seconds are never the same twice.
        if not measure.endswith("_seconds") or spreads > 2:
            found.append(Change(" / ".join(labels), measure, a, b, spreads))
    return found
