"""Dynamically and equally weighted federated k-means (DWF, EWF), slowly and word for word.

An oracle for tests: equations 1 to 8 and Algorithms 1 to 4 of Holzer, Jacob and Kavane, "Dynamically
Weighted Federated k-Means", and, where the paper is silent, what the authors' code does. It imports nothing
of privfed, and it is written to be seen to be right: plain loops over rounds, clients, steps and clusters.

Where this oracle differs from the authors' code, it does so because the project defines it so:

- rounds count from 1 and `min_iter` is the number of rounds that must be done before a run may stop (the
  authors count from 0: their `min_iter_global=16` is `min_iter=17` here);
- `local_tol=None` means that a client never stops early (the authors then use the global tolerance);
- the participants come from a schedule, not from a random generator;
- everything is float64 (the authors' "sklearn" backend assigns in float32).
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans

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
    distances: FloatArray = np.empty((len(X), len(centers)))
    for j in range(len(centers)):
        distances[:, j] = np.linalg.norm(X - centers[j], axis=1)
    return np.asarray(np.argmin(distances, axis=1), dtype=np.int64)


def lloyd_step(X: FloatArray, centers: FloatArray) -> FloatArray:
    """Do one step of Lloyd's method (equation 1); a centre without points stays where it is.

    Args:
        X: Points, shape (n, d).
        centers: Centres, shape (k, d).

    Returns:
        The moved centres, shape (k, d).
    """
    labels = assign(X, centers)
    moved = centers.copy()
    for j in range(len(centers)):
        points = X[labels == j]
        if len(points) > 0:
            moved[j] = points.mean(axis=0)
    return moved


def local_update(
    X: FloatArray, centers: FloatArray, local_iter: int, local_tol: float | None
) -> tuple[FloatArray, FloatArray]:
    """Do what a client does in one round (Algorithm 2).

    Args:
        X: The client's points, shape (n, d).
        centers: The centres it received, shape (k, d).
        local_iter: How many Lloyd steps it does at most.
        local_tol: It stops after a step that moved the centres by less than this, strictly (Frobenius norm);
            None: never.

    Returns:
        The local centres, shape (k, d), and the number of the client's points at each *received* centre
        (equation 7), shape (k,), whole numbers as floats.
    """
    labels = assign(X, centers)
    counts = np.zeros(len(centers))
    for j in range(len(centers)):
        counts[j] = np.sum(labels == j)

    local = centers.copy()
    for _ in range(local_iter):
        moved = lloyd_step(X, local)
        movement = float(np.linalg.norm(local - moved))
        local = moved
        if local_tol is not None and movement < local_tol:
            break
    return local, counts


def aggregate(list_of_centers: Sequence[FloatArray], list_of_weights: Sequence[FloatArray]) -> FloatArray:
    """Average the participants' local centres (equations 3 and 4).

    A centre whose weights are all zero becomes the plain mean of its local centres over all participants.
    That is not always where it was: in their later local steps clients may have moved a centre that had no
    points at first. (Algorithm 3 divides by the zero total there; equation 4 and the authors' code do not.)

    Args:
        list_of_centers: For each participant its local centres, shape (k, d).
        list_of_weights: For each participant the weight of each of its centres, shape (k,), none negative.

    Returns:
        The averaged centres, shape (k, d).
    """
    n_participants = len(list_of_centers)
    averaged = np.zeros_like(list_of_centers[0])
    for j in range(len(averaged)):
        total = 0.0
        for weights in list_of_weights:
            total += weights[j]
        for centers, weights in zip(list_of_centers, list_of_weights, strict=True):
            share = weights[j] / total if total > 0 else 1 / n_participants
            averaged[j] += share * centers[j]
    return averaged


def fit(
    clients: Sequence[FloatArray],
    start: FloatArray,
    *,
    weights: Literal["dynamic", "equal"] = "dynamic",
    local_iter: int,
    local_tol: float | None = None,
    learning_rate: float = 1.0,
    momentum: float = 0.0,
    tol: float,
    max_iter: int,
    min_iter: int = 1,
    patience: int | None = None,
    schedule: Sequence[Sequence[int]] | None = None,
) -> list[FloatArray]:
    """Run weighted federated k-means once from a given start (Algorithm 1 without its restarts).

    The centres move by equation 6; before the first round they count as not having moved. Rounds count from
    1, and after round t a run stops, if t >= `min_iter`, when

    - that round's movement (Frobenius norm) was less than `tol`, strictly, or
    - `patience` movements are on record and the oldest of the last `patience` of them is the smallest (ties
      count: a movement that only stays the same has not decreased). As in the authors' code only movements of
      rounds that may stop the run, t >= `min_iter`, are put on record.

    Args:
        clients: For each client its points, shape (n_i, d).
        start: The centres at the start, shape (k, d).
        weights: "dynamic" (DWF, equation 7) or "equal" (EWF, equation 8).
        local_iter: How many Lloyd steps a client does at most in a round.
        local_tol: See `local_update`.
        learning_rate: Eta in equation 6.
        momentum: Mu in equation 6.
        tol: See above; with 0 (and no patience) all `max_iter` rounds are done.
        max_iter: How many rounds are done at most.
        min_iter: How many rounds are done at least (where `max_iter` allows it).
        patience: See above; None: no such rule.
        schedule: For each round the positions of the clients that take part; None: always all.

    Returns:
        The centres at the start and after each round: one array of shape (k, d) more than rounds were done.

    Raises:
        ValueError: If `weights` is neither word, or the schedule is too short or names nobody for a round.
    """
    if weights not in ("dynamic", "equal"):
        raise ValueError(f"weights must be 'dynamic' or 'equal', not {weights!r}")
    current = np.array(start, dtype=np.float64)
    previous = current.copy()
    history = [current]
    movements: list[float] = []

    for t in range(1, max_iter + 1):
        if schedule is None:
            participants = list(range(len(clients)))
        elif t <= len(schedule):
            participants = list(schedule[t - 1])
        else:
            raise ValueError(f"the schedule ends before round {t}")
        if not participants:
            raise ValueError(f"nobody takes part in round {t}")

        list_of_centers = []
        list_of_weights = []
        for i in participants:
            local, counts = local_update(clients[i], current, local_iter, local_tol)
            list_of_centers.append(local)
            if weights == "dynamic":
                list_of_weights.append(counts)
            else:
                list_of_weights.append(np.full(len(current), 1 / len(participants)))
        averaged = aggregate(list_of_centers, list_of_weights)

        # Equation 6, in the form in which a learning rate of 1 gives exactly the average.
        new = learning_rate * averaged + (1 - learning_rate) * current + momentum * (current - previous)
        movement = float(np.linalg.norm(new - current))
        previous = current
        current = new
        history.append(current)

        if t >= min_iter:
            if movement < tol:
                break
            movements.append(movement)
            if patience is not None and len(movements) >= patience:
                window = movements[-patience:]
                if window[0] == min(window):
                    break
    return history


def sse(X: FloatArray, centers: FloatArray) -> float:
    """Return the sum of the points' squared distances to their nearest centres.

    Args:
        X: Points, shape (n, d).
        centers: Centres, shape (k, d).

    Returns:
        The sum of squared distances.
    """
    labels = assign(X, centers)
    total = 0.0
    for j in range(len(centers)):
        total += float(np.sum((X[labels == j] - centers[j]) ** 2))
    return total


def pooled_score(clients: Sequence[FloatArray], centers: FloatArray) -> float:
    """Return the sum of squared distances over all clients' points, divided by their number.

    This is the score in the paper's tables and the one that the authors' code chooses restarts by.

    Args:
        clients: For each client its points, shape (n_i, d).
        centers: Centres, shape (k, d).

    Returns:
        The score.
    """
    total = 0.0
    n_points = 0
    for X in clients:
        total += sse(X, centers)
        n_points += len(X)
    return total / n_points


def mean_client_score(clients: Sequence[FloatArray], centers: FloatArray) -> float:
    """Return the plain mean over clients of each client's score on its own points (Algorithm 4, all answer).

    Args:
        clients: For each client its points, shape (n_i, d), n_i > 0.
        centers: Centres, shape (k, d).

    Returns:
        The score.
    """
    total = 0.0
    for X in clients:
        total += sse(X, centers) / len(X)
    return total / len(clients)


def majority_accuracy(labels_true: Sequence[Hashable], labels_pred: Sequence[Hashable]) -> float:
    """Return the share of points whose label is the commonest one in their cluster.

    Several clusters may stand for the same label: this is no one-to-one matching. Which of equally common
    labels a cluster stands for makes no difference to the share.

    Args:
        labels_true: For each point its label.
        labels_pred: For each point its cluster.

    Returns:
        The share of points, from 0 to 1.
    """
    votes: dict[Hashable, Counter[Hashable]] = {}
    for label, cluster in zip(labels_true, labels_pred, strict=True):
        votes.setdefault(cluster, Counter())[label] += 1
    right = 0
    for counter in votes.values():
        right += max(counter.values())
    return right / len(labels_true)


def kfed_start(
    clients: Sequence[FloatArray],
    k: int,
    rng: np.random.Generator,
    *,
    server: Literal["farthest", "kmeans"] = "farthest",
) -> FloatArray:
    """Choose a start in the way of k-FED: k-means at each client, then k-means over the clients' centres.

    Every client takes part. One with fewer than k points sends its points themselves, as in the authors'
    code: the privacy trap is part of what is imitated. (Their class `KFed` leaves such a client out.)

    Args:
        clients: For each client its points, shape (n_i, d).
        k: The number of centres.
        rng: Where the seeds of all k-means runs are drawn from.
        server: "farthest": the server's k-means starts at the first client's first centre and then, again and
            again, at that centre which lies farthest from those chosen so far. "kmeans": it starts by
            k-means++ and keeps the best of 5 runs, which is what the DWF authors' code does.

    Returns:
        The start, shape (k, d).

    Raises:
        ValueError: If `server` is neither word.
    """
    sent = []
    for X in clients:
        if len(X) < k:
            sent.append(np.asarray(X, dtype=np.float64))
            continue
        local = KMeans(n_clusters=k, n_init=5, random_state=int(rng.integers(2**31)))
        sent.append(np.asarray(local.fit(X).cluster_centers_, dtype=np.float64))
    union = np.concatenate(sent)

    seed = int(rng.integers(2**31))
    if server == "kmeans":
        merged = KMeans(n_clusters=k, n_init=5, random_state=seed).fit(union)
    elif server == "farthest":
        chosen = [union[0]]
        while len(chosen) < k:
            nearest = np.full(len(union), np.inf)
            for center in chosen:
                nearest = np.minimum(nearest, np.linalg.norm(union - center, axis=1))
            chosen.append(union[np.argmax(nearest)])
        merged = KMeans(n_clusters=k, init=np.array(chosen), n_init=1, random_state=seed).fit(union)
    else:
        raise ValueError(f"server must be 'farthest' or 'kmeans', not {server!r}")
    return np.asarray(merged.cluster_centers_, dtype=np.float64)
