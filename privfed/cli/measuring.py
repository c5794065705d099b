"""Metrics of a run: agreed on with the fit, asked after it, each once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privfed.errors import ArgumentError, UndefinedIndexError
from privfed.estimators.base import FederatedClusterer
from privfed.metrics.named import ASKS, OF_LABELS, USUAL
from privfed.metrics.registry import METRICS

MEASURES = tuple(sorted(set(ASKS) - set(OF_LABELS)))
"""Metrics that `--metrics` takes; agreement with labels is asked where `--label` names them."""


OF_ONE = ("inertia", "mean_distance", "score")
"""Those that one cluster has too."""


def check_measures(names: Sequence[str], n_clusters: int, *, private: bool) -> None:
    """Check the metrics that are asked for.

    Raises:
        ArgumentError: one is unknown, named twice, or compares clusters where there is one; or the run is
            private, whose budget its fit spends.
    """
    for name in names:
        if name not in MEASURES or names.count(name) > 1:
            raise ArgumentError(
                f"--metrics takes each of {', '.join(MEASURES)} once, got {name!r}. Metrics of your own are "
                "measured in Python or by a study."
            )
        if n_clusters < 2 and name not in OF_ONE:
            raise ArgumentError(f"--metrics {name} compares clusters; take -k 2 or more, or leave it out.")
    if names and private:
        raise ArgumentError(
            "--metrics releases further totals, and --epsilon is spent on the fit; leave one of them out."
        )


def agree_on(model: FederatedClusterer, names: Sequence[str], n_labels: int | None) -> None:
    """Set what the clients agree to be asked after the fit, where that is not the usual: metrics, labels."""
    if not names and n_labels is None:
        return
    metrics: dict[str, dict[str, Any]] = {name: {} for name in names or USUAL}
    if n_labels is not None:
        metrics["labels_agreement"] = {"n_labels": n_labels}
    model.set_params(metrics=metrics)


def measured(model: FederatedClusterer, names: Sequence[str]) -> dict[str, float | None]:
    """Ask the fitted model's clients for each metric; None where an index is not defined."""
    found: dict[str, float | None] = {}
    for name in names:
        try:
            found[name] = float(METRICS.find(name)(model.federation_, model.cluster_centers_))
        except UndefinedIndexError:
            found[name] = None
    return found
