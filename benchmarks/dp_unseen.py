"""Cost of DPKMeans on ten made sets that nothing was chosen on, beside baselines.

    python -m benchmarks.dp_unseen --out one.json rings    # one set; without names all
    python -m benchmarks.dp_unseen --table one.json two.json

The sets were written after the algorithm was fixed, and are one draw each. Baselines are this package's own
forms of them. A baseline is behind or ahead by the signed-rank test over paired seeds; Holm's correction is
over all comparisons of a table. benchmarks/data/private_fits.csv has the table.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import wilcoxon

from benchmarks.dp_sets import Made, fitted
from benchmarks.private_baselines import LloydBaseline, PrivateEvolution
from benchmarks.utility import cost, scaled
from privfed.algorithms.private.kmeans import PrivateKMeans

FIRST_SEED, LEVEL = 9_000, 0.05


def _clusters(rng: np.random.Generator, n: int, d: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    return rng.uniform(-0.8, 0.8, (k, d)), rng.integers(k, size=n)


def heavy_tails(rng: np.random.Generator) -> Made:
    centers, own = _clusters(rng, 8000, 3, 6)
    return np.clip(centers[own] + 0.06 * rng.standard_t(2, (8000, 3)), -1, 1), 6


def ellipses(rng: np.random.Generator) -> Made:
    centers, own = _clusters(rng, 6000, 2, 5)
    axes = 0.12 * rng.standard_normal((5, 2, 2))
    return np.clip(
        centers[own] + np.einsum("nij,nj->ni", axes[own], rng.standard_normal((6000, 2))), -1, 1
    ), 5


def rings(rng: np.random.Generator) -> Made:
    angles, radii = rng.uniform(0, 2 * np.pi, 5000), rng.choice([0.3, 0.8], 5000)
    rows = (radii + 0.03 * rng.standard_normal(5000)) * np.array([np.cos(angles), np.sin(angles)])
    return np.clip(rows.T, -1, 1), 8


def incomes(rng: np.random.Generator) -> Made:
    return scaled(rng.lognormal(0.0, 0.8, (12_000, 4)) * rng.choice([1.0, 3.0], (12_000, 1))), 5


def answers(rng: np.random.Generator) -> Made:
    kinds = rng.uniform(0.05, 0.95, (6, 20))
    return 2.0 * (rng.random((9000, 20)) < kinds[rng.integers(6, size=9000)]) - 1.0, 6


def counts(rng: np.random.Generator) -> Made:
    rates = rng.gamma(1.0, 4.0, (7, 10))
    return scaled(rng.poisson(rates[rng.integers(7, size=7000)]).astype(np.float64)), 7


def densities(rng: np.random.Generator) -> Made:
    centers, own = _clusters(rng, 10_000, 2, 10)
    spreads = np.geomspace(0.01, 0.2, 10)
    return np.clip(centers[own] + spreads[own, None] * rng.standard_normal((10_000, 2)), -1, 1), 10


def few_rows(rng: np.random.Generator) -> Made:
    centers, own = _clusters(rng, 600, 6, 3)
    return np.clip(centers[own] + 0.15 * rng.standard_normal((600, 6)), -1, 1), 3


def many_clusters(rng: np.random.Generator) -> Made:
    centers, own = _clusters(rng, 30_000, 3, 30)
    return np.clip(centers[own] + 0.05 * rng.standard_normal((30_000, 3)), -1, 1), 30


def subspace(rng: np.random.Generator) -> Made:
    centers, own = _clusters(rng, 8000, 4, 6)
    low = centers[own] + 0.1 * rng.standard_normal((8000, 4))
    return scaled(low @ rng.standard_normal((4, 40)) + 0.1 * rng.standard_normal((8000, 40))), 6


SETS: dict[str, Callable[[np.random.Generator], Made]] = {
    one.__name__: one
    for one in (
        heavy_tails,
        ellipses,
        rings,
        incomes,
        answers,
        counts,
        densities,
        few_rows,
        many_clusters,
        subspace,
    )
}

METHODS: dict[str, Callable[[int, int], Any]] = {
    "ours": lambda k, seed: PrivateKMeans(n_clusters=k, seed=seed),
    "PE": lambda k, seed: PrivateEvolution(n_clusters=k, seed=seed),
    "FastLloyd": lambda k, seed: LloydBaseline(n_clusters=k, method="fastlloyd", seed=seed),
    "DP-Lloyd": lambda k, seed: LloydBaseline(n_clusters=k, method="lloyd", seed=seed),
}


def measured(name: str, epsilon: float, seeds: int) -> dict[str, list[float]]:
    """Return the costs of all methods, one a seed."""
    rows, k = SETS[name](np.random.default_rng([20_261_124, list(SETS).index(name)]))
    every = range(FIRST_SEED, FIRST_SEED + seeds)
    return {
        method: [cost(rows, k, fitted(make(k, seed), rows, epsilon, seed)) for seed in every]
        for method, make in METHODS.items()
    }


def table(found: dict[str, dict[str, list[float]]]) -> None:
    """Print means with standard errors, and who is significantly behind or ahead of ours."""
    others = [one for one in METHODS if one != "ours"]
    pairs = [(cell, other) for cell in found for other in others]
    p = np.array([wilcoxon(found[cell]["ours"], found[cell][other]).pvalue for cell, other in pairs])
    order = np.argsort(p)
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    lost = []
    print("| set | " + " | ".join(METHODS) + " |\n|---|" + "---|" * len(METHODS))
    for cell, costs in found.items():
        shown = []
        for values in costs.values():
            error = np.std(values, ddof=1) / np.sqrt(len(values))
            shown.append(f"{np.mean(values):.3f}+-{error:.3f} ({np.median(values):.3f})")
        print(f"| {cell} | " + " | ".join(shown) + " |")
    for (cell, other), value in zip(pairs, corrected, strict=True):
        ahead = np.median(np.array(found[cell][other]) - np.array(found[cell]["ours"])) < 0.0
        if value < LEVEL:
            lost += [f"{cell} to {other} (p {value:.1g})"] if ahead else []
    won = int((corrected < LEVEL).sum()) - len(lost)
    print(f"of {len(pairs)} comparisons {won} won, lost: {', '.join(lost) or 'none'}")


def main() -> None:
    """Measure sets into a file, or print the table of files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    parser.add_argument("sets", nargs="*", help="none for all")
    asked = parser.parse_args()
    if asked.table:
        return table(
            {cell: costs for path in asked.table for cell, costs in json.loads(path.read_text()).items()}
        )
    cells = [(name, epsilon) for name in asked.sets or SETS for epsilon in (0.5, 1.0)]
    found = {f"{name} at {epsilon:g}": measured(name, epsilon, asked.seeds) for name, epsilon in cells}
    table(found)
    if asked.out:
        asked.out.write_text(json.dumps(found))
    return None


if __name__ == "__main__":
    main()
