"""Starting centroids, each found through the door.

`coreset` asks for counts and sums in public cells and seeds on the cells' means. Reveals to whoever
opens the total: those counts and sums over all clients; a cell can hold a single row.
`kfed` does the same over the clients' own local centroids, then moves the start by summed Lloyd
steps over them. `random` draws from the ranges; an array is taken as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from privfed.algorithms.lloyd import RESOLUTION, check_centers, sums_entry
from privfed.core.conversation import Ask, Conversation
from privfed.core.distances import IntArray, assign, cell_sums
from privfed.core.domain import FloatArray, Ranges
from privfed.core.question import AdditiveOver, ClientData, Question, register
from privfed.core.statistics import Entry, Statistics, StatisticsSpec
from privfed.errors import ArgumentError, DataError
from privfed.metrics.ranges import Located

GRID_FEATURES = 3
"""Up to this many features the cells are a grid, above they lie between random hyperplanes."""

KFED_STEPS = 20
"""Most summed Lloyd steps over the clients' local centroids."""


def cells_wanted(n_rows: int, n_clusters: int) -> int:
    """Return how many cells a start asks for: about one for eight rows, 8 to 32 times the clusters."""
    return int(np.clip(n_rows // 8, 8 * n_clusters, 32 * n_clusters))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cells(Question):
    """Questions that place rows in public cells through a point.

    Args:
        center: point that the cells' borders pass through, float64 of shape (n_features,).
        normals: normals of the hyperplanes, float64 of shape (n_planes, n_features); without rows
            the cells are a grid.
        per_axis: grid cells to each side of `center` along each axis; 0 with hyperplanes.
    """

    center: FloatArray
    normals: FloatArray
    per_axis: int

    def __post_init__(self) -> None:
        check_centers(self.center[None], self.ranges)
        if (self.center < self.ranges.low).any() or (self.center > self.ranges.high).any():
            raise ArgumentError("the cells' center must lie within the ranges.")
        planes = len(self.normals) if self.normals.ndim == 2 else -1
        if not 0 <= planes <= 16 or self.normals.shape[1] != self.ranges.n_features:
            raise ArgumentError(
                f"normals need at most 16 rows of {self.ranges.n_features}, got {self.normals.shape}."
            )
        if (planes == 0) == (self.per_axis == 0) or self.per_axis < 0 or self.n_cells > 1 << 20:
            raise ArgumentError(f"cells are a grid or lie between hyperplanes, got per_axis={self.per_axis}.")

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        if self.per_axis:
            return int((2 * self.per_axis) ** self.ranges.n_features)
        return 1 << len(self.normals)

    def cells(self, rows: FloatArray) -> IntArray:
        """Return the cell of each row."""
        if not self.per_axis:
            sides = (rows - self.center) @ self.normals.T > 0
            return sides @ (1 << np.arange(len(self.normals)))
        below = np.maximum(self.center - self.ranges.low, np.finfo(np.float64).tiny)
        above = np.maximum(self.ranges.high - self.center, np.finfo(np.float64).tiny)
        offset = rows - self.center
        with np.errstate(over="ignore"):  # A side without width has rows only by rounding.
            steps = offset / np.where(offset < 0, below, above) * self.per_axis
        index = np.clip(np.floor(steps), -self.per_axis, self.per_axis - 1).astype(np.intp) + self.per_axis
        return np.asarray(
            np.ravel_multi_index(tuple(index.T), (2 * self.per_axis,) * rows.shape[1]), dtype=np.intp
        )

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Counts up to the rows of a client; sums up to that many rows of the ranges."""
        count = Entry("count", (self.n_cells,), 0.0, self.ranges.rows, RESOLUTION)
        return StatisticsSpec(count, sums_entry("sum", self.n_cells, self.ranges))

    def _sums(self, rows: FloatArray) -> Statistics:
        count, total = cell_sums(rows, self.cells(rows), self.n_cells)
        return Statistics(count=count, sum=total)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class CellSums(_Cells):
    """Ask for counts and sums of the rows in public cells.

    Statistics: `count` (n_cells,), `sum` (n_cells, n_features).
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [self._sums(client.features) for client in clients]


def local_centroids(client: ClientData, n_clusters: int, seed: int) -> FloatArray:
    """Return a client's own k-means centroids, those of at least two rows; kept in its cache.

    A client with fewer rows than clusters has none: its centroids would be its rows. A centroid of
    one row is that row and is left out.
    """
    key = ("local centroids", n_clusters, seed)
    if key not in client.cache:
        client.cache[key] = _cluster_locally(client.features, n_clusters, seed)
    kept: FloatArray = client.cache[key]  # type: ignore[assignment]
    return kept


def _k_means(
    points: FloatArray, weights: FloatArray | None, n_clusters: int, n_init: int, seed: int
) -> KMeans:
    with warnings.catch_warnings():
        # Points that differ in their last bits only may come out as fewer clusters: no news to a user.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return KMeans(n_clusters, n_init=n_init, random_state=seed).fit(points, sample_weight=weights)


def _check_local(n_clusters: int, seed: int) -> None:
    if n_clusters < 1 or not 0 <= seed < 2**32:
        raise ArgumentError(
            f"local k-means needs clusters and a seed below 2**32, got {n_clusters} and {seed}."
        )


def _cluster_locally(rows: FloatArray, n_clusters: int, seed: int) -> FloatArray:
    if len(rows) < n_clusters or len(np.unique(rows, axis=0)) < n_clusters:
        return np.empty((0, rows.shape[1]))
    fitted = _k_means(rows, None, n_clusters, 5, seed)
    held = np.bincount(fitted.labels_, minlength=n_clusters) >= 2
    return np.asarray(fitted.cluster_centers_[held], dtype=np.float64)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class LocalCentroidCells(_Cells):
    """Ask for counts and sums of the clients' own centroids in public cells (k-FED as a sum).

    Statistics: `count` (n_cells,), `sum` (n_cells, n_features).

    Args:
        n_clusters: clusters of each client's own k-means.
        local_seed: of each client's own k-means, so that repeated questions see the same centroids.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    n_clusters: int
    local_seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_local(self.n_clusters, self.local_seed)

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [self._sums(local_centroids(client, self.n_clusters, self.local_seed)) for client in clients]


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class LocalCentroidSums(Question):
    """Ask for a Lloyd step over the clients' own centroids (k-FED's k-means on the server, as a sum).

    Statistics: `count` (n_clusters,), `sum` (n_clusters, n_features).

    Args:
        centers: float64 of shape (n_clusters, n_features).
        local_seed: of each client's own k-means.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    centers: FloatArray
    local_seed: int

    def __post_init__(self) -> None:
        check_centers(self.centers, self.ranges)
        _check_local(len(self.centers), self.local_seed)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Each client has at most n_clusters centroids, within the ranges."""
        k = len(self.centers)
        ranges = Ranges(self.ranges.low, self.ranges.high, k)
        return StatisticsSpec(Entry("count", (k,), 0.0, k, RESOLUTION), sums_entry("sum", k, ranges))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        k, answers = len(self.centers), []
        for client in clients:
            own = local_centroids(client, k, self.local_seed)
            count, total = cell_sums(own, assign(own, self.centers), k)
            answers.append(Statistics(count=count, sum=total))
        return answers


class _Layout(NamedTuple):
    normals: FloatArray
    per_axis: int


def _cell_layout(located: Located, n_clusters: int, rng: np.random.Generator) -> _Layout:
    d, wanted = located.ranges.n_features, cells_wanted(located.n_rows, n_clusters)
    if d <= GRID_FEATURES:
        per_axis = max(1, round(wanted ** (1.0 / d) / 2.0))
        return _Layout(np.empty((0, d)), per_axis)
    directions = rng.standard_normal((d, min(int(np.ceil(np.log2(wanted))), 16)))
    # Orthogonal normals cut more evenly than independent ones, as far as there are dimensions.
    normals = np.linalg.qr(directions)[0].T if directions.shape[1] <= d else directions.T
    return _Layout(normals, 0)


def seeded(
    points: FloatArray,
    weights: FloatArray,
    n_clusters: int,
    ranges: Ranges,
    n_init: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Return k-means centers of weighted points, (n_clusters, n_features), inside the ranges.

    With fewer distinct points than clusters the missing centers are drawn uniformly from the box
    that the points span (from the ranges where they are all one).
    """
    distinct = np.unique(points, axis=0)
    if len(distinct) >= n_clusters:
        state = int(rng.integers(2**31))
        fitted = _k_means(points, weights, n_clusters, n_init, state)
        return ranges.clip(np.asarray(fitted.cluster_centers_, dtype=np.float64))
    low, high = distinct.min(axis=0), distinct.max(axis=0)
    if len(distinct) == 1:
        low, high = ranges.low, ranges.high
    return np.vstack([distinct, rng.uniform(low, high, (n_clusters - len(distinct), points.shape[1]))])


def coreset_start(
    located: Located,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    upcoming: tuple[int, ...],
    n_init: int = 20,
) -> Conversation[FloatArray]:
    """Start from counts and sums of the rows in public cells: one sum."""
    layout = _cell_layout(located, n_clusters, rng)
    question = CellSums(
        ranges=located.ranges, center=located.mean, normals=layout.normals, per_axis=layout.per_axis
    )
    total = yield Ask(question, upcoming=upcoming, purpose="start")
    count = total.statistics["count"]
    held = count > 0.5
    points = total.statistics["sum"][held] / count[held][:, None]
    return seeded(points, count[held], n_clusters, located.ranges, n_init, rng)


def kfed_start(
    located: Located, n_clusters: int, rng: np.random.Generator, *, upcoming: tuple[int, ...]
) -> Conversation[FloatArray]:
    """Start from the clients' own centroids (Dennis, Li, Smith: k-FED, ICML 2021), as sums.

    k-FED's server runs k-means on the union of local centroids; each of its steps is a sum over
    them. Its seeds come from cells of those centroids, as in `coreset_start`.

    Raises:
        DataError: no client has as many distinct rows as there are clusters.
    """
    seed = int(rng.integers(2**31))
    layout = _cell_layout(located, n_clusters, rng)
    cells = LocalCentroidCells(
        ranges=located.ranges,
        center=located.mean,
        normals=layout.normals,
        per_axis=layout.per_axis,
        n_clusters=n_clusters,
        local_seed=seed,
    )
    total = yield Ask(cells, purpose="start")
    count = total.statistics["count"]
    held = count > 0.5
    if not held.any():
        raise DataError(
            f'init="kfed" found nothing: no client has {n_clusters} distinct rows; use init="coreset".'
        )
    points = total.statistics["sum"][held] / count[held][:, None]
    centers = seeded(points, count[held], n_clusters, located.ranges, 20, rng)
    for _ in range(KFED_STEPS):
        question = LocalCentroidSums(ranges=located.ranges, centers=centers, local_seed=seed)
        total = yield Ask(question, upcoming=(0, *upcoming), purpose="start")
        count = total.statistics["count"][:, None]
        moved = np.where(count > 0.5, total.statistics["sum"] / np.maximum(count, 1.0), centers)
        if np.linalg.norm(moved - centers) <= 1e-6 * np.linalg.norm(located.ranges.width):
            break
        centers = moved
    return located.ranges.clip(centers)


def random_start(located: Located, n_clusters: int, rng: np.random.Generator) -> FloatArray:
    """Draw centers uniformly from the ranges; no sum."""
    return rng.uniform(located.ranges.low, located.ranges.high, (n_clusters, located.ranges.n_features))
