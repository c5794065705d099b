"""Processor time and bytes of masked sums, of two checkouts of privfed measured in turn, in one run.

    python benchmarks/masked_trees.py OLD NEW [--repeats 3] [--only round,large]

OLD and NEW are working trees, each with its own `.venv` (or `--python` names one interpreter for both). Each
figure is measured in a process of its own, the trees in turn, so that what else the machine does meets both
alike. It prints the least and the median processor seconds (user and system) of each figure, and asserts
nothing. What it measures:

    client N L      one client of N with L entries on a machine of its own: a whole sum, ms and kB
    lost N L        the server's ms where a tenth of the clients is lost, and without losses
    set-up N        one client's ms in all exchanges before the first sum
    round N         a simulated round of few entries, s, all clients and the server together
    rounds N R      a simulated fit of R rounds, s
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any

FIGURES: dict[str, list[str]] = {
    "client": ["client 100 15", "client 100 10000", "client 100 100000"],
    "lost": ["lost 100 100000"],
    "set-up": ["set-up 100"],
    "round": ["round 100"],
    "rounds": ["rounds 100 300"],
    "large": ["rounds 1000 20"],
}
DEFAULT = "client,lost,set-up,round"


def apart() -> None:
    """Let each client compute all by itself, as on a machine of its own."""
    masked, keys = (import_module(f"privfed.protocols.{one}") for one in ("masked.masked", "crypto.keys"))
    masked.InOneProcess = lambda: keys.APART  # type: ignore[attr-defined]


def fit_of(clients: int, entries: int) -> Any:
    """Return a masked fit driven by hand, that of the tree's own `test_masked_cost`."""
    cost: Any = import_module("test_masked_cost")
    np: Any = import_module("numpy")
    cost.CLIENTS, cost.ENTRIES, cost.LOST, cost.MEASURED = clients, entries, clients // 10, clients // 2
    cost.QUESTION = cost.Entries(ranges=cost.QUESTION.ranges, size=entries)
    cost.READY = cost.Statistics(x=np.random.default_rng(0).uniform(-10, 10, entries))
    return cost.Fit()


class Weighed:
    """A client's side that counts its bytes and its processor time by stage."""

    def __init__(self, side: Any) -> None:
        self.side, self.bytes, self.seconds = side, [0, 0], 0.0

    def initial(self) -> Any:
        """Return the state before the first request."""
        return self.side.initial()

    def step(self, state: Any, request: bytes, answerer: Any) -> Any:
        """Pass a request on."""
        start = time.process_time()
        state, reply = self.side.step(state, request, answerer)
        self.seconds += time.process_time() - start
        self.bytes = [self.bytes[0] + len(reply), self.bytes[1] + len(request)]
        return state, reply


def client(clients: int, entries: int) -> dict[str, float]:
    """Measure one client's sums, once several have passed."""
    apart()
    fit, taken = fit_of(clients, entries), []
    for _ in range(2):
        fit.sum()
    weighed = fit.sides[clients // 2] = Weighed(fit.sides[clients // 2])
    sums = 16 if entries < 50_000 else 8
    for _ in range(sums):
        fit.sum()
        taken.append(weighed.seconds)
        weighed.seconds = 0.0
    up, down = (size / sums for size in weighed.bytes)
    # The mean, since a sum that begins a block of key material costs more than the others.
    return {"ms": 1e3 * statistics.fmean(taken), "kB up": up / 1e3, "kB down": down / 1e3}


def lost(clients: int, entries: int) -> dict[str, float]:
    """Measure the server's part, without losses and with a tenth lost."""
    fit, found = fit_of(clients, entries), defaultdict[str, list[float]](list)
    fit.sum()
    for _ in range(3):
        fit.sum()
        found["server ms"].append(1e3 * fit.server)
        fit.sum(range(clients // 10))
        found["server ms, a tenth lost"].append(1e3 * fit.server)
    return {name: statistics.median(one) for name, one in found.items()}


def set_up(clients: int) -> dict[str, float]:
    """Measure one client's part in a set-up: all until its first sum is open, less what a later sum takes."""
    apart()
    cost: Any = import_module("test_masked_cost")
    whole, weighed = cost.Masked.parties, []

    def parties(self: Any, *given: Any) -> Any:
        session, sides = whole(self, *given)
        weighed.append(Weighed(sides[clients // 2]))
        return session, {**sides, clients // 2: weighed[0]}

    cost.Masked.parties = parties
    fit = fit_of(clients, 15)
    fit.sum()
    first, size = weighed[0].seconds, weighed[0].bytes
    later = []
    for _ in range(8):
        weighed[0].seconds = 0.0
        fit.sum()
        later.append(weighed[0].seconds)
    return {"ms": 1e3 * (first - statistics.median(later)), "kB": sum(size) / 1e3}


def rounds(clients: int, count: int) -> dict[str, float]:
    """Measure a simulated fit of a number of rounds over masked sums of few entries."""
    np, privfed = import_module("numpy"), import_module("privfed")
    rng = np.random.default_rng(0)
    centers = rng.uniform(-1, 1, (5, 2))
    rows = np.clip(centers[rng.integers(0, 5, 20 * clients)] + rng.normal(0, 0.3, (20 * clients, 2)), -1, 1)
    words = {"learning_rate": 0.01, "tol": 0.0, "max_iter": count, "domain": privfed.Box(-1, 1)}
    model = privfed.DWFKMeans(5, init=0.9 * centers, protocol="masked", **words)
    start = time.process_time()
    model.fit(rows, groups=np.repeat(np.arange(clients), 20))
    return {"s": time.process_time() - start}


def one_round(clients: int) -> dict[str, float]:
    """Measure a simulated round: what sixteen more cost."""
    few, many = (rounds(clients, count)["s"] for count in (3, 19))
    return {"s": (many - few) / 16}


KINDS = {"client": client, "lost": lost, "set-up": set_up, "round": one_round, "rounds": rounds}


def measure(tree: str, figure: str) -> None:
    """Measure one figure of one tree in this process, and print it."""
    sys.path[:0] = [tree, str(Path(tree) / "benchmarks")]
    # The folder `protocols` stands beside the package that it is part of.
    import_module("privfed").__path__.append(tree)
    warnings.simplefilter("ignore")
    limits: Any = import_module("threadpoolctl")
    kind, *numbers = figure.split()
    with limits.threadpool_limits(1):
        print(json.dumps(KINDS[kind](*map(int, numbers))))


def main() -> None:
    """Measure both trees in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", nargs="+", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default=DEFAULT, help=f"of {', '.join(FIGURES)}")
    parser.add_argument("--python", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        measure(str(asked.trees[0].resolve()), asked.measure)
        return
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
    environment = {**os.environ, **one_thread}
    for figure in [one for kind in asked.only.split(",") for one in FIGURES[kind]]:
        found: dict[tuple[str, str], list[float]] = defaultdict(list)
        for _ in range(asked.repeats):
            for tree in asked.trees:
                python = asked.python or tree / ".venv" / "bin" / "python"
                command = [str(python), __file__, str(tree), "--measure", figure]
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
                for name, value in json.loads(done.stdout.splitlines()[-1]).items():
                    found[name, tree.name].append(value)
        for (name, tree), values in sorted(found.items()):
            least, median = min(values), statistics.median(values)
            print(f"{figure:20}{name:26}{tree:12}{least:10.3f}{median:10.3f}", flush=True)


if __name__ == "__main__":
    main()
