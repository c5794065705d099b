"""Privacy-preserving federated clustering: clusters of many clients' data, from secure sums."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from privfed.core.names.lazy import lazily

if TYPE_CHECKING:
    from privfed import attacks, metrics, protocols
    from privfed.algorithms.kmeans.weightings import weighting
    from privfed.core.agreed.policy import ClientPolicy
    from privfed.core.values.domain import Ball, Box
    from privfed.estimators.choosing.selection import SelectionResult, select_n_clusters
    from privfed.estimators.fuzzy import FederatedFuzzyCMeans
    from privfed.estimators.local_centers import FKM, KFED
    from privfed.estimators.minibatch import FederatedMiniBatchKMeans
    from privfed.estimators.private import DPKMeans
    from privfed.estimators.saving import load
    from privfed.estimators.scaling import FederatedScaler
    from privfed.estimators.summary import FederatedSummary
    from privfed.estimators.weighted import DWFKMeans, EWFKMeans, WFKMeans
    from privfed.federation.simulation import Simulation
    from privfed.privacy.claim import PrivacySpent
    from privfed.privacy.privacy import Privacy

__version__ = version("privfed")

__all__ = [
    "FKM",
    "KFED",
    "Ball",
    "Box",
    "ClientPolicy",
    "DPKMeans",
    "DWFKMeans",
    "EWFKMeans",
    "FederatedFuzzyCMeans",
    "FederatedMiniBatchKMeans",
    "FederatedScaler",
    "FederatedSummary",
    "Privacy",
    "PrivacySpent",
    "SelectionResult",
    "Simulation",
    "WFKMeans",
    "__version__",
    "attacks",
    "load",
    "metrics",
    "protocols",
    "select_n_clusters",
    "weighting",
]

__getattr__ = lazily(
    __name__,
    {
        "Ball": "privfed.core.values.domain",
        "Box": "privfed.core.values.domain",
        "ClientPolicy": "privfed.core.agreed.policy",
        "DPKMeans": "privfed.estimators.private",
        "DWFKMeans": "privfed.estimators.weighted",
        "EWFKMeans": "privfed.estimators.weighted",
        "FKM": "privfed.estimators.local_centers",
        "FederatedFuzzyCMeans": "privfed.estimators.fuzzy",
        "FederatedMiniBatchKMeans": "privfed.estimators.minibatch",
        "FederatedScaler": "privfed.estimators.scaling",
        "FederatedSummary": "privfed.estimators.summary",
        "KFED": "privfed.estimators.local_centers",
        "Privacy": "privfed.privacy.privacy",
        "PrivacySpent": "privfed.privacy.claim",
        "SelectionResult": "privfed.estimators.choosing.selection",
        "Simulation": "privfed.federation.simulation",
        "WFKMeans": "privfed.estimators.weighted",
        "attacks": "privfed.attacks",
        "load": "privfed.estimators.saving",
        "metrics": "privfed.metrics",
        "protocols": "privfed.protocols",
        "select_n_clusters": "privfed.estimators.choosing.selection",
        "weighting": "privfed.algorithms.kmeans.weightings",
    },
)
