"""Draw what privacy costs, and what totals of several fits give away: the picture of the README.

python examples/tradeoff.py [PICTURE.png]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from privfed import Box, ClientPolicy, DPKMeans, DWFKMeans, Privacy, attacks, metrics
from privfed.data import ClientTable, ClientTables

EPSILONS = [0.25, 0.5, 1.0, 2.0, 4.0]
FITS = [1, 2, 5, 10]
SEEDS = 10


def costs():
    """Return the cost of private fits, relative to one without noise, of shape (n_epsilons, SEEDS)."""
    rng = np.random.default_rng(1)
    groups = rng.uniform(-8, 8, size=(6, 2))
    banks = [rng.normal(groups[rng.integers(6, size=300)], 0.7) for _ in range(10)]
    exact = DWFKMeans(6, n_init=10, random_state=0).fit(banks)
    least = metrics.score(banks, exact.cluster_centers_)

    def cost(epsilon, seed):
        words = {"unit": "record", "neighbours": "add-remove", "domain": Box(-12, 12)}
        privacy = Privacy(epsilon=epsilon, delta=1e-6, noise_seed=seed, **words)
        model = DPKMeans(6, privacy=privacy, random_state=seed).fit(banks)
        return metrics.score(banks, model.cluster_centers_) / least

    return np.array([[cost(epsilon, seed) for seed in range(SEEDS)] for epsilon in EPSILONS])


def found(group_size):
    """Return which share of wine's rows the server finds in the masked totals of several fits."""
    parts = np.array_split(np.random.default_rng(0).permutation(scale(load_wine().data)), 5)
    tables = tuple(ClientTable(f"clinic {i}", part) for i, part in enumerate(parts))
    clinics = ClientTables(tables, load_wine().feature_names)
    views = []
    for seed in range(max(FITS)):
        policy = ClientPolicy(group_size=group_size)
        model = DWFKMeans(10, local_iter=1, max_iter=30, random_state=seed, policy=policy).fit(clinics)
        views.append(model.transcript_.view("server"))

    def share(n):
        claims = attacks.Differencing().run(
            attacks.pooled(views[:n]), attacks.Prior(), np.random.default_rng(0)
        )
        return attacks.evaluate(claims, attacks.Truth(parts)).recovered

    return [share(n) for n in FITS]


def main(path):
    """Draw both, and print the numbers."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
    of_epsilon = costs()
    left.fill_between(
        EPSILONS, *np.quantile(of_epsilon, [0.1, 0.9], axis=1), alpha=0.25, label="8 of 10 fits"
    )
    left.plot(EPSILONS, np.median(of_epsilon, axis=1), marker="o", label="median")
    left.axhline(1.0, color="black", linestyle=":", label="without noise")
    left.set(xscale="log", xlabel="epsilon", ylabel="cost, of the exact fit's", title="Differential privacy")
    left.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    left.minorticks_off()
    for size, label in ((1, "rows as they are"), (5, "groups of 5 rows")):
        shares = found(size)
        print(label, dict(zip(FITS, np.round(shares, 2).tolist(), strict=True)))
        right.plot(FITS, shares, marker="o", label=label)
    right.set(
        xlabel="fits of the same rows", ylabel="share of rows found", title="What masked totals give away"
    )
    right.set_ylim(-0.04, 1.04)
    left.legend()
    right.legend()
    print(dict(zip(EPSILONS, np.median(of_epsilon, axis=1).round(2).tolist(), strict=True)))
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tradeoff.png")
