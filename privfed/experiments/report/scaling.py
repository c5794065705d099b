"""Pictures of leakage and cost against the number of clients, for studies that vary it."""

from __future__ import annotations

from collections.abc import Sequence

from privfed.experiments.report.pictures import Number, Picture
from privfed.experiments.report.summary import Row
from privfed.experiments.report.svg import Axis, Point, Series, chart, legend

_MEASURES = (
    ("leakage", "Largest advantage of any attack.", Axis("leakage", least=0.0, most=1.0)),
    ("bytes", "Sent and received by one client in a whole run.", Axis("bytes of a client", log=True)),
)


def scaling(rows: Sequence[Row]) -> list[Picture]:
    """Return for each data set a picture of leakage, and one of bytes, against the number of clients."""
    pictures = []
    for data in dict.fromkeys(row.setup.labels["data"] for row in rows):
        numbered = [(i, row) for i, row in enumerate(rows, start=1) if row.setup.labels["data"] == data]
        for measure, about, up in _MEASURES:
            picture = _picture(data, measure, about, up, numbered)
            pictures += [] if picture is None else [picture]
    return pictures


def _picture(
    data: str, measure: str, about: str, up: Axis, rows: Sequence[tuple[int, Row]]
) -> Picture | None:
    lines: dict[str, list[tuple[int, Row]]] = {}
    for i, row in rows:
        if {measure, "clients"} <= row.stats.keys() and row.setup.partition.kind != "given":
            labels = [row.setup.labels[axis] for axis in ("algorithm", "sum", "privacy", "defence")]
            name = ", ".join([*(one for one in labels if one != "none"), row.setup.partition.kind])
            lines.setdefault(name, []).append((i, row))
    lines = {name: own for name, own in lines.items() if len({_clients(row) for _, row in own}) > 1}
    if not lines:
        return None
    series = [
        Series(name, [_point(i, row, measure) for i, row in sorted(own, key=lambda one: _clients(one[1]))],
               style=n, line=True)
        for n, (name, own) in enumerate(lines.items())
    ]  # fmt: skip
    title = f"{up.name}: {data}"
    table: list[list[str | Number]] = [
        [f"#{i}", name, f"{_clients(row):g}", Number(stat.mean, i, f"stats.{measure}", stat.sd)]
        for name, own in lines.items()
        for i, row in own
        for stat in [row.stats[measure]]
    ]
    drawing = chart(title, Axis("clients", log=True), up, series)
    return Picture(title, about, drawing, legend(series), ["", "configuration", "clients", up.name], table)


def _clients(row: Row) -> float:
    return row.stats["clients"].mean


def _point(number: int, row: Row, measure: str) -> Point:
    stat = row.stats[measure]
    return Point(_clients(row), stat.mean, stat.sd, row.id, f"#{number}, {_clients(row):g} clients: {stat}")
