"""Speed of FKM compared with the authors' calls of scikit-learn and with literal loops, in the same run.

Prints milliseconds and ratios; asserts nothing about time. `make bench` runs it.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans

from privfed.data import by_distance
from privfed.estimators.local_centers import FKM
from tests.reference import fkm_reference as oracle

pytestmark = [
    pytest.mark.benchmark,
    # A single step from given means is not meant to converge.
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]

K, MERGES = 16, 10


def clients_of(seed: int = 0) -> list[np.ndarray]:
    """Return the paper's regular data with beta = 1: five clients, 800 rows."""
    rng = np.random.default_rng(seed)
    grid = np.array([(x, y) for x in (-7.5, -2.5, 2.5, 7.5) for y in (-7.5, -2.5, 2.5, 7.5)])
    rows = np.repeat(grid, 50, axis=0) + rng.normal(size=(800, 2))
    return [rows[own] for own in by_distance(rows, rng.uniform(-10, 10, size=(5, 2)), 1.0, rng)]


def authors_fits(clients: list[np.ndarray]) -> None:
    """Make the authors' calls of scikit-learn: in each round three fits per client and one of the server.

    The first two fits of a client only create models that are overwritten with the global means, to compute
    a score and to find empty clusters.
    """

    def means(rows: np.ndarray, **words: Any) -> tuple[np.ndarray, np.ndarray]:
        fitted = KMeans(**words).fit(rows)
        sizes = np.bincount(fitted.labels_, minlength=len(fitted.cluster_centers_))
        return fitted.cluster_centers_[sizes > 1], sizes[sizes > 1]

    held = [means(rows, n_clusters=min(K, len(rows)), n_init=10, max_iter=1) for rows in clients]
    for _ in range(MERGES):
        together, sizes = (np.concatenate(part) for part in zip(*held, strict=True))
        centers = KMeans(K, n_init=10).fit(together, sample_weight=sizes).cluster_centers_
        held = []
        for rows in clients:
            for words in ({"max_iter": 1}, {}):
                fitted = KMeans(min(K, len(rows)), n_init=10, **words).fit(rows)
                fitted.cluster_centers_ = centers.copy()
                own = centers[np.unique(fitted.predict(rows))]
            held.append(means(rows, n_clusters=len(own), init=own, n_init=1, max_iter=1))


def test_ten_merges() -> None:
    clients = clients_of()
    start = np.concatenate(clients)[::50]
    words: dict[str, Any] = {"max_iter": MERGES - 1}
    runs: dict[str, Callable[[], Any]] = {
        "authors' calls of scikit-learn": lambda: authors_fits(clients),
        "literal loops, merges from the current means": lambda: oracle.fit(clients, start, MERGES),
        "FKM gathered, plain": lambda: FKM(K, merge="gathered", protocol="plain", **words).fit(clients),
        "FKM summed, plain": lambda: FKM(K, protocol="plain", **words).fit(clients),
        "FKM summed, masked": lambda: FKM(K, protocol="masked", **words).fit(clients),
    }
    wall: dict[str, list[float]] = {name: [] for name in runs}
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(7):
        for name, run in runs.items():
            began, busy = time.perf_counter(), time.process_time()
            run()
            spent[name].append(time.process_time() - busy)
            wall[name].append(time.perf_counter() - began)
    first = next(iter(runs))
    print(f"\n{'10 merges, 5 clients, 800 rows':46s} {'wall ms':>9s} {'x':>6s} {'CPU ms':>9s} {'x':>6s}")
    for name in runs:
        line = f"{name:46s}"
        for found in (wall, spent):
            taken = np.median(found[name])
            line += f" {1e3 * taken:9.0f} {np.median(found[first]) / taken:6.1f}"
        print(line)
