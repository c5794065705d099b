"""The registry of metrics: what users call, and what chooses a number of clusters."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privfed import DWFKMeans, metrics, select_n_clusters
from privfed.errors import ArgumentError
from privfed.estimators.choosing import INDICES
from privfed.metrics.named import METRICS

pytestmark = pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning")

ROWS = [np.random.default_rng(i).normal([[0.0, 0.0], [9.0, 9.0]] * 5, 0.5) for i in range(3)]
NOT_A_NUMBER = {
    "Estimate",
    "Profiles",
    "clients_per_cluster",
    "knowledge_gap",
    "labels_agreement",
    "profiles",
}
NOT_A_NUMBER |= {"stability", "with_interval", "with_intervals"}
"""Metrics that give more than a number, which nothing can be chosen by."""


def test_all_metrics_of_privfed_that_give_a_number_are_registered() -> None:
    assert set(METRICS.names()) == set(metrics.__all__) - NOT_A_NUMBER
    for name in METRICS:
        assert METRICS.find(name) is getattr(metrics, name)


def test_an_index_is_the_metric_of_its_name_with_a_rule() -> None:
    # The criterion of mixtures needs their densities, and is no metric of given centers.
    assert set(INDICES.names()) - {"bic"} <= set(METRICS.names())
    fitted = DWFKMeans(2, protocol="plain", random_state=0).fit(ROWS)
    for name in set(INDICES.names()) - {"inertia", "bic"}:
        metric: Callable[..., float] = METRICS.find(name)
        assert INDICES.find(name).value(fitted) == metric(fitted.federation_, fitted.cluster_centers_)


def nearest(clients: Any, centers: Any, **options: Any) -> float:
    """Return a number that falls with every cluster but two."""
    return abs(len(centers) - 2.0)


def test_a_metric_of_a_package_chooses_by_its_name_with_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS._things, "nearest", nearest)
    words: dict[str, Any] = {"protocol": "plain", "max_iter": 2, "random_state": 0}
    found = select_n_clusters(ROWS, [2, 3], index="nearest", rule="minimum", **words)
    assert (found.n_clusters, found.index) == (2, "nearest")
    with pytest.raises(ArgumentError, match="needs a rule"):
        select_n_clusters(ROWS, [2, 3], index="nearest", **words)


def test_a_users_own_metric_is_named_as_module_and_function() -> None:
    words: dict[str, Any] = {"protocol": "plain", "max_iter": 2, "tol": 0.0, "rule": "elbow"}
    found = select_n_clusters(ROWS, [2, 3, 4], index="privfed.metrics.functions:mean_distance", **words)
    assert [row.index for row in found.table] == sorted([row.index for row in found.table], reverse=True)
    with pytest.raises(ArgumentError):
        select_n_clusters(ROWS, [2, 3], index="nothing", **words)
