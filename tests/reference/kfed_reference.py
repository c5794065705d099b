"""One-shot federated k-means (k-FED), slowly and word for word.

An oracle for tests: the local method of Awasthi and Sheffet and the server of Dennis, Li and Smith,
"Heterogeneity for the Win" (ICML 2021), and, where the paper is silent, what the authors' code was seen to
do. It imports nothing of privfed; plain loops, one value at a time.

Where it differs from the authors' code, it does so because the project defines it so: rows are projected to
min(k', d) dimensions (theirs fails for d < k'), and a client with too few rows is left out by the caller.
What is random comes in from outside: which of a client's rows are the seeds.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def distance(a: FloatArray, b: FloatArray) -> float:
    """Return the Euclidean distance of two points."""
    total = 0.0
    for one, other in zip(a.tolist(), b.tolist(), strict=True):
        total += (one - other) ** 2
    return float(total**0.5)


def nearest(point: FloatArray, centers: Sequence[FloatArray]) -> int:
    """Return the position of a point's nearest centre; of equally near ones, the first."""
    distances = [distance(point, center) for center in centers]
    return distances.index(min(distances))


def lloyd(X: FloatArray, start: Sequence[FloatArray]) -> tuple[list[FloatArray], list[int]]:
    """Do Lloyd steps until no label changes; a centre without points stays. Return centres and labels."""
    centers = list(start)
    labels: list[int] = []
    while True:
        now = [nearest(x, centers) for x in X]
        if now == labels:
            return centers, labels
        labels = now
        for j in range(len(centers)):
            own = [x for x, label in zip(X, labels, strict=True) if label == j]
            if own:
                total = np.zeros(X.shape[1])
                for x in own:
                    total = total + x
                centers[j] = total / len(own)


def split_start(X: FloatArray, seeds: Sequence[int]) -> list[FloatArray]:
    """Return where a client's Lloyd steps begin: projection, 1:3 split, back to all dimensions.

    Args:
        X: A client's points, shape (n, d).
        seeds: Positions of the points that are the seeds, as many as clusters.
    """
    dimensions = min(len(seeds), X.shape[1], X.shape[0])
    directions = np.linalg.svd(X)[2][:dimensions]
    projected = np.array([[float(x @ direction) for direction in directions] for x in X])
    start = []
    for r in seeds:
        near = []
        for a in projected:
            third = True
            for s in seeds:
                if s != r and 3 * distance(a, projected[r]) > distance(a, projected[s]):
                    third = False
            if third:
                near.append(a)
        mean = sum(near[1:], near[0]) / len(near) if near else projected[r]
        start.append(np.asarray(mean @ directions, dtype=np.float64))
    return start


def local_centroids(X: FloatArray, seeds: Sequence[int], p: int) -> FloatArray:
    """Return a client's centroids of at least `p` points, shape (k_i, d)."""
    centers, labels = lloyd(X, split_start(X, seeds))
    kept = [center for j, center in enumerate(centers) if labels.count(j) >= p]
    return np.array(kept).reshape(-1, X.shape[1])


def server_start(centroids: Sequence[FloatArray], k: int, n_first: int) -> list[FloatArray]:
    """Return the first client's centroids and then, one by one, the one farthest from all taken before.

    Args:
        centroids: Each client's centroids, shape (k_i, d); the first has at least one.
        k: How many are wanted.
        n_first: The most that are taken of the first client.
    """
    taken = [row for row in centroids[0][: min(n_first, k)]]
    others = [row for row in centroids[0][len(taken) :]]
    for own in centroids[1:]:
        others.extend(row for row in own)
    while len(taken) < k:
        gaps = [min(distance(row, one) for one in taken) for row in others]
        taken.append(others.pop(gaps.index(max(gaps))))
    return taken


def server(centroids: Sequence[FloatArray], k: int, n_first: int) -> FloatArray:
    """Return the server's clusters: k-means of all centroids, unweighted, from `server_start`."""
    together = np.concatenate([own for own in centroids])
    return np.array(lloyd(together, server_start(centroids, k, n_first))[0])
