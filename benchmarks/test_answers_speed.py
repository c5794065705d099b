"""What questions other than a round of k-means cost 100 simulated clients, beside peers in the same run.

CPU milliseconds of one thread for all clients' answers, without messages, the kernel compiled. `make bench`
runs it. It prints a table, writes it as JSON beside this file, and asserts nothing about time.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.cluster._k_means_lloyd import lloyd_iter_chunked_dense

from benchmarks.timing import compiled, seconds
from privfed.algorithms.fkm import SteppedMeans
from privfed.algorithms.fuzzy import FuzzySums, WeightedFuzzyCentroids
from privfed.algorithms.kfed import LocalCentroids
from privfed.core.asking.data import Stacked
from privfed.core.asking.question import ClientData
from privfed.core.values.domain import Ranges
from privfed.numerics.kernels.dispatch import step
from privfed.numerics.kmeans import seeds
from privfed.questions.cluster_spread import ClusterDistances, ClusterScatter, ClusterSilhouettes
from privfed.questions.fuzzy_spread import FuzzyObjective, FuzzySpread
from privfed.questions.lloyd import Inertia

pytestmark = pytest.mark.benchmark

KEPT = Path(__file__).with_name("answers_speed.json")


@pytest.fixture(autouse=True)
def warm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Time what is compiled, in one thread."""
    with compiled(monkeypatch):
        yield


def milliseconds(work: Callable[[], Any], repeats: int = 5) -> float:
    """Return the median CPU milliseconds of several runs."""
    return 1e3 * seconds(work, repeats)


def keep(peer: str, beside: Callable[[], Any], works: dict[str, Callable[[], Any]], repeats: int = 5) -> None:
    """Time works in turn with their peer, print one line each, and keep it."""
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    print()
    for name, work in works.items():
        before = milliseconds(beside, repeats)
        ours = milliseconds(work, repeats)
        other = (before + milliseconds(beside, repeats)) / 2
        line = {"ours_ms": round(ours, 3), "peer": peer, "peer_ms": round(other, 3)}
        waiting = round(os.getloadavg()[0], 1)
        known[name] = {**line, "ratio": round(ours / other, 3), "processes_waiting": waiting}
        print(f"{name:44s} {ours:9.2f} ms; {peer} {other:9.2f} ms; ratio {ours / other:.2f}")
    KEPT.write_text(json.dumps(known, indent=2) + "\n")


def blobs(n: int, d: int, k: int) -> np.ndarray:
    """Return rows around k centers."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(k, d))[rng.integers(0, k, n)] + rng.normal(size=(n, d))


def asked(table: np.ndarray, clients: int = 100) -> Callable[..., Callable[[], Any]]:
    """Return how the clients that share a table are asked a question."""
    held = [ClientData(part) for part in np.array_split(table, clients)]
    words = {"ranges": Ranges(table.min(axis=0), table.max(axis=0), len(table))}

    def ask(kind: Any, **more: Any) -> Callable[[], Any]:
        question, none = kind(**words, **more), [np.random.default_rng(0)] * clients
        return lambda: question.answer_all(held, none)

    return ask


def test_a_million_rows() -> None:
    n, d, k = 1_000_000, 32, 32
    table = blobs(n, d, k)
    start, weights, ask = table[:k].copy(), np.ones(n), asked(table)

    def iteration() -> None:
        work = np.zeros_like(start), np.zeros(k), np.zeros(n, dtype=np.int32), np.zeros(k)
        lloyd_iter_chunked_dense(table, weights, start, *work, 1)

    stepped = SteppedMeans(centers=start, min_cluster_size=2)
    parts = [ClientData(part) for part in np.array_split(table, 100)]
    works = {
        kind.__name__: ask(kind, centers=start) for kind in (Inertia, ClusterDistances, ClusterSilhouettes)
    }
    works["ClusterScatter"] = ask(ClusterScatter, centers=start)
    works["FKM's local fits"] = lambda: [stepped.make(one) for one in parts]
    keep("an iteration of scikit-learn's Lloyd", iteration, works)

    def drawn() -> Any:
        return seeds(table, weights, k, np.random.default_rng(0))

    keep("kmeans_plusplus", lambda: kmeans_plusplus(table, k, random_state=0), {"k-means++ seeds": drawn}, 1)


@pytest.mark.parametrize(("d", "k"), [(2, 5), (2, 50), (8, 20)])
def test_lloyds_sums_of_few_columns(d: int, k: int) -> None:
    table = blobs(1_000_000, d, k)
    start, weights = table[:k].copy(), np.ones(len(table))
    held = Stacked.of(np.array_split(table, 100))

    def iteration() -> None:
        work = np.zeros_like(start), np.zeros(k), np.zeros(len(table), dtype=np.int32), np.zeros(k)
        lloyd_iter_chunked_dense(table, weights, start, *work, 1)

    def first() -> Any:
        held.stack.cache.clear()
        return step(held, start[None])

    keep("an iteration of scikit-learn's Lloyd", iteration, {f"a first step, 1e6 x {d}, k={k}": first})


@pytest.mark.parametrize("m", [2.0, 1.5])
def test_fuzzy_c_means(m: float) -> None:
    table = blobs(100_000, 16, 10)
    centers, ask = table[:10] + 0.1, asked(table)

    def numpys() -> tuple[np.ndarray, np.ndarray]:
        squares = (table**2).sum(axis=1)[:, None] - 2.0 * table @ centers.T + (centers**2).sum(axis=1)
        shares = squares ** (-1.0 / (m - 1.0))
        shares /= shares.sum(axis=1, keepdims=True)
        powers = shares**m
        return powers.sum(axis=0), powers.T @ table

    local = {"m": m, "local_iter": 5, "local_tol": None}
    works = {
        f"fuzzy c-means, a step, m={m}": ask(FuzzySums, centers=centers, m=m),
        f"fuzzy c-means, five local steps, m={m}": ask(WeightedFuzzyCentroids, centers=centers, **local),
        f"fuzzy objective, m={m}": ask(FuzzyObjective, centers=centers, m=m),
        f"fuzzy Davies-Bouldin, m={m}": ask(FuzzySpread, centers=centers, m=m),
    }
    keep("a step in five lines of NumPy", numpys, works)


@pytest.mark.parametrize(("local", "starts"), [("awasthi-sheffet", 1), ("kmeans", 10)])
def test_a_clients_fit_in_kfed(local: str, starts: int) -> None:
    client = ClientData(blobs(10_000, 32, 10) * 3.0)
    question = LocalCentroids(n_clusters=10, local=local, min_cluster_size=1, seed=0)

    def fitted() -> Any:
        return KMeans(10, n_init=starts, tol=0.0, random_state=0).fit(client.features)

    keep(f"KMeans, n_init={starts}", fitted, {f"k-FED's fit, {local}": lambda: question.make(client)})
