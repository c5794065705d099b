"""How many functions of ours three ways pass: what a stranger would have to read to follow them.

- The second round of a masked fit with five simulated clients, from the round's question to the next one's.
  The first round is left out, since it fills caches.
- A fit under differential privacy: `DPKMeans` over masked sums.
- The command `privfed fit` on a small table.

Each named function that is called is noted by its file and name; comprehensions and lambdas are not. Each way
runs in a process of its own, since caches shorten the second one.

    python -m benchmarks.ways [--list]

prints the number of functions and of files of each way. On 2026-11-28, at version 0.4.0, they were 269 in
44, 851 in 95, and 1,045 in 110.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import CodeType, FrameType

import numpy as np

from privfed import Box, DPKMeans, DWFKMeans, Privacy
from privfed.core.roles.conversation import ROUND
from privfed.federation.driver import Federation

ROOT = Path(__file__).resolve().parents[1]
OURS = tuple(ROOT / name for name in ("privfed", "protocols", "attacks"))

Found = set[tuple[Path, str]]


class Way:
    """Notes the code that runs: all of it, or that of the second round of a fit."""

    def __init__(self, *, second_round: bool) -> None:
        self.codes: set[CodeType] = set()
        self._round, self._rounds = second_round, 0

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call; a profile function of `sys.setprofile`."""
        if event == "call":
            code = frame.f_code
            if code is Federation.ask.__code__ and frame.f_locals["ask"].purpose == ROUND:
                self._rounds += 1
            if not self._round or self._rounds == 2:
                self.codes.add(code)

    def functions(self) -> Found:
        """Return the file, below the root, and the qualified name of each named function of ours."""
        found = ((Path(code.co_filename).resolve(), code.co_qualname) for code in self.codes)
        return {
            (file.relative_to(ROOT), name)
            for file, name in found
            if any(top in file.parents for top in OURS) and not name.split(".")[-1].startswith("<")
        }


def passed(work: Callable[[], object], *, second_round: bool = False) -> Found:
    """Return the functions that some work passes."""
    seen = Way(second_round=second_round)
    sys.setprofile(seen.note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen.functions()


def clients() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(40, 3)) for _ in range(5)]


def masked_round() -> Found:
    model = DWFKMeans(3, n_init=1, max_iter=4, tol=0.0, protocol="masked")
    return passed(lambda: model.fit(clients()), second_round=True)


def private_fit() -> Found:
    privacy = Privacy(epsilon=1.0, delta=1e-6, unit="record", domain=Box(-5, 5), neighbours="add-remove")
    return passed(lambda: DPKMeans(3, privacy=privacy).fit(clients()))


def command() -> Found:
    from privfed.cli.main import main as program

    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "t.csv"
        rows = [f"h{i},{a:.3f},{b:.3f},{c:.3f}" for i, own in enumerate(clients()) for a, b, c in own]
        table.write_text("\n".join(["hospital,a,b,c", *rows]), encoding="utf-8")
        words = ["fit", str(table), "--group", "hospital", "-k", "3", "--scale", "standard", "--profile"]
        words += ["--quiet", "--out", str(Path(folder) / "run")]
        return passed(lambda: program.main(words, standalone_mode=False))


WAYS = {"masked round": masked_round, "private fit": private_fit, "privfed fit": command}


def sorted_functions(name: str) -> list[tuple[Path, str]]:
    warnings.simplefilter("ignore")
    return sorted(WAYS[name]())


def main() -> None:
    """Print the figures."""
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--list", action="store_true", help="print every function")
    options = reading.parse_args()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as process:
        ways = dict(zip(WAYS, process.map(sorted_functions, WAYS), strict=True))
    for name, found in ways.items():
        print(f"{name}: {len(found):,} functions in {len({file for file, _ in found})} files")
        if options.list:
            for file, function in found:
                print(f"  {file} {function}")


if __name__ == "__main__":
    main()
