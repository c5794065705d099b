"""Questions of fuzzy c-means: the sums of one step, weighted local centers, and local centers as points.

Stallmann and Wilbik 2022, equations 5 and 6 and section 2.2.1; Pedrycz 2022; Barcena et al. 2021.
`privfed.algorithms.fuzzy.fuzzy` says what these totals reveal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.asking.coarseness import Coarseness
from privfed.core.asking.declaration import Declaration, RowCounts
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import ArgumentError
from privfed.numerics.local_fuzzy import LEAST_POWERS, LocalFuzzy, Stack, blocks, check_local, local_fits
from privfed.numerics.memberships import check_fuzzifier
from privfed.questions.lloyd import RESOLUTION, SLACK, check_centers, sums_entry, value_resolution
from privfed.questions.local_points import LocalMeans, LocalPoints, has_distinct, no_means


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class FuzzyCentroids(LocalPoints):
    """A client's own fuzzy c-means centers, each of weight 1.

    A center in which no row has a membership (all rows lie exactly on other centers) is left out. A client
    with fewer distinct rows than clusters has no centers, since they would be its rows.

    Args:
        centers: global centers from which the client starts, float64 of shape (n_clusters, n_features).
        m: fuzzifier, above 1.
        local_iter: most local steps.
        local_tol: a client stops once a step changes its memberships by less (Frobenius norm); None never.
    """

    counts_rows: ClassVar[bool] = False
    centers: FloatArray
    m: float
    local_iter: int
    local_tol: float | None = None

    @property
    def declaration(self) -> Declaration:
        """The centers from which the client computes its own."""
        return Declaration(centers=(self.centers,))

    def __post_init__(self) -> None:
        if self.centers.ndim != 2 or 0 in self.centers.shape or not np.isfinite(self.centers).all():
            raise ArgumentError(f"centers need rows and columns, all finite, got {self.centers.shape}.")
        check_fuzzifier(self.m)
        check_local(self.local_iter, self.local_tol)

    def make(self, client: ClientData) -> LocalMeans:
        """Run fuzzy c-means on the client's rows."""
        rows, d = client.features, client.n_features
        if self.centers.shape[1] != d:
            raise ArgumentError(f"centers need {d} columns, got shape {self.centers.shape}.")
        if not has_distinct(rows, len(self.centers)):
            return no_means(d)
        words = {"m": self.m, "local_iter": self.local_iter, "local_tol": self.local_tol}
        fit = local_fits([rows], self.centers, **words)[0]  # type: ignore[arg-type]
        # Means lie within the rows' bounding box, up to rounding.
        held = fit.powers > LEAST_POWERS
        points = np.clip(fit.centers[held], rows.min(axis=0), rows.max(axis=0))
        # A row adds at most 1 to `powers`: the mean is effectively of at least that many rows.
        return LocalMeans(points, np.ones(len(points)), fit.powers[held])

    def heaviest(self, ranges: Ranges) -> float:
        """Return the number of clusters."""
        return float(len(self.centers))


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class FuzzySums(Question):
    """Ask for one step of fuzzy c-means: the sums of equation 6.

    Statistics: `weight` (n_clusters,) = sum of u^m, `weighted` (n_clusters, n_features) = sum of u^m x.

    Args:
        centers: float64 of shape (n_clusters, n_features).
        m: fuzzifier, above 1.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS
    centers: FloatArray
    m: float

    def __post_init__(self) -> None:
        check_centers(self.centers, self.ranges)
        check_fuzzifier(self.m)

    @property
    def declaration(self) -> Declaration:
        """Sums of u^m, of which a row has at most 1 in all, and the rows' sums with these weights."""
        return Declaration((RowCounts("weight", ("weighted",)),), (self.centers,))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Weights of at most the rows of a client; sums of at most that many rows in the ranges."""
        k = len(self.centers)
        weight = Entry("weight", (k,), 0.0, self.ranges.rows * SLACK, RESOLUTION)
        return StatisticsSpec(weight, sums_entry("weighted", k, self.ranges))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients in one pass."""
        return [
            Statistics(weight=weight, weighted=weighted)
            for piece in blocks([client.features for client in clients], len(self.centers))
            for weight, weighted in self._sums(Stack.of(piece, len(self.centers), self.m))
        ]

    def _sums(self, stack: Stack) -> list[tuple[FloatArray, FloatArray]]:
        everywhere = np.repeat(self.centers[None], len(stack.clients), axis=0)
        return list(zip(*stack.sums(stack.memberships(everywhere)), strict=True))


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedFuzzyCentroids(Question):
    """Ask for weights and weighted local centers after several local steps.

    Statistics: `weight` (n_clusters,), `weighted` (n_clusters, n_features) = weight * local center.

    Args:
        centers: global centers, float64 of shape (n_clusters, n_features).
        m: fuzzifier, above 1.
        local_iter: most local steps.
        local_tol: a client stops once a step changes its memberships by less (Frobenius norm); None never.
        weight: "u^m", the sums by which the last local step divided, or "u", the sums of the
            memberships in the local centers after it (the authors' code).
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    centers: FloatArray
    m: float
    local_iter: int
    local_tol: float | None = None
    weight: str = "u^m"

    def __post_init__(self) -> None:
        check_centers(self.centers, self.ranges)
        check_fuzzifier(self.m)
        check_local(self.local_iter, self.local_tol)
        if self.weight not in ("u^m", "u"):
            raise ArgumentError(f'weight must be "u^m" or "u", got weight={self.weight!r}.')

    @property
    def declaration(self) -> Declaration:
        """Sums of u or u^m, of which a row has at most 1 in all, and local centers with these weights."""
        return Declaration((RowCounts("weight", ("weighted",)),), (self.centers,))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Weights of at most a client's rows; local centers in the box around ranges and received ones."""
        low = np.minimum(self.ranges.low, self.centers)
        high = np.maximum(self.ranges.high, self.centers)
        rows = self.ranges.rows
        return StatisticsSpec(
            Entry("weight", (len(self.centers),), 0.0, rows * SLACK, RESOLUTION),
            Entry(
                "weighted",
                self.centers.shape,
                low=np.minimum(0.0, rows * low) * SLACK,
                high=np.maximum(0.0, rows * high) * SLACK,
                resolution=value_resolution(low, high),
            ),
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients in one pass."""
        return [self._weighted(fit) for fit in self._fits(clients)]

    def answer_coarsely(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator], coarseness: Coarseness
    ) -> list[Statistics]:
        """Answer for several clients; a local center whose sum of u^m is small gets weight zero."""
        answers = [self._weighted(fit, coarseness.min_count) for fit in self._fits(clients)]
        return [coarseness.of(answer, self.declaration.row_counts, self.spec) for answer in answers]

    def _fits(self, clients: Sequence[ClientData]) -> list[LocalFuzzy]:
        rows = [client.features for client in clients]
        words = {"m": self.m, "local_iter": self.local_iter, "local_tol": self.local_tol}
        return local_fits(rows, self.centers, **words)  # type: ignore[arg-type]

    def _weighted(self, fit: LocalFuzzy, least: int = 0) -> Statistics:
        weight = np.where(fit.powers >= least, fit.powers if self.weight == "u^m" else fit.supports, 0.0)
        return Statistics(weight=weight, weighted=weight[:, None] * fit.centers)
