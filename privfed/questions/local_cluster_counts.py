"""The number of clusters that each client finds in its own rows, as a histogram over clients.

Stallmann and Wilbik, On a Framework for Federated Cluster Analysis, 2022, section 2.2.3. In the paper clients
send their numbers; here these are added up to a histogram.

Reveals to whoever opens the total: how many clients find each number of clusters.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.asking.declaration import STEP, Effort
from privfed.core.asking.question import ClientData, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_whole
from privfed.numerics.kmeans import MOST_STEPS
from privfed.questions.client_sizes import ClientHistogram

N_INIT = 3
"""Starts of each k-means."""


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class LocalClusterCounts(ClientHistogram):
    """Ask how many clusters each client finds in its own rows.

    A client takes the number with the lowest Davies-Bouldin index of its own k-means. It tries numbers from 2
    up to the square root of its number of distinct rows (Bezdek and Pal 1998): above, the index falls towards
    one cluster a row. A client with fewer than four distinct rows reports one cluster.

    Statistics: `clients` (most,); entry i - 1 counts the clients with i clusters.

    Args:
        most: largest number of clusters that a client tries, in [2, 100].
        seed: seed of each client's own k-means, below 2**32.
    """

    alternative: ClassVar[str] = 'Its bound is for one client as a whole: claim unit="client".'
    most: int
    seed: int

    def __post_init__(self) -> None:
        check_whole("most", self.most, 2, 100)
        check_whole("seed", self.seed, 0, 2**32 - 1)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Values in [0, 1], since each client adds 1 to one bin."""
        return StatisticsSpec(Entry("clients", (self.most,), 0.0, 1.0, 2.0**-10))

    def effort(self, n_features: int) -> Effort:
        """k-means for each number of clusters, from `N_INIT` starts each."""
        vectors, turns = self.most * (self.most + 1) // 2, N_INIT * MOST_STEPS
        return Effort(turns, vectors, self.most * n_features, turns * self.most * STEP)

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        found = [local_clusters(client.features, self.most, self.seed) for client in clients]
        return [Statistics(clients=np.eye(self.most)[number - 1]) for number in found]


def local_clusters(rows: FloatArray, most: int, seed: int) -> int:
    """Return the number of clusters in [2, most] with the lowest Davies-Bouldin index; 1 for too few rows."""
    # Imported here since it takes long, and few runs need it.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import davies_bouldin_score

    last = min(most, int(np.sqrt(len(np.unique(rows, axis=0)))))
    best, lowest = 1, np.inf
    for number in range(2, last + 1):
        with warnings.catch_warnings():
            # For rows that differ only in their last bits, k-means may find fewer clusters.
            warnings.simplefilter("ignore", ConvergenceWarning)
            labels = KMeans(number, n_init=N_INIT, max_iter=MOST_STEPS, random_state=seed).fit_predict(rows)
        if len(np.unique(labels)) == number and (index := davies_bouldin_score(rows, labels)) < lowest:
            best, lowest = number, index
    return best
