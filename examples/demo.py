"""Cluster hand-written digits over plain and over masked sums, while clients drop out.

    python -m examples.demo [FOLDER]

Twenty clients hold scikit-learn's digits, split by k-means, so that they have different shapes (the non-IID
split of Holzer, Jacob and Kavane 2023). In some rounds clients drop out, before their upload arrives or after
it. The plain sums leave out the same clients as the masked ones, so that the runs differ in the sum alone.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from privfed import Box, DWFKMeans, Simulation, metrics, plot
from privfed.data import partition
from privfed.engines import Fault
from privfed.protocols import Masked, Plain

N_CLIENTS, SEED, TOL = 20, 0, 1e-6
FIRST, LAST = 3, 14
"""Sums between which clients are lost, in every second one."""


def losses(seed):
    """Draw which clients drop out when: two before their upload arrives, one after it."""
    rng = np.random.default_rng(seed)
    return [
        Fault(int(client), stage, sums=frozenset({number}))
        for number in range(FIRST, LAST + 1, 2)
        for stage, n_lost in (("collect", 2), ("unmask", 1))
        for client in rng.choice(N_CLIENTS, n_lost, replace=False)
    ]


def same_losses(transcript):
    """Return faults that make plain sums leave out the clients that a transcript's totals lack."""
    return [
        Fault(client, "collect", sums=frozenset({asked.index + 1}))
        for asked, total in transcript.totals()
        for client in sorted(set(asked.clients) - set(total.contributors))
    ]


def fit(clients, protocol, faults):
    """Return a fit during which these clients are lost."""
    engine = Simulation(faults=faults)
    model = DWFKMeans(10, tol=TOL, max_iter=100, random_state=SEED, protocol=protocol, engine=engine)
    return model.set_params(domain=Box(0, 16)).fit(clients)


def main(folder):
    """Fit over both sums, and print and draw what came out; return the fits by sum."""
    images, digits = load_digits(return_X_y=True)
    parts = partition(images, N_CLIENTS, "non-iid", np.random.default_rng(SEED))
    clients, labels = [images[rows] for rows in parts], [digits[rows] for rows in parts]
    drawn = losses(SEED)
    # So many clients are lost here as no fit of real rows should allow: each may be counted three times.
    masked = fit(clients, Masked(losses=3 * len(drawn)), drawn)
    models = {"plain": fit(clients, Plain(), same_losses(masked.transcript_)), "masked": masked}
    for name, model in models.items():
        agreed = metrics.labels_agreement(clients, model.cluster_centers_, labels, protocol="plain")
        traffic = model.federation_.traffic
        sent = (sum(traffic.up.values()) + sum(traffic.down.values())) / N_CLIENTS / 1000
        print(f"{name}: {model.n_iter_} rounds, v-measure {agreed.v_measure:.4f}, {sent:,.0f} kB a client")
    apart = np.abs(models["plain"].cluster_centers_ - masked.cluster_centers_).max()
    print(f"Largest difference between their centers: {apart:.1e} (a pixel is 0 to 16).")
    print("Neither run claims differential privacy; over plain sums the server saw every answer.")
    folder.mkdir(parents=True, exist_ok=True)
    figure, grid = plt.subplots(2, 10, figsize=(7, 1.8), layout="constrained")
    both = np.concatenate([own.cluster_centers_ for own in models.values()])
    for axes, center in zip(grid.flat, both, strict=True):
        axes.imshow(center.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
        axes.set(xticks=[], yticks=[])
    figure.suptitle("Centers over plain (above) and over masked sums", fontsize=9)
    plot.save(figure, folder / "centers.png")
    plot.save(plot.ConvergenceDisplay.from_estimator(models).figure_, folder / "convergence.png")
    print(f"Written: {folder / 'centers.png'}, {folder / 'convergence.png'}")
    return models


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
