"""The estimator of federated fuzzy c-means (Stallmann and Wilbik 2022; Pedrycz 2022; Barcena et al. 2021).

Reveals: what the protocol's totals show (see "Reveals" of `privfed.algorithms.fuzzy.fuzzy`), and to everyone
the final centers. Memberships are computed where the data lies and never sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from privfed.algorithms.fuzzy.fuzzy import FuzzyCMeans, FuzzyOutcome, movement
from privfed.algorithms.outcome import ClusteringOutcome
from privfed.core.conversation import Algorithm
from privfed.core.domain import Domain, FloatArray
from privfed.core.policy import ClientPolicy
from privfed.core.secure_sum import SecureSum
from privfed.errors import ArgumentError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.checks import check_init, check_integer, check_number
from privfed.estimators.convergence import cycled
from privfed.estimators.private_algorithms import private_fuzzy
from privfed.federation.clients import Clients
from privfed.federation.simulation import Simulation
from privfed.numerics.memberships import LARGEST_FUZZIFIER, memberships
from privfed.privacy.privacy import Privacy


class FederatedFuzzyCMeans(FederatedClusterer):
    """Federated fuzzy c-means: every row belongs to every cluster, by degrees.

    Each round the clients run fuzzy c-means on their own rows from the global centers. With
    `averaging="kmeans"` (FedFCM) the new global centers are the k-means of all clients' local centers,
    found by sums; the paper finds it more reliable where clients hold different clusters. With
    "weighted" they are weighted means of the local centers; with `local_iter=1` besides, the run equals
    centralised fuzzy c-means on the pooled data.

    Args:
        n_clusters: number of clusters.
        m: fuzzifier, in (1, 100]: near 1 rows belong to one cluster, large m spreads them.
        averaging: "kmeans" or "weighted".
        weight: of weighted averaging: "u^m", the sums that a local step divides by (Pedrycz, Barcena et
            al.), or "u", the sums of memberships after the local steps (the authors' code).
        local_iter: most steps of a client in a round.
        local_tol: a client stops once a step changes its memberships by less (Frobenius norm); None never.
        tol: a run stops when the sum of the distances that the centers move is strictly less.
        max_iter: most rounds.
        n_init: restarts; the one of the lowest fuzzy objective is kept.
        init: "coreset", "kfed", "random" (all in the domain), or an array (n_clusters, n_features).
        clients_per_round: clients drawn for each round; None asks all. The first round of k-means
            averaging seeds on everyone's local centers.
        cohorts: an explicit schedule in its place: a list of client positions for each round.
        protocol: "plain", "masked", or a configured object of `privfed.protocols`.
        privacy: None, or a `privfed.Privacy`: then rounds are noised (see
            `privfed.algorithms.private.kmeans`), at
            most eight, `tol` is without effect, `inertia_` and `objective_` are None. It takes
            `averaging="weighted"`, and at unit "record" `local_iter=1`.
        engine: None for clients in this process, or a `privfed.Simulation` with faults.
        policy: what the clients answer; a `privfed.ClientPolicy`.
        domain: declared domain of the data, `privfed.Box` or `privfed.Ball`; None finds the ranges
            by a sum that is named under Reveals.
        run_dir: folder for the transcript, so that a run can be resumed; None keeps it in memory.
        random_state: seed of the start, the cohorts and the clients' simulation randomness.

    Attributes:
        cluster_centers_: (n_clusters, n_features) float64.
        history_: of the kept restart, list of (n_clusters, n_features); `history_[0]` is the start. Where
            the run ended in a cycle it ends with the best state of that cycle.
        n_iter_: rounds of the kept restart.
        objective_: fuzzy objective J_m of all rows, what the restarts are compared by.
        inertia_: pooled sum of squared distances to the nearest center.
        converged_: whether the centers came to rest, as `tol` has it. False comes with a
            `ConvergenceWarning`, and `remedy()` says what helps; None where rounds were fixed, by `tol=0` or
            under differential privacy.
        cycled_: whether the centers came back to an earlier state instead: with several local steps a
            run can go round in a cycle.
        labels_: the cluster of each row's largest membership; a list of arrays for a list of clients.
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
        m: float = 2.0,
        averaging: Literal["kmeans", "weighted"] = "kmeans",
        weight: Literal["u^m", "u"] = "u^m",
        local_iter: int = 1000,
        local_tol: float | None = 1e-3,
        tol: float = 1e-3,
        max_iter: int = 100,
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
    ) -> None:
        self.n_clusters = n_clusters
        self.m = m
        self.averaging = averaging
        self.weight = weight
        self.local_iter = local_iter
        self.local_tol = local_tol
        self.tol = tol
        self.max_iter = max_iter
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

    def _algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        params = self.get_params(deep=False)
        _check(params)
        if self.privacy is not None:
            return private_fuzzy(params, self.privacy, n_features, seed)
        return FuzzyCMeans(
            n_clusters=self.n_clusters,
            m=float(self.m),
            averaging=self.averaging,
            weight=self.weight,
            local_iter=int(self.local_iter),
            local_tol=None if self.local_tol is None else float(self.local_tol),
            tol=self.tol,
            max_iter=self.max_iter,
            n_init=self.n_init,
            init=check_init(self.init, self.n_clusters, n_features),
            sampled=self.clients_per_round is not None or self.cohorts is not None,
            seed=seed,
        )

    def _keep(self, outcome: ClusteringOutcome, clients: Clients) -> None:
        super()._keep(outcome, clients)
        self.objective_ = outcome.score if self.privacy is None else None
        self.cycled_ = isinstance(outcome, FuzzyOutcome) and outcome.cycled

    def _ended(self) -> dict[str, Any]:
        return {"cycled": self.cycled_}

    def _set_ended(self, facts: dict[str, Any]) -> None:
        self.cycled_ = bool(facts.get("cycled", False))

    def _settled_by(self) -> dict[str, Any]:
        """One local step, weighted, is fuzzy c-means on the pooled rows."""
        return {"averaging": "weighted", "local_iter": 1}

    def _moved(self, after: FloatArray, before: FloatArray) -> float:
        return movement(after, before)

    def _reason(self) -> str:
        return cycled(self._settling()) if self.cycled_ else super()._reason()

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the memberships of each row of a table, float64 of shape (n_rows, n_clusters)."""
        return memberships(self._rows(X), self.cluster_centers_, float(self.m))


def _check(params: dict[str, Any]) -> None:
    """Check the words of fuzzy c-means.

    Raises:
        ArgumentError: one is out of its bounds.
    """
    for name in ("n_clusters", "local_iter", "max_iter", "n_init"):
        check_integer(name, params[name], 1)
    if params["local_iter"] > 100_000:
        raise ArgumentError(f"local_iter must be at most 100000, got local_iter={params['local_iter']}.")
    check_number("m", params["m"], 1.0, LARGEST_FUZZIFIER, open_low=True)
    for name, known in (("averaging", ("kmeans", "weighted")), ("weight", ("u^m", "u"))):
        if params[name] not in known:
            raise ArgumentError(f"{name} must be one of {known}, got {name}={params[name]!r}.")
    if params["weight"] != "u^m" and params["averaging"] == "kmeans":
        raise ArgumentError('weight="u" goes with averaging="weighted": k-means averaging has no weights.')
    check_number("tol", params["tol"], 0.0)
    if params["local_tol"] is not None:
        check_number("local_tol", params["local_tol"], 0.0)
    if params["clients_per_round"] is not None:
        check_integer("clients_per_round", params["clients_per_round"], 1)
