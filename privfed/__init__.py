"""Privacy-preserving federated clustering: clusters of many clients' data, from secure sums."""

from __future__ import annotations

from importlib.metadata import version

from privfed import metrics, protocols
from privfed.core.domain import Ball, Box
from privfed.core.policy import ClientPolicy
from privfed.estimators.fuzzy import FederatedFuzzyCMeans
from privfed.estimators.local_centers import FKM, KFED
from privfed.estimators.minibatch import FederatedMiniBatchKMeans
from privfed.estimators.private import DPKMeans
from privfed.estimators.saving import load
from privfed.estimators.scaling import FederatedScaler
from privfed.estimators.selection import SelectionResult, select_n_clusters
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
    "Privacy",
    "PrivacySpent",
    "SelectionResult",
    "Simulation",
    "WFKMeans",
    "__version__",
    "load",
    "metrics",
    "protocols",
    "select_n_clusters",
]
