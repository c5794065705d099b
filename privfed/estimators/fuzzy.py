"""The estimator of federated fuzzy c-means (Stallmann and Wilbik 2022; Pedrycz 2022; Barcena et al. 2021).

Reveals: what the protocol's totals show (see "Reveals" of `privfed.algorithms.fuzzy.fuzzy`), and to everyone
the final centers. Memberships are computed where the data is and never sent.
"""

from __future__ import annotations

from typing import Any, Literal

from privfed.algorithms.fuzzy.fuzzy import FuzzyCMeans, FuzzyOutcome, movement
from privfed.algorithms.outcome import ClusteringOutcome
from privfed.core.roles.conversation import Algorithm
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.common.checks import check_init, check_integer, check_number
from privfed.estimators.common.convergence import cycled
from privfed.estimators.parameters.declaring import parameter, parameters
from privfed.estimators.parameters.shared import Cohorts, LocalSteps, Rounds, Starts
from privfed.estimators.private_algorithms import private_fuzzy
from privfed.federation.clients import Clients
from privfed.numerics.memberships import LARGEST_FUZZIFIER, memberships
from privfed.privacy.privacy import Privacy


@parameters
class FederatedFuzzyCMeans(LocalSteps, Rounds, Starts, Cohorts, FederatedClusterer):
    """Federated fuzzy c-means: every row belongs to every cluster, by degrees.

    Each round the clients run fuzzy c-means on their own rows from the global centers. With
    `averaging="kmeans"` (FedFCM) the new global centers are the k-means of all clients' local centers,
    found by sums; the paper finds it more reliable if clients have different clusters. Its first round
    seeds on the local centers of all clients, also if cohorts are drawn. With "weighted" they are weighted
    means of the local centers; if also `local_iter=1`, the run equals centralised fuzzy c-means on the
    pooled data.

    Attributes:
        history_: centers of the kept restart, list of (n_clusters, n_features); `history_[0]` is the start.
            If the run ended in a cycle, the last entry is the best state of that cycle.
        objective_: fuzzy objective J_m of all rows, by which restarts are compared; None under
            differential privacy.
        cycled_: whether the centers returned to an earlier state instead of converging, which can happen
            with several local steps.
        labels_: the cluster of each row's largest membership; a list of arrays for a list of clients.
    """

    m: float = parameter(
        default=2.0,
        text="fuzzifier, in (1, 100]; near 1 rows belong to one cluster, large m spreads them.",
    )
    averaging: Literal["kmeans", "weighted"] = parameter(
        default="kmeans", text='how local centers are averaged: "kmeans" or "weighted".'
    )
    weight: Literal["u^m", "u"] = parameter(
        default="u^m",
        text='of weighted averaging; "u^m", the sums that a local step divides by (Pedrycz, Barcena et al.), '
        'or "u", the sums of memberships after the local steps (the authors\' code).',
    )
    local_iter: int = parameter(default=1000)
    local_tol: float | None = parameter(
        default=1e-3,
        text="a client stops once a step changes its memberships by less (Frobenius norm); None never.",
    )
    tol: float = parameter(
        default=1e-3,
        text="a run stops when the sum of the distances that the centers move is strictly less; 0 runs all "
        "rounds.",
    )
    max_iter: int = parameter(default=100)
    n_init: int = parameter(default=1, text="restarts, of which the best is kept; by the fuzzy objective.")
    privacy: Privacy | None = parameter(
        default=None,
        text="None, or a `privfed.Privacy`: then rounds are noised (`privfed.algorithms.private.kmeans`), "
        "at most eight, `tol` is without effect, `inertia_` and `objective_` are None. It takes "
        '`averaging="weighted"`, and at unit "record" `local_iter=1`.',
    )

    def make_algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        """Check the parameters and return the algorithm."""
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
            sampled=self._sampled,
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
        """Return one weighted local step, which makes the run fuzzy c-means on the pooled rows."""
        return {"averaging": "weighted", "local_iter": 1}

    def _moved(self, after: FloatArray, before: FloatArray) -> float:
        return movement(after, before)

    def _reason(self) -> str:
        return cycled(self._settling()) if self.cycled_ else super()._reason()

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the memberships of each row of a table, float64 of shape (n_rows, n_clusters)."""
        return memberships(self._rows(X), self.cluster_centers_, float(self.m))


def _check(params: dict[str, Any]) -> None:
    """Check the parameters of fuzzy c-means.

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
