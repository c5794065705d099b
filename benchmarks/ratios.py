"""CPU time of eleven figures beside the last release; fails where one takes 1.25 times as long.

    python -m benchmarks.ratios [NAME ...] [--write]

`benchmarks/data/release.txt` names the commit of the last release, which is checked out into build/release.
Each figure is the least CPU time of several runs in each of several processes, of which those of the release
and of this checkout take turns. A figure above the limit is measured again before it counts. `--write` writes
the table, with the day and the commit, into docs/measurements/performance.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RELEASE = (ROOT / "benchmarks" / "data" / "release.txt").read_text("utf-8").strip()
PAIRS, AGAIN, REPEATS = 2, 4, 3
PAGE = ROOT / "docs" / "measurements" / "performance.md"
COMMAND = "from privfed.cli.main import main; main()"
MARKS = ("<!-- ratios -->", "<!-- end of ratios -->")


def draws(n_clients: int, rows: int, d: int) -> list[Any]:
    """Return clients with rows of five clusters in [-1, 1]."""
    import numpy as np

    rng = np.random.default_rng(0)
    centers = rng.uniform(-0.7, 0.7, (5, d))
    of_rows = centers[rng.integers(5, size=(n_clients, rows))] + rng.normal(0.0, 0.05, (n_clients, rows, d))
    return list(np.clip(of_rows, -1.0, 1.0))


def rounds(n_clients: int, rows: int, d: int, k: int, protocol: Any = "plain") -> Callable[[], object]:
    """Return a fit of five rounds."""
    from privfed import DWFKMeans

    clients = draws(n_clients, rows, d)
    return lambda: DWFKMeans(k, local_iter=1, max_iter=5, tol=0.0, protocol=protocol, random_state=0).fit(
        clients
    )


def private() -> Callable[[], object]:
    """Return a fit of k-means with differential privacy."""
    from privfed import Box, DPKMeans, Privacy

    clients = draws(10, 5_000, 8)
    claim = Privacy(epsilon=1.0, delta=1e-6, domain=Box(-1.0, 1.0), unit="record", neighbours="add-remove")
    return lambda: DPKMeans(5, privacy=claim, protocol="plain", random_state=0).fit(clients)


def attack() -> Callable[[], object]:
    """Return an attack that looks for single rows in the totals of a fit."""
    import numpy as np

    from privfed import DWFKMeans, attacks

    model = DWFKMeans(20, protocol="masked", random_state=0).fit(draws(5, 200, 4))
    view, prior = model.transcript_.view("server"), attacks.Prior()
    return lambda: attacks.Differencing().run(view, prior, np.random.default_rng(0))


def command(*words: str) -> Callable[[], object]:
    """Return a run of the command line in a process of its own; {out} is a new folder."""

    def run() -> object:
        with tempfile.TemporaryDirectory() as folder:
            typed = [word.replace("{out}", f"{folder}/out") for word in words]
            return subprocess.run([sys.executable, *typed], capture_output=True, check=True)

    return run


def table() -> Callable[[], object]:
    """Return a fit of a table of 100,000 rows by command."""
    folder = Path(tempfile.mkdtemp())
    with open(folder / "t.csv", "w", encoding="utf-8") as file:
        file.write("site,a,b,c,d\n")
        for i, rows in enumerate(draws(10, 10_000, 4)):
            file.writelines(f"s{i},{','.join(f'{x:.4f}' for x in row)}\n" for row in rows)
    words = ("fit", f"{folder}/t.csv", "--group", "site", "-k", "5", "--protocol", "plain", "--out", "{out}")
    return command("-c", COMMAND, *words)


STUDY = """
name = "One cell"
seeds = 1
data = [{ source = "wine", standardise = true, low = -6.0, high = 6.0 }]
partition = [{ clients = 5 }]
algorithm = [{ name = "k-means", estimator = "DWFKMeans", n_clusters = 3 }]
sum = [{ protocol = "plain" }]
"""


def study() -> Callable[[], object]:
    """Return a study of one cell, with its report, by command."""
    file = Path(tempfile.mkdtemp()) / "study.toml"
    file.write_text(STUDY, "utf-8")
    return command("-c", COMMAND, "tradeoff", str(file), "--out", "{out}", "--jobs", "1", "--quiet")


MANY, LONG = (
    "five rounds, 60 clients, masked, set-up and server included",
    "five rounds, 10 clients, 10,000 entries, masked",
)
FIGURES: dict[str, Callable[[], Callable[[], object]]] = {
    "five rounds, 2,000 clients of 20 rows, plain": lambda: rounds(2_000, 20, 2, 5),
    "five rounds, 100 clients of 2,000 x 16, plain": lambda: rounds(100, 2_000, 16, 10),
    "five rounds, 10 clients of 5,000 x 128, plain": lambda: rounds(10, 5_000, 128, 10),
    MANY: lambda: rounds(60, 20, 4, 5, "masked"),
    LONG: lambda: rounds(10, 100, 1_000, 10, "masked"),
    "a private fit of 50,000 x 8": private,
    "privfed fit of 100,000 x 4, CSV": table,
    "import privfed and its first estimator": lambda: command("-c", "from privfed import DWFKMeans"),
    "privfed fit --help": lambda: command("-c", COMMAND, "fit", "--help"),
    "a study of one cell": study,
    "an attack on a masked fit of 1,000 x 4, k = 20": attack,
}
LIMITS = dict.fromkeys(FIGURES, 1.25) | {MANY: 1.5, LONG: 1.5}
"""Of masked sums since 0.4.0 clients sign what they send, for which a third more was allowed."""


def spent() -> float:
    """Return the CPU seconds of this process and of those that it started."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def measured(name: str) -> float:
    """Return the least CPU seconds of several runs in this process, after one that is not counted."""
    run, found = FIGURES[name](), []
    run()
    for _ in range(REPEATS):
        began = spent()
        run()
        found.append(spent() - began)
    return min(found)


def of_process(root: Path, name: str) -> float:
    """Return what a process measures with the code below a folder."""
    surroundings = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    words = (sys.executable, str(Path(__file__).resolve()), "--measure", name)
    said = subprocess.run(
        words, env=surroundings, cwd=root, capture_output=True, text=True, check=True
    ).stdout
    return float(said.split()[-1])


def release() -> Path:
    """Return the folder of the last release, checked out once."""
    folder = ROOT / "build" / "release" / RELEASE[:12]
    if not folder.exists():
        packed = subprocess.run(["git", "archive", RELEASE], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
    return folder


def ratio(name: str, pairs: int) -> tuple[float, float]:
    """Return the CPU seconds of the release, and of this checkout."""
    found = [[of_process(root, name) for root in (release(), ROOT)] for _ in range(pairs)]
    before, now = (min(side) for side in zip(*found, strict=True))
    return before, now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="figures; all by default")
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    typed = parser.parse_args()
    if typed.measure:
        print(measured(typed.measure))
        return
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    lines = [
        f"`python -m benchmarks.ratios`, {datetime.date.today():%d %B %Y}, commit {commit.strip()}: CPU "
        f"seconds beside those of {RELEASE[:8]}, the last release.\n",
        "| figure | release | now | ratio |\n|---|---|---|---|",
    ]
    slower = []
    for name in typed.names or FIGURES:
        before, now = ratio(name, PAIRS)
        if now > LIMITS[name] * before:
            more = ratio(name, AGAIN)
            before, now = min(before, more[0]), min(now, more[1])
        if now > LIMITS[name] * before:
            slower.append(name)
        lines.append(f"| {name} | {before:.3f} | {now:.3f} | {now / before:.2f} |")
        print(lines[-1], flush=True)
    if typed.write:
        first, rest = PAGE.read_text("utf-8").split(MARKS[0])
        PAGE.write_text(first + "\n".join([MARKS[0], *lines, MARKS[1]]) + rest.split(MARKS[1])[1], "utf-8")
    if slower:
        sys.exit(f"longer than allowed beside the last release: {'; '.join(slower)}")


if __name__ == "__main__":
    main()
