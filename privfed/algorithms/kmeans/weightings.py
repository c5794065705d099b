"""Weightings: what makes weights of a client's local update, known by names that questions carry.

A name means one function for as long as a process lives. A user's function that is to be known in other
processes too, on other machines or when a run is resumed, lies in a module and declares a version:

    @privfed.weighting(version=1)
    def at_most_three(update):
        return np.minimum(update.counts, 3)

Its name is `module:at_most_three@1`. It is known once its module was imported: a message or a run folder
never makes anybody import one. Any other function (a lambda, a function within another, of `__main__`, or
without a version) is known in this process only, under a name that nobody else has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from privfed.core.definitions import same_definition
from privfed.core.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.numerics.local_kmeans import LocalUpdate

Weighting = Callable[[LocalUpdate], FloatArray]
Declared = TypeVar("Declared", bound=Callable[..., Any])

_KNOWN: dict[str, Weighting] = {}
_NAMES: dict[int, tuple[Weighting, str]] = {}
"""By the function's id; functions are kept, so that no other will have it."""


def dynamic_weights(update: LocalUpdate) -> FloatArray:
    """Return eq. 7: the rows nearest to each received global centroid."""
    return update.counts


def equal_weights(update: LocalUpdate) -> FloatArray:
    """Return eq. 8 up to a factor that cancels: one for each centroid."""
    return np.ones(len(update.counts))


def register_weighting(name: str, weighting: Weighting) -> None:
    """Make a weighting known by a name; on other machines it must be registered there too.

    Raises:
        ArgumentError: the name is another function's.
    """
    known = _KNOWN.get(name)
    if known is not None and not same_definition(known, weighting):
        raise ArgumentError(
            f"weighting {name!r} is known already, and is another function: questions that carry the name "
            "would be answered otherwise than before. Raise its version, or take another name."
        )
    _KNOWN.setdefault(name, weighting)


def weighting(*, version: int) -> Callable[[Declared], Declared]:
    """Declare a function of a module as a weighting, with a version (a decorator).

    Raise the version when the function changes: it is what the parties of a fit agree on, and a run is
    resumed under the same one only.

    Args:
        version: at least 1.

    Raises:
        ArgumentError: the function cannot be imported by its name, or the version is known with other code.
    """
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ArgumentError(f"version must be a whole number of at least 1, got version={version!r}.")

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
    """Return the name that a function is known by: the declared one, else one of this process."""
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
    """Return the names that other processes may know too, in order."""
    return sorted(name for name in _KNOWN if not name.endswith("of this process"))


def is_known(name: str) -> bool:
    """Say whether a weighting is known by a name."""
    return name in _KNOWN


def check_lasting(weights: object) -> None:
    """Check that weights will mean the same to another process: those that a run folder is for.

    Raises:
        ArgumentError: a function that is known in this process only.
    """
    if callable(weights) and declared_name(weights) is None:
        raise ArgumentError(
            f"weights={weights!r} is known in this process only: who resumes the run in run_dir could pass "
            "another function. Define it at the top of a module under @privfed.weighting(version=1), or "
            "leave out run_dir."
        )


def weights_by(name: str, update: LocalUpdate) -> FloatArray:
    """Return what a weighting makes of an update, float64 of shape (n_clusters,).

    Raises:
        ArgumentError: it returns something of another shape. Its own errors pass.
    """
    weights: FloatArray = np.asarray(_KNOWN[name](update), dtype=np.float64)
    if weights.shape != update.counts.shape:
        raise ArgumentError(
            f"weights={name!r} must return {len(update.counts)} numbers, got shape {weights.shape}."
        )
    return weights


def check_weighting(name: str, n_clusters: int, n_features: int) -> None:
    """Try a weighting on an update that is made up, before anything is sent.

    Raises:
        ArgumentError: it fails there, or returns something else than one number a cluster.
    """
    received = np.linspace(0.1, 1.0, n_clusters * n_features).reshape(n_clusters, n_features)
    counts = np.cumsum(np.ones(n_clusters)) + 1.0
    update = LocalUpdate(received + 0.01, counts, received, counts)
    try:
        weights_by(name, update)
    except ArgumentError:
        raise
    except Exception as error:
        raise ArgumentError(
            f"weights={name!r} failed with {error!r} on counts {update.counts.tolist()}; let it return one "
            "number a cluster."
        ) from error


register_weighting("dynamic", dynamic_weights)
register_weighting("equal", equal_weights)
