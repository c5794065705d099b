"""The base of the clustering estimators: fit through a federation, fitted attributes, predict, save."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from privfed.algorithms.rounds import ClusteringOutcome
from privfed.algorithms.starts import StartTotal
from privfed.core.agreed.program import kept_starts
from privfed.core.asking.data import stacked
from privfed.core.roles.conversation import Algorithm, Phased
from privfed.core.stored.encoding import Array
from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import Noise
from privfed.errors import ArgumentError, warn
from privfed.estimators.declaring import parameters
from privfed.estimators.doubts import Doubted
from privfed.estimators.fitting import (
    clients_of,
    described,
    keep_columns,
    open_fit,
    reason_of,
    start_given,
    warn_tiny,
)
from privfed.estimators.nearest import NearestCenters
from privfed.estimators.parameters import Clusters, Fixed, Measured, Scaled, Surroundings
from privfed.estimators.registry import ESTIMATORS, SHORT, stored_name
from privfed.estimators.saving import NOT_PART_OF_THE_AGREEMENT, Arrays, NoLabels, plain_params
from privfed.estimators.scaling import Scaling, fit_scaled
from privfed.federation.clients import Clients
from privfed.federation.driver import Federation, Watcher
from privfed.federation.opening import claim_of
from privfed.federation.request import (
    FederationRequest,
    as_agreed,
    check_kinds,
    cohort_rule,
    protocol_of,
    seed_of_fit,
)
from privfed.metrics.asked import AskedMetric
from privfed.metrics.named import checked, following
from privfed.numerics.kernels.dispatch import assign


@parameters
class FederatedClusterer(
    Clusters,
    Surroundings,
    Measured,
    Scaled,
    Fixed,
    Doubted,
    NearestCenters,
):
    """Base of the clustering estimators. Subclasses name their algorithm.

    Attributes:
        cluster_centers_: the centers, float64 of shape (n_clusters, n_features).
        history_: centers of the kept restart, list of (n_clusters, n_features). `history_[0]` is the start;
            one entry for each round follows.
        n_iter_: rounds of the kept restart.
        converged_: whether a stop rule (`tol`, `patience`) ended the kept restart. False comes with a
            `ConvergenceWarning`, and `remedy()` says what helps. None if the number of rounds was fixed, by
            `tol=0` or under differential privacy.
        inertia_: pooled sum of squared distances to the nearest center; None under differential privacy.
        labels_: labels of the rows; a list of arrays if `fit` was given a list.
        scaling_: with `scale`: how rows were scaled; centers, history and inertia are of scaled rows, and
            `scaling_.original(cluster_centers_)` are the centers in the columns' units. None without.

    Raises:
        ArgumentError: a parameter is out of its bounds.
        DataError: a client's data cannot be used.
        ProtocolError: a sum could not be completed; with `run_dir`, `fit` can be resumed.
    """

    labels_: Any = NoLabels()
    scaling_: Scaling | None = None
    stored_arrays = ("centers", "history")

    @abstractmethod
    def make_algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        """Check the parameters and return the algorithm.

        Raises:
            ArgumentError: a parameter is out of its bounds.
        """

    def _most_clusters(self) -> int:
        """Return the larger of the number of clusters and that of a client's own, which clients agree on."""
        return int(self.n_clusters)

    def fit(
        self, X: Any = None, y: Any = None, groups: Any = None, client_names: Iterable[Any] | None = None
    ) -> FederatedClusterer:
        """Cluster the data of several clients.

        Args:
            X: a list of tables of shape (n_i, n_features), one for each client; or a dict of them by the
                clients' names; or one table; or `privfed.data.ClientTables`, which keep their groups of rows
                (`ClientPolicy.group_size`). None for an engine whose clients already have their rows;
                `labels_` then stay with them. Columns are matched by name.
            y: labels (integer codes) for metrics on `federation_`; the clustering ignores them.
            groups: the client of each row, or the column with it, if `X` is one table.
            client_names: names of all clients, in the order of their positions. None takes them from
                `groups`, or names those of a list 0, 1, ... Under differential privacy `groups` needs
                `client_names`, so that a client whose rows are all left out still takes part.

        Returns:
            The fitted estimator.
        """
        return self.fit_clients(self._gather(X, groups, y, client_names))

    def resume(
        self, X: Any = None, y: Any = None, groups: Any = None, client_names: Iterable[Any] | None = None
    ) -> FederatedClusterer:
        """Finish the run in `run_dir` with the same clients: recorded totals are replayed, the rest is asked.

        Raises:
            RunFolderError: `run_dir` holds no readable run.
            ResumeError: the run there has other clients or parameters.
        """
        return self.fit_clients(self._gather(X, groups, y, client_names), resume=True)

    def fit_clients(
        self,
        clients: Clients,
        *,
        resume: bool = False,
        watch: Watcher | None = None,
    ) -> FederatedClusterer:
        """Cluster named clients.

        Args:
            clients: the clients, with their rows or elsewhere.
            resume: whether to go on with the run in `run_dir`.
            watch: called after every sum with its index, question and total.

        Warns:
            ConvergenceWarning: the run has a stop rule, but none ended it.
            UserWarning: no domain is declared, and all values are too small for the ranges that are found.
        """
        if self.scale is None or clients.scaling is not None:
            self._fit_clients(clients, resume, watch)
        else:
            fit_scaled(self, clients, resume, watch)
        self._save_in(self.run_dir)
        self._warn_unconverged()
        warn_tiny(self)
        return self

    def kept_start(self) -> StartTotal:
        """Return the start total of this fit: `init=` of later fits on the same rows, which ask no cells.

        Raises:
            ArgumentError: this fit asked about no cells of rows, or had a guarantee of differential privacy.
        """
        begun = start_given(self) if kept_starts(self.transcript_.configuration.program) else None
        return begun or StartTotal.of(self.transcript_)

    def _warn_unconverged(self) -> None:
        if self.converged_ is False:
            rounds = f"{self.n_iter_} round{'s' * (self.n_iter_ != 1)}"
            what = f"{type(self).__name__}(n_clusters={len(self.cluster_centers_)})"
            message = f"{what} did not converge in {rounds}: {self.remedy()}"
            warn(message, ConvergenceWarning)

    def _fit_clients(self, clients: Clients, resume: bool, watch: Watcher | None) -> None:
        check_kinds(self.get_params(deep=False))
        clients = as_agreed(clients, self.run_dir) if resume else clients
        seed = self._seed(resume)
        self.scaling_ = clients.scaling
        algorithm = self.make_algorithm(clients.n_features, seed)
        request = self._request(clients, algorithm, seed, resume=resume, watch=watch)
        self.federation_, algorithm = open_fit(request)
        self.n_features_in_ = clients.n_features
        self._keep(self.federation_.run(algorithm), clients)

    def resolved(self) -> str:
        """Return the algorithm that ran, as text: what the parameters amount to under this privacy.

        Fits with the same clients, guarantee, secure sum and seed are the same computation if their texts
        are equal.
        """
        text = described(self.make_algorithm(self.n_features_in_, 0))
        return text if self.clients_per_round is None else f"{text}, {self.clients_per_round} clients a round"

    def remedy(self) -> str:
        """Say why the fit did not converge and what helps; empty if it did, or if its rounds were fixed."""
        return self._reason() if self.converged_ is False else ""

    def _reason(self) -> str:
        moved = [self._moved(after, before) for before, after in pairwise(self.history_)]
        return reason_of(self.get_params(deep=False), moved, self._settling())

    def _settling(self) -> str:
        """Return `_settled_by` as text, without the parameters that already have these values."""
        settling = {k: v for k, v in self._settled_by().items() if getattr(self, k) != v}
        return " and ".join(f"{name}={value!r}" for name, value in settling.items())

    def _ended(self) -> dict[str, Any]:
        """Return further facts about the end of the run, for `save`."""
        return {}

    def _set_ended(self, facts: dict[str, Any]) -> None:
        """Restore the facts that `_ended` returned."""

    def _moved(self, after: FloatArray, before: FloatArray) -> float:
        """Return how far centers moved, as `tol` measures it."""
        return float(np.linalg.norm(after - before))

    def _settled_by(self) -> dict[str, Any]:
        """Return parameters with which no round raises the cost, so that runs converge; empty if none."""
        return {}

    def _seed(self, resume: bool) -> int:
        """Return the seed of a fit; for a resumed one, the seed that was agreed on."""
        return seed_of_fit(self.random_state, self.privacy, self.run_dir, resume)

    def _request(
        self,
        clients: Clients,
        algorithm: Algorithm[Any],
        seed: int,
        *,
        resume: bool = False,
        watch: Watcher | None = None,
    ) -> FederationRequest:
        """Return what a fit asks the federation builder for.

        The description, for the signed configuration, is the algorithm and its parameters as canonical text.
        """
        params = {k: v for k, v in plain_params(self).items() if k not in NOT_PART_OF_THE_AGREEMENT}
        agreed = {"algorithm": stored_name(type(self)), "n_features": clients.n_features}
        if self.scaling_ is not None:
            agreed["scaled"] = self.scaling_.to_dict()
        return FederationRequest(
            clients=clients,
            description=json.dumps({**agreed, **params, **self._named()}, sort_keys=True),
            max_sums=algorithm.max_sums,
            protocol=self.protocol,
            algorithm=algorithm,
            metrics=self._metrics(),
            named=None if self.metrics is None else tuple(name for name, _ in checked(self.metrics)),
            n_clusters=self._most_clusters(),
            rule=cohort_rule(len(clients.names), self.clients_per_round, self.cohorts, seed),
            seed=seed,
            domain=self.domain,
            privacy=self.privacy,
            engine=self.engine,
            policy=self.policy,
            run_dir=self.run_dir,
            resume=resume,
            watch=watch,
            start=start_given(self),
        )

    def _metrics(self) -> tuple[AskedMetric, ...]:
        """Return the metrics that may follow the fit.

        Raises:
            ArgumentError: one is unknown, or the server's noise allows none.
        """
        found = following(int(self.n_clusters), self.metrics, m=float(self.m))
        if self.privacy is None or self.privacy.noise != Noise.SERVER:
            return found
        if self.metrics and found:
            raise ArgumentError(
                f'noise="server" is agreed on for the sums of the fit alone, got metrics={self.metrics!r}; '
                'leave metrics out, or take noise="distributed".'
            )
        return ()

    def _gather(self, X: Any, groups: Any, y: Any, names: Iterable[Any] | None) -> Clients:
        return clients_of(self, X, groups, y, names)

    def _keep(self, outcome: ClusteringOutcome, clients: Clients) -> None:
        federation: Federation = self.federation_
        if not federation.finished:
            federation.transcript.ended({"centers": Array.from_numpy(outcome.centers)})
        self.transcript_ = federation.transcript
        keep_columns(self, federation.transcript.configuration.columns)
        self.cluster_centers_ = np.array(outcome.centers)
        self.history_ = [np.array(centers) for centers in outcome.history]
        self.n_iter_ = len(self.history_) - 1
        self.inertia_ = outcome.inertia
        self.n_rows_: int | None = outcome.n_rows
        self.converged_: bool | None = outcome.converged
        self.privacy_claim_ = claim_of(federation, protocol_of(self.protocol))
        if self.privacy is not None:
            self.privacy.check_delta(outcome.n_rows, len(clients.names))
            self._warn_of_noise(clients.blocks)
        self._n_features_out = len(outcome.centers)
        if clients.data is None:
            self.__dict__.pop("labels_", None)
        else:
            self.labels_ = self._labels(clients)

    def _labels(self, clients: Clients) -> Any:
        stack = stacked(clients.here)
        found = assign(stack.stack.rows, self.cluster_centers_).astype(np.int32)
        own = [found[first:stop].copy() for first, stop in zip(stack.starts, stack.stops, strict=True)]
        if clients.rows is None:
            return own
        labels = np.empty(sum(len(rows) for rows in clients.rows), dtype=np.int32)
        for rows, found in zip(clients.rows, own, strict=True):
            labels[rows] = found
        return labels

    def _stored(self) -> tuple[dict[str, FloatArray], dict[str, Any]] | None:
        if not hasattr(self, "cluster_centers_"):
            return None
        facts = {
            "rows": self.n_rows_,
            "inertia": self.inertia_,
            "converged": self.converged_,
            **self._ended(),
            "scaling": None if self.scaling_ is None else self.scaling_.to_dict(),
        }
        return {"centers": self.cluster_centers_, "history": np.stack(self.history_)}, facts

    def _restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        centers, history = arrays["centers"], arrays["history"]
        if (
            centers.ndim != 2
            or history.shape[1:] != centers.shape
            or not np.array_equal(history[-1], centers)
        ):
            raise ValueError("the history does not end with the centers")
        inertia = facts["inertia"]
        if inertia is not None and not np.isfinite(inertia):
            raise ValueError("facts that no fit has")
        self.cluster_centers_ = centers
        self.history_ = list(history)
        self.n_iter_ = len(history) - 1
        self.scaling_ = Scaling.from_dict(facts.get("scaling"))
        self.inertia_ = None if inertia is None else float(inertia)
        self.converged_ = None if facts["converged"] is None else bool(facts["converged"])
        self._set_ended(facts)
        self.n_rows_ = None if facts["rows"] is None else int(facts["rows"])
        self.n_features_in_ = centers.shape[1]
        self._n_features_out = len(centers)


def estimator_of(estimator: Any, parameters: dict[str, Any]) -> FederatedClusterer:
    """Return a fresh estimator with parameters set.

    Raises:
        ArgumentError: `estimator` is not one, or it does not have one of the parameters.
    """
    kind: Any = None
    if isinstance(estimator, str):
        kind = ESTIMATORS.resolve(estimator)
        other = isinstance(kind, type) and not issubclass(kind, FederatedClusterer)
        model: Any = None if other or not callable(kind) else kind()
    else:
        model = clone(estimator) if isinstance(estimator, FederatedClusterer) else None
    if not isinstance(model, FederatedClusterer):
        raise ArgumentError(
            f"estimator must be one that clusters rows (a FederatedClusterer, such as {', '.join(SHORT)}), "
            f"got {estimator!r}{': name the estimator whose algorithm it is' * isinstance(kind, Phased)}."
        )
    unknown = sorted(set(parameters) - set(model.get_params(deep=False)) | set(parameters) & {"n_clusters"})
    if unknown:
        listed = ", ".join(f"{name}=" for name in unknown)
        raise ArgumentError(f"{type(model).__name__} takes no {listed} here; leave it out.")
    model.set_params(**parameters)
    return model
