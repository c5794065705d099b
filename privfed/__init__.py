"""Privacy-preserving federated clustering: clusters of many clients' data, from secure sums."""

from __future__ import annotations

from importlib.metadata import version

from privfed import metrics, protocols
from privfed.core.configuration import ClientPolicy
from privfed.core.domain import Ball, Box
from privfed.face.dp import DPKMeans
from privfed.face.estimators import DWFKMeans, EWFKMeans, WFKMeans
from privfed.face.fkm import FKM, KFED
from privfed.face.fuzzy import FederatedFuzzyCMeans
from privfed.face.minibatch import FederatedMiniBatchKMeans
from privfed.face.opening import Simulation
from privfed.face.saving import load
from privfed.face.scaling import FederatedScaler
from privfed.face.selection import SelectionResult, select_n_clusters
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
