"""DCFL's formulas written a second time, from the paper and with loops: what the package is compared with."""

import math

import numpy as np


def _angle(a: np.ndarray, b: np.ndarray) -> float:
    cosine = float(a @ b) / (float(np.linalg.norm(a)) * float(np.linalg.norm(b)))
    return math.acos(max(-1.0, min(1.0, cosine)))


def omega(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> float:
    """Equation 1 by its angles, of vectors that are not of length zero."""
    ab, cd = float(np.linalg.norm(b - a)), float(np.linalg.norm(d - c))
    alpha, beta = _angle(b - a, b - d), _angle(d - c, d - b)
    return (ab * math.cos(alpha) + cd * math.cos(beta)) / (ab + cd)


def distance(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> float:
    """Equation 2."""
    return float(np.linalg.norm(b - d)) * math.exp(2.0 * omega(a, b, c, d))


def dunn(distances: np.ndarray, labels: list[int]) -> float:
    """Equation 3, pair by pair."""
    pairs = [(i, j) for i in range(len(labels)) for j in range(i)]
    across = [distances[i, j] for i, j in pairs if labels[i] != labels[j]]
    within = [distances[i, j] for i, j in pairs if labels[i] == labels[j]]
    return float(min(across) / max(within))


def affinity(similarities: np.ndarray, damping: float = 0.5, steps: int = 120) -> list[int]:
    """Affinity propagation, message by message (Frey and Dueck 2007); the exemplar of each point."""
    n = len(similarities)
    s = similarities.astype(float).copy()
    np.fill_diagonal(s, np.median(similarities[~np.eye(n, dtype=bool)]))
    r, a = np.zeros((n, n)), np.zeros((n, n))
    for _ in range(steps):
        for i in range(n):
            for k in range(n):
                best = max(a[i, j] + s[i, j] for j in range(n) if j != k)
                r[i, k] = damping * r[i, k] + (1 - damping) * (s[i, k] - best)
        for k in range(n):
            for i in range(n):
                others = sum(max(0.0, r[j, k]) for j in range(n) if j not in (i, k))
                new = others if i == k else min(0.0, r[k, k] + others)
                a[i, k] = damping * a[i, k] + (1 - damping) * new
    exemplars = [k for k in range(n) if r[k, k] + a[k, k] > 0]
    return [i if i in exemplars else max(exemplars, key=lambda k: s[i, k]) for i in range(n)]


def algorithm_1(update, start, cohorts, first=1):  # type: ignore[no-untyped-def]
    """Algorithm 1 of DCFL, client by client; `update(client, model, round)` is LOCALUPDATE.

    Clusters are looked for from the round `first` on.

    Returns each client's model at the end of each round, for the clients that took part.
    """
    clusters, models, known, history = {0: set()}, {0: start}, set(), []
    for number, cohort in enumerate(cohorts, start=1):
        average = np.mean(list(models.values()), axis=0)
        for client in cohort:
            if client in known:
                continue
            delta = update(client, average, number) if len(models) > 1 else None
            nearest = (
                next(iter(models))
                if delta is None
                else min(models, key=lambda j: distance(average, models[j], average, average + delta))
            )
            clusters[nearest].add(client)
            known.add(client)
        own = {i: j for j, members in clusters.items() for i in members}
        starts = {i: models[own[i]] for i in cohort}
        ends = {i: starts[i] + update(i, starts[i], number) for i in cohort}
        for j, members in clusters.items():
            present = [i for i in cohort if i in members]
            if present:
                models[j] = np.mean([ends[i] for i in present], axis=0)
        table = np.array(
            [
                [0.0 if a == b else distance(starts[a], ends[a], starts[b], ends[b]) for b in cohort]
                for a in cohort
            ]
        )
        labels = [own[i] for i in cohort]
        if number >= first and (len(clusters) == 1 or (len(set(labels)) > 1 and dunn(table, labels) < 1)):
            exemplars = affinity(-table)
            clusters, models = {}, {}
            for j, exemplar in enumerate(sorted(set(exemplars))):
                members = [i for i, e in zip(cohort, exemplars, strict=True) if e == exemplar]
                clusters[j], models[j] = set(members), np.mean([ends[i] for i in members], axis=0)
            known = set(cohort)
        history.append({i: models[j] for j, members in clusters.items() for i in members if i in cohort})
    return history
