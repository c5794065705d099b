"""Asks how many clusters each client finds on its own, which suggests a range for the global number.

Stallmann and Wilbik, On a Framework for Federated Cluster Analysis, 2022, section 2.2.3: "As a very rough
rule of thumb" the number of global clusters lies between the smallest local number and the smallest
plus the largest. There the clients name their numbers; here only the histogram of all clients is opened.

Reveals to the party that opens the total: how many clients find each number of clusters on their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from privfed.errors import DataError
from privfed.metrics.asking import asked
from privfed.metrics.functions import federation_with_ranges
from privfed.metrics.phases import AskedMetric
from privfed.privacy.privacy import Privacy
from privfed.questions.local_clusters import LocalClusterCounts

MOST = 10
"""Most clusters that a client looks for on its own."""


@dataclass(frozen=True, slots=True)
class LocalClusters:
    """Holds how many clusters the clients found on their own.

    Args:
        clients: entry i - 1 is how many clients found i clusters; the first also counts clients with too
            few distinct rows to tell.
    """

    clients: tuple[int, ...]

    @property
    def candidates(self) -> range:
        """Candidates by the rule of thumb: from the smallest local number to the smallest plus the largest.

        Raises:
            DataError: no client could tell.
        """
        told = [number for number, count in enumerate(self.clients, start=1) if count and number > 1]
        if not told:
            raise DataError(
                "no client has four distinct rows, so none can say how many clusters it has; "
                "pass the range of numbers of clusters."
            )
        return range(told[0], told[0] + told[-1] + 1)


def local_cluster_counts(
    clients: Any, *, most: int = MOST, seed: int = 0, privacy: Privacy | None = None, **options: Any
) -> LocalClusters:
    """Ask in one sum how many clusters each client finds on its own.

    Args:
        clients: list of tables of shape (n_i, n_features), or a federation.
        most: most clusters that a client looks for, in [2, 100].
        seed: seed of each client's own k-means.
        privacy: None, or a `privfed.Privacy` that is spent on this metric (for a list of tables only).
        **options: `protocol`, `domain`, `policy`, `random_state`, `groups`, `client_names`, if `clients` is
            not a federation.
    """
    metric = AskedMetric.of(LocalClusterCounts, most=most, seed=seed)
    federation, ranges = federation_with_ranges(clients, None, privacy, options, metric)
    question = LocalClusterCounts(ranges=ranges, most=most, seed=seed)
    total = asked(federation, question, "local clusters")["clients"]
    return LocalClusters(tuple(np.rint(total).astype(int).tolist()))
