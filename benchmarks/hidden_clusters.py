"""What the noise of DP-SGD leaves of clusters: whether any rule could find the true ones from running means.

    python -m benchmarks.hidden_clusters --epsilon 4 2

The clients are those of `benchmarks.models` with 67 rows, in one cluster throughout. Noise in their running
means is Gaussian up to clipping, of a known variance: of four clusters the likeliest are those of least
squares. `squares` is the least found from 2,000 starts of k-means that is told the number, beside that of the
true clusters; below 1 wrong clusters are likelier than the true ones. `left_out` is the share of clients that
lie nearest to their own true cluster without them: who does it knows all others' clusters. `told` is the
accuracy where the true clusters are told after the last round, and models catch up as in decision 024.
docs/measurements/models.md has the table.
"""

from __future__ import annotations

import argparse
import json
from unittest.mock import patch

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from benchmarks.models import KINDS, ROWS, TRUE, N, accuracy, method, sites, words
from privfed.core.asking.data import ClientData
from privfed.deep.clustering.noise import MeanNoise
from privfed.deep.estimators.clustered import DECAY
from privfed.deep.training.memory import memory_of


def measured(kind: str, epsilon: float, seed: int) -> dict[str, float]:
    """Return what a seed's running means tell of the true clusters."""
    drawn = sites(kind, ROWS[0], seed, None)
    X, y = ([one[i] for one in drawn.train] for i in (0, 1))
    model = method("dcfl", words(epsilon, drawn.n_classes, ROWS[0], seed) | {"cluster_after": 99})
    clients = model._gather(X, y, None)
    # What clients remember of a fit is gone with it, unless their data begin no fit anew.
    with patch.object(ClientData, "anew", lambda own: own):
        model.fit_clients(clients)
    means, noise = np.stack([memory_of(one).mean for one in clients.here]), MeanNoise()
    for number in range(1, model.rounds + 1):
        training = model._training_.at(number)
        # What is clipped is no longer than its bound, noise included.
        most = training.max_update_norm**2 / means.shape[1]
        noise = noise.followed(min(training.noise_variance, most), DECAY)
    centers = np.stack([means[c == TRUE].mean(axis=0) for c in range(4)])
    found = KMeans(4, n_init=2000, random_state=0).fit(means)
    right = 0
    for i, own in enumerate(means):
        others = [np.flatnonzero((c == TRUE) & (np.arange(N) != i)) for c in range(4)]
        apart = [
            np.square(own - means[o].mean(axis=0)).sum() - noise.variance * len(own) / len(o) for o in others
        ]
        right += int(np.argmin(apart)) == TRUE[i]
    # Directions of clusters are found in noise from about the fourth root of their shape on (Benaych-Georges
    # and Nadakuditi 2012): the longest is the mean square between clusters, without its noise.
    between = np.square(centers - means.mean(axis=0)).sum() * N / 4 / noise.variance - 3 * means.shape[1]
    moved = model.models_[0] + (noise.mass - 1.0) * (centers - means.mean(axis=0))
    told = [
        float((model.classify(moved[c], rows) == labels).mean())
        for (rows, labels), c in zip(drawn.test, TRUE, strict=True)
    ]
    return {
        "squares": found.inertia_ / float(np.square(means - centers[TRUE]).sum()),
        "ari": adjusted_rand_score(TRUE, found.labels_),
        "left_out": right / N,
        "direction": float(np.sqrt(max(between, 0.0) / 3.0)),
        "threshold": float((N * means.shape[1]) ** 0.25),
        "one": float(np.mean(accuracy(model, drawn.test, [0] * N))),
        "told": float(np.mean(told)),
    }


def main() -> None:
    """Measure and print, a line of JSON for each seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, nargs="*", default=[4.0, 2.0])
    parser.add_argument("--seeds", type=int, nargs="*", default=[20, 21, 22])
    args = parser.parse_args()
    for epsilon in args.epsilon:
        for kind in KINDS:
            for seed in args.seeds:
                found = {name: round(one, 4) for name, one in measured(kind, epsilon, seed).items()}
                print(json.dumps({"epsilon": epsilon, "kind": kind, "seed": seed, **found}), flush=True)


if __name__ == "__main__":
    main()
