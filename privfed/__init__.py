"""Privacy-preserving federated clustering: clusters of many clients' data, from secure sums."""

from __future__ import annotations

from importlib.metadata import version

from privfed import metrics, protocols
from privfed.core.configuration import ClientPolicy
from privfed.core.domain import Ball, Box
from privfed.face.estimators import DWFKMeans, EWFKMeans, WFKMeans
from privfed.face.opening import Simulation
from privfed.face.saving import load

__version__ = version("privfed")

__all__ = [
    "Ball",
    "Box",
    "ClientPolicy",
    "DWFKMeans",
    "EWFKMeans",
    "Simulation",
    "WFKMeans",
    "__version__",
    "load",
    "metrics",
    "protocols",
]
