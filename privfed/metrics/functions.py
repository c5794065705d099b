"""Metrics as functions of client data and centers: each asks one question in a secure sum.

`clients` is a list of tables; or one table with `groups=` (the client of each row) and, under differential
privacy, `client_names=` (all clients, including those without rows); or a federation (`model.federation_`),
whose transcript then also records the question. If no domain is declared and the federation knows no ranges,
a sum of ranges comes first (see "Reveals" in `privfed.questions.ranges`). Each function reveals to the party
that opens the total what its question's module says, over all clients.
"""

from __future__ import annotations

from typing import Any

from privfed.core.asking.question import question_from_bytes
from privfed.core.federation import Federation
from privfed.core.record.transcript import Asked
from privfed.core.roles.conversation import RANGE
from privfed.core.values.domain import FloatArray, Ranges, frozen_array
from privfed.core.values.numbers import as_numbers
from privfed.errors import ArgumentError
from privfed.federation.over import federation_over
from privfed.metrics.asking import asked
from privfed.metrics.phases import AskedMetric
from privfed.privacy.privacy import Privacy
from privfed.questions.contingency import Agreement, Contingency, agreement
from privfed.questions.inertia import Inertia
from privfed.questions.ranges import MOST_ROWS, locate


def federation_with_ranges(
    clients: Any,
    labels: Any,
    privacy: Privacy | None,
    options: dict[str, Any],
    metric: AskedMetric,
) -> tuple[Federation, Ranges]:
    """Open a federation for a metric, and find its ranges."""
    if privacy is not None and not isinstance(privacy, Privacy):
        raise ArgumentError(f"privacy must be None or a privfed.Privacy, got privacy={privacy!r}.")
    if privacy is not None:
        options = {**options, "privacy": privacy}
    if not isinstance(clients, Federation):
        options = {**options, "n_clusters": metric.n_clusters}
    federation = federation_over(clients, labels, metric=metric, **options)
    ranges = _known_ranges(federation)
    if ranges is None:
        ranges = federation.drive(locate(federation.setting, upcoming=(0,))).ranges
    return federation, ranges


def number_of(centers: FloatArray) -> int | None:
    """Return the number of centers; None where they are no table, which the question itself refuses."""
    return len(centers) if centers.ndim == 2 else None


def _known_ranges(federation: Federation) -> Ranges | None:
    """Return the public ranges of the federation's last question, else under DP those of its domain."""
    known = federation.transcript.of(Asked)
    if known and known[-1].purpose != RANGE:
        return question_from_bytes(known[-1].question).ranges
    setting = federation.setting
    if setting.privacy is None or setting.domain is None:
        return None
    low, high = setting.domain.bounds(setting.n_features)
    return Ranges(low, high, setting.domain.max_rows or MOST_ROWS)


def inertia(clients: Any, centers: Any, *, privacy: Privacy | None = None, **options: Any) -> float:
    """Return the sum of squared distances of all rows to their nearest center.

    Args:
        clients: list of tables of shape (n_i, n_features), or a federation.
        centers: (n_clusters, n_features).
        privacy: None, or a `privfed.Privacy` that is spent on this metric (for a list of tables only).
        **options: `protocol`, `domain`, `policy`, `random_state`, `groups`, `client_names`, if `clients` is
            not a federation.
    """
    return _inertia(clients, centers, privacy, options)[0]


def score(clients: Any, centers: Any, *, privacy: Privacy | None = None, **options: Any) -> float:
    """Return the pooled score: the inertia divided by the number of rows. Arguments as for `inertia`."""
    total, rows = _inertia(clients, centers, privacy, options)
    return total / rows


def _inertia(
    clients: Any, centers: Any, privacy: Privacy | None, options: dict[str, Any]
) -> tuple[float, float]:
    checked = frozen_array(as_numbers("centers", centers))
    metric = AskedMetric.of(Inertia, number_of(checked))
    federation, ranges = federation_with_ranges(clients, None, privacy, options, metric)
    total = asked(federation, Inertia(ranges=ranges, centers=checked), "score")
    return float(total["inertia"][0]), max(float(total["rows"][0]), 1.0)


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
        clients: list of tables, or a federation whose clients were given labels (`fit(X, y)`).
        centers: (n_clusters, n_features).
        labels: list of integer codes, one array a client; None with a federation.
        n_labels: number of codes, which is public; by default the largest code in `labels` plus one. Under
            differential privacy it must be given, as that default would depend on single rows.
        privacy: None, or a `privfed.Privacy` that is spent on this metric (for a list of tables only).
        **options: `protocol`, `domain`, `policy`, `random_state`, `groups`, `client_names`, if `clients` is
            not a federation.
    """
    if n_labels is None:
        if labels is None or privacy is not None:
            raise ArgumentError(
                "n_labels is needed if the clients hold the labels or these are protected: pass the number "
                "of codes."
            )
        n_labels = 1 + max(int(max(own)) for own in labels)
    checked = frozen_array(as_numbers("centers", centers))
    metric = AskedMetric.of(Contingency, number_of(checked), n_labels=n_labels)
    federation, ranges = federation_with_ranges(clients, labels, privacy, options, metric)
    question = Contingency(ranges=ranges, centers=checked, n_labels=n_labels)
    return agreement(asked(federation, question, "agreement")["table"])


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
