"""Metrics as functions of client data and centers: each asks one question in a secure sum.

`clients` is one of:

- a list of tables, or `privfed.data.ClientTables`;
- one table with `groups=`, the client of each row. Under differential privacy it needs `client_names=`, the
  names of all clients, including those without rows;
- a federation (`model.federation_`), whose transcript then also records the question.

If no domain is declared and the federation knows no ranges, a sum of ranges comes first (see "Reveals" in
`privfed.questions.ranges`). Each function reveals to the recipient of the total what its question's module
says, over all clients.

Under differential privacy a row may lie anywhere in the domain, whose size adds noise. The centers of a
private fit carry a radius, to which the fit clipped offsets from them (`model.intervals().radius`).
Metrics of such centers are those **of rows clipped at that radius**, unless `radius=` is another number, or
None for rows as they are: a row beyond counts at the radius, in the same cluster. So they say nothing of how
far rows lie beyond: `model.intervals()` and the warnings of a fit tell of rows that no center is near to.
Silhouettes and scores of labels have bounds of their own, and are of rows as they are.

The validity indices need no labels. They leave out clusters without rows, as the authors of federated k-means
do (`nanmean`). With fewer than two clusters that have rows, no index is defined.
`privfed.questions.cluster_spread` has the sources and formulas.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.values.domain import FloatArray, frozen_array
from privfed.core.values.numbers import as_number, as_numbers, check_number
from privfed.core.values.origin import check_origins, origin_of, radius_of, released, scaled_of
from privfed.data.table import ClientTables
from privfed.errors import ArgumentError, UndefinedIndexError
from privfed.federation.clients import Clients
from privfed.federation.driver import Federation
from privfed.federation.opening import federation_over
from privfed.federation.passed import as_passed, is_client_list
from privfed.federation.request import check_kinds
from privfed.metrics.asked import AskedMetric
from privfed.numerics.kernels.interpreted import IntArray
from privfed.privacy.claim import Privacy
from privfed.questions.cluster_spread import (
    LARGEST_POWER,
    ClusterDistances,
    ClusterScatter,
    ClusterSilhouettes,
    scatters,
)
from privfed.questions.fuzzy_spread import FuzzySpread, index_from
from privfed.questions.lloyd import Agreement, Contingency, Inertia, agreement


def opened(
    clients: Any, labels: Any, privacy: Privacy | None, options: dict[str, Any], metric: AskedMetric
) -> tuple[Federation, AskedMetric]:
    """Return the federation that a metric is asked of, and the metric, of rows clipped as `options` say."""
    check_kinds({"privacy": privacy})
    if scaled_of(metric.centers) and not isinstance(clients, Federation | Clients | ClientTables | None):
        tables = as_passed(clients)[0]
        if not all(map(scaled_of, tables if is_client_list(tables) else [tables])):
            raise ArgumentError(
                "these centers are of rows that the fit scaled: give rows by model.scaling_.scaled(rows), or "
                "centers in the columns' units by model.scaling_.original(centers). A copy by "
                "np.array(centers) is your word that the rows are scaled alike.",
                parameters=["centers"],
            )
    if privacy is not None:
        options = {**options, "privacy": privacy}
    claim = clients.configuration.privacy if isinstance(clients, Federation) else options.get("privacy")
    if "radius" in options:
        metric = replace(metric, radius=options.pop("radius"))
        if metric.radius is not None and claim is None:
            raise ArgumentError("radius= is of private metrics; clip rows that you have, or pass privacy=.")
    seeded = claim.noise_seed is not None if isinstance(claim, Privacy) else claim is None or claim.seeded
    if not seeded:
        check_origins(centers=origin_of(metric.centers))
    if isinstance(claim, Privacy):
        metric.check_private(claim.domain)
    if not isinstance(clients, Federation):
        options = {**options, "n_clusters": metric.n_clusters}
    return federation_over(clients, labels, metric=metric, **options), metric


def measured(
    clients: Any,
    labels: Any,
    privacy: Privacy | None,
    options: dict[str, Any],
    metric: AskedMetric,
    purpose: str = "index",
    divisors: tuple[str, ...] = (),
) -> Statistics:
    """Ask a metric of a list of tables, or of a federation, and return its total."""
    federation, metric = opened(clients, labels, privacy, options, metric)
    total = federation.measure(metric, purpose, divisors)
    # A profile divides by no spread: that of equal rows is 0.
    if purpose == "index" and (coarse := federation.near_grid(total)) is not None:
        raise coarse
    return total


def checked_centers(centers: Any, least: int = 1, name: str = "centers") -> FloatArray:
    """Return centers as a read-only float64 array of shape (n_clusters, n_features), with their radius.

    Args:
        centers: what was passed.
        least: fewest of them.
        name: of the parameter.

    Raises:
        ArgumentError: they are no finite numbers, of another shape, or too few.
    """
    checked = frozen_array(as_numbers(name, centers))
    if checked.ndim != 2 or 0 in checked.shape or len(checked) < least or not np.isfinite(checked).all():
        raise ArgumentError(
            f"{name} must be finite, of shape (n_clusters, n_features), n_clusters >= {least}, got "
            f"shape {checked.shape}.",
            parameters=[name, "n_clusters"],
        )
    return released(checked, origin_of(centers), radius_of(centers), scaled_of(centers))


def inertia(clients: Any, centers: Any, *, privacy: Privacy | None = None, **options: Any) -> float:
    """Return the sum of squared distances of all rows to their nearest center.

    Args:
        clients: list of tables of shape (n_i, n_features), or a federation.
        centers: (n_clusters, n_features).
        privacy: None, or a `privfed.Privacy` that is spent on this metric (for a list of tables only).
        **options: `radius` (above); and `protocol`, `domain`, `policy`, `random_state`, `groups`,
            `client_names`, if `clients` is not a federation.
    """
    return _inertia(clients, centers, privacy, options)[0]


def score(clients: Any, centers: Any, *, privacy: Privacy | None = None, **options: Any) -> float:
    """Return the pooled score: the inertia divided by the number of rows. Arguments as for `inertia`."""
    total, rows = _inertia(clients, centers, privacy, options)
    return total / rows


def _inertia(
    clients: Any, centers: Any, privacy: Privacy | None, options: dict[str, Any]
) -> tuple[float, float]:
    total = measured(
        clients, None, privacy, options, AskedMetric.about(Inertia, checked_centers(centers)), "score"
    )
    return float(total["inertia"][0]), max(float(total["rows"][0]), 1.0)


def check_labels(clients: Any, labels: Any) -> None:
    """Check that rows in this process have labels, before a budget pays: without them noise has a score.

    Raises:
        ArgumentError: they have none.
    """
    elsewhere = clients is None or isinstance(clients, Federation | Clients)
    own = clients.labels if labels is None and isinstance(clients, ClientTables) else labels
    if not elsewhere and own is None:
        raise ArgumentError(
            "scores of labels need labels: pass labels=, one array of integer codes a client, or tables that "
            "have them.",
            parameters=["labels"],
        )


def labels_agreement(
    clients: Any,
    centers: Any,
    labels: Any = None,
    *,
    n_labels: int | None = None,
    privacy: Privacy | None = None,
    **options: Any,
) -> Agreement:
    """Return accuracy, homogeneity, completeness, v-measure and ARI from one contingency table.

    Args:
        clients: list of tables, or a federation whose clients have labels (`fit(X, y)`).
        centers: (n_clusters, n_features).
        labels: list of integer codes, one array a client; None with a federation.
        n_labels: number of codes, which is public; by default the largest code in `labels` plus one. Under
            differential privacy it is required, as that default would depend on single rows.
        privacy: None, or a `privfed.Privacy` that is spent on this metric (for a list of tables only).
        **options: `radius` (above); and `protocol`, `domain`, `policy`, `random_state`, `groups`,
            `client_names`, if `clients` is not a federation.
    """
    if n_labels is None:
        if labels is None or privacy is not None:
            raise ArgumentError(
                "n_labels is needed if the clients hold the labels or these are protected: pass the number "
                "of codes."
            )
        n_labels = 1 + max(int(max(own)) for own in labels)
    check_labels(clients, labels)
    return agreement(
        measured(
            clients,
            labels,
            privacy,
            options,
            AskedMetric.about(Contingency, checked_centers(centers), n_labels=n_labels),
            "agreement",
        )["table"]
    )


def accuracy(clients: Any, centers: Any, labels: Any = None, **options: Any) -> float:
    """Return the share of rows that have their cluster's most frequent label; see `labels_agreement`."""
    return labels_agreement(clients, centers, labels, **options).accuracy


def v_measure(clients: Any, centers: Any, labels: Any = None, **options: Any) -> float:
    """Return the v-measure of clusters and labels; see `labels_agreement`."""
    return labels_agreement(clients, centers, labels, **options).v_measure


def homogeneity(clients: Any, centers: Any, labels: Any = None, **options: Any) -> float:
    """Return the homogeneity of clusters against labels; see `labels_agreement`."""
    return labels_agreement(clients, centers, labels, **options).homogeneity


def completeness(clients: Any, centers: Any, labels: Any = None, **options: Any) -> float:
    """Return the completeness of clusters against labels; see `labels_agreement`."""
    return labels_agreement(clients, centers, labels, **options).completeness


def adjusted_rand_index(clients: Any, centers: Any, labels: Any = None, **options: Any) -> float:
    """Return the adjusted Rand index of clusters and labels; see `labels_agreement`."""
    return labels_agreement(clients, centers, labels, **options).adjusted_rand_index


def fuzzy_davies_bouldin(
    clients: Any,
    centers: Any,
    m: float = 2.0,
    p: float = 2,
    q: float = 1,
    *,
    privacy: Privacy | None = None,
    **options: Any,
) -> float:
    """Return the federated fuzzy Davies-Bouldin index, which is small for compact clusters far apart.

    It equals the index of the pooled rows. The number of clusters is often chosen as that of least index.

    Args:
        clients: list of tables of shape (n_i, n_features), or a federation.
        centers: (n_clusters, n_features), at least two.
        m: fuzzifier, in (1, 100].
        p: order of the Minkowski distance between centers, at least 1 (eq. 11).
        q: power of the distances of rows to centers, in [1, 64] (eq. 12).
        privacy: None, or a `privfed.Privacy` that is spent on this metric (for a list of tables only).
        **options: `radius` (above); and `protocol`, `domain`, `policy`, `random_state`, `groups`,
            `client_names`, if `clients` is not a federation.

    Raises:
        ArgumentError: there are fewer than two centers, or a parameter is out of its bounds.
    """
    centers = checked_centers(centers, 2)
    m, q = as_number("m", m), as_number("q", q)
    check_number("p", p, "[1, inf]", remedy="; the paper takes p=2")
    return index_from(
        measured(clients, None, privacy, options, AskedMetric.about(FuzzySpread, centers, m=m, q=q)),
        centers,
        float(p),
        q,
    )


COUNTS = ("count",)
"""Entry of each of these questions that the index divides by: rows of each cluster."""


def _measured(
    clients: Any,
    centers: Any,
    privacy: Privacy | None,
    options: dict[str, Any],
    kind: type[Question],
    least: int = 2,
    **parameters: float,
) -> tuple[Statistics, FloatArray]:
    """Check the centers, then ask about them."""
    checked = checked_centers(centers, least)
    return measured(
        clients, None, privacy, options, AskedMetric.about(kind, checked, **parameters), divisors=COUNTS
    ), checked


def _with_rows(total: Statistics) -> IntArray:
    """Return the indices of clusters that hold rows.

    Raises:
        UndefinedIndexError: fewer than two clusters hold rows.
    """
    kept = np.flatnonzero(np.rint(total["count"]) > 0)
    if len(kept) < 2:
        raise UndefinedIndexError(
            f"{len(kept)} of {len(total['count'])} clusters hold rows, an index needs two; fit again from "
            "another start, or pass other centers. If noise hides clusters (differential privacy), claim a "
            "larger epsilon."
        )
    return kept


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

    It is the mean over clusters i of max_j (S_i + S_j) / M_ij (eq. 7 to 11 of Stallmann and Wilbik 2022). S_i
    is the q-th root of the mean q-th power of the distances of the rows of cluster i to its center. M_ij is
    the Minkowski distance of order p between two centers. With p=2, q=1 and the clusters' means as centers
    the index equals scikit-learn's.

    Args:
        clients: list of tables of shape (n_i, n_features), or a federation.
        centers: (n_clusters, n_features), at least two.
        p: order of the Minkowski distance between centers, at least 1.
        q: power of the distances of rows to centers, in [1, 8].
        privacy: None, or a `privfed.Privacy` that is spent on this metric (for a list of tables only).
        **options: `radius` (above); and `protocol`, `domain`, `policy`, `random_state`, `groups`,
            `client_names`, if `clients` is not a federation.

    Raises:
        UndefinedIndexError: fewer than two clusters hold rows.
    """
    check_number("p", p, "[1, inf)")
    check_number("q", q, f"[1, {LARGEST_POWER}]")
    total, checked = _measured(clients, centers, privacy, options, ClusterDistances, power=float(q))
    kept = _with_rows(total)
    return worst_ratios(
        (total["distance"][kept] / np.rint(total["count"][kept])) ** (1.0 / q), checked[kept], float(p)
    )


def worst_ratios(spread: FloatArray, centers: FloatArray, p: float) -> float:
    """Return the mean over clusters i of max_j (S_i + S_j) / M_ij, the Davies-Bouldin index.

    Args:
        spread: S, float64 of shape (n_clusters,).
        centers: of these clusters, float64 of shape (n_clusters, n_features).
        p: order of the Minkowski distance M between centers.
    """
    between = np.linalg.norm(centers[:, None] - centers[None], ord=p, axis=-1)
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
    total, _ = _measured(clients, centers, privacy, options, ClusterDistances, least=1, power=1.0)
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
    total, _ = _measured(clients, centers, privacy, options, ClusterSilhouettes)
    _with_rows(total)
    count = np.rint(total["count"])
    return float(total["silhouette"][count > 1].sum() / count.sum())


def calinski_harabasz(clients: Any, centers: Any, *, privacy: Privacy | None = None, **options: Any) -> float:
    """Return the Calinski-Harabasz index from one sum; higher is better.

    It is the scatter between the clusters' means divided by the scatter around them, each over its degrees
    of freedom. The means are those of the rows nearest to each center, so it equals scikit-learn's index of
    these labels; it is 1 if there is no scatter within clusters. Arguments and errors as for
    `davies_bouldin`.
    """
    total, checked = _measured(clients, centers, privacy, options, ClusterScatter)
    kept = _with_rows(total)
    count = np.rint(total["count"][kept])
    if count.sum() <= len(kept):
        raise UndefinedIndexError(f"each of the {len(kept)} clusters holds one row; pass fewer centers.")
    between, within = scatters(count, total["offset"][kept], total["square"][kept], checked[kept])
    return between / within if within > 0 else 1.0
