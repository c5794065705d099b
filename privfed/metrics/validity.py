"""Validity indices of a clustering without labels, each from one sum.

Every index leaves out clusters without rows, as the authors of federated k-means do (`nanmean`). With fewer
than two clusters that have rows, no index is defined. `privfed.questions.cluster_spread` has the sources and
what the questions reveal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import silhouette_score

from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.federation import Federation
from privfed.core.values.domain import FloatArray, Ranges, frozen_array
from privfed.errors import ArgumentError, DataError, UndefinedIndexError
from privfed.metrics.asking import asked
from privfed.metrics.functions import federation_with_ranges
from privfed.metrics.phases import AskedMetric
from privfed.numerics.distances import IntArray
from privfed.numerics.kernels.steps import assign
from privfed.privacy.privacy import Privacy
from privfed.questions.cluster_spread import (
    LARGEST_POWER,
    ClusterDistances,
    ClusterScatter,
    ClusterSilhouettes,
)

COUNTS = ("count",)
"""Entry of each of these questions that the index divides by: rows of each cluster."""


def _opened(
    clients: Any,
    centers: Any,
    privacy: Privacy | None,
    options: dict[str, Any],
    kind: type[Question],
    least: int = 2,
    **words: float,
) -> tuple[Federation, Ranges, FloatArray]:
    """Check the centers, then open a federation."""
    try:
        checked = frozen_array(centers)
    except (TypeError, ValueError):
        raise ArgumentError("centers must be an array of numbers, (n_clusters, n_features).") from None
    if checked.ndim != 2 or len(checked) < least:
        raise ArgumentError(
            f"centers must be of shape (n_clusters, n_features), n_clusters >= {least}, got {checked.shape}."
        )
    metric = AskedMetric.of(kind, len(checked), **words)
    return (*federation_with_ranges(clients, None, privacy, options, metric), checked)


def _held(total: Statistics) -> IntArray:
    """Return the indices of clusters that hold rows.

    Raises:
        UndefinedIndexError: fewer than two clusters hold rows.
    """
    held = np.flatnonzero(np.rint(total["count"]) > 0)
    if len(held) < 2:
        raise UndefinedIndexError(
            f"{len(held)} of {len(total['count'])} clusters hold rows, an index needs two; fit again from "
            "another start, or pass other centers. If noise hides clusters (differential privacy), claim a "
            "larger epsilon."
        )
    return held


def davies_bouldin(
    clients: Any,
    centers: Any,
    p: float = 2.0,
    q: float = 1.0,
    *,
    privacy: Privacy | None = None,
    **options: Any,
) -> float:
    """Return the Davies-Bouldin index from one sum; lower is better.

    It is the mean over clusters i of max_j (S_i + S_j) / M_ij, where S_i is the q-th root of the mean q-th
    power of the distances of its rows to its center, and M_ij the Minkowski distance of order p between
    centers (eq. 7 to 11 of Stallmann and Wilbik 2022). With p=2, q=1 and the clusters' means as centers it
    equals scikit-learn's.

    Args:
        clients: list of tables of shape (n_i, n_features), or a federation.
        centers: (n_clusters, n_features), at least two.
        p: order of the Minkowski distance between centers, at least 1.
        q: power of the distances of rows to centers, in [1, 8].
        privacy: None, or a `privfed.Privacy` that is spent on this metric (for a list of tables only).
        **options: `protocol`, `domain`, `policy`, `random_state`, `groups`, `client_names`, if `clients` is
            not a federation.

    Raises:
        UndefinedIndexError: fewer than two clusters hold rows.
    """
    if not (np.isfinite(p) and p >= 1.0):
        raise ArgumentError(f"p must be a number of at least 1, got p={p}.")
    if not 1.0 <= q <= LARGEST_POWER:
        raise ArgumentError(f"q must lie in [1, {LARGEST_POWER:g}], got q={q}.")
    federation, ranges, checked = _opened(
        clients, centers, privacy, options, ClusterDistances, power=float(q)
    )
    question = ClusterDistances(ranges=ranges, centers=checked, power=float(q))
    total = asked(federation, question, divisors=COUNTS)
    held = _held(total)
    spread = (total["distance"][held] / np.rint(total["count"][held])) ** (1.0 / q)
    between = np.linalg.norm(checked[held][:, None] - checked[held][None], ord=p, axis=-1)
    np.fill_diagonal(between, np.inf)
    sums = spread[:, None] + spread[None]
    with np.errstate(divide="ignore", over="ignore"):
        similar = np.divide(sums, between, out=np.zeros_like(sums), where=sums > 0)
    return float(similar.max(axis=1).mean())


def mean_distance(clients: Any, centers: Any, *, privacy: Privacy | None = None, **options: Any) -> float:
    """Return the mean distance of all rows to their nearest center, from one sum.

    This is the "mean Euclidean intra-cluster distance" of Triebe and Rajagopal 2019; the mean is over rows,
    not over clusters. Arguments as for `davies_bouldin`, with at least one center.

    Raises:
        UndefinedIndexError: under differential privacy, if no cluster's count exceeds its noise.
    """
    federation, ranges, checked = _opened(
        clients, centers, privacy, options, ClusterDistances, least=1, power=1.0
    )
    question = ClusterDistances(ranges=ranges, centers=checked)
    total = asked(federation, question, divisors=COUNTS)
    rows = float(np.rint(total["count"]).sum())
    if rows < 1.0:
        raise UndefinedIndexError("noise hides all rows; claim a larger epsilon, or pass fewer centers.")
    return float(total["distance"].sum()) / rows


def simplified_silhouette(
    clients: Any, centers: Any, *, privacy: Privacy | None = None, **options: Any
) -> float:
    """Return the mean simplified silhouette of all rows, in [0, 1]; higher is better.

    Distances to centers replace mean distances to clusters (Vendramin et al. 2010). A row that is alone in
    its cluster has silhouette zero. It takes one sum, and a second one without the centers that have no
    rows, if there are any. Arguments and errors as for `davies_bouldin`.
    """
    federation, ranges, checked = _opened(clients, centers, privacy, options, ClusterSilhouettes)
    question = ClusterSilhouettes(ranges=ranges, centers=checked)
    total = asked(federation, question, divisors=COUNTS)
    held = _held(total)
    # Under differential privacy there is no budget for a second sum, so centers without rows still count
    # as second nearest ones.
    if len(held) < len(checked) and federation.setting.privacy is None:
        question = ClusterSilhouettes(ranges=ranges, centers=frozen_array(checked[held]))
        total = asked(federation, question, divisors=COUNTS)
    count = np.rint(total["count"])
    return float(total["silhouette"][count > 1].sum() / count.sum())


def calinski_harabasz(clients: Any, centers: Any, *, privacy: Privacy | None = None, **options: Any) -> float:
    """Return the Calinski-Harabasz index from one sum; higher is better.

    It is the scatter between the clusters' means divided by the scatter around them, each over its degrees
    of freedom. The means are those of the rows nearest to each center, so it equals scikit-learn's index of
    these labels; it is 1 if there is no scatter within clusters. Arguments and errors as for
    `davies_bouldin`.
    """
    federation, ranges, checked = _opened(clients, centers, privacy, options, ClusterScatter)
    total = asked(federation, ClusterScatter(ranges=ranges, centers=checked), divisors=COUNTS)
    held = _held(total)
    count, n = np.rint(total["count"][held]), float(np.rint(total["count"]).sum())
    if n <= len(held):
        raise UndefinedIndexError(f"each of the {len(held)} clusters holds one row; pass fewer centers.")
    shift = total["offset"][held] / count[:, None]
    within = float((total["square"][held] - count * np.square(shift).sum(axis=1)).sum())
    # Means are taken relative to one of the centers, which avoids cancellation far from the origin.
    means = checked[held] - checked[held[0]] + shift
    mean = count @ means / n
    between = float(count @ np.square(means - mean).sum(axis=1))
    return between * (n - len(held)) / (within * (len(held) - 1)) if within > 0 else 1.0


def silhouette(clients: Any, centers: Any) -> float:
    """Return the mean silhouette of the pooled rows (Rousseeuw 1987), for simulations only.

    It needs the distance between every two rows, also of different clients, which no sum gives, so the rows
    are pooled here in clear. `simplified_silhouette` is its counterpart through a secure sum.

    Args:
        clients: list of tables of shape (n_i, n_features); a federation is refused.
        centers: (n_clusters, n_features).

    Raises:
        DataError: a federation is passed, or tables whose columns do not match.
        UndefinedIndexError: fewer than two clusters hold rows, or each holds one row.
    """
    if isinstance(clients, Federation):
        raise DataError("silhouette pools all rows, which a federation never gives; pass a list of tables.")
    try:
        rows = np.concatenate([np.asarray(one, dtype=np.float64) for one in clients])
        labels = assign(rows, frozen_array(centers))
    except (TypeError, ValueError):
        raise DataError("clients and centers must be tables of numbers with the same columns.") from None
    n_held = len(np.unique(labels))
    if not 2 <= n_held < len(rows):
        raise UndefinedIndexError(f"{n_held} clusters hold the {len(rows)} rows; pass other centers.")
    return float(silhouette_score(rows, labels))
