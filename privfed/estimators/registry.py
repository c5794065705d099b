"""The registry of estimators, and the names of their classes in saved models.

A name from a file is looked up among registered names and the classes that the caller passed; nothing is
ever imported because a file names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from privfed.core.names import Registry
from privfed.errors import ArgumentError, RunFolderError

SHORT = ("dp", "dwf", "ewf", "lloyd", "minibatch", "fkm", "kfed", "fuzzy", "mixture")
"""Short names of privfed's own estimators, for the command line."""

TRAINED = ("fedavg", "ifca", "cfl", "dcfl")
"""Short names of privfed's own estimators of models (`privfed.deep`)."""

OWN = {
    "dp": "privfed.estimators.private:DPKMeans",
    "dwf": "privfed.estimators.local_steps:DWFKMeans",
    "ewf": "privfed.estimators.local_steps:EWFKMeans",
    "lloyd": "privfed.estimators.local_steps:lloyd",
    "minibatch": "privfed.estimators.local_steps:FederatedMiniBatchKMeans",
    "fkm": "privfed.estimators.local_centers:FKM",
    "kfed": "privfed.estimators.local_centers:KFED",
    "fuzzy": "privfed.estimators.local_steps:FederatedFuzzyCMeans",
    "mixture": "privfed.estimators.mixtures:FederatedGaussianMixture",
    "fedavg": "privfed.deep.estimators.clustered:FedAvg",
    "ifca": "privfed.deep.estimators.clustered:IFCA",
    "cfl": "privfed.deep.estimators.clustered:CFL",
    "dcfl": "privfed.deep.estimators.clustered:DCFL",
}
"""Short name -> where the class, or the function that makes the estimator, is."""

ESTIMATORS: Registry[Callable[..., Any]] = Registry(
    "estimator",
    "privfed.estimators",
    {
        **{place.partition(":")[2]: place for short, place in OWN.items() if not place.endswith(short)},
        "WFKMeans": "privfed.estimators.local_steps:WFKMeans",
        **OWN,
    },
)
"""Estimators, by class name and short name. Packages add theirs by entry points of `privfed.estimators`."""

DECLARED = {
    "dp": "privfed.estimators.parameters:PublicStart",
    "dwf": "privfed.estimators.parameters:Weighted",
    "ewf": "privfed.estimators.parameters:Weighted",
    "lloyd": "privfed.estimators.parameters:Weighted",
    "minibatch": "privfed.estimators.parameters:MiniBatch",
    "fkm": "privfed.estimators.parameters:VaryingCenters",
    "kfed": "privfed.estimators.parameters:OneShot",
    "fuzzy": "privfed.estimators.parameters:Fuzzy",
    "mixture": "privfed.estimators.parameters:Mixture",
    "fedavg": "privfed.deep.parameters:ModelParameters",
    "ifca": "privfed.deep.parameters:KnownNumber",
    "cfl": "privfed.deep.parameters:Splitting",
    "dcfl": "privfed.deep.parameters:Propagating",
}
"""Short name -> the class that declares the estimator's own parameters, which is imported in no time."""

TRANSFORMERS: Registry[type[Any]] = Registry(
    "transformer",
    "privfed.transformers",
    {
        "FederatedImputer": "privfed.estimators.transformers:FederatedImputer",
        "FederatedPCA": "privfed.estimators.transformers:FederatedPCA",
        "FederatedScaler": "privfed.estimators.moments:FederatedScaler",
    },
)
"""Estimators without clusters that are saved, by class name."""

_NAME = re.compile(r"[\w.<>-]+(:[\w.<>]+)?")


def stored_name(kind: type) -> str:
    """Return the name of a class in files: its registered name, or `module:Class` for a user's own."""
    return ESTIMATORS.name_of(kind) or TRANSFORMERS.name_of(kind) or f"{kind.__module__}:{kind.__qualname__}"


def find(name: object, passed: Iterable[type], where: object) -> type:
    """Return the class that a file names.

    Args:
        name: name in the file.
        passed: the caller's classes; one that moved to another module is still found by its class name.
        where: the file, for messages.

    Raises:
        RunFolderError: no such class is registered or passed, or several are passed.
        ValueError: `name` is not a name of a class.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("no name of a class")
    last = _last(name)
    same = [kind for kind in passed if _last(kind.__qualname__) == last]
    found = [kind for kind in same if stored_name(kind) == name] or _registered(name) or same
    if len(found) == 1:
        return found[0]
    if found:
        raise RunFolderError(f"{where} holds a model of {name!r}; of {found} pass the one that it is.")
    raise RunFolderError(
        f"{where} holds a model of the class {name!r}, which is not registered here: pass the class itself, "
        f"as in privfed.load(path, estimators=[{last}]). None is imported because a file names it."
    )


def _registered(name: str) -> list[type]:
    found: list[Any] = []
    for known in (ESTIMATORS, TRANSFORMERS):
        with suppress(ArgumentError):
            found.append(known.find(name))
    return [kind for kind in found if isinstance(kind, type)]


def _last(name: str) -> str:
    return re.split(r"[.:]", name)[-1]
