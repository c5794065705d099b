"""The registry of metrics: functions of clients (or of a federation) and centers that return a number.

An index (`privfed.estimators.choosing.indices`) is a metric together with the rule by which it chooses a
number of clusters; a metric without one can choose too, where the rule is given beside it.
"""

from __future__ import annotations

from collections.abc import Callable

from privfed.core.names.registry import Registry

METRICS: Registry[Callable[..., float]] = Registry(
    "metric",
    "privfed.metrics",
    {
        "accuracy": "privfed.metrics.functions:accuracy",
        "adjusted_rand_index": "privfed.metrics.functions:adjusted_rand_index",
        "calinski_harabasz": "privfed.metrics.validity:calinski_harabasz",
        "completeness": "privfed.metrics.functions:completeness",
        "davies_bouldin": "privfed.metrics.validity:davies_bouldin",
        "fuzzy_davies_bouldin": "privfed.metrics.fuzzy_index:fuzzy_davies_bouldin",
        "homogeneity": "privfed.metrics.functions:homogeneity",
        "inertia": "privfed.metrics.functions:inertia",
        "mean_distance": "privfed.metrics.validity:mean_distance",
        "score": "privfed.metrics.functions:score",
        "silhouette": "privfed.metrics.validity:silhouette",
        "simplified_silhouette": "privfed.metrics.validity:simplified_silhouette",
        "v_measure": "privfed.metrics.functions:v_measure",
    },
)
"""Metrics by name. Packages add theirs by entry points of `privfed.metrics`."""
