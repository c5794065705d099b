"""FKM: federated k-means in which clients may hold different numbers of clusters.

Garst and Reinders: Federated K-Means clustering, 2023, arXiv:2310.01195v2, Algorithm 1. In each round a
client drops the global means that are nearest to none of its rows. It does one k-means step from the others
and sends its means, each with its number of rows. The server's weighted k-means (eq. 1) merges them. Where
the paper is silent the authors' code is followed: the start is k-means++ and one step; sizes are counted
after the step, with the updated means; means of fewer than `min_cluster_size` rows (p in section 2) are
dropped. Unlike in that code, the start does not count as a round.

`merge="gathered"` is the server as published: it sees every client's means and starts again from
k-means++ in each round. `merge="summed"` asks for each step of that k-means as a sum; it starts from cells
of the clients' means, then from the current global ones. From the same start both give the same result.

Reveals to whoever opens the totals: in "summed" rounds, the total size and the weighted sum of the cohort's
means nearest to each center; at the start, the number of means of all clients, and their weights and weighted
sums in public cells. In "gathered" rounds, every client's means and sizes; in "slotted" rounds the same, but
not whose they are (`privfed.questions.slots`), although their contents can link rounds. A mean is computed
from the rows assigned before the step, its size from those after it. So a mean of sufficient size may still
be the mean of a single row, that is, the row itself. On the paper's data with beta = 0.1 that held for one
mean in forty-five. The means of a public step, with the client's number and sum of rows, give the sizes
before the step. As in a round of DWF k-means, these give single rows (`privfed.attacks.Differencing`).
Besides: the range sum's totals (`privfed.questions.ranges`), and scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.optimize import linear_sum_assignment

from privfed.algorithms.kfed import LocalCentersAlgorithm
from privfed.algorithms.rounds import ClusteringOutcome, Restart, State
from privfed.algorithms.starts import MOST_START_SUMS, AnyInit, PointsFrom, SeededPoints, cells_start
from privfed.core.asking.declaration import STEP, Effort
from privfed.core.asking.phases import Cycle, Form, Phase, Phases, Same, Shape
from privfed.core.asking.question import ClientData, register
from privfed.core.roles.conversation import EVERYONE, ROUND, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges
from privfed.core.values.numbers import check_whole
from privfed.numerics.kernels.interpreted import FEW_FEATURES, cell_sums
from privfed.numerics.kmeans import MOST_DISTANCES, lloyd, many_distances, nearest, seeds, weighted_kmeans
from privfed.questions.cells import cells_form
from privfed.questions.gathered import PointCount, check_enough, count_points, gathered_form, union
from privfed.questions.local_points import LocalPoints, PointCells, PointSums, WeightedPoints, summed_kmeans

INNER_STEPS = 30
"""Most summed steps of one merge; usually one or two suffice."""

SERVER_STARTS = 10
"""Number of k-means++ starts of the gathered merge, as in the authors' runs."""

_REMEDY = "a smaller min_cluster_size, or clients with more rows"


def _stepped(rows: FloatArray, centers: FloatArray, min_cluster_size: int) -> WeightedPoints:
    """Return the means of one k-means step and their sizes, without small ones (lines 14 to 17).

    Centers without rows are dropped first. Sizes count the rows nearest to the moved means, so that a mean
    can be computed from fewer rows than its size, or from more.
    """
    counts, sums = cell_sums(rows, nearest(rows, centers), len(centers))
    held = counts > 0
    means = sums[held] / counts[held][:, None]
    sizes = np.bincount(nearest(rows, means), minlength=len(means)).astype(np.float64)
    kept = sizes >= min_cluster_size
    return WeightedPoints(means[kept], sizes[kept])


def _stepped_all(
    clients: Sequence[FloatArray], centers: FloatArray, min_cluster_size: int
) -> list[WeightedPoints]:
    """Return the results of `_stepped` for each client, bit for bit, in one pass over all rows."""
    rows, k = np.concatenate(clients), len(centers)
    owner = np.repeat(np.arange(len(clients)), [len(own) for own in clients])
    counts, sums = cell_sums(rows, owner * k + nearest(rows, centers), len(clients) * k)
    # Dropped centers are infinitely far, so that they are nearest to no row.
    stepped, held = np.full(sums.shape, np.inf), counts > 0
    stepped[held] = sums[held] / counts[held][:, None]
    means, distances = stepped.reshape(len(clients), k, -1), np.zeros((k, len(rows)))
    for j, column in enumerate(rows.T):
        distances += np.square(means[:, :, j].T[:, owner] - column)
    sizes = np.bincount(owner * k + distances.argmin(axis=0), minlength=len(counts)).astype(np.float64)
    sizes = sizes.reshape(len(clients), k)
    return [
        WeightedPoints(own[kept], size[kept])
        for own, size, kept in zip(means, sizes, sizes >= min_cluster_size, strict=True)
    ]


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class SeededMeans(SeededPoints):
    """A client's means at the start: k-means++ among its rows and one step (Algorithm 1, line 4).

    `n_clusters` is the number of seeds; a client with fewer rows takes one seed a row.

    Args:
        min_cluster_size: means of fewer rows are dropped.
    """

    counts_rows: ClassVar[bool] = True
    min_cluster_size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("min_cluster_size", self.min_cluster_size, 1)

    def effort(self, n_features: int) -> Effort:
        """Each seed is the best of a few that all rows are compared with."""
        tries = 2 + int(self.n_clusters).bit_length()
        return Effort(tries, self.n_clusters, self.n_clusters * n_features, self.n_clusters * STEP)

    def make(self, client: ClientData) -> WeightedPoints:
        """Draw k-means++ seeds among the client's rows, and do one step."""
        rows, rng = client.features, np.random.default_rng(self.seed)
        drawn = seeds(rows, np.ones(len(rows)), min(self.n_clusters, len(rows)), rng)
        return _stepped(rows, drawn[0], self.min_cluster_size)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class SteppedMeans(PointsFrom):
    """A client's means in a round: one step from the global means that have rows there (lines 13 to 17).

    Args:
        centers: global means, float64 of shape (n_clusters, n_features).
        min_cluster_size: means of fewer rows are dropped.
    """

    counts_rows: ClassVar[bool] = True
    min_cluster_size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("min_cluster_size", self.min_cluster_size, 1)

    def make(self, client: ClientData) -> WeightedPoints:
        """Assign rows, drop empty centers, do one step, and count rows again."""
        return _stepped(client.features, self.centers, self.min_cluster_size)

    def prepare(self, clients: Sequence[ClientData]) -> None:
        """Compute the points of several simulated clients in one pass, where that is faster."""
        few = len(clients) > 1 and self.centers.shape[1] == clients[0].n_features <= FEW_FEATURES
        if few and sum(client.n_rows for client in clients) * len(self.centers) <= MOST_DISTANCES:
            made = _stepped_all([one.features for one in clients], self.centers, self.min_cluster_size)
            for client, own in zip(clients, made, strict=True):
                client.cache[type(self)] = (self.key(), own)

    def heaviest(self, ranges: Ranges) -> float:
        """Return the rows of a client."""
        return float(ranges.rows)


@dataclass(frozen=True, kw_only=True)
class FederatedKMeans(LocalCentersAlgorithm):
    """Algorithm 1 of Garst and Reinders.

    Args:
        min_cluster_size: p of section 2, where it is 2.
        init: "k-means++" (the clients' own, merged), a start of `privfed.algorithms.starts`, or
            centers of shape (n_clusters, n_features).
    """

    tol: float | None = 0.0
    max_iter: int = 10
    init: AnyInit | Literal["k-means++"] = "k-means++"  # type: ignore[assignment]

    @property
    def max_sums(self) -> int:
        """Most sums: the ranges, the starts, the steps of each merge, the scores."""
        a_merge = INNER_STEPS if self.merge == "summed" else 1
        return 2 + self.n_init * (max(MOST_START_SUMS, 2 + a_merge) + a_merge * self.max_iter + 1)

    @property
    def _own_start(self) -> bool:
        return isinstance(self.init, str) and self.init == "k-means++"

    def round_phases(self, setting: Setting, number: int) -> Phases:
        """Return the questions of the rounds: the clients' means, or the steps of their k-means."""
        centers = Shape(self.n_clusters, setting.n_features)
        stepped = Form(SteppedMeans, centers=centers, min_cluster_size=self.min_cluster_size)
        merge = Phase(gathered_form(stepped, most=self.n_clusters, slots=self.slots(setting)))
        if self.merge == "summed":
            merge = Phase(
                Form(PointSums, points=Same("round points", stepped), centers=centers), 1, INNER_STEPS
            )
        return (Cycle((merge,), 1, self.max_iter, ("round points",)),)

    def _seeded(self, rng: np.random.Generator) -> dict[str, Any]:
        """Return the options of a restart's seeded means."""
        seed = int(rng.integers(2**32))
        return {"n_clusters": self.n_clusters, "min_cluster_size": self.min_cluster_size, "seed": seed}

    def start_phases(self, setting: Setting, number: int, rng: np.random.Generator) -> Phases:
        """Return the questions of the clients' own start, or of another."""
        if not self._own_start:
            return super().start_phases(setting, number, rng)
        k, points = self.n_clusters, Same("start points", Form(SeededMeans, **self._seeded(rng)))
        if self.merge != "summed":
            return (Phase(gathered_form(points, most=k, slots=self.slots(setting))),)
        count = Phase(Form(PointCount, points=points, most=k))
        cells = Phase(cells_form(PointCells, setting, k, rng, points=points))
        steps = Form(PointSums, points=points, centers=Shape(k, setting.n_features))
        return (count, cells, Phase(steps, 1, INNER_STEPS))

    def restart(self, begun: Restart) -> Conversation[ClusteringOutcome]:
        """Find the start, do the rounds, and ask for the score."""
        if self._own_start:
            centers = yield from self._merged_start(begun)
        else:
            centers = yield from begun.starts.next((self.cohort(1),), begun.geometry)
        history, stopped = yield from self.moved(
            begun.located, centers, lambda past: self._round(begun, past)
        )
        return (yield from self.scored(begun.located, history, stopped))

    def _merged_start(self, begun: Restart) -> Conversation[FloatArray]:
        """Merge the clients' own k-means++ means."""
        rng, located, k = begun.geometry, begun.located, self.n_clusters
        points = SeededMeans(**self._seeded(rng))
        if self.merge != "summed":
            held = union((yield from self.gathered(points, begun, k, EVERYONE, self.cohort(1), "start")))
            check_enough(len(held.points), k, located.n_rows, _REMEDY)
            return weighted_kmeans(*held, k, rng, n_init=SERVER_STARTS).centers
        everyone = (EVERYONE,)
        found = yield from count_points(points, located.ranges, most=k, cohort=EVERYONE, upcoming=everyone)
        check_enough(found, k, located.n_rows, _REMEDY)
        centers = yield from cells_start(points, located, k, rng, upcoming=everyone)
        return (yield from self._summed(points, begun, centers, 0))

    def _round(self, begun: Restart, history: Sequence[State]) -> Conversation[FloatArray]:
        """Merge the means that the cohort's clients find from the current centers."""
        centers, number, k = history[-1]["centers"], len(history), self.n_clusters
        points = SteppedMeans(centers=centers, min_cluster_size=self.min_cluster_size)
        if self.merge == "summed":
            return (yield from self._summed(points, begun, centers, number))
        label, then = self.cohort(number), self.cohort(number + 1)
        held = union((yield from self.gathered(points, begun, k, label, then, ROUND)))
        if len(held.points) < k:
            # A small cohort can hold fewer means than clusters; centers without means then stay.
            return lloyd(*held, centers[None]).centers if len(held.points) else centers
        merged = weighted_kmeans(*held, k, begun.rng, n_init=SERVER_STARTS).centers
        # k-means++ numbers clusters anew in each round, but movements must be those of the same cluster.
        _, order = linear_sum_assignment(many_distances(merged, centers[None])[0])
        return np.asarray(merged[order])

    def _summed(
        self, points: LocalPoints, begun: Restart, centers: FloatArray, number: int
    ) -> Conversation[FloatArray]:
        """Merge by sums, in round `number`; the start is round 0."""
        return summed_kmeans(
            points,
            centers,
            begun.located.ranges,
            max_iter=INNER_STEPS,
            tol=0.0,
            cohort=self.cohort(number),
            upcoming=(self.cohort(number + 1),),
            purpose=ROUND if number else "start",
        )
