"""Questions of weighted federated k-means: weights, and weighted local centroids.

Holzer, Jacob, Kavane: Dynamically Weighted Federated k-Means, 2023, equations 3 to 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.algorithms.kmeans.weightings import all_weights, is_known, known_weightings
from privfed.core.asking.coarseness import Coarseness
from privfed.core.asking.declaration import Declaration, RowCounts
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.asking.together import stacked
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.numerics.local_kmeans import LocalUpdates, local_updates
from privfed.questions.lloyd import RESOLUTION, SLACK, check_centers, value_resolution


@dataclass(frozen=True, kw_only=True, eq=False)
class _LocalSteps(Question):
    """Questions that begin with local k-means steps from the global centroids.

    Args:
        centers: global centroids, float64 of shape (n_clusters, n_features).
        local_iter: most local steps.
        local_tol: a client stops once its centroids move by less (Frobenius norm); None never.
        relocate_empty: move local centroids without rows onto far rows.
    """

    centers: FloatArray
    local_iter: int
    local_tol: float | None = None
    relocate_empty: bool = False

    def __post_init__(self) -> None:
        check_centers(self.centers, self.ranges)
        if not 1 <= self.local_iter <= 100_000:
            raise ArgumentError(f"local_iter must lie in [1, 100000], got local_iter={self.local_iter}.")

    def updates(self, clients: Sequence[ClientData]) -> LocalUpdates:
        """Return the clients' local updates."""
        return local_updates(
            stacked(clients),
            self.centers,
            local_iter=self.local_iter,
            local_tol=self.local_tol,
            relocate_empty=self.relocate_empty,
        )

    def coarse_updates(self, clients: Sequence[ClientData], coarseness: Coarseness) -> LocalUpdates:
        """Return the clients' local updates, with small clusters suppressed."""
        return self.updates(clients).coarsened(coarseness, float(self.ranges.rows))

    def _centroid_bounds(self, clusters: slice | FloatArray = slice(None)) -> tuple[FloatArray, FloatArray]:
        # A local centroid is a mean of rows, or the received centroid where it has none.
        centers = self.centers[clusters if isinstance(clusters, slice) else clusters.astype(np.intp)]
        return np.minimum(self.ranges.low, centers), np.maximum(self.ranges.high, centers)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedCentroids(_LocalSteps):
    """Ask for weights and weighted local centroids: the two sums of equation 4.

    Statistics: `weight` (n_clusters,), `weighted` (n_clusters, n_features) = weight * local centroid.

    Args:
        weights: name of a registered weighting. Its values must lie in [0, rows of a client]; others are
            clipped, and counted as clipped like all values outside their ranges.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    weights: str = "dynamic"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_known(self.weights):
            raise ArgumentError(f"weights={self.weights!r} is not registered; known: {known_weightings()}.")

    @property
    def declaration(self) -> Declaration:
        """Dynamic weights count rows, other weights do not; a user's weighting may fail."""
        counts = (RowCounts("weight", ("weighted",)),) if self.weights == "dynamic" else ()
        return Declaration(counts, (self.centers,), can_fail=self.weights not in ("dynamic", "equal"))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Weights of at most a client's rows (1 for "equal"); centroids in the ranges, times the weight."""
        largest = 1.0 if self.weights == "equal" else float(self.ranges.rows)
        low, high = self._centroid_bounds()
        return StatisticsSpec(
            Entry("weight", (len(self.centers),), 0.0, largest, RESOLUTION),
            Entry(
                "weighted",
                self.centers.shape,
                low=np.minimum(0.0, largest * low) * SLACK,
                high=np.maximum(0.0, largest * high) * SLACK,
                resolution=value_resolution(low, high),
            ),
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> Sequence[Statistics]:
        """Answer for several clients in one pass."""
        return self._weighted(self.updates(clients))

    def answer_coarsely(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator], coarseness: Coarseness
    ) -> Sequence[Statistics]:
        """Answer for several clients; weightings get their updates with small clusters suppressed."""
        return self._weighted(self.coarse_updates(clients, coarseness))

    def _weighted(self, updates: LocalUpdates) -> Sequence[Statistics]:
        weight = all_weights(self.weights, updates)
        return self.spec.tabled(weight=weight, weighted=weight[:, :, None] * updates.centers)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class FallbackCentroids(_LocalSteps):
    """Ask for the unweighted mean of local centroids: equation 4 where a total weight is zero.

    Statistics: `centroid` (n_asked, n_features), the local centroids; `clients` (1,).

    Args:
        clusters: indices of the clusters whose total weight is zero, float64 of shape (n_asked,).
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    clusters: FloatArray

    def __post_init__(self) -> None:
        super().__post_init__()
        known = set(range(len(self.centers)))
        if self.clusters.ndim != 1 or not self.clusters.size or not set(self.clusters.tolist()) <= known:
            raise ArgumentError(f"clusters must be indices below {len(self.centers)}.")

    @property
    def declaration(self) -> Declaration:
        """No row counts: the entries are centroids, and a count of clients."""
        return Declaration(centers=(self.centers,))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Centroids in the box around the ranges and the received centroids; one client."""
        low, high = self._centroid_bounds(self.clusters)
        return StatisticsSpec(
            Entry(
                "centroid",
                low.shape,
                low=np.minimum(0.0, low) * SLACK,
                high=np.maximum(0.0, high) * SLACK,
                resolution=value_resolution(low, high),
            ),
            Entry("clients", (1,), 0.0, 1.0, RESOLUTION),
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> Sequence[Statistics]:
        """Answer for several clients in one pass."""
        return self._asked(self.updates(clients))

    def answer_coarsely(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator], coarseness: Coarseness
    ) -> Sequence[Statistics]:
        """Answer for several clients; a centroid of few rows is replaced by the received one."""
        return self._asked(self.coarse_updates(clients, coarseness))

    def _asked(self, updates: LocalUpdates) -> Sequence[Statistics]:
        asked = updates.centers[:, self.clusters.astype(np.intp)]
        return self.spec.tabled(centroid=asked, clients=np.ones((len(asked), 1)))
