"""The pictures of a report, each with a table of the numbers that it shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from privfed.experiments.report.anchors import ANCHORS, EPSILONS
from privfed.experiments.report.remarks import NOTHING_TO_WORK_ON, listed, unmeasured
from privfed.experiments.report.summary import Curve, Row, Stat
from privfed.experiments.report.svg import Axis, Point, Series, bars, chart, legend
from privfed.experiments.report.tables import axes

BEST_KNOWN = "none of the others has less of both"

MOST_LINES = 8
"""Most lines in a picture; with more, there is one picture for each algorithm."""

FAR = 4.0
"""Ratio of the largest to the smallest cost above which their axis is logarithmic."""

MOST_BARS = 12
"""Most bars of a drawing that is shown unfolded."""


@dataclass(frozen=True)
class Number:
    """Holds a number in a picture's table, and its origin.

    Args:
        value: the number.
        row: number of its configuration in the report; 0 for published figures.
        name: name of the measure; a path such as "stats.leakage" within the configuration's results.
        sd: standard deviation; NaN if there is none.
    """

    value: float
    row: int
    name: str
    sd: float = math.nan


@dataclass(frozen=True)
class Picture:
    """Holds a picture, its legend, and its numbers.

    Args:
        title: what the picture shows.
        about: how to read it.
        drawing: the drawing as SVG.
        key: its legend as HTML.
        head: head of the table.
        lines: texts and numbers of the table.
        folded: whether the drawing is shown only on demand; on paper it always is.
    """

    title: str
    about: str
    drawing: str
    key: str
    head: list[str]
    lines: list[list[str | Number]] = field(default_factory=list)
    folded: bool = False


def short(rows: Sequence[Row]) -> Callable[[Row], str]:
    """Return a function that names a row by the axes on which the rows differ."""
    differing = axes(rows)

    def name(row: Row) -> str:
        return ", ".join(
            f"privacy {row.setup.labels[axis]}" if axis == "privacy" else row.setup.labels[axis]
            for axis in differing
        )

    return name


def by_data(rows: Sequence[Row]) -> list[tuple[str, list[tuple[int, Row]]]]:
    """Return the rows of each data set and partition, with their numbers in the report."""

    def place(pair: tuple[int, Row]) -> str:
        return f"{pair[1].setup.labels['data']}, {pair[1].setup.labels['partition']} clients"

    groups: dict[str, list[tuple[int, Row]]] = {}
    for pair in enumerate(rows, start=1):
        groups.setdefault(place(pair), []).append(pair)
    return list(groups.items())


def front(rows: Sequence[tuple[int, Row]]) -> list[tuple[int, Row]]:
    """Return the Pareto front: rows for which no other is as good in leakage and cost and better in one."""

    def figures(row: Row) -> tuple[float, float]:
        return row.stats["leakage"].mean, row.stats["score_ratio"].mean

    return [
        (i, row)
        for i, row in rows
        if not any(
            a <= figures(row)[0] and b <= figures(row)[1] and (a, b) != figures(row)
            for a, b in (figures(other) for _, other in rows)
        )
    ]


def pareto(name: str, rows: Sequence[tuple[int, Row]]) -> Picture | None:
    """Draw utility against leakage; shapes distinguish sums, colours epsilons."""
    unknown = unmeasured(rows)
    rows = [(i, row) for i, row in rows if {"leakage", "score_ratio"} <= row.stats.keys()]
    if not rows:
        return None
    sums = list(dict.fromkeys(row.setup.labels["sum"] for _, row in rows))
    guarantees = list(dict.fromkeys(row.setup.labels["privacy"] for _, row in rows))
    distinct = _distinct(rows)
    best = sorted(front([(i, row) for i, row, _ in distinct]), key=lambda pair: pair[1].stats["leakage"].mean)
    line = [Point(row.stats["leakage"].mean, row.stats["score_ratio"].mean, key=row.id) for _, row in best]
    series = [Series(BEST_KNOWN, line, style=6, line=True, dash=1)] if len(line) > 1 else []
    for s, kind in enumerate(sums):
        for g, guarantee in enumerate(guarantees):
            points = [
                replace(_point(i, row, "leakage", "score_ratio"), tag=tag)
                for i, row, tag in distinct
                if (row.setup.labels["sum"], row.setup.labels["privacy"]) == (kind, guarantee)
            ]
            if points:
                private = "" if guarantee == "none" else f", {guarantee}"
                # Shapes distinguish sums; colours distinguish guarantees if there are several, else sums.
                colour = g if len(guarantees) > 1 else s
                series.append(Series(f"{kind}{private}", points, style=s, colour=colour))
    drawing = chart(
        f"Cost ratio against leakage, {name}",
        Axis("leakage: largest advantage of any attack", least=0.0, most=1.0),
        _ratio("cost relative to central k-means", [row.stats["score_ratio"].mean for _, row in rows]),
        series,
    )
    told = short([row for _, row in rows])
    lines: list[list[str | Number]] = [
        [f"#{i}", told(row), _number(i, row, "leakage"), _number(i, row, "score_ratio")] for i, row in rows
    ]
    about = "Better is further left and further down. Numbers beside the marks are those of the big table."
    if not any(row.stats["leakage"].mean for _, row in rows):
        about = "No attack of this study did better than without access: there is no leakage to be drawn."
        drawing, series = "", []
    if unknown:
        about += f" Not drawn: {listed(unknown)}, {NOTHING_TO_WORK_ON}."
    return Picture(
        name, about, drawing, legend(series), ["", "configuration", "leakage", "cost ratio"], lines
    )


def _distinct(rows: Sequence[tuple[int, Row]]) -> list[tuple[int, Row, str]]:
    """Return the distinct rows, each with the numbers of all rows that are the same computation."""
    ids = {row.id for _, row in rows}
    kept = [(i, row) for i, row in rows if row.same_as is None or row.same_as.id not in ids]
    alike = {row.id: [str(i)] for i, row in kept}
    for i, row in rows:
        if row.same_as is not None and row.same_as.id in alike:
            alike[row.same_as.id].append(str(i))
    return [(i, row, "=".join(alike[row.id])) for i, row in kept]


def _ratio(name: str, values: Sequence[float]) -> Axis:
    """Return an axis of cost ratios, logarithmic if they differ so much that small ones would be crowded."""
    return Axis(name, span=0.05, log=max(values) > FAR * min(values))


def _point(number: int, row: Row, across: str, up: str) -> Point:
    x, y = row.stats[across], row.stats[up]
    return Point(x.mean, y.mean, y.sd, row.id, f"#{number} {row.label}: {x}, {y}", tag=str(number))


def _number(number: int, row: Row, name: str) -> Number | str:
    stat = row.stats.get(name)
    return "" if stat is None else Number(stat.mean, number, f"stats.{name}", stat.sd)


def leaks(name: str, rows: Sequence[tuple[int, Row]]) -> list[Picture]:
    """Draw each attack's headline after increasing numbers of rounds, one line for each configuration."""
    attacks = list(dict.fromkeys(attack for _, row in rows for attack in row.leaks))
    return [
        _curves(
            f"{attack}: {name}",
            "Recovered by the attack from what its party saw up to each round; restarts count on.",
            [(i, row, row.leaks[attack]) for i, row in rows if attack in row.leaks],
            f"leaks.{attack}",
            Axis("rounds seen", log=True),
            Axis("recovered", least=0.0),
        )
        for attack in attacks
    ]


def convergence(name: str, rows: Sequence[tuple[int, Row]]) -> list[Picture]:
    """Draw the cost over the rounds, one line for each configuration.

    If there are many lines, there is a picture for each algorithm.
    """
    known = [(i, row, row.convergence) for i, row in rows if row.convergence is not None]
    kinds = list(dict.fromkeys(row.setup.labels["algorithm"] for _, row, _ in known))
    groups = {name: known}
    if len(known) > MOST_LINES and len(kinds) > 1:
        groups = {
            f"{kind}: {name}": [one for one in known if one[1].setup.labels["algorithm"] == kind]
            for kind in kinds
        }
    about = "Cost of the centers after each round, relative to central k-means; round 0 is the start."
    up = Axis("cost ratio", span=0.05)
    return [
        _curves(title, about, own, "convergence", Axis("round"), up) for title, own in groups.items() if own
    ]


def _curves(
    title: str, about: str, rows: Sequence[tuple[int, Row, Curve]], trace: str, across: Axis, up: Axis
) -> Picture:
    told = short([row for _, row, _ in rows])
    alike: dict[tuple[str, ...], list[tuple[int, Row, Curve]]] = {}
    for i, row, curve in rows:
        # Curves that agree to three digits would hide each other, so they are drawn once.
        key = (*map(str, curve.rounds), *(f"{stat.mean:.3g}" for stat in curve.values))
        alike.setdefault(key, []).append((i, row, curve))
    series = [
        Series(
            "; ".join(f"#{i} {told(row)}" for i, row, _ in same),
            _along(*same[0]),
            style=n,
            line=True,
            dash=n // 7,
        )
        for n, same in enumerate(alike.values())
    ]
    lines: list[list[str | Number]] = [
        [f"#{i}", told(row), str(at), Number(stat.mean, i, f"{trace}.{at}", stat.sd)]
        for i, row, curve in rows
        for at, stat in zip(curve.rounds, curve.values, strict=True)
    ]
    drawing = chart(title, across, up, series)
    return Picture(title, about, drawing, legend(series), ["", "configuration", "round", up.name], lines)


def _along(number: int, row: Row, curve: Curve) -> list[Point]:
    return [
        Point(at, stat.mean, stat.sd, row.id, f"#{number}, round {at}: {stat}")
        for at, stat in zip(curve.rounds, curve.values, strict=True)
    ]


def frontier(name: str, rows: Sequence[tuple[int, Row]]) -> Picture | None:
    """Draw cost against epsilon, with the published clusterings if they were measured on this data."""
    private = [(i, row) for i, row in rows if row.setup.privacy is not None and "score_ratio" in row.stats]
    if not private:
        return None
    groups: dict[str, list[tuple[int, Row]]] = {}
    differing = axes([row for _, row in private])
    for i, row in private:
        words = [row.setup.labels[axis] for axis in differing if axis != "privacy"] or ["all"]
        named = ", ".join(word for word in words if word != "none")
        groups.setdefault(f"{named}, one {_guarantee(row)}", []).append((i, row))
    series = [
        Series(
            label,
            sorted((_at_epsilon(i, row) for i, row in group), key=lambda point: point.x),
            style=n,
            line=True,
        )
        for n, (label, group) in enumerate(groups.items())
    ]
    known = _anchors(private[0][1])
    for n, (method, values) in enumerate(known.items()):
        points = [Point(e, v, text=f"{method}: {v}") for e, v in zip(EPSILONS, values, strict=True)]
        series.append(Series(f"{method} (published)", points, style=n + 3, line=True, colour=6, dash=n + 1))
    lines: list[list[str | Number]] = [
        [f"#{i}", label, f"{_epsilon(row):g}", _number(i, row, "score_ratio"), _audit(i, row)]
        for label, group in groups.items()
        for i, row in group
    ]
    lines += [
        ["", f"{method} (published)", f"{epsilon:g}", Number(value, 0, "anchor"), ""]
        for method, values in known.items()
        for epsilon, value in zip(EPSILONS, values, strict=True)
    ]
    about = "Cost of what is released under differential privacy, relative to central k-means without any."
    if known:
        about += " Published: record level, central or federated, delta = 1 / (n ln n), mean of 20 seeds."
    drawing = chart(name, Axis("epsilon", log=True), Axis("cost ratio", least=1.0, log=True), series)
    head = ["", "configuration", "epsilon", "cost ratio", "audited epsilon"]
    return Picture(name, about, drawing, legend(series), head, lines)


def _guarantee(row: Row) -> str:
    return "" if row.setup.privacy is None else row.setup.privacy.unit


def _epsilon(row: Row) -> float:
    return math.inf if row.setup.privacy is None else row.setup.privacy.epsilon


def _at_epsilon(number: int, row: Row) -> Point:
    stat: Stat = row.stats["score_ratio"]
    epsilon = _epsilon(row)
    return Point(epsilon, stat.mean, stat.sd, row.id, f"#{number}, epsilon {epsilon:g}: {stat}")


def _audit(number: int, row: Row) -> Number | str:
    return _number(number, row, "audited_epsilon")


def _anchors(row: Row) -> dict[str, tuple[float, ...]]:
    data = row.setup.data
    # The published figures are for rows in [-1, 1].
    if (data.low, data.high) != (-1.0, 1.0) or data.standardise or data.public:
        return {}
    scaled = (data.center, data.unit) == ((8.0, 8.0) if data.source == "digits" else (0.0, 1.0))
    return ANCHORS.get(data.source, {}) if scaled else {}


def costs(name: str, rows: Sequence[tuple[int, Row]]) -> list[Picture]:
    """Draw bytes and CPU seconds of one client, one bar for each configuration."""
    told = short([row for _, row in rows])
    pictures = []
    for style, (measure, title, unit, scale) in enumerate(
        (("bytes", "bytes of a client", "kB", 1e-3), ("client_seconds", "CPU time of a client", "ms", 1e3))
    ):
        known = [(i, row) for i, row in rows if measure in row.stats]
        marks = [
            (
                f"#{i} {told(row)}",
                Point(s.mean, 0.0, key=row.id, text=f"{s.mean * scale:,.4g} {unit}"),
            )
            for i, row in known
            for s in [row.stats[measure]]
        ]
        if not marks:
            continue
        lines: list[list[str | Number]] = [[f"#{i}", told(row), _number(i, row, measure)] for i, row in known]
        about = {
            "bytes": "Sent and received by one client in a whole run, mean over the clients.",
            "client_seconds": "Of one simulated client in a whole run, mean over the clients; "
            "it depends on the machine and on what else it did.",
        }[measure]
        drawing = bars(f"{title}, {name}", f"{title} in {unit}", marks, style)
        head = ["", "configuration", title]
        pictures.append(
            Picture(f"{title}, {name}", about, drawing, "", head, lines, folded=len(marks) > MOST_BARS)
        )
    return pictures
