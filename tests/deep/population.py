"""Clients of three kinds, whose labels mean different things: what one model cannot learn."""

import numpy as np

from privfed.deep.estimators.base import FederatedModel

KINDS = 3


def clients(n: int = 9, rows: int = 40, seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return rows in [0, 1]^4 and labels of three classes; client i is of kind i % 3."""
    rng = np.random.default_rng(seed)
    features = [rng.uniform(size=(rows, 4)) for _ in range(n)]
    scores = [one[:, :3] + 0.2 * one[:, 3:] for one in features]
    return features, [(own.argmax(axis=1) + i) % KINDS for i, own in enumerate(scores)]


def kinds(n: int = 9) -> np.ndarray:
    return np.arange(n) % KINDS


def same(labels: np.ndarray, truth: np.ndarray) -> bool:
    """Say whether two labellings are the same but for the numbers."""
    return bool((np.equal.outer(labels, labels) == np.equal.outer(truth, truth)).all())


def accuracy(model: FederatedModel, X: list[np.ndarray], y: list[np.ndarray]) -> float:
    """Mean accuracy of each client's own model on its own rows."""
    own = [
        (model.predict(rows, int(label)) == labels).mean()
        for rows, labels, label in zip(X, y, model.labels_, strict=True)
    ]
    return float(np.mean(own))
