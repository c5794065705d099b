"""Indices for choosing a number of clusters, and their registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from privfed import metrics
from privfed.core.names.registry import Registry
from privfed.errors import PrivacyError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.choosing.elbow import Rule
from privfed.metrics.fuzzy_index import fuzzy_davies_bouldin
from privfed.metrics.registry import METRICS


@dataclass(frozen=True, slots=True)
class Index:
    """Describes a named index and the rule by which it chooses.

    Args:
        value: returns the index of a fitted model.
        rule: how a number of clusters is chosen from its values.
        rising: whether it grows with the number of clusters, for the elbow.
    """

    value: Callable[[FederatedClusterer], float]
    rule: Rule
    rising: bool = False


def asked(function: Callable[..., float]) -> Callable[[FederatedClusterer], float]:
    """Turn an index of a federation and centers into an index of a fitted model."""
    return lambda model: function(model.federation_, model.cluster_centers_)


def _fuzzy(model: FederatedClusterer) -> float:
    return fuzzy_davies_bouldin(model.federation_, model.cluster_centers_, m=model.m)


def _inertia(model: FederatedClusterer) -> float:
    if model.inertia_ is None:
        raise PrivacyError('inertia_ is not released under differential privacy: choose by "davies_bouldin".')
    return float(model.inertia_)


DAVIES_BOULDIN = Index(asked(metrics.davies_bouldin), "minimum")
FUZZY_DAVIES_BOULDIN = Index(_fuzzy, "minimum")
SIMPLIFIED_SILHOUETTE = Index(asked(metrics.simplified_silhouette), "maximum", rising=True)
CALINSKI_HARABASZ = Index(asked(metrics.calinski_harabasz), "maximum", rising=True)
# These two fall with every further cluster, so only an elbow can choose.
MEAN_DISTANCE = Index(asked(metrics.mean_distance), "elbow")
INERTIA = Index(_inertia, "elbow")

INDICES: Registry[Index] = Registry(
    "index",
    "privfed.indices",
    {
        "davies_bouldin": f"{__name__}:DAVIES_BOULDIN",
        "fuzzy_davies_bouldin": f"{__name__}:FUZZY_DAVIES_BOULDIN",
        "simplified_silhouette": f"{__name__}:SIMPLIFIED_SILHOUETTE",
        "calinski_harabasz": f"{__name__}:CALINSKI_HARABASZ",
        "mean_distance": f"{__name__}:MEAN_DISTANCE",
        "inertia": f"{__name__}:INERTIA",
    },
)
"""Indices that choose a number of clusters. Packages add theirs by entry points of `privfed.indices`."""


def index_or_metric(word: str) -> Index | Callable[..., float]:
    """Return the index of a name, else the metric; or what "module:Name" stands for.

    Raises:
        ArgumentError: neither is known.
    """
    return METRICS.find(word) if word not in INDICES and word in METRICS else INDICES.resolve(word)
