"""Chooses the number of clusters under differential privacy, with one budget for all candidates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sklearn.base import clone

from privfed.algorithms.private.kmeans import PrivateKMeans
from privfed.algorithms.private.selection import PrivateSelection
from privfed.core.agreed.configuration import CohortRule
from privfed.core.record.transcript import Exchanged, Summed
from privfed.core.values.guarantee import Noise
from privfed.errors import PrivacyError
from privfed.estimators.base import FederatedClusterer
from privfed.federation.builder import open_federation
from privfed.federation.clients import Clients
from privfed.privacy.privacy import Privacy
from privfed.privacy.server_noise import FIXED_ONLY

INDICES = ("davies_bouldin", "fuzzy_davies_bouldin")
"""Indices that can be computed on a coreset."""


SHARED = (
    "Candidates were judged on one noised coreset, and the chosen one alone was refined by rounds; sums and "
    "bytes are of the whole selection."
)
"""Note for the table of a private selection, which holds for all of its rows."""


@dataclass(frozen=True)
class PrivateChoice:
    """Holds the result of a private selection.

    Args:
        n_clusters: the chosen number.
        indices: index of each candidate.
        models: fitted estimators of the candidates; the chosen one is refined.
        sums: number of sums of the whole selection.
        sent: bytes that were sent for them.
    """

    n_clusters: int
    indices: tuple[float, ...]
    models: tuple[FederatedClusterer, ...]
    sums: int
    sent: int


def choose_privately(
    model: FederatedClusterer,
    privacy: Privacy,
    clients: Clients,
    candidates: list[int],
    index: str,
    *,
    resume: bool = False,
) -> PrivateChoice:
    """Fit all candidates on one coreset, choose one by an index, and refine it.

    Args:
        model: the estimator to fit.
        privacy: the claim for the whole selection.
        clients: the clients with their rows.
        candidates: numbers of clusters, ascending.
        index: name of the index.
        resume: finish the selection that has begun in the model's `run_dir`.

    Raises:
        PrivacyError: the estimator or the index cannot be computed on a coreset.
    """
    if privacy.noise == Noise.SERVER:
        raise PrivacyError(FIXED_ONLY)
    seed = model._seed(resume)
    algorithm = clone(model).set_params(n_clusters=max(candidates)).make_algorithm(clients.n_features, seed)
    if not isinstance(algorithm, PrivateKMeans) or index not in INDICES:
        raise PrivacyError(
            f"under differential privacy the number of clusters is chosen by {' or '.join(INDICES)}, for "
            "DPKMeans, DWFKMeans(local_iter=1), FederatedMiniBatchKMeans or "
            f'FederatedFuzzyCMeans(averaging="weighted", local_iter=1); got {type(model).__name__}, {index}.'
        )
    m = float(model.m) if index == "fuzzy_davies_bouldin" else None
    selection = PrivateSelection(candidates=tuple(candidates), algorithm=algorithm, m=m)
    request = model._request(clients, algorithm, seed, resume=resume)
    federation = open_federation(
        replace(
            request,
            description=f"{request.description} over {candidates} by {index}",
            max_sums=selection.max_sums,
            algorithm=selection,
            metrics=(),
            named=None,
            n_clusters=max(candidates),
            rule=CohortRule(),
        )
    )
    found = federation.run(selection)
    models = []
    for k, outcome in zip(candidates, found.outcomes, strict=True):
        fitted: Any = clone(model).set_params(n_clusters=k)
        fitted.federation_, fitted.n_features_in_ = federation, clients.n_features
        fitted._keep(outcome, clients)
        models.append(fitted)
    records = federation.transcript
    sent = sum(one.size for r in records.of(Exchanged) for one in (*r.down, *r.up))
    return PrivateChoice(found.n_clusters, found.indices, tuple(models), len(records.of(Summed)), sent)
