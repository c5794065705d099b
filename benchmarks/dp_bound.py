"""Are groups that a private fit loses lost in its released totals, or in what was made of these?

    python -m benchmarks.dp_bound --seeds 200 nested2:1 two_far4:1
    python -m benchmarks.dp_bound --seeds 100 --sipu sipu_sets.npz unbalance:0.5

For each far seed, and each group without a center of its own: how far, in deviations of their noise, do exact
totals lie from those of the same rows, with this group moved onto its neighbour, or both into their middle?
The least over groups and the two ways is printed: below about 4 hardly any rule could tell the two apart.
`ratio` is the log likelihood ratio in the noised totals: positive where they speak for the truth.

In two features also the cost of a fit that knows groups exactly that were met, and of the others their number
alone. It puts each where a round group explains the grid's counts best (a matched filter).
"""

from __future__ import annotations

import argparse
from collections.abc import Generator
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from benchmarks.dp_sets import fitted
from benchmarks.dp_tails import FAR, MADE, from_file
from benchmarks.utility import cost
from privfed.algorithms.private.kmeans import PrivateKMeans
from privfed.core.asking.question import ClientData
from privfed.core.roles.conversation import Ask, Setting, Total
from privfed.numerics.kernels.interpreted import squared_distances
from privfed.questions.bounded.bounded_sums import GridSums

Log = list[tuple[Ask, Total]]

STDS, PLACES, POINTS = (0.03, 0.06, 0.1), 30, 100
"""Sizes of round groups, places along an axis, and points of a group that the matched filter tries."""


class Recorded:
    """An algorithm that keeps what it asked and was told."""

    def __init__(self, algorithm: PrivateKMeans) -> None:
        self.algorithm, self.log = algorithm, list[tuple[Ask, Total]]()

    def run(self, setting: Setting) -> Generator[Ask, Total, Any]:
        running = self.algorithm.run(setting)
        ask = next(running)
        while True:
            told = yield ask
            self.log.append((ask, told))
            try:
                ask = running.send(told)
            except StopIteration as finished:
                return finished.value


def exact(log: Log, rows: np.ndarray) -> list[dict[str, np.ndarray]]:
    """Return the exact totals of a run's questions, each entry in deviations of its noise."""
    rng, data, found = np.random.default_rng(0), ClientData(np.clip(rows, -1, 1)), []
    for ask, told in log:
        answer, noise = ask.question.answer(data, rng), told.noise_std or {}
        found.append({name: answer[name] / noise[name] for name in answer})
    return found


def apart(
    log: Log, rows: np.ndarray, labels: np.ndarray, means: np.ndarray, lost: int
) -> tuple[float, float]:
    """Return by how many deviations a group is seen apart from its neighbour, and the likelihood ratio."""
    squares = squared_distances(means, means[lost][None])[:, 0]
    squares[lost] = np.inf
    near = int(squares.argmin())
    middle = rows[(labels == lost) | (labels == near)].mean(axis=0)
    true, found = exact(log, rows), []
    for goals in ({lost: means[near]}, {lost: middle, near: middle}):
        moved = rows.copy()
        for group, goal in goals.items():
            moved[labels == group] += goal - means[group]
        other, square, ratio = exact(log, moved), 0.0, 0.0
        for (_, told), a, b in zip(log, true, other, strict=True):
            for name in a:
                noised = told.statistics[name] / (told.noise_std or {})[name]
                square += np.square(a[name] - b[name]).sum()
                ratio += 0.5 * (np.square(noised - b[name]).sum() - np.square(noised - a[name]).sum())
        found.append((float(np.sqrt(square)), float(ratio)))
    return min(found)


def filtered(log: Log, rest: np.ndarray, wanted: int) -> np.ndarray:
    """Return where groups best explain the grids' counts that other rows leave, (wanted, 2)."""
    shape = np.random.default_rng(1).standard_normal((POINTS, 2))
    axis = (np.arange(PLACES) + 0.5) / PLACES * 2 - 1
    places = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 1, 2)
    tried = np.clip(np.concatenate([places + std * shape for std in STDS]), -1, 1)
    kernels, left = [], []
    for ask, told in log:
        if isinstance(question := ask.question, GridSums):
            noise, n_cells = (told.noise_std or {})["count"], question.n_cells
            cells = question.place(tried.reshape(-1, 2))[0] + n_cells * np.arange(len(tried)).repeat(POINTS)
            counts = np.bincount(cells, minlength=len(tried) * n_cells).reshape(len(tried), n_cells)
            kernels.append(counts / POINTS / noise)
            known = np.bincount(question.place(rest)[0], minlength=n_cells)
            left.append((told.statistics["count"] - known) / noise)
    kernel, residual, found = np.concatenate(kernels, axis=1), np.concatenate(left), []
    lengths = np.linalg.norm(kernel, axis=1)
    for _ in range(wanted):
        best = int((kernel @ residual / lengths).argmax())
        residual = residual - kernel[best] * (kernel[best] @ residual) / lengths[best] ** 2
        found.append(places[best % len(places), 0])
    return np.array(found)


def main() -> None:
    """Measure some cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--sipu")
    parser.add_argument("cells", nargs="+", help="set:epsilon")
    asked = parser.parse_args()
    sets = MADE | (from_file(asked.sipu) if asked.sipu else {})
    for cell in asked.cells:
        name, epsilon = cell.split(":")
        rows, k = sets[name][0]()
        best = KMeans(k, n_init=20, random_state=0).fit(rows)
        means, labels = best.cluster_centers_, best.labels_
        own = squared_distances(means, means) + np.diag(np.full(k, np.inf))
        costs, knowing, logs = [], [], []
        for seed in range(asked.first, asked.first + asked.seeds):
            run = Recorded(PrivateKMeans(n_clusters=k, seed=seed))
            centers = fitted(run, rows, float(epsilon), seed)
            lost = np.flatnonzero(squared_distances(means, centers).min(axis=1) > 0.2 * own.min(axis=1))
            costs.append(cost(rows, k, centers))
            logs.append((run.log, lost))
            if rows.shape[1] == 2:
                met, rest = np.delete(means, lost, axis=0), rows[~np.isin(labels, lost)]
                there = np.concatenate([met, filtered(run.log, rest, len(lost))]) if len(lost) else centers
                knowing.append(cost(rows, k, there))
        far = np.flatnonzero(np.array(costs) > FAR * np.median(costs))
        shown = [
            min(apart(log, rows, labels, means, int(g)) for g in lost)
            for log, lost in (logs[i] for i in far)
            if len(lost)
        ]
        text = f"{cell:>20} median {np.median(costs):.3f} far {len(far)}/{len(costs)}"
        if shown:
            least, middle = np.quantile([one[0] for one in shown], [0.0, 0.5])
            text += (
                f" apart by {least:.1f}, median {middle:.1f}; ratio at least {min(r for _, r in shown):.0f}"
            )
        if knowing:
            still = int((np.array(knowing) > FAR * np.median(costs)).sum())
            text += f" knowing: median {np.median(knowing):.3f} far {still}"
        print(text, flush=True)


if __name__ == "__main__":
    main()
