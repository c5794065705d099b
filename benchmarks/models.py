"""Accuracy of models for clusters of clients, beside one model, training alone and the true clusters.

    python -m benchmarks.models --epsilon 10 4 --images mnist.npz --out models.jsonl
    python -m benchmarks.models --drift --images mnist.npz
    python -m benchmarks.models --data sites --images mnist.npz      # for benchmarks/clustered_baselines.py

Twenty clients in four true clusters, softmax regression, 20 rounds. "turned" clusters see images turned by
quarters, "relabelled" ones have the classes renamed; "made" rows are uniform in 20 columns, with labels of
five classes by a linear rule of each cluster. With 67 rows a client images are scikit-learn's digits, else
those of `--images`, averaged to seven by seven pixels. `--drift` turns the images of clients 3 and 10 by half
in round 16 of 30. docs/algorithms/deep.md has the tables.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import adjusted_rand_score

from examples.dcfl.images import Images, digits, from_file
from examples.rdpcfl import RDPCFL
from privfed import Box, Privacy
from privfed.deep import CFL, DCFL, IFCA, FedAvg

N, TRUE = 20, np.arange(20) % 4
METHODS = ("oracle", "dcfl", "cfl", "ifca", "r-dpcfl", "fedavg", "alone")
KINDS, ROWS, DRIFTERS, DRIFT_ROUND = ("turned", "relabelled", "made"), (67, 300), (3, 10), 16


class Sites(NamedTuple):
    """Rows and labels of each client, for training and for the test."""

    train: list[tuple[np.ndarray, np.ndarray]]
    test: list[tuple[np.ndarray, np.ndarray]]
    n_classes: int


def quarters(rows: np.ndarray, times: int) -> np.ndarray:
    """Return flat images turned by so many quarters."""
    side = int(np.sqrt(rows.shape[1]))
    return np.rot90(rows.reshape(-1, side, side), times, axes=(1, 2)).reshape(len(rows), -1)


def images(path: Path | None, rows: int) -> Images:
    """Return the digits for few rows, else a file's images at seven by seven pixels."""
    if rows == ROWS[0]:
        return digits()
    if path is None:
        raise SystemExit(f"{rows} rows a client need --images, e.g. MNIST as one .npz.")
    whole = from_file(path)
    side = whole.side // 7
    small = whole.rows.reshape(-1, 7, side, 7, side).mean(axis=(2, 4)).reshape(-1, 49)
    return Images(small, whole.labels)


def sites(kind: str, rows: int, seed: int, path: Path | None) -> Sites:
    """Draw the clients of a seed."""
    rng = np.random.default_rng(seed)
    train, test = [], []
    if kind == "made":
        rules = [rng.normal(size=(20, 5)) for _ in range(4)]
        for cluster in TRUE:
            X = rng.uniform(size=(rows + 100, 20))
            y = ((X - 0.5) @ rules[cluster] + 0.3 * rng.normal(size=(rows + 100, 5))).argmax(axis=1)
            train.append((X[:rows], y[:rows]))
            test.append((X[rows:], y[rows:]))
        return Sites(train, test, 5)
    drawn = images(path, rows)
    order = rng.permutation(len(drawn.rows))
    names = [rng.permutation(10) for _ in range(4)]
    each = rows + (22 if rows == ROWS[0] else 100)
    for client, cluster in enumerate(TRUE):
        own = order[client * each : (client + 1) * each]
        X, y = drawn.rows[own], drawn.labels[own]
        X, y = (quarters(X, int(cluster)), y) if kind == "turned" else (X, names[cluster][y])
        train.append((X[:rows], y[:rows]))
        test.append((X[rows:], y[rows:]))
    return Sites(train, test, 10)


def written(path: Path, drawn: Sites) -> None:
    """Write the clients of a seed as arrays of shape (n_clients, n_rows, ...)."""
    parts = {"train": drawn.train, "test": drawn.test}
    arrays = {
        f"{name}{part}": np.stack([one[i] for one in parts[part]])
        for part in parts
        for i, name in enumerate("Xy")
    }
    np.savez(path, n_classes=drawn.n_classes, **arrays)


def words(epsilon: float | None, n_classes: int, rows: int, seed: int, rounds: int = 20) -> dict[str, Any]:
    """Return what all methods are given."""
    common = {"n_classes": n_classes, "rounds": rounds, "protocol": "plain", "random_state": seed}
    if epsilon is None:
        return common | {"learning_rate": 0.3, "domain": Box(0, 1)}
    claim = Privacy(
        epsilon=epsilon,
        delta=1e-5,
        unit="record",
        domain=Box(0, 1),
        neighbours="add-remove",
        noise="local",
        noise_seed=seed,
    )
    steps = {"sample_rate": 0.2, "max_grad_norm": 1.0, "rows_per_client": rows, "learning_rate": 1.0}
    return common | steps | {"privacy": claim}


def method(name: str, given: dict[str, Any]) -> Any:
    """Return the estimator of a name."""
    shown = given | {"merge": "gathered"}
    if name == "fedavg":
        return FedAvg(**given, weighting="clients")
    if name == "ifca":
        return IFCA(**given, n_clusters=4)
    if name == "r-dpcfl":
        return RDPCFL(**shown, n_clusters=4)
    return {"dcfl": DCFL, "cfl": CFL}[name](**shown)


def accuracy(model: Any, test: Sequence[tuple[np.ndarray, np.ndarray]], labels: Sequence[int]) -> list[float]:
    """Return each client's accuracy by the model of its cluster."""
    return [
        float(np.mean(model.predict(X, max(int(label), 0)) == y))
        for (X, y), label in zip(test, labels, strict=True)
    ]


def measured(name: str, drawn: Sites, given: dict[str, Any]) -> tuple[float, float]:
    """Return the mean accuracy of a method, and the adjusted Rand index of its clusters."""
    X, y = ([one[i] for one in drawn.train] for i in (0, 1))
    if name in ("oracle", "alone"):
        found = np.zeros(N)
        for members in (
            [np.flatnonzero(c == TRUE) for c in range(4)] if name == "oracle" else np.arange(N)[:, None]
        ):
            model = method("fedavg", given).fit([X[i] for i in members], [y[i] for i in members])
            found[members] = accuracy(model, [drawn.test[i] for i in members], [0] * len(members))
        return float(found.mean()), float("nan")
    model = method(name, given).fit(X, y)
    return float(np.mean(accuracy(model, drawn.test, model.labels_))), adjusted_rand_score(
        TRUE, model.labels_
    )


def drift(
    name: str, rows: int, epsilon: float, seed: int, path: Path | None, rounds: int = 30
) -> dict[str, Any]:
    """Return how a method follows two clients whose images are turned by half."""
    drawn, ends = sites("turned", rows, seed, path), float(rounds + 1)
    X, y, test, new = [], [], list(drawn.test), TRUE.copy()
    for client, (own, labels) in enumerate(drawn.train):
        drifts = client in DRIFTERS
        phases = [(own, 0.0, float(DRIFT_ROUND) if drifts else ends)]
        if drifts:
            phases.append((quarters(own, 2), float(DRIFT_ROUND), ends))
            test[client] = (quarters(test[client][0], 2), test[client][1])
            new[client] = (TRUE[client] + 2) % 4
        X.append(np.vstack([np.hstack([a, np.tile([b, c], (len(a), 1))]) for a, b, c in phases]))
        y.append(np.tile(labels, len(phases)))
    given = words(epsilon, 10, rows, seed, rounds) | {"timed": True}
    model = method(name, given).fit(X, y)
    labels, found = np.array(model.labels_history_), accuracy(model, test, model.labels_)
    settled = [int(np.flatnonzero(labels[:, i] != model.labels_[i]).max(initial=-1)) + 2 for i in DRIFTERS]
    return {
        "accuracy": float(np.mean(found)),
        "drifted": float(np.mean([found[i] for i in DRIFTERS])),
        "ari": adjusted_rand_score(new, model.labels_),
        "rounds": [max(0, one - DRIFT_ROUND + 1) for one in settled],
    }


def main() -> None:
    """Measure and print, a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, nargs="*", default=[10.0])
    parser.add_argument("--no-privacy", action="store_true", help="besides: no noise, learning rate 0.3")
    parser.add_argument(
        "--methods", nargs="*", default=["oracle", "dcfl", "cfl", "ifca", "r-dpcfl", "fedavg", "alone"]
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=list(range(20, 25)))
    parser.add_argument("--rows", type=int, nargs="*", default=list(ROWS))
    parser.add_argument("--images", type=Path)
    parser.add_argument("--drift", action="store_true", help="of dcfl and r-dpcfl")
    parser.add_argument("--data", type=Path, help="write the clients into this folder, and measure nothing")
    parser.add_argument("--out", type=Path, default=Path("models.jsonl"))
    args = parser.parse_args()

    def keep(**found: Any) -> None:
        line = json.dumps(found)
        print(line, flush=True)
        with args.out.open("a") as file:
            file.write(line + "\n")

    if args.data is not None:
        args.data.mkdir(parents=True, exist_ok=True)
        for rows, kind, seed in itertools.product(args.rows, KINDS, args.seeds):
            written(args.data / f"{kind}{rows}-{seed}.npz", sites(kind, rows, seed, args.images))
        return
    named = [name for name in ("dcfl", "r-dpcfl") if name in args.methods]
    for epsilon in [*args.epsilon, *([None] if args.no_privacy else [])]:
        for rows in args.rows:
            if args.drift:
                for name, seed in itertools.product(named, args.seeds):
                    found = drift(name, rows, epsilon, seed, args.images)
                    keep(epsilon=epsilon, rows=rows, seed=seed, method=name, **found)
                continue
            for kind in KINDS:
                for name in args.methods:
                    if name == "ifca" and epsilon is not None:
                        continue  # It chooses on exact rows, and makes no claim.
                    found = [
                        measured(name, drawn, words(epsilon, drawn.n_classes, rows, seed))
                        for seed in args.seeds
                        for drawn in [sites(kind, rows, seed, args.images)]
                    ]
                    accuracies, indices = np.round(np.transpose(found), 3).tolist()
                    keep(epsilon=epsilon, kind=kind, rows=rows, method=name, accuracy=accuracies, ari=indices)


if __name__ == "__main__":
    main()
