"""Golden trajectories: every algorithm over every sum on small fixed data, as it was before the rooms moved.

`python -m tests.reference.trajectories` compares to the last bit with what this machine stored;
`python -m tests.reference.trajectories --record` writes the stored file anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import privfed
from privfed import metrics
from privfed.protocols import Masked, Slotted

STORED = Path(__file__).with_name("trajectories.npz")
SUMS = ("plain", "masked", "group-masked", "ckks")


def clients(n_clients: int = 6, seed: int = 5) -> list[np.ndarray]:
    """Return blobs of 4 centers, unevenly spread over the clients."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-8, 8, size=(4, 3))
    own = [rng.choice(4, size=30 + 5 * i, p=rng.dirichlet(np.ones(4))) for i in range(n_clients)]
    return [np.clip(rng.normal(centers[which], 0.7), -11.9, 11.9) for which in own]


def words(model: str) -> dict[str, Any]:
    """Return constructor words that take each model through its special paths, in few rounds."""
    return {
        "DWFKMeans": {"local_iter": 3, "max_iter": 6, "tol": 0, "n_init": 2},
        "EWFKMeans": {"local_iter": 2, "max_iter": 5, "tol": 0, "clients_per_round": 4},
        "WFKMeans": {"local_iter": 2, "max_iter": 4, "tol": 0, "momentum": 0.5, "learning_rate": 0.5},
        "KFED": {},
        "FKM": {"max_iter": 4, "tol": 0},
        "FederatedMiniBatchKMeans": {"max_iter": 5, "tol": 0, "batch_size": 10},
        "FederatedFuzzyCMeans": {"max_iter": 4, "tol": 0},
        "DPKMeans": {},
    }[model]


def privacy(noise: str = "distributed", unit: str = "record") -> privfed.Privacy:
    """Return a seeded run: its noise repeats."""
    return privfed.Privacy(
        epsilon=2.0,
        delta=1e-5,
        unit=unit,
        domain=privfed.Box(-12, 12, max_rows=100),
        neighbours="add-remove",
        noise=noise,
        noise_seed=7,
    )


def fitted(model: str, **more: Any) -> dict[str, np.ndarray]:
    """Return history and centers of one fit."""
    with np.errstate(all="ignore"):
        fit = getattr(privfed, model)(4, random_state=3, **{**words(model), **more}).fit(clients())
    inertia = np.nan if fit.inertia_ is None else fit.inertia_
    return {"history": np.stack(fit.history_), "inertia": np.array([inertia])}


def judged(index: str, **options: Any) -> dict[str, np.ndarray]:
    """Return a validity index at fixed centers."""
    centers = clients()[5][:4]
    return {"value": np.array([getattr(metrics, index)(clients(), centers, **options)])}


def scaled() -> dict[str, np.ndarray]:
    """Return what the scaler learns."""
    scaler = privfed.FederatedScaler().fit(clients())
    return {"mean": np.asarray(scaler.mean_), "scale": np.asarray(scaler.scale_)}


def cases() -> Iterator[tuple[str, Callable[[], dict[str, np.ndarray]]]]:
    """Yield all cases by name."""
    models = [one for one in ("DWFKMeans", "EWFKMeans", "WFKMeans", "KFED", "FKM")]
    models += ["FederatedMiniBatchKMeans", "FederatedFuzzyCMeans"]
    for model in models:
        for protocol in SUMS:
            yield f"{model} {protocol}", lambda m=model, p=protocol: fitted(m, protocol=p)
    for init in ("kfed", "random"):
        yield f"DWFKMeans init={init}", lambda i=init: fitted("DWFKMeans", init=i)
    for averaging in ("kmeans", "weighted"):
        yield (
            f"FederatedFuzzyCMeans averaging={averaging}",
            lambda a=averaging: fitted("FederatedFuzzyCMeans", averaging=a),
        )
    yield "FKM merge=gathered", lambda: fitted("FKM", merge="gathered", protocol="plain")
    yield "FKM merge=slotted", lambda: fitted("FKM", merge="slotted", protocol=Slotted(Masked(), sums=5))
    for unit in ("record", "client"):
        yield f"DPKMeans {unit}", lambda u=unit: fitted("DPKMeans", privacy=privacy(unit=u))
    yield "DPKMeans local noise", lambda: fitted("DPKMeans", privacy=privacy("local"))
    yield "DPKMeans plain", lambda: fitted("DPKMeans", privacy=privacy(), protocol="plain")
    fuzzy = {"averaging": "weighted", "local_iter": 1}
    yield "FederatedFuzzyCMeans private", lambda: fitted("FederatedFuzzyCMeans", privacy=privacy(), **fuzzy)
    for index in ("inertia", "simplified_silhouette", "davies_bouldin", "fuzzy_davies_bouldin"):
        yield index, lambda i=index: judged(i)
        yield f"{index} private", lambda i=index: judged(i, privacy=privacy())
    yield "scaler", scaled


def computed() -> dict[str, np.ndarray]:
    """Return all arrays of all cases."""
    return {f"{name}|{key}": value for name, case in cases() for key, value in case().items()}


def main() -> int:
    """Record, or compare to the last bit."""
    found = computed()
    if "--record" in sys.argv:
        np.savez_compressed(STORED, **found)
        return 0
    with np.load(STORED) as stored:
        wrong = [n for n in stored.files if n not in found or stored[n].tobytes() != found[n].tobytes()]
        print(f"{len(stored.files) - len(wrong)} of {len(stored.files)} arrays equal to the last bit")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
