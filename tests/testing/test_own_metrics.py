"""privfed's own metrics keep the contract that those of others are held to."""

from __future__ import annotations

from typing import Any

import pytest

from privfed.metrics.named import METRICS
from privfed.testing import MetricContract
from tests.default_run import slow_but

OTHERS = {
    **dict.fromkeys(
        ("accuracy", "adjusted_rand_index", "completeness", "homogeneity", "v_measure"),
        "compares with labels, which a federation of a fit without labels does not have",
    ),
}
"""Registered metrics that are more than numbers of clients and centers, and what they need besides."""

JUDGING = [name for name in METRICS.names() if name not in OTHERS]


class TestOwnMetrics(MetricContract):
    rule = "minimum"

    @pytest.fixture(autouse=True, params=slow_but(JUDGING, "mean_distance"))
    def _named(self, request: pytest.FixtureRequest) -> None:
        self.function = METRICS.find(request.param)

    def metric(self, clients: Any, centers: Any, **options: Any) -> float:
        return self.function(clients, centers, **options)


def test_what_is_not_held_to_it_is_registered() -> None:
    assert set(OTHERS) < set(METRICS.names()) and len(JUDGING) == 7
