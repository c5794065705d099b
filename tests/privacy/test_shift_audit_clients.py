"""Shift audits of everything that protects one client (`shifts.py` says how)."""

import numpy as np
import pytest

from tests.default_run import covering
from tests.privacy.audited import CLIENT, K, centers_of
from tests.privacy.shifts import Recorder, Trusted, budget, claim, shift_of_a_client

LEAST = {
    # Equal weights are always alike, and a fifth shorter than the margin that is left to them.
    "EWFKMeans": (0.5, 0.24),
    # Most of these weights are far from as large as rows.
    "WFKMeans, weights that are no numbers": (0.3, 0.15),
    "FederatedFuzzyCMeans": (0.7, 0.35),
    "FederatedScaler": (0.85, 0.24),
    "FederatedScaler, range": (0.98, 0.75),
    "FederatedSummary": (0.6, 0.24),
    "local_cluster_counts": (0.99, 0.99),
    # As for a record: bounds are those of the box's farthest corner.
    "inertia": (0.6, 0.5),
    "score": (0.6, 0.5),
    "davies_bouldin": (0.65, 0.6),
    "davies_bouldin, q=3": (0.6, 0.6),
    "mean_distance": (0.65, 0.6),
    "simplified_silhouette": (0.97, 0.95),
    "calinski_harabasz": (0.5, 0.4),
    "fuzzy_davies_bouldin": (0.7, 0.5),
    "fuzzy_davies_bouldin, q=2": (0.7, 0.5),
    "labels_agreement": (0.99, 0.99),
}
"""Least share of the budget that the worst client found must take: added, and in another's place."""

# Passes that look for the rows cost even where they find them at once.
OTHERS = (0.78, 0.35)


@pytest.mark.parametrize("epsilon", [4.0, pytest.param(9.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "neighbours"), covering(list(CLIENT), ["add-remove", "replace-one"]))
@pytest.mark.few(7)
def test_no_client_moves_a_run_by_more_than_its_budget(
    name: str, neighbours: str, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)
    centers = rng.uniform(-0.7, 0.7, (K, 3))
    clients = [centers[rng.integers(K, size=10)] + 0.05 * rng.standard_normal((10, 3)) for _ in range(100)]
    privacy, recorder = claim(epsilon, neighbours, "client"), Recorder(monkeypatch)
    found = CLIENT[name](clients, privacy=privacy, protocol=Trusted())
    recorder.silence()
    (asked,) = recorder.runs()
    share = shift_of_a_client(asked, centers_of(found, 3), privacy, len(clients)) / budget(privacy)
    assert LEAST.get(name, OTHERS)[neighbours == "replace-one"] <= share <= 1.0
