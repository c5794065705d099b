"""The work of `privfed profile`, column by column in the columns' units; and hints after a fit.

Hints say what a statistician would, from what the fit has released alone; nobody is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from rich.table import Table

from privfed.cli.output import answer, echo, sizes_of, table
from privfed.cli.result import ROWS, Result, claim_from
from privfed.cli.run_folder import read_result, read_run
from privfed.core.record.records import Asked, question_of
from privfed.core.values.domain import FloatArray
from privfed.data.described_clients import day_of, in_units, spreads_in_units, units_of
from privfed.data.schema import DATE, Schema, parse
from privfed.data.table_files import AnyArray, write_table
from privfed.errors import RunFolderError
from privfed.metrics.profiles import Profiles, clients_per_cluster, profiles
from privfed.privacy.claim import one_line

if TYPE_CHECKING:
    from privfed.estimators.base import FederatedClusterer

PICTURE = "profile.png"
_APART = 0.5
"""A column sets a cluster apart from this many standard deviations of all rows on."""
_MOST_APART = 3


class Profiled(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the part of `result.json` that `privfed profile` needs."""

    columns: tuple[str, ...]
    centroids: list[list[float]]
    privacy: dict[str, Any] | None = None
    of: str = ROWS
    intervals: dict[str, Any] | None = None
    profile: dict[str, Any] | None = None


def profile_of(model: FederatedClusterer) -> Profiles:
    """Ask a fitted model's clients for its clusters' profiles, and return them in the columns' units."""
    there = clients_per_cluster(model.federation_, model.cluster_centers_)
    found = replace(profiles(model.federation_, model.cluster_centers_), clients=there)
    scaling = model.scaling_
    return found if scaling is None else found.mapped(np.array(scaling.shift), np.array(scaling.scale))


def profile(run_folder: Path, out: Path | None, picture: bool, as_json: bool) -> None:
    """Do the work of `privfed profile`."""
    text = read_run(run_folder).source.schema
    result = read_result(run_folder, Profiled)
    schema = None if text is None else parse(text)
    if result.profile is not None:
        known = Profiles.from_dict(result.profile)
        shown = _of_rows(result, known, schema)
    elif result.intervals is not None:
        known = None
        shown = _of_totals(result, result.intervals, schema)
    else:
        raise RunFolderError(
            f"{run_folder} has no profile: its clients were not asked for it; fit again in another folder "
            "with --profile."
        )
    if out is not None and out.suffix.lower() in (".svg", ".png"):
        if known is None:
            raise RunFolderError(
                f"{run_folder} has no exact profile to draw in {out}; name a table with --out."
            )
        _draw(out, known, result)
    elif out is not None:
        write_table(out, _long(result, known, schema))
    told = [one_line(claim_from(result.privacy))] if known is None else _apart(known, result.columns)
    answer(result, as_json, shown, *told)
    if picture and known is not None and not as_json:
        _draw(run_folder / PICTURE, known, result)
        echo(f"Written: {run_folder / PICTURE}")


def _draw(path: Path, known: Profiles, result: Profiled) -> None:
    from privfed.cli.pictures import draw_profile

    draw_profile(path, known.apart, known.sizes, result.columns)


def _named(result: Profiled, schema: Schema | None, values: FloatArray, spreads: bool = False) -> Any:
    """Return values of shape (n_clusters, n_features) by the names and in the units of the columns."""
    if schema is None:
        return dict(zip(result.columns, values.T, strict=True))
    return spreads_in_units(schema, values) if spreads else in_units(schema, values)


def _of_rows(result: Profiled, known: Profiles, schema: Schema | None) -> Table:
    """Return a table of sizes, means and standard deviations; a cluster without rows has none."""
    filled = known.sizes > 0.0
    means = _named(result, schema, np.where(filled[:, None], known.means, 0.0))
    stds = _named(result, schema, known.stds, spreads=True)
    lines = [["rows", *(f"{one:.0f}" for one in known.sizes)]]
    if known.clients is not None:
        lines.append(["clients", *(f"{one:.0f}" for one in known.clients)])
    for name, values in means.items():
        beside = [f" ± {one:.4g}" for one in stds[name]] if name in stds else [""] * len(values)
        shown = (f"{_text(one)}{own}" for one, own in zip(values, beside, strict=True))
        lines.append([name, *(one if has else "" for one, has in zip(shown, filled, strict=True))])
    return _by_cluster("mean ± standard deviation", result, lines)


def _of_totals(result: Profiled, intervals: dict[str, Any], schema: Schema | None) -> Table:
    """Return a table of noised sizes and means, with the intervals of the exact ones."""
    each = zip(intervals["sizes"], intervals["sizes_low"], intervals["sizes_high"], strict=True)
    counted = sizes_of(intervals, "rows")
    lines = [[counted, *(f"{size:.0f} ({low:.0f} to {high:.0f})" for size, low, high in each)]]
    means, low, high = (_named(result, schema, np.array(intervals[one])) for one in ("means", "low", "high"))
    for name, values in means.items():
        ends = zip(values, low[name], high[name], strict=True)
        lines.append([name, *(f"{_text(one)} ({_text(a)} to {_text(b)})" for one, a, b in ends)])
    return _by_cluster(f"mean (interval at level {intervals['level']:g})", result, lines)


def _by_cluster(what: str, result: Profiled, lines: list[list[str]]) -> Table:
    head = ("column", *(f"cluster {i}" for i in range(len(result.centroids))))
    return table(head, lines, f"{what}, of {result.of}")


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str) else f"{float(value):.4g}"


def _apart(known: Profiles, columns: tuple[str, ...]) -> list[str]:
    """Return a line for each cluster: the columns in which it differs most from all rows."""
    lines = []
    for i, own in enumerate(np.nan_to_num(known.apart)):
        most = [j for j in np.argsort(-np.abs(own))[:_MOST_APART] if abs(own[j]) >= _APART]
        named = [f"{columns[j]} {'high' if own[j] > 0 else 'low'} ({own[j]:+.1f} sd)" for j in most]
        lines.append(f"cluster {i}: {', '.join(named) or 'like all rows'}")
    return lines


def _long(result: Profiled, known: Profiles | None, schema: Schema | None) -> dict[str, AnyArray]:
    """Return a table of numbers with one row for each cluster and column, in the columns' units.

    Where the schema has dates, whose numbers are days since their origin, a column has their means as dates.
    """
    k, names = len(result.centroids), list(result.columns)
    shift, factor = (np.zeros(len(names)), np.ones(len(names))) if schema is None else units_of(schema)
    if known is not None:
        places = {"mean": known.means}
        sizes, others = known.sizes, {"std": known.stds * factor, "apart": known.apart}
    else:
        plain = result.intervals or {}
        places = {"mean" if one == "means" else one: np.array(plain[one]) for one in ("means", "low", "high")}
        sizes, others = np.array(plain["sizes"]), {}
    values = {name: shift + one * factor for name, one in places.items()} | others
    found = {
        "cluster": np.repeat(np.arange(k), len(names)),
        "rows": np.repeat(sizes, len(names)),
        "column": np.array(names * k),
        **{name: one.ravel() for name, one in values.items()},
    }
    if schema is not None and (origins := {one: schema.columns[one].origin for one in schema.of(DATE)}):
        days = zip(names * k, values["mean"].ravel(), strict=True)
        dates = [
            day_of(origins[one], day) if one in origins and np.isfinite(day) else "" for one, day in days
        ]
        found["date"] = np.array(dates)
    return found


_UNLIKE = 30.0
"""Widths of ranges that differ by more are unlike scales."""

_HARDLY = 1e-4
"""A column with a smaller standard deviation hardly varies, in widths of its range."""

_FEWEST_ROWS = 10
"""Fewer rows for each cluster say little of it."""


def unlike_ranges(model: FederatedClusterer, columns: Sequence[str]) -> tuple[str, str] | None:
    """Return a remark on ranges of unlike widths where nothing scales them, and one on a constant column."""
    if model.scaling_ is not None or not model.transcript_.of(Asked):
        return None
    ranges = question_of(model.transcript_.of(Asked)[-1]).ranges
    width = ranges.high - ranges.low
    # A range that was declared as one value is on no scale.
    wide, narrow = int(np.argmax(width)), int(np.argmin(np.where(width > 0.0, width, np.inf)))
    if width[wide] <= _UNLIKE * width[narrow]:
        return None
    size = max(abs(ranges.low[narrow]), abs(ranges.high[narrow]))
    # A range that is found has edges of bins: that of a single value is as narrow as they lie apart.
    constant = f" If {columns[narrow]} is one value in all rows, leave it out." * bool(
        width[narrow] < size / 8
    )
    remark = (
        f"the range of {columns[wide]} is {width[wide] / width[narrow]:.0f} times that of {columns[narrow]}, "
        "and distances follow the wider one"
    )
    return remark, constant


def hints(model: FederatedClusterer, result: Result, blocks: Sequence[Sequence[int]] = ()) -> Iterator[str]:
    """Yield a line for each thing that a reader of the centroids should know.

    Args:
        model: that was fitted.
        result: of its fit.
        blocks: features that are the categories of one column each; a category alone cannot be left out.
    """
    if (unlike := unlike_ranges(model, result.columns)) is not None:
        yield f"{unlike[0]}: --scale puts all columns on one scale.{unlike[1]}"
    rows = result.rows
    if rows is not None and rows < _FEWEST_ROWS * result.n_clusters:
        each = "one row or less" if rows <= result.n_clusters else f"{rows / result.n_clusters:.0f} rows"
        yield f"{result.n_clusters} clusters of {rows} rows have {each} each on average: take a smaller -k."
    if result.profile is not None and model.transcript_.of(Asked):
        ranges = question_of(model.transcript_.of(Asked)[-1]).ranges
        scale = 1.0 if model.scaling_ is None else np.array(model.scaling_.scale)
        still = np.array(result.profile["std"]) <= _HARDLY * (ranges.high - ranges.low) * scale
        for block in map(list, blocks):
            still[block] = still[block].all()
        if named := ", ".join(result.columns[j] for j in np.flatnonzero(still)):
            yield f"these columns hardly vary, and tell no clusters apart: {named}; leave them out."
    if result.profile is not None and len(result.clients) > 1:
        for i, (size, there) in enumerate(
            zip(result.profile["sizes"], result.profile["clients"], strict=True)
        ):
            if there == 1.0 and size >= _FEWEST_ROWS:
                yield (
                    f"all {size:.0f} rows of cluster {i} are one client's: if it measures in another unit, "
                    "privfed summary --between names the column."
                )
    if result.profile is not None and (empty := sum(size == 0.0 for size in result.profile["sizes"])):
        yield f"{empty} of {result.n_clusters} clusters have no rows: take a smaller -k."
