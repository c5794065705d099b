"""The base of the clustering estimators: fit through a federation, fitted attributes, predict, save."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.base import clone

from privfed.algorithms.rounds import ClusteringOutcome, State, length
from privfed.algorithms.starts import StartTotal
from privfed.core.agreed.program import kept_starts
from privfed.core.asking.data import stacked
from privfed.core.asking.question import fields_of
from privfed.core.asking.statistics import wire
from privfed.core.roles.conversation import Algorithm, Phased
from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import Noise
from privfed.core.values.origin import Origin, check_origins, origin_of, origin_under, radius_of, released
from privfed.errors import ArgumentError, warn
from privfed.estimators.declaring import parameters
from privfed.estimators.doubts import Doubted, intervals_of
from privfed.estimators.fitting import (
    check_init,
    clients_of,
    described,
    keep_columns,
    open_fit,
    reason_of,
    start_given,
)
from privfed.estimators.judging import MOST, Finding, findings, of_changed, released_sizes
from privfed.estimators.nearest import NearestCenters
from privfed.estimators.parameters import Clusters, Fixed, Measured, Scaled, Surroundings
from privfed.estimators.registry import ESTIMATORS, SHORT, stored_name
from privfed.estimators.saving import NOT_PART_OF_THE_AGREEMENT, Arrays, plain_params
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
from privfed.privacy.claim import PrivacySpent, unless_seeded

Made = TypeVar("Made")


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
        states_: everything that each round moved, by name, likewise; for most algorithms only `centers`.
        n_iter_: rounds of the kept restart.
        stopped_by_: what ended the kept restart: "tol", "patience", "plateau", "cycle" or "max_iter".
        converged_: whether a stop rule (`tol`, `patience`, `plateau`) ended it. False comes with a
            `ConvergenceWarning`, and `remedy()` says what helps. None if the number of rounds was fixed, by
            `tol=0` or under differential privacy, or if `tol=None` and there was no plateau.
        findings_: what the fit's totals say against its result (`privfed.estimators.judging`), the most
            severe first, at most five; each is a warning, too. Not in models that were loaded.
        finish_iter_: how many of the last rounds were exact ones (`finish`).
        inertia_: pooled sum of squared distances to the nearest center; None under differential privacy.
        labels_: labels of the rows; a list of arrays if `fit` was given a list.
        scaling_: with `scale`: how rows were scaled; centers, history and inertia are of scaled rows, and
            `scaling_.original(cluster_centers_)` are the centers in the columns' units. None without.

    Raises:
        ArgumentError: a parameter is out of its bounds.
        DataError: a client's data cannot be used.
        ProtocolError: a sum could not be completed; with `run_dir`, `fit` can be resumed.
    """

    @abstractmethod
    def make_algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        """Check the parameters and return the algorithm.

        Raises:
            ArgumentError: a parameter is out of its bounds.
        """

    def _made(
        self, kind: type[Made], n_features: int, seed: int, own_start: str = "coreset", **other: Any
    ) -> Made:
        """Return an algorithm of a class, whose fields are the parameters of the same names.

        Args:
            kind: a dataclass.
            n_features: number of columns.
            seed: of the run.
            own_start: name of a start that is the estimator's own.
            **other: fields that are no parameters, or have other values.
        """
        given = {"sampled": getattr(self, "_sampled", False), "seed": seed, **self.get_params(deep=False)}
        given |= {"init": check_init(given["init"], self.n_clusters, n_features, own_start), **other}
        return kind(**{one.name: given[one.name] for one in fields_of(kind) if one.name in given})

    def _most_clusters(self) -> int:
        """Return the larger of the number of clusters and that of a client's own, which clients agree on."""
        return int(self.n_clusters)

    def fit(
        self,
        X: Any = None,
        y: Any = None,
        groups: Any = None,
        client_names: Iterable[Any] | None = None,
        *,
        watch: Watcher | None = None,
    ) -> Self:
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
            watch: called after every sum with its index, question and total; `privfed.RoundProgress` shows
                the round and the time left.

        Returns:
            The fitted estimator.
        """
        return self.fit_clients(clients_of(self, X, groups, y, client_names), watch=watch)

    def resume(
        self, X: Any = None, y: Any = None, groups: Any = None, client_names: Iterable[Any] | None = None
    ) -> Self:
        """Finish the run in `run_dir` with the same clients: recorded totals are replayed, the rest is asked.

        Raises:
            RunFolderError: `run_dir` holds no readable run.
            ResumeError: the run there has other clients or parameters.
        """
        return self.fit_clients(clients_of(self, X, groups, y, client_names), resume=True)

    def fit_clients(
        self,
        clients: Clients,
        *,
        resume: bool = False,
        watch: Watcher | None = None,
    ) -> Self:
        """Cluster named clients.

        Args:
            clients: the clients, with their rows or elsewhere.
            resume: whether to go on with the run in `run_dir`.
            watch: called after every sum with its index, question and total.

        Warns:
            ConvergenceWarning: the run did not converge, centers have no rows, or are not their means.
            UserWarning: a total is too near the grid of its sum, or rows were clipped, left out or filled.
        """
        check_kinds(self.get_params(deep=False) | {"watch": watch})
        if self.privacy is not None and self.privacy.noise_seed is None:
            check_origins(init=origin_of(vars(self).get("init")))
        if self.scale is None or clients.scaling is not None:
            self._fit_clients(clients, resume, watch)
        else:
            fit_scaled(self, clients, resume, watch)
        self._save_in(self.run_dir)
        self._judge(clients)
        return self

    def _mark(self, claim: PrivacySpent | None, radius: float | None) -> None:
        """Let all arrays of the states carry where they come from, and the radius of their offsets."""
        origin, scaled = origin_under(unless_seeded(claim)), self.scaling_ is not None
        self._take(
            [State.of(one.layout, released(one.vector, origin, radius, scaled)) for one in self.states_]
        )

    @property
    def cluster_sizes_(self) -> FloatArray | None:
        """Rows of each cluster as the fit released them, (n_clusters,); None where no total counted them."""
        return released_sizes(self)[0]

    def kept_start(self) -> StartTotal:
        """Return the start total of this fit: `init=` of later fits on the same rows, which ask no cells.

        Raises:
            ArgumentError: this fit asked about no cells of rows, or had a guarantee of differential privacy.
        """
        kept = kept_starts(self.transcript_.configuration.program)
        return (start_given(self) if kept else None) or StartTotal.of(self.transcript_)

    def _judge(self, clients: Clients) -> None:
        """Warn of what became of the rows, and of what the fit's own totals say against its result."""
        rows = 0 if clients.data is None else sum(one.n_rows for one in clients.data)
        changed = clients.changed if self.privacy is None else {}
        found = chain(of_changed(changed, rows), self._findings(), findings(self))
        self.findings_ = tuple(islice(found, MOST))
        for one in self.findings_:
            if one.category is not None:
                warn(one.text, one.category)

    def bic(self, X: Any = None) -> float:
        """Return the Bayesian information criterion, which only mixtures have."""
        raise ArgumentError(f"bic is of mixtures, got {type(self).__name__}.", parameters=["index"])

    def _findings(self) -> Iterable[Finding]:
        """Return what an estimator of this class has to say besides."""
        return ()

    def _fit_clients(self, clients: Clients, resume: bool, watch: Watcher | None) -> None:
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
        if self.converged_ is not False:
            return ""
        params, last = self.get_params(deep=False), self._moved(*self.states_[:-3:-1])
        return reason_of(params, self.stopped_by_, last, self._settling())

    def _settling(self) -> str:
        """Return `_settled_by` as text, without the parameters that already have these values."""
        settling = {k: v for k, v in self._settled_by().items() if getattr(self, k) != v}
        return " and ".join(f"{name}={value!r}" for name, value in settling.items())

    def _moved(self, after: State, before: State) -> float:
        """Return how far a round moved the state, as `tol` measures it."""
        return length(after, before)

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

    def _keep(self, outcome: ClusteringOutcome, clients: Clients) -> None:
        federation: Federation = self.federation_
        if not federation.finished:
            federation.transcript.ended(wire(outcome.history[-1]))
        self.transcript_ = federation.transcript
        keep_columns(self, federation.transcript.configuration.columns)
        self._take(outcome.history)
        self.inertia_ = outcome.inertia
        self.n_rows_: int | None = outcome.n_rows
        self.converged_: bool | None = outcome.converged
        self.stopped_by_: str | None = outcome.stopped_by
        self.finish_iter_, self._score = outcome.finish, outcome.score
        self.privacy_claim_ = claim_of(federation, protocol_of(self.protocol))
        found = self.privacy and intervals_of(self.transcript_, outcome.history[-1]["centers"], 0.5)
        self._mark(self.privacy_claim_, found.radius if found else None)
        if self.privacy is not None:
            self.privacy.check_delta(outcome.n_rows, len(clients.names))
            self._warn_of_noise(clients.blocks)
        if clients.data is None:
            self.__dict__.pop("labels_", None)
        else:
            self.labels_ = self._labels(clients)

    def _take(self, states: Sequence[State]) -> None:
        """Take the fitted attributes that the states of a run are, the start first."""
        self.states_, self.n_iter_ = list(states), len(states) - 1
        if "centers" in states[-1]:
            self.history_ = [one["centers"].copy() for one in states]
            self.cluster_centers_ = self.history_[-1].copy()
            self._n_features_out = len(self.cluster_centers_)

    def _labels(self, clients: Clients) -> Any:
        stack = stacked(clients.here)
        found = self._assigned(stack.stack.rows)
        own = [found[first:stop].copy() for first, stop in zip(stack.starts, stack.stops, strict=True)]
        if clients.rows is None:
            return own
        labels = np.empty(sum(len(rows) for rows in clients.rows), dtype=np.int32)
        for rows, found in zip(clients.rows, own, strict=True):
            labels[rows] = found
        return labels

    def _stored(self) -> tuple[dict[str, FloatArray], dict[str, Any]] | None:
        if not hasattr(self, "states_"):
            return None
        facts = {
            "rows": self.n_rows_,
            "n_features": self.n_features_in_,
            "inertia": self.inertia_,
            "score": self._score,
            "converged": self.converged_,
            "stopped_by": self.stopped_by_,
            "scaling": None if self.scaling_ is None else self.scaling_.to_dict(),
            "radius": radius_of(vars(self).get("cluster_centers_")),
            "init": str(origin_of(vars(self).get("init"))),
        }
        return {one: np.stack([state[one] for state in self.states_]) for one in self.states_[0]}, facts

    def _restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        self.n_features_in_ = int(facts["n_features"])
        if "centers" in arrays and arrays["centers"].shape[2:] != (self.n_features_in_,):
            raise ValueError("centers of other columns")
        rounds = zip(*arrays.values(), strict=True)
        self._take([State(**dict(zip(arrays, one, strict=True))) for one in rounds])
        inertia = facts["inertia"]
        if inertia is not None and not np.isfinite(inertia):
            raise ValueError("facts that no fit has")
        self.scaling_ = Scaling.from_dict(facts["scaling"])
        if isinstance(init := vars(self).get("init"), list):
            vars(self)["init"] = released(init, Origin(facts.get("init", Origin.DECLARED)))
        self.inertia_ = None if inertia is None else float(inertia)
        self.converged_ = None if facts["converged"] is None else bool(facts["converged"])
        self.stopped_by_, self._score = facts["stopped_by"], float(facts["score"])
        self.n_rows_ = None if facts["rows"] is None else int(facts["rows"])
        claim = facts["privacy_claim"] and PrivacySpent.from_dict(facts["privacy_claim"])
        self._mark(claim, facts.get("radius"))


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
