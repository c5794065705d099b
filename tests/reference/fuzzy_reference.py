"""Federated fuzzy c-means (FedFCM) and the fuzzy Davies-Bouldin index, slowly and word for word.

An oracle for tests: equations 4 to 13 and the protocol of section 2.2.1 of Stallmann and Wilbik, "On a
Framework for Federated Cluster Analysis", Appl. Sci. 12, 2022, and, where the paper is silent, what the
authors' code does (memberships with plain distances; a client compares its memberships before and after a
step; the server's k-means starts from k-means++ in the first round and from the current global centres
afterwards; weights of federated averaging are sums of u after the local fit). It imports nothing of
privfed, and it is written to be seen to be right: plain loops over rounds, clients, clusters and pairs of
clusters.

Where this oracle differs from the authors' code, it does so because the project defines it so:

- a run stops when the *sum* of the centres' movements is below the tolerance, as the paper says (the code
  takes the Frobenius norm of all movements);
- a point that lies on centres belongs to these alone, equally (the code gives NaN);
- the first round's k-means may be given its start, so that two implementations can be compared.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans

FloatArray = npt.NDArray[np.float64]


def distances(X: FloatArray, centers: FloatArray) -> FloatArray:
    """Return Euclidean distances, shape (n, k)."""
    d = np.empty((len(X), len(centers)))
    for j in range(len(centers)):
        d[:, j] = np.sqrt(((X - centers[j]) ** 2).sum(axis=1))
    return d


def memberships(X: FloatArray, centers: FloatArray, m: float) -> FloatArray:
    """Return how much each point belongs to each centre (equation 5 with plain distances), shape (n, k)."""
    d = distances(X, centers)
    k = len(centers)
    on_center = (d == 0).any(axis=1)
    safe = np.where(on_center[:, None], 1.0, d)
    u = np.empty_like(d)
    for j in range(k):
        total = np.zeros(len(X))
        for other in range(k):
            total += (safe[:, j] / safe[:, other]) ** (2 / (m - 1))
        u[:, j] = 1 / total
    for i in np.flatnonzero(on_center):
        u[i] = (d[i] == 0) / np.sum(d[i] == 0)
    return u


def centers_of(X: FloatArray, u: FloatArray, m: float) -> FloatArray:
    """Return the weighted means of all points (equation 6), shape (k, d)."""
    centers = np.empty((u.shape[1], X.shape[1]))
    for j in range(u.shape[1]):
        weights = u[:, j] ** m
        centers[j] = (weights[:, None] * X).sum(axis=0) / weights.sum()
    return centers


def fuzzy_c_means(
    X: FloatArray, centers: FloatArray, m: float, max_iter: int, tol: float | None
) -> tuple[FloatArray, FloatArray, FloatArray, int]:
    """Run fuzzy c-means from given centres until a step changes the memberships by less than `tol`.

    Returns:
        The centres; the sums of u^m that the last step divided by; the memberships in the final centres;
        the number of steps.
    """
    u = memberships(X, centers, m)
    steps = 0
    for _ in range(max_iter):
        steps += 1
        powers = (u**m).sum(axis=0)
        centers = centers_of(X, u, m)
        previous = u
        u = memberships(X, centers, m)
        if tol is not None and np.linalg.norm(u - previous) < tol:
            break
    return centers, powers, u, steps


def k_means(points: FloatArray, k: int, start: FloatArray | None, seed: int = 43) -> FloatArray:
    """Run the server's k-means on the local centres of all clients, unweighted."""
    if start is None:
        return np.asarray(KMeans(k, n_init=10, max_iter=500, random_state=seed).fit(points).cluster_centers_)
    return np.asarray(KMeans(k, init=start, n_init=1, max_iter=500, tol=0).fit(points).cluster_centers_)


def weighted_mean(locals_: Sequence[FloatArray], weights: Sequence[FloatArray]) -> FloatArray:
    """Average local centres, cluster by cluster (federated averaging)."""
    averaged = np.zeros_like(locals_[0])
    for j in range(len(averaged)):
        total = sum(float(own[j]) for own in weights)
        for centers, own in zip(locals_, weights, strict=True):
            averaged[j] += own[j] / total * centers[j]
    return averaged


def movement(a: FloatArray, b: FloatArray) -> float:
    """Return the sum of the distances between centres and their successors (section 2.2.1)."""
    total = 0.0
    for j in range(len(a)):
        total += float(np.linalg.norm(a[j] - b[j]))
    return total


def fit(
    clients: Sequence[FloatArray],
    start: FloatArray,
    *,
    averaging: Literal["kmeans", "u^m", "u"],
    m: float = 2.0,
    local_iter: int = 1000,
    local_tol: float | None = 1e-3,
    tol: float = 1e-3,
    max_iter: int = 30,
    server_start: FloatArray | None = None,
    schedule: Sequence[Sequence[int]] | None = None,
) -> list[FloatArray]:
    """Run the protocol of section 2.2.1 and return the global centres: the start, then each round's.

    Args:
        clients: each client's points.
        start: global centres at first, shape (k, d).
        averaging: "kmeans" (the paper's), or federated averaging by the sums of u^m that the last local
            step divided by (Pedrycz; Barcena et al.) or of u after it (the authors' code).
        m: the fuzzifier.
        local_iter: most local steps.
        local_tol: tolerance of the local steps, on memberships; None: never stop early.
        tol: tolerance of the rounds, strict.
        max_iter: most rounds.
        server_start: start of the first round's k-means; None: k-means++, the best of ten.
        schedule: who takes part in each round, in turns; None: everyone.
    """
    history = [start]
    for t in range(max_iter):
        members = range(len(clients)) if schedule is None else schedule[t % len(schedule)]
        locals_ = []
        weights = []
        for i in members:
            centers, powers, u, _ = fuzzy_c_means(clients[i], history[-1], m, local_iter, local_tol)
            locals_.append(centers)
            weights.append(powers if averaging == "u^m" else u.sum(axis=0))
        if averaging == "kmeans":
            first = server_start if t == 0 else history[-1]
            moved = k_means(np.concatenate(locals_), len(start), first)
        else:
            moved = weighted_mean(locals_, weights)
        history.append(moved)
        if movement(history[-1], history[-2]) < tol:
            break
    return history


def objective(X: FloatArray, centers: FloatArray, m: float) -> float:
    """Return what fuzzy c-means minimises (equation 4)."""
    u = memberships(X, centers, m)
    d = distances(X, centers)
    total = 0.0
    for j in range(len(centers)):
        total += float((u[:, j] ** m * d[:, j] ** 2).sum())
    return total


def fuzzy_davies_bouldin(
    X: FloatArray, centers: FloatArray, m: float = 2, p: float = 2, q: float = 1
) -> float:
    """Return the fuzzy Davies-Bouldin index of pooled points (equations 7 to 11 with the spread of 12)."""
    k = len(centers)
    d = distances(X, centers)
    u = memberships(X, centers, m)
    spread = []
    for i in range(k):
        spread.append(float(u[:, i].mean() * (d[:, i] ** q).mean() ** (1 / q)))
    total = 0.0
    for i in range(k):
        ratios = []
        for j in range(k):
            if j != i:
                difference = np.abs(centers[i] - centers[j])
                apart = float(difference.max() if p == np.inf else (difference**p).sum() ** (1 / p))
                ratios.append((spread[i] + spread[j]) / apart)
        total += max(ratios)
    return total / k


def motivational(seed: int, layout: Literal["swapped", "printed"] = "swapped") -> list[FloatArray]:
    """Draw the three clients of the motivational example (section 3.2.1).

    The means that the paper prints for the third and fourth group give other tables than its own;
    exchanged ("swapped": client 2 then holds neighbouring groups) they give them.
    """
    rng = np.random.default_rng(seed)
    third, fourth = ((1, 0), (1, 1)) if layout == "swapped" else ((1, 1), (1, 0))
    groups = {1: (0, 0), 2: (0, 1), 3: third, 4: fourth}
    clients = []
    for one, other in ((1, 2), (2, 4), (3, 4)):
        large = [rng.normal(groups[group], 0.2, size=(500, 2)) for group in (one, other)]
        small = rng.normal((0.5, 0.5), 0.01, size=(40, 2))
        clients.append(np.concatenate([*large, small]))
    return clients
