"""Federated k-means over the clients' own centroids: FKM (Garst, Reinders 2023) and k-FED (Dennis 2021).

Reveals: what the protocol's totals show (see "Reveals" of `privfed.algorithms.local_centers.fkm` and
`privfed.algorithms.local_centers.kfed`), and to everyone the final centroids. `labels_` is computed where the
data lies and never sent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from sklearn.base import clone

from privfed.algorithms.local_centers.fkm import FederatedKMeans
from privfed.algorithms.local_centers.kfed import LOCAL, OneShotKMeans
from privfed.algorithms.outcome import ClusteringOutcome
from privfed.core.agreed.assumptions import answer_stages
from privfed.core.federation import Watcher
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import Algorithm
from privfed.errors import ArgumentError, PrivacyError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.common.checks import check_init, check_integer, check_number, check_surroundings
from privfed.estimators.local_privacy import agreed_locally, check_local, own_centers
from privfed.estimators.parameters.declaring import parameter, parameters
from privfed.estimators.parameters.shared import Cohorts, LocalCenters, Patience, Rounds, Starts
from privfed.estimators.private import DPKMeans
from privfed.federation.builder import protocol_of, seed_from
from privfed.federation.clients import Clients
from privfed.federation.run_dir import check_fresh
from privfed.privacy.privacy import Privacy


def _check_words(params: dict[str, Any]) -> None:
    """Check the parameters that FKM and k-FED share.

    Raises:
        ArgumentError: one is out of its bounds.
    """
    for name in ("n_clusters", "min_cluster_size", "max_iter", "min_iter", "n_init"):
        check_integer(name, params[name], 1)
    check_number("tol", params["tol"], 0.0)
    for name in ("patience", "clients_per_round"):
        if params[name] is not None:
            check_integer(name, params[name], 1)


def _check_merge(merge: Any, protocol: Any, gathered: int) -> None:
    if merge not in ("summed", "gathered", "slotted"):
        raise ArgumentError(f'merge must be "summed", "gathered" or "slotted", got merge={merge!r}.')
    if merge == "slotted":
        offered = protocol_of(protocol).slotted_sums
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


@parameters
class _OverCenters(LocalCenters, Rounds, Patience, Starts, Cohorts, FederatedClusterer):
    """Adds local differential privacy to FKM and k-FED: each client's own noised centers replace its rows.

    Raises:
        ArgumentError: a parameter is out of its bounds, or the protocol hides what `merge` needs.
        DataError: a client's data cannot be used, or the clients have fewer centers than clusters.
    """

    privacy: Privacy | None = parameter(
        default=None,
        text='None, or a `privfed.Privacy` of unit "record": each client clusters its own rows by DPKMeans '
        "and shows the others these centers only; noise is local, `inertia_` is None.",
    )

    _local_privacy: Privacy | None = None

    @property
    def gathered_sums(self) -> int:
        """Number of sums of a fit that gather centroids; each has slots with `merge="slotted"`."""
        return int(self.n_init)

    def _local_clusters(self) -> int:
        return int(self.n_clusters)

    def _most_clusters(self) -> int:
        return max(int(self.n_clusters), self._local_clusters())

    def _named(self) -> dict[str, Any]:
        return {} if self._local_privacy is None else {"local_privacy": agreed_locally(self._local_privacy)}

    def _agree(self, clients: Clients, folder: Path, resume: bool) -> None:
        """Write the agreement into a folder in which nothing has begun; to resume, check that it is the same.

        Raises:
            RunFolderError: a fit has already begun there.
            ResumeError: the fit that has begun there is another one.
        """
        protocol, seed = protocol_of(self.protocol), seed_from(self.random_state)
        agreement = self._request(clients, self.make_algorithm(clients.n_features, seed), seed).agreed()
        if resume:
            Transcript.load(folder).check_agreement(agreement)
            return
        check_fresh(folder)
        Transcript(folder).begin(
            agreement, protocol.opens_to, protocol.reveals, answer_stages(protocol.stages)
        )

    def resolved(self) -> str:
        """Return the algorithm that ran; with `privacy`, each client's own algorithm first."""
        if self.privacy is None:
            return super().resolved()
        public = clone(self).set_params(privacy=None, min_cluster_size=1)
        public.n_features_in_ = self.n_features_in_
        own = DPKMeans(self._local_clusters(), privacy=self.privacy)
        own.n_features_in_ = self.n_features_in_
        return f"{own.resolved()} of each client, then {super(_OverCenters, public).resolved()}"

    def _fit_clients(self, clients: Clients, resume: bool, watch: Watcher | None) -> None:
        """Cluster named clients; with `privacy`, cluster the noised centers that each client finds."""
        if self.privacy is None:
            return super()._fit_clients(clients, resume, watch)
        check_surroundings(self.get_params(deep=False))
        check_local(self.get_params(deep=False), self.privacy)
        if clients.data is None:
            raise PrivacyError(
                "each client clusters its own rows with noise of its own, which an engine's clients are not "
                "asked to; use DWFKMeans or DPKMeans, whose sums are noised."
            )
        public = clone(self).set_params(privacy=None, min_cluster_size=1)
        public._local_privacy = self.privacy
        seed = public._seed(resume) if resume else seed_from(self.random_state)
        public.set_params(random_state=seed)
        if self.run_dir is not None:
            # Before any client uses its rows: what it finds is stored in the folder of this agreement.
            public._agree(clients, Path(self.run_dir), resume)
        shown, claim = own_centers(clients, self.privacy, self._local_clusters(), seed % 2**32, self.run_dir)
        super(_OverCenters, public)._fit_clients(shown, self.run_dir is not None, watch)
        for name in [name for name in vars(public) if name.endswith("_")]:
            setattr(self, name, getattr(public, name))
        self._n_features_out = len(self.cluster_centers_)
        # Inertia and number would be those of the noised centers, not of the rows.
        self.inertia_, self.n_rows_, self.privacy_claim_ = None, None, claim
        self.labels_ = self._labels(clients)


@parameters
class FKM(_OverCenters):
    """Federated k-means with a varying number of clusters at each client (Garst, Reinders 2023, Algorithm 1).

    Each round a client takes the global means that some of its rows are nearest to, does one k-means step
    from them and contributes its means and their sizes. A k-means of all clients' means, weighted by the
    sizes, gives the new global means. With `merge="summed"` each step of that k-means is one secure sum, so
    nobody sees a client's means. The start asks all clients, also if cohorts are drawn. "slotted" needs
    1 + `max_iter` sums with slots for each restart, whose contents can link one round to the next.

    Attributes:
        history_: means of the kept restart, list of (n_clusters, n_features); `history_[0]` is the merged
            start.
    """

    min_cluster_size: int = parameter(
        default=2,
        text="a client leaves out means of fewer rows (p in the paper); 1 keeps all.",
    )
    tol: float = parameter(default=0.0)
    max_iter: int = parameter(
        default=10, text="most rounds after the start (the authors count the start among their 10)."
    )
    init: Any = parameter(
        default="k-means++",
        text='how starting centers are found; "k-means++" (each client\'s own, merged), "coreset", "kfed", '
        '"random", or given by an array of shape (n_clusters, n_features).',
    )

    @property
    def gathered_sums(self) -> int:
        """Number of sums of a fit that gather every client's means: of each start, and of all rounds."""
        return int(self.n_init * (1 + self.max_iter))

    def make_algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        """Check the parameters and return the algorithm."""
        _check_words(self.get_params(deep=False))
        _check_merge(self.merge, self.protocol, self.gathered_sums)
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
            sampled=self._sampled,
            seed=seed,
        )


@parameters
class KFED(_OverCenters):
    """k-FED, one-shot federated k-means (Dennis, Li, Smith 2021, Algorithm 2).

    Each client clusters its own rows once; a k-means of all clients' centroids, all with weight one, gives
    the clusters. With `merge="summed"` each step of that k-means is one secure sum, so nobody sees a client's
    centroids.

    The parameters `tol`, `max_iter`, `min_iter` and `patience` apply to that k-means. Clients are drawn once,
    as the cohort of round 1. With `merge="gathered"` the k-means starts, as published, from the centroids of
    the first client and then the farthest others. With "slotted", which needs one sum with slots for each
    restart, it starts from the smallest centroid. `min_cluster_size=1` is as published.

    Attributes:
        n_iter_: steps of the k-means of centroids.
    """

    n_local_clusters: int | None = parameter(
        default=None,
        text="clusters that each client looks for, k'; None for `n_clusters`. A client with fewer distinct "
        "rows is left out: its centroids would be its rows.",
    )
    local: Literal["awasthi-sheffet", "kmeans"] = parameter(
        default="awasthi-sheffet",
        text='a client\'s own clustering: "awasthi-sheffet" (Algorithm 1) or "kmeans".',
    )
    init: Any = parameter(
        default="kfed",
        text='how the k-means of centroids starts; "kfed" (found among them), "coreset", "random", or given '
        "by an array of shape (n_clusters, n_features).",
    )

    def _local_clusters(self) -> int:
        return int(self.n_local_clusters or self.n_clusters)

    def make_algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        """Check the parameters and return the algorithm."""
        _check_words(self.get_params(deep=False))
        _check_merge(self.merge, self.protocol, self.gathered_sums)
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
            sampled=self._sampled,
            seed=seed,
        )
