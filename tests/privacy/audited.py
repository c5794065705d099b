"""Everything that takes `privacy=`, for the audits that hold for all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from benchmarks.private_baselines import BaselineKMeans
from privfed import (
    FKM,
    KFED,
    DPKMeans,
    DWFKMeans,
    EWFKMeans,
    FederatedFuzzyCMeans,
    FederatedGaussianMixture,
    FederatedMiniBatchKMeans,
    FederatedScaler,
    FederatedSummary,
    WFKMeans,
    metrics,
    select_n_clusters,
    weighting,
)
from privfed.estimators.choosing import local_cluster_counts
from privfed.numerics.kmeans import LocalUpdate

K = 4
N_LABELS = 3

Run = Callable[..., Any]
"""Takes the clients' tables and the words `privacy`, `protocol` and `run_dir`; returns what a user gets.

Or one table in their place, with the words `groups` and `client_names`.
"""


def estimator(model: BaseEstimator) -> Run:
    def run(clients: Any, *, groups: Any = None, client_names: Any = None, **words: Any) -> Any:
        fitting = clone(model).set_params(random_state=3, **words)
        return fitting.fit(clients, groups=groups, client_names=client_names)

    return run


def selection(model: str, index: str, **known: Any) -> Run:
    return lambda clients, **words: select_n_clusters(
        clients, range(2, 6), estimator=model, index=index, random_state=3, **known, **words
    )


def centers_for(n_features: int) -> np.ndarray:
    """Return the centers that metrics are asked about."""
    return np.random.default_rng(3).uniform(-0.7, 0.7, (K, n_features))


def metric(name: str, **known: Any) -> Run:
    def run(clients: Any, *, run_dir: object = None, **words: Any) -> Any:
        return getattr(metrics, name)(clients, centers_for(clients[-1].shape[-1]), **known, **words)

    return run


def agreement(clients: Any, *, run_dir: object = None, **words: Any) -> Any:
    whole = isinstance(clients, np.ndarray)
    labels = (
        np.zeros(len(clients), dtype=np.int64) if whole else [np.zeros(len(own), np.int64) for own in clients]
    )
    centers = centers_for(clients[-1].shape[-1])
    return metrics.labels_agreement(clients, centers, labels, n_labels=N_LABELS, **words)


def local_clusters(clients: Any, *, run_dir: object = None, **words: Any) -> Any:
    return local_cluster_counts(clients, most=6, **words)


METRICS: dict[str, Run] = {
    "inertia": metric("inertia"),
    "score": metric("score"),
    "davies_bouldin": metric("davies_bouldin"),
    "davies_bouldin, q=3": metric("davies_bouldin", q=3.0),
    "mean_distance": metric("mean_distance"),
    "simplified_silhouette": metric("simplified_silhouette"),
    "calinski_harabasz": metric("calinski_harabasz"),
    "fuzzy_davies_bouldin": metric("fuzzy_davies_bouldin"),
    "fuzzy_davies_bouldin, q=2": metric("fuzzy_davies_bouldin", q=2.0),
    "labels_agreement": agreement,
    "inertia, clipped": metric("inertia", radius=0.5),
    "davies_bouldin, clipped": metric("davies_bouldin", radius=0.5),
    "calinski_harabasz, clipped": metric("calinski_harabasz", radius=0.5),
    "fuzzy_davies_bouldin, clipped": metric("fuzzy_davies_bouldin", radius=0.5),
}


@weighting(version=1)
def no_numbers(update: LocalUpdate) -> np.ndarray:
    """A weighting that is infinite, not a number, negative or too large for some rows."""
    with np.errstate(all="ignore"):
        weights: np.ndarray = 1.0 / (update.counts - np.median(update.counts)) ** 3
        return np.where(update.counts > 12, 1e300 * weights, weights)


RECORD: dict[str, Run] = {
    "DPKMeans": estimator(DPKMeans(K)),
    "BaselineKMeans, fastlloyd": estimator(BaselineKMeans(K, method="fastlloyd")),
    "BaselineKMeans, lloyd": estimator(BaselineKMeans(K, method="lloyd")),
    "BaselineKMeans, pe": estimator(BaselineKMeans(K, method="pe")),
    "DWFKMeans": estimator(DWFKMeans(K, local_iter=1, learning_rate=0.8, momentum=0.3)),
    "WFKMeans": estimator(WFKMeans(K, local_iter=1)),
    "FederatedMiniBatchKMeans": estimator(FederatedMiniBatchKMeans(K, momentum=0.5)),
    "FederatedFuzzyCMeans": estimator(FederatedFuzzyCMeans(K, averaging="weighted", local_iter=1)),
    "FederatedFuzzyCMeans, m=1.3": estimator(
        FederatedFuzzyCMeans(K, m=1.3, averaging="weighted", local_iter=1)
    ),
    "FederatedGaussianMixture": estimator(FederatedGaussianMixture(K)),
    "FederatedGaussianMixture, tied": estimator(FederatedGaussianMixture(K, covariance_type="tied")),
    "FederatedGaussianMixture, diag": estimator(FederatedGaussianMixture(K, covariance_type="diag")),
    "FederatedScaler": estimator(FederatedScaler()),
    "FederatedScaler, range": estimator(FederatedScaler("range")),
    "FederatedSummary": estimator(FederatedSummary(6)),
    "KFED": estimator(KFED(K)),
    "FKM": estimator(FKM(K)),
    "select_n_clusters": selection("dp", "davies_bouldin"),
    "select_n_clusters, fuzzy": selection(
        "fuzzy", "fuzzy_davies_bouldin", averaging="weighted", local_iter=1
    ),
    **METRICS,
}
"""What protects one record."""

CLIENT: dict[str, Run] = {
    "DPKMeans": estimator(DPKMeans(K)),
    "DWFKMeans": estimator(DWFKMeans(K, local_iter=1)),
    "DWFKMeans, 3 steps": estimator(DWFKMeans(K, local_iter=3)),
    "EWFKMeans": estimator(EWFKMeans(K, local_iter=2)),
    "WFKMeans": estimator(WFKMeans(K, local_iter=2, relocate_empty=True)),
    "WFKMeans, weights that are no numbers": estimator(WFKMeans(K, weights=no_numbers, local_iter=2)),
    "FederatedMiniBatchKMeans": estimator(FederatedMiniBatchKMeans(K, epochs=2, batch_size=4)),
    "FederatedFuzzyCMeans": estimator(FederatedFuzzyCMeans(K, averaging="weighted", local_iter=1)),
    "FederatedFuzzyCMeans, 3 steps": estimator(
        FederatedFuzzyCMeans(K, averaging="weighted", local_iter=3, weight="u")
    ),
    "FederatedScaler": estimator(FederatedScaler()),
    "FederatedScaler, range": estimator(FederatedScaler("range")),
    "FederatedSummary": estimator(FederatedSummary(6)),
    "local_cluster_counts": local_clusters,
    **METRICS,
}
"""What protects one client."""


def centers_of(found: Any, n_features: int) -> np.ndarray:
    """Return the centers that a run found, or was asked about."""
    model = getattr(found, "estimator", found)
    centers: np.ndarray = getattr(model, "cluster_centers_", centers_for(n_features))
    return centers
