"""Starting centroids, found by questions to the clients.

`coreset` asks for counts and sums in public cells, once a run, and seeds on the cells' means. Reveals to
whoever opens the total: those counts and sums over all clients; a cell can hold a single row.

`kfed` does the same with the clients' own local centroids, again in every restart, then moves the start by
summed Lloyd steps over them. Reveals to whoever opens the totals: those counts and sums over all clients'
centroids. Whoever sees a single client's answers can compute its centroids and, with its number and sum of
rows (the range sum), the size of each. These are the sums of its rows over its own clusters, from which
`privfed.attacks.Differencing` isolates rows.

`nested` is `coreset` with cells that are the same in each fit (`privfed.questions.nested`), so that further
fits on the same rows show no further cells.

A `KeptStart` is `coreset` or `nested` without a question: its cells' counts and sums are those of an earlier
fit (`privfed.algorithms.starts.kept`).

`random` draws from the ranges. An array is used as it is.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from privfed.algorithms.starts.kept import KeptStart
from privfed.core.asking.declaration import Declaration
from privfed.core.asking.phases import Form, Phase, Phases, Same, Shape
from privfed.core.asking.question import ClientData, Question, register
from privfed.core.roles.conversation import EVERYONE, Ask, Conversation, Setting, Total
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import ArgumentError, DataError
from privfed.numerics.kernels.interpreted import cell_sums
from privfed.numerics.weighted_kmeans import weighted_kmeans
from privfed.questions.cells import CellSums, cell_layout, cells_form
from privfed.questions.local_points import (
    LocalMeans,
    LocalPoints,
    PointCells,
    PointSums,
    WeightedPoints,
    has_distinct,
    no_means,
    summed_kmeans,
)
from privfed.questions.nested import nested_cells, nested_form
from privfed.questions.ranges import Located

KFED_STEPS = 20
"""Most summed Lloyd steps over the clients' local centroids."""

BEST_OF = 20
"""Number of k-means++ starts on cells, of which the best is kept."""

LOCAL_STARTS = 5
"""Number of k-means++ starts of a client's own k-means, of which the best is kept."""

MOST_START_SUMS = KFED_STEPS + 1
"""Most sums that a start asks for."""

Init = Literal["coreset", "nested", "kfed", "random"] | FloatArray

AnyInit = Init | KeptStart
"""The starts of algorithms without noise."""


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class KMeansCentroids(LocalPoints):
    """A client's own k-means centroids of at least two rows, each of weight 1.

    A client with fewer distinct rows than clusters has none, since its centroids would be its rows. A
    centroid of a single row is that row, and is left out.

    Args:
        n_clusters: number of clusters of each client's own k-means.
        seed: seed of each client's own k-means, below 2**32.
    """

    counts_rows: ClassVar[bool] = False
    n_clusters: int
    seed: int

    @property
    def declaration(self) -> Declaration:
        """The number of clusters that each client looks for."""
        return Declaration(n_clusters=self.n_clusters)

    def __post_init__(self) -> None:
        if self.n_clusters < 1 or not 0 <= self.seed < 2**32:
            raise ArgumentError(
                "n_clusters must be at least 1, and seed in [0, 2**32), got "
                f"{self.n_clusters} and {self.seed}."
            )

    def make(self, client: ClientData) -> LocalMeans:
        """Cluster the client's rows."""
        rows, k = client.features, self.n_clusters
        if not has_distinct(rows, k):
            return no_means(rows.shape[1])
        rng = np.random.default_rng(self.seed)
        fitted = weighted_kmeans(rows, np.ones(len(rows)), k, rng, n_init=LOCAL_STARTS)
        sizes, sums = cell_sums(rows, fitted.labels, k)
        held = sizes >= 2
        centers = fitted.centers[held]
        # After the most steps a centroid may not match its labels; its size is unknown then, hence 1.
        off = np.abs(centers - sums[held] / sizes[held][:, None]).max(axis=1)
        known = off <= 1e-9 * np.ptp(rows, axis=0).max()
        return LocalMeans(centers, np.ones(len(centers)), np.where(known, sizes[held], 1.0))

    def heaviest(self, ranges: Ranges) -> float:
        """Return the number of clusters."""
        return float(self.n_clusters)


def seeded(
    points: FloatArray,
    weights: FloatArray,
    n_clusters: int,
    ranges: Ranges,
    n_init: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Return k-means centers of weighted points, (n_clusters, n_features), inside the ranges.

    With fewer distinct points than clusters, the missing centers are drawn uniformly from the points'
    bounding box (from the ranges if all points are equal).
    """
    distinct = np.unique(points, axis=0)
    if len(distinct) >= n_clusters:
        own = np.random.default_rng(int(rng.integers(2**31)))
        return ranges.clip(weighted_kmeans(points, weights, n_clusters, own, n_init=n_init).centers)
    low, high = distinct.min(axis=0), distinct.max(axis=0)
    if len(distinct) == 1:
        low, high = ranges.low, ranges.high
    return np.vstack([distinct, rng.uniform(low, high, (n_clusters - len(distinct), points.shape[1]))])


def asked_cells(
    points: LocalPoints | None,
    located: Located,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    upcoming: tuple[int, ...],
) -> Conversation[WeightedPoints]:
    """Find the means and counts of public cells, of the clients' points or of their rows, with one sum."""
    layout = cell_layout(located, n_clusters, rng)
    where = {"ranges": located.ranges, "center": layout.center, "normals": layout.normals}
    if points is None:
        question: CellSums | PointCells = CellSums(**where, per_axis=layout.per_axis)  # type: ignore[arg-type]
    else:
        question = PointCells(**where, per_axis=layout.per_axis, points=points)  # type: ignore[arg-type]
    return (yield from _in_cells(question, upcoming))


def _in_cells(question: Question, upcoming: tuple[int, ...]) -> Conversation[WeightedPoints]:
    """Return the means and counts of cells that are not empty."""
    return _means((yield Ask(question, upcoming=upcoming, purpose="start")))


def _means(total: Total) -> WeightedPoints:
    """Return the means and counts of cells that are not empty."""
    count = total.statistics["count"]
    held = count > 0.5
    return WeightedPoints(total.statistics["sum"][held] / count[held][:, None], count[held])


def cells_start(
    points: LocalPoints,
    located: Located,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    upcoming: tuple[int, ...],
) -> Conversation[FloatArray | None]:
    """Seed on the means of public cells of the clients' points, with one sum.

    Returns:
        Centers of shape (n_clusters, n_features); None where all cells are empty.
    """
    cells = yield from asked_cells(points, located, n_clusters, rng, upcoming=upcoming)
    if not len(cells.points):
        return None
    return seeded(*cells, n_clusters, located.ranges, BEST_OF, rng)


def kfed_start(
    located: Located, n_clusters: int, rng: np.random.Generator, *, upcoming: tuple[int, ...]
) -> Conversation[FloatArray]:
    """Start from the clients' own centroids (Dennis, Li, Smith: k-FED, ICML 2021), by sums.

    k-FED's server runs k-means on the union of local centroids; here each of its steps is a sum. The seeds
    come from public cells of those centroids (`cells_start`).

    Raises:
        DataError: no client has as many distinct rows as there are clusters.
    """
    points = KMeansCentroids(n_clusters=n_clusters, seed=int(rng.integers(2**31)))
    centers = yield from cells_start(points, located, n_clusters, rng, upcoming=(EVERYONE,))
    if centers is None:
        raise DataError(
            f'init="kfed" found nothing: no client has {n_clusters} different points; use init="coreset".'
        )
    tol = 1e-6 * float(np.linalg.norm(located.ranges.width))
    centers = yield from summed_kmeans(
        points, centers, located.ranges, max_iter=KFED_STEPS, tol=tol, upcoming=upcoming, purpose="start"
    )
    return located.ranges.clip(centers)


class Starts:
    """Finds the starts of a run's restarts.

    A coreset is asked for only once: new cells for each restart would isolate single rows.

    Args:
        init: "coreset", "nested", "kfed", "random", or centers of shape (n_clusters, n_features).
        located: result of the range sum.
        n_clusters: number of clusters.
        rng: source of the starts' random choices.
        kept: the start total that `init` names, where it is a `KeptStart` (`Setting.start`).

    Raises:
        ArgumentError: the named total is not there, or is of rows with other columns.
    """

    def __init__(
        self,
        init: AnyInit,
        located: Located,
        n_clusters: int,
        rng: np.random.Generator,
        kept: Total | None = None,
    ) -> None:
        self._init, self._located, self._n_clusters, self._rng = init, located, n_clusters, rng
        self._coreset: WeightedPoints | None = None
        self._kept = _kept(init, kept, located) if isinstance(init, KeptStart) else None

    def next(
        self, upcoming: tuple[int, ...] = (EVERYONE,), geometry: np.random.Generator | None = None
    ) -> Conversation[FloatArray]:
        """Return starting centers; the cohorts `upcoming` are asked after them.

        Args:
            upcoming: labels of the cohorts that may be asked next.
            geometry: of the restart (`privfed.algorithms.restarts.geometry`), where clients cluster anew; by
                default the source of all random choices.

        Raises:
            DataError: no client has rows or, for "kfed", at least as many distinct rows as clusters.
        """
        located, n_clusters, rng = self._located, self._n_clusters, self._rng
        if not isinstance(self._init, str | KeptStart):
            return self._init
        if self._init == "random":
            return random_start(located, n_clusters, rng)
        if self._init == "kfed":
            return (yield from kfed_start(located, n_clusters, geometry or rng, upcoming=upcoming))
        # The first start is the best of many draws; later ones are single draws, so that restarts differ.
        draws = BEST_OF if self._coreset is None else 1
        if self._coreset is None and self._kept is not None:
            self._coreset = self._kept
        elif self._coreset is None and self._init == "nested":
            self._coreset = yield from _in_cells(nested_cells(located, n_clusters), upcoming)
        elif self._coreset is None:
            self._coreset = yield from asked_cells(None, located, n_clusters, rng, upcoming=upcoming)
        if not len(self._coreset.points):
            raise DataError(
                "no cell of the start counts a row: clients hold none, or their policy (min_count) leaves "
                'out cells of few rows; use init="random", or pass centers as init.'
            )
        return seeded(*self._coreset, n_clusters, located.ranges, draws, rng)


def _kept(named: KeptStart, total: Total | None, located: Located) -> WeightedPoints:
    if total is None or total.statistics["sum"].shape[1] != located.ranges.n_features:
        raise ArgumentError(
            f"the start total of sum {named.index} of fit {named.fit[:8]} is not known here, or has other "
            "columns; begin with the StartTotal of that fit, on its rows."
        )
    return _means(total)


def random_start(located: Located, n_clusters: int, rng: np.random.Generator) -> FloatArray:
    """Draw centers uniformly from the ranges, float64 of shape (n_clusters, n_features), without a sum."""
    return rng.uniform(located.ranges.low, located.ranges.high, (n_clusters, located.ranges.n_features))


def start_phases(
    init: AnyInit, setting: Setting, n_clusters: int, rng: np.random.Generator, restart: int = 0
) -> Phases:
    """Return what `Starts.next` asks.

    Args:
        init: as for `Starts`.
        setting: what is agreed.
        n_clusters: number of clusters.
        rng: of the restart's geometry, in the state in which the start finds it; it is kept.
        restart: number of the restart; only the first asks for a coreset.
    """
    if not isinstance(init, str) or init == "random":
        return ()
    if init == "nested":
        return () if restart else (Phase(nested_form(setting, n_clusters)),)
    if init == "coreset":
        return () if restart else (Phase(cells_form(CellSums, setting, n_clusters, rng)),)
    rng = deepcopy(rng)
    own = Form(KMeansCentroids, n_clusters=n_clusters, seed=int(rng.integers(2**31)))
    points = Same("start points", own)
    steps = Form(PointSums, points=points, centers=Shape(n_clusters, setting.n_features))
    return (
        Phase(cells_form(PointCells, setting, n_clusters, rng, points=points)),
        Phase(steps, 1, KFED_STEPS),
    )
