"""What the DWF paper's study would cost here: processor time of a stratified sample of its runs.

The paper trains 24,000 models on each of its data sets: three distributions, four algorithms, twenty levels
of participation (5, 10, ... 100 of 100 clients), a hundred runs. Here each distribution and algorithm is run
at each of the levels asked for, some runs each, with the paper's rounds (at most 10,000) and all else as in
`examples/dwf.py`. Central k-means has no level: each of its runs stands for all. Each run is timed alone, in
processor seconds of one thread, splitting the rows and scoring included.

    python benchmarks/dwf_paper_scale.py [--data synthetic|MNIST] [--folder DIR] [--runs 5]
        [--levels 5 10 ...] [--kinds iid ...] [--processes 1]

Prints a line for each run and the sum, and after each round of runs writes `dwf_paper_scale.json`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

KEPT = Path(__file__).with_name("dwf_paper_scale.json")
RUNS_A_LEVEL, LEVELS = 100, tuple(range(5, 101, 5))
PAPER_CORE_HOURS = {"synthetic": 2304, "MNIST": 6912}
"""A day and three days of four machines with 24 cores."""

Found = dict[tuple[str, str, int], list[float]]
"""Distribution, algorithm and level -> seconds of each run."""


@cache
def example() -> ModuleType:
    """Return `examples/dwf.py` as a module."""
    place = Path(__file__).parents[1] / "examples" / "dwf.py"
    spec = importlib.util.spec_from_file_location("dwf_example", place)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seconds(data: str, folder: Path | None, kind: str, method: str, level: int, seed: int) -> float:
    """Run one model; return its processor seconds."""
    dwf: Any = example()
    began = time.process_time()
    dwf.measured(
        dwf.Job(data, 100, kind, method, level, seed), folder, dwf.Scale(1, 1, (), 60_000, 100, 10_000)
    )
    return time.process_time() - began


def core_hours(found: Found, kinds: int) -> float:
    """Return what 24,000 models cost, given runs of some distributions."""
    means: dict[tuple[str, str], dict[int, float]] = {}
    for (kind, method, level), runs in found.items():
        means.setdefault((kind, method), {})[level] = float(np.mean(runs))
    # Levels that were not run have the value between their neighbours.
    a_run = [np.interp(LEVELS, sorted(one), [one[i] for i in sorted(one)]).mean() for one in means.values()]
    return float(sum(a_run)) * len(LEVELS) * RUNS_A_LEVEL / 3600 * 3 / kinds


def write(data: str, found: Found, runs: int, kinds: int) -> None:
    """Write the means of each distribution and algorithm, by level, and print the sum."""
    hours, theirs = core_hours(found, kinds), PAPER_CORE_HOURS[data]
    print(f"24,000 models: {hours:.2f} core-hours; the paper's {theirs}, {theirs / hours:.0f} times as many")
    lines: dict[str, dict[str, float]] = {}
    for (kind, method, level), one in found.items():
        lines.setdefault(f"{kind} {method}", {})[str(level)] = round(float(np.mean(one)), 2)
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    known[data] = {
        "runs": runs,
        "models": sum(map(len, found.values())),
        "seconds_a_run": lines,
        "core_hours": round(hours, 2),
        "paper_core_hours": theirs,
        "processes_waiting": round(os.getloadavg()[0], 1),
    }
    KEPT.write_text(json.dumps(known, indent=2) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sample and print what all runs would take."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", choices=sorted(PAPER_CORE_HOURS), default="synthetic")
    parser.add_argument("--folder", type=Path, help="folder with mnist.npz")
    parser.add_argument("--runs", type=int, default=5, help="of each level")
    parser.add_argument("--levels", type=int, nargs="+", default=LEVELS)
    parser.add_argument("--kinds", nargs="+", default=["iid", "half-iid", "non-iid"])
    parser.add_argument("--processes", type=int, default=1)
    chosen = parser.parse_args(arguments)
    methods = example().METHODS
    found: Found = {}
    with ProcessPoolExecutor(chosen.processes, mp_context=get_context("spawn")) as pool:
        for seed in range(chosen.runs):
            cells = [
                (kind, method, level)
                for kind, method in product(chosen.kinds, methods)
                for level in (chosen.levels if method != example().CENTRAL else [100])
            ]
            running = [pool.submit(seconds, chosen.data, chosen.folder, *cell, seed) for cell in cells]
            for cell, future in zip(cells, running, strict=True):
                found.setdefault(cell, []).append(future.result())
                kind, method, level = cell
                print(f"{kind} {method} {level} of 100, {seed}: {found[cell][-1]:.2f} s", flush=True)
            write(chosen.data, found, seed + 1, len(chosen.kinds))


if __name__ == "__main__":
    main()
