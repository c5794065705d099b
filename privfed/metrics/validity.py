"""Validity indices of a clustering, without labels, each from one sum.

A cluster without rows is left out of every index, as the authors of federated k-means do (`nanmean`);
fewer than two clusters with rows have no index. Sources, and what they reveal:
`privfed.questions.cluster_spread`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import silhouette_score

from privfed.core.domain import FloatArray, Ranges, frozen_array
from privfed.core.federation import Federation
from privfed.core.statistics import Statistics
from privfed.errors import ArgumentError, DataError, UndefinedIndexError
from privfed.metrics.asking import asked
from privfed.metrics.functions import _door
from privfed.numerics.distances import IntArray, assign
from privfed.privacy.privacy import Privacy
from privfed.questions.cluster_spread import (
    LARGEST_POWER,
    ClusterDistances,
    ClusterScatter,
    ClusterSilhouettes,
)


def _opened(
    clients: Any, centers: Any, privacy: Privacy | None, options: dict[str, Any], least: int = 2
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
    return (*_door(clients, None, privacy, options, checked), checked)


def _held(total: Statistics) -> IntArray:
    """Return which clusters hold rows.

    Raises:
        UndefinedIndexError: fewer than two.
    """
    held = np.flatnonzero(np.rint(total["count"]) > 0)
    if len(held) < 2:
        raise UndefinedIndexError(
            f"{len(held)} of {len(total['count'])} clusters hold rows, an index needs two; fit again from "
            "another start, or pass other centers."
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
    """Return the Davies-Bouldin index; the lower, the better. One sum.

    The mean over clusters i of max_j (S_i + S_j) / M_ij, where S_i is the q-th moment of the distances
    of its rows to its center and M_ij the Minkowski distance of order p between centers (eq. 7 to 11 of
    Stallmann and Wilbik 2022). With p=2, q=1 and the clusters' means as centers it is scikit-learn's.

    Args:
        clients: list of tables of shape (n_i, n_features), or a federation.
        centers: (n_clusters, n_features), at least two.
        p: at least 1.
        q: in [1, 8].
        privacy: Privacy | None, or a `privfed.Privacy` that is spent on this index (a list of tables only).
        **options: `protocol`, `domain`, `policy`, `random_state`, `groups`, `client_names` where `clients` is
            no federation.

    Raises:
        UndefinedIndexError: fewer than two clusters hold rows.
    """
    if not (np.isfinite(p) and p >= 1.0):
        raise ArgumentError(f"p must be a number of at least 1, got p={p}.")
    if not 1.0 <= q <= LARGEST_POWER:
        raise ArgumentError(f"q must lie in [1, {LARGEST_POWER:g}], got q={q}.")
    federation, ranges, checked = _opened(clients, centers, privacy, options)
    question = ClusterDistances(ranges=ranges, centers=checked, power=float(q))
    total = asked(federation, question)
    held = _held(total)
    spread = (total["distance"][held] / np.rint(total["count"][held])) ** (1.0 / q)
    between = np.linalg.norm(checked[held][:, None] - checked[held][None], ord=p, axis=-1)
    np.fill_diagonal(between, np.inf)
    sums = spread[:, None] + spread[None]
    with np.errstate(divide="ignore", over="ignore"):
        similar = np.divide(sums, between, out=np.zeros_like(sums), where=sums > 0)
    return float(similar.max(axis=1).mean())


def mean_distance(clients: Any, centers: Any, *, privacy: Privacy | None = None, **options: Any) -> float:
    """Return the mean distance of all rows to their nearest center. One sum.

    The "mean Euclidean intra-cluster distance" of Triebe and Rajagopal 2019: over rows, not clusters.
    Arguments as for `davies_bouldin`, with one center or more.

    Raises:
        UndefinedIndexError: under differential privacy, where noise hides all rows.
    """
    federation, ranges, checked = _opened(clients, centers, privacy, options, least=1)
    question = ClusterDistances(ranges=ranges, centers=checked)
    total = asked(federation, question)
    rows = float(np.rint(total["count"]).sum())
    if rows < 1.0:
        raise UndefinedIndexError("noise hides all rows; claim a larger epsilon, or pass fewer centers.")
    return float(total["distance"].sum()) / rows


def simplified_silhouette(
    clients: Any, centers: Any, *, privacy: Privacy | None = None, **options: Any
) -> float:
    """Return the mean simplified silhouette of all rows, in [0, 1]; the higher, the better.

    Distances to centers stand for mean distances to clusters (Vendramin et al. 2010).
    The row of a cluster of one has silhouette zero. One sum; a second where a center has no rows, so
    that it is nobody's next center. Arguments and errors as for `davies_bouldin`.
    """
    federation, ranges, checked = _opened(clients, centers, privacy, options)
    question = ClusterSilhouettes(ranges=ranges, centers=checked)
    total = asked(federation, question)
    held = _held(total)
    # Under differential privacy a second sum is not paid for: empty centers stay next ones.
    if len(held) < len(checked) and federation.setting.privacy is None:
        question = ClusterSilhouettes(ranges=ranges, centers=frozen_array(checked[held]))
        total = asked(federation, question)
    count = np.rint(total["count"])
    return float(total["silhouette"][count > 1].sum() / count.sum())


def calinski_harabasz(clients: Any, centers: Any, *, privacy: Privacy | None = None, **options: Any) -> float:
    """Return the Calinski-Harabasz index; the higher, the better. One sum.

    Scatter between the clusters' means over scatter around them, each over its degrees of freedom. The
    means are those of the rows nearest to each center, whatever the centers: it is scikit-learn's of
    these labels, 1 where nothing scatters. Arguments and errors as for `davies_bouldin`.
    """
    federation, ranges, checked = _opened(clients, centers, privacy, options)
    total = asked(federation, ClusterScatter(ranges=ranges, centers=checked))
    held = _held(total)
    count, n = np.rint(total["count"][held]), float(np.rint(total["count"]).sum())
    if n <= len(held):
        raise UndefinedIndexError(f"each of the {len(held)} clusters holds one row; pass fewer centers.")
    shift = total["offset"][held] / count[:, None]
    within = float((total["square"][held] - count * np.square(shift).sum(axis=1)).sum())
    # Means relative to one of the centers, so that they do not cancel far from the origin.
    means = checked[held] - checked[held[0]] + shift
    mean = count @ means / n
    between = float(count @ np.square(means - mean).sum(axis=1))
    return between * (n - len(held)) / (within * (len(held) - 1)) if within > 0 else 1.0


def silhouette(clients: Any, centers: Any) -> float:
    """Return the mean silhouette of the pooled rows (Rousseeuw 1987): for simulations only.

    It needs the distance of every pair of rows, also of two clients' rows, which no sum gives: the rows
    are put together here, in the clear. `simplified_silhouette` is its counterpart through a secure sum.

    Args:
        clients: list of tables of shape (n_i, n_features); a federation is refused.
        centers: (n_clusters, n_features).

    Raises:
        DataError: a federation is passed, or tables that do not fit together.
        UndefinedIndexError: fewer than two clusters hold rows, or each holds one.
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
