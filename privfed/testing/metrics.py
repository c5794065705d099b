"""The contract of metrics: numbers that judge centers by one question to all clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privfed.core.record.transcript import Asked, Summed
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.estimators.choosing.selection import select_n_clusters
from privfed.estimators.weighted import DWFKMeans


class MetricContract:
    """Laws of every metric `(clients, centers, **options) -> float`. Write `metric`.

    It says over every secure sum what it says over plain ones, whatever the order of the clients; asked of a
    fitted model's federation it stands in its transcript; bad centers are an error; it can choose the number
    of clusters.

    Attributes:
        rule: how `select_n_clusters` chooses by it: "minimum", "maximum" or "elbow".
    """

    rule: Any = "maximum"

    def metric(self, clients: Any, centers: Any, **options: Any) -> float:
        """Return the metric's value."""
        raise NotImplementedError

    def clients(self) -> list[FloatArray]:
        """Return five clients of rows around `centers`."""
        rng = np.random.default_rng(5)
        return [
            self.centers()[rng.integers(3, size=n)] + 0.5 * rng.normal(size=(n, 2))
            for n in (30, 9, 14, 25, 18)
        ]

    def centers(self) -> FloatArray:
        """Return three centers in the plane."""
        return np.array([[1.0, 0.5], [7.0, 1.0], [1.0, 8.0]])

    def test_every_secure_sum_gives_the_same_value(self) -> None:
        """One number, whoever adds."""
        plain = self.metric(self.clients(), self.centers(), protocol="plain")
        assert isinstance(plain, float) and np.isfinite(plain)
        for over in ("masked", "group-masked"):
            hidden = self.metric(self.clients(), self.centers(), protocol=over)
            assert hidden == pytest.approx(plain, rel=1e-6)

    def test_the_order_of_the_clients_and_of_the_centers_changes_nothing(self) -> None:
        """Neither has a rank."""
        one = self.metric(self.clients(), self.centers(), protocol="plain")
        other = self.metric(self.clients()[::-1], self.centers()[::-1], protocol="plain")
        assert other == pytest.approx(one, rel=1e-9)

    def test_it_asks_through_the_federation_of_a_fit(self) -> None:
        """One door: what it asks and opens stands in the transcript, or in one of an agreement of its own."""
        model = DWFKMeans(3, protocol="plain", max_iter=3, tol=0).fit(self.clients())
        before = len(model.transcript_.of(Asked))
        value = self.metric(model.federation_, model.cluster_centers_)
        records = [one.transcript for one in (model.federation_, *model.federation_.others)]
        asked, opened = (sum(len(one.of(kind)) for one in records) for kind in (Asked, Summed))
        assert np.isfinite(value) and asked > before
        assert opened == asked

    def test_bad_centers_are_an_error_that_says_so(self) -> None:
        """Of another number of columns, or no numbers."""
        for bad in (np.zeros((2, 3)), np.full((2, 2), np.nan)):
            with pytest.raises(ArgumentError):
                self.metric(self.clients(), bad, protocol="plain")

    def test_it_can_choose_the_number_of_clusters(self) -> None:
        """As `index=` of `select_n_clusters`, a function of a federation and centers."""
        index: Callable[..., float] = lambda federation, centers: self.metric(federation, centers)  # noqa: E731
        found = select_n_clusters(
            self.clients(), range(2, 5), index=index, rule=self.rule, protocol="plain", max_iter=5, tol=0
        )
        assert all(np.isfinite(row.index) for row in found.table)
