"""Draws points, lines and bars as SVG text, with marks that carry their numbers.

Colours are Okabe and Ito's (2008), distinguishable to colour-blind people, without yellow, too pale on white;
shapes and dashes repeat the distinction, so that nothing depends on colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "down", "bar")
DASHES = ("", "6 3", "2 3", "8 3 2 3")

WIDTH, HEIGHT = 520, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 16, 14, 46
_ROW = 24
_NEAR, _MOST_TAGS = 14, 6


@dataclass(frozen=True)
class Point:
    """Describes a mark.

    Args:
        x: horizontal value.
        y: vertical value.
        sd: standard deviation of y; 0 or NaN draws no error bar.
        key: id of the configuration that the numbers belong to; empty for published ones.
        text: text that is shown when the pointer is on the mark.
        tag: text that is written beside the mark.
    """

    x: float
    y: float
    sd: float = math.nan
    key: str = ""
    text: str = ""
    tag: str = ""


@dataclass(frozen=True)
class Series:
    """Holds marks of one kind, joined by a line if `line` is true."""

    name: str
    points: Sequence[Point]
    style: int
    line: bool = False
    colour: int | None = None
    dash: int = 0

    @property
    def ink(self) -> str:
        """Colour of the marks."""
        return COLOURS[(self.style if self.colour is None else self.colour) % len(COLOURS)]

    @property
    def stroke(self) -> str:
        """Attributes of its line in SVG."""
        dash = f' stroke-dasharray="{DASHES[self.dash]}"' if DASHES[self.dash] else ""
        return f'stroke="{self.ink}" stroke-width="2"{dash}'

    @property
    def shape(self) -> str:
        """Shape of the marks."""
        return SHAPES[self.style % len(SHAPES)]


@dataclass(frozen=True)
class Axis:
    """Describes an axis, linear or logarithmic; the values `least` and `most` are always on it.

    `span` is the least range of a linear axis, so that small differences do not look large.
    """

    name: str
    log: bool = False
    least: float | None = None
    most: float | None = None
    span: float = 0.0

    def ends(self, values: Sequence[float]) -> tuple[float, float]:
        """Return the ends of the axis, a little beyond the values."""
        extra = [one for one in (self.least, self.most) if one is not None]
        low, high = min([*values, *extra]), max([*values, *extra])
        if self.log:
            room = max((high / low) ** 0.05, 1.05)
            return low / room, high * room
        room = max((high - low) * 0.05, (self.span - (high - low)) / 2) or max(abs(high), 1.0) * 0.05
        return (low if low == self.least else low - room), high + room


def ticks(low: float, high: float, log: bool) -> list[float]:
    """Return round numbers between the ends, three to eight of them if there is room."""
    if log:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for factors in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
            found = [f * 10.0**d for d in decades for f in factors if low <= f * 10.0**d <= high]
            if len(found) >= 3:
                return found[:: math.ceil(len(found) / 8)]
        log = False
    step = 10.0 ** math.floor(math.log10((high - low) / 3))
    step = next(step * f for f in (5, 2, 1) if (high - low) / (step * f) >= 3 or f == 1)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def label(value: float) -> str:
    """Return a tick's text."""
    if value != 0 and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:,.10g}" if abs(value) >= 1 else f"{value:.3g}"


def chart(title: str, across: Axis, up: Axis, series: Sequence[Series]) -> str:
    """Draw points and lines.

    Args:
        title: title for screen readers.
        across: horizontal axis.
        up: vertical axis.
        series: what to draw; on a logarithmic axis, values that are not positive are left out.
    """
    kept = [_kept(one, across, up) for one in series]
    points = [point for one in kept for point in one.points]
    if not points:
        return ""
    spans = [p.y + sign * p.sd for p in points if math.isfinite(p.sd) for sign in (-1, 1)]
    x_ends = across.ends([p.x for p in points])
    y_ends = up.ends([p.y for p in points] + [y for y in spans if not up.log or y > 0])
    x = _scale(x_ends, across.log, _LEFT, WIDTH - _RIGHT)
    y = _scale(y_ends, up.log, HEIGHT - _BOTTOM, _TOP)
    parts = [_grid(across, up, x_ends, y_ends, x, y)]
    parts += [_line(one, x, y) for one in kept if one.line and len(one.points) > 1]
    parts += [_marks(one, x, y, up.log) for one in kept]
    parts.append(_tags(points, x, y))
    return _svg(title, WIDTH, HEIGHT, parts)


def bars(title: str, name: str, rows: Sequence[tuple[str, Point]], style: int = 0) -> str:
    """Draw one horizontal bar for each row, of length `Point.x`, with its text beside it.

    Args:
        title: title for screen readers.
        name: name of the numbers.
        rows: label and number of each bar.
        style: number of the colour.
    """
    most = max((point.x for _, point in rows), default=0.0) or 1.0
    height = _ROW * 2 * len(rows) + _TOP + 24
    parts = []
    for i, (text, point) in enumerate(rows):
        top, length = _TOP + 2 * _ROW * i, (WIDTH - _RIGHT - 90) * point.x / most
        parts.append(
            f'<text x="4" y="{top + 12}">{escape(text)}</text>'
            f'<rect class="mark" x="4" y="{top + 18}" width="{max(length, 1):.1f}" height="16" '
            f'fill="{COLOURS[style]}" data-id="{point.key}" data-x="{point.x!r}">'
            f"<title>{escape(point.text)}</title></rect>"
            f'<text x="{length + 10:.1f}" y="{top + 31}">{escape(point.text)}</text>'
        )
    parts.append(f'<text x="4" y="{height - 6}" class="axis">{escape(name)}</text>')
    return _svg(title, WIDTH, height, parts)


def legend(series: Sequence[Series]) -> str:
    """Return a legend of the marks, as HTML that wraps on a narrow page."""
    items = []
    for one in series:
        stroke = f'<path d="M0 8H30" {one.stroke}/>' if one.line else ""
        items.append(
            f'<li><svg width="30" height="16" aria-hidden="true">{stroke}{_shape(one, 15, 8)}</svg>'
            f"{escape(one.name)}</li>"
        )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _svg(title: str, width: int, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
        f"{''.join(parts)}</svg>"
    )


def _kept(series: Series, across: Axis, up: Axis) -> Series:
    def shown(axis: Axis, value: float) -> bool:
        return math.isfinite(value) and (value > 0 or not axis.log)

    return replace(series, points=[p for p in series.points if shown(across, p.x) and shown(up, p.y)])


def _scale(ends: tuple[float, float], log: bool, start: float, stop: float) -> Callable[[float], float]:
    low, high = map(math.log10, ends) if log else ends

    def place(value: float) -> float:
        at = math.log10(value) if log else value
        return start + (stop - start) * (at - low) / (high - low)

    return place


def _grid(
    across: Axis,
    up: Axis,
    x_ends: tuple[float, float],
    y_ends: tuple[float, float],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> str:
    parts = []
    for value in ticks(*x_ends, across.log):
        parts.append(
            f'<path class="grid" d="M{x(value):.1f} {_TOP}V{HEIGHT - _BOTTOM}"/>'
            f'<text class="tick" x="{x(value):.1f}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">'
            f"{label(value)}</text>"
        )
    for value in ticks(*y_ends, up.log):
        parts.append(
            f'<path class="grid" d="M{_LEFT} {y(value):.1f}H{WIDTH - _RIGHT}"/>'
            f'<text class="tick" x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">'
            f"{label(value)}</text>"
        )
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    parts.append(
        f'<text class="axis" x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{escape(across.name)}</text>"
        f'<text class="axis" transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">'
        f"{escape(up.name)}</text>"
    )
    return "".join(parts)


def _line(one: Series, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    places = " ".join(f"{x(p.x):.1f},{y(p.y):.1f}" for p in one.points)
    return f'<polyline points="{places}" fill="none" {one.stroke}/>'


def _marks(one: Series, x: Callable[[float], float], y: Callable[[float], float], log: bool) -> str:
    parts = []
    for p in one.points:
        at, height = x(p.x), y(p.y)
        if math.isfinite(p.sd) and p.sd > 0 and (p.y - p.sd > 0 or not log):
            ends = y(p.y - p.sd), y(p.y + p.sd)
            parts.append(f'<path d="M{at:.1f} {ends[0]:.1f}V{ends[1]:.1f}" stroke="{one.ink}"/>')
        parts.append(
            f'<g class="mark" data-id="{p.key}" data-x="{p.x!r}" data-y="{p.y!r}">'
            f"<title>{escape(p.text or one.name)}</title>{_shape(one, at, height)}</g>"
        )
    return "".join(parts)


def _tags(points: Sequence[Point], x: Callable[[float], float], y: Callable[[float], float]) -> str:
    """Write tags beside their marks; tags of marks that coincide are written together."""
    places: list[tuple[float, float, list[str]]] = []
    for p in sorted((p for p in points if p.tag), key=lambda p: (p.x, p.y)):
        at, height = x(p.x), y(p.y)
        near = [one for one in places if abs(one[0] - at) < _NEAR and abs(one[1] - height) < _NEAR]
        if near:
            near[0][2].append(p.tag)
        else:
            places.append((at, height, [p.tag]))
    parts = []
    for at, height, tags in places:
        listed = ", ".join(sorted(tags, key=lambda tag: (len(tag), tag))[:_MOST_TAGS])
        text = f"{listed}, ..." if len(tags) > _MOST_TAGS else listed
        beside, anchor = (at - 8, "end") if at > WIDTH - 110 else (at + 8, "start")
        parts.append(
            f'<text class="tick" x="{beside:.1f}" y="{height - 5:.1f}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )
    return "".join(parts)


def _shape(one: Series, x: float, y: float) -> str:
    paths = {
        "square": "M-4.5-4.5h9v9h-9z",
        "triangle": "M0-6L5.5 4.5h-11z",
        "diamond": "M0-6L6 0L0 6L-6 0z",
        "cross": "M-5-5L5 5M-5 5L5-5",
        "down": "M0 6L5.5-4.5h-11z",
        "bar": "M-6-2h12v4h-12z",
    }
    if one.shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{one.ink}" stroke="#fff"/>'
    stroke = f'stroke="{one.ink}" stroke-width="2.5"' if one.shape == "cross" else 'stroke="#fff"'
    return f'<path d="{paths[one.shape]}" transform="translate({x:.1f} {y:.1f})" fill="{one.ink}" {stroke}/>'
