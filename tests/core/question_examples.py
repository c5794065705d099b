"""One or more examples of every question there is, for the tests that hold for all of them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from privfed.algorithms.fkm import SeededMeans, SteppedMeans
from privfed.algorithms.fuzzy import FuzzyCentroids, FuzzySums, WeightedFuzzyCentroids
from privfed.algorithms.kfed import LocalCentroids
from privfed.algorithms.minibatch import MiniBatchMovements
from privfed.algorithms.mixtures import MixtureLikelihood, MixtureSums
from privfed.algorithms.private.clients import ClientLengths, ClientShares, LocalMovements
from privfed.algorithms.private.mixtures import MixtureMoments
from privfed.algorithms.private.noised_rounds import FuzzyRelativeSums
from privfed.algorithms.starts import KMeansCentroids
from privfed.algorithms.summary import ProductSum, SquareSum
from privfed.algorithms.wf_kmeans import FallbackCentroids, WeightedCentroids
from privfed.core.asking.question import Question
from privfed.core.values.domain import Ranges
from privfed.deep.training.held_out import HeldOut
from privfed.deep.training.local import Training
from privfed.deep.training.regrouping import Regrouping
from privfed.deep.training.rounds import AveragedUpdates, ClusterSizes, SketchedUpdates
from privfed.privacy.noised import Noised
from privfed.questions.bounded.bounded_metrics import (
    BoundedDistances,
    BoundedInertia,
    BoundedProfiles,
    BoundedScatter,
    BoundedSilhouettes,
    BoundedSpread,
    BoundedTable,
)
from privfed.questions.bounded.bounded_sums import (
    CenterSum,
    GridSums,
    HashSums,
    RelativeSums,
    SizeSums,
)
from privfed.questions.bounded.client_shares import AsOneRecord
from privfed.questions.bounded.shells import DistanceHistogram, SlabSums
from privfed.questions.cells import CellSums
from privfed.questions.client_sizes import ClientSizes
from privfed.questions.cluster_spread import (
    ClusterClients,
    ClusterDistances,
    ClusterPairs,
    ClusterProfiles,
    ClusterScatter,
    ClusterSilhouettes,
)
from privfed.questions.fuzzy_spread import FuzzyObjective, FuzzySpread
from privfed.questions.gathered import GatheredPoints, PointCount
from privfed.questions.histograms import FeatureHistograms
from privfed.questions.lloyd import ClientScores, Contingency, Inertia, LloydSums
from privfed.questions.local_cluster_counts import LocalClusterCounts
from privfed.questions.local_points import PointCells, PointSums
from privfed.questions.moments import CentredMoments, CentredProducts, ClientMeans
from privfed.questions.nested_cells import NestedCells
from privfed.questions.ranges import FeatureRanges
from privfed.questions.slots import Slots
from privfed.tables.beside import ClusterColumns, ClusterTimes

Make = Callable[[Ranges, np.ndarray], Question]


def _grid(ranges: Ranges) -> dict[str, Any]:
    middle = (ranges.low + ranges.high) / 2
    if ranges.n_features <= 3:
        return {"center": middle, "normals": np.empty((0, ranges.n_features)), "per_axis": 2}
    normals = np.random.default_rng(5).normal(size=(4, ranges.n_features))
    return {"center": middle, "normals": normals, "per_axis": 0}


def _reach(ranges: Ranges) -> float:
    """Return the diagonal of the ranges."""
    return max(float(np.linalg.norm(ranges.width)), 1e-9)


def _local(k: int, local: str) -> LocalCentroids:
    return LocalCentroids(n_clusters=k, local=local, min_cluster_size=1, seed=7)


def _noised(ranges: Ranges, centers: np.ndarray) -> Noised:
    """Noise that repeats with the generators; at unit "client", where any question will do."""
    inner = LloydSums(ranges=ranges, centers=centers)
    return Noised(
        ranges=ranges,
        inner=inner,
        sigma=np.array([1e6, 2e6]),
        limits=np.array([1.0, 3.0]),
    )


def _round(ranges: Ranges, n_models: int, **words: Any) -> dict[str, Any]:
    """Words of a round of training in so many clusters, of rows of three classes."""
    training = Training(
        model="softmax",
        n_classes=3,
        timed=False,
        round=1,
        epochs=2,
        batch_size=2,
        learning_rate=0.1,
        max_update_norm=0.5,
        weighting=words.pop("weighting", "clients"),
        seed=3,
    )
    shared = {
        "ranges": ranges,
        "training": training,
        "models": np.random.default_rng(5).normal(size=(n_models, 3 * (ranges.n_features + 1))),
        "structure": 0,
        "choice": "kept",
        "metric": "complete",
        "numbered": False,
        "before": Regrouping(),
    }
    return shared | words


def _mixture(kind: Any, ranges: Ranges, centers: np.ndarray, covariance_type: str, **more: Any) -> Question:
    """Return a question about components as wide as the ranges."""
    k, d = centers.shape
    widths = np.maximum(ranges.width, 1e-3 * _reach(ranges)) ** 2
    shapes = {
        "full": np.tile(np.diag(widths), (k, 1, 1)),
        "tied": np.diag(widths),
        "diag": np.tile(widths, (k, 1)),
    }
    return kind(
        ranges=ranges,
        centers=centers,
        weights=np.full(k, 1.0 / k),
        covariances=shapes[covariance_type],
        covariance_type=covariance_type,
        units=np.zeros(d),
        **more,
    )


def _finer(ranges: Ranges) -> Question:
    """Return the question about the first feature, in a range that is loose."""
    low, high = ranges.low.copy(), ranges.high.copy()
    low[0], high[0] = 1000.0, 1010.0
    return FeatureRanges(ranges=Ranges(low, high, ranges.rows), find_ranges=True, center=low)


def _columns(ranges: Ranges, centers: np.ndarray) -> Question:
    """Return the question about all columns but the first; of one column there is none beside it."""
    if ranges.n_features == 1:
        return BoundedTable(ranges=ranges, centers=centers, n_labels=3)
    ends = np.stack([ranges.low, ranges.low + 0.4 * ranges.width, ranges.high], axis=1)[1:]
    ends = np.where(ranges.width[1:, None] > 0.0, ends, [-1.0, 0.0, 1.0])
    alike = np.hstack([centers[:, :1], np.tile(ranges.low[1:], (len(centers), 1))])
    return ClusterColumns(ranges=ranges, centers=alike, placing=1, edges=ends)


def _times(ranges: Ranges, centers: np.ndarray) -> Question:
    """Return the question that reads the last two columns as times and events."""
    if ranges.n_features < 3:
        return BoundedTable(ranges=ranges, centers=centers, n_labels=3)
    return ClusterTimes(
        ranges=ranges,
        centers=centers,
        placing=ranges.n_features - 2,
        edges=np.array([[0.0, 0.1, 0.7]]),
        happened=float(ranges.high[-1]),
        censored=0.5,
    )


EXAMPLES: dict[str, Make] = {
    "ClusterColumns": _columns,
    "ClusterTimes": _times,
    "Noised": _noised,
    "LloydSums": lambda r, c: LloydSums(ranges=r, centers=c),
    "WeightedCentroids-dynamic": lambda r, c: WeightedCentroids(ranges=r, centers=c, local_iter=3),
    "WeightedCentroids-equal": lambda r, c: WeightedCentroids(
        ranges=r, centers=c, local_iter=4, local_tol=0.5, weights="equal"
    ),
    "WeightedCentroids-relocating": lambda r, c: WeightedCentroids(
        ranges=r, centers=c, local_iter=2, relocate_empty=True
    ),
    "FallbackCentroids": lambda r, c: FallbackCentroids(
        ranges=r, centers=c, local_iter=3, clusters=np.array([len(c) - 1.0])
    ),
    "Inertia": lambda r, c: Inertia(ranges=r, centers=c),
    "ClientScores": lambda r, c: ClientScores(ranges=r, centers=c),
    "Contingency": lambda r, c: Contingency(ranges=r, centers=c, n_labels=3),
    "FeatureRanges-finding": lambda r, c: FeatureRanges(ranges=r, find_ranges=True),
    "FeatureRanges-declared": lambda r, c: FeatureRanges(ranges=r, find_ranges=False),
    "FeatureRanges-finer": lambda r, c: _finer(r),
    "CellSums": lambda r, c: CellSums(ranges=r, **_grid(r)),
    "NestedCells": lambda r, c: NestedCells(
        ranges=r, **({"sides": 4, "planes": 0} if r.n_features <= 3 else {"sides": 0, "planes": 3})
    ),
    "PointCells": lambda r, c: PointCells(ranges=r, points=KMeansCentroids(n_clusters=2, seed=3), **_grid(r)),
    "PointSums": lambda r, c: PointSums(ranges=r, points=KMeansCentroids(n_clusters=2, seed=3), centers=c),
    "ClusterDistances": lambda r, c: ClusterDistances(ranges=r, centers=c),
    "ClusterDistances-power": lambda r, c: ClusterDistances(ranges=r, centers=c, power=2.5),
    "ClusterSilhouettes": lambda r, c: ClusterSilhouettes(ranges=r, centers=np.vstack([c, -c])),
    "ClusterClients": lambda r, c: ClusterClients(ranges=r, centers=c),
    "ClusterProfiles": lambda r, c: ClusterProfiles(ranges=r, centers=c),
    "ClusterPairs": lambda r, c: ClusterPairs(ranges=r, centers=c, others=-c),
    "ClusterScatter": lambda r, c: ClusterScatter(ranges=r, centers=c),
    "LocalClusterCounts": lambda r, c: LocalClusterCounts(ranges=r, most=4, seed=3),
    "FeatureHistograms-even": lambda r, c: FeatureHistograms(ranges=r, n_bins=5),
    "FeatureHistograms-edges": lambda r, c: FeatureHistograms(
        ranges=r, edges=np.tile([-0.5, 0.1, 0.7, 0.7], (r.n_features, 1))
    ),
    "CentredMoments": lambda r, c: CentredMoments(ranges=r, center=r.clip(c.mean(axis=0))),
    "ClientMeans": lambda r, c: ClientMeans(ranges=r, center=r.clip(c.mean(axis=0))),
    "CentredProducts": lambda r, c: CentredProducts(ranges=r, center=r.clip(c.mean(axis=0))),
    "MiniBatchMovements-whole": lambda r, c: MiniBatchMovements(ranges=r, centers=c, epochs=3),
    "MiniBatchMovements-batches": lambda r, c: MiniBatchMovements(
        ranges=r, centers=c, epochs=2, batch_size=2, client_learning_rate=0.3
    ),
    "PointCells-fuzzy": lambda r, c: PointCells(
        ranges=r, points=FuzzyCentroids(centers=c, m=1.5, local_iter=3), **_grid(r)
    ),
    "PointSums-fuzzy": lambda r, c: PointSums(
        ranges=r, points=FuzzyCentroids(centers=c, m=2.0, local_iter=5, local_tol=0.1), centers=c
    ),
    "FuzzySums": lambda r, c: FuzzySums(ranges=r, centers=c, m=2.0),
    "FuzzySums-sharp": lambda r, c: FuzzySums(ranges=r, centers=c, m=1.01),
    "WeightedFuzzyCentroids": lambda r, c: WeightedFuzzyCentroids(ranges=r, centers=c, m=2.0, local_iter=3),
    "WeightedFuzzyCentroids-u": lambda r, c: WeightedFuzzyCentroids(
        ranges=r, centers=c, m=3.0, local_iter=4, local_tol=0.5, weight="u"
    ),
    "FuzzyObjective": lambda r, c: FuzzyObjective(ranges=r, centers=c),
    "FuzzySpread": lambda r, c: FuzzySpread(ranges=r, centers=c),
    "FuzzySpread-power": lambda r, c: FuzzySpread(ranges=r, centers=c, m=1.3, q=2.5),
    "MixtureSums-full": lambda r, c: _mixture(MixtureSums, r, c, "full"),
    "MixtureSums-tied": lambda r, c: _mixture(MixtureSums, r, c, "tied"),
    "MixtureSums-diag": lambda r, c: _mixture(MixtureSums, r, c, "diag"),
    "MixtureLikelihood": lambda r, c: _mixture(MixtureLikelihood, r, c, "full"),
    "PointCells-fkm-start": lambda r, c: PointCells(
        ranges=r, points=SeededMeans(n_clusters=3, min_cluster_size=1, seed=5), **_grid(r)
    ),
    "PointSums-fkm-round": lambda r, c: PointSums(
        ranges=r, points=SteppedMeans(centers=c, min_cluster_size=2), centers=c
    ),
    "PointSums-kfed": lambda r, c: PointSums(ranges=r, points=_local(2, "kmeans"), centers=c),
    "GatheredPoints-fkm": lambda r, c: GatheredPoints(
        ranges=r, points=SteppedMeans(centers=c, min_cluster_size=1), most=len(c)
    ),
    "GatheredPoints-kfed": lambda r, c: GatheredPoints(ranges=r, points=_local(2, "awasthi-sheffet"), most=2),
    "GatheredPoints-too-many": lambda r, c: GatheredPoints(ranges=r, points=_local(3, "kmeans"), most=2),
    "Slots": lambda r, c: Slots(
        ranges=r,
        inner=GatheredPoints(ranges=r, points=_local(2, "awasthi-sheffet"), most=2),
        slots=4,
    ),
    "PointCount": lambda r, c: PointCount(ranges=r, points=_local(2, "awasthi-sheffet"), most=2),
    "SizeSums": lambda r, c: SizeSums(ranges=r, center=c[0], radius=_reach(r)),
    "CenterSum": lambda r, c: CenterSum(ranges=r, center=c[0], radius=0.1 * _reach(r)),
    "CenterSum-widths": lambda r, c: CenterSum(
        ranges=r, center=c[0], radius=1.5, widths=np.maximum(r.width, 1e-3 * _reach(r))
    ),
    "DistanceHistogram": lambda r, c: DistanceHistogram(ranges=r, center=c[0], radius=_reach(r), n_bins=5),
    "HashSums": lambda r, c: HashSums(
        ranges=r, center=c[0], radius=_reach(r), normals=np.eye(r.n_features)[:3]
    ),
    "GridSums": lambda r, c: GridSums(
        ranges=r, radius=0.5 * _reach(r), per_axis=3 if r.n_features < 4 else 2
    ),
    "SlabSums": lambda r, c: SlabSums(
        ranges=r, center=c[0], radius=_reach(r), axis=np.ones(r.n_features), reach=_reach(r), n_slabs=5
    ),
    "GridSums-cut": lambda r, c: GridSums(
        ranges=r,
        radius=0.5 * _reach(r),
        per_axis=2,
        low=0.5 * (r.low + c[0]),
        high=0.5 * (r.high + c[0]),
        cuts=np.r_[2.0, np.ones(2**r.n_features - 1)],
    ),
    "RelativeSums": lambda r, c: RelativeSums(ranges=r, centers=c, radius=0.2 * _reach(r)),
    "ProductSum": lambda r, c: ProductSum(ranges=r, center=c[0], radius=_reach(r) ** 2),
    "SquareSum": lambda r, c: SquareSum(ranges=r, center=c[0], radius=_reach(r) ** 2),
    "FuzzyRelativeSums": lambda r, c: FuzzyRelativeSums(ranges=r, centers=c, radius=0.2 * _reach(r), m=1.7),
    "MixtureMoments-full": lambda r, c: _mixture(MixtureMoments, r, c, "full", reach=1.5),
    "MixtureMoments-tied": lambda r, c: _mixture(MixtureMoments, r, c, "tied", reach=1.5),
    "MixtureMoments-diag": lambda r, c: _mixture(MixtureMoments, r, c, "diag", reach=1.5),
    "LocalMovements-weighted": lambda r, c: LocalMovements(
        ranges=r, radius=_reach(r), steps=WeightedCentroids(ranges=r, centers=c, local_iter=3)
    ),
    "LocalMovements-batches": lambda r, c: LocalMovements(
        ranges=r,
        radius=0.1 * _reach(r),
        steps=MiniBatchMovements(ranges=r, centers=c, epochs=2, batch_size=2),
    ),
    "ClientSizes": lambda r, c: ClientSizes(ranges=r),
    "AsOneRecord": lambda r, c: AsOneRecord(ranges=r, inner=BoundedScatter(ranges=r, centers=c), rows=2.0),
    "ClientLengths": lambda r, c: ClientLengths(
        ranges=r, inner=RelativeSums(ranges=r, centers=c, radius=_reach(r)), rows=2.0
    ),
    "ClientShares": lambda r, c: ClientShares(
        ranges=r,
        inner=RelativeSums(ranges=r, centers=c, radius=0.2 * _reach(r)),
        rows=2.0,
        most_count=0.5,
        most_sum=0.3,
    ),
    "BoundedInertia": lambda r, c: BoundedInertia(ranges=r, centers=c),
    "BoundedDistances": lambda r, c: BoundedDistances(ranges=r, centers=c, power=1.5),
    "BoundedSilhouettes": lambda r, c: BoundedSilhouettes(ranges=r, centers=np.vstack([c, -c])),
    "BoundedProfiles": lambda r, c: BoundedProfiles(ranges=r, centers=c),
    "BoundedProfiles-radius": lambda r, c: BoundedProfiles(ranges=r, centers=c, radius=0.2 * _reach(r)),
    "BoundedScatter": lambda r, c: BoundedScatter(ranges=r, centers=c),
    "BoundedSpread": lambda r, c: BoundedSpread(ranges=r, centers=c),
    "BoundedTable": lambda r, c: BoundedTable(ranges=r, centers=c, n_labels=3),
    "AveragedUpdates": lambda r, c: AveragedUpdates(**_round(r, 2), after=Regrouping()),
    "AveragedUpdates-ifca-rows": lambda r, c: AveragedUpdates(
        **_round(r, 3, choice="lowest-loss", weighting="rows"), after=Regrouping()
    ),
    "HeldOut": lambda r, c: HeldOut(**_round(r, 2), passes=1),
    "SketchedUpdates": lambda r, c: SketchedUpdates(**_round(r, 2), size=3, seed=1),
    "ClusterSizes": lambda r, c: ClusterSizes(ranges=r, before=Regrouping(), structure=0, n_clusters=2),
}

RECORD_WISE = {
    "SizeSums",
    "CenterSum",
    "DistanceHistogram",
    "ClusterColumns",
    "ClusterPairs",
    "ClusterTimes",
    "HashSums",
    "GridSums",
    "SlabSums",
    "RelativeSums",
    "ProductSum",
    "SquareSum",
    "FuzzyRelativeSums",
    "MixtureMoments",
    "BoundedInertia",
    "BoundedDistances",
    "BoundedSilhouettes",
    "BoundedProfiles",
    "BoundedScatter",
    "BoundedSpread",
    "BoundedTable",
    "LloydSums",
    "Inertia",
    "Contingency",
    "CellSums",
    "NestedCells",
    "ClusterDistances",
    "ClusterSilhouettes",
    "ClusterProfiles",
    "ClusterScatter",
    "CentredMoments",
    "CentredProducts",
    "FeatureHistograms",
    "FuzzySums",
    "FuzzyObjective",
    "FuzzySpread",
    "MixtureSums",
    "MixtureLikelihood",
}
