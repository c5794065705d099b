"""Compares DPKMeans with another library's differentially private k-means, on the same rows in the same run.

diffprivlib 0.6.6 (IBM, pure epsilon) needs an older scikit-learn, and so an environment of its own:

    python -m venv /tmp/anchors && /tmp/anchors/bin/pip install diffprivlib==0.6.6 scikit-learn==1.6.1
    DIFFPRIVLIB_PYTHON=/tmp/anchors/bin/python make bench

docs/measurements/utility.md has the table.
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.utility import EPSILONS, FOUR, cost, costs, shown

PYTHON = os.environ.get("DIFFPRIVLIB_PYTHON")
SEEDS = 10

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.timeout(0),
    pytest.mark.skipif(PYTHON is None, reason="DIFFPRIVLIB_PYTHON names no environment with diffprivlib"),
]


def theirs(folder: Path) -> dict[tuple[str, float], np.ndarray]:
    """Return the costs of diffprivlib's centers, by set and epsilon."""
    sets = {name: make() for name, make in FOUR.items()}
    arrays = {name: rows for name, (rows, _) in sets.items()}
    np.savez(folder / "sets.npz", **arrays, **{f"{name}.k": np.array(k) for name, (_, k) in sets.items()})
    script = Path(__file__).parent / "diffprivlib_fits.py"
    words = [folder / "sets.npz", folder / "centers.npz", SEEDS, *EPSILONS]
    subprocess.run([str(PYTHON), script, *map(str, words)], check=True, cwd=folder)
    found = {}
    with np.load(folder / "centers.npz") as centers:
        for name, (rows, k) in sets.items():
            for epsilon in EPSILONS:
                fits = [centers[f"{name}/{epsilon}/{seed}"] for seed in range(SEEDS)]
                found[name, epsilon] = np.array([cost(rows, k, one) for one in fits])
    return found


def test_every_cell_costs_less_than_diffprivlib(tmp_path: Path) -> None:
    for (name, epsilon), other in theirs(tmp_path).items():
        ours = costs(name, epsilon, SEEDS)
        print(f"{name:>8} {epsilon:5} ours {shown(ours)} diffprivlib {shown(other)}")
        assert ours.mean() <= other.mean()
