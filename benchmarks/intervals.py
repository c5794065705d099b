"""How often intervals of private metrics cover, and how wide they are: `python -m benchmarks.intervals`.

Exact totals of a set get normal noise with the standard deviations of a real question, over and over. An
interval is compared with the metric of the exact total; its width with that in which 95 of 100 values lie.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_blobs

from privfed import Box, Privacy, metrics
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import question_of
from privfed.errors import PrivFedError
from privfed.federation.opening import federation_over
from privfed.metrics.functions import scatters, worst_ratios
from privfed.metrics.intervals import _ends
from privfed.metrics.named import METRICS, OF_LABELS, following
from privfed.questions.lloyd import agreement

SEEDS, SCORES = 200, [one for one in OF_LABELS if one in METRICS]
Table = tuple[np.ndarray, np.ndarray, int]


def in_box(rows: np.ndarray) -> np.ndarray:
    """Return rows whose columns fill [-1, 1]."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    scaled: np.ndarray = 2.0 * (rows - low) / np.where(high > low, high - low, 1.0) - 1.0
    return scaled


def tables() -> Iterator[tuple[str, Table]]:
    """Yield each set: its rows, their labels and the number of clusters."""
    for name, load in (("iris", load_iris), ("wine", load_wine), ("breast", load_breast_cancer)):
        rows, labels = load(return_X_y=True)
        yield name, (in_box(rows), labels, 1 + int(labels.max()))
    rows, labels = load_digits(return_X_y=True)
    left, _, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    yield "digits6", (in_box(left[:, :6]), labels, 10)
    for name, n, d, k, spread in (("apart", 1500, 2, 5, 0.6), ("overlapping", 3000, 3, 8, 2.5)):
        rows, labels = make_blobs(n, d, centers=k, cluster_std=spread, random_state=1)
        yield name, (in_box(rows), labels, k)
    rng = np.random.default_rng(0)
    corners = np.array([[-0.5, -0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 0.5]])
    labels = np.repeat(np.arange(4), 300)
    yield "square", ((corners[labels] + rng.normal(0, 0.12, (1200, 2))).clip(-1, 1), labels, 4)
    yield "uniform", (rng.uniform(-1, 1, (2000, 2)), rng.integers(0, 4, 2000), 4)


def value(metric: str, total: Statistics, centers: np.ndarray) -> float:
    """Return the metric of a total, whose negative entries count as 0."""
    total = Statistics(
        **{name: total[name] if name == "offset" else np.maximum(total[name], 0.0) for name in total}
    )
    if metric in SCORES:
        return float(getattr(agreement(total["table"]), metric))
    if metric == "davies_bouldin":
        return worst_ratios(total["distance"] / total["count"], centers, 2.0)
    between, within = scatters(total["count"], total["offset"], total["square"], centers)
    return between / within if within > 0 else 1.0


def cell(metric: str, table: Table, epsilon: float) -> str:
    """Return coverage, how many intervals have an end, and their median width, as a line of a table."""
    rows, labels, k = table
    centers = KMeans(k, n_init=5, random_state=0).fit(rows).cluster_centers_
    own: dict[str, Any] = {"n_labels": 1 + int(labels.max())} if metric in SCORES else {}
    asked = replace(following(k, {metric: own})[0], centers=centers)
    given = (np.array_split(rows, 3), np.array_split(labels, 3) if own else None)
    box = Box(-1.0, 1.0, max_rows=5000)
    privacy = Privacy(
        epsilon=epsilon, delta=1e-6, unit="record", neighbours="add-remove", domain=box, noise_seed=0
    )
    surroundings: dict[str, Any] = {"metric": asked, "protocol": "plain", "n_clusters": k}
    federation = federation_over(*given, privacy=privacy, **surroundings)
    with suppress(PrivFedError):  # Where noise hides the clusters: its deviations are asked for.
        getattr(metrics, metric)(federation, centers, **own)
    record, released = federation.transcript.totals()[-1]
    noised: Any = question_of(record)
    std = noised.noise_std(len(released.contributors))
    exactly = federation_over(*given, domain=box, **surroundings)
    getattr(metrics, metric)(exactly, centers, **own)
    total = exactly.transcript.totals()[-1][1].statistics
    true, rng, draw = value(metric, total, centers), np.random.default_rng(20261127), np.random.default_rng(0)
    covered, widths, values = 0, [], []
    for _ in range(SEEDS):
        noisy = Statistics(
            **{name: total[name] + std[name] * rng.standard_normal(total[name].shape) for name in total}
        )
        found = _ends(metric, noised, noisy, std, 0.95, draw)
        covered += isinstance(found, str) or found[0] <= true <= found[1]
        if not isinstance(found, str):
            values.append(value(metric, noisy, centers))
            widths.append(found[1] - found[0])
    ended = int(np.isfinite(widths).sum())
    ratio = float(np.median(widths) / (3.92 * np.std(values))) if ended > SEEDS / 2 else np.nan
    return f"{covered / SEEDS:.1%} | {ended} | {ratio:.2f}"


if __name__ == "__main__":
    for wanted in sys.argv[1:] or ["davies_bouldin", "calinski_harabasz"]:
        for name, known in tables():
            for epsilon in (0.5, 2.0):
                print(f"| {wanted} | {name} at {epsilon:g} | {cell(wanted, known, epsilon)} |", flush=True)
