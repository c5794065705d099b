"""MergedClusters: clusters of any shape, joined from many centers that a fit has released.

A tree joins the centers by their distances (single, average, complete or Ward linkage, by SciPy), and is cut
where its heights rise most. So two moons, or a ring around a ring, are one cluster each. Chains of centers
follow long shapes where the gaps between clusters are wider than those between neighbouring centers, so that
it depends on scale, and on how many centers there are.

Reveals: nothing that the fit of the centers did not. Nobody is asked, and no budget is spent: the tree
follows from released centers and sizes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import cut_tree, linkage
from sklearn.base import clone

from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError, warn
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.declaring import parameter, parameters
from privfed.estimators.fitting import check_declared
from privfed.estimators.judging import released_sizes
from privfed.estimators.local_steps import DWFKMeans
from privfed.estimators.mixins import BaseEstimator, ClusterMixin
from privfed.estimators.saving import check_fitted
from privfed.numerics.kernels.interpreted import squared_distances

N_CENTERS = 40
"""Number of centers where no estimator is passed."""

JUMP = 1.2
"""Where no height of the tree is so many times the one below it, all centers are one cluster."""

LEAST = 0.1
"""A center of less than this share of the mean size is joined to the nearest other one."""


@parameters
class MergedClusters(ClusterMixin, BaseEstimator):
    """Joins the centers of a fit to clusters of any shape.

    Attributes:
        estimator_: the fitted estimator of the centers.
        n_clusters_: number of clusters.
        joined_: the cluster of each center, int32 of shape (n_centers,).
        tree_: SciPy's linkage matrix of the centers `kept_`, (n_kept - 1, 4).
        kept_: positions of the centers that hold rows, each place once.
        edges_: for each row of the tree the two centers nearest to each other that it joins.
        doubtful_: of these edges, whether the noise of a private fit may move it across the cut.
        cut_: height at which the tree is cut.
        labels_: clusters of the rows of `fit`, as those of the estimator.
    """

    estimator: Any = parameter(
        default=None,
        text="the estimator of the centers, such as `DPKMeans(30, privacy=...)`; None for `DWFKMeans(40)`.",
        kw_only=False,
    )
    linkage: Literal["single", "average", "complete", "ward"] = parameter(
        default="single",
        text='distance between clusters; "single" (of their nearest centers, for shapes of any kind), '
        '"average", "complete" or "ward".',
    )
    n_clusters: int | None = parameter(
        default=None,
        bounds="[1, inf)",
        text="number of clusters; None cuts the tree where its height rises most, by its ratio.",
    )

    def fit(
        self, X: Any = None, y: Any = None, groups: Any = None, client_names: Iterable[Any] | None = None
    ) -> Self:
        """Fit the centers as `DWFKMeans.fit` does, and join them."""
        return self.join(
            (DWFKMeans(N_CENTERS) if self.estimator is None else clone(self.estimator)).fit(
                X, y, groups, client_names
            )
        )

    def join(self, fitted: FederatedClusterer) -> Self:
        """Join the centers of an estimator that is fitted, or loaded; nobody is asked.

        Raises:
            ArgumentError: there are fewer centers with rows than clusters.

        Warns:
            UserWarning: noise alone may join or part clusters, no gap parts them, or there is a single center
                to join.
        """
        check_declared(self)
        check_fitted(fitted, "cluster_centers_")
        centers, (sizes, noise) = fitted.cluster_centers_, released_sizes(fitted)
        sizes = np.ones(len(centers)) if sizes is None else sizes
        first = np.unique(centers, axis=0, return_index=True)[1]
        self.kept_ = np.sort(first[sizes[first] > LEAST * sizes.mean()])
        kept, n = centers[self.kept_], len(self.kept_)
        if (self.n_clusters or 1) > n:
            raise ArgumentError(
                f"n_clusters={self.n_clusters} is more than the {n} centers that hold rows.",
                parameters=["n_clusters"],
            )
        self.estimator_, self.sizes_ = fitted, sizes
        self.tree_ = linkage(kept, self.linkage) if n > 1 else np.empty((0, 4))
        heights = self.tree_[:, 2]
        self.n_clusters_ = self.n_clusters or _chosen(heights)
        below, above = np.r_[0.0, heights, np.inf][[n - self.n_clusters_, n - self.n_clusters_ + 1]]
        self.cut_ = float(0.5 * (below + above) if np.isfinite(above) else JUMP * below)
        labels = cut_tree(self.tree_, self.n_clusters_).ravel() if n > 1 else np.zeros(1)
        self.joined_: npt.NDArray[np.int32] = labels[squared_distances(centers, kept).argmin(axis=1)].astype(
            np.int32
        )
        apart, members = squared_distances(kept, kept), [[i] for i in range(n)]
        edges = []
        for one, other in self.tree_[:, :2].astype(int):
            between = apart[np.ix_(members[one], members[other])]
            i, j = np.unravel_index(between.argmin(), between.shape)
            edges.append((members[one][i], members[other][j]))
            members.append(members[one] + members[other])
        self.edges_ = self.kept_[np.array(edges, dtype=int).reshape(-1, 2)]
        self.doubtful_ = np.abs(heights - self.cut_) <= np.linalg.norm(noise[self.edges_], axis=1)
        if self.doubtful_.any():
            warn(
                f"noise may move {int(self.doubtful_.sum())} of {n - 1} edges of the tree across the cut, "
                "and so join clusters or part them: claim a larger epsilon, or take fewer centers.",
            )
        if n > 1 and (above < JUMP * below or (self.n_clusters is None and self.n_clusters_ == 1)):
            warn(
                f"no gap parts the centers at n_clusters_={self.n_clusters_}: no height of the tree is "
                f"{JUMP} times the one below it there. There may be no such clusters, or centers lie as far "
                "apart as clusters do: fit more centers, scale columns alike, or look at stability().",
            )
        if n == 1:
            warn(
                f"center {self.kept_[0]} alone holds rows, or all that do lie in one place, so that there is "
                "nothing to join: fit more centers, declare a range that the rows fill, or claim a larger "
                "epsilon.",
            )
        if (found := vars(fitted).get("labels_")) is not None:
            self.labels_ = (
                [self.joined_[own] for own in found] if isinstance(found, list) else self.joined_[found]
            )
        return self

    def predict(self, X: Any) -> npt.NDArray[np.int32]:
        """Return the cluster of each row of a table, int32 of shape (n_rows,)."""
        check_fitted(self, "joined_")
        return np.asarray(self.joined_[self.estimator_.predict(X)], dtype=np.int32)

    def outliers(self, X: Any, reach: float = 2.0, least: float = 0.005) -> npt.NDArray[np.bool_]:
        """Say of each row of a table whether it lies far from every center, or in a cluster of few rows.

        Args:
            X: rows of shape (n_rows, n_features).
            reach: a row is far beyond so many times the distance from its center to the nearest other one.
            least: a cluster has few rows below this share of all.
        """
        away, centers = self.estimator_.transform(X), self.estimator_.cluster_centers_
        apart = squared_distances(centers, centers[self.kept_])
        spacing = np.sqrt(np.where(apart > 0.0, apart, np.inf).min(axis=1))
        shares = np.bincount(self.joined_, self.sizes_, self.n_clusters_) / self.sizes_.sum()
        far = away.min(axis=1) > reach * spacing[away.argmin(axis=1)]
        return np.asarray(far | (shares[self.predict(X)] < least))


def _chosen(heights: FloatArray) -> int:
    """Return the number of clusters where heights rise by the largest ratio, at most half of the centers."""
    most = max((len(heights) + 1) // 2, 1)
    ratios = (heights[1:] / np.maximum(heights[:-1], np.finfo(float).tiny))[::-1][: most - 1]
    return 2 + int(ratios.argmax()) if len(ratios) and ratios.max() >= JUMP else 1
