"""The k-means estimators of Holzer, Jacob and Kavane (2023): DWF, EWF and WF k-means.

Reveals: what the protocol's totals show (see "Reveals" of `privfed.algorithms.kmeans.wf_kmeans`), and to
everyone the final centroids. `labels_` is computed where the data lies and never sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from privfed.algorithms.kmeans.weightings import check_lasting, declared_name, is_known, name_of
from privfed.algorithms.kmeans.wf_kmeans import WeightedKMeans
from privfed.algorithms.outcome import ClusteringOutcome
from privfed.core.conversation import Algorithm
from privfed.core.domain import Domain
from privfed.core.policy import ClientPolicy
from privfed.core.secure_sum import SecureSum
from privfed.errors import ArgumentError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.checks import check_clustering, check_init
from privfed.estimators.private_algorithms import private_weighted
from privfed.federation.simulation import Simulation
from privfed.privacy.privacy import Privacy


class DWFKMeans(FederatedClusterer):
    """Dynamically weighted federated k-means (Holzer, Jacob, Kavane 2023, Algorithm 1).

    Each round the cohort's clients do `local_iter` k-means steps from the global centroids; the
    centroids move to the means of the local ones, weighted by the rows of each client that are
    nearest to the received centroid (eq. 7). Only totals leave the secure sum. With `local_iter=1`
    and `learning_rate=1` it equals Lloyd's algorithm on the pooled data.

    Args:
        n_clusters: number of clusters.
        local_iter: most k-means steps of a client in a round.
        local_tol: a client stops once its centroids move by less (Frobenius norm); None never.
        learning_rate: in (0, 1], eq. 6.
        momentum: in [0, 1), eq. 6.
        tol: a run stops when the centroids move by strictly less (Frobenius norm).
        max_iter: most rounds.
        min_iter: fewest rounds before `tol` may stop a run.
        patience: a run stops when the movement did not decrease over the last `patience` rounds.
        n_init: restarts; the one with the lowest `restart_score` is kept.
        init: "coreset", "kfed", "random", or an array of shape (n_clusters, n_features).
        clients_per_round: clients drawn for each round; None asks all. The draw follows from
            `random_state` and the clients' names: parties on several machines must agree on it
            without the server's choice.
        cohorts: an explicit schedule in its place: a list of client positions for each round.
        protocol: "plain", "masked", or a configured object of `privfed.protocols`.
        privacy: None, or a `privfed.Privacy`: then rounds are noised (see
            `privfed.algorithms.private.kmeans`), at
            most eight, `tol`, `min_iter`, `patience` and `restart_score` are without effect, and
            `inertia_` is None. At unit "record" it takes `local_iter=1`. With `noise="server"` it takes
            `tol=0` and does exactly `max_iter` rounds: choose few, four to six.
        engine: None for clients in this process, or a `privfed.Simulation` with faults.
        policy: what the clients answer; a `privfed.ClientPolicy`.
        domain: declared domain of the data, `privfed.Box` or `privfed.Ball`; None finds the ranges
            by a sum that is named under Reveals.
        run_dir: folder for the transcript, so that a run can be resumed; None keeps it in memory.
        random_state: seed of the start, the cohorts and the clients' simulation randomness.
        restart_score: "pooled" (all rows alike) or "client-mean" (Algorithm 4 of the paper).
        relocate_empty: move local centroids without rows onto far rows (Figure 1 warns of it).

    Attributes:
        cluster_centers_: (n_clusters, n_features) float64.
        history_: of the kept restart, list of (n_clusters, n_features); `history_[0]` is the start.
        n_iter_: rounds of the kept restart.
        converged_: whether a stop rule (`tol`, `patience`) ended the kept restart. False comes with a
            `ConvergenceWarning`, and `remedy()` says what helps; None where rounds were fixed, by `tol=0` or
            under differential privacy.
        inertia_: pooled sum of squared distances to the nearest center.
        labels_: labels of the rows; a list of arrays where `fit` was given a list.
        privacy_spent_: what is claimed, and against whom; None without differential privacy.
        privacy_claim_: the same, and what is said of a rehearsal: that it is not private.
        transcript_: record of the run; federation_: answers further questions.
        n_features_in_: number of columns.

    Raises:
        ArgumentError: a parameter is out of its bounds.
        DataError: a client's data cannot be used.
        ProtocolError: a sum could not be opened; with `run_dir`, `fit` can be resumed.
    """

    def __init__(
        self,
        n_clusters: int = 5,
        *,
        local_iter: int = 5,
        local_tol: float | None = None,
        learning_rate: float = 1.0,
        momentum: float = 0.0,
        tol: float = 1e-6,
        max_iter: int = 300,
        min_iter: int = 1,
        patience: int | None = None,
        n_init: int = 1,
        init: Any = "coreset",
        clients_per_round: int | None = None,
        cohorts: Sequence[Sequence[int]] | None = None,
        protocol: str | SecureSum = "masked",
        privacy: Privacy | None = None,
        engine: Simulation | None = None,
        policy: ClientPolicy | None = None,
        domain: Domain | None = None,
        run_dir: str | Path | None = None,
        random_state: Any = 0,
        restart_score: Literal["pooled", "client-mean"] = "pooled",
        relocate_empty: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.local_iter = local_iter
        self.local_tol = local_tol
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.tol = tol
        self.max_iter = max_iter
        self.min_iter = min_iter
        self.patience = patience
        self.n_init = n_init
        self.init = init
        self.clients_per_round = clients_per_round
        self.cohorts = cohorts
        self.protocol = protocol
        self.privacy = privacy
        self.engine = engine
        self.policy = policy
        self.domain = domain
        self.run_dir = run_dir
        self.random_state = random_state
        self.restart_score = restart_score
        self.relocate_empty = relocate_empty

    def _weighting(self) -> str:
        return "dynamic"

    def _settled_by(self) -> dict[str, Any]:
        """One local step is Lloyd's; momentum can carry the centers beyond it."""
        return {} if self.momentum or self.relocate_empty else {"local_iter": 1}

    def _algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
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
            sampled=self.clients_per_round is not None or self.cohorts is not None,
            score=self.restart_score,
            relocate_empty=self.relocate_empty,
            seed=seed,
        )


def lloyd(n_clusters: int = 5, **words: Any) -> DWFKMeans:
    """Return Lloyd's algorithm: `DWFKMeans` with one local step and, unless told otherwise, full steps."""
    return DWFKMeans(n_clusters, local_iter=1, **words)


class EWFKMeans(DWFKMeans):
    """Equally weighted federated k-means (eq. 8): every client of a cohort counts alike.

    Words and attributes are those of `DWFKMeans`. Equal weights do not hide the clients' counts:
    the movement of the means gives many of them away.
    """

    def _weighting(self) -> str:
        return "equal"

    def _settled_by(self) -> dict[str, Any]:
        return {}


class WFKMeans(DWFKMeans):
    """Weighted federated k-means with weights of the user's choice.

    Words and attributes are those of `DWFKMeans`, and one more.

    Args:
        n_clusters: number of clusters.
        weights: "dynamic" (eq. 7: rows nearest to each received centroid), "equal" (eq. 8), or a
            function of a `privfed.numerics.local_kmeans.LocalUpdate` that returns one weight a
            cluster, each in [0, rows of the client]. Under differential privacy a client for which it
            fails weighs nothing. With `run_dir` it is a function of a module, declared with a version
            under `@privfed.weighting(version=1)`, which the parties agree on; once its module was
            imported, its name "module:function@1" stands for it. Others work in this process only.
        **others: as in `DWFKMeans`.
    """

    def __init__(
        self,
        n_clusters: int = 5,
        *,
        weights: Any = "dynamic",
        local_iter: int = 5,
        local_tol: float | None = None,
        learning_rate: float = 1.0,
        momentum: float = 0.0,
        tol: float = 1e-6,
        max_iter: int = 300,
        min_iter: int = 1,
        patience: int | None = None,
        n_init: int = 1,
        init: Any = "coreset",
        clients_per_round: int | None = None,
        cohorts: Sequence[Sequence[int]] | None = None,
        protocol: str | SecureSum = "masked",
        privacy: Privacy | None = None,
        engine: Simulation | None = None,
        policy: ClientPolicy | None = None,
        domain: Domain | None = None,
        run_dir: str | Path | None = None,
        random_state: Any = 0,
        restart_score: Literal["pooled", "client-mean"] = "pooled",
        relocate_empty: bool = False,
    ) -> None:
        super().__init__(
            n_clusters,
            local_iter=local_iter,
            local_tol=local_tol,
            learning_rate=learning_rate,
            momentum=momentum,
            tol=tol,
            max_iter=max_iter,
            min_iter=min_iter,
            patience=patience,
            n_init=n_init,
            init=init,
            clients_per_round=clients_per_round,
            cohorts=cohorts,
            protocol=protocol,
            privacy=privacy,
            engine=engine,
            policy=policy,
            domain=domain,
            run_dir=run_dir,
            random_state=random_state,
            restart_score=restart_score,
            relocate_empty=relocate_empty,
        )
        self.weights = weights

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

    def _algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        algorithm = super()._algorithm(n_features, seed)
        if self.run_dir is not None:
            check_lasting(self.weights)
        return algorithm

    def _named(self) -> dict[str, Any]:
        declared = declared_name(self.weights)
        return super()._named() if declared is None else {"weights": declared}
