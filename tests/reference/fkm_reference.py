"""Federated k-means with a varying number of clusters a client (FKM), slowly and word for word.

An oracle for tests: Algorithm 1 of Garst and Reinders, "Federated K-Means clustering" (arXiv:2310.01195v2),
and, where the paper is silent, what the authors' code was seen to do. It imports nothing of privfed, and it
is written to be seen to be right: plain loops over rounds, clients, points and clusters, one value at a time.

What is random comes in from outside: the seeds of a client at the start, the start of a merge.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Answer = tuple[FloatArray, list[int]]
"""A client's means, shape (k_i, d), and the number of points of each; k_i may be 0."""


def nearest(point: FloatArray, centers: Sequence[FloatArray]) -> int:
    """Return the position of a point's nearest centre; of equally near ones, the first."""
    best = 0
    best_distance = float("inf")
    for j in range(len(centers)):
        distance = 0.0
        for a, b in zip(point.tolist(), centers[j].tolist(), strict=True):
            distance += (a - b) * (a - b)
        if distance < best_distance:
            best = j
            best_distance = distance
    return best


def step_and_drop(X: FloatArray, centers: Sequence[FloatArray], p: int) -> Answer:
    """Do one k-means step from centres that all have points, count anew, drop what is too small.

    Args:
        X: A client's points, shape (n, d).
        centers: Centres, each of shape (d,); every one is the nearest of at least one point.
        p: Means that fewer points are nearest to are dropped.
    """
    groups: list[list[FloatArray]] = [[] for _ in centers]
    for x in X:
        groups[nearest(x, centers)].append(x)
    means = []
    for group in groups:
        total = np.zeros(X.shape[1])
        for x in group:
            total = total + x
        means.append(total / len(group))
    # The sizes are of the labels that the moved means give, not of those that moved them.
    sizes = [0] * len(means)
    for x in X:
        sizes[nearest(x, means)] += 1
    kept_means = []
    kept_sizes = []
    for mean, size in zip(means, sizes, strict=True):
        if size >= p:
            kept_means.append(mean)
            kept_sizes.append(size)
    return np.array(kept_means).reshape(-1, X.shape[1]), kept_sizes


def start_answer(X: FloatArray, seeds: FloatArray, p: int) -> Answer:
    """Return what a client sends at the start (line 4): one step from k-means++ seeds among its points.

    A seed that is a copy of an earlier one has no points and is left out.
    """
    return round_answer(X, seeds, p)


def round_answer(X: FloatArray, global_means: FloatArray, p: int) -> Answer:
    """Return what a client sends in a round (lines 13 to 18).

    Args:
        X: Its points, shape (n, d).
        global_means: Global means, shape (k, d).
        p: Means that fewer points are nearest to are dropped.
    """
    has_points = [False] * len(global_means)
    for x in X:
        has_points[nearest(x, list(global_means))] = True
    held = [global_means[j] for j in range(len(global_means)) if has_points[j]]
    return step_and_drop(X, held, p)


def merge(answers: Sequence[Answer], start: FloatArray) -> FloatArray:
    """Return the weighted k-means of all clients' means (equation 1) from a given start, run until it rests.

    A centre without means stays where it is.
    """
    centers = [row for row in start]
    while True:
        d = start.shape[1]
        totals = [np.zeros(d) for _ in centers]
        weights = [0.0 for _ in centers]
        for means, sizes in answers:
            for mean, size in zip(means, sizes, strict=True):
                j = nearest(mean, centers)
                totals[j] = totals[j] + size * mean
                weights[j] = weights[j] + size
        moved = []
        for j in range(len(centers)):
            moved.append(totals[j] / weights[j] if weights[j] > 0 else centers[j])
        if all(np.abs(a - b).max() < 1e-13 for a, b in zip(moved, centers, strict=True)):
            return np.array(moved)
        centers = moved


def fit(
    clients: Sequence[FloatArray],
    start: FloatArray,
    rounds: int,
    p: int = 2,
    schedule: Sequence[Sequence[int]] | None = None,
) -> list[FloatArray]:
    """Run rounds whose merges start from the current global means; return these, the start first.

    The authors begin each merge anew; from the same start a merge is the same k-means.

    Args:
        clients: Each client's points, shape (n_i, d).
        start: Global means that the first round begins from, shape (k, d).
        rounds: How many rounds.
        p: Means that fewer points are nearest to are dropped.
        schedule: For each round the clients that take part; none for all. It begins again when it is used up.
    """
    history = [start]
    for t in range(rounds):
        members = range(len(clients)) if schedule is None else schedule[t % len(schedule)]
        answers = [round_answer(clients[i], history[-1], p) for i in members]
        history.append(merge(answers, history[-1]))
    return history
