"""The synthetic data of the DWF k-means paper (its section 3.2), and how it spreads over 100 clients."""

import random
from typing import Literal

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.model_selection import train_test_split

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

N_CLIENTS = 100
N_BLOBS = 5
N_OUTLIERS = 100


def synthetic(random_state: int = 18042023) -> tuple[FloatArray, IntArray]:
    """Make the paper's data: five blobs of 2,000 points, then 100 points spread evenly over [-1, 1]^2.

    Args:
        random_state: Seeds the blobs; the default is the authors'. The 100 points are always the same.

    Returns:
        The points, shape (10100, 2), and their labels: 0 to 4 for the blobs, 5 for the 100 points.
    """
    blobs, blob_labels = make_blobs(
        n_samples=10_000, centers=N_BLOBS, cluster_std=0.2, center_box=(-1, 1), random_state=random_state
    )
    generator = random.Random(1)
    outliers = []
    for _ in range(N_OUTLIERS):
        x = 2 * generator.random() - 1
        y = 2 * generator.random() - 1
        outliers.append([x, y])
    points = np.concatenate([blobs, np.array(outliers)])
    labels = np.concatenate([blob_labels, np.full(N_OUTLIERS, N_BLOBS)])
    return points.astype(np.float64), labels.astype(np.int64)


def partition(
    X: FloatArray, y: IntArray, kind: Literal["iid", "half", "non-iid"], rng_seed: int
) -> tuple[list[FloatArray], list[IntArray]]:
    """Spread points over 100 clients in one of the paper's three ways.

    Args:
        X: Points, shape (n, d).
        y: Their labels, shape (n,).
        kind: "iid": shuffle and cut into 100 slices whose sizes differ by one at most. "non-iid": k-means
            with k = 100, at most 5 steps and 5 runs; each cluster is one client. "half": a random half of the
            points as in "iid", the other half as in "non-iid"; client i gets slice i, then cluster i.
        rng_seed: Seeds the shuffle and the k-means; the halves are always the same.

    Returns:
        For each client its points, shape (n_i, d), and for each client its labels, shape (n_i,).

    Raises:
        ValueError: If `kind` is none of the three words.
    """
    if kind == "iid":
        return _shuffled(X, y, rng_seed)
    if kind == "non-iid":
        return _clustered(X, y, rng_seed)
    if kind == "half":
        X_1, X_2, y_1, y_2 = train_test_split(X, y, test_size=0.5, random_state=42)
        points_1, labels_1 = _shuffled(X_1, y_1, rng_seed)
        points_2, labels_2 = _clustered(X_2, y_2, rng_seed)
        points = []
        labels = []
        for i in range(N_CLIENTS):
            points.append(np.concatenate([points_1[i], points_2[i]]))
            labels.append(np.concatenate([labels_1[i], labels_2[i]]))
        return points, labels
    raise ValueError(f"kind must be 'iid', 'half' or 'non-iid', not {kind!r}")


def _shuffled(X: FloatArray, y: IntArray, seed: int) -> tuple[list[FloatArray], list[IntArray]]:
    order = np.arange(len(X))
    # The legacy generator: the authors shuffle with np.random.seed and np.random.shuffle.
    np.random.RandomState(seed).shuffle(order)
    points = []
    labels = []
    begin = 0
    for i in range(N_CLIENTS):
        size = len(X) // N_CLIENTS
        if i < len(X) % N_CLIENTS:
            size += 1
        rows = order[begin : begin + size]
        points.append(X[rows])
        labels.append(y[rows])
        begin += size
    return points, labels


def _clustered(X: FloatArray, y: IntArray, seed: int) -> tuple[list[FloatArray], list[IntArray]]:
    k_means = KMeans(n_clusters=N_CLIENTS, max_iter=5, n_init=5, random_state=seed)
    cluster = k_means.fit(X).predict(X)
    points = []
    labels = []
    for i in range(N_CLIENTS):
        points.append(X[cluster == i])
        labels.append(y[cluster == i])
    return points, labels
