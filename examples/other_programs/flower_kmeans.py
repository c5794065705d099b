"""Reads and attacks k-means apps of Flower (run in 1.41) whose clients return sums or means, and counts.

Such an app is a `flwr.server.strategy.Strategy` of its own: `configure_fit` sends the centers as the first
array, and each client's `fit` returns two arrays, the sum (or the mean) of each cell's rows and their count.
`record` wraps these two methods of a strategy, so that the app itself stays as it is. Call it before the app
runs, then attack what the folder holds:

    python examples/other_programs/flower_kmeans.py recorded/ rows.npz

`rows.npz` has the rows of each client, in the order of the names that `view` shows, for scoring only.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from privfed import attacks
from privfed.core.record.records import View


def record(strategy: Any, folder: Path) -> None:
    """Have a strategy write the centers and the clients' arrays of each round into a folder."""
    from flwr.common import parameters_to_ndarrays

    folder.mkdir(parents=True, exist_ok=True)
    configure, aggregate, sent = strategy.configure_fit, strategy.aggregate_fit, {}

    def configured(*given: Any, **named: Any) -> Any:
        instructions = configure(*given, **named)
        for _, one in instructions:
            sent["centers"] = parameters_to_ndarrays(one.parameters)[0]
        return instructions

    def aggregated(server_round: int, results: Any, failures: Any) -> Any:
        found = dict(sent)
        for proxy, one in results:
            arrays = enumerate(parameters_to_ndarrays(one.parameters))
            found |= {f"{proxy.cid}/{i}": array for i, array in arrays}
        np.savez(folder / f"round-{server_round}.npz", **found)
        return aggregate(server_round, results, failures)

    strategy.configure_fit, strategy.aggregate_fit = configured, aggregated


def view(folder: Path, *, means: bool = False, first: int = 0, second: int = 1) -> View:
    """Return what the server saw, for any passive attack.

    Args:
        folder: what `record` wrote.
        means: whether clients return means in place of sums.
        first: which of the clients' arrays has the sums.
        second: which has the counts.
    """
    rounds = []
    for path in sorted(folder.glob("round-*.npz"), key=lambda path: int(path.stem.partition("-")[2])):
        with np.load(path) as arrays:
            rounds.append({name: np.asarray(arrays[name], dtype=np.float64) for name in arrays.files})
    names = sorted({name.rpartition("/")[0] for name in rounds[0]} - {""})
    counts = [np.stack([one[f"{cid}/{second}"] for cid in names]) for one in rounds]
    sums = [np.stack([one[f"{cid}/{first}"] for cid in names]) for one in rounds]
    if means:
        sums = [count[:, :, None] * mean for count, mean in zip(counts, sums, strict=True)]
    return attacks.view_from_rounds([one["centers"] for one in rounds], counts, sums, clients=names)


def main(folder: str, rows: str) -> None:
    """Print what the recorded rounds show of each client's rows, and of all rows from the totals alone."""
    seen = view(Path(folder))
    with np.load(rows) as arrays:
        truth = attacks.Truth([np.asarray(arrays[name], dtype=np.float64) for name in arrays.files])
    for client in (*range(len(seen.clients)), None):
        found = attacks.Differencing(client).run(seen, attacks.Prior(), np.random.default_rng(0))
        report = attacks.evaluate(found, truth)
        of = "everybody, totals alone" if client is None else f"client {client}"
        print(f"{of}: {report.recovered:.2f} of the rows, precision {report.precision:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
