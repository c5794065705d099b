"""The report of a study as one HTML page without outside requests, readable on a phone and on paper.

Every measured number is in a `<data>` element with its full value, its configuration (`data-id`) and its
measure (`data-name`). The page lists the cells of each configuration, so that each number can be computed
again from what is stored.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from string import ascii_lowercase

from privfed import __version__
from privfed.attacks import ActiveAttack
from privfed.attacks.registry import attack_class
from privfed.experiments.report import pictures
from privfed.experiments.report.advice import Advice
from privfed.experiments.report.claims import SCORED
from privfed.experiments.report.composed_budget import composed_budgets
from privfed.experiments.report.parties import saw
from privfed.experiments.report.pictures import Number, Picture
from privfed.experiments.report.remarks import (
    NOTHING_TO_WORK_ON,
    listed,
    not_applicable,
    ran,
    remarks,
    unconverged,
    unmeasured,
)
from privfed.experiments.report.scaling import scaling
from privfed.experiments.report.summary import Row, Stat, claims_of, shown
from privfed.experiments.report.tables import axes, columns, name_of
from privfed.experiments.running.planning import Plan
from privfed.experiments.study.cells import attack_label

LIBRARIES = ("numpy", "scipy", "scikit-learn", "cryptography", "polars")
MEANINGS = {
    "cost ratio": "k-means cost of the centers, divided by that of central k-means (the best of 20 starts)",
    "leakage": "the largest advantage of any attack: (headline - baseline) / (1 - baseline), at least 0, "
    "where the baseline is the same attacker without access; of an AUC what chance gives is taken off first",
    "recovered": "an attack's headline: the share of rows (or counts, ...) that it found, or its AUC",
    "precision": "right claims among all claims",
    "bound": "how far one kind of reasoning could come on the same view: for rows linear algebra on the sums "
    "that were read, if the cell of every row were known; other reasoning may come further",
    "bytes": "of one client, mean over the clients, in a whole run",
    "client CPU s": "CPU seconds of one simulated client in a whole run; server CPU s: all the others",
    "audited epsilon": "a lower bound from the run's own releases with and without one worst row; a value "
    "above the claimed epsilon would disprove the claim",
}


def page(plan: Plan, rows: Sequence[Row], advice: Sequence[tuple[str, Advice]]) -> str:
    """Return the report as HTML.

    Args:
        plan: plan of the study.
        rows: configurations of the study.
        advice: name of a data set and its partition, and an answer for it.
    """
    study = plan.located.study
    sections = [
        ("use", "What should I use?", _advice(rows, advice)),
        ("tradeoff", "Utility against leakage", _group(rows, "pareto")),
        ("each", "Attack by attack", _matrix(rows)),
        ("leakage", "Leakage over the rounds", _group(rows, "leaks")),
        ("privacy", "Price of differential privacy", _group(rows, "frontier")),
        ("clients", "Number of clients", _figures(scaling(rows), rows)),
        ("together", "All fits together", _composed_budgets(rows)),
        ("cost", "Cost", _group(rows, "costs")),
        ("convergence", "Convergence", _group(rows, "convergence") + _unconverged(rows)),
        ("table", "All configurations", _table(plan, rows)),
        ("saw", "What each party saw", _parties(rows)),
        ("attacks", "The attacks", _attacks(plan)),
        ("failed", "What failed", _failures(rows)),
        ("origin", "Where this comes from", _origin(plan, rows)),
    ]
    kept = [(name, title, body) for name, title, body in sections if body]
    links = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title, _ in kept)
    parts = [
        f"<h1>{escape(study.name)}</h1>",
        f"<p>{escape(study.about)}</p>" if study.about else "",
        f'<p class="soft">{len(rows)} configurations, {len(plan.seeds)} seed{"s" * (len(plan.seeds) > 1)} '
        f"each, measured by privfed {escape(__version__)} on simulated clients. Mean ± standard deviation "
        "over the seeds.</p>",
        f"<nav>{links}</nav>",
        *(f'<section id="{name}"><h2>{escape(title)}</h2>{body}</section>' for name, title, body in kept),
    ]
    style, script = (files(__package__).joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # Without this link browsers would request an icon from the server.
        '<link rel="icon" href="data:,">'
        f"<title>{escape(study.name)}</title><style>{style}</style></head><body>"
        f"{''.join(parts)}<script>{script}</script></body></html>\n"
    )


def _figure(value: float, sd: float, n: int, row: Row, name: str) -> str:
    """Return a measured number as HTML with its origin."""
    text = str(Stat(value, sd, n)) if not math.isnan(sd) else shown(value)
    cells = " ".join(row.cells.values())
    return (
        f'<data value="{value!r}" data-id="{row.id}" data-name="{escape(name)}" '
        f'title="{n or len(row.cells)} cells: {cells}">{text}</data>'
    )


def _stat(row: Row, name: str) -> str:
    stat = row.stats.get(name)
    return "" if stat is None else _figure(stat.mean, stat.sd, stat.n, row, f"stats.{name}")


def _advice(rows: Sequence[Row], advice: Sequence[tuple[str, Advice]]) -> str:
    if not advice:
        return ""
    numbers = {row.id: i for i, row in enumerate(rows, start=1)}
    told, notes = pictures.short(rows), dict[str, str]()
    lines = []
    for data, one in advice:
        asked = f"<td>{escape(data)}</td><td>{one.leakage:g}</td><td>{one.score_ratio:g}</td>"
        if one.row is None:
            lines.append(f"<tr>{asked}<td colspan=5>nothing that was measured keeps within both</td></tr>")
            continue
        for caveat in one.caveats:
            notes.setdefault(caveat, ascii_lowercase[len(notes) % 26])
        lines.append(
            f"<tr>{asked}<td>#{numbers[one.row.id]} {escape(told(one.row))}</td>"
            + "".join(f"<td>{_stat(one.row, name)}</td>" for name in ("leakage", "score_ratio", "bytes"))
            + f"<td>{' '.join(notes[caveat] for caveat in one.caveats)}</td></tr>"
        )
    head = ("data", "leakage ≤", "cost ratio ≤", "use", "leakage", "cost ratio", "bytes", "caveats")
    unknown = unmeasured(list(enumerate(rows, start=1)))
    left_out = f"<p>Not considered: {listed(unknown)}, {NOTHING_TO_WORK_ON}.</p>" if unknown else ""
    return (
        "<p>For what may leak and what a clustering may cost: the configuration with the fewest bytes of a "
        "client that kept within both, on average over the seeds. It holds for one fit: several fits of the "
        "same rows, and metrics on them, add up. It was measured here, on this data, with these attacks; "
        "other data and other attacks are another study.</p>"
        f'<div class="scroll"><table class="advice"><thead><tr>{"".join(f"<th>{one}</th>" for one in head)}'
        f"</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
        f"<dl>{''.join(f'<dt>{letter}</dt><dd>{escape(one)}</dd>' for one, letter in notes.items())}</dl>"
        f"{left_out}"
    )


def _group(rows: Sequence[Row], kind: str) -> str:
    """Return one kind of picture, drawn for each data set and partition."""
    found: list[Picture] = []
    for name, own in pictures.by_data(rows):
        if kind == "leaks":
            found += pictures.leaks(name, own)
        elif kind == "costs":
            found += pictures.costs(name, own)
        elif kind == "convergence":
            found += pictures.convergence(name, own)
        else:
            one = {"pareto": pictures.pareto, "frontier": pictures.frontier}[kind](name, own)
            found += [] if one is None else [one]
    return _figures(found, rows)


def _figures(found: Sequence[Picture], rows: Sequence[Row]) -> str:
    if not found:
        return ""
    return f'<div class="figures">{"".join(_drawn(one, rows) for one in found)}</div>'


def _matrix(rows: Sequence[Row]) -> str:
    """Return a table of what each attack gained in each configuration; darker cells mean more."""
    tables = ""
    for name, own in pictures.by_data(rows):
        attacks = list(dict.fromkeys(attack for _, row in own for attack in row.attacks))
        if len(attacks) < 2:
            continue
        told = pictures.short([row for _, row in own])
        head = "".join(f"<th>{escape(word)}</th>" for word in ("", "configuration", *attacks))
        lines = ""
        for i, row in own:
            cells = ""
            for attack in attacks:
                gain = row.stats.get(f"{attack}: advantage")
                shade = "" if gain is None else f' style="background: rgb(213 94 0 / {gain.mean * 0.6:.2f})"'
                cells += f'<td class="number"{shade}>{_stat(row, f"{attack}: advantage")}</td>'
            lines += f"<tr><td>#{i}</td><td>{escape(told(row))}</td>{cells}</tr>"
        tables += (
            f'<h3>{escape(name)}</h3><div class="scroll"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{lines}</tbody></table></div>"
        )
    if tables:
        tables = (
            "<p>What each attack gained over the same attacker without access: (headline - baseline) / (1 - "
            "baseline). Leakage is the largest of a row. 0: it ran and found nothing. Empty: it was not run "
            "on that sum or algorithm, or had nothing to work on.</p>" + tables
        )
    return tables + _left_out(rows)


def _left_out(rows: Sequence[Row]) -> str:
    """Return a table of attacks that had nothing to work on, and why."""
    lines = "".join(
        f"<tr><td>{escape(name)}</td><td>{listed(numbers)}</td><td>{escape(why)}</td></tr>"
        for name, why, numbers in not_applicable(rows)
    )
    if not lines:
        return ""
    return (
        "<h3>Not applicable</h3><p>These attacks had nothing to work on. They count neither as found nor as "
        'found nothing, and no leakage and no advice rests on them.</p><div class="scroll"><table><thead><tr>'
        f"<th>attack</th><th>configurations</th><th>why</th></tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _drawn(picture: Picture, rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in picture.head)
    lines = "".join(f"<tr>{''.join(_cell(one, rows) for one in line)}</tr>" for line in picture.lines)
    drawing = f"{picture.drawing}{picture.key}"
    if picture.folded:
        summary = f"<summary>{len(picture.lines)} configurations</summary>"
        drawing = f"<details>{summary}{drawing}</details>"
    return (
        f"<figure><h3>{escape(picture.title)}</h3>{drawing}"
        f"<figcaption>{escape(picture.about)}</figcaption>"
        f'<details><summary>The numbers of this picture</summary><div class="scroll"><table><thead>'
        f"<tr>{head}</tr></thead><tbody>{lines}</tbody></table></div></details></figure>"
    )


def _cell(one: str | Number, rows: Sequence[Row]) -> str:
    if isinstance(one, str):
        return f"<td>{escape(one)}</td>"
    if one.row == 0:
        return f'<td class="number">{shown(one.value)}</td>'
    return f'<td class="number">{_figure(one.value, one.sd, 0, rows[one.row - 1], one.name)}</td>'


def _composed_budgets(rows: Sequence[Row]) -> str:
    told = "".join(f"<li>{escape(str(one))}</li>" for one in composed_budgets(rows))
    if not told:
        return ""
    return (
        "<p>Each fit keeps its own budget. A reader of this report sees all of them, and claims add "
        f"up:</p><ul>{told}</ul>"
    )


def _table(plan: Plan, rows: Sequence[Row]) -> str:
    measures, differing = columns(plan.located.study, rows), axes(rows)
    remarked = any(map(remarks, rows))
    head = "".join(
        f"<th{' class=number' if name in measures or name == '#' else ''}>"
        f'<button type="button">{escape(name_of(name))}</button></th>'
        for name in ("#", *differing, *measures, *(["remarks"] if remarked else []), "cells")
    )
    lines = []
    for i, row in enumerate(rows, start=1):
        labels = "".join(f"<td>{escape(row.setup.labels[axis])}</td>" for axis in differing)
        figures = "".join(f'<td class="number">{_stat(row, name)}</td>' for name in measures)
        cells = " ".join(f"<code>{cell}</code>" for cell in row.cells.values())
        told = f"<td>{escape('; '.join(remarks(row)))}</td>" if remarked else ""
        lines.append(
            f'<tr id="c-{row.id}"><td class="number">{i}</td>{labels}{figures}{told}<td>{cells}</td></tr>'
        )
    meanings = "".join(f"<dt>{escape(word)}</dt><dd>{escape(text)}</dd>" for word, text in MEANINGS.items())
    return (
        '<p><label for="filter">Keep the rows that hold every one of these words:</label><br>'
        '<input id="filter" type="search" autocomplete="off"></p>'
        f'<div class="scroll"><table id="all"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
        f"{_ran(rows)}<details><summary>What the words mean</summary><dl>{meanings}</dl></details>"
    )


def _ran(rows: Sequence[Row]) -> str:
    """Return the algorithms that the estimators with their parameters amount to."""
    facts = "".join(
        f"<dt>{listed(numbers)}</dt><dd><code>{escape(text)}</code></dd>" for text, numbers in ran(rows)
    )
    return f"<h3>What ran, whatever it is called</h3><dl>{facts}</dl>" if facts else ""


def _unconverged(rows: Sequence[Row]) -> str:
    """Return a table of fits that did not converge, why, and what helps."""
    found = unconverged(rows)
    if not found:
        return ""
    told = pictures.short(rows)
    lines = "".join(
        f"<tr><td>#{i}</td><td>{escape(told(row))}</td><td>{', '.join(map(str, seeds))}</td>"
        f"<td>{escape(why)}</td></tr>"
        for i, row, seeds, why in found
    )
    return (
        '<h3>Fits that did not converge</h3><p class="warn">Their centers were still moving: what was '
        'measured of them is of a state on the way.</p><div class="scroll"><table><thead><tr><th></th>'
        "<th>configuration</th><th>seeds</th><th>why, and what helps</th></tr></thead>"
        f"<tbody>{lines}</tbody></table></div>"
    )


def _parties(rows: Sequence[Row]) -> str:
    kinds: dict[str, dict[str, str]] = {}
    for row in rows:
        if row.cells:
            private = row.setup.labels["privacy"]
            name = row.setup.labels["sum"] + ("" if private == "none" else f", {private}")
            kinds.setdefault(f"Sum {name}", saw(row) | ({} if row.claim is None else row.claim.facts()))
    told = ""
    for name, seen in kinds.items():
        facts = "".join(f"<dt>{escape(who)}</dt><dd>{escape(what)}</dd>" for who, what in seen.items())
        told += f"<h3>{escape(name)}</h3><dl>{facts}</dl>"
    return told + (f"<p>{escape(SCORED)}</p>" if claims_of(rows) else "")


def _attacks(plan: Plan) -> str:
    told = ""
    for attack in plan.located.study.attack:
        kind = attack_class(attack.kind)
        words = {
            "from": kind.paper,
            "attacker": kind.adversary,
            "sees": f"answers to {attack.budget} questions of its own"
            if issubclass(kind, ActiveAttack)
            else f"what the {attack.party} saw of the run",
            "knows besides": kind.prior,
            "stopped by": kind.defence,
        }
        facts = "".join(f"<dt>{word}</dt><dd>{escape(text)}</dd>" for word, text in words.items() if text)
        told += f"<h3>{escape(attack_label(attack))}</h3><dl>{facts}</dl>"
    return told


def _failures(rows: Sequence[Row]) -> str:
    lines = [
        f"<tr><td><code>{cell}</code></td><td>{escape(row.label)}</td><td>{escape(part)}</td>"
        f"<td>{escape(error)}</td></tr>"
        for row in rows
        for cell, part, error in row.errors
    ]
    if not lines:
        return ""
    return (
        '<p class="warn">These measurements are missing above; all others are there.</p>'
        '<div class="scroll"><table><thead><tr><th>cell</th><th>configuration</th><th>measurement</th>'
        f"<th>error</th></tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _origin(plan: Plan, rows: Sequence[Row]) -> str:
    versions = {"privfed": __version__, "Python": platform.python_version()}
    versions |= {name: version(name) for name in LIBRARIES}
    listed = ", ".join(f"{name} {number}" for name, number in versions.items())
    notes = sorted({note for row in rows for note in row.notes})
    noted = "".join(f"<li>{escape(note)}</li>" for note in notes)
    text = plan.located.text
    return (
        f"<p>Seeds {', '.join(map(str, plan.seeds))}. {escape(listed)}. Results as numbers lie beside this "
        "page: results.csv, results.parquet and results.json; one row a cell in cells.sqlite.</p>"
        + (f"<details><summary>Warnings of the runs</summary><ul>{noted}</ul></details>" if notes else "")
        + (f"<h3>The study</h3><pre>{escape(text)}</pre>" if text else "")
    )
