"""How many clusters each client finds on its own, as a histogram over the clients.

Stallmann and Wilbik, On a Framework for Federated Cluster Analysis, 2022, section 2.2.3. There the clients
name their numbers; here they add up a histogram.

Reveals to whoever opens the total: how many clients find each number of clusters on their own.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import davies_bouldin_score

from privfed.core.declaration import Declaration
from privfed.core.domain import FloatArray
from privfed.core.question import AdditiveOver, ClientData, Question, register
from privfed.core.statistics import Entry, Statistics, StatisticsSpec
from privfed.errors import ArgumentError


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class LocalClusterCounts(Question):
    """Ask how many clusters each client finds in its own rows.

    A client takes the number of the lowest Davies-Bouldin index of its own k-means, from 2 up to the root
    of its distinct rows (Bezdek and Pal 1998): beyond, the index falls towards one cluster a row. With
    fewer than four distinct rows it cannot tell, which counts as one cluster.

    Statistics: `clients` (most,); entry i - 1 counts the clients with i clusters.

    Args:
        most: most clusters that a client looks for, in [2, 100].
        seed: of each client's own k-means, below 2**32.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    alternative: ClassVar[str] = 'Its bound is for one client as a whole: claim unit="client".'
    most: int
    seed: int

    def __post_init__(self) -> None:
        if not 2 <= self.most <= 100:
            raise ArgumentError(f"most must lie in [2, 100], got most={self.most}.")
        if not 0 <= self.seed < 2**32:
            raise ArgumentError(f"seed must lie in [0, 2**32), got seed={self.seed}.")

    @property
    def declaration(self) -> Declaration:
        """Clients."""
        return Declaration()

    @property
    def client_limits(self) -> dict[str, float]:
        """One mark a client."""
        return {"clients": 1.0}

    @cached_property
    def spec(self) -> StatisticsSpec:
        """One mark a client."""
        return StatisticsSpec(Entry("clients", (self.most,), 0.0, 1.0, 2.0**-10))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        found = [local_clusters(client.features, self.most, self.seed) for client in clients]
        return [Statistics(clients=np.eye(self.most)[number - 1]) for number in found]


def local_clusters(rows: FloatArray, most: int, seed: int) -> int:
    """Return the number of clusters in [2, most] of the lowest Davies-Bouldin index; 1 for too few rows."""
    last = min(most, int(np.sqrt(len(np.unique(rows, axis=0)))))
    best, lowest = 1, np.inf
    for number in range(2, last + 1):
        with warnings.catch_warnings():
            # Rows that differ in their last bits only may come out as fewer clusters.
            warnings.simplefilter("ignore", ConvergenceWarning)
            labels = KMeans(number, n_init=3, random_state=seed).fit_predict(rows)
        if len(np.unique(labels)) == number and (index := davies_bouldin_score(rows, labels)) < lowest:
            best, lowest = number, index
    return best
