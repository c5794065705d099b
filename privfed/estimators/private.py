"""The estimator for differential privacy: k-means from noised sums.

Reveals: what the protocol's totals show, all noised (see "Reveals" of `privfed.algorithms.private.kmeans`),
and to everyone the final centers. `privacy_spent_` says against whom the noise protects whom. `labels_` is
computed where the data lies and never sent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from privfed.algorithms.outcome import ClusteringOutcome
from privfed.algorithms.private.baselines import LloydBaseline
from privfed.algorithms.private.kmeans import MOST_ROUNDS, PrivateKMeans
from privfed.core.conversation import Algorithm
from privfed.core.domain import Domain
from privfed.core.policy import ClientPolicy
from privfed.core.secure_sum import SecureSum
from privfed.errors import ArgumentError, PrivacyError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.checks import check_integer
from privfed.federation.simulation import Simulation
from privfed.privacy.privacy import Privacy


class DPKMeans(FederatedClusterer):
    """k-means under differential privacy, over any secure sum.

    Spends one budget on at most 13 noised sums: where the rows lie, a weighted set of points that stands
    for them, and two to eight Lloyd rounds, as many as the noise lets pay.

    Args:
        n_clusters: number of clusters.
        method: "coreset", or as baselines "fastlloyd" and "lloyd": a start without a look at the data
            and two to seven Lloyd rounds (`privfed.algorithms.private.baselines`).
        protocol: name of a secure sum, or a configured object of `privfed.protocols`. Over "plain" each
            client adds the whole noise; over the others the honest clients of a sum share it.
        privacy: a `privfed.Privacy`, which declares the domain too. There is no default.
        engine: None for clients in this process, or a `privfed.Simulation` with faults.
        policy: what the clients answer; a `privfed.ClientPolicy`.
        domain: None: the domain is `privacy.domain`.
        run_dir: folder for the transcript, so that a run can be resumed; None keeps it in memory.
        random_state: seed of public choices (hyperplanes, the clustering of noised totals); noise never
            follows from it.

    Attributes:
        cluster_centers_: (n_clusters, n_features) float64.
        history_: list of (n_clusters, n_features); `history_[0]` is the start, then one entry a round.
        n_iter_: Lloyd rounds.
        converged_: None: it does as many rounds as the noise lets pay.
        inertia_: None: its release was not paid for.
        labels_: labels of the rows; a list of arrays where `fit` was given a list.
        privacy_spent_: what is claimed, and against whom; None for a rehearsal.
        privacy_claim_: the same, and what is said of a rehearsal: that it is not private.
        transcript_: record of the run; federation_: answers further questions.
        n_features_in_: number of columns.

    Raises:
        ArgumentError: a parameter is out of its bounds, or `privacy` is None.
        PrivacyError: a baseline at unit "client".
        BudgetError: a sum had to be asked again and nothing was kept for that (`Privacy(spare=...)`).
        DataError: a client's data cannot be used.
        ProtocolError: a sum could not be opened; with `run_dir`, `fit` can be resumed.
    """

    # Words of the other estimators that are fixed here: every sum asks everyone, a restart would be paid for.
    clients_per_round: ClassVar[None] = None
    cohorts: ClassVar[None] = None
    max_iter: ClassVar[int] = MOST_ROUNDS
    n_init: ClassVar[int] = 1
    tol: ClassVar[float] = 0.0

    def __init__(
        self,
        n_clusters: int = 5,
        *,
        method: Literal["coreset", "fastlloyd", "lloyd"] = "coreset",
        protocol: str | SecureSum = "masked",
        privacy: Privacy | None = None,
        engine: Simulation | None = None,
        policy: ClientPolicy | None = None,
        domain: Domain | None = None,
        run_dir: str | Path | None = None,
        random_state: Any = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.method = method
        self.protocol = protocol
        self.privacy = privacy
        self.engine = engine
        self.policy = policy
        self.domain = domain
        self.run_dir = run_dir
        self.random_state = random_state

    def _algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        check_integer("n_clusters", self.n_clusters, 1)
        if self.privacy is None:
            raise ArgumentError(
                "DPKMeans needs privacy=Privacy(...); without differential privacy use DWFKMeans."
            )
        if self.method in ("fastlloyd", "lloyd") and self.privacy.unit == "client":
            raise PrivacyError(
                f'method={self.method!r} is a baseline for unit="record"; use method="coreset".'
            )
        if self.method in ("fastlloyd", "lloyd"):
            return LloydBaseline(n_clusters=self.n_clusters, method=self.method, seed=seed)
        if self.method != "coreset":
            raise ArgumentError(
                f'method must be "coreset", "fastlloyd" or "lloyd", got method={self.method!r}.'
            )
        return PrivateKMeans(n_clusters=self.n_clusters, seed=seed)
