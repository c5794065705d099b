"""Measures how sure the claims of `Differencing` are where they are least so (docs/attacks/differencing.md).

`python -m tests.attacks.reconstruction.precision_figures` prints precision over all claims, of the worst fit,
and the mean confidence with which rows were claimed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from privfed import DWFKMeans
from privfed.attacks import Differencing, Prior, Truth, evaluate
from tests.attacks.populations import mixture

SETTINGS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("n = 500, k = 10, kfed, masked", 500, {"n_clusters": 10, "init": "kfed", "protocol": "masked"}),
    ("n = 100, k = 20, random, masked", 100, {"n_clusters": 20, "init": "random", "protocol": "masked"}),
    ("n = 100, k = 10, kfed, plain", 100, {"n_clusters": 10, "init": "kfed", "protocol": "plain"}),
)


def main() -> None:
    """Attack fits of mixtures in the plane of ten clients, three seeds each."""
    for name, n_rows, words in SETTINGS:
        right, claims, worst, sure = 0.0, 0, 1.0, list[float]()
        for seed in range(3):
            clients = mixture(seed, n_clients=10, n_rows=n_rows).clients
            model = DWFKMeans(local_iter=1, n_init=5, max_iter=30, random_state=seed, **words).fit(clients)
            attack = Differencing(None if words["protocol"] == "masked" else 0)
            found = attack.run(model.transcript_.view("server"), Prior(), np.random.default_rng(0))
            report = evaluate(found, Truth(clients))
            if report.claims:
                right, claims = right + report.precision * report.claims, claims + report.claims
                worst = min(worst, report.precision)
                sure += list(found.confidence)
        print(f"{name}: {right / claims:.3f} of {claims}, worst {worst:.3f}, confidence {np.mean(sure):.3f}")


if __name__ == "__main__":
    main()
