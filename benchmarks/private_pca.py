"""How much variance private principal components have: `FederatedPCA(privacy=)`, a plain sum and diffprivlib.

    python -m benchmarks.private_pca [--seeds 10] [--epsilon 1]

Each cell is the median over the seeds of the variance along the components, as a share of the most that as
many components have, with the least and the largest. "whole domain" is Analyze Gauss by numpy: rows as they
are, a product sum with the classical Gaussian mechanism for half the diagonal of the domain, and the exact
mean for nothing. diffprivlib (pure epsilon, `bounds` and `data_norm` of the same domain) needs an older
scikit-learn: with DIFFPRIVLIB_PYTHON, the Python of an environment that has it, it stands beside where its
fits end within `SECONDS`; of 20,000 rows they took more than twenty minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from privfed import Box, FederatedPCA, Privacy

DELTA, SECONDS = 1e-6, 20
OTHER = """
import sys, warnings
import numpy as np
from diffprivlib.models import PCA
warnings.simplefilter("ignore")
data, out, k, epsilon, seeds = np.load(sys.argv[1]), sys.argv[2], *map(float, sys.argv[3:])
rows, low, high = data["rows"], data["low"], data["high"]
middle = (low + high) / 2
fits = [PCA(int(k), epsilon=epsilon, bounds=(low - middle, high - middle), centered=False,
            data_norm=float(np.linalg.norm(high - low) / 2), random_state=i).fit(rows - middle).components_
        for i in range(int(seeds))]
np.save(out, np.array(fits))
"""


def sets() -> Iterator[tuple[str, np.ndarray, int]]:
    """Yield a name, rows, and a number of components."""
    rng = np.random.default_rng(0)
    for n, d, k in ((2000, 10, 2), (20000, 10, 2), (20000, 30, 3)):
        axes = rng.normal(size=(k, d))
        yield f"drawn, {n:,} x {d}", rng.normal(size=(n, k)) @ axes + 0.3 * rng.normal(size=(n, d)), k
    digits = load_digits().data
    yield "digits, 1,797 x 61", digits[:, digits.std(axis=0) > 0.0], 5
    breast = load_breast_cancer().data
    yield "breast cancer, 569 x 30", (breast - breast.mean(axis=0)) / breast.std(axis=0), 3


def captured(components: np.ndarray, rows: np.ndarray) -> float:
    """Return the variance along components, as a share of the most that as many have."""
    axes, covariance = np.linalg.qr(components.T)[0], np.cov(rows.T)
    return float(
        np.trace(axes.T @ covariance @ axes) / np.linalg.eigvalsh(covariance)[-len(components) :].sum()
    )


def whole(rows: np.ndarray, box: Box, k: int, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Return components of a noised product sum over the whole domain; its mean costs nothing."""
    (low, high), d = box.bounds(rows.shape[1]), rows.shape[1]
    away, reach = rows - (low + high) / 2, float(np.square(high - low).sum() / 4)
    noise = np.triu(rng.normal(0, reach * np.sqrt(2 * np.log(1.25 / DELTA)) / epsilon, (d, d)))
    products = (away.T @ away + noise + np.triu(noise, 1).T) / len(rows)
    return np.linalg.eigh(products - np.outer(away.mean(axis=0), away.mean(axis=0)))[1][:, ::-1].T[:k]


def others(rows: np.ndarray, box: Box, k: int, epsilon: float, seeds: int) -> np.ndarray | None:
    """Return diffprivlib's components, one fit a seed; None where no environment has it."""
    python = os.environ.get("DIFFPRIVLIB_PYTHON")
    if python is None:
        return None
    low, high = box.bounds(rows.shape[1])
    with tempfile.TemporaryDirectory() as name:
        there, out = Path(name) / "data.npz", Path(name) / "found.npy"
        np.savez(there, rows=rows, low=low, high=high)
        try:
            call = [python, "-c", OTHER, there, out, str(k), str(epsilon), str(seeds)]
            subprocess.run(call, check=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return None
        return np.asarray(np.load(out))


def main() -> None:
    """Print a line for each set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epsilon", type=float, default=1.0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, rows, k in sets():
        wider = 0.05 * np.ptp(rows, axis=0)
        box = Box(rows.min(axis=0) - wider, rows.max(axis=0) + wider)
        claim = Privacy(
            epsilon=given.epsilon, delta=DELTA, unit="record", neighbours="add-remove", domain=box
        )
        clients, rng = np.array_split(rows, 4), np.random.default_rng(1)
        found = {
            "ours": [FederatedPCA(k, privacy=claim).fit(clients).components_ for _ in range(given.seeds)],
            "whole domain": [whole(rows, box, k, given.epsilon, rng) for _ in range(given.seeds)],
            "diffprivlib": others(rows, box, k, given.epsilon, given.seeds),
        }
        cells = {
            one: np.array([captured(components, rows) for components in fits])
            for one, fits in found.items()
            if fits is not None
        }
        print(
            name,
            *(f"{one} {np.median(c):.3f} ({c.min():.3f} to {c.max():.3f})" for one, c in cells.items()),
            sep=" | ",
        )


if __name__ == "__main__":
    main()
