"""Federated k-means over the clients' own centroids: FKM (Garst, Reinders 2023) and k-FED (Dennis 2021).

Reveals: what the protocol's totals show (see "Reveals" of `privfed.algorithms.fkm` and
`privfed.algorithms.kfed`), and to everyone the final centroids. `labels_` is computed where the
data lies and never sent.

Differential privacy is local. Centers of a client's rows have no useful bound for one record. So each client
first clusters its own rows by DPKMeans, with its own noise for the whole claim. It then takes part with these
centers in place of its rows, and everything that follows is post-processing of them. Clients hold different
records, so the claim of each is the claim for all (parallel composition; for neighbours "replace-one", within
a client). Every party to which the protocol shows a client's centers sees noised centers, which are already
differentially private. Nobody needs to be trusted; the price is that each client's noise is large compared
with its few rows.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sklearn.base import clone

from privfed.algorithms.fkm import FederatedKMeans
from privfed.algorithms.kfed import OneShotKMeans
from privfed.algorithms.rounds import ClusteringOutcome
from privfed.core.asking.question import ClientData
from privfed.core.record.records import LOCAL
from privfed.core.record.transcript import Transcript, has_begun
from privfed.core.roles.conversation import Algorithm
from privfed.core.roles.secure_sum import answer_stages
from privfed.core.values.guarantee import Noise, SampledSteps, Unit
from privfed.errors import ArgumentError, PrivacyError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.declaring import parameter, parameters
from privfed.estimators.fitting import check_declared
from privfed.estimators.parameters import OneShot, OverCenters, VaryingCenters
from privfed.estimators.private import DPKMeans
from privfed.estimators.saving import plain_bounds
from privfed.federation.clients import Clients
from privfed.federation.driver import Watcher
from privfed.federation.opening import PAYMENT
from privfed.federation.request import check_kinds, check_one_domain, protocol_of, seed_from
from privfed.federation.simulation import check_fresh, check_no_privacy
from privfed.privacy.claim import Paying, Privacy, PrivacySpent
from privfed.privacy.derived import derived
from privfed.privacy.pricing import FIXED_ONLY


def _check_merge(merge: Any, protocol: Any, gathered: int) -> None:
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
class _OverCenters(OverCenters, FederatedClusterer):
    """Adds local differential privacy to FKM and k-FED: each client's own noised centers replace its rows.

    Raises:
        ArgumentError: a parameter is out of its bounds, or the protocol hides what `merge` needs.
        DataError: a client's data cannot be used, or the clients have fewer centers than clusters.
    """

    privacy: Privacy | None = parameter(
        default=None,
        text='None, or a `privfed.Privacy` of unit "record": each client clusters its own rows by '
        "DPKMeans and shows the others only these centers. The noise is local, and `inertia_` is "
        "None.",
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

    def _agree(self, clients: Clients, resume: bool) -> None:
        """Check what the parties agree on, before a budget pays and before any client uses its rows.

        It is written into the folder of the run, in which nothing has begun. To resume, it must be the same.

        Raises:
            ArgumentError: no fit has these parameters.
            RunFolderError: a fit has already begun there.
            ResumeError: the fit that has begun there is another one.
        """
        protocol, seed = protocol_of(self.protocol), seed_from(self.random_state)
        agreement = self._request(clients, self.make_algorithm(clients.n_features, seed), seed).agreed()
        if self.run_dir is None:
            return
        folder = Path(self.run_dir)
        if resume:
            Transcript.load(folder).check_agreement(agreement)
            return
        check_fresh(folder)
        Transcript(folder).begin(
            agreement, protocol.recipient, protocol.reveals, answer_stages(protocol.stages)
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
        params = self.get_params(deep=False)
        check_kinds(params)
        check_one_domain(self.privacy, params["domain"])
        policy = params["policy"]
        check_no_privacy(1 if policy is None else policy.group_size, True)
        if self.privacy.unit != Unit.RECORD:
            raise PrivacyError(
                f'a client clusters its own rows: unit="{self.privacy.unit}" has no bound here; use '
                f'unit="record", or DWFKMeans with unit="{self.privacy.unit}".'
            )
        if self.privacy.noise == Noise.SERVER:
            raise PrivacyError(
                f"{FIXED_ONLY} Clients that cluster their own rows add noise of their own: "
                'noise="local" or "distributed".'
            )
        if params["merge"] != "summed":
            raise PrivacyError(f'merge={params["merge"]!r} is for centers without noise; use merge="summed".')
        if clients.data is None:
            raise PrivacyError(
                "each client clusters its own rows with noise of its own, which an engine's clients are not "
                "asked to; use DWFKMeans or DPKMeans, whose sums are noised."
            )
        public = clone(self).set_params(privacy=None, min_cluster_size=1)
        public._local_privacy = self.privacy
        seed = public._seed(resume) if resume else seed_from(self.random_state)
        public.set_params(random_state=seed)
        public._agree(clients, resume)
        shown, claim = own_centers(clients, self.privacy, self._local_clusters(), seed % 2**32, self.run_dir)
        super(_OverCenters, public)._fit_clients(shown, self.run_dir is not None, watch)
        for name in [name for name in vars(public) if name.endswith("_")]:
            setattr(self, name, getattr(public, name))
        self._n_features_out = len(self.cluster_centers_)
        # Inertia and number would be those of the noised centers, not of the rows.
        self.inertia_, self.n_rows_, self.privacy_claim_, self._score = None, None, claim, float("nan")
        self.labels_ = self._labels(clients)


@parameters
class FKM(VaryingCenters, _OverCenters):
    """Federated k-means with a varying number of clusters at each client (Garst, Reinders 2023, Algorithm 1).

    Each round a client takes the global means to which some of its rows are nearest. It does one k-means step
    from them and contributes its means and their sizes. A k-means of all clients' means, weighted by the
    sizes, gives the new global means. With `merge="summed"` each step of that k-means is one secure sum, so
    nobody sees a client's means. The start asks all clients, also if cohorts are drawn. "slotted" needs
    1 + `max_iter` sums with slots for each restart, whose contents can link one round to the next.

    Attributes:
        history_: means of the kept restart, list of (n_clusters, n_features); `history_[0]` is the merged
            start.
    """

    @property
    def gathered_sums(self) -> int:
        """Number of sums of a fit that gather every client's means: of each start, and of all rounds."""
        return int(self.n_init * (1 + self.max_iter))

    def make_algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        """Check the parameters and return the algorithm."""
        check_declared(self)
        _check_merge(self.merge, self.protocol, self.gathered_sums)
        if self._local_privacy is not None and isinstance(self.init, str) and self.init == "kfed":
            raise PrivacyError(
                'init="kfed" leaves out means of a single row, and each noised center is one: use '
                'init="coreset".'
            )
        return self._made(FederatedKMeans, n_features, seed, own_start="k-means++")


@parameters
class KFED(OneShot, _OverCenters):
    """k-FED, one-shot federated k-means (Dennis, Li, Smith 2021, Algorithm 2).

    Each client clusters its own rows once. A k-means of all clients' centroids, each with weight one, gives
    the clusters. With `merge="summed"` each step of that k-means is one secure sum, so nobody sees a client's
    centroids.

    The parameters `tol`, `plateau`, `max_iter`, `min_iter` and `patience` apply to that k-means. Clients are
    drawn once, as the cohort of round 1. With `merge="gathered"` the k-means starts, as published, from the
    centroids of the first client and then the farthest others. With "slotted", which needs one sum with slots
    for each restart, it starts from the smallest centroid. `min_cluster_size=1` is as published.

    Attributes:
        n_iter_: steps of the k-means of centroids.
    """

    def _local_clusters(self) -> int:
        return int(self.n_local_clusters or self.n_clusters)

    def make_algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        """Check the parameters and return the algorithm."""
        check_declared(self)
        _check_merge(self.merge, self.protocol, self.gathered_sums)
        return self._made(OneShotKMeans, n_features, seed)


def agreed_locally(privacy: Privacy) -> dict[str, Any]:
    """Return what the parties agree on about the clients' own runs, as values for JSON."""
    names = ("epsilon", "delta", "unit", "neighbours", "mechanism", "noise_seed")
    domain = {"kind": privacy.domain.kind, **plain_bounds(privacy.domain)}
    return {**{name: getattr(privacy, name) for name in names}, "domain": domain}


@dataclass(frozen=True)
class _PaidWithFirst:
    """Where a client's own run is paid: with the first client's, as no record is of two clients.

    Args:
        first: where the first client's run is paid.
        kept: file by which that payment knows the first client's run.
        client: position of the client.
    """

    first: Paying
    kept: Path
    client: int

    def pay(self, *of: object, **how: object) -> str:
        """Do nothing: the first client's run is paid."""
        return ""

    def parts(self, share: float) -> tuple[_PaidWithFirst, _PaidWithFirst]:
        """Return what pays for two runs: both are paid with the first client's."""
        return self, self

    def recording(self, run: str, asked: int) -> AbstractContextManager[None]:
        """Enter a question beside the first client's: one payment asks each client once.

        A run whose folder was taken away, or put back as an older copy, has fewer than were sent.
        """
        return self.first.recording(
            f"{self.kept.read_text(encoding='ascii').partition(' ')[0]} {self.client}", asked
        )

    def noise(self, least: float, steps: SampledSteps) -> float:
        """Return the noise multiplier with which the first client's steps of DP-SGD are paid."""
        return self.first.noise(least, steps)


def own_centers(
    clients: Clients, privacy: Privacy, n_clusters: int, seed: int, run_dir: str | Path | None
) -> tuple[Clients, PrivacySpent | None]:
    """Have each client cluster its own rows; return clients with centers as rows, and the claim.

    Args:
        clients: the clients with their rows.
        privacy: privacy of each client's own run.
        n_clusters: number of clusters of each client.
        seed: seed of public choices.
        run_dir: folder below which each client's run is stored; runs that have begun are continued, and
            nothing is paid for twice. A budget pays once, as no record is of two clients.

    Raises:
        BudgetError: a client has answered more for this payment than the record of its own run has.
    """
    found, claim, paying = [], None, privacy.paid_by
    for i, data in enumerate(clients.here):
        folder = None if run_dir is None else Path(run_dir) / LOCAL / str(i)
        changed: dict[str, Any] = {"noise": Noise.LOCAL, "paid_by": paying}
        if privacy.noise_seed is not None:
            changed["noise_seed"] = (privacy.noise_seed + i) % 2**31
        # The first stands for all of them: clients have other rows, and one fit is one use of the claim.
        own = replace(privacy, **changed) if i else derived(privacy, **changed)
        model = DPKMeans(n_clusters, protocol="plain", privacy=own, run_dir=folder, random_state=seed)
        begun = folder is not None and has_begun(folder)
        with warnings.catch_warnings():
            # One client's own centers are not the result: what is said of noise would be said of each.
            warnings.filterwarnings("ignore", "the centers are mostly|all centers lie at", UserWarning)
            model.fit_clients(Clients((clients.names[i],), (data,), None, clients.columns), resume=begun)
        found.append(ClientData(model.cluster_centers_))
        claim = model.privacy_claim_
        paying = None
        if privacy.paid_by is not None and run_dir is not None:
            paying = _PaidWithFirst(privacy.paid_by, Path(run_dir).absolute() / LOCAL / "0" / PAYMENT, i + 1)
    return Clients(clients.names, tuple(found), None, clients.columns), claim
