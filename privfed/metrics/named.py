"""Metrics by name: the registry, and what `metrics=` adds to an agreement, which may follow a fit.

A name is that of a function of `privfed.metrics`, or a question's on the wire, for metrics of your own.
Options are those that change what is asked: `q` of the Davies-Bouldin index does, its `p` does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import Any

from privfed.core.asking.question import Question
from privfed.core.names import Registry
from privfed.core.values.numbers import as_number
from privfed.errors import ArgumentError
from privfed.metrics.asked import AskedMetric
from privfed.questions.cluster_spread import (
    ClusterClients,
    ClusterDistances,
    ClusterProfiles,
    ClusterScatter,
    ClusterSilhouettes,
)
from privfed.questions.fuzzy_spread import FuzzySpread
from privfed.questions.lloyd import Contingency, Inertia

Named = Iterable[str] | Mapping[str, Mapping[str, Any]] | None
"""Names of metrics, or names with options; None for the usual ones."""

Asks = tuple[type[Question], dict[str, object]]
"""A metric's question and its options."""

USUAL = ("inertia", "calinski_harabasz", "simplified_silhouette", "davies_bouldin", "fuzzy_davies_bouldin")
"""Metrics that may follow a fit where none are named; `score` and `mean_distance` ask the same questions."""

OF_LABELS = (
    "accuracy", "adjusted_rand_index", "completeness", "homogeneity", "labels_agreement", "v_measure",
)  # fmt: skip
"""Metrics that need `n_labels`; all of them ask the same question."""

OF_TWO = ("calinski_harabasz", "davies_bouldin", "fuzzy_davies_bouldin", "simplified_silhouette")
"""Metrics that compare clusters with each other: they need two centers."""

ASKS: dict[str, Callable[..., Asks]] = {
    "calinski_harabasz": lambda: (ClusterScatter, {}),
    "clients_per_cluster": lambda: (ClusterClients, {}),
    "davies_bouldin": lambda q=1.0: (ClusterDistances, {"power": as_number("q", q)}),
    "fuzzy_davies_bouldin": lambda m, q=1.0: (FuzzySpread, {"m": as_number("m", m), "q": as_number("q", q)}),
    "inertia": lambda: (Inertia, {}),
    "mean_distance": lambda: (ClusterDistances, {"power": 1.0}),
    "profiles": lambda: (ClusterProfiles, {}),
    "score": lambda: (Inertia, {}),
    "simplified_silhouette": lambda: (ClusterSilhouettes, {}),
    **dict.fromkeys(OF_LABELS, lambda n_labels: (Contingency, {"n_labels": n_labels})),
}
"""What each metric asks, from its options."""


def following(n_clusters: int, metrics: Named = None, *, m: float = 2.0) -> tuple[AskedMetric, ...]:
    """Return the metrics that may follow a fit, each at most once.

    Args:
        n_clusters: of the fit.
        metrics: names, or names with options; None for the usual ones.
        m: fuzzifier of the fuzzy index, unless its options have another.

    Raises:
        ArgumentError: a name or an option is unknown, or an option is missing.
    """
    named = checked(USUAL if metrics is None else metrics)
    return tuple(_following(name, options, n_clusters, m) for name, options in named)


def checked(metrics: Named) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Return each name with its options.

    Raises:
        ArgumentError: these are no names.
    """
    found: tuple[tuple[Any, Any], ...]
    if isinstance(metrics, Mapping):
        found = tuple(metrics.items())
    else:
        listed = metrics if isinstance(metrics, Iterable) and not isinstance(metrics, str | bytes) else [None]
        found = tuple((name, {}) for name in listed)
    if not all(isinstance(name, str) and isinstance(options, Mapping) for name, options in found):
        raise ArgumentError(
            'metrics must be a list of names, or a dict from names to dicts of options, such as ["inertia"] '
            f'or {{"accuracy": {{"n_labels": 3}}}}, got metrics={metrics!r}.',
            parameters=["metrics"],
        )
    return found


def _following(name: str, options: Mapping[str, Any], n_clusters: int, m: float) -> AskedMetric:
    if name not in ASKS:
        return _own(name, options, n_clusters)
    ask = ASKS[name]
    taken = signature(ask).parameters
    try:
        kind, asked = ask(**{"m": m, **options} if "m" in taken else dict(options))
    except (TypeError, ValueError, OverflowError):
        takes = ", ".join(taken) or "none"
        raise ArgumentError(
            f"metrics: {name} takes these options of numbers: {takes}; got {dict(options)!r}. Write "
            f"metrics={{{name!r}: {{option: value}}}}."
        ) from None
    return AskedMetric.of(kind, n_clusters, **asked)


def _own(name: str, options: Mapping[str, Any], n_clusters: int) -> AskedMetric:
    try:
        return AskedMetric(name=name, n_clusters=n_clusters, options=dict(options))
    except ArgumentError:
        raise ArgumentError(
            f"metrics must be some of {', '.join(sorted(ASKS))}, or a question of your own by its name on "
            f"the wire; got {name!r}.",
            parameters=["metrics"],
        ) from None


METRICS: Registry[Callable[..., float]] = Registry(
    "metric",
    "privfed.metrics",
    {
        name: f"privfed.metrics.functions:{name}"
        for name in sorted({*ASKS} - {"clients_per_cluster", "labels_agreement", "profiles"})
    },
)
"""Metrics by name: functions of clients (or of a federation) and centers that return a number. Packages add
theirs by entry points of `privfed.metrics`.

An index (`privfed.estimators.choosing`) is a metric together with the rule by which it chooses a number of
clusters. A metric without one can choose too, where the rule is passed beside it."""
