"""Pages that set our figures beside a paper's, from runs that resume: what the papers' programs share.

A cell of a page reads `0.0751 ± 0.0004 (0.0743, +1.9)`: our mean and its standard error, then the paper's
value and the difference over the standard errors of both; in bold from two on. Where the paper prints no
spread its value counts as one run of ours. The rounding of printed values counts, too.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import privfed

PAPERS = Path(__file__).parents[1] / "docs" / "papers"
NOISE = 4.0
"""Standard errors from which a new value on a page differs from the old one: it has hundreds of values."""

_OURS = re.compile(r"(-?[\d.]+) ± ([\d.]+)")
_APART = re.compile(r"[(,] ?\**([+-][\d.]+)\**\)")


def asked(text: str | None, name: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options that all programs of the papers have."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a few runs, in seconds")
    size.add_argument("--full", action="store_true", help="as many runs as in the paper, for hours or days")
    parser.add_argument("--out", type=Path, default=Path("runs") / name, help="folder for the results")
    parser.add_argument("--data", type=Path, help="folder with the data that are not drawn here")
    parser.add_argument(
        "--finished", action="store_true", help="no further runs: the page of those that ended"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--page", type=Path, nargs="?", const=PAPERS, help="also write the page, to docs/papers or here"
    )
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    chosen.workers = 0 if chosen.finished else max(1, chosen.workers)
    chosen.left = []
    return chosen


def _timed(measure: Callable[[Any], Mapping[str, Any]], job: Any) -> dict[str, Any]:
    began = time.process_time()
    found = measure(job)
    return {**job._asdict(), **found, "cpu": round(time.process_time() - began, 3)}


def _text(values: Iterable[object]) -> tuple[str, ...]:
    return tuple("" if one is None else "NaN" if one != one else str(one) for one in values)


def measured(
    jobs: Iterable[Any],
    measure: Callable[[Any], Mapping[str, Any]],
    path: Path,
    parameters: Mapping[str, Any],
    chosen: argparse.Namespace,
) -> pl.DataFrame:
    """Run the jobs that a file does not hold yet, and return a row for each job.

    Args:
        jobs: named tuples; their fields are the first columns.
        measure: returns a job's results by name; a function of a module, or a partial one.
        path: the CSV file, to which each job is added when it has ended. Its first line holds `parameters`;
            a file with others is begun anew.
        parameters: what else the results depend on, for JSON.
        chosen: the options. With no workers only runs that have ended are returned, and `chosen.left` says
            how many there are, for the page.
    """
    head = f"# {json.dumps({**parameters, 'privfed': privfed.__version__}, sort_keys=True)}"
    wanted = {_text(job): job for job in jobs}
    width = len(next(iter(wanted)))
    known: dict[tuple[str, ...], list[str]] = {}
    lines = path.read_text().splitlines() if path.exists() else []
    names: list[str] = []
    if lines[:1] == [head] and len(lines) > 1:
        names, *rows = csv.reader(lines[1:])
        # The last line may have been cut off.
        known = {tuple(row[:width]): row for row in rows if len(row) == len(names)}
    left = [job for key, job in wanted.items() if key not in known] if chosen.workers else []
    with path.open("w", newline="") as file, ExitStack() as ending:
        writer = csv.writer(file)
        file.write(head + "\n")
        if names:
            writer.writerows([names, *known.values()])
        run: Any = map
        if chosen.workers > 1 and len(left) > 1:
            spawn = get_context("spawn")
            run = ending.enter_context(ProcessPoolExecutor(chosen.workers, mp_context=spawn)).map
        for number, row in enumerate(run(partial(_timed, measure), left), start=1):
            if not names:
                names = list(row)
                writer.writerow(names)
            known[_text(row.values())[:width]] = list(_text(row.values()))
            writer.writerow(_text(row.values()))
            file.flush()
            if number % 25 == 0:
                print(f"{path.name}: {number} of {len(left)} runs", flush=True)
    ended = [known[key] for key in wanted if key in known]
    if len(ended) < len(wanted):
        chosen.left.append(f"{len(ended)} of {len(wanted)} of {path.name}")
    text = StringIO()
    csv.writer(text).writerows([names, *ended])
    text.seek(0)
    return pl.read_csv(text, infer_schema_length=None)


def cpu(table: pl.DataFrame) -> float:
    """Return the processor seconds of a table's runs."""
    return float(table["cpu"].sum())


def beside(
    ours: Iterable[float], printed: float | None = None, sd: float = math.nan, runs: int = 1, digits: int = 4
) -> str:
    """Return a cell: our mean, its standard error, the paper's value, and the difference over the errors.

    Args:
        ours: value of each run of ours; NaN are left out.
        printed: the paper's value, if it prints one.
        sd: standard deviation of the paper's runs, or NaN if it prints none.
        runs: number of the paper's runs.
        digits: decimals.
    """
    values = np.array([one for one in ours if not math.isnan(one)])
    if not len(values):
        return "" if printed is None else f"none ({printed:.{digits}f})"
    if len(values) == 1 and math.isnan(sd):
        return plain(float(values[0]), printed, digits)
    own = values.std(ddof=1) if len(values) > 1 else 0.0
    # A few runs do not tell their spread: the wider of both stands for ours.
    spread = np.nanmax([own, sd])
    theirs = (spread if math.isnan(sd) else sd) / math.sqrt(runs)
    return cell_of(float(values.mean()), float(spread / math.sqrt(len(values))), printed, theirs, digits)


def cell_of(ours: float, error: float, printed: float | None, theirs: float, digits: int = 4) -> str:
    """Return a cell of one value of ours and its standard error, and of the paper's and its own."""
    cell = f"{ours:.{digits}f} ± {error:.{digits}f}"
    if printed is None:
        return cell
    apart = (ours - printed) / math.hypot(error, theirs, 10.0**-digits)
    said = f"{apart:+.1f}"
    return f"{cell} ({printed:.{digits}f}, {f'**{said}**' if abs(apart) >= 2 else said})"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in [header, ["---"] * len(header), *rows])


def plain(ours: float | None, printed: float | None, digits: int = 4) -> str:
    """Return a cell of one value of ours and the paper's, which nothing compares."""
    cells = ["none" if ours is None else f"{ours:.{digits}f}"]
    return " ".join(cells if printed is None else [*cells, f"({printed:.{digits}f})"])


def reading(program: str, said: str, seconds: float) -> str:
    """Return the sentences that each page begins with: how it was made, and how its cells are read."""
    spent = f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
    return (
        f"`python -m {program}` wrote this page in {spent} of one processor: {said}. "
        "A cell reads: ours ± its standard error (the paper's, and the difference over both standard errors)."
    )


def within(page: str) -> str:
    """Return how many of a page's compared values lie within two standard errors, as a sentence."""
    apart = [abs(float(one)) for one in _APART.findall(page)]
    return f"Of {len(apart)} printed values {sum(one < 2 for one in apart)} lie within two standard errors."


def _cells(page: str) -> dict[tuple[str, ...], tuple[float, float]]:
    """Return value and error of each cell, by heading, labels of the row, and column."""
    found: dict[tuple[str, ...], tuple[float, float]] = {}
    heading, header = "", [""]
    for line in page.splitlines():
        if line.startswith("#"):
            heading, header = line, [""]
        if not line.startswith("|"):
            continue
        row = [one.strip() for one in line.strip("|").split("|")]
        cells = {column: _OURS.match(one) for column, one in enumerate(row)}
        if not any(cells.values()):
            header = header if set(row) == {"---"} else row
            continue
        labels = [one for column, one in enumerate(row) if not cells[column] and not one.startswith("none")]
        for column, match in cells.items():
            if match:
                found[heading, *labels[:3], header[min(column, len(header) - 1)]] = (
                    float(match[1]),
                    max(float(match[2]), 10.0 ** -len(match[1].partition(".")[2])),
                )
    return found


def changes(old: str, new: str) -> list[str]:
    """Return what differs between two pages beyond noise: a line for each cell that both have."""
    before = _cells(old)
    return [
        f"{' / '.join(key)}: {before[key][0]} ± {before[key][1]} was, {value} ± {error} is"
        for key, (value, error) in _cells(new).items()
        if key in before and abs(value - before[key][0]) > NOISE * math.hypot(error, before[key][1])
    ]


def write(name: str, page: str, chosen: argparse.Namespace) -> int:
    """Write a page and its picture, and return 1 where it differs from the one that was there."""
    if chosen.left:
        title, _, rest = page.partition("\n")
        page = f"{title}\n\n**Some runs have not been made**: there are {', '.join(chosen.left)}.\n{rest}"
    (chosen.out / f"{name}.md").write_text(page)
    print(page)
    if chosen.page is None:
        return 0
    chosen.page.mkdir(parents=True, exist_ok=True)
    target = chosen.page / f"{name}.md"
    differing = changes(target.read_text() if target.exists() else "", page)
    target.write_text(page)
    for picture in chosen.out.glob("*.png"):
        (chosen.page / picture.name).write_bytes(picture.read_bytes())
    print("\n".join(["Differs beyond noise from the page before:", *differing] if differing else []))
    return int(bool(differing))
