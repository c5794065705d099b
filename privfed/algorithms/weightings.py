"""Weightings: functions from a client's local update to weights, which questions refer to by name.

A name means one function for as long as a process lives. A user's function that other processes must know
too, on other machines or when a run is resumed, is defined in a module and declares a version:

    @privfed.weighting(version=1)
    def at_most_three(update):
        return np.minimum(update.counts, 3)

Its name is `module:at_most_three@1`. It is known once its module is imported; a message or a run folder
never causes an import. Any other function (a lambda, a nested function, one of `__main__`, or one without a
version) is known in this process only, under a unique name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from privfed.core.names import same_definition
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_whole
from privfed.errors import ArgumentError
from privfed.numerics.kmeans import LocalUpdate, LocalUpdates

Weighting = Callable[[LocalUpdate], FloatArray]
Declared = TypeVar("Declared", bound=Callable[..., Any])

_KNOWN: dict[str, Weighting] = {}
_NAMES: dict[int, tuple[Weighting, str]] = {}
"""Id of a function -> the function and its name. Functions are kept, so that ids are not reused."""


def register_weighting(name: str, weighting: Weighting) -> None:
    """Register a weighting under a name in this process; other machines must register it themselves.

    Raises:
        ArgumentError: another function has the name.
    """
    known = _KNOWN.get(name)
    if known is not None and not same_definition(known, weighting):
        raise ArgumentError(
            f"weighting {name!r} is known already, and is another function: questions with that name would "
            "change their meaning. Raise its version, or choose another name."
        )
    _KNOWN.setdefault(name, weighting)


def weighting(*, version: int) -> Callable[[Declared], Declared]:
    """Declare a function of a module as a weighting, with a version (a decorator).

    Raise the version when the function changes: the parties of a fit agree on it, and a run can be resumed
    only under the same version.

    Args:
        version: at least 1.

    Raises:
        ArgumentError: the function cannot be imported by its name, or the version is known with other code.
    """
    check_whole("version", version, 1)

    def declare(function: Declared) -> Declared:
        module, name = function.__module__, function.__qualname__
        if module == "__main__" or "<" in name:
            raise ArgumentError(
                f"{module}:{name} cannot be imported elsewhere: define it at the top of a module, and import "
                "it from there. Without a declared version it works in this process, without run_dir."
            )
        named = f"{module}:{name}@{version}"
        register_weighting(named, function)
        _NAMES[id(function)] = (function, named)
        return function

    return declare


def name_of(function: Weighting) -> str:
    """Return a function's name: the declared one, else a name that only this process knows."""
    if id(function) not in _NAMES:
        name = f"number {len(_NAMES) + 1} of this process"
        register_weighting(name, function)
        _NAMES[id(function)] = (function, name)
    return _NAMES[id(function)][1]


def declared_name(function: object) -> str | None:
    """Return the name that a function was declared with; None if it was not."""
    name = _NAMES[id(function)][1] if id(function) in _NAMES else ""
    return name if "@" in name else None


def known_weightings() -> list[str]:
    """Return the names that other processes may know too, sorted."""
    return sorted(name for name in _KNOWN if not name.endswith("of this process"))


def is_known(name: str) -> bool:
    """Say whether a weighting is known by a name."""
    return name in _KNOWN


def check_lasting(weights: object) -> None:
    """Check that weights have a name which a process that resumes the run can know too.

    Raises:
        ArgumentError: they are a function that is known in this process only.
    """
    if callable(weights) and declared_name(weights) is None:
        raise ArgumentError(
            f"weights={weights!r} is known in this process only: who resumes the run in run_dir could pass "
            "another function. Define it at the top of a module under @privfed.weighting(version=1), or "
            "leave out run_dir."
        )


def weights_by(name: str, update: LocalUpdate) -> FloatArray:
    """Return a weighting's weights for an update, float64 of shape (n_clusters,).

    Raises:
        ArgumentError: the weights have another shape. The weighting's own errors are not caught.
    """
    weights: FloatArray = np.asarray(_KNOWN[name](update), dtype=np.float64)
    if weights.shape != update.counts.shape:
        raise ArgumentError(
            f"weights={name!r} must return {len(update.counts)} numbers, got shape {weights.shape}."
        )
    return weights


def all_weights(name: str, updates: LocalUpdates) -> FloatArray:
    """Return `weights_by` for all clients at once, float64 of shape (n_clients, n_clusters)."""
    if name == "dynamic":
        return updates.counts
    if name == "equal":
        return np.ones(updates.counts.shape)
    return np.stack([weights_by(name, update) for update in updates])


def check_weighting(name: str, n_clusters: int, n_features: int) -> None:
    """Try a weighting on a made-up update, before anything is sent.

    Raises:
        ArgumentError: it fails, or does not return one number a cluster.
    """
    received = np.linspace(0.1, 1.0, n_clusters * n_features).reshape(n_clusters, n_features)
    update = LocalUpdate(received + 0.01, np.cumsum(np.ones(n_clusters)) + 1.0, received)
    try:
        weights_by(name, update)
    except ArgumentError:
        raise
    except Exception as error:
        raise ArgumentError(
            f"weights={name!r} failed with {error!r} on counts {update.counts.tolist()}; let it return one "
            "number a cluster."
        ) from error


# Equation 7: the number of rows nearest to each received global centroid.
register_weighting("dynamic", lambda update: update.counts)
# Equation 8 up to a factor that cancels: 1 for each centroid.
register_weighting("equal", lambda update: np.ones(len(update.counts)))
