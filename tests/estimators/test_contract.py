"""Every estimator keeps the contract that privfed.testing offers for estimators of one's own."""

from __future__ import annotations

from typing import Any

import pytest

from privfed import FKM, KFED, DWFKMeans, EWFKMeans, FederatedFuzzyCMeans, FederatedMiniBatchKMeans, WFKMeans
from privfed.testing import EstimatorContract

ESTIMATORS: dict[str, tuple[Any, dict[str, Any]]] = {
    "DWF": (DWFKMeans, {}),
    "DWF, sampled": (DWFKMeans, {"clients_per_round": 4}),
    "EWF": (EWFKMeans, {}),
    "WF": (WFKMeans, {"weights": "equal"}),
    "mini-batch": (FederatedMiniBatchKMeans, {}),
    "fuzzy, k-means": (FederatedFuzzyCMeans, {"averaging": "kmeans"}),
    "fuzzy, weighted": (FederatedFuzzyCMeans, {"averaging": "weighted"}),
    "FKM": (FKM, {}),
    "KFED": (KFED, {}),
}


class TestEveryEstimator(EstimatorContract):
    @pytest.fixture(autouse=True, params=ESTIMATORS)
    def _estimator(self, request: pytest.FixtureRequest) -> None:
        kind, words = ESTIMATORS[request.param]
        rounds = {} if kind is KFED else {"max_iter": 3, "tol": 0}
        self.kind, self.parameters = kind, {"n_clusters": 3, "random_state": 1, **rounds, **words}  # type: ignore[misc]
