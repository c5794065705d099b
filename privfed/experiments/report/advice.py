"""Advice on which configuration to use against whom, and what each adversary sees.

How good a configuration is, and whether it may be run as it was measured, are two questions. Seeded noise
answers the first as well as fresh noise does, and never the second. Who is trusted decides what is safe: a
run that shows an adversary every answer is never advised against it, whatever attacks found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from string import ascii_lowercase
from typing import Any

from privfed.attacks import Status
from privfed.attacks.base.reading import in_words, read_by, unread
from privfed.experiments.cells import secure_sum
from privfed.experiments.planning import Plan
from privfed.experiments.report.curves import Stat
from privfed.experiments.report.summary import Adversary, Row, adversary_of, attacks_by, scaled
from privfed.experiments.report.tables import Cell, by_data, grouped, scrolled, short, stat
from privfed.protocols.secure_sums import by_author

LOOSE = 4.0
"""Epsilon above which a guarantee alone is no reason for trust."""

BOUNDS = ((0.01, 1.05), (0.01, 1.5), (0.1, 1.05), (0.5, 1.05))
"""Bounds on leakage and cost ratio for which every report gives advice."""


MEASURES = {"leakage: {}": "leakage", "score_ratio": "cost ratio", "bytes": "bytes"}
"""Measures that are shown beside an answer, and their names there."""


class Sees(StrEnum):
    """Names what an adversary sees of a run, besides who took part."""

    NOTHING = "no answer, no total, no centers"
    MODEL = "the final centers"
    CENTERS = "the centers of each round, no total"
    TOTALS = "totals"
    ANSWERS = "every answer"


class Evidence(StrEnum):
    """Says what speaks for a configuration, the best first."""

    NOTHING_SHOWN = "nothing to read: it sees no answer and no total"
    OPEN = "these attacks, with their lists and fits, did no better than a guess; others may find more"
    IN_PART = "attacks read at most a part of what it sees: nothing is known of the rest"
    FOUND = "attacks found something"


@dataclass(frozen=True)
class Measured:
    """Holds what attacks by one adversary came to on a configuration.

    Args:
        evidence: `FOUND` whatever was found.
        leakage: over the seeds; None where no attack ran.
        unread: text that lists the sums that it sees and no attack read; empty if there are none.
        attacks: titles of the attacks that ran.
        not_applicable: titles of those that had nothing to read.
    """

    evidence: Evidence
    leakage: Stat | None
    unread: str
    attacks: tuple[str, ...]
    not_applicable: tuple[str, ...]


@dataclass(frozen=True)
class Advice:
    """Holds an answer to "what should I use?".

    Args:
        data: name of the data set and its partition.
        adversary: against whom.
        leakage: the bound on leakage to it that was asked for.
        score_ratio: the bound on the cost ratio that was asked for.
        row: the configuration with the best evidence of those within both bounds on average; None if there
            is none.
        evidence: what speaks for it; None if there is none.
        caveats: what to know before trusting it.
    """

    data: str
    adversary: Adversary
    leakage: float
    score_ratio: float
    row: Row | None = None
    evidence: Evidence | None = None
    caveats: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return the answer as values for JSON."""
        return {
            "data": self.data,
            "adversary": self.adversary,
            "leakage": self.leakage,
            "score_ratio": self.score_ratio,
            "configuration": None if self.row is None else self.row.id,
            "evidence": self.evidence,
            "run": None if self.row is None else to_run(self.row),
            "caveats": list(self.caveats),
        }


def answers(plan: Plan, rows: Sequence[Row]) -> list[Advice]:
    """Answer "what should I use?" for each data set and partition, against each adversary of the study.

    Only for clusterings: models have no cost ratio.

    Args:
        plan: plan of the study. Answers for the bounds that it asks for are always kept.
        rows: its configurations.
    """
    want = plan.file.study.want
    wanted = None if want is None else (want.leakage, want.score_ratio)
    found = [
        advise([row for _, row in own], adversary, leakage, score_ratio, name)
        for name, own in by_data(rows)
        if any("score_ratio" in row.stats for _, row in own)
        for adversary in adversaries([row for _, row in own])
        for leakage, score_ratio in dict.fromkeys((*([wanted] if wanted else []), *BOUNDS))
    ]
    return without_implied(found, wanted)


def adversaries(rows: Sequence[Row]) -> list[Adversary]:
    """Return those by whom a study has attacks."""
    known = {adversary_of(attack) for row in rows for attack in row.setup.attacks}
    return [one for one in Adversary if one in known]


def sees(row: Row, adversary: Adversary) -> Sees:
    """Return what an adversary sees of a run of this configuration, by what its secure sum declares."""
    protocol = secure_sum(row.setup)
    opened = Sees.TOTALS if protocol.reveals == "sums" else Sees.ANSWERS
    server = protocol.recipient == "server"
    return {
        Adversary.OBSERVER: Sees.MODEL,
        Adversary.CLIENTS: opened if not server or protocol.verified else Sees.CENTERS,
        # A client's key opens the uploads that the server relays.
        Adversary.HELPED: Sees.ANSWERS if protocol.one_key else opened,
        Adversary.SERVER: opened if server else Sees.NOTHING,
    }[adversary]


def barred(row: Row, adversary: Adversary) -> str:
    """Say why a configuration is never advised against an adversary; empty if it may be."""
    return f"{adversary} sees every answer" if sees(row, adversary) is Sees.ANSWERS else ""


def to_run(row: Row) -> str:
    """Say whether a configuration may be run as it was measured, and else what to change."""
    seeded = row.setup.privacy is not None and row.setup.privacy.seeded
    return "not as measured: with fresh noise (seeded = false)" if seeded else "as measured"


def measured(row: Row, adversary: Adversary) -> Measured | None:
    """Return what attacks by an adversary came to; None where no attack by it was tried, or all failed.

    A server with colluding clients has the attacks of one without, but it takes their answers out of totals.
    So one of its own must have been tried.
    """
    tried = {
        name: each for name in attacks_by(adversary, row.setup.attacks) if (each := row.reports.get(name))
    }
    if not any(one.title in tried for one in row.setup.attacks if adversary_of(one) is adversary):
        return None
    ran = tuple(
        name
        for name, each in tried.items()
        if any(one["status"] != Status.NOT_APPLICABLE for one in each.values())
    )
    leakage = row.stats.get(f"leakage: {adversary}")
    left = _left(tried)
    if sees(row, adversary) in (Sees.TOTALS, Sees.ANSWERS):
        left = [*left, *scaled(row.setup)]
    # An attack that had nothing to read, failed or could not tell says nothing of what was shown.
    failed = any(name in attacks_by(adversary, row.setup.attacks) for _, name, _ in row.errors)
    evidence = Evidence.OPEN if ran and not left and not failed else Evidence.IN_PART
    evidence = Evidence.NOTHING_SHOWN if sees(row, adversary) is Sees.NOTHING else evidence
    evidence = Evidence.FOUND if leakage is not None and leakage.mean > 0.0 else evidence
    return Measured(evidence, leakage, in_words(left), ran, tuple(name for name in tried if name not in ran))


def _left(tried: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """Return what no attack read on the first seed on which something was left unread; nothing if on none."""
    for seed in sorted({seed for each in tried.values() for seed in each}):
        reports = {name: each[seed] for name, each in tried.items() if seed in each}
        if found := unread(read_by(reports)):
            return found
    return []


def advise(
    rows: Sequence[Row], adversary: Adversary, leakage: float, score_ratio: float, data: str = ""
) -> Advice:
    """Find the configuration with the best evidence, and of these the one with the fewest bytes per client.

    Ties are decided by the least leakage, then by the least cost, then by the order in the study.

    Args:
        rows: the configurations of one data set.
        adversary: whom it is to protect from.
        leakage: most leakage to it, in [0, 1].
        score_ratio: most cost relative to central k-means.
        data: name of the data set and its partition.
    """
    ranked: list[tuple[tuple[float, ...], int, Measured]] = []
    for i, row in enumerate(rows):
        found = measured(row, adversary)
        if found is None or barred(row, adversary) or not {"score_ratio", "bytes"} <= row.stats.keys():
            continue
        leaked, ratio = 0.0 if found.leakage is None else found.leakage.mean, row.stats["score_ratio"].mean
        if leaked <= leakage and ratio <= score_ratio:
            # Ties are decided by measures that repeat exactly, never by seconds; then the study's first wins.
            order = (list(Evidence).index(found.evidence), row.stats["bytes"].mean, leaked, ratio)
            ranked.append((order, i, found))
    if not ranked:
        return Advice(data, adversary, leakage, score_ratio)
    _, i, found = min(ranked, key=lambda one: one[:2])
    row = rows[i]
    caveats = _caveats(row, found, adversary, leakage, score_ratio)
    caveats += [f"{one.name} {one.same_as}" for one in rows if one.same_as and one.same_as.id == row.id]
    return Advice(data, adversary, leakage, score_ratio, row, found.evidence, tuple(caveats))


def without_implied(advice: Sequence[Advice], wanted: tuple[float, float] | None = None) -> list[Advice]:
    """Leave out answers that another one on the same data and against the same adversary implies.

    A configuration that is within stricter bounds is also within these. If no configuration is within some
    bounds, none is within stricter ones.

    Args:
        advice: the answers.
        wanted: bounds on leakage and cost ratio whose answers are always kept.
    """

    def implies(one: Advice, other: Advice) -> bool:
        kept, within = (other, one) if one.row is None else (one, other)
        tighter = kept.leakage <= within.leakage and kept.score_ratio <= within.score_ratio
        same = (one.data, one.adversary, one.row) == (other.data, other.adversary, other.row)
        return same and tighter and one != other

    return [
        one
        for one in advice
        if (one.leakage, one.score_ratio) == wanted or not any(implies(other, one) for other in advice)
    ]


def _caveats(
    row: Row, found: Measured, adversary: Adversary, leakage: float, score_ratio: float
) -> list[str]:
    ratio, privacy = row.stats["score_ratio"], row.setup.privacy
    seeds = min(one.n for one in (ratio, found.leakage) if one is not None)

    def over(one: Stat | None, bound: float) -> bool:
        return one is not None and one.mean + (0.0 if math.isnan(one.sd) else one.sd) > bound

    # Nobody showed other rows with the same totals: a better attacker may find what these did not.
    unsure = [
        name
        for name in found.attacks
        if any(one["status"] == Status.OPEN for one in row.reports[name].values())
    ]
    said = {
        f"{', '.join(unsure)} may be determined: no other rows were found that give the same totals": unsure,
        f"only {', '.join(found.attacks)} was tried: another attack may find more": found.attacks,
        f"{', '.join(found.not_applicable)} had nothing to read here: that is no measure of it": (
            found.not_applicable
        ),
        f"{adversary} sees {sees(row, adversary)}, and no attack read {found.unread}": found.unread,
        **{
            f"{title} comes to {row.fits[title].values[-1]} on {row.fits[title].rounds[-1]} fits of "
            "the same rows": True
            for title in attacks_by(adversary, row.setup.attacks)
            if title in row.fits
        },
        f"it rests on {seeds} {'seed' if seeds == 1 else 'seeds'}": seeds < 5,
        "its leakage exceeds the bound within one standard deviation": over(found.leakage, leakage),
        "its score ratio exceeds the bound within one standard deviation": over(ratio, score_ratio),
        f"epsilon {privacy.epsilon if privacy else 0.0:g} promises little by itself": (
            privacy is not None and privacy.epsilon > LOOSE
        ),
        "it has no differential privacy: what it shows has no proven bound": privacy is None,
        "what its secure sum hides is declared by its author": by_author(secure_sum(row.setup)),
        f"{len(row.unconverged)} of its {len(row.cells)} fits did not converge": row.unconverged,
        f"{len(row.errors)} of its measurements failed": row.errors,
    }
    return [text for text, holds in said.items() if holds]


def advised(rows: Sequence[Row], advice: Sequence[Advice]) -> str:
    """Return the section "What should I use?" as HTML; empty where there is nothing to advise on.

    Args:
        rows: configurations of the study.
        advice: the answers.
    """
    if not advice:
        return ""
    numbers = {row.id: i for i, row in enumerate(rows, start=1)}
    name, notes = short(rows), dict[str, str]()
    for caveat in (caveat for one in advice for caveat in one.caveats):
        notes.setdefault(caveat, ascii_lowercase[len(notes) % 26])

    def found(one: Advice) -> list[object]:
        if one.row is None:
            return [Cell("<td colspan=7>None of the measured settings meets these limits.</td>")]
        figures = (stat(one.row, measure.format(one.adversary)) for measure in MEASURES)
        return [
            f"#{numbers[one.row.id]} {name(one.row)}",
            one.evidence,
            *(Cell(f"<td>{html}</td>") for html in figures),
            to_run(one.row),
            " ".join(notes[caveat] for caveat in one.caveats),
        ]

    lines = (
        (one.data, one.adversary, f"{one.leakage:g}", f"{one.score_ratio:g}", *found(one)) for one in advice
    )
    head = [
        "data",
        "against",
        "leakage ≤",
        "cost ratio ≤",
        "use",
        "because",
        "leakage",
        "cost ratio",
        "bytes",
        "may I run it?",
        "caveats",
    ]
    return (
        f"{scrolled(head, lines, 'advice')}"
        f"<dl>{''.join(f'<dt>{letter}</dt><dd>{escape(text)}</dd>' for text, letter in notes.items())}</dl>"
        "<details><summary>How this is found, and who sees what</summary>"
        "<p>It depends on whom you do not trust. Each line has an adversary and two bounds: on what leaks to "
        "it, and on the cost. It names the configuration within both, on average over the seeds, with the "
        "best evidence. If several qualify, it names the one that sends the fewest bytes per client. "
        f"Evidence, the best first: {'; '.join(Evidence)}.</p><p>A run that shows the adversary every answer "
        "is never advised against it, whatever attacks found. Noise that repeats with a seed is as good a "
        "measure of cost and leakage as fresh noise, and protects nobody: such a run is measured here, and "
        "never run on real rows. Advice holds for one fit: several fits of the same rows, and metrics on "
        "them, add up. It was measured here, on this data, with these attacks. Other data and other attacks "
        "are another study.</p>"
        f"{_views(rows)}</details>"
    )


def _views(rows: Sequence[Row]) -> str:
    """Return a table of what each adversary sees of each configuration, and what its attacks came to."""
    known = adversaries(rows)

    def said(row: Row, one: Adversary) -> str:
        found, refused = measured(row, one), barred(row, one)
        came = [] if one not in known else ["not attacked" if found is None else found.evidence]
        return "; ".join([sees(row, one), *came, *([f"never advised: {refused}"] if refused else [])])

    left = " or ".join(one for one in Adversary if one not in known)
    unmeasured = f"No attack of this study is by {left}: nothing is advised there." if left else ""
    lines = ((i, tuple(said(row, one) for one in Adversary)) for i, row in enumerate(rows, start=1))
    return grouped(lines, [*Adversary], "Who sees what", unmeasured)
