"""Federated mini-batch k-means, slowly and word for word.

An oracle for tests: Algorithm 1 of Triebe and Rajagopal, "Federated K-Means: Clustering Algorithm and Proof
of Concept" (2019), and, where the paper is silent or divides by zero, what the authors' code does. It imports
nothing of privfed, and it is written to be seen to be right: plain loops over rounds, clients, epochs,
batches and clusters.

Everything random is handed in: the start, the participants of each round, the generator of each client's
batches and the positions that small clusters are moved to. (The authors draw them from global states, and
their code ignores the batch size.)
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def assign(X: FloatArray, centers: FloatArray) -> IntArray:
    """Return the position of each point's nearest centre; of equally near ones, the first.

    Args:
        X: Points, shape (n, d).
        centers: Centres, shape (k, d).

    Returns:
        Labels, shape (n,).
    """
    squares = np.zeros((len(X), len(centers)))
    for k in range(len(centers)):
        squares[:, k] = ((X - centers[k]) ** 2).sum(axis=1)
    return np.asarray(np.argmin(squares, axis=1), dtype=np.int64)


def client_kmeans(
    X: FloatArray,
    centers: FloatArray,
    *,
    epochs: int,
    beta: float,
    batch_size: int | None = None,
    generator: np.random.Generator | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Do what a client does in one round (procedure ClientKMeans of Algorithm 1).

    Args:
        X: The client's points, shape (n, d).
        centers: The centres it received, shape (k, d).
        epochs: E.
        beta: The client's learning rate.
        batch_size: B; None: all points are one batch.
        generator: Shuffles the points once and the order of the batches in each epoch, where there is more
            than one batch.

    Returns:
        The sizes of the clusters in the last epoch, shape (k,), and the local centres, shape (k, d).
    """
    batches = [X]
    if batch_size is not None and len(X) > batch_size:
        assert generator is not None
        shuffled = X[generator.permutation(len(X))]
        batches = []
        for first in range(0, len(X), batch_size):
            batches.append(shuffled[first : first + batch_size])

    local = centers.copy()
    sizes = np.zeros(len(centers))
    for _ in range(epochs):
        sizes = np.zeros(len(centers))
        order = [0]
        if len(batches) > 1:
            assert generator is not None
            order = generator.permutation(len(batches)).tolist()
        for b in order:
            labels = assign(batches[b], local)
            before = local.copy()
            for k in range(len(centers)):
                points = batches[b][labels == k]
                size_in_batch = len(points)
                if size_in_batch > 0:
                    sizes[k] += size_in_batch
                    step = (points - before[k]).sum(axis=0) / size_in_batch
                    local[k] = before[k] + beta * size_in_batch / sizes[k] * step
    return sizes, local


def fit(
    clients: Sequence[FloatArray],
    start: FloatArray,
    *,
    rounds: int,
    epochs: int = 1,
    beta: float = 1.0,
    alpha: float = 1.0,
    momentum: float = 0.0,
    batch_size: int | None = None,
    schedule: Sequence[Sequence[int]] | None = None,
    generators: Callable[[int, int], np.random.Generator] | None = None,
    reassign_min: float = 0.01,
    reassign_after: int | None = None,
    positions: Iterator[FloatArray] | None = None,
) -> tuple[list[FloatArray], list[tuple[int, int]]]:
    """Run federated mini-batch k-means from a given start.

    Args:
        clients: For each client its points, shape (n_i, d).
        start: The centres at the start, shape (k, d).
        rounds: T; the authors' code always does all of them.
        epochs: E.
        beta: The clients' learning rate.
        alpha: The server's learning rate.
        momentum: Mu of m = mu m + (1 - mu) alpha update; 0 is the paper's algorithm.
        batch_size: B; None: all points are one batch.
        schedule: For each round the positions of the clients that take part, used again from the first when
            it is used up; None: always all.
        generators: Round (from 1) and position of a client -> the generator of its batches.
        reassign_min: A cluster is small if it has less than this share of the points counted in the round.
        reassign_after: In so many rounds in a row a cluster must have been small to be moved; None: never.
        positions: Where the clusters are moved to, one after the other, each of shape (d,).

    Returns:
        The centres at the start and after each round, and which clusters were moved: (round, cluster).
    """
    current = np.array(start, dtype=np.float64)
    smoothed = np.zeros_like(current)
    small_for = [0] * len(current)
    history = [current.copy()]
    moved = []

    for t in range(1, rounds + 1):
        participants = list(range(len(clients)))
        if schedule is not None:
            participants = list(schedule[(t - 1) % len(schedule)])

        total_sizes = np.zeros(len(current))
        total_movement = np.zeros_like(current)
        for i in participants:
            sizes, local = client_kmeans(
                clients[i],
                current,
                epochs=epochs,
                beta=beta,
                batch_size=batch_size,
                generator=None if generators is None else generators(t, i),
            )
            total_sizes += sizes
            for k in range(len(current)):
                total_movement[k] += sizes[k] * (local[k] - current[k])

        update = np.zeros_like(current)
        for k in range(len(current)):
            # The paper divides by zero where a cluster has no points; in the authors' code it stays.
            update[k] = total_movement[k] / max(total_sizes[k], 1)
        smoothed = momentum * smoothed + (1 - momentum) * alpha * update
        current = current + smoothed

        if reassign_after is not None:
            for k in range(len(current)):
                if total_sizes[k] < total_sizes.sum() * reassign_min:
                    small_for[k] += 1
                else:
                    small_for[k] = 0
                if small_for[k] >= reassign_after:
                    assert positions is not None
                    current[k] = next(positions)
                    smoothed[k] = 0.0
                    small_for[k] = 0
                    moved.append((t, k))
        history.append(current.copy())
    return history, moved


def mean_distance(X: FloatArray, centers: FloatArray) -> float:
    """Return the mean Euclidean distance of the points to their nearest centres (section 2.2).

    Args:
        X: Points, shape (n, d).
        centers: Centres, shape (k, d).

    Returns:
        The mean distance.
    """
    labels = assign(X, centers)
    total = 0.0
    for j in range(len(X)):
        total += float(np.linalg.norm(X[j] - centers[labels[j]]))
    return total / len(X)


def davies_bouldin(X: FloatArray, centers: FloatArray) -> float:
    """Return the Davies-Bouldin index of section 2.2; clusters without points are left out.

    Args:
        X: Points, shape (n, d).
        centers: Centres, shape (k, d), at least two of them with points.

    Returns:
        The index.
    """
    labels = assign(X, centers)
    spreads = {}
    for k in range(len(centers)):
        points = X[labels == k]
        if len(points) > 0:
            spreads[k] = float(np.mean([np.linalg.norm(point - centers[k]) for point in points]))
    worst = []
    for k in spreads:
        ratios = []
        for j in spreads:
            if j != k:
                ratios.append((spreads[k] + spreads[j]) / float(np.linalg.norm(centers[k] - centers[j])))
        worst.append(max(ratios))
    return sum(worst) / len(worst)
