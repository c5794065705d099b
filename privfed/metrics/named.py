"""Metrics that may follow a fit, by name: what the estimators' `metrics=` turns into part of an agreement.

A name is that of a function of `privfed.metrics`, or a question's on the wire, for metrics of your own.
Options are those that change what is asked: `q` of the Davies-Bouldin index does, its `p` does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import Any

from privfed.core.asking.question import Question
from privfed.errors import ArgumentError
from privfed.metrics.phases import AskedMetric
from privfed.questions.cluster_spread import ClusterDistances, ClusterScatter, ClusterSilhouettes
from privfed.questions.contingency import Contingency
from privfed.questions.fuzzy_spread import FuzzySpread
from privfed.questions.inertia import Inertia

Named = Iterable[str] | Mapping[str, Mapping[str, Any]] | None
"""Names of metrics, or names with options; None for the usual ones."""

Asks = tuple[type[Question], dict[str, object]]
"""A metric's question and its options."""

USUAL = ("inertia", "calinski_harabasz", "simplified_silhouette", "davies_bouldin", "fuzzy_davies_bouldin")
"""Metrics that may follow a fit where none are named; `score` and `mean_distance` ask the same questions."""


def _inertia() -> Asks:
    return Inertia, {}


def _scatter() -> Asks:
    return ClusterScatter, {}


def _silhouettes() -> Asks:
    return ClusterSilhouettes, {}


def _distances(q: float = 1.0) -> Asks:
    return ClusterDistances, {"power": float(q)}


def _mean_distance() -> Asks:
    return _distances()


def _fuzzy(m: float, q: float = 1.0) -> Asks:
    return FuzzySpread, {"m": float(m), "q": float(q)}


def _labels(n_labels: int) -> Asks:
    return Contingency, {"n_labels": int(n_labels)}


OF_LABELS = (
    "accuracy", "adjusted_rand_index", "completeness", "homogeneity", "labels_agreement", "v_measure",
)  # fmt: skip
"""Metrics that need `n_labels`; all of them ask the same question."""

ASKS: dict[str, Callable[..., Asks]] = {
    "calinski_harabasz": _scatter,
    "davies_bouldin": _distances,
    "fuzzy_davies_bouldin": _fuzzy,
    "inertia": _inertia,
    "mean_distance": _mean_distance,
    "score": _inertia,
    "simplified_silhouette": _silhouettes,
    **dict.fromkeys(OF_LABELS, _labels),
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
        found = tuple((name, {}) for name in _listed(metrics))
    if not all(isinstance(name, str) and isinstance(options, Mapping) for name, options in found):
        raise ArgumentError(
            'metrics must be a list of names, or a dict from names to dicts of options, such as ["inertia"] '
            f'or {{"accuracy": {{"n_labels": 3}}}}, got metrics={metrics!r}.'
        )
    return found


def _listed(metrics: Any) -> Iterable[Any]:
    return metrics if isinstance(metrics, Iterable) and not isinstance(metrics, str | bytes) else [None]


def _following(name: str, options: Mapping[str, Any], n_clusters: int, m: float) -> AskedMetric:
    if name not in ASKS:
        return _own(name, options, n_clusters)
    ask = ASKS[name]
    words = signature(ask).parameters
    given = {"m": m, **options} if "m" in words else dict(options)
    try:
        kind, asked = ask(**given)
    except (TypeError, ValueError, OverflowError):
        takes = ", ".join(words) or "none"
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
            f"the wire; got {name!r}."
        ) from None
