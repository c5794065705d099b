"""Federated k-means over the clients' own centroids: FKM (Garst, Reinders 2023) and k-FED (Dennis 2021).

Reveals: what the protocol's totals show (see "Reveals" of `privfed.algorithms.local_centers.fkm` and
`privfed.algorithms.local_centers.kfed`), and to everyone the final centroids. `labels_` is computed where the
data lies and never sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from sklearn.base import clone

from privfed.algorithms.local_centers.fkm import FederatedKMeans
from privfed.algorithms.local_centers.kfed import LOCAL, OneShotKMeans
from privfed.algorithms.outcome import ClusteringOutcome
from privfed.core.conversation import Algorithm
from privfed.core.domain import Domain
from privfed.core.federation import Watcher
from privfed.core.policy import ClientPolicy
from privfed.core.secure_sum import SecureSum
from privfed.core.transcript import Transcript
from privfed.errors import ArgumentError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.checks import check_init, check_integer, check_number, check_surroundings
from privfed.estimators.local_privacy import agreed_locally, check_local, own_centers
from privfed.estimators.private import DPKMeans
from privfed.federation.builder import protocol_of, seed_from
from privfed.federation.clients import Clients
from privfed.federation.run_dir import check_fresh
from privfed.federation.simulation import Simulation
from privfed.privacy.privacy import Privacy


def _check_words(params: dict[str, Any], *, every_round: bool) -> None:
    """Check the words that FKM and k-FED share.

    Args:
        params: the constructor's words.
        every_round: whether centroids are gathered in every round and for the start, or once.

    Raises:
        ArgumentError: one is out of its bounds, or the merge does not fit the protocol.
    """
    for name in ("n_clusters", "min_cluster_size", "max_iter", "min_iter", "n_init"):
        check_integer(name, params[name], 1)
    check_number("tol", params["tol"], 0.0)
    for name in ("patience", "clients_per_round"):
        if params[name] is not None:
            check_integer(name, params[name], 1)
    gathered = params["n_init"] * (1 + params["max_iter"] if every_round else 1)
    _check_merge(params["merge"], params["protocol"], gathered)


def _check_merge(merge: Any, protocol: Any, gathered: int) -> None:
    if merge not in ("summed", "gathered", "slotted"):
        raise ArgumentError(f'merge must be "summed", "gathered" or "slotted", got merge={merge!r}.')
    if merge == "slotted":
        offered = getattr(protocol_of(protocol), "sums", 0)
        if offered < gathered:
            raise ArgumentError(
                f'merge="slotted" shows contributions, unlinked, in {gathered} sums of a fit, and the '
                f'protocol offers {offered}; use merge="summed", or (in Python) protocol=Slotted(Masked(), '
                f"sums={gathered}) of privfed.protocols."
            )
    if merge == "gathered" and protocol_of(protocol).reveals != "contributions":
        raise ArgumentError(
            'merge="gathered" needs every client\'s own centroids, which '
            f'protocol="{protocol_of(protocol).name}" hides; use merge="summed", or protocol="plain".'
        )


class _OverCenters(FederatedClusterer):
    """What FKM and k-FED do under differential privacy: each client's own centers stand for its rows."""

    _local_privacy: Privacy | None = None

    def _local_clusters(self) -> int:
        return int(self.n_clusters)

    def _most_clusters(self) -> int:
        return max(int(self.n_clusters), self._local_clusters())

    def _named(self) -> dict[str, Any]:
        return {} if self._local_privacy is None else {"local_privacy": agreed_locally(self._local_privacy)}

    def _agree(self, clients: Clients, folder: Path, resume: bool) -> None:
        """Write down what is agreed on, in a folder where nothing has begun; or check that it is the same.

        Raises:
            RunFolderError: something has begun there.
            ResumeError: what has begun there is another fit.
        """
        protocol, seed = protocol_of(self.protocol), seed_from(self.random_state)
        agreement = self._agreement(clients, self._algorithm(clients.n_features, seed), seed)
        if resume:
            Transcript.load(folder).check_agreement(agreement)
            return
        check_fresh(folder)
        Transcript(folder).begin(agreement, protocol.opens_to, protocol.reveals)

    def resolved(self) -> str:
        """Return the algorithm that ran; with `privacy` after each client's own."""
        if self.privacy is None:
            return super().resolved()
        public = clone(self).set_params(privacy=None, min_cluster_size=1)
        public.n_features_in_ = self.n_features_in_
        own = DPKMeans(self._local_clusters(), privacy=self.privacy)
        own.n_features_in_ = self.n_features_in_
        return f"{own.resolved()} of each client, then {super(_OverCenters, public).resolved()}"

    def _fit_clients(self, clients: Clients, resume: bool, watch: Watcher | None) -> None:
        """Cluster named clients; with `privacy` their centers, which each finds with noise of its own."""
        if self.privacy is None:
            return super()._fit_clients(clients, resume, watch)
        check_surroundings(self.get_params(deep=False))
        check_local(self.get_params(deep=False), self.privacy)
        public = clone(self).set_params(privacy=None, min_cluster_size=1)
        public._local_privacy = self.privacy
        seed = public._seed(resume) if resume else seed_from(self.random_state)
        public.set_params(random_state=seed)
        if self.run_dir is not None:
            # Before a client looks at its rows: what it finds lies in the folder of this agreement.
            public._agree(clients, Path(self.run_dir), resume)
        shown, claim = own_centers(clients, self.privacy, self._local_clusters(), seed % 2**32, self.run_dir)
        super(_OverCenters, public)._fit_clients(shown, self.run_dir is not None, watch)
        for name in [name for name in vars(public) if name.endswith("_")]:
            setattr(self, name, getattr(public, name))
        self._n_features_out = len(self.cluster_centers_)
        # Both would be of the centers that were shown, not of the rows.
        self.inertia_, self.n_rows_, self.privacy_claim_ = None, None, claim
        self.labels_ = self._labels(clients)


class FKM(_OverCenters):
    """Federated k-means with a varying number of clusters a client (Garst, Reinders 2023, Algorithm 1).

    Each round a client takes the global means that it has rows of, does one k-means step from them and
    hands over its means and their sizes; a k-means of these means, weighted by the sizes, gives the new
    global ones. With `merge="summed"` each step of that k-means is one secure sum, so that nobody sees a
    client's means.

    Args:
        n_clusters: number of clusters.
        min_cluster_size: a client drops means that fewer rows are nearest to (p in the paper).
        merge: "summed": the server's k-means step by step, as sums; "gathered": as published, the
            server sees every client's means and sizes (only with `protocol="plain"`); or "slotted": it
            sees them all, but not whose they are (with `privfed.protocols.Slotted`, 1 + `max_iter` sums
            a restart; their contents can link one round's to the next).
        tol: a run stops when the centers move by strictly less (Frobenius norm); 0 runs all rounds.
        max_iter: rounds after the start (the authors count the start among their 10).
        min_iter: fewest rounds before `tol` may stop a run.
        patience: a run stops when the movement did not decrease over the last `patience` rounds.
        n_init: restarts; the one of the lowest pooled inertia is kept.
        init: "k-means++" (each client's own, merged), "coreset", "kfed", "random", or an array of shape
            (n_clusters, n_features).
        clients_per_round: clients drawn for each round; None asks all. The start asks all.
        cohorts: an explicit schedule in its place: a list of client positions for each round.
        protocol: "plain", "masked", or a configured object of `privfed.protocols`.
        privacy: None, or a `privfed.Privacy` of unit "record": each client clusters its own rows by
            DPKMeans and shows the others these centers only: noise is local, `inertia_` is None.
        engine: None for clients in this process, or a `privfed.Simulation` with faults.
        policy: what the clients answer; a `privfed.ClientPolicy`.
        domain: declared domain of the data, `privfed.Box` or `privfed.Ball`; None finds the ranges
            by a sum that is named under Reveals.
        run_dir: folder for the transcript, so that a run can be resumed; None keeps it in memory.
        random_state: seed of the start, the server, the cohorts and the clients' randomness.

    Attributes:
        cluster_centers_: (n_clusters, n_features) float64.
        history_: of the kept restart, list of (n_clusters, n_features); `history_[0]` is the merged start.
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
        ArgumentError: a parameter is out of its bounds, or the protocol hides what `merge` needs.
        DataError: a client's data cannot be used, or the clients hold fewer means than clusters.
        ProtocolError: a sum could not be opened; with `run_dir`, `fit` can be resumed.
    """

    def __init__(
        self,
        n_clusters: int = 5,
        *,
        min_cluster_size: int = 2,
        merge: Literal["summed", "gathered", "slotted"] = "summed",
        tol: float = 0.0,
        max_iter: int = 10,
        min_iter: int = 1,
        patience: int | None = None,
        n_init: int = 1,
        init: Any = "k-means++",
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
        self.min_cluster_size = min_cluster_size
        self.merge = merge
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

    def _algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        _check_words(self.get_params(deep=False), every_round=True)
        own_start = isinstance(self.init, str) and self.init == "k-means++"
        return FederatedKMeans(
            n_clusters=self.n_clusters,
            min_cluster_size=self.min_cluster_size,
            merge=self.merge,
            tol=self.tol,
            max_iter=self.max_iter,
            min_iter=self.min_iter,
            patience=self.patience,
            n_init=self.n_init,
            init=self.init if own_start else check_init(self.init, self.n_clusters, n_features),
            sampled=self.clients_per_round is not None or self.cohorts is not None,
            seed=seed,
        )


class KFED(_OverCenters):
    """One-shot federated k-means (Dennis, Li, Smith 2021, Algorithm 2).

    Each client clusters its own rows once; a k-means of all clients' centroids, all of weight one, gives
    the clusters. With `merge="summed"` each step of that k-means is one secure sum, so that nobody sees a
    client's centroids. Words and attributes that are not listed are those of `FKM`.

    Args:
        n_clusters: number of clusters, k.
        n_local_clusters: clusters of each client, k'; None for `n_clusters`. A client with fewer distinct
            rows is left out: its centroids would be its rows.
        local: a client's own clustering: "awasthi-sheffet" (Algorithm 1) or "kmeans".
        min_cluster_size: a client leaves out centroids of fewer rows; 1 keeps all, as published.
        merge: "summed"; "gathered": as published, the server sees every client's centroids and starts
            from those of the first client and the farthest others (only with `protocol="plain"`); or
            "slotted": it sees them all, but not whose they are, and starts from the smallest (with
            `privfed.protocols.Slotted`, one sum a restart).
        tol: the k-means of centroids stops once it moves by strictly less (Frobenius norm).
        max_iter: its most steps; each is an entry of `history_`, and summed each is a sum.
        min_iter: its fewest steps before `tol` may stop it.
        patience: it stops when the movement did not decrease over the last `patience` steps.
        n_init: restarts; the one of the lowest pooled inertia is kept.
        init: its start: "kfed" (found among the centroids), "coreset", "random", or an array of shape
            (n_clusters, n_features).
        clients_per_round: clients drawn for the one shot (the cohort of round 1); None asks all.
        cohorts: an explicit schedule in its place; its first list is asked.
        protocol: "plain", "masked", or a configured object of `privfed.protocols`.
        privacy: None, or a `privfed.Privacy`, as in `FKM`.
        engine: None, or a `privfed.Simulation` with faults.
        policy: a `privfed.ClientPolicy`.
        domain: declared domain of the data, or None.
        run_dir: folder for the transcript, or None.
        random_state: seed of the clients' clusterings, the start and the cohort.

    Raises:
        ArgumentError: a parameter is out of its bounds, or the protocol hides what `merge` needs.
        DataError: a client's data cannot be used, or the clients hold fewer centroids than clusters.
        ProtocolError: a sum could not be opened; with `run_dir`, `fit` can be resumed.
    """

    def __init__(
        self,
        n_clusters: int = 5,
        *,
        n_local_clusters: int | None = None,
        local: Literal["awasthi-sheffet", "kmeans"] = "awasthi-sheffet",
        min_cluster_size: int = 2,
        merge: Literal["summed", "gathered", "slotted"] = "summed",
        tol: float = 1e-6,
        max_iter: int = 300,
        min_iter: int = 1,
        patience: int | None = None,
        n_init: int = 1,
        init: Any = "kfed",
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
        self.n_local_clusters = n_local_clusters
        self.local = local
        self.min_cluster_size = min_cluster_size
        self.merge = merge
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

    def _local_clusters(self) -> int:
        return int(self.n_local_clusters or self.n_clusters)

    def _algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        _check_words(self.get_params(deep=False), every_round=False)
        if self.n_local_clusters is not None:
            check_integer("n_local_clusters", self.n_local_clusters, 1)
        if self.local not in LOCAL:
            raise ArgumentError(f"local must be one of {LOCAL}, got local={self.local!r}.")
        return OneShotKMeans(
            n_clusters=self.n_clusters,
            n_local_clusters=self.n_local_clusters,
            local=self.local,
            min_cluster_size=self.min_cluster_size,
            merge=self.merge,
            tol=self.tol,
            max_iter=self.max_iter,
            min_iter=self.min_iter,
            patience=self.patience,
            n_init=self.n_init,
            init=check_init(self.init, self.n_clusters, n_features),
            sampled=self.clients_per_round is not None or self.cohorts is not None,
            seed=seed,
        )
