"""The pictures of a report, each with a table of the numbers that it shows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from privfed.experiments.report.curves import Curve, Stat
from privfed.experiments.report.summary import Row
from privfed.experiments.report.svg import Axis, Point, Series, bars, chart, legend
from privfed.experiments.report.tables import axes, listed, short

BEST_KNOWN = "none of the others has less of both"

MOST_LINES = 8
"""Most lines in a picture; with more, there is one picture for each algorithm."""

FAR = 4.0
"""Ratio of the largest to the smallest cost above which their axis is logarithmic."""

MOST_BARS = 12
"""Most bars of a drawing that is shown unfolded."""

Numbered = Sequence[tuple[int, Row]]
"""Rows with their numbers in the report."""

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 10.0)

ANCHORS: dict[str, dict[str, tuple[float, ...]]] = {
    "big": {
        "diffprivlib k-means (IBM)": (2.699, 1.789, 1.734, 1.418, 1.322, 1.293),
        "FastLloyd": (1.877, 1.311, 1.244, 1.249, 1.203, 1.203),
        "LSH clustering (Google), central": (2.373, 1.576, 1.361, 1.238, 1.220, 1.179),
    },
    "blobs": {
        "diffprivlib k-means (IBM)": (2.001, 1.168, 1.149, 1.042, 1.013, 1.006),
        "FastLloyd": (1.368, 1.222, 1.210, 1.213, 1.208, 1.207),
        "LSH clustering (Google), central": (2.989, 1.344, 1.253, 1.079, 1.125, 1.096),
    },
    "digits": {
        "diffprivlib k-means (IBM)": (5.057, 2.843, 2.144, 1.901, 1.761, 1.568),
        "FastLloyd": (2.025, 1.704, 1.579, 1.463, 1.410, 1.350),
        "LSH clustering (Google), central": (3.234, 1.988, 1.684, 1.517, 1.424, 1.342),
    },
    "g2": {
        "diffprivlib k-means (IBM)": (6.082, 2.402, 1.656, 1.251, 1.051, 1.011),
        "FastLloyd": (1.480, 1.084, 1.052, 1.002, 1.001, 1.000),
        "LSH clustering (Google), central": (2.125, 1.271, 1.144, 1.099, 1.051, 1.025),
    },
}
"""Published differentially private clusterings: source of a set -> method -> cost ratio for each epsilon.

The sets are those of `privfed.experiments.datasets`. A number is the cost of the released centers relative to
central k-means: mean of 20 seeds (10 on "big"), record level, add or remove, delta = 1 / (n ln n) with n rows
(IBM's is pure epsilon). FastLloyd is run as published, although its released code does not satisfy its claim:
noise is truncated to integers, and sums and counts share one seed.
"""


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


def front(rows: Numbered) -> list[tuple[int, Row]]:
    """Return the Pareto front: rows for which no other is as good in leakage and cost and better in one."""
    figures = {i: (row.stats["leakage"].mean, row.stats["score_ratio"].mean) for i, row in rows}

    def beaten(own: tuple[float, float]) -> bool:
        return any(a <= own[0] and b <= own[1] and (a, b) != own for a, b in figures.values())

    return [(i, row) for i, row in rows if not beaten(figures[i])]


def pareto(name: str, rows: Numbered) -> Picture | None:
    """Draw utility against leakage; shapes distinguish sums, colours epsilons."""
    unknown = [i for i, row in rows if row.not_applicable and "leakage" not in row.stats]
    rows = [(i, row) for i, row in rows if {"leakage", "score_ratio"} <= row.stats.keys()]
    if not rows:
        return None
    distinct = _distinct(rows)
    best = sorted(front([(i, row) for i, row, _ in distinct]), key=lambda pair: pair[1].stats["leakage"].mean)
    line = [Point(row.stats["leakage"].mean, row.stats["score_ratio"].mean, key=row.id) for _, row in best]
    series = [Series(BEST_KNOWN, line, style=6, line=True, dash=1)] if len(line) > 1 else []
    sums, guarantees = (
        list(dict.fromkeys(row.setup.labels[axis] for _, row in rows)) for axis in ("sum", "privacy")
    )
    marks: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for i, row, tag in distinct:
        x, y = row.stats["leakage"], row.stats["score_ratio"]
        point = Point(x.mean, y.mean, y.sd, row.id, f"#{i} {row.setup.title}: {x}, {y}", tag=tag)
        marks[row.setup.labels["sum"], row.setup.labels["privacy"]].append(point)
    for s, kind in enumerate(sums):
        for g, guarantee in enumerate(guarantees):
            if points := marks[kind, guarantee]:
                private = "" if guarantee == "none" else f", {guarantee}"
                # Shapes distinguish sums; colours distinguish guarantees if there are several, else sums.
                colour = g if len(guarantees) > 1 else s
                series.append(Series(f"{kind}{private}", points, style=s, colour=colour))
    costs = [row.stats["score_ratio"].mean for _, row in rows]
    # Small costs would be crowded on a linear axis.
    up = Axis("cost relative to central k-means", span=0.05, log=max(costs) > FAR * min(costs))
    across = Axis("leakage: largest advantage of any attack", least=0.0, most=1.0)
    drawing = chart(f"Cost ratio against leakage, {name}", across, up, series)
    about = "Better is further left and further down. Numbers beside the marks are those of the big table."
    if not any(row.stats["leakage"].mean for _, row in rows):
        about = "No attack of this study did better than without access: there is no leakage to be drawn."
        drawing, series = "", []
    if unknown:
        about += f" Not drawn: {listed(unknown)}, where no attack of this study had anything to work on."
    label, head = short([row for _, row in rows]), ["", "configuration", "leakage", "cost ratio"]
    lines: list[list[str | Number]] = [
        [f"#{i}", label(row), _number(i, row, "leakage"), _number(i, row, "score_ratio")] for i, row in rows
    ]
    return Picture(name, about, drawing, legend(series), head, lines)


def _distinct(rows: Numbered) -> list[tuple[int, Row, str]]:
    """Return the distinct rows, each with the numbers of all rows that are the same computation."""
    ids = {row.id for _, row in rows}
    kept = [(i, row) for i, row in rows if row.same_as is None or row.same_as.id not in ids]
    same = [(i, row.same_as.id) for i, row in rows if row.same_as is not None]
    return [
        (i, row, "=".join([str(i), *(str(j) for j, other in same if other == row.id)])) for i, row in kept
    ]


def _number(number: int, row: Row, name: str) -> Number | str:
    stat = row.stats.get(name)
    return "" if stat is None else Number(stat.mean, number, f"stats.{name}", stat.sd)


def leaks(name: str, rows: Numbered) -> list[Picture]:
    """Draw each attack's headline after increasing numbers of rounds, one line for each configuration."""
    about = "Recovered by the attack from what its party saw up to each round; restarts count on."
    return _by_attack(name, [(i, row, row.leaks) for i, row in rows], "leaks", "rounds seen", about)


def several_fits(name: str, rows: Numbered) -> list[Picture]:
    """Draw leakage, then each attack's headline, on increasing numbers of fits; a line is a configuration."""
    about = (
        "From so many fits together, with a seed each. Leakage is the largest advantage of any attack, and "
        "rows that joined are a target by themselves."
    )
    return _by_attack(name, [(i, row, row.fits) for i, row in rows], "fits", "fits seen", about)


def _by_attack(
    name: str, rows: Sequence[tuple[int, Row, Mapping[str, Curve]]], trace: str, across: str, about: str
) -> list[Picture]:
    """Draw a picture for each title of the rows' curves."""
    return [
        _curves(
            f"{title}: {name}",
            about,
            [(i, row, curves[title]) for i, row, curves in rows if title in curves],
            f"{trace}.{title}",
            Axis(across, log=True),
            Axis("leakage" if title == "leakage" else "recovered", least=0.0),
        )
        for title in dict.fromkeys(title for _, _, curves in rows for title in curves)
    ]


def convergence(name: str, rows: Numbered) -> list[Picture]:
    """Draw the cost over the rounds, one line for each configuration.

    If there are many lines, there is a picture for each algorithm.
    """
    known = [(i, row, row.convergence) for i, row in rows if row.convergence is not None]
    groups: dict[str, list[tuple[int, Row, Curve]]] = defaultdict(list)
    several = len(known) > MOST_LINES and len({row.setup.labels["algorithm"] for _, row, _ in known}) > 1
    for i, row, curve in known:
        groups[f"{row.setup.labels['algorithm']}: {name}" if several else name].append((i, row, curve))
    about = "Cost of the centers after each round, relative to central k-means; round 0 is the start."
    across, up = Axis("round"), Axis("cost ratio", span=0.05)
    return [_curves(title, about, own, "convergence", across, up) for title, own in groups.items()]


def _curves(
    title: str, about: str, rows: Sequence[tuple[int, Row, Curve]], trace: str, across: Axis, up: Axis
) -> Picture:
    name = short([row for _, row, _ in rows])
    alike: dict[tuple[str, ...], list[tuple[int, Row, Curve]]] = defaultdict(list)
    for i, row, curve in rows:
        # Curves that agree to three digits would hide each other, so they are drawn once.
        alike[*map(str, curve.rounds), *(f"{stat.mean:.3g}" for stat in curve.values)].append((i, row, curve))
    series = []
    for n, same in enumerate(alike.values()):
        (i, row, curve), names = same[0], "; ".join(f"#{i} {name(row)}" for i, row, _ in same)
        points = [
            Point(at, stat.mean, stat.sd, row.id, f"#{i}, {across.name} {at}: {stat}")
            for at, stat in zip(curve.rounds, curve.values, strict=True)
        ]
        series.append(Series(names, points, style=n, line=True, dash=n // 7))
    lines: list[list[str | Number]] = [
        [f"#{i}", name(row), str(at), Number(stat.mean, i, f"{trace}.{at}", stat.sd)]
        for i, row, curve in rows
        for at, stat in zip(curve.rounds, curve.values, strict=True)
    ]
    drawing = chart(title, across, up, series)
    return Picture(title, about, drawing, legend(series), ["", "configuration", across.name, up.name], lines)


def frontier(name: str, rows: Numbered) -> Picture | None:
    """Draw cost against epsilon, with the published clusterings if they were measured on this data."""
    private = [
        (i, row, row.setup.privacy)
        for i, row in rows
        if row.setup.privacy is not None and "score_ratio" in row.stats
    ]
    if not private:
        return None
    groups: dict[str, list[tuple[float, int, Row]]] = defaultdict(list)
    differing = [axis for axis in axes([row for _, row, _ in private]) if axis != "privacy"]
    for i, row, asked in private:
        labels = [row.setup.labels[axis] for axis in differing] or ["all"]
        named = ", ".join(label for label in labels if label != "none")
        groups[f"{named}, one {asked.unit}"].append((asked.epsilon, i, row))
    series = _against("epsilon", "score_ratio", groups)
    lines: list[list[str | Number]] = [
        [f"#{i}", label, f"{at:g}", _number(i, row, "score_ratio"), _number(i, row, "audited_epsilon")]
        for label, group in groups.items()
        for at, i, row in group
    ]
    about = "Cost of what is released under differential privacy, relative to central k-means without any."
    known = _anchors(private[0][1])
    if known:
        about += " Published: record level, central or federated, delta = 1 / (n ln n), mean of 20 seeds."
    for n, (method, values) in enumerate(known.items()):
        points = [Point(e, v, text=f"{method}: {v}") for e, v in zip(EPSILONS, values, strict=True)]
        series.append(Series(f"{method} (published)", points, style=n + 3, line=True, colour=6, dash=n + 1))
        for epsilon, value in zip(EPSILONS, values, strict=True):
            lines.append(["", f"{method} (published)", f"{epsilon:g}", Number(value, 0, "anchor"), ""])
    drawing = chart(name, Axis("epsilon", log=True), Axis("cost ratio", least=1.0, log=True), series)
    head = ["", "configuration", "epsilon", "cost ratio", "audited epsilon"]
    return Picture(name, about, drawing, legend(series), head, lines)


def _against(
    across: str, measure: str, groups: Mapping[str, Sequence[tuple[float, int, Row]]]
) -> list[Series]:
    """Return a line of each group's measure against the value that stands before each row."""
    series = []
    for n, (label, group) in enumerate(groups.items()):
        points = []
        for at, i, row in sorted(group, key=lambda one: one[0]):
            stat: Stat = row.stats[measure]
            points.append(Point(at, stat.mean, stat.sd, row.id, f"#{i}, {across} {at:g}: {stat}"))
        series.append(Series(label, points, style=n, line=True))
    return series


def _anchors(row: Row) -> dict[str, tuple[float, ...]]:
    data = row.setup.data
    # The published figures are for rows in [-1, 1].
    if (data.low, data.high) != (-1.0, 1.0) or data.standardise or data.public:
        return {}
    scaled = (data.center, data.unit) == ((8.0, 8.0) if data.source == "digits" else (0.0, 1.0))
    return ANCHORS.get(data.source, {}) if scaled else {}


def scaling(rows: Sequence[Row]) -> list[Picture]:
    """Draw leakage, and bytes, against the number of clients, for each data set on which it varies."""
    pictures = []
    for data in dict.fromkeys(row.setup.labels["data"] for row in rows):
        for measure, about, up in (
            ("leakage", "Largest advantage of any attack.", Axis("leakage", least=0.0, most=1.0)),
            ("bytes", "Sent and received by one client in a whole run.", Axis("bytes of a client", log=True)),
        ):
            groups: dict[str, list[tuple[float, int, Row]]] = defaultdict(list)
            for i, row in enumerate(rows, start=1):
                labels, how = row.setup.labels, row.setup.partition.kind
                if labels["data"] == data and how != "given" and {measure, "clients"} <= row.stats.keys():
                    named = [labels[axis] for axis in ("algorithm", "sum", "privacy", "defence")]
                    label = ", ".join([*(one for one in named if one != "none"), how])
                    groups[label].append((row.stats["clients"].mean, i, row))
            lines = {label: own for label, own in groups.items() if len({at for at, _, _ in own}) > 1}
            if lines:
                series, title = _against("clients", measure, lines), f"{up.name}: {data}"
                table: list[list[str | Number]] = [
                    [f"#{i}", label, f"{at:g}", _number(i, row, measure)]
                    for label, own in lines.items()
                    for at, i, row in own
                ]
                drawing = chart(title, Axis("clients", log=True), up, series)
                head = ["", "configuration", "clients", up.name]
                pictures.append(Picture(title, about, drawing, legend(series), head, table))
    return pictures


def costs(name: str, rows: Numbered) -> list[Picture]:
    """Draw bytes and CPU seconds of one client, one bar for each configuration."""
    label, pictures = short([row for _, row in rows]), []
    for style, (measure, title, unit, scale, about) in enumerate(
        (
            (
                "bytes",
                "bytes of a client",
                "kB",
                1e-3,
                "Sent and received by one client in a whole run, mean over the clients.",
            ),
            (
                "client_seconds",
                "CPU time of a client",
                "ms",
                1e3,
                "Of one simulated client in a whole run, mean over the clients. It depends on the machine, "
                "and on what else it did.",
            ),
        )
    ):
        known = [(i, row) for i, row in rows if measure in row.stats]
        if not known:
            continue
        marks = []
        for i, row in known:
            mean = row.stats[measure].mean
            point = Point(mean, 0.0, key=row.id, text=f"{mean * scale:,.4g} {unit}")
            marks.append((f"#{i} {label(row)}", point))
        drawing = bars(f"{title}, {name}", f"{title} in {unit}", marks, style)
        lines: list[list[str | Number]] = [
            [f"#{i}", label(row), _number(i, row, measure)] for i, row in known
        ]
        head = ["", "configuration", title]
        folded = len(marks) > MOST_BARS
        pictures.append(Picture(f"{title}, {name}", about, drawing, "", head, lines, folded=folded))
    return pictures
