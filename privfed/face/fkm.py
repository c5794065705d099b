"""Federated k-means over the clients' own centroids: FKM (Garst, Reinders 2023) and k-FED (Dennis 2021).

Reveals: what the protocol's totals show (see "Reveals" of `privfed.algorithms.fkm` and
`privfed.algorithms.kfed`), and to everyone the final centroids. `labels_` is computed where the data
lies and never sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from privfed.algorithms.fkm import FederatedKMeans
from privfed.algorithms.kfed import LOCAL, OneShotKMeans
from privfed.algorithms.outcome import ClusteringOutcome
from privfed.core.configuration import ClientPolicy
from privfed.core.conversation import Algorithm
from privfed.core.domain import Domain
from privfed.core.secure_sum import SecureSum
from privfed.errors import ArgumentError
from privfed.face.base import FederatedClusterer
from privfed.face.checks import check_init, check_integer, check_number
from privfed.face.opening import Simulation, protocol_of


def _check_words(params: dict[str, Any]) -> None:
    """Check the words that FKM and k-FED share.

    Raises:
        ArgumentError: one is out of its bounds, or the merge does not fit the protocol.
    """
    for name in ("n_clusters", "min_cluster_size", "max_iter", "min_iter", "n_init"):
        check_integer(name, params[name], 1)
    check_number("tol", params["tol"], 0.0)
    for name in ("patience", "clients_per_round"):
        if params[name] is not None:
            check_integer(name, params[name], 1)
    if params["privacy"] is not None:
        raise ArgumentError("privacy must be None: this version has no differential privacy yet.")
    _check_merge(params["merge"], params["protocol"])


def _check_merge(merge: Any, protocol: Any) -> None:
    if merge == "slotted":
        raise ArgumentError(
            'merge="slotted" is not in this version: it has no slotted sum yet; use merge="summed".'
        )
    if merge not in ("summed", "gathered"):
        raise ArgumentError(f'merge must be "summed" or "gathered", got merge={merge!r}.')
    if merge == "gathered" and protocol_of(protocol).reveals != "contributions":
        raise ArgumentError(
            'merge="gathered" needs every client\'s own centroids, which '
            f'protocol="{protocol_of(protocol).name}" hides; use merge="summed", or protocol="plain".'
        )


class FKM(FederatedClusterer):
    """Federated k-means with a varying number of clusters a client (Garst, Reinders 2023, Algorithm 1).

    Each round a client takes the global means that it has rows of, does one k-means step from them and
    hands over its means and their sizes; a k-means of these means, weighted by the sizes, gives the new
    global ones. With `merge="summed"` each step of that k-means is one secure sum, so that nobody sees a
    client's means.

    Args:
        n_clusters: number of clusters.
        min_cluster_size: a client drops means that fewer rows are nearest to (p in the paper).
        merge: "summed": the server's k-means step by step, as sums; or "gathered": as published, the
            server sees every client's means and sizes (only with `protocol="plain"`).
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
        privacy: None. Differential privacy is not offered by this version.
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
        inertia_: pooled sum of squared distances to the nearest center.
        labels_: labels of the rows; a list of arrays where `fit` was given a list.
        privacy_spent_: None without differential privacy.
        transcript_: record of the run; federation_: the door, for further questions.
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
        privacy: None = None,
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
        _check_words(self.get_params(deep=False))
        own_start = isinstance(self.init, str) and self.init == "k-means++"
        return FederatedKMeans(
            n_clusters=self.n_clusters,
            min_cluster_size=self.min_cluster_size,
            merge="gathered" if self.merge == "gathered" else "summed",
            tol=self.tol,
            max_iter=self.max_iter,
            min_iter=self.min_iter,
            patience=self.patience,
            n_init=self.n_init,
            init=self.init if own_start else check_init(self.init, self.n_clusters, n_features),
            sampled=self.clients_per_round is not None or self.cohorts is not None,
            seed=seed,
        )


class KFED(FederatedClusterer):
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
        merge: "summed", or "gathered": as published, the server sees every client's centroids and starts
            from those of the first client and the farthest others (only with `protocol="plain"`).
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
        privacy: None.
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
        privacy: None = None,
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

    def _algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        _check_words(self.get_params(deep=False))
        if self.n_local_clusters is not None:
            check_integer("n_local_clusters", self.n_local_clusters, 1)
        if self.local not in LOCAL:
            raise ArgumentError(f"local must be one of {LOCAL}, got local={self.local!r}.")
        return OneShotKMeans(
            n_clusters=self.n_clusters,
            n_local_clusters=self.n_local_clusters,
            local=self.local,
            min_cluster_size=self.min_cluster_size,
            merge="gathered" if self.merge == "gathered" else "summed",
            tol=self.tol,
            max_iter=self.max_iter,
            min_iter=self.min_iter,
            patience=self.patience,
            n_init=self.n_init,
            init=check_init(self.init, self.n_clusters, n_features),
            sampled=self.clients_per_round is not None or self.cohorts is not None,
            seed=seed,
        )
