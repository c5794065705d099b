"""Whole rounds over plain sums, messages included, beside peers in the same run, and the memory of a fit.

CPU seconds of one thread; `make bench` runs it. It prints a table, writes it as JSON beside this file, and
asserts nothing about time. PRIVFED_BENCH_ROUNDS sets how many rounds a mean is of (by default 30; means fall
with more, as centroids settle).
"""

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.cluster._k_means_lloyd import lloyd_iter_chunked_dense
from sklearn.datasets import load_digits

from benchmarks.timing import compiled, seconds
from privfed import DWFKMeans
from privfed.federation.driver import Federation
from tests.reference import dwf_reference
from tests.reference.paper_data import partition, synthetic

pytestmark = pytest.mark.benchmark

KEPT = Path(__file__).with_name("kernel_speed.json")
ROUNDS = int(os.environ.get("PRIVFED_BENCH_ROUNDS", "30"))
RNG = np.random.default_rng(1)


@pytest.fixture(autouse=True)
def warm(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Time what is compiled, in one thread."""
    with compiled(monkeypatch):
        yield


def rounds_of(
    monkeypatch: pytest.MonkeyPatch, table: np.ndarray, groups: np.ndarray, k: int, steps: int, rounds: int
) -> list[float]:
    """Return the CPU seconds of each round of a fit: question, answers, messages and total."""
    taken: list[float] = []
    whole = Federation.ask

    def timed(self: Federation, ask: Any) -> Any:
        start = time.process_time()
        total = whole(self, ask)
        if ask.purpose == "round":
            taken.append(time.process_time() - start)
        return total

    monkeypatch.setattr(Federation, "ask", timed)
    words = {"local_iter": steps, "learning_rate": 0.01, "momentum": 0.8, "tol": 0.0, "max_iter": rounds}
    start = table[np.random.default_rng(0).choice(len(table), k, replace=False)]
    DWFKMeans(k, init=start, protocol="plain", random_state=0, **words).fit(table, groups=groups)
    return taken


def keep(name: str, taken: list[float], peer: float, what: str) -> None:
    """Print one line, and keep it."""
    first, mean = taken[0], float(np.mean(taken))
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    known[name] = {
        "peer": what,
        "peer_ms": round(1e3 * peer, 3),
        "rounds": len(taken),
        "first_ms": round(1e3 * first, 3),
        "mean_ms": round(1e3 * mean, 3),
        "last_ms": round(1e3 * taken[-1], 3),
        "first_ratio": round(first / peer, 3),
        "mean_ratio": round(mean / peer, 3),
        "processes_waiting": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }
    KEPT.write_text(json.dumps(known, indent=2) + "\n")
    print(
        f"\n{name}: first {1e3 * first:.1f} ms, mean of {len(taken)} {1e3 * mean:.1f} ms; {what} "
        f"{1e3 * peer:.1f} ms; ratios {first / peer:.2f} and {mean / peer:.2f}"
    )


def test_a_million_rows_beside_lloyds_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    k, n, d = 32, 1_000_000, 32
    table = RNG.normal(size=(k, d))[RNG.integers(0, k, n)] + RNG.normal(size=(n, d))
    start, weights = table[:k].copy(), np.ones(n)

    def iteration() -> None:
        work = np.zeros_like(start), np.zeros(k), np.zeros(n, dtype=np.int32), np.zeros(k)
        lloyd_iter_chunked_dense(table, weights, start, *work, 1)

    before = seconds(iteration, 3)
    taken = rounds_of(monkeypatch, table, np.repeat(np.arange(100), n // 100), k, 1, ROUNDS)
    keep("1e6 x 32, k=32, 100 clients", taken, (before + seconds(iteration, 3)) / 2, "Lloyd's iteration")


def test_pictures_beside_matrix_products(monkeypatch: pytest.MonkeyPatch) -> None:
    digits = np.kron(load_digits().data.reshape(-1, 8, 8), np.ones((4, 4)))[:, 2:30, 2:30].reshape(-1, 784)
    n, k = 60_000, 20
    table = digits[RNG.integers(0, len(digits), n)] + 0.5 * RNG.normal(size=(n, 784))
    start = table[:k].T.copy()

    def products() -> None:
        for _ in range(5):
            table @ start

    before = seconds(products, 3)
    taken = rounds_of(monkeypatch, table, np.repeat(np.arange(100), n // 100), k, 5, ROUNDS)
    keep("60,000 x 784, k=20, 5 steps", taken, (before + seconds(products, 3)) / 2, "five float64 products")


@pytest.mark.parametrize("kind", ["iid", "non-iid"])
def test_the_papers_synthetic_round_beside_a_literal_loop(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    rows, _ = synthetic()
    clients, _ = partition(rows, _, kind, 0)
    words = {"learning_rate": 0.01, "momentum": 0.8, "tol": 0.0}
    literal = seconds(lambda: dwf_reference.fit(clients, rows[:5], local_iter=5, max_iter=10, **words)) / 10
    owner = np.repeat(np.arange(len(clients)), [len(own) for own in clients])
    taken = rounds_of(monkeypatch, np.concatenate(clients), owner, 5, 5, max(ROUNDS, 100))
    keep(f"10,100 x 2, k=5, 5 steps, {kind}", taken, literal, "a literal loop's round")


@pytest.mark.parametrize("steps", [1, 5])
def test_ten_thousand_clients(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    n = 1_000_000
    table = RNG.normal(size=(n, 2)) + 3.0 * RNG.integers(0, 5, (n, 1))
    taken = rounds_of(monkeypatch, table, np.repeat(np.arange(10_000), 100), 5, steps, 10)
    keep(f"10,000 clients x 100 x 2, k=5, {steps} steps", taken, 1.0, "one second")


MEMORY = """
import numpy as np
from privfed import DWFKMeans
n, d, k = 1_000_000, 32, 32
table = np.random.default_rng(0).normal(size=(n, d))
{freeze}
def bytes_of(name):
    status = open("/proc/self/status").read()
    return 1024 * int(status.split(name + ":")[1].split()[0])
# A process begins with the peak of the one that started it: it is set back.
open("/proc/self/clear_refs", "w").write("5")
before = bytes_of("VmRSS")
model = DWFKMeans(k, init=table[:k], protocol="plain", max_iter=5, tol=0.0, random_state=0)
model.fit(table, groups=np.repeat(np.arange(100), n // 100))
print((bytes_of("VmHWM") - before) / table.nbytes + 1.0)
"""


@pytest.mark.parametrize("frozen", [False, True])
def test_memory_beside_the_data(frozen: bool) -> None:
    code = MEMORY.format(freeze="table.setflags(write=False)" if frozen else "")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    name = f"memory, 1e6 x 32, {'read-only' if frozen else 'writable'}"
    known[name] = {"peer": "the data, 256 MB", "ratio": round(float(found.stdout), 2)}
    KEPT.write_text(json.dumps(known, indent=2) + "\n")
    print(f"\n{name}: {float(found.stdout):.2f} times the data, at most, the data included")
