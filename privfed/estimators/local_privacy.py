"""Local differential privacy for algorithms that send local centers: k-FED and FKM.

Centers of a client's rows have no useful bound for one record. So each client first clusters its own
rows by DPKMeans, with its own noise for the whole claim, and then takes part with these centers in place of
its rows. Everything that follows is post-processing of them. Clients hold different records, so the claim of
each is the claim for all (parallel composition; for neighbours "replace-one", within a client).

Reveals, to every party to which the protocol shows a client's centers: noised centers that are already
differentially private. Nobody needs to be trusted; the price is that each client's noise is large compared
with its few rows.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from privfed.core.asking.question import ClientData
from privfed.core.record.transcript import has_begun
from privfed.core.values.guarantee import Noise, Unit
from privfed.errors import PrivacyError
from privfed.estimators.private import DPKMeans
from privfed.federation.clients import Clients
from privfed.federation.run_dir import LOCAL
from privfed.privacy.claim import PrivacySpent
from privfed.privacy.privacy import Privacy
from privfed.privacy.server_noise import FIXED_ONLY


def check_local(params: dict[str, Any], privacy: Privacy) -> None:
    """Check that local privacy is possible.

    Raises:
        PrivacyError: the unit is "client", the noise is the server's, `merge` is not "summed", or the policy
            changes answers depending on the data.
    """
    policy = params["policy"]
    if policy is not None and policy.coarsens:
        raise PrivacyError(
            "min_count and count_multiple of the policy depend on the data, and a client's centers replace "
            "its rows here, already protected by noise; leave these parameters out."
        )
    if privacy.unit != Unit.RECORD:
        raise PrivacyError(
            'a client clusters its own rows: unit="client" has no bound here; use unit="record", or '
            'DWFKMeans with unit="client".'
        )
    if privacy.noise == Noise.SERVER:
        raise PrivacyError(
            f"{FIXED_ONLY} Clients that cluster their own rows add noise of their own: "
            'noise="local" or "distributed".'
        )
    if params["merge"] != "summed":
        raise PrivacyError(f'merge={params["merge"]!r} is for centers without noise; use merge="summed".')


def agreed_locally(privacy: Privacy) -> dict[str, Any]:
    """Return what the parties agree on about the clients' own runs, as values for JSON."""
    names = ("epsilon", "delta", "unit", "neighbours", "mechanism", "noise_seed")
    words = {name: getattr(privacy, name) for name in names}
    domain = {name: np.asarray(value).tolist() for name, value in asdict(privacy.domain).items()}
    return {**words, "domain": {"kind": privacy.domain.kind, **domain}}


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
            nothing is paid for twice.
    """
    found, claim = [], None
    for i, data in enumerate(clients.here):
        folder = None if run_dir is None else Path(run_dir) / LOCAL / str(i)
        own = replace(privacy, noise=Noise.LOCAL)
        if privacy.noise_seed is not None:
            own = replace(own, noise_seed=(privacy.noise_seed + i) % 2**31)
        model = DPKMeans(n_clusters, protocol="plain", privacy=own, run_dir=folder, random_state=seed)
        begun = folder is not None and has_begun(folder)
        model.fit_clients(Clients((clients.names[i],), (data,), None), resume=begun)
        found.append(ClientData(model.cluster_centers_))
        claim = model.privacy_claim_
    return Clients(clients.names, tuple(found), None), claim
