"""Validity indices of pooled rows, row by row in plain Python; a cluster without rows is left out."""

import math
from collections.abc import Sequence

Row = Sequence[float]


def distance(x: Row, y: Row, p: float = 2.0) -> float:
    return sum(abs(a - b) ** p for a, b in zip(x, y, strict=True)) ** (1.0 / p)


def labels(rows: Sequence[Row], centers: Sequence[Row]) -> list[int]:
    return [min(range(len(centers)), key=lambda i: distance(row, centers[i])) for row in rows]


def davies_bouldin(rows: Sequence[Row], centers: Sequence[Row], p: float = 2.0, q: float = 1.0) -> float:
    """Equations 7 to 11 of Stallmann and Wilbik 2022, empty clusters skipped (Triebe's `nanmean`)."""
    nearest, spread = labels(rows, centers), {}
    for i, center in enumerate(centers):
        own = [distance(row, center) ** q for row, label in zip(rows, nearest, strict=True) if label == i]
        if own:
            spread[i] = (sum(own) / len(own)) ** (1.0 / q)
    largest = [
        max((spread[i] + spread[j]) / distance(centers[i], centers[j], p) for j in spread if j != i)
        for i in spread
    ]
    return sum(largest) / len(largest)


def mean_distance(rows: Sequence[Row], centers: Sequence[Row]) -> float:
    return sum(min(distance(row, center) for center in centers) for row in rows) / len(rows)


def simplified_silhouette(rows: Sequence[Row], centers: Sequence[Row]) -> float:
    nearest = labels(rows, centers)
    held, total = sorted(set(nearest)), 0.0
    for row, label in zip(rows, nearest, strict=True):
        if nearest.count(label) == 1:
            continue
        a = distance(row, centers[label])
        b = min(distance(row, centers[j]) for j in held if j != label)
        total += (b - a) / max(a, b) if max(a, b) > 0 else 0.0
    return total / len(rows)


def seuclidean(x: Row, y: Row, variances: Row) -> float:
    return math.sqrt(sum((a - b) ** 2 / v for a, b, v in zip(x, y, variances, strict=True)))
