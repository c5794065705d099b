"""Profiles of clusters as people read them: a line for each column, in its unit, with digits that count.

A column's standardised difference is that of two clusters, in the mean over all pairs of them, as in Table 1
of a paper. With the sample variances v and w of a number it is |mean - mean| / sqrt((v + w) / 2) (Austin
2009). Of a category with shares p and q it is sqrt((p - q)' S^-1 (p - q)), where S is the mean of the two
covariance matrices of drawing one row's category (Yang and Dalton 2012).

Reveals: nothing more than the sums of the profile, from which everything here is computed.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.metrics.profiles import Profiles
from privfed.tables.schema import CATEGORY, DATE, ORDINAL, Column, Schema

_APART: Final = 0.5
"""A column sets a cluster apart from this many standard deviations of all rows on."""
_MOST_APART: Final = 3


@dataclass(frozen=True)
class Line:
    """One line of a profile.

    Args:
        name: the column, with its unit or category.
        cells: a text for each cluster.
        all: that of all rows; "" where it is not known.
        apart: standardised differences of the clusters from all rows; empty where there are none.
        column: the column of the table that it is of; "" for counts.
        between: the column's standardised difference between clusters, once a column; empty without any.
    """

    name: str
    cells: list[str]
    all: str = ""
    apart: tuple[float, ...] = ()
    column: str = ""
    between: tuple[str, ...] = ()


def figure(value: float, spread: float) -> str:
    """Return a number with two digits of its spread, and never -0."""
    digits = 1 - math.floor(math.log10(spread)) if 0.0 < spread < math.inf else 3
    return (
        f"{value:.2g}"
        if abs(value) >= 1e12
        else f"{round(value, digits) + 0.0:,.{min(max(digits, 0), 9)}f}".replace(",", "\u202f")
    )


def shown(columns: Sequence[str], schema: Schema | None) -> list[tuple[int, str, str, Column]]:
    """Return place, column, title and meaning of each feature to print: of two categories the second."""
    places = iter(range(len(columns)))
    if schema is None:
        return [(place, columns[place], columns[place], Column(kind="number")) for place in places]
    return [
        (place, name, f"{name}: {one}" if own.kind == CATEGORY else own.titled(name), own)
        for name, own in schema.columns.items()
        if own.is_feature
        for one in (own.categories if own.kind == CATEGORY else ("",))
        for place in [next(places)]
        if own.kind != CATEGORY or len(own.categories) != 2 or one == own.categories[1]
    ]


def differences(known: Profiles, columns: Sequence[str], schema: Schema | None) -> dict[str, float]:
    """Return each column's standardised difference between clusters, in the mean over pairs of them.

    Clusters of fewer than two rows are left out; NaN with fewer than two others. It is infinite where two
    clusters differ in a column that varies in neither.

    Args:
        known: exact profiles of rows, in the columns' units.
        columns: names of the features.
        schema: what the columns mean, if anything says it.
    """
    held, found, place = known.sizes > 1.0, dict[str, float](), 0
    size, (i, j) = known.sizes[held, None, None], np.triu_indices(int(held.sum()), 1)
    kinds = dict.fromkeys(columns, Column(kind="number")) if schema is None else schema.columns
    for name, own in ((name, own) for name, own in kinds.items() if own.is_feature):
        means, stds = (one[held, place : place + own.width] for one in (known.means, known.stds))
        unit = np.eye(own.width)
        spread = (
            unit * means[:, None] - means[:, :, None] * means[:, None]
            if own.kind == CATEGORY
            else unit * np.square(stds)[:, None] * size / (size - 1.0)
        )
        # One pair after the other: a column of a thousand categories has matrices of eight megabytes.
        each = [_apart(means[a] - means[b], (spread[a] + spread[b]) / 2.0) for a, b in zip(i, j, strict=True)]
        found[name], place = float(np.mean(each)) if each else math.nan, place + own.width
    return found


def _apart(means: FloatArray, spread: FloatArray) -> float:
    """Return the length of a difference of means, (width,), where `spread` is the unit, (width, width)."""
    values, axes = np.linalg.eigh(spread)
    along = np.square(means @ axes)
    # Along an axis without spread rounding leaves a little of nothing.
    least = 1e-12 * (np.abs(values) + along).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(
            np.sqrt(np.where(along > least, along / np.where(values > least, values, 0.0), 0.0).sum())
        )


def lines_of(
    columns: Sequence[str],
    known: Profiles | None,
    ends: dict[str, Any] | None,
    schema: Schema | None,
    between: Mapping[str, float] | None = None,
) -> list[Line]:
    """Return the lines of a profile in the columns' units.

    Args:
        columns: names of the features.
        known: exact profiles; None where noised totals were released.
        ends: what `Intervals` has, where there is no exact profile.
        schema: what the columns mean, if anything says it.
        between: standardised differences between clusters (`differences`), where they are shown.
    """
    if known is None:
        ends = ends or {}
        counts = zip(ends["sizes"], ends["sizes_low"], ends["sizes_high"], strict=True)
        each = [np.array(ends[one]).T.tolist() for one in ("means", "low", "high")]
        return [Line("rows", [f"{n:.0f} ({a:.0f} to {b:.0f})" for n, a, b in counts])] + [
            Line(
                title,
                [_between(one, own) for one in zip(*(of[place] for of in each), strict=True)],
                column=column,
            )
            for place, column, title, own in shown(columns, schema)
        ]
    rows = float(known.sizes.sum())
    none, left = ("",) * bool(between), {name: (f"{one:.2f}",) for name, one in (between or {}).items()}
    shares = [f"{one:.0f} ({one / max(rows, 1.0):.0%})" for one in known.sizes]
    lines = [Line("rows", shares, f"{rows:.0f}", between=none)]
    if known.clients is not None:
        lines.append(Line("clients", [f"{one:.0f}" for one in known.clients], between=none))
    titles = shown(columns, schema)
    for (place, column, title, own), *further in zip(titles, [*titles[1:], (0, "", "", None)], strict=True):
        means, stds = known.means[:, place], known.stds[:, place]
        if known.low is not None:
            # What noise hides is no spread of 0.
            stds = np.where(known.low.stds[:, place] > 0.0, stds, np.nan)
        own_cells = zip(means, stds, known.sizes, _more(known, place, own), strict=True)
        cells = [_beside(mean, std, n, own) + more for mean, std, n, more in own_cells]
        whole = _beside(known.mean[place], known.std[place], rows, own)
        apart = tuple(np.nan_to_num(known.apart[:, place]))
        # A column of several categories has its difference in the first of its lines.
        lines.append(Line(title, cells, whole, apart, column, left.pop(column, none)))
        if known.missing is not None and (lost := known.missing[:, place]).any() and further[0][1] != column:
            # A percent needs no more digits than the rows of its cluster give it.
            share = [_beside(*one, _SHARE) for one in zip(lost, lost, known.sizes, strict=True)]
            lines.append(Line(f"{column}: missing", share, column=column, between=none))
    return lines


_SHARE: Final = Column(kind=CATEGORY, categories=("missing",))


def edges_of(own: Column, bins: int) -> FloatArray:
    """Return the edges of bins that a declared range gives: of a category around no and yes, in its units."""
    if own.kind == CATEGORY:
        return np.array([-0.5, 0.5, 1.5])
    if own.kind == ORDINAL:
        return np.arange(len(own.categories) + 1.0) - 0.5
    return np.linspace(*(own.range or (0.0, 1.0)), bins + 1)


def _more(known: Profiles, place: int, own: Column) -> list[str]:
    """Return what stands behind a mean: the interval that noise leaves open, and quartiles."""
    found = [""] * len(known.sizes)
    if known.low is not None and known.high is not None:
        ends = zip(known.low.means[:, place], known.high.means[:, place], strict=True)
        found = [f" ({_cell(a, b - a, own)} to {_cell(b, b - a, own)})" if a == a else "" for a, b in ends]
    if known.quartiles is not None and own.kind != CATEGORY:
        three = zip(found, known.stds[:, place], known.quartiles[:, :, place].T.tolist(), strict=True)
        found = [
            f"{text}; {_cell(q[1], s, own)} [{_cell(q[0], s, own)}, {_cell(q[2], s, own)}]"
            if q[1] == q[1]
            else text
            for text, s, q in three
        ]
    return found


def _between(ends: tuple[float, ...], own: Column) -> str:
    """Return a mean with the interval that noise leaves open."""
    mean, low, high = (_cell(one, ends[2] - ends[1], own) for one in ends)
    return f"{mean} ({low} to {high})"


def _beside(mean: float, std: float, rows: float, own: Column) -> str:
    """Return a mean with its spread, "" of no rows; of a category the percent."""
    if rows <= 0.0 or mean != mean:
        return ""
    if own.kind == CATEGORY:
        return _cell(mean, 1.0 / math.sqrt(rows), own)
    if std != std:
        return _cell(mean, 0.0, own)
    return f"{_cell(mean, std, own)} ± {figure(std, std)}{' days' * (own.kind == DATE)}"


def _cell(value: float, spread: float, own: Column) -> str:
    """Return one value as its column's kind is read; a percent has at most one digit behind the point."""
    if own.kind == CATEGORY:
        value = min(max(value, 0.0), 1.0)
        return f"{figure(100.0 * value, min(max(100.0 * spread, 1.0), 10.0))} %"
    if own.kind == DATE:
        return (own.origin + datetime.timedelta(days=round(value))).isoformat()
    return figure(value, spread)


def apart_lines(
    known: Profiles, columns: Sequence[str], schema: Schema | None, heads: Sequence[str]
) -> list[str]:
    """Return a line for each cluster: what sets it most apart from all rows."""
    titles, lines = shown(columns, schema), list[str]()
    for head, own in zip(heads, np.nan_to_num(known.apart).tolist(), strict=False):
        sizes = sorted((-abs(own[one[0]]), own[one[0]], one[2]) for one in titles)[:_MOST_APART]
        named = [
            f"{title} {'high' if by > 0 else 'low'} ({by:+.1f} sd)"
            for size, by, title in sizes
            if -size >= _APART
        ]
        lines.append(f"{head}: {', '.join(named) or 'like all rows'}")
    return lines
