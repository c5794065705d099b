"""The report of a study: one HTML page without outside requests, readable on a phone and on paper.

Every measured number is in a `<data>` element with its full value, its configuration (`data-id`) and its
measure (`data-name`). The page lists the cells of each configuration, so that each number can be computed
again from what is stored.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from privfed.attacks import ActiveAttack, Status
from privfed.attacks.base.interface import attack_class
from privfed.attacks.base.reading import in_words
from privfed.core.stored.files import rewrite
from privfed.estimators.judging import MOST
from privfed.experiments.planning import Plan
from privfed.experiments.report.advice import Advice, advised, answers
from privfed.experiments.report.claims import SCORED, ComposedBudget, composed_budgets, saw
from privfed.experiments.report.curves import shown
from privfed.experiments.report.figures import pictures, write_figures
from privfed.experiments.report.summary import Row, claims_of, summarise
from privfed.experiments.report.tables import (
    Cell,
    axes,
    by_data,
    columns,
    grouped,
    listed,
    long_form,
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
    "leakage": "a lower bound, the largest advantage of any attack: (headline - baseline) / (1 - baseline), "
    "no less than 0. The baseline is the same attacker without access. Of an AUC 1.645 standard deviations "
    "of chance are taken off first: with 8 members among 16 candidates .24. So 0 does not say that nothing "
    "leaks.",
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
    figures = write_figures(folder, pictures(rows, long_form(rows)))
    for name, text in ((PAGE, page(plan, rows, advice, budgets, figures)), (STUDY, plan.file.text)):
        rewrite(folder / name, text.encode())
    return rows


def page(
    plan: Plan,
    rows: Sequence[Row],
    advice: Sequence[Advice],
    budgets: Sequence[ComposedBudget],
    figures: dict[str, str],
) -> str:
    """Return the report as HTML.

    Args:
        plan: plan of the study.
        rows: configurations of the study.
        advice: the answers to "What should I use?".
        budgets: what all fits of its folder amount to.
        figures: name of each figure -> HTML; the first one opens the page.
    """
    study, opening = plan.file.study, figures.pop("tradeoff", "") or figures.pop("leakage-against-cost", "")
    sections = [
        ("use", "What should I use?", advised(rows, advice), False),
        ("more", "Further figures", "".join(figures.values()), True),
        ("each", "Attack by attack", _matrix(rows), True),
        ("together", "All fits together", _composed_budgets(budgets), True),
        ("findings", "What fits find about themselves", _found(rows), True),
        ("table", "All configurations", _table(plan, rows), True),
        ("saw", "What each party saw", _parties(rows), True),
        ("attacks", "The attacks", _attacks(plan), True),
        ("failed", "What failed", _failures(rows), False),
        ("origin", "Where this comes from", _origin(plan, rows), True),
    ]
    kept = [one for one in sections if one[2]]
    links = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title, _, _ in kept)
    parts = [
        f"<h1>{escape(study.name)}</h1>",
        f"<p>{escape(study.about)}</p>" if study.about else "",
        opening,
        f"<p>{escape(' '.join(found_in(rows)))}</p>",
        f'<p class="soft">{len(rows)} configurations, {len(plan.seeds)} seed{"s" * (len(plan.seeds) > 1)} '
        f"each, measured by privfed {escape(__version__)} on simulated clients. Tables have mean ± standard "
        "deviation over the seeds; study.csv has every fit.</p>",
        f"<nav>{links}</nav>",
        *(
            f'<section id="{name}"><details{" open" * (not folded)}>'
            f"<summary><h2>{escape(title)}</h2></summary>{body}</details></section>"
            for name, title, body, folded in kept
        ),
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


def found_in(rows: Sequence[Row]) -> list[str]:
    """Return what was found, in a sentence for each data set: the ends of cost and of leakage."""
    said = []
    for name, own in by_data(rows):
        ends = [f"On {name}"]
        label = short([row for _, row in own])
        for measure, what in (("score_ratio", "the cost ratio is"), ("leakage", "leakage is at least")):
            known = sorted((row.stats[measure].mean, i, label(row)) for i, row in own if measure in row.stats)
            if known:
                (low, i, best), (high, j, worst) = known[0], known[-1]
                ends_at = f"{shown(low, 3)} (#{i} {best}) to {shown(high, 3)} (#{j} {worst})"
                ends.append(
                    f"{what} {ends_at if low < high else f'{shown(low, 3)} wherever it was measured'}"
                )
        if len(ends) > 1:
            said.append(f"{', '.join(ends)}.")
    return said


def _matrix(rows: Sequence[Row]) -> str:
    """Return a table of what each attack gained in each configuration; darker cells mean more."""
    tables = ""
    for name, own in by_data(rows):
        attacks = list(dict.fromkeys(attack for _, row in own for attack in row.attacks))
        name_of_row = short([row for _, row in own])
        lines = ((f"#{i}", name_of_row(row), *(_gain(row, one) for one in attacks)) for i, row in own)
        if len(attacks) > 1:
            tables += scrolled(("", "configuration", *attacks), lines, about=f"<h3>{escape(name)}</h3>")
    if tables:
        tables = (
            "<p>What each attack gained over the same attacker without access: (headline - baseline) / (1 - "
            "baseline). Leakage is the largest of a row. 0: no better than a guess may be by chance, with "
            "what it read. "
            "Empty: it was not run on that sum or algorithm, or had nothing to work on.</p>" + tables
        )
    return tables + _silent(rows)


def _gain(row: Row, attack: str) -> str:
    """Return the cell of what an attack gained."""
    gain = row.stats.get(f"{attack}: advantage")
    if gain is None:
        return number("")
    remark = "" if (ended := row.status(attack)) == Status.FOUND else f" ({ended})"
    shade = f' style="background: rgb(213 94 0 / {gain.mean * 0.6:.2f})"'
    return number(f"{stat(row, f'{attack}: advantage')}{remark}", shade)


def _silent(rows: Sequence[Row]) -> str:
    """Return what attacks had nothing to work on, and what was shown and read by none."""
    nothing = [
        (i, (name, why))
        for i, row in enumerate(rows, start=1)
        for name, own in row.not_applicable.items()
        for why in own
    ]
    unread = [(i, (in_words([one]),)) for i, row in enumerate(rows, start=1) for one in row.unread]
    return grouped(
        nothing,
        ("attack", "why"),
        "Not applicable",
        "These attacks had nothing to work on. No leakage rests on them.",
    ) + grouped(
        unread,
        ("sums",),
        "Shown, and read by no attack",
        "Nothing is known of what these sums give away. They are of the first seed.",
    )


def _composed_budgets(budgets: Sequence[ComposedBudget]) -> str:
    listed = "".join(f"<li>{escape(str(one))}</li>" for one in budgets)
    return listed and (
        "<p>Each fit keeps its own budget. A reader of all that this folder ever reported sees all of them, "
        f"and claims add up:</p><ul>{listed}</ul>"
    )


def _table(plan: Plan, rows: Sequence[Row]) -> str:
    """Return the table of all configurations, which the page's script sorts and filters, and what ran."""
    measures, differing = columns(plan.file.study, rows), axes(rows)
    remarked = ["remarks"] * any(map(remarks, rows))
    lines = (
        (
            number(str(i)),
            *(row.setup.labels[axis] for axis in differing),
            *(number(stat(row, name)) for name in measures),
            *(remarks(row) for _ in remarked),
            Cell(f"<td>{' '.join(f'<code>{cell}</code>' for cell in row.cells.values())}</td>"),
        )
        for i, row in enumerate(rows, start=1)
    )
    ran = [
        (i, (Cell(f"<td><code>{escape(row.ran)}</code></td>"),))
        for i, row in enumerate(rows, start=1)
        if row.ran
    ]
    return (
        '<p><label for="filter">Keep the rows with every one of these words:</label><br>'
        '<input id="filter" type="search" autocomplete="off"></p>'
        + scrolled(("#", *differing, *map(name_of, measures), *remarked, "cells"), lines, "all")
        + grouped(ran, ("algorithm",), "What ran, whatever it is called", "")
        + f"<details><summary>What the words mean</summary>{_facts(MEANINGS)}</details>"
    )


def _found(rows: Sequence[Row]) -> str:
    """Return a table of what fits find about themselves: each kind once, the commonest first."""
    said = [
        (code, i, text)
        for i, row in enumerate(rows, start=1)
        for own in row.findings.values()
        for code, text in own.items()
    ]
    fits = sum(len(row.cells) for row in rows)
    lines = (
        (code.replace("-", " "), f"{n} of {fits}", own[0][1], listed(sorted({i for i, _ in own})))
        for code, n in Counter(code for code, _, _ in said).most_common(MOST)
        for own in [[(i, text) for other, i, text in said if other == code]]
    )
    return scrolled(
        ("", "fits", "what the first of them says, and what helps", "configurations"),
        lines,
        about='<p class="warn">Figures of these fits hold with this reservation. results.json has what each '
        "fit says.</p>",
    )


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
        asks = f"answers to {attack.budget} questions of its own"
        facts = {
            "from": kind.paper,
            "attacker": kind.adversary,
            "sees": asks if issubclass(kind, ActiveAttack) else f"what the {attack.party} saw of the run",
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
    return scrolled(
        ("cell", "configuration", "measurement", "error"),
        lines,
        about='<p class="warn">These measurements are missing above; all others are there.</p>',
    )


def _origin(plan: Plan, rows: Sequence[Row]) -> str:
    versions = [f"privfed {__version__}", f"Python {platform.python_version()}"]
    libraries = ", ".join([*versions, *(f"{name} {version(name)}" for name in LIBRARIES)])
    noted = "".join(
        f"<li>{escape(note)}</li>" for note in sorted({note for row in rows for note in row.notes})
    )
    return (
        f"<p>Seeds {', '.join(map(str, plan.seeds))}. {escape(libraries)}. Results as numbers lie beside "
        "this page: study.csv (a row a fit), table.tex and results.json; one row a cell in cells.sqlite.</p>"
        + (f"<details><summary>Warnings of the runs</summary><ul>{noted}</ul></details>" if noted else "")
        + (f"<h3>The study</h3><pre>{escape(plan.file.text)}</pre>" if plan.file.text else "")
    )
