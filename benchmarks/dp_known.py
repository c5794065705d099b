"""Cost of DPKMeans on the known sets, some of which constants were chosen on, beside baselines.

    python -m benchmarks.dp_known --out known.json [--files sipu_sets.npz fastlloyd_sets.npz] [SET ...]
    python -m benchmarks.dp_unseen --table known.json

Files hold public sets that this package does not ship, as arrays: s1_X, s3_X, a1_X, unbalance_X and dim064_X
(SIPU), adult and house (as FastLloyd took them). mnist20 is left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.dp_sets import SETS, Made, fitted
from benchmarks.dp_unseen import METHODS
from benchmarks.utility import cost, scaled

FIRST_SEED = 7_000
OF_FILES = {"s1_X": 15, "s3_X": 15, "a1_X": 20, "unbalance_X": 8, "dim064_X": 16, "adult": 6, "house": 3}
"""Arrays in files -> number of clusters."""


def known(files: list[Path]) -> dict[str, Callable[[], Made]]:
    """Return the made sets and those of the files, by name."""
    found = dict(SETS)
    for path in files:
        with np.load(path) as arrays:
            for name in set(arrays.files) & set(OF_FILES):
                made = scaled(arrays[name].astype(np.float64)), OF_FILES[name]
                found[name.removesuffix("_X")] = lambda made=made: made
    return found


def main() -> None:
    """Measure sets into a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--files", type=Path, nargs="*", default=[])
    parser.add_argument("sets", nargs="*", help="none for all")
    asked = parser.parse_args()
    sets, found = known(asked.files), {}
    for name in asked.sets or sets:
        rows, k = sets[name]()
        for epsilon in (0.1, 0.5, 1.0, 4.0):
            found[f"{name} at {epsilon:g}"] = {
                method: [
                    cost(rows, k, fitted(make(k, seed), rows, epsilon, seed))
                    for seed in range(FIRST_SEED, FIRST_SEED + asked.seeds)
                ]
                for method, make in METHODS.items()
            }
        asked.out.write_text(json.dumps(found))
        print(name, flush=True)


if __name__ == "__main__":
    main()
