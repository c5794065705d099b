"""Estimators whose clients take steps on their own rows in each round, which sums then average.

DWF, EWF and WF k-means are of Holzer, Jacob and Kavane (2023). Mini-batch k-means is of Triebe and Rajagopal
(2019). Fuzzy c-means is of Stallmann and Wilbik (2022), Pedrycz (2022) and Barcena et al. (2021).

Reveals: what the protocol's totals show, and to everyone the final centers. See "Reveals" of
`privfed.algorithms.wf_kmeans`, `privfed.algorithms.minibatch` and
`privfed.algorithms.fuzzy`. `labels_` and memberships are computed where the data is and never sent.
"""

from __future__ import annotations

from typing import Any

from privfed.algorithms.rounds import ClusteringOutcome, State
from privfed.algorithms.weightings import check_lasting, declared_name, is_known, name_of
from privfed.algorithms.wf_kmeans import WeightedKMeans
from privfed.core.roles.conversation import Algorithm
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.declaring import parameter, parameters
from privfed.estimators.fitting import check_declared
from privfed.estimators.parameters import Fuzzy, MiniBatch, Weighted
from privfed.numerics.memberships import memberships
from privfed.privacy.claim import Privacy


@parameters
class DWFKMeans(Weighted, FederatedClusterer):
    """Dynamically weighted federated k-means (Holzer, Jacob, Kavane 2023, Algorithm 1).

    Each round the cohort's clients do `local_iter` k-means steps from the global centroids. Each global
    centroid then moves to the mean of the local ones, weighted by the number of each client's rows that are
    nearest to the received centroid (eq. 7). Only totals leave the secure sum. With `local_iter=1` and
    `learning_rate=1` it equals Lloyd's algorithm on the pooled data.
    """

    privacy: Privacy | None = parameter(
        default=None,
        text="None, or a `privfed.Privacy`, which adds noise to the rounds "
        "(`privfed.algorithms.private.kmeans`), at most eight. Then `tol`, `min_iter`, `patience`, `plateau` "
        'and `restart_score` have no effect, and `inertia_` is None. At unit "record" it requires '
        '`local_iter=1`. With `noise="server"` it requires `tol=0` and does exactly `max_iter` '
        "rounds: choose four to six.",
    )

    def _weighting(self) -> str:
        return "dynamic"

    def _settled_by(self) -> dict[str, Any]:
        """Return one local step, which is Lloyd's; with momentum even that may not converge."""
        return {} if self.momentum or self.relocate_empty else {"local_iter": 1}

    def make_algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        """Check the parameters and return the algorithm."""
        check_declared(self)
        if self.privacy is not None:
            # Imported here, as the other algorithms are below: most fits run one of them, and start sooner.
            from privfed.estimators.private import private_weighted

            return private_weighted(
                self.get_params(deep=False), self._weighting(), self.privacy, n_features, seed
            )
        return self._made(
            WeightedKMeans, n_features, seed, weights=self._weighting(), score=self.restart_score
        )


def lloyd(n_clusters: int = 5, **parameters: Any) -> DWFKMeans:
    """Return Lloyd's algorithm: `DWFKMeans` with one local step."""
    return DWFKMeans(n_clusters, local_iter=1, **parameters)


@parameters
class EWFKMeans(DWFKMeans):
    """Equally weighted federated k-means: every client of a cohort has the same weight (equation 8).

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
        text='"dynamic" (eq. 7: rows nearest to each received centroid), "equal" (eq. 8), or a function. '
        "The function takes a `privfed.numerics.kmeans.LocalUpdate` and returns one weight a "
        "cluster, each in [0, rows of the client]. Under differential privacy a client for which it "
        "fails weighs nothing. With `run_dir` the parties agree on it, so it must be a function of a "
        "module, declared with a version under `@privfed.weighting(version=1)`. Once its module was "
        'imported, its name "module:function@1" stands for it. Other functions work in this process '
        "only.",
    )

    def _settled_by(self) -> dict[str, Any]:
        return super()._settled_by() if isinstance(self.weights, str) and self.weights == "dynamic" else {}

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


@parameters
class FederatedMiniBatchKMeans(MiniBatch, FederatedClusterer):  # type: ignore[misc]
    """Federated mini-batch k-means (Triebe and Rajagopal 2019, Algorithm 1).

    Each round the cohort's clients go `epochs` times through their rows in batches of `batch_size`, moving
    their own copy of the centroids. The server moves its centroids by the mean of their movements, weighted
    by the clients' cluster sizes in the last epoch. Only totals leave the secure sum. With one full-batch
    epoch, all clients and the default rates it equals Lloyd's algorithm on the pooled data, except that small
    clusters are redrawn.
    """

    privacy: Privacy | None = parameter(
        default=None,
        text="None, or a `privfed.Privacy`, which adds noise to the rounds "
        "(`privfed.algorithms.private.kmeans`), at most eight. Then `tol` and `reassign_after` have "
        'no effect, and `inertia_` is None. At unit "record" it requires one epoch of one batch.',
    )

    def make_algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        """Check the parameters and return the algorithm."""
        check_declared(self)
        if self.privacy is not None:
            from privfed.estimators.private import private_minibatch

            return private_minibatch(self.get_params(deep=False), self.privacy, n_features, seed)
        from privfed.algorithms.minibatch import FederatedMiniBatch

        return self._made(FederatedMiniBatch, n_features, seed)


@parameters
class FederatedFuzzyCMeans(Fuzzy, FederatedClusterer):
    """Federated fuzzy c-means: every row belongs to every cluster, by degrees.

    Each round the clients run fuzzy c-means on their own rows from the global centers. With
    `averaging="kmeans"` (FedFCM) the new global centers are the k-means of all clients' local centers, found
    by sums. The paper finds it more reliable if clients have different clusters. Its first round seeds on the
    local centers of all clients, also if cohorts are drawn. With "weighted" the new global centers are
    weighted means of the local centers. With `local_iter=1` too, the run equals centralised fuzzy c-means on
    the pooled data.

    Attributes:
        history_: centers of the kept restart, list of (n_clusters, n_features); `history_[0]` is the start.
            If the run ended in a cycle, the last entry is the best state of that cycle.
        labels_: the cluster of each row's largest membership; a list of arrays for a list of clients.
    """

    privacy: Privacy | None = parameter(
        default=None,
        text="None, or a `privfed.Privacy`, which adds noise to the rounds "
        "(`privfed.algorithms.private.kmeans`), at most eight. Then `tol` has no effect, and "
        '`inertia_` and `objective_` are None. It requires `averaging="weighted"`, and at unit '
        '"record" `local_iter=1`.',
    )

    def make_algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        """Check the parameters and return the algorithm."""
        check_declared(self)
        if self.weight != "u^m" and self.averaging == "kmeans":
            raise ArgumentError(
                'weight="u" goes with averaging="weighted": k-means averaging has no weights.'
            )
        if self.privacy is not None:
            from privfed.estimators.private import private_fuzzy

            return private_fuzzy(self.get_params(deep=False), self.privacy, n_features, seed)
        from privfed.algorithms.fuzzy import FuzzyCMeans

        return self._made(FuzzyCMeans, n_features, seed)

    @property
    def objective_(self) -> float | None:
        """Fuzzy objective J_m of all rows, by which restarts are compared; None under privacy."""
        return self._score if self.privacy is None else None

    @property
    def cycled_(self) -> bool:
        """Whether the centers returned to an earlier state instead of converging."""
        return self.stopped_by_ == "cycle"

    def _settled_by(self) -> dict[str, Any]:
        """Return one weighted local step, which makes the run fuzzy c-means on the pooled rows."""
        return {"averaging": "weighted", "local_iter": 1}

    def _moved(self, after: State, before: State) -> float:
        from privfed.algorithms.fuzzy import movement

        return movement(after, before)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the memberships of each row of a table, float64 of shape (n_rows, n_clusters)."""
        return memberships(self._rows(X), self.cluster_centers_, float(self.m))
