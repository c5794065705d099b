"""How often a private fit goes wrong by chance: the share of seeds far above the median, cell by cell.

    python -m benchmarks.dp_tails --seeds 200 --out now.json          # all cells
    python -m benchmarks.dp_tails --seeds 60 --out now.json sizes5:4  # one
    python -m benchmarks.dp_tails --beside before.json now.json       # paired, by a sign test

A cell is a set and an epsilon; delta is 1e-6. Cost is that of scikit-learn's best of 20 runs times the number
shown. Seeds are the same for all trees, so that two files of two trees are paired. `--sipu` names a file with
`unbalance_X`, which privfed does not contain; without it unbalance is left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

from benchmarks.dp_sets import SETS, Made, fitted, gaussians, nested, sizes
from benchmarks.private_baselines import PrivateEvolution
from benchmarks.utility import cost, scaled
from privfed.algorithms.private.kmeans import PrivateKMeans

FAR = 1.5
"""A seed is in the tail if its cost is more than so many times the median."""


def like_unbalance(seed: int = 5) -> Made:
    """Make three groups of 2000 rows close together, and five of 100 far away."""
    rng = np.random.default_rng(seed)
    dense = np.array([(-0.9, -0.2), (-0.75, 0.35), (-0.6, -0.1)])
    sparse = np.array([(0.3, 0.8), (0.9, 0.75), (0.4, -0.75), (0.95, -0.7), (0.65, 0.05)])
    rows = [center + 0.03 * rng.standard_normal((2000, 2)) for center in dense]
    rows += [center + 0.06 * rng.standard_normal((100, 2)) for center in sparse]
    return np.clip(np.concatenate(rows), -1, 1), 8


def two_far(d: int, seed: int = 1) -> Made:
    """Make two small groups far apart, of two clusters each."""
    rng = np.random.default_rng(seed)
    groups = np.array([[-0.8] * d, [0.8] * d])
    centers = np.concatenate([group + 0.05 * rng.uniform(-1, 1, (2, d)) for group in groups])
    return np.clip(centers[rng.integers(4, size=2000)] + 0.005 * rng.standard_normal((2000, d)), -1, 1), 4


def thin(d: int, k: int, seed: int) -> Made:
    """Make Gaussian clusters, one column of which takes up 1 % of the domain."""
    rows, _ = gaussians(5000, d, k, seed)
    rows[:, -1] *= 0.01
    return rows, k


def three_groups(d: int, seed: int = 6) -> Made:
    """Make three groups, of which nine clusters are wanted."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-0.7, 0.7, (3, d))
    return np.clip(centers[rng.integers(3, size=5000)] + 0.1 * rng.standard_normal((5000, d)), -1, 1), 9


MADE: dict[str, tuple[Callable[[], Made], tuple[float, ...]]] = {
    "like_unbalance": (like_unbalance, (0.5, 1.0)),
    "two_far2": (lambda: two_far(2), (0.1, 0.5, 1.0)),
    "two_far4": (lambda: two_far(4), (0.1, 0.5, 1.0)),
    "two_far8": (lambda: two_far(8), (0.1, 0.5)),
    "thin2": (lambda: thin(2, 5, 4), (4.0,)),
    "thin3": (lambda: thin(3, 5, 4), (4.0,)),
    "thin4": (lambda: thin(4, 8, 53), (0.5, 1.0, 4.0)),
    "wine": (SETS["wine"], (1.0, 4.0)),
    "nine_of_three2": (lambda: three_groups(2), (0.5, 1.0, 4.0)),
    "nine_of_three4": (lambda: three_groups(4), (0.5, 1.0, 4.0)),
    "nested2": (lambda: nested(2, 11), (0.5, 1.0, 4.0)),
    "nested3": (SETS["nested3"], (0.5, 1.0, 4.0)),
    "sizes5": (SETS["sizes5"], (0.5, 1.0, 4.0)),
    "eight_sizes5": (lambda: sizes(5, 51, 8), (0.5, 1.0, 4.0)),
    "twelve6": (lambda: gaussians(6000, 6, 12, 51), (0.5, 1.0, 4.0)),
}


def from_file(path: str) -> dict[str, tuple[Callable[[], Made], tuple[float, ...]]]:
    """Return the cells of the sets of a file."""
    rows = scaled(np.load(path)["unbalance_X"].astype(np.float64))
    return {"unbalance": (lambda: (rows, 8), (0.5, 1.0))}


def costs(made: Callable[[], Made], epsilon: float, seeds: int, evolution: bool) -> np.ndarray:
    """Return the cost of a fit with each seed, float64 of shape (seeds,)."""
    rows, k = made()
    algorithm = PrivateEvolution if evolution else PrivateKMeans
    fits = (fitted(algorithm(n_clusters=k, seed=seed), rows, epsilon, seed) for seed in range(seeds))
    return np.array([cost(rows, k, centers) for centers in fits])


def tail(values: np.ndarray, median: float) -> int:
    """Return how many values are far above a median."""
    return int((values > FAR * median).sum())


def beside(before: Path, now: Path) -> None:
    """Print the cells of two files, seed by seed beside each other."""
    old, new = (json.loads(path.read_text()) for path in (before, now))
    print("| cell | seeds | median | mean | tail | lower / higher | p |\n|---|---|---|---|---|---|---|")
    for cell in old.keys() & new.keys():
        n = min(len(old[cell]), len(new[cell]))
        a, b = np.array(old[cell])[:n], np.array(new[cell])[:n]
        lower, higher, was = int((b < a).sum()), int((b > a).sum()), float(np.median(a))
        p = binomtest(lower, lower + higher).pvalue if lower + higher else 1.0
        medians, means = f"{was:.3f} / {np.median(b):.3f}", f"{a.mean():.3f} / {b.mean():.3f}"
        tails = f"{tail(a, was)} / {tail(b, was)}"
        print(f"| {cell} | {n} | {medians} | {means} | {tails} | {lower} / {higher} | {p:.1g} |")


def main() -> None:
    """Measure, or compare two measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sipu")
    parser.add_argument("--evolution", action="store_true", help="Private Evolution instead of DPKMeans")
    parser.add_argument("--beside", type=Path, nargs=2)
    parser.add_argument("cells", nargs="*", help="set:epsilon; none for all")
    asked = parser.parse_args()
    if asked.beside:
        return beside(*asked.beside)
    sets, found = MADE | (from_file(asked.sipu) if asked.sipu else {}), {}
    every = [f"{name}:{epsilon:g}" for name, (_, epsilons) in sets.items() for epsilon in epsilons]
    for cell in asked.cells or every:
        name, epsilon = cell.split(":")
        values = costs(sets[name][0], float(epsilon), asked.seeds, asked.evolution)
        found[cell], median = values.tolist(), float(np.median(values))
        far = f"{tail(values, median)}/{len(values)}"
        print(f"{cell:>20} median {median:.3f} mean {values.mean():.3f} far {far}")
    if asked.out:
        asked.out.write_text(json.dumps(found))
    return None


if __name__ == "__main__":
    main()
