"""k-FED: one-shot federated k-means over the clients' own centroids.

Dennis, Li, Smith: Heterogeneity for the Win: One-Shot Federated Clustering, ICML 2021,
arXiv:2103.00697. Each client clusters its rows once, into k' clusters (Algorithm 1, after Awasthi and
Sheffet 2012); the server clusters the union of these centroids, all of weight 1 (Algorithm 2). Where
the paper is silent the authors' code is followed: k-means++ seeds serve as the approximation of k-means,
and both k-means run until nothing moves. Unlike in that code, rows are projected to min(k', d)
dimensions (its check fails for d < k'); a client with fewer distinct rows than k' is left out (the code
sends its rows); and a centroid of fewer rows than `min_cluster_size` is left out.

`merge="gathered"` is the server as published: it starts from the first client's centroids and adds, one by
one, the centroid farthest from those chosen. `merge="summed"` asks for each step of the server's
k-means as a sum. Its start is found on cells of the centroids, since the farthest point cannot be found by a
sum. From the same start both give the same result.

Reveals to whoever opens the totals: in "summed" runs, how many centroids all clients hold, and how many lie
in each public cell and, in each step, nearest to each center, with their sums; in "gathered" runs, every
client's centroids; in "slotted" runs the same, but not whose they are (`privfed.questions.slots`). In
addition: the range sum's totals (`privfed.questions.ranges`) and each restart's score. A centroid is the mean
of the rows of its cluster. Whoever sees a client's centroids, or its own answers to the sums, and its number
and sum of rows, can often compute the size of each centroid. With several restarts it can compute single rows
(`privfed.attacks.Differencing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from privfed.algorithms.rounds import ClusteringOutcome, Restart, RoundsAlgorithm, State, geometry
from privfed.algorithms.starts import MOST_START_SUMS, AnyInit, SeededPoints, cells_start, start_phases
from privfed.core.asking.declaration import Effort
from privfed.core.asking.phases import Form, Phase, Phases, Same, Shape
from privfed.core.asking.question import ClientData, register
from privfed.core.roles.conversation import EVERYONE, ROUND, Conversation, Setting, changed
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_whole, check_word
from privfed.numerics.kernels.dispatch import two_nearest
from privfed.numerics.kernels.interpreted import squared_distances
from privfed.numerics.kmeans import Clustering, lloyd, seeds, weighted_kmeans
from privfed.questions.cells import cells_form
from privfed.questions.gathered import (
    PointCount,
    check_enough,
    count_points,
    gather_points,
    gathered_form,
    union,
)
from privfed.questions.local_points import (
    LocalPoints,
    PointCells,
    PointSums,
    WeightedPoints,
    has_distinct,
    kmeans_effort,
    no_points,
    summed_kmeans,
)

LOCAL = ("awasthi-sheffet", "kmeans")

LOCAL_STARTS = 5
"""Number of k-means++ starts of a client whose local method is "kmeans"."""

_REMEDY = "fewer n_local_clusters, a smaller min_cluster_size, or clients with more rows"


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class LocalCentroids(SeededPoints):
    """The centroids of a client's own clustering, each of weight 1.

    `n_clusters` is k'; a client with fewer distinct rows has no centroids.

    Args:
        local: "awasthi-sheffet" (Algorithm 1) or "kmeans" (the best of several k-means++ starts).
        min_cluster_size: centroids of fewer rows are left out.
    """

    local: str
    min_cluster_size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("min_cluster_size", self.min_cluster_size, 1)
        check_word("local", self.local, LOCAL)

    def effort(self, n_features: int) -> Effort:
        """Several runs of k-means, or one from singular directions of the rows."""
        found = kmeans_effort(self.n_clusters, n_features, LOCAL_STARTS)
        d = 0 if self.local == "kmeans" else n_features
        return replace(found, numbers=found.numbers + d**2, work=found.work + d**3, row_work=d**2)

    def make(self, client: ClientData) -> WeightedPoints:
        """Cluster the client's rows."""
        rows, k = client.features, self.n_clusters
        if not has_distinct(rows, k):
            return no_points(rows.shape[1])
        found = self._clustered(rows, np.random.default_rng(self.seed))
        kept = np.bincount(found.labels, minlength=k) >= self.min_cluster_size
        return WeightedPoints(found.centers[kept], np.ones(int(kept.sum())))

    def _clustered(self, rows: FloatArray, rng: np.random.Generator) -> Clustering:
        each = np.ones(len(rows))
        if self.local == "kmeans":
            return weighted_kmeans(rows, each, self.n_clusters, rng, n_init=LOCAL_STARTS)
        return lloyd(rows, each, awasthi_sheffet_start(rows, self.n_clusters, rng)[None])


def awasthi_sheffet_start(rows: FloatArray, n_clusters: int, rng: np.random.Generator) -> FloatArray:
    """Return the starting centers of Lloyd's steps in Algorithm 1, (n_clusters, n_features).

    Rows are projected to their first singular directions (without centering), and k-means++ seeds are
    drawn among them. Each seed then moves to the mean of the projected rows that are at most a third as far
    from it as from any other seed. The result is mapped back to all dimensions.
    """
    # The triangular factor of QR has the same singular directions as the rows, and is small.
    directions = np.linalg.svd(np.linalg.qr(rows, mode="r"), full_matrices=False)[2][:n_clusters].T
    projected = rows @ directions
    seeded = seeds(projected, np.ones(len(rows)), n_clusters, rng, candidates=1)[0]
    return np.asarray(split_means(projected, seeded) @ directions.T)


def split_means(points: FloatArray, centers: FloatArray) -> FloatArray:
    """Return the means of points at most a third as far from one center as from any other (the 1:3 split).

    A center without such points stays where it is.
    """
    if len(centers) == 1:
        return np.asarray(points.mean(axis=0, keepdims=True))
    labels, squares, others = two_nearest(points, centers)
    near = np.zeros((len(centers), len(points)), dtype=np.bool_)
    # Distances are squared, so that a third becomes a ninth.
    near[labels, np.arange(len(points))] = 9.0 * squares <= others
    counts = near.sum(axis=1)[:, None]
    return np.where(counts > 0, near @ points / np.maximum(counts, 1), centers)


def farthest_start(held: list[WeightedPoints], n_clusters: int, n_first: int) -> FloatArray:
    """Return the first client's centroids and then, one by one, the centroid farthest from those chosen.

    Algorithm 2, steps 2 to 6. The first client is the first that has centroids.

    Args:
        held: centroids of each client, in sum at least `n_clusters`.
        n_clusters: number of centroids to choose.
        n_first: most centroids that are taken from the first client.
    """
    points = np.concatenate([own.points for own in held])
    chosen = list(range(min(n_first, next(len(own.points) for own in held if len(own.points)), n_clusters)))
    closest = squared_distances(points, points[chosen]).min(axis=1)
    while len(chosen) < n_clusters:
        # Chosen points get -1, so that others are chosen even if all remaining distances are zero.
        closest[chosen] = -1.0
        chosen.append(int(closest.argmax()))
        closest = np.minimum(closest, squared_distances(points, points[chosen[-1:]])[:, 0])
    return points[chosen]


@dataclass(frozen=True, kw_only=True)
class LocalCentersAlgorithm(RoundsAlgorithm):
    """Base of k-FED and FKM, which cluster the clients' own centers; restarts are compared by inertia.

    Args:
        min_cluster_size: a client leaves out centers of fewer rows.
        merge: "summed", "gathered", or "slotted" (gathered, but unlinked to clients).
    """

    score_per_row: ClassVar[bool] = False

    min_cluster_size: int = 2
    merge: Literal["summed", "gathered", "slotted"] = "summed"

    def slots(self, setting: Setting) -> int:
        """Return the number of slots of a sum that gathers centers; 0 for none."""
        return len(setting.clients) if self.merge == "slotted" else 0

    def gathered(
        self, points: LocalPoints, begun: Restart, most: int, cohort: int, then: int, purpose: str
    ) -> Conversation[list[WeightedPoints]]:
        """Gather the centers of each client of a cohort, at most `most` of each."""
        return gather_points(
            points,
            begun.located.ranges,
            most=most,
            cohort=cohort,
            upcoming=(then,),
            purpose=purpose,
            slots=self.slots(begun.setting),
        )


@dataclass(frozen=True, kw_only=True)
class OneShotKMeans(LocalCentersAlgorithm):
    """Algorithm 2 of Dennis, Li and Smith.

    Args:
        n_local_clusters: number of clusters of each client, k'; None for k.
        local: "awasthi-sheffet" or "kmeans"; see `LocalCentroids`.
        init: start of the server's k-means: "kfed" (the method's own), another start of
            `privfed.algorithms.starts`, or centers of shape (n_clusters, n_features).
    """

    n_local_clusters: int | None = None
    local: str = "awasthi-sheffet"
    init: AnyInit = "kfed"

    @property
    def max_sums(self) -> int:
        """Most sums: the ranges, the counts, the starts, the steps, the scores."""
        return 2 + self.n_init * (1 + MOST_START_SUMS + (self.max_iter if self.merge == "summed" else 1) + 1)

    @property
    def _most(self) -> int:
        return self.n_clusters if self.n_local_clusters is None else self.n_local_clusters

    def cohort(self, number: int) -> int:
        """Return the label of the only cohort: that of round 1, or everyone."""
        return 1 if self.sampled else EVERYONE

    def _points(self, rng: np.random.Generator) -> dict[str, Any]:
        """Return the options of a restart's local centroids."""
        kept = {"local": self.local, "min_cluster_size": self.min_cluster_size}
        return {"n_clusters": self._most, "seed": int(rng.integers(2**32)), **kept}

    def start_phases(self, setting: Setting, number: int, rng: np.random.Generator) -> Phases:
        """Return the questions for the local centroids, or their number, and for the start."""
        points, k = Same("round points", Form(LocalCentroids, **self._points(rng))), self.n_clusters
        start = () if self._own_start else start_phases(self.init, setting, k, rng, number)
        if self.merge != "summed":
            return (Phase(gathered_form(points, most=self._most, slots=self.slots(setting))), *start)
        if self._own_start:
            start = (Phase(cells_form(PointCells, setting, k, rng, points=points)),)
        return (Phase(Form(PointCount, points=points, most=self._most)), *start)

    def round_phases(self, setting: Setting, number: int) -> Phases:
        """Return the steps of the server's k-means, where they are sums."""
        centers = Shape(self.n_clusters, setting.n_features)
        # A client that missed the sums before knows the points all the same.
        points = Same("round points", Form(LocalCentroids, **self._points(geometry(self.seed, number))))
        steps = Form(PointSums, points=points, centers=centers)
        return (Phase(steps, 1, self.max_iter),) if self.merge == "summed" else ()

    def restart(self, begun: Restart) -> Conversation[ClusteringOutcome]:
        """Find the centroids or their number, and the start; do the server's k-means, and score it."""
        points, located, label = LocalCentroids(**self._points(begun.geometry)), begun.located, self.cohort(1)
        gathered: list[WeightedPoints] = []
        if self.merge == "summed":
            count = count_points(points, located.ranges, most=self._most, cohort=label, upcoming=(label,))
            found = yield from count
        else:
            gathered = yield from self.gathered(points, begun, self._most, label, EVERYONE, ROUND)
            found = sum(len(own.points) for own in gathered)
        check_enough(found, self.n_clusters, located.n_rows, _REMEDY)
        centers = yield from self._start(points, gathered, begun)

        def one_round(history: Sequence[State]) -> Conversation[FloatArray]:
            current = history[-1]["centers"]
            if gathered:
                return lloyd(*union(gathered), current[None], max_iter=1).centers
            options = {"max_iter": 1, "tol": 0.0, "cohort": label}
            return (yield from summed_kmeans(points, current, located.ranges, **options))  # type: ignore[arg-type]

        history, stopped = yield from self.moved(located, centers, one_round)
        return (yield from self.scored(located, history, stopped))

    def _start(
        self, points: LocalCentroids, gathered: list[WeightedPoints], begun: Restart
    ) -> Conversation[FloatArray]:
        """Return the start of the server's k-means."""
        label, located, rng = self.cohort(1), begun.located, begun.geometry
        if not self._own_start:
            return (yield from begun.starts.next((label, EVERYONE), rng))
        if gathered:
            return farthest_start(gathered, self.n_clusters, self._most)
        cells = cells_start(points, located, self.n_clusters, rng, upcoming=(label,))
        return (yield from changed(cells, lambda ask: replace(ask, cohort=label)))

    @property
    def _own_start(self) -> bool:
        return isinstance(self.init, str) and self.init == "kfed"
