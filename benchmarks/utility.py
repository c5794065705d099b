"""Data sets, claims and costs for the benchmarks of utility under differential privacy."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

from privfed import Box, DPKMeans, Privacy
from privfed.core.agreed.configuration import Terms
from privfed.numerics.kernels.interpreted import squared_distances
from privfed.protocols import Plain

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 10.0)


def blobs() -> tuple[np.ndarray, int]:
    rng = np.random.default_rng(7)
    centers = np.array([(-0.6, -0.6), (0.6, -0.55), (0.0, 0.05), (-0.55, 0.6), (0.6, 0.6)])
    own = rng.integers(0, 5, 10_000)
    return np.clip(centers[own] + 0.2 * rng.standard_normal((10_000, 2)), -1, 1), 5


def digits() -> tuple[np.ndarray, int]:
    return load_digits().data / 8 - 1, 10


def g2() -> tuple[np.ndarray, int]:
    rng = np.random.default_rng(11)
    halves = [mean + 40 * rng.standard_normal((1024, 16)) for mean in (500, 600)]
    return scaled(np.vstack(halves)), 2


def big() -> tuple[np.ndarray, int]:
    rng = np.random.default_rng(13)
    centers, weights = rng.uniform(-0.8, 0.8, (16, 8)), rng.dirichlet(np.full(16, 5.0))
    own = rng.choice(16, 100_000, p=weights)
    return np.clip(centers[own] + 0.15 * rng.standard_normal((100_000, 8)), -1, 1), 16


def scaled(rows: np.ndarray) -> np.ndarray:
    low, high = rows.min(axis=0), rows.max(axis=0)
    result: np.ndarray = 2 * (rows - low) / np.where(high > low, high - low, 1.0) - 1
    return result


FOUR = {"blobs": blobs, "digits": digits, "g2": g2, "big": big}


class CountedOn(Plain):
    """Sums in clear whose noise is shared by `honest` clients, as in a masked sum.

    Totals are those of `Masked(honest=...)`, bit for bit (`test_dp_masked.py`), in a thirtieth of its time.
    """

    def __init__(self, honest: int) -> None:
        super().__init__()
        self.honest = honest

    def terms(self, clients: int, smallest_cohort: int, max_sums: int) -> Terms:
        return msgspec.structs.replace(super().terms(clients, smallest_cohort, max_sums), honest=self.honest)


@lru_cache(maxsize=8)
def _exact(rows: bytes, shape: tuple[int, int], k: int) -> float:
    table = np.frombuffer(rows).reshape(shape)
    return float(KMeans(k, n_init=20, random_state=0).fit(table).inertia_)


def inertia(rows: np.ndarray, centers: np.ndarray) -> float:
    parts = np.array_split(rows, max(1, len(rows) // 20_000))
    return float(sum(squared_distances(part, centers).min(axis=1).sum() for part in parts))


def cost(rows: np.ndarray, k: int, centers: np.ndarray) -> float:
    """Return the inertia of centers divided by that of scikit-learn's best of 20 runs."""
    return inertia(rows, centers) / _exact(rows.tobytes(), rows.shape, k)


def small_delta(rows: np.ndarray) -> float:
    return float(1 / (len(rows) * np.log(len(rows))))


def claim(epsilon: float, delta: float, seed: int, unit: str = "record") -> Privacy:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # delta = 1 / (n ln n), as in the published figures
        return Privacy(
            epsilon=epsilon,
            delta=delta,
            unit=unit,  # type: ignore[arg-type]
            domain=Box(-1, 1),
            neighbours="add-remove",
            noise_seed=seed,
        )


def costs(
    name: str,
    epsilon: float,
    seeds: int,
    *,
    parts: Sequence[np.ndarray] | None = None,
    model: Any = None,
    delta: float | None = None,
    unit: str = "record",
) -> np.ndarray:
    """Return the costs of fits on one of the sets, one for each seed.

    Args:
        name: name of the set.
        epsilon: epsilon of the claim.
        seeds: number of seeds.
        parts: the clients' rows; None for one client.
        model: an estimator, whose parameters are used except `privacy` and `random_state`; None for DPKMeans.
        delta: delta of the claim; None for 1 / (n ln n).
        unit: unit of the claim.
    """
    rows, k = FOUR[name]()
    model = DPKMeans(protocol="plain") if model is None else model
    found = []
    for seed in range(seeds):
        privacy = claim(epsilon, small_delta(rows) if delta is None else delta, seed, unit)
        model.set_params(n_clusters=k, privacy=privacy, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(cost(rows, k, model.fit([rows] if parts is None else parts).cluster_centers_))
    return np.array(found)


def dealt(rows: np.ndarray, clients: int) -> list[np.ndarray]:
    """Return the rows, dealt to clients at random."""
    return np.array_split(rows[np.random.default_rng(1).permutation(len(rows))], clients)


def shown(values: np.ndarray) -> str:
    """Return mean and standard error as text."""
    return f"{values.mean():.3f}+-{values.std(ddof=1) / np.sqrt(len(values)):.3f}"
