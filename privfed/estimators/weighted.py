"""The k-means estimators of Holzer, Jacob and Kavane (2023): DWF, EWF and WF k-means.

Reveals: what the protocol's totals show (see "Reveals" of `privfed.algorithms.kmeans.wf_kmeans`), and to
everyone the final centroids. `labels_` is computed where the data is and never sent.
"""

from __future__ import annotations

from typing import Any, Literal

from privfed.algorithms.kmeans.weightings import check_lasting, declared_name, is_known, name_of
from privfed.algorithms.kmeans.wf_kmeans import WeightedKMeans
from privfed.algorithms.outcome import ClusteringOutcome
from privfed.core.roles.conversation import Algorithm
from privfed.errors import ArgumentError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.common.checks import check_clustering, check_init
from privfed.estimators.parameters.declaring import parameter, parameters
from privfed.estimators.parameters.shared import Cohorts, LocalSteps, Patience, Rounds, ServerSteps, Starts
from privfed.estimators.private_algorithms import private_weighted
from privfed.privacy.privacy import Privacy


@parameters
class DWFKMeans(LocalSteps, ServerSteps, Rounds, Patience, Starts, Cohorts, FederatedClusterer):
    """Dynamically weighted federated k-means (Holzer, Jacob, Kavane 2023, Algorithm 1).

    Each round the cohort's clients do `local_iter` k-means steps from the global centroids. Each global
    centroid then moves to the mean of the local ones, weighted by the number of each client's rows that are
    nearest to the received centroid (eq. 7). Only totals leave the secure sum. With `local_iter=1` and
    `learning_rate=1` it equals Lloyd's algorithm on the pooled data.
    """

    restart_score: Literal["pooled", "client-mean"] = parameter(
        default="pooled",
        text='what restarts are compared by: "pooled" (the inertia of all rows alike) or "client-mean" '
        "(Algorithm 4 of the paper).",
    )
    relocate_empty: bool = parameter(
        default=False, text="move local centroids without rows onto far rows (Figure 1 warns of it)."
    )
    n_init: int = parameter(default=1, text="restarts, of which the best is kept; by `restart_score`.")
    privacy: Privacy | None = parameter(
        default=None,
        text="None, or a `privfed.Privacy`: then rounds are noised (`privfed.algorithms.private.kmeans`), "
        "at most eight, `tol`, `min_iter`, `patience` and `restart_score` are without effect, and `inertia_` "
        'is None. At unit "record" it takes `local_iter=1`. With `noise="server"` it takes `tol=0` and does '
        "exactly `max_iter` rounds: choose few, four to six.",
    )

    def _weighting(self) -> str:
        return "dynamic"

    def _settled_by(self) -> dict[str, Any]:
        """Return one local step, which is Lloyd's; with momentum even that may not converge."""
        return {} if self.momentum or self.relocate_empty else {"local_iter": 1}

    def make_algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        """Check the parameters and return the algorithm."""
        params = self.get_params(deep=False)
        check_clustering(params)
        if self.privacy is not None:
            return private_weighted(params, self._weighting(), self.privacy, n_features, seed)
        return WeightedKMeans(
            n_clusters=self.n_clusters,
            weights=self._weighting(),
            local_iter=self.local_iter,
            local_tol=self.local_tol,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            tol=self.tol,
            max_iter=self.max_iter,
            min_iter=self.min_iter,
            patience=self.patience,
            n_init=self.n_init,
            init=check_init(self.init, self.n_clusters, n_features),
            sampled=self._sampled,
            score=self.restart_score,
            relocate_empty=self.relocate_empty,
            seed=seed,
        )


def lloyd(n_clusters: int = 5, **words: Any) -> DWFKMeans:
    """Return Lloyd's algorithm: `DWFKMeans` with one local step."""
    return DWFKMeans(n_clusters, local_iter=1, **words)


@parameters
class EWFKMeans(DWFKMeans):
    """Equally weighted federated k-means (eq. 8): every client of a cohort has the same weight.

    Equal weights do not hide the clients' counts: the movement of the means reveals many of them.
    """

    def _weighting(self) -> str:
        return "equal"

    def _settled_by(self) -> dict[str, Any]:
        return {}


@parameters
class WFKMeans(DWFKMeans):
    """Weighted federated k-means (Holzer, Jacob, Kavane 2023), with weights of the user's choice."""

    weights: Any = parameter(
        default="dynamic",
        text='"dynamic" (eq. 7: rows nearest to each received centroid), "equal" (eq. 8), or a function of a '
        "`privfed.numerics.local_kmeans.LocalUpdate` that returns one weight a cluster, each in [0, rows of "
        "the client]. Under differential privacy a client for which it fails weighs nothing. With `run_dir` "
        "it is a function of a module, declared with a version under `@privfed.weighting(version=1)`, which "
        'the parties agree on; once its module was imported, its name "module:function@1" stands for it. '
        "Others work in this process only.",
    )

    def _settled_by(self) -> dict[str, Any]:
        dynamic = isinstance(self.weights, str) and self.weights == "dynamic"
        return super()._settled_by() if dynamic else {}

    def _weighting(self) -> str:
        if isinstance(self.weights, str) and is_known(self.weights):
            return self.weights
        if not callable(self.weights):
            raise ArgumentError(
                'weights must be "dynamic", "equal", a function, or the name of one that is declared under '
                f"@privfed.weighting in a module that was imported, got {self.weights!r}."
            )
        return name_of(self.weights)

    def make_algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        """Check the parameters and return the algorithm."""
        algorithm = super().make_algorithm(n_features, seed)
        if self.run_dir is not None:
            check_lasting(self.weights)
        return algorithm

    def _named(self) -> dict[str, Any]:
        declared = declared_name(self.weights)
        return super()._named() if declared is None else {"weights": declared}
