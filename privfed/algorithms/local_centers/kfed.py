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
of the rows of its cluster. So whoever sees a client's centroids, or its own answers to the sums, and its
number and sum of rows, can often compute the size of each centroid and, with several restarts, single rows
(`privfed.attacks.Differencing`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from privfed.algorithms.outcome import ClusteringOutcome
from privfed.algorithms.restarts import best_of, geometry, locate_enough, restart_phases
from privfed.algorithms.starts.starts import MOST_START_SUMS, AnyInit, Starts, cells_start, start_phases
from privfed.algorithms.stopping import ending, stops
from privfed.core.asking.declaration import Declaration
from privfed.core.asking.phases import Form, Phase, Phases, Same, Shape
from privfed.core.asking.question import ClientData, register
from privfed.core.roles.conversation import EVERYONE, Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges, frozen_array
from privfed.errors import ArgumentError, DataError
from privfed.numerics.distances import squared_distances
from privfed.numerics.kernels.by_law import two_nearest
from privfed.numerics.weighted_kmeans import Clustering, lloyd, seeds, weighted_kmeans
from privfed.questions.cells import cells_form
from privfed.questions.gathered import (
    PointCount,
    check_enough,
    count_points,
    gather_points,
    gathered_form,
    of_cohort,
    union,
)
from privfed.questions.inertia import Inertia
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
from privfed.questions.ranges import Located, range_phases

LOCAL = ("awasthi-sheffet", "kmeans")

LOCAL_STARTS = 5
"""Number of k-means++ starts of a client whose local method is "kmeans"."""

_REMEDY = "fewer n_local_clusters, a smaller min_cluster_size, or clients with more rows"


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class LocalCentroids(LocalPoints):
    """The centroids of a client's own clustering, each of weight 1.

    Args:
        n_clusters: number of clusters of a client, k'; a client with fewer distinct rows has no centroids.
        local: "awasthi-sheffet" (Algorithm 1) or "kmeans" (the best of several k-means++ starts).
        min_cluster_size: centroids of fewer rows are left out.
        seed: of the client's draws, below 2**32.
    """

    counts_rows: ClassVar[bool] = False
    n_clusters: int
    local: str
    min_cluster_size: int
    seed: int

    @property
    def declaration(self) -> Declaration:
        """The number of clusters that each client looks for."""
        return Declaration(n_clusters=self.n_clusters)

    def __post_init__(self) -> None:
        if self.n_clusters < 1 or self.min_cluster_size < 1 or not 0 <= self.seed < 2**32:
            raise ArgumentError(
                "n_clusters and min_cluster_size must be at least 1, and seed in [0, 2**32), got "
                f"{self.n_clusters}, {self.min_cluster_size} and {self.seed}."
            )
        if self.local not in LOCAL:
            raise ArgumentError(f"local must be one of {LOCAL}, got local={self.local!r}.")

    def make(self, client: ClientData) -> LocalMeans:
        """Cluster the client's rows."""
        rows, k = client.features, self.n_clusters
        if not has_distinct(rows, k):
            return no_means(rows.shape[1])
        found = self._clustered(rows, np.random.default_rng(self.seed))
        sizes = np.bincount(found.labels, minlength=k)
        kept = sizes >= self.min_cluster_size
        return LocalMeans(found.centers[kept], np.ones(int(kept.sum())), sizes[kept].astype(np.float64))

    def _clustered(self, rows: FloatArray, rng: np.random.Generator) -> Clustering:
        each = np.ones(len(rows))
        if self.local == "kmeans":
            return weighted_kmeans(rows, each, self.n_clusters, rng, n_init=LOCAL_STARTS)
        return lloyd(rows, each, awasthi_sheffet_start(rows, self.n_clusters, rng)[None])

    def heaviest(self, ranges: Ranges) -> float:
        """Return the number of clusters."""
        return float(self.n_clusters)


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
    lifted: FloatArray = split_means(projected, seeded) @ directions.T
    return lifted


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
    n_own = next(len(own.points) for own in held if len(own.points))
    chosen = list(range(min(n_first, n_own, n_clusters)))
    closest = squared_distances(points, points[chosen]).min(axis=1)
    while len(chosen) < n_clusters:
        # Chosen points get -1, so that others are chosen even if all remaining distances are zero.
        closest[chosen] = -1.0
        chosen.append(int(closest.argmax()))
        closest = np.minimum(closest, squared_distances(points, points[chosen[-1:]])[:, 0])
    return points[chosen]


@dataclass(frozen=True, kw_only=True)
class OneShotKMeans:
    """Algorithm 2 of Dennis, Li and Smith.

    Args:
        n_clusters: number of clusters, k.
        n_local_clusters: number of clusters of each client, k'; None for k.
        local: "awasthi-sheffet" or "kmeans"; see `LocalCentroids`.
        min_cluster_size: a client leaves out centroids of fewer rows.
        merge: "summed", "gathered", or "slotted" (gathered, but unlinked to clients).
        tol: the server's k-means stops once its centers move by strictly less (Frobenius norm).
        max_iter: most steps of the server's k-means; with "summed", each is a sum.
        min_iter: fewest steps before `tol` may stop it.
        patience: it stops once none of the last `patience` movements is below the first of them; None
            never.
        n_init: number of restarts, with new seeds for clients and server; the one with the lowest pooled
            inertia is kept.
        init: start of the server's k-means: "kfed" (the method's own), another start of
            `privfed.algorithms.starts.starts`, or centers of shape (n_clusters, n_features).
        sampled: whether the cohort of round 1 is asked, or everyone.
        seed: of the clients' and the server's random choices.
        slots: for "slotted", the number of all clients, which `run` sets itself.
    """

    fixed: ClassVar[bool] = False

    n_clusters: int
    n_local_clusters: int | None = None
    local: str = "awasthi-sheffet"
    min_cluster_size: int = 2
    merge: Literal["summed", "gathered", "slotted"] = "summed"
    tol: float = 1e-6
    max_iter: int = 300
    min_iter: int = 1
    patience: int | None = None
    n_init: int = 1
    init: AnyInit = "kfed"
    sampled: bool = False
    seed: int = 0
    slots: int = 0

    @property
    def max_sums(self) -> int:
        """Most sums: the ranges, the counts, the starts, the steps, the scores."""
        steps = self.max_iter if self.merge == "summed" else 1
        return 1 + self.n_init * (1 + MOST_START_SUMS + steps + 1)

    @property
    def _label(self) -> int:
        return 1 if self.sampled else EVERYONE

    @property
    def _most(self) -> int:
        return self.n_clusters if self.n_local_clusters is None else self.n_local_clusters

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: ranges, then for each restart points, start, steps and score."""
        score = Phase(Form(Inertia, centers=Shape(self.n_clusters, setting.n_features)))

        def restart(number: int, rng: np.random.Generator) -> Phases:
            seed = int(rng.integers(2**32))
            kept = {"local": self.local, "min_cluster_size": self.min_cluster_size, "seed": seed}
            points = Same("round points", Form(LocalCentroids, n_clusters=self._most, **kept))
            return (*self._point_phases(setting, points, number, rng), score)

        return (*range_phases(setting), *restart_phases(self.n_init, self.seed, restart))

    def _point_phases(self, setting: Setting, points: Same, restart: int, rng: np.random.Generator) -> Phases:
        k = self.n_clusters
        start = () if self._own_start else start_phases(self.init, setting, k, rng, restart)
        if self.merge != "summed":
            slots = len(setting.clients) if self.merge == "slotted" else 0
            return (Phase(gathered_form(points, most=self._most, slots=slots)), *start)
        if self._own_start:
            start = (Phase(cells_form(PointCells, setting, k, rng, points=points)),)
        steps = Form(PointSums, points=points, centers=Shape(k, setting.n_features))
        return (
            Phase(Form(PointCount, points=points, most=self._most)),
            *start,
            Phase(steps, 1, self.max_iter),
        )

    def run(self, setting: Setting) -> Conversation[ClusteringOutcome]:
        """Find the ranges, then run each restart, and keep the best."""
        if self.merge == "slotted" and not self.slots:
            return (yield from replace(self, slots=len(setting.clients)).run(setting))
        rng = np.random.default_rng(self.seed)
        located = yield from locate_enough(setting, self.n_clusters, (self._label, EVERYONE))
        starts = Starts(self.init, located, self.n_clusters, rng, setting.start)

        def restart(number: int) -> Conversation[ClusteringOutcome]:
            own = geometry(self.seed, number) if number else rng
            points = LocalCentroids(
                n_clusters=self._most,
                local=self.local,
                min_cluster_size=self.min_cluster_size,
                seed=int(own.integers(2**32)),
            )
            run = self._summed if self.merge == "summed" else self._gathered
            history, converged = yield from run(points, located, own, starts)
            return (yield from self._scored(located, history, converged))

        return (yield from best_of(self.n_init, restart))

    def _summed(
        self, points: LocalCentroids, located: Located, rng: np.random.Generator, starts: Starts
    ) -> Conversation[tuple[list[FloatArray], bool]]:
        """Cluster the union of the clients' centroids by sums; return the history and if it converged."""
        label, ranges = self._label, located.ranges
        found = yield from count_points(points, ranges, most=self._most, cohort=label, upcoming=(label,))
        check_enough(found, self.n_clusters, located.n_rows, _REMEDY)
        centers: FloatArray | None
        if self._own_start:
            cells = cells_start(points, located, self.n_clusters, rng, upcoming=(label,))
            centers = yield from of_cohort(cells, label)
        else:
            centers = yield from starts.next((self._label, EVERYONE), rng)
        if centers is None:
            raise DataError("all cells are empty although clients hold centroids; fit again.")
        return (yield from self._steps(points, ranges, centers, None))

    def _gathered(
        self, points: LocalCentroids, located: Located, rng: np.random.Generator, starts: Starts
    ) -> Conversation[tuple[list[FloatArray], bool]]:
        """Cluster the union of the gathered centroids; return the history and if it converged."""
        label, ranges = self._label, located.ranges
        held = yield from gather_points(
            points,
            ranges,
            most=self._most,
            cohort=label,
            upcoming=(EVERYONE,),
            purpose="round",
            slots=self.slots,
        )
        check_enough(sum(len(own.points) for own in held), self.n_clusters, located.n_rows, _REMEDY)
        if self._own_start:
            centers = farthest_start(held, self.n_clusters, self._most)
        else:
            centers = yield from starts.next((self._label, EVERYONE), rng)
        return (yield from self._steps(points, ranges, centers, union(held)))

    @property
    def _own_start(self) -> bool:
        return isinstance(self.init, str) and self.init == "kfed"

    def _steps(
        self, points: LocalPoints, ranges: Ranges, centers: FloatArray, held: WeightedPoints | None
    ) -> Conversation[tuple[list[FloatArray], bool]]:
        """Do the steps of the server's k-means, on the gathered points `held`, or by sums if it is None."""
        history, movements, converged = [frozen_array(centers)], list[float](), False
        while len(movements) < self.max_iter and not converged:
            current = history[-1]
            if held is None:
                moved = yield from summed_kmeans(
                    points, current, ranges, max_iter=1, tol=0.0, cohort=self._label
                )
            else:
                moved = lloyd(*held, current[None], max_iter=1).centers
            history.append(frozen_array(moved))
            movements.append(float(np.linalg.norm(moved - current)))
            converged = stops(movements, tol=self.tol, min_iter=self.min_iter, patience=self.patience)
        return history, converged

    def _scored(
        self, located: Located, history: list[FloatArray], converged: bool
    ) -> Conversation[ClusteringOutcome]:
        question = Inertia(ranges=located.ranges, centers=history[-1])
        pooled = yield Ask(question, purpose="score")
        inertia, rows = float(pooled.statistics["inertia"][0]), round(float(pooled.statistics["rows"][0]))
        ended = ending(converged, self.tol)
        return ClusteringOutcome(history[-1], tuple(history), inertia, rows, ended, inertia)
