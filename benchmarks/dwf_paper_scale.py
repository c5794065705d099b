"""What the DWF paper's study would cost here: processor time of a stratified sample of its runs.

The paper trains 24,000 models on each of its data sets: three distributions, four algorithms, twenty levels
of participation, a hundred runs. Each distribution and algorithm is run here at some levels, with the paper's
rounds (at most 10,000) and all else as in `examples/dwf.py`; the levels between stand for their neighbours.
Processor seconds of one thread, splitting the rows and scoring included.

    python benchmarks/dwf_paper_scale.py [--data synthetic|MNIST] [--folder DIR] [--levels 10 30 50 70 100]

Prints a line for each run and the sum, and writes `dwf_paper_scale.json`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

KEPT = Path(__file__).with_name("dwf_paper_scale.json")
RUNS_A_LEVEL, LEVELS = 100, 20
PAPER_CORE_HOURS = {"synthetic": 2304, "MNIST": 6912}
"""A day and three days of four machines with 24 cores."""


def example() -> ModuleType:
    """Return `examples/dwf.py` as a module."""
    place = Path(__file__).parents[1] / "examples" / "dwf.py"
    spec = importlib.util.spec_from_file_location("dwf_example", place)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sample and print what all runs would take."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", choices=sorted(PAPER_CORE_HOURS), default="synthetic")
    parser.add_argument("--folder", type=Path, help="folder with mnist.npz")
    parser.add_argument("--levels", type=int, nargs="+", default=[10, 30, 50, 70, 100])
    parser.add_argument("--kinds", nargs="+", default=["iid", "half-iid", "non-iid"])
    chosen = parser.parse_args(arguments)
    dwf: Any = example()
    scale = dwf.Scale(1, 1, (), 60_000, 100, 10_000)
    found: dict[tuple[str, str], list[float]] = {}
    for kind, method in product(chosen.kinds, dwf.METHODS):
        for level in chosen.levels if method != dwf.CENTRAL else [100]:
            job = dwf.Job(chosen.data, 100, kind, method, level, 0)
            began = time.process_time()
            dwf.measured(job, chosen.folder, scale)
            seconds = time.process_time() - began
            found.setdefault((kind, method), []).append(seconds)
            print(f"{kind} {method} {level} of 100: {seconds:.2f} s", flush=True)
    # Every distribution and algorithm stands for its 2,000 models, with the mean over its levels.
    hours = sum(float(np.mean(one)) for one in found.values()) * LEVELS * RUNS_A_LEVEL / 3600
    hours *= 3 / len(chosen.kinds)
    theirs = PAPER_CORE_HOURS[chosen.data]
    print(f"24,000 models: {hours:.1f} core-hours; the paper's {theirs}, {theirs / hours:.0f} times as many")
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    known[chosen.data] = {
        "levels": chosen.levels,
        "seconds_a_run": {
            f"{kind} {method}": np.round(one, 2).tolist() for (kind, method), one in found.items()
        },
        "core_hours": round(hours, 1),
        "paper_core_hours": theirs,
        "processes_waiting": round(os.getloadavg()[0], 1),
    }
    KEPT.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    main()
