"""Starting centroids: an array, `random` in the ranges, asked of the clients, or of an earlier fit's total.

`coreset` asks for counts and sums in public cells, once a run, and seeds on the cells' means. Reveals to
whoever opens the total: those counts and sums over all clients; a cell can hold a single row.

`kfed` does the same with the clients' own local centroids, again in every restart. It then moves the start by
summed Lloyd steps over them. Reveals to whoever opens the totals: those counts and sums over all clients'
centroids. Whoever sees a single client's answers can compute its centroids and, with its number and sum of
rows (the range sum), the size of each. These are the sums of its rows over its own clusters, from which
`privfed.attacks.Differencing` isolates rows.

`nested` is `coreset` with cells that are the same in each fit (`privfed.questions.nested_cells`), so that
further fits on the same rows show no further cells.

A `KeptStart` is `coreset` or `nested` without a question, since cells of several fits cut each other into
slivers of single rows. Its cells' counts and sums are those of an earlier fit on the same rows. The agreement
names that total by the fit and the number of its sum. Each client takes it from its own journal, where it
keeps what it verified; the total itself is never sent again. It reveals nothing that the earlier fit did not.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from privfed.core.asking.declaration import Declaration, Effort
from privfed.core.asking.phases import Form, Phase, Phases, Same, Shape
from privfed.core.asking.question import ClientData, Question, question_from_bytes, register
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import EVERYONE, Ask, Conversation, Setting, Total
from privfed.core.values.domain import FloatArray, Ranges
from privfed.core.values.numbers import check_whole, check_word
from privfed.errors import ArgumentError, DataError
from privfed.numerics.kmeans import weighted_kmeans
from privfed.questions.cells import CellSums, SumsInPublicCells, cell_layout, cells_form
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
from privfed.questions.nested_cells import nested_cells, nested_form
from privfed.questions.ranges import Located


@dataclass(frozen=True, kw_only=True)
class KeptStart:
    """Names a start total: what an agreement holds of it.

    Args:
        fit: digest of the configuration of the fit that asked for it, 64 hexadecimal digits.
        index: number of the sum in that fit.
    """

    fit: str
    index: int

    def __post_init__(self) -> None:
        digits = len(self.fit) == 64 and set(self.fit) <= set("0123456789abcdef")
        if not digits or type(self.index) is not int or not 0 <= self.index < 1 << 32:
            raise ArgumentError(
                "a kept start is named by 64 hexadecimal digits and the number of a sum, got "
                f"fit={self.fit!r}, index={self.index!r}."
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class StartTotal:
    """A start total as whoever drives fits has it: `init=` of a later fit on the same rows.

    Args:
        named: what agreements call it.
        clients: names of the clients in it.
        total: the counts and sums of its cells, over the clients in it.
        otherwise: start of a fit where a client lacks the total; it asks anew, and clients count it.
    """

    named: KeptStart
    clients: frozenset[str]
    total: Total
    otherwise: Literal["nested", "coreset"] = "nested"

    def __post_init__(self) -> None:
        check_word("otherwise", self.otherwise, ("nested", "coreset"))

    def __repr__(self) -> str:
        # The total is what a fit opened: it belongs into no log.
        return f"StartTotal({self.named.fit[:8]}, sum {self.named.index})"

    @classmethod
    def of_run(cls, folder: str | Path, otherwise: Literal["nested", "coreset"] = "nested") -> Self:
        """Return the start total of the run that a folder holds.

        Raises:
            RunFolderError: the folder holds no readable run.
            ArgumentError: its fit asked for no start in cells, or had a guarantee of differential privacy.
        """
        return cls.of(Transcript.load(Path(folder)), otherwise)

    @classmethod
    def of(cls, transcript: Transcript, otherwise: Literal["nested", "coreset"] = "nested") -> Self:
        """Return the start total of a run; raises as `of_run`."""
        for asked, total in transcript.totals():
            if asked.cohort == EVERYONE and is_start(question_from_bytes(asked.question)):
                agreed = transcript.configuration
                named = KeptStart(fit=agreed.digest().hex(), index=asked.index)
                clients = frozenset(agreed.clients[i] for i in total.contributors)
                return cls(named=named, clients=clients, total=total, otherwise=otherwise)
        raise ArgumentError(
            "this fit asked about no cells of rows that a later one could start from: fit with "
            'init="coreset" or init="nested", without privacy=.'
        )


def is_start(question: Question) -> bool:
    """Say whether a question counts rows in the cells of a start, without noise."""
    return isinstance(question, SumsInPublicCells)


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


@dataclass(frozen=True, kw_only=True, eq=False)
class SeededPoints(LocalPoints):
    """Base of points that a client finds by a clustering of its own.

    Args:
        n_clusters: number of clusters of each client's own clustering.
        seed: of each client's draws, below 2**32.
    """

    n_clusters: int
    seed: int

    def __post_init__(self) -> None:
        check_whole("n_clusters", self.n_clusters, 1)
        check_whole("seed", self.seed, 0, 2**32 - 1)

    def heaviest(self, ranges: Ranges) -> float:
        """Return the number of clusters, or the rows of a client where weights count rows."""
        return float(ranges.rows if self.counts_rows else self.n_clusters)


@dataclass(frozen=True, kw_only=True, eq=False)
class PointsFrom(LocalPoints):
    """Base of points that a client finds from centers that it is sent.

    Args:
        centers: float64 of shape (n_clusters, n_features).
    """

    centers: FloatArray

    @property
    def declaration(self) -> Declaration:
        """The centers from which the client computes its own."""
        return Declaration(centers=(self.centers,))

    def __post_init__(self) -> None:
        if self.centers.ndim != 2 or 0 in self.centers.shape or not np.isfinite(self.centers).all():
            raise ArgumentError(f"centers must be a finite table, got shape {self.centers.shape}.")

    def of(self, client: ClientData) -> WeightedPoints:
        """Return the client's points; raises `ArgumentError` where its rows have other columns."""
        if self.centers.shape[1] != client.n_features:
            raise ArgumentError(f"centers need {client.n_features} columns, got {self.centers.shape[1]}.")
        return super().of(client)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class KMeansCentroids(SeededPoints):
    """A client's own k-means centroids of at least two rows, each of weight 1.

    A client with fewer distinct rows than clusters has none, since its centroids would be its rows. A
    centroid of a single row is that row, and is left out.
    """

    def effort(self, n_features: int) -> Effort:
        """Several runs of k-means."""
        return kmeans_effort(self.n_clusters, n_features, LOCAL_STARTS)

    def make(self, client: ClientData) -> WeightedPoints:
        """Cluster the client's rows."""
        rows, k = client.features, self.n_clusters
        if not has_distinct(rows, k):
            return no_points(rows.shape[1])
        rng = np.random.default_rng(self.seed)
        fitted = weighted_kmeans(rows, np.ones(len(rows)), k, rng, n_init=LOCAL_STARTS)
        centers = fitted.centers[np.bincount(fitted.labels, minlength=k) >= 2]
        return WeightedPoints(centers, np.ones(len(centers)))


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
    where: dict[str, Any] = cell_layout(located, n_clusters, rng)._asdict() | {"ranges": located.ranges}
    question = CellSums(**where) if points is None else PointCells(**where, points=points)
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
    empty: str = "all cells are empty although clients have centers; fit again.",
) -> Conversation[FloatArray]:
    """Seed on the means of public cells of the clients' points, with one sum.

    Args:
        points: of the clients.
        located: result of the range sum.
        n_clusters: number of clusters.
        rng: source of the cells, and of the seeds.
        upcoming: labels of the cohorts that may be asked next.
        empty: the error where all cells are empty.

    Raises:
        DataError: all cells are empty.
    """
    cells = yield from asked_cells(points, located, n_clusters, rng, upcoming=upcoming)
    if not len(cells.points):
        raise DataError(empty)
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
    empty = f'init="kfed" found nothing: no client has {n_clusters} different points; use init="coreset".'
    centers = yield from cells_start(points, located, n_clusters, rng, upcoming=(EVERYONE,), empty=empty)
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
        d = located.ranges.n_features
        if isinstance(init, KeptStart) and (kept is None or kept.statistics["sum"].shape[1] != d):
            raise ArgumentError(
                f"the start total of sum {init.index} of fit {init.fit[:8]} is not known here, or has other "
                "columns; begin with the StartTotal of that fit, on its rows."
            )
        self._kept = _means(kept) if isinstance(init, KeptStart) and kept is not None else None

    def next(
        self, upcoming: tuple[int, ...] = (EVERYONE,), geometry: np.random.Generator | None = None
    ) -> Conversation[FloatArray]:
        """Return starting centers; the cohorts `upcoming` are asked after them.

        Args:
            upcoming: labels of the cohorts that may be asked next.
            geometry: of the restart (`privfed.algorithms.rounds.geometry`), where clients cluster anew; by
                default the source of all random choices.

        Raises:
            DataError: no client has rows or, for "kfed", at least as many distinct rows as clusters.
        """
        located, n_clusters, rng = self._located, self._n_clusters, self._rng
        if not isinstance(self._init, str | KeptStart):
            return self._init
        if self._init == "random":
            # Uniformly from the ranges, without a sum.
            low, high = located.ranges.low, located.ranges.high
            return rng.uniform(low, high, (n_clusters, located.ranges.n_features))
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
                "no cell of the start counts a row: clients hold none, or too few for a group (group_size); "
                'use init="random", or pass centers as init.'
            )
        return seeded(*self._coreset, n_clusters, located.ranges, draws, rng)


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
    points = Same("start points", Form(KMeansCentroids, n_clusters=n_clusters, seed=int(rng.integers(2**31))))
    steps = Form(PointSums, points=points, centers=Shape(n_clusters, setting.n_features))
    return (
        Phase(cells_form(PointCells, setting, n_clusters, rng, points=points)),
        Phase(steps, 1, KFED_STEPS),
    )
