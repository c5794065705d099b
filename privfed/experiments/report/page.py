"""The report of a study: one HTML page without outside requests, readable on a phone and on paper.

Every measured number is in a `<data>` element with its full value, its configuration (`data-id`) and its
measure (`data-name`). The page lists the cells of each configuration, so that each number can be computed
again from what is stored.
"""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from privfed.attacks import ActiveAttack, Status
from privfed.attacks.base.interface import attack_class
from privfed.attacks.base.reading import in_words
from privfed.core.stored.files import rewrite
from privfed.experiments.planning import Plan
from privfed.experiments.report import pictures
from privfed.experiments.report.advice import Advice, advised, answers
from privfed.experiments.report.claims import SCORED, ComposedBudget, composed_budgets, saw
from privfed.experiments.report.curves import shown
from privfed.experiments.report.summary import Row, claims_of, summarise
from privfed.experiments.report.tables import (
    Cell,
    axes,
    by_data,
    columns,
    figure,
    listed,
    name_of,
    number,
    remarks,
    scrolled,
    short,
    stat,
    write_tables,
)
from privfed.experiments.running import Store
from privfed.version import __version__

PAGE, STUDY = "report.html", "study.toml"
LIBRARIES = ("numpy", "scipy", "scikit-learn", "cryptography", "polars")
MEANINGS = {
    "cost ratio": "k-means cost of the centers, divided by that of central k-means (the best of 20 starts)",
    "leakage": "the largest advantage of any attack: (headline - baseline) / (1 - baseline), at least 0. The "
    "baseline is the same attacker without access. Of an AUC what chance gives is taken off first.",
    "recovered": "an attack's headline: the share of rows (or counts, ...) that it found, or its AUC",
    "precision": "right claims among all claims",
    "bound": "how far one kind of reasoning could come on the same view. For rows this is linear algebra on "
    "the sums that were read, if the cell of every row were known. Other reasoning may come further.",
    "bytes": "of one client, mean over the clients, in a whole run",
    "client CPU s": "CPU seconds of one simulated client in a whole run; server CPU s: all the others",
    "audited epsilon": "a lower bound from the run's own releases with and without one worst row. A value "
    "above the claimed epsilon would disprove the claim.",
}


def write_report(folder: Path, plan: Plan, store: Store) -> list[Row]:
    """Write the page and the tables of the results stored so far.

    Args:
        folder: folder of the study.
        plan: plan of the study.
        store: results of the study.

    Returns:
        The configurations that the report shows: those with at least one stored part.
    """
    rows = summarise(plan, store)
    advice = answers(plan, rows)
    budgets = composed_budgets(plan.setups, store.asked())
    write_tables(folder, plan, rows, [one.plain() for one in advice], budgets)
    for name, text in ((PAGE, page(plan, rows, advice, budgets)), (STUDY, plan.file.text)):
        rewrite(folder / name, text.encode())
    return rows


def page(plan: Plan, rows: Sequence[Row], advice: Sequence[Advice], budgets: Sequence[ComposedBudget]) -> str:
    """Return the report as HTML.

    Args:
        plan: plan of the study.
        rows: configurations of the study.
        advice: the answers to "What should I use?".
        budgets: what all fits of its folder amount to.
    """
    study, groups = plan.file.study, by_data(rows)
    sections = [
        ("use", "What should I use?", advised(rows, advice)),
        ("tradeoff", "Utility against leakage", _figures((pictures.pareto(*one) for one in groups), rows)),
        ("each", "Attack by attack", _matrix(rows)),
        (
            "leakage",
            "Leakage over the rounds",
            _figures((each for one in groups for each in pictures.leaks(*one)), rows),
        ),
        (
            "fits",
            "Leakage over several fits",
            _over_fits(rows)
            + _figures((each for one in groups for each in pictures.several_fits(*one)), rows),
        ),
        (
            "privacy",
            "Price of differential privacy",
            _figures((pictures.frontier(*one) for one in groups), rows),
        ),
        ("clients", "Number of clients", _figures(pictures.scaling(rows), rows)),
        ("together", "All fits together", _composed_budgets(budgets)),
        ("cost", "Cost", _figures((each for one in groups for each in pictures.costs(*one)), rows)),
        (
            "convergence",
            "Convergence",
            _figures((each for one in groups for each in pictures.convergence(*one)), rows)
            + _unconverged(rows),
        ),
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


def _facts(facts: Mapping[str, str]) -> str:
    given = (f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items())
    return f"<dl>{''.join(given)}</dl>"


def _figures(found: Iterable[pictures.Picture | None], rows: Sequence[Row]) -> str:
    drawn = "".join(_drawn(one, rows) for one in found if one is not None)
    return f'<div class="figures">{drawn}</div>' if drawn else ""


def _drawn(picture: pictures.Picture, rows: Sequence[Row]) -> str:
    drawing = f"{picture.drawing}{picture.key}"
    table = scrolled(picture.head, ([_cell(one, rows) for one in line] for line in picture.lines))
    if picture.folded:
        summary = f"<summary>{len(picture.lines)} configurations</summary>"
        drawing = f"<details>{summary}{drawing}</details>"
    return (
        f"<figure><h3>{escape(picture.title)}</h3>{drawing}"
        f"<figcaption>{escape(picture.about)}</figcaption>"
        f"<details><summary>The numbers of this picture</summary>{table}</details></figure>"
    )


def _cell(one: str | pictures.Number, rows: Sequence[Row]) -> str:
    if isinstance(one, str):
        return one
    return number(figure(one.value, one.sd, 0, rows[one.row - 1], one.name) if one.row else shown(one.value))


def _matrix(rows: Sequence[Row]) -> str:
    """Return a table of what each attack gained in each configuration; darker cells mean more."""
    tables = ""
    for name, own in by_data(rows):
        attacks = list(dict.fromkeys(attack for _, row in own for attack in row.attacks))
        if len(attacks) < 2:
            continue
        name_of_row = short([row for _, row in own])
        lines = ((f"#{i}", name_of_row(row), *(_gain(row, one) for one in attacks)) for i, row in own)
        tables += scrolled(("", "configuration", *attacks), lines, about=f"<h3>{escape(name)}</h3>")
    if tables:
        tables = (
            "<p>What each attack gained over the same attacker without access: (headline - baseline) / (1 - "
            "baseline). Leakage is the largest of a row. 0: it found nothing, in what it read. Empty: it was "
            "not run on that sum or algorithm, or had nothing to work on.</p>" + tables
        )
    return tables + _not_applicable(rows) + _unread(rows)


def _gain(row: Row, attack: str) -> str:
    """Return the cell of what an attack gained."""
    gain = row.stats.get(f"{attack}: advantage")
    if gain is None:
        return number("")
    ended = row.status(attack)
    remark = f" ({ended})" if ended in (Status.NOT_READ, Status.IN_PART) else ""
    shade = f' style="background: rgb(213 94 0 / {gain.mean * 0.6:.2f})"'
    return number(f"{stat(row, f'{attack}: advantage')}{remark}", shade)


def _over_fits(rows: Sequence[Row]) -> str:
    """Return a table with a line for each attack on each configuration: what more and more fits gave it."""
    numbers = sorted({at for row in rows for curve in row.fits.values() for at in curve.rounds})
    name = short(rows)

    def recovered(row: Row, attack: str, at: int) -> str:
        one = dict(zip(row.fits[attack].rounds, row.fits[attack].values, strict=True)).get(at)
        return number("" if one is None else figure(one.mean, one.sd, one.n, row, f"fits.{attack}.{at}"))

    lines = (
        (f"#{i}", name(row), attack, *(recovered(row, attack, at) for at in numbers))
        for i, row in enumerate(rows, start=1)
        for attack in row.fits
    )
    head = ("", "configuration", "attack", *(f"{at} {'fit' if at == 1 else 'fits'}" for at in numbers))
    text = "<p>What each attack recovers from so many fits of the same rows together, with a seed each.</p>"
    return scrolled(head, lines, about=text)


def _not_applicable(rows: Sequence[Row]) -> str:
    """Return a table of attacks that had nothing to work on, and why."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, row in enumerate(rows, start=1):
        for name, reasons in row.not_applicable.items():
            for why in reasons:
                found[name, why].append(i)
    lines = ((name, listed(numbers), why) for (name, why), numbers in found.items())
    text = (
        "<h3>Not applicable</h3><p>These attacks had nothing to work on. They count neither as found nor as "
        "found nothing, and no leakage rests on them.</p>"
    )
    return scrolled(("attack", "configurations", "why"), lines, about=text)


def _unread(rows: Sequence[Row]) -> str:
    """Return a table of the sums that were shown and that no attack read."""
    found: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows, start=1):
        for one in row.unread:
            found[in_words([one])].append(i)
    lines = ((listed(numbers), what) for what, numbers in found.items())
    text = (
        "<h3>Shown, and read by no attack</h3><p>Nothing is known of what these sums give away. They are of "
        "the first seed.</p>"
    )
    return scrolled(("configurations", "sums"), lines, about=text)


def _composed_budgets(budgets: Sequence[ComposedBudget]) -> str:
    listed = "".join(f"<li>{escape(str(one))}</li>" for one in budgets)
    text = (
        "<p>Each fit keeps its own budget. A reader of all that this folder ever reported sees all of them, "
        "and claims add up:</p>"
    )
    return f"{text}<ul>{listed}</ul>" if listed else ""


def _table(plan: Plan, rows: Sequence[Row]) -> str:
    measures, differing = columns(plan.file.study, rows), axes(rows)
    remarked = any(map(remarks, rows))
    head = "".join(
        f"<th{' class=number' if name in measures or name == '#' else ''}>"
        f'<button type="button">{escape(name_of(name))}</button></th>'
        for name in ("#", *differing, *measures, *(["remarks"] if remarked else []), "cells")
    )
    lines, ran = "", defaultdict[str, list[int]](list)
    for i, row in enumerate(rows, start=1):
        labels = "".join(f"<td>{escape(row.setup.labels[axis])}</td>" for axis in differing)
        figures = "".join(number(stat(row, name)) for name in measures)
        cells = " ".join(f"<code>{cell}</code>" for cell in row.cells.values())
        remark = f"<td>{escape(remarks(row))}</td>" if remarked else ""
        lines += (
            f'<tr id="c-{row.id}"><td class="number">{i}</td>{labels}{figures}{remark}<td>{cells}</td></tr>'
        )
        ran[row.ran].append(i)
    facts = "".join(
        f"<dt>{listed(numbers)}</dt><dd><code>{escape(text)}</code></dd>"
        for text, numbers in ran.items()
        if text
    )
    return (
        '<p><label for="filter">Keep the rows with every one of these words:</label><br>'
        '<input id="filter" type="search" autocomplete="off"></p>'
        f'<div class="scroll"><table id="all"><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
        + (f"<h3>What ran, whatever it is called</h3><dl>{facts}</dl>" if facts else "")
        + f"<details><summary>What the words mean</summary>{_facts(MEANINGS)}</details>"
    )


def _unconverged(rows: Sequence[Row]) -> str:
    """Return a table of fits that did not converge, why, and what helps."""
    name = short(rows)
    lines = (
        (f"#{i}", name(row), ", ".join(str(seed) for seed, own in row.unconverged.items() if own == why), why)
        for i, row in enumerate(rows, start=1)
        for why in dict.fromkeys(row.unconverged.values())
    )
    text = (
        '<h3>Fits that did not converge</h3><p class="warn">Their centers were still moving: what was '
        "measured of them is of a state on the way.</p>"
    )
    return scrolled(("", "configuration", "seeds", "why, and what helps"), lines, about=text)


def _parties(rows: Sequence[Row]) -> str:
    kinds: dict[str, dict[str, str]] = {}
    for row in rows:
        if row.cells:
            private = row.setup.labels["privacy"]
            name = row.setup.labels["sum"] + ("" if private == "none" else f", {private}")
            kinds.setdefault(f"Sum {name}", saw(row) | ({} if row.claim is None else row.claim.facts()))
    lists = "".join(f"<h3>{escape(name)}</h3>{_facts(seen)}" for name, seen in kinds.items())
    return lists + (f"<p>{escape(SCORED)}</p>" if claims_of(rows) else "")


def _attacks(plan: Plan) -> str:
    lists = ""
    for attack in plan.file.study.attack:
        kind = attack_class(attack.kind)
        seen = f"what the {attack.party} saw of the run"
        if issubclass(kind, ActiveAttack):
            seen = f"answers to {attack.budget} questions of its own"
        facts = {
            "from": kind.paper,
            "attacker": kind.adversary,
            "sees": seen,
            "knows besides": kind.prior,
            "stopped by": kind.defence,
        }
        given = {name: text for name, text in facts.items() if text}
        lists += f"<h3>{escape(attack.title)}</h3>{_facts(given)}"
    return lists


def _failures(rows: Sequence[Row]) -> str:
    lines = (
        (Cell(f"<td><code>{cell}</code></td>"), row.setup.title, part, error)
        for row in rows
        for cell, part, error in row.errors
    )
    text = '<p class="warn">These measurements are missing above; all others are there.</p>'
    return scrolled(("cell", "configuration", "measurement", "error"), lines, about=text)


def _origin(plan: Plan, rows: Sequence[Row]) -> str:
    versions = {"privfed": __version__, "Python": platform.python_version()}
    versions |= {name: version(name) for name in LIBRARIES}
    libraries = ", ".join(f"{name} {number}" for name, number in versions.items())
    noted = "".join(
        f"<li>{escape(note)}</li>" for note in sorted({note for row in rows for note in row.notes})
    )
    return (
        f"<p>Seeds {', '.join(map(str, plan.seeds))}. {escape(libraries)}. Results as numbers lie beside "
        "this page: results.csv, results.parquet and results.json; one row a cell in cells.sqlite.</p>"
        + (f"<details><summary>Warnings of the runs</summary><ul>{noted}</ul></details>" if noted else "")
        + (f"<h3>The study</h3><pre>{escape(plan.file.text)}</pre>" if plan.file.text else "")
    )
