"""Recommends the cheapest configuration within bounds, with caveats to know before trusting it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from privfed.experiments.report.summary import Row
from privfed.experiments.study.factories import secure_sum

LOOSE = 4.0
"""Epsilon above which a guarantee alone is no reason for trust."""

_CHEAPER = ("bytes", "leakage", "score_ratio")
"""Measures by which configurations are compared; the first that differs decides."""


@dataclass(frozen=True)
class Advice:
    """Holds an answer to "what should I use?".

    Args:
        leakage: the bound on leakage that was asked for.
        score_ratio: the bound on the cost ratio that was asked for.
        row: the cheapest configuration that is within both on average; None if there is none.
        caveats: what to know before trusting it.
    """

    leakage: float
    score_ratio: float
    row: Row | None
    caveats: list[str]


def advise(rows: Sequence[Row], leakage: float, score_ratio: float) -> Advice:
    """Find the configuration with the fewest bytes per client whose means are within both bounds.

    Ties are decided by the least leakage, then by the least cost, then by the order in the study.

    Args:
        rows: the configurations of one data set, all with attacks.
        leakage: most leakage, in [0, 1].
        score_ratio: most cost relative to central k-means.
    """
    fitting = [
        row
        for row in rows
        if {"leakage", "score_ratio", "bytes"} <= row.stats.keys()
        and row.stats["leakage"].mean <= leakage
        and row.stats["score_ratio"].mean <= score_ratio
    ]
    if not fitting:
        return Advice(leakage, score_ratio, None, [])
    # Ties are decided by measures that repeat exactly, never by seconds; then the study's first wins.
    best = min(fitting, key=lambda row: tuple(row.stats[name].mean for name in _CHEAPER if name in row.stats))
    return Advice(leakage, score_ratio, best, [*_caveats(best, leakage, score_ratio), *_alike(best, rows)])


def telling(
    advice: Sequence[tuple[str, Advice]], wanted: tuple[float, float] | None = None
) -> list[tuple[str, Advice]]:
    """Leave out answers that another one implies.

    A configuration that is within stricter bounds is also within these; and if no configuration is within
    some bounds, none is within stricter ones.

    Args:
        advice: name of a data set and its partition, and an answer for it.
        wanted: bounds on leakage and cost ratio whose answers are always kept.
    """

    def says(one: Advice, other: Advice) -> bool:
        kept, within = (other, one) if one.row is None else (one, other)
        tighter = kept.leakage <= within.leakage and kept.score_ratio <= within.score_ratio
        return one.row == other.row and tighter and one != other

    return [
        (data, one)
        for data, one in advice
        if (one.leakage, one.score_ratio) == wanted
        or not any(data == place and says(other, one) for place, other in advice)
    ]


def _caveats(row: Row, leakage: float, score_ratio: float) -> list[str]:
    found = [f"only {', '.join(row.attacks)} was tried: another attack may find more"]
    if row.not_applicable:
        found.append(f"{', '.join(row.not_applicable)} had nothing to work on here: that is no measure of it")
    least = min(row.stats[name].n for name in ("leakage", "score_ratio"))
    if least < 5:
        found.append(f"it rests on {least} {'seed' if least == 1 else 'seeds'}")
    for name, bound in (("leakage", leakage), ("score_ratio", score_ratio)):
        stat = row.stats[name]
        if stat.mean + (0.0 if math.isnan(stat.sd) else stat.sd) > bound:
            found.append(f"its {name.replace('_', ' ')} exceeds the bound within one standard deviation")
    if row.setup.privacy is not None and row.setup.privacy.epsilon > LOOSE:
        found.append(f"epsilon {row.setup.privacy.epsilon:g} promises little by itself")
    if row.setup.privacy is not None and row.setup.privacy.rehearsal:
        found.append("it is not private as it ran here: its noise is a rehearsal")
    if row.setup.privacy is None:
        found.append("it has no differential privacy: what totals give away has no proven bound")
    told = row.opens_to == "clients" or secure_sum(row.setup).verified
    if told and all(one.party != "clients" for one in row.setup.attacks):
        found.append("clients read the totals: what they learn of each other was not attacked")
    if row.unconverged:
        found.append(f"{len(row.unconverged)} of its {len(row.cells)} fits did not converge")
    if row.errors:
        found.append(f"{len(row.errors)} of its measurements failed")
    return found


def _alike(best: Row, rows: Sequence[Row]) -> list[str]:
    """Say which configurations are the same as the best one under another name."""
    same = [row for row in rows if row.same_as is not None and row.same_as.id == best.id]
    return [f"{row.name} {row.same_as}" for row in same]
