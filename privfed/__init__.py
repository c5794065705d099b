"""Privacy-preserving federated clustering: clusters of many clients' data, from secure sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privfed.core.names import lazily
from privfed.version import __version__

if TYPE_CHECKING:
    from privfed import attacks, metrics, plot, protocols
    from privfed.algorithms.weightings import weighting
    from privfed.cli.progress import RoundProgress
    from privfed.core.agreed.policy import ClientPolicy
    from privfed.core.values.domain import Ball, Box
    from privfed.estimators.choosing import SelectionResult
    from privfed.estimators.local_centers import FKM, KFED
    from privfed.estimators.local_steps import (
        DWFKMeans,
        EWFKMeans,
        FederatedFuzzyCMeans,
        FederatedMiniBatchKMeans,
        WFKMeans,
    )
    from privfed.estimators.merged import MergedClusters
    from privfed.estimators.mixtures import FederatedGaussianMixture
    from privfed.estimators.moments import FederatedScaler, FederatedSummary
    from privfed.estimators.private import DPKMeans
    from privfed.estimators.saving import load
    from privfed.estimators.selection import select_n_clusters
    from privfed.estimators.transformers import FederatedImputer, FederatedPCA
    from privfed.federation.simulation import Simulation
    from privfed.privacy.budget import PrivacyBudget
    from privfed.privacy.claim import Privacy, PrivacySpent

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
    "FederatedGaussianMixture",
    "FederatedImputer",
    "FederatedMiniBatchKMeans",
    "FederatedPCA",
    "FederatedScaler",
    "FederatedSummary",
    "MergedClusters",
    "Privacy",
    "PrivacyBudget",
    "PrivacySpent",
    "RoundProgress",
    "SelectionResult",
    "Simulation",
    "WFKMeans",
    "__version__",
    "attacks",
    "load",
    "metrics",
    "plot",
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
        "DWFKMeans": "privfed.estimators.local_steps",
        "EWFKMeans": "privfed.estimators.local_steps",
        "FKM": "privfed.estimators.local_centers",
        "FederatedFuzzyCMeans": "privfed.estimators.local_steps",
        "FederatedGaussianMixture": "privfed.estimators.mixtures",
        "FederatedImputer": "privfed.estimators.transformers",
        "FederatedMiniBatchKMeans": "privfed.estimators.local_steps",
        "FederatedPCA": "privfed.estimators.transformers",
        "FederatedScaler": "privfed.estimators.moments",
        "FederatedSummary": "privfed.estimators.moments",
        "KFED": "privfed.estimators.local_centers",
        "MergedClusters": "privfed.estimators.merged",
        "Privacy": "privfed.privacy.claim",
        "PrivacyBudget": "privfed.privacy.budget",
        "PrivacySpent": "privfed.privacy.claim",
        "RoundProgress": "privfed.cli.progress",
        "SelectionResult": "privfed.estimators.choosing",
        "Simulation": "privfed.federation.simulation",
        "WFKMeans": "privfed.estimators.local_steps",
        "attacks": "privfed.attacks",
        "load": "privfed.estimators.saving",
        "metrics": "privfed.metrics",
        "plot": "privfed.plot",
        "protocols": "privfed.protocols",
        "select_n_clusters": "privfed.estimators.selection",
        "weighting": "privfed.algorithms.weightings",
    },
)
