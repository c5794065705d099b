"""Measures docs/attacks/noisy-differencing.md.

`python -m tests.attacks.posterior.noisy_figures [part ...]` prints it.

Noise is a seeded run's: it repeats. Each line takes as many seeds as its part says.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from privfed import Box, DPKMeans, DWFKMeans, Privacy
from privfed.attacks import NoisyDifferencing, Prior, Report, Truth, evaluate
from privfed.attacks.posterior.noisy_differencing import NoisyPoints
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from tests.attacks.figures import mixture, real

SURE = 0.8


class Scene(NamedTuple):
    """Clients, public rows of the same kind, the declared domain, and the number of clusters."""

    clients: list[FloatArray]
    public: FloatArray
    domain: Box
    n_clusters: int


def mixed(seed: int, n: int = 20, clusters: int = 5) -> Scene:
    """Draw five clients of n rows in the plane; the public rows are as many others."""
    clients, others = mixture(seed, n, 2, clients=5)
    return Scene(clients, np.concatenate(others), Box(-12.0, 12.0, max_rows=5 * n), clusters)


def cancer(seed: int) -> Scene:
    """Deal breast_cancer out to five clients of 95 rows; the public rows are a sixth share."""
    *clients, public = real("breast_cancer", seed, 6)
    return Scene(clients, public, Box(-5.0, 5.0, max_rows=200), 3)


def iris(seed: int) -> Scene:
    """Deal iris out to five clients of 25 rows; the public rows are a sixth share."""
    *clients, public = real("iris", seed, 6)
    return Scene(clients, public, Box(-4.0, 4.0, max_rows=50), 3)


def viewed(
    scene: Scene,
    epsilon: float,
    seed: int,
    *,
    local: bool = True,
    kind: Any = DPKMeans,
    neighbours: Literal["add-remove", "replace-one"] = "add-remove",
) -> View:
    """Return what the server sees of a fit: local noise through plain sums, or shared through masked ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        privacy = Privacy(
            epsilon=epsilon,
            delta=1e-6,
            unit="record",
            domain=scene.domain,
            neighbours=neighbours,
            noise="local" if local else "distributed",
            noise_seed=seed,
        )
        own = {"local_iter": 1} if kind is DWFKMeans else {}
        protocol = "plain" if local else "masked"
        model = kind(scene.n_clusters, privacy=privacy, protocol=protocol, random_state=seed, **own)
        view: View = model.fit(scene.clients).transcript_.view("server")
        return view


def found(
    scene: Scene, epsilon: float, seed: int, *, client: int | None = 0, kind: Any = DPKMeans, **words: Any
) -> NoisyPoints:
    """Attack local noise through plain sums, or for totals shared noise through masked ones."""
    view = viewed(scene, epsilon, seed, local=client is not None, kind=kind)
    attack = NoisyDifferencing(client, **words)
    return attack.run(view, Prior(sample=scene.public), np.random.default_rng(seed))


def attacked(scene: Scene, epsilon: float, seed: int, **words: Any) -> Report:
    """Attack, and score claims within .05 standard deviations."""
    return evaluate(found(scene, epsilon, seed, **words), Truth(scene.clients, tolerance=0.05))


def line(name: str, reports: list[Report]) -> None:
    """Print means over seeds, pooled precision, and the seconds of the middle seed."""
    claims = sum(one.claims for one in reports)
    right = sum(one.recovered * one.details["rows"] for one in reports)
    means = {
        name: float(np.mean([one.details[name] for one in reports]))
        for name in (
            "matched rmse / sd",
            "matched rmse / sd, no access",
            "mu of what was seen",
            "chains that explain the sums",
        )
    }
    print(
        f"{name:<52} recovered {np.mean([one.recovered for one in reports]):.3f}",
        f"no access {np.mean([one.baseline for one in reports]):.3f}",
        f"bound {np.mean([one.bound for one in reports]):.3f}",
        f"claims {claims / len(reports):.1f} precision {right / claims if claims else float('nan'):.2f}",
        *(f"{key}: {value:.3f}" for key, value in means.items()),
        f"seconds {np.median([one.seconds for one in reports]):.0f}",
        sep=", ",
        flush=True,
    )


def curve(
    name: str, make: Callable[[int], Scene], epsilons: tuple[float, ...], seeds: int, **words: Any
) -> None:
    """Attack along epsilon: all rows where they are likeliest, and those of them that are sure."""
    for epsilon in epsilons:
        everything, sure = [], []
        for seed in range(seeds):
            scene = make(seed)
            all_rows = found(scene, epsilon, seed, confidence=0.0, **words)
            kept = np.asarray(all_rows.confidence) >= SURE
            chosen = replace(all_rows, points=all_rows.points[kept])
            truth = Truth(scene.clients, tolerance=0.05)
            everything.append(evaluate(all_rows, truth))
            sure.append(evaluate(chosen, truth))
        line(f"{name}, epsilon {epsilon:g}, all rows", everything)
        line(f"{name}, epsilon {epsilon:g}, sure", sure)


def local() -> None:
    """One client of 20 rows in the plane, its own noised answers."""
    curve("mixture, local noise", mixed, (1.0, 10.0, 100.0, 1000.0, 1e4), 10, n_sweeps=60)


def many() -> None:
    """The same clients, and 12 clusters: more cells."""
    curve("mixture, 12 clusters", lambda seed: mixed(seed, clusters=12), (1000.0, 1e4), 10, n_sweeps=60)


def dwf() -> None:
    """The same clients, DWF k-means."""
    curve("mixture, DWF", mixed, (1.0, 1000.0), 3, kind=DWFKMeans, n_sweeps=60)


def totals() -> None:
    """All 100 rows of five clients, from masked totals."""
    curve("mixture, masked totals", mixed, (1.0, 1000.0), 2, client=None, n_sweeps=30)


def flowers() -> None:
    """One client of 25 rows of iris."""
    curve("iris, local noise", iris, (1.0, 1000.0), 3, n_sweeps=60)


def breast() -> None:
    """One client of 95 rows of breast_cancer."""
    curve("breast_cancer, local noise", cancer, (1.0, 1000.0), 2, n_sweeps=40)


PARTS: dict[str, Callable[[], None]] = {
    one.__name__: one for one in (local, many, dwf, totals, flowers, breast)
}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
