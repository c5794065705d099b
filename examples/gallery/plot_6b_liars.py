"""
A client that lies
==================

One client of twenty answers what it likes. Masked sums hide who did, and a total is refused only where
no rows of any clients could give it. With ``Masked(proofs=True)`` each client proves bounds of its
answer: it counts at most ``max_rows`` rows, and its sums lie in the box times the count.
"""

# %%
# The liar knows all other answers. It tries several lies in each round and takes the one that costs the
# honest rows most: with proofs a lie that meets its statement, else any that the server does not refuse.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_blobs
from sklearn.preprocessing import minmax_scale

from privfed.core.asking.data import ClientData
from privfed.core.asking.possible_totals import impossible
from privfed.core.values.domain import Ranges
from privfed.protocols.masked.statements import ProvenGrid
from privfed.questions.lloyd import LloydSums

N, ROUNDS, SEEDS = 20, 10, 5


def cost(rows, centers):
    """Return the cost of centers on honest rows."""
    return np.square(rows[:, None] - centers).sum(axis=2).min(axis=1).sum()


def moved(total, centers):
    """Return the centers that a total gives; one without rows stays."""
    count = total["count"][:, None]
    return np.where(count > 0.5, total["sum"] / np.where(count > 0.5, count, 1.0), centers)


def lies(question, others, rng):
    """Yield answers of a liar: centers pulled to corners of the box, with no rows or all that it may have."""
    k, d = question.centers.shape
    low, high, most = question.ranges.low, question.ranges.high, question.ranges.rows
    for _ in range(12):
        corners = np.where(rng.random((k, d)) < 0.5, low, high)
        if rng.random() < 0.5:
            corners[:] = corners[0]
        for count in (np.zeros(k), np.full(k, most / k), most * np.eye(k)[rng.integers(k)]):
            # A whole pull, with which the total's mean is the corner, and that of the rows it says it has.
            whole = corners * (others["count"][:, None] + count[:, None]) - others["sum"]
            for pulled in (whole, corners * count[:, None]):
                yield np.concatenate([count, pulled.ravel()])


def fit(parts, k, max_rows, seed, answers=None):
    """Return the cost of a fit on the honest rows, with one liar besides; `answers` says what it may send."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate(parts)
    ranges = Ranges(np.zeros(rows.shape[1]), np.ones(rows.shape[1]), max_rows)
    honest = [ClientData(part) for part in parts]
    centers = rows[rng.choice(len(rows), k, replace=False)]
    for _ in range(ROUNDS):
        question = LloydSums(ranges=ranges, centers=centers)
        spec = question.spec
        told = question.answer_all(honest, [rng] * len(honest))
        others = spec.unflatten(np.sum([one.vector for one in told], axis=0))
        best = moved(others, centers)
        if answers is not None:
            grid, found = ProvenGrid(question, N), []
            for lie in lies(question, others, rng):
                if answers == "proven":
                    # The nearest answer that meets the statement.
                    lie = grid.decode(grid.encode(spec.clip(lie)[0], 0))[0]
                total = spec.unflatten(others.vector + lie)
                if impossible(question, total, N) is None:
                    new = moved(total, centers)
                    found.append((cost(rows, new), new))
            best = max(found, key=lambda one: one[0])[1] if found else best
        centers = best
    return cost(rows, centers)


# %%

drawn, _ = make_blobs(
    19 * 100, 2, centers=[[0.2, 0.2], [0.2, 0.8], [0.8, 0.2], [0.8, 0.8]], cluster_std=0.07, random_state=0
)
sets = {
    "four clusters": (np.clip(drawn, 0.0, 1.0), 4),
    "iris": (minmax_scale(load_iris().data), 3),
    "wine": (minmax_scale(load_wine().data), 3),
    "breast cancer": (minmax_scale(load_breast_cancer().data), 2),
}
ratios = {}
print("cost of honest rows over that of a fit without the liar: mean, and the worst of five starts")
for name, (rows, k) in sets.items():
    for times in (1, 10):
        found = {"unproven": [], "proven": []}
        for seed in range(SEEDS):
            parts = np.array_split(np.random.default_rng(seed).permutation(rows), N - 1)
            max_rows = times * max(map(len, parts))
            alone = fit(parts, k, max_rows, seed)
            for kind, costs in found.items():
                costs.append(fit(parts, k, max_rows, seed, kind) / alone)
        ratios[name, times] = [np.mean(costs) for costs in found.values()]
        text = ", ".join(
            f"{kind} {np.mean(costs):.2f} ({np.max(costs):.2f})" for kind, costs in found.items()
        )
        print(f"{name}, max_rows {times} x a client's rows: {text}")

# %%

figure, axes = plt.subplots(figsize=(8, 3.5), layout="constrained")
places = np.arange(len(ratios))
for shift, (label, values) in enumerate(
    zip(("without proofs", "with proofs"), zip(*ratios.values(), strict=True), strict=True)
):
    axes.bar(places + 0.4 * shift - 0.2, values, 0.4, label=label)
axes.set_xticks(places, [f"{name}\n{times} x" for name, times in ratios], fontsize=8)
axes.set_yscale("log")
axes.set_ylabel("cost, over that without a liar")
axes.legend()
plt.show()
