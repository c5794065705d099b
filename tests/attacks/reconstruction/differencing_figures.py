"""Measures further figures of docs/attacks/differencing.md.

`python -m tests.attacks.reconstruction.differencing_figures` prints them.

Cells that no start of ours asks for, and methods that ask for clients' own centroids. Ten seeds unless a line
says otherwise; without a part it measures all (see `PARTS`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from privfed import FKM, KFED, DWFKMeans, select_n_clusters
from privfed.attacks import Differencing, Prior, Report, Truth, evaluate, pooled
from privfed.attacks.base.report import Cells, linear_bound, matches
from privfed.attacks.evidence.cells import Evidence, Observation, Scored
from privfed.attacks.reconstruction.iterative_removal import removed
from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels.interpreted import cell_sums, squared_distances
from tests.attacks.figures import SEEDS, differenced, fitted, line, mixture, real


def taken(
    rows: FloatArray, cells: Sequence[Sequence[Cells]], scored: tuple[Scored, ...]
) -> tuple[float, float, float, float]:
    """Peel sequences of cells; return right claims, claims and the linear bound, of the rows, and seconds."""
    seen = tuple(
        Observation(number, one, *cell_sums(rows, one.place(rows), one.n_cells))
        for number, sequence in enumerate(cells)
        for one in sequence
    )
    low, high = rows.min(axis=0), rows.max(axis=0)
    evidence = Evidence(0, seen, scored, float(len(rows)), rows.sum(axis=0), low, high)
    began = time.process_time()
    found, _ = removed(evidence, np.random.default_rng(0))
    seconds = time.process_time() - began
    right = int((matches(found, rows, 1e-8) >= 0).sum())
    bound = linear_bound([one.cells for one in seen], rows)
    return right / len(rows), len(found) / len(rows), bound, seconds


def shown(name: str, found: list[tuple[float, float, float, float]]) -> None:
    """Print means over seeds, pooled precision and the median time."""
    recovered, claims, bound, _ = np.mean(found, axis=0)
    seconds = np.median([one[3] for one in found])
    print(
        f"{name:<44} recovered {recovered:.3f}, precision {recovered / claims:.3f}, bound {bound:.3f}, "
        f"processor seconds {seconds:.2f}",
        flush=True,
    )


def partitions() -> None:
    """One client's rows from unrelated cells, around ten of its rows, each moved by a standard normal."""
    for n_partitions in (10, 20, 50, 80):
        found = []
        for seed in range(SEEDS):
            rng, rows = np.random.default_rng(seed), mixture(seed, 100, 2)[0][0]
            centers = [
                rows[rng.choice(100, 10, replace=False)] + rng.normal(size=(10, 2))
                for _ in range(n_partitions)
            ]
            found.append(taken(rows, [[Cells.around(one)] for one in centers], ()))
        shown(f"{n_partitions} partitions", found)


def rounds(rows: FloatArray, centers: FloatArray) -> list[Cells]:
    """Return the cells of at most 30 rounds of one local step, which are those of central k-means."""
    cells: list[Cells] = []
    for _ in range(30):
        cells.append(Cells.around(centers))
        counts, sums = cell_sums(rows, cells[-1].place(rows), len(centers))
        moved = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1.0)[:, None], centers)
        if np.abs(moved - centers).max() < 1e-9:
            break
        centers = moved
    return cells


def random_rows() -> None:
    """One client's rows from rounds that begin at ten rows of all clients."""
    for name, n_init, seeds in (
        ("iris", 10, SEEDS),
        ("wine", 10, SEEDS),
        ("breast_cancer", 10, SEEDS),
        ("digits", 5, 3),
    ):
        found = []
        for seed in range(seeds):
            clients, rng = real(name, seed), np.random.default_rng(seed)
            pooled = np.concatenate(clients)
            starts = [pooled[rng.choice(len(pooled), 10, replace=False)] for _ in range(n_init)]
            cells = [rounds(pooled, start) for start in starts]
            last = [one[-1].centers for one in cells]
            scored = tuple(
                Scored(one, float(squared_distances(clients[0], one).min(axis=1).mean()))
                for one in last
                if one is not None
            )
            found.append(taken(clients[0], cells, scored))
        shown(f"{name}, {n_init} starts at rows, {seeds} seeds", found)


def one_shot() -> None:
    """One client's rows from its own centroids: k-FED and FKM."""
    for kind, merge, n_init in (
        (KFED, "gathered", 10),
        (KFED, "summed", 10),
        (FKM, "gathered", 1),
        (FKM, "gathered", 10),
        (FKM, "summed", 10),
    ):
        for name in ("wine", "breast_cancer"):
            reports = []
            for seed in range(SEEDS):
                clients = real(name, seed)
                model = kind(10, merge=merge, n_init=n_init, protocol="plain", random_state=seed).fit(clients)
                reports.append(differenced(clients, model, 0))
            line(f"{name}, {kind.__name__} {merge}, n_init {n_init}", reports)


def few_rounds() -> None:
    """One client's rows where each restart has three rounds."""
    for init in ("kfed", "coreset"):
        data = [real("breast_cancer", seed) for seed in range(5)]
        runs = (fitted(c, 10, s, n_init=10, init=init, max_iter=3, tol=0) for s, c in enumerate(data))
        line(
            f"breast_cancer (5 seeds), {init}, 3 rounds a restart",
            (differenced(c, m, 0) for c, m in zip(data, runs, strict=True)),
        )


def several_fits() -> None:
    """All rows from the masked totals of several fits with the default words, by themselves and together."""
    for k in (10, 3):
        reports: dict[int, list[Report]] = {n: [] for n in (1, 2, 3, 5)}
        for seed in range(4):
            clients = real("wine", seed)
            fits = [DWFKMeans(k, random_state=10 * seed + fit).fit(clients) for fit in range(5)]
            views = [fit.transcript_.view("server") for fit in fits]
            for n, own in reports.items():
                found = Differencing().run(pooled(views[:n]), Prior(), np.random.default_rng(0))
                own.append(evaluate(found, Truth(clients, tolerance=1e-4)))
        for n, own in reports.items():
            line(f"wine (4 seeds), defaults, masked, k = {k}, {n} fits", own)
            print("    each seed", " ".join(f"{one.recovered:.3f}" for one in own), flush=True)


def fits_from(init: str, clients: list[FloatArray], seed: int) -> list[DWFKMeans]:
    """Return ten fits with other seeds; "kept" ones verify totals, and begin from the first one's start."""
    words: dict[str, Any] = {"init": init} if init != "kept" else {"protocol": "masked-verified"}
    fits = [DWFKMeans(10, random_state=seed, **words).fit(clients)]
    if init == "kept":
        words["init"] = fits[0].kept_start()
    return fits + [DWFKMeans(10, random_state=seed + fit, **words).fit(clients) for fit in range(1, 10)]


def starts_once() -> None:
    """All rows from the masked totals of ten fits with other seeds, by how each finds its start."""
    for name, seeds in (("wine", 3), ("breast_cancer", 1)):
        for init in ("coreset", "nested", "kept"):
            for seed in range(seeds):
                clients = real(name, seed)
                fits = fits_from(init, clients, 10 * seed)
                views = [fit.transcript_.view("server") for fit in fits]
                shares = []
                for n in (1, 2, 3, 5, 10):
                    found = Differencing().run(pooled(views[:n]), Prior(), np.random.default_rng(0))
                    shares.append(evaluate(found, Truth(clients, tolerance=1e-4)).recovered)
                ends = float(np.mean([fit.inertia_ for fit in fits]))
                text = " ".join(f"{one:.3f}" for one in shares)
                print(
                    f"{name}, {init}, seed {seed}: 1, 2, 3, 5, 10 fits {text}, inertia {ends:.0f}", flush=True
                )


def selected() -> None:
    """All rows from the masked totals of a selection of 2 to 8 clusters with its indices, by the start."""
    for name, seeds in (("iris", 3), ("wine", 3), ("breast_cancer", 2)):
        for init in ("coreset", "nested"):
            for seed in range(seeds):
                clients = real(name, seed)
                chosen = select_n_clusters(clients, range(2, 9), init=init, random_state=seed)
                views = [model.transcript_.view("server") for model in chosen.models]
                shares = []
                for views_of in (views[-1:], views[:3], views):
                    found = Differencing().run(pooled(views_of), Prior(), np.random.default_rng(0))
                    shares.append(evaluate(found, Truth(clients, tolerance=1e-4)).recovered)
                text = " ".join(f"{one:.3f}" for one in shares)
                ends = " ".join(f"{row.inertia:.5g}" for row in chosen.table)
                print(
                    f"{name}, {init}, seed {seed}: k = 8, k to 4, all {text}; chose {chosen.n_clusters}, "
                    f"inertia {ends}",
                    flush=True,
                )


PARTS: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (partitions, random_rows, one_shot, few_rounds, several_fits, starts_once, selected)
}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
