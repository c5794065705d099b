"""Reads and attacks the k-means of NVFlare (`nvflare.app_opt.sklearn.KMeansFedAvgRecipe`, read in 2.9.0).

Its server gets from each client k seeds of k-means++ in round 0, which are rows, and then a mean and a count
of each cell. `record` keeps what the server gets; call it where the server's process starts, before the job
runs. `seeds` are the rows of round 0, and `view` is what any passive attack of privfed reads:

    python examples/other_programs/nvflare_kmeans.py recorded/ rows.npz

`rows.npz` has the rows of each client, by its name, for scoring only.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from privfed import attacks
from privfed.core.record.records import View

Rounds = list[dict[str, npt.NDArray[np.float64]]]


def record(folder: Path) -> None:
    """Have NVFlare's server write what it gets and what it sent into a folder, one file a round."""
    from nvflare.app_common.app_constant import AppConstants
    from nvflare.app_opt.sklearn.kmeans_assembler import KMeansAssembler

    folder.mkdir(parents=True, exist_ok=True)
    assemble = KMeansAssembler.assemble

    def recorded(self, data, fl_ctx):  # type: ignore[no-untyped-def]
        number = fl_ctx.get_prop(AppConstants.CURRENT_ROUND)
        found = {} if self.center is None else {"sent": self.center.copy()}
        for client, got in self.collection.items():
            found |= {f"{client}/{name}": got[name] for name in ("center", "count") if got[name] is not None}
        np.savez(folder / f"round-{number}.npz", **found)
        return assemble(self, data, fl_ctx)

    KMeansAssembler.assemble = recorded


def read(folder: Path) -> Rounds:
    """Return the arrays of each recorded round, in order."""
    paths = sorted(folder.glob("round-*.npz"), key=lambda path: int(path.stem.partition("-")[2]))
    found: Rounds = []
    for path in paths:
        with np.load(path) as arrays:
            found.append({name: np.asarray(arrays[name], dtype=np.float64) for name in arrays.files})
    return found


def clients_of(rounds: Rounds) -> list[str]:
    """Return the names of the clients of round 0, sorted."""
    return sorted({name.rpartition("/")[0] for name in rounds[0] if name.endswith("/center")})


def seeds(rounds: Rounds) -> dict[str, npt.NDArray[np.float64]]:
    """Return each client's seeds of round 0, float64 of shape (k, n_features): they are rows of it."""
    return {client: rounds[0][f"{client}/center"] for client in clients_of(rounds)}


def view(rounds: Rounds) -> View:
    """Return what the server saw from round 1 on: counts and means of each client's cells."""
    names = clients_of(rounds)
    counts = [np.stack([one[f"{client}/count"] for client in names]) for one in rounds[1:]]
    means = [np.stack([one[f"{client}/center"] for client in names]) for one in rounds[1:]]
    sums = [count[:, :, None] * mean for count, mean in zip(counts, means, strict=True)]
    return attacks.view_from_rounds([one["sent"] for one in rounds[1:]], counts, sums, clients=names)


def main(folder: str, rows: str) -> None:
    """Print what the recorded rounds show of each client's rows."""
    rounds = read(Path(folder))
    with np.load(rows) as arrays:
        truth = [np.asarray(arrays[client], dtype=np.float64) for client in clients_of(rounds)]
    seen = view(rounds)
    for i, (client, shown) in enumerate(seeds(rounds).items()):
        found = attacks.Differencing(client=i).run(seen, attacks.Prior(), np.random.default_rng(0))
        report = attacks.evaluate(found, attacks.Truth(truth))
        print(f"{client}: {len(np.unique(shown, axis=0))} of {len(truth[i])} rows as seeds in round 0;")
        print(f"    {report.claims} claimed from later rounds, precision {report.precision:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
