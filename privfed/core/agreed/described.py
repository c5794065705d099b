"""What a client's policy reads of an agreed program: what it is called, its starts, restarts and clusters."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from privfed.core.agreed.program import AgreedProgram, Listed, Numbers, Of, Value
from privfed.core.stored.messages import Array, encode

N_CLUSTERS = ("n_clusters", "n_local_clusters", "candidates")
"""Parameters of algorithms that are numbers of clusters."""


def names_of(program: AgreedProgram) -> tuple[str, ...]:
    """Return what runs: the algorithm's name, or those of the questions of metrics that are asked alone."""
    if program.algorithm is not None:
        return (program.algorithm.name,)
    return tuple(str(one.fields.get("name", one.name)) for one in program.metrics)


def values_of(agreed: Of | None, *names: str) -> Iterator[Value]:
    """Yield the values of parameters of an algorithm, and of the algorithms and parts in it."""
    for name, value in ({} if agreed is None else agreed.fields).items():
        if name in names:
            yield from value.items if isinstance(value, Listed) else (value,)
        if isinstance(value, Of):
            yield from values_of(value, *names)


KEPT_START = "KeptStart"
"""How agreements call the class that names a start total of an earlier fit; policies list it so, too."""


START_MISSING = "start:missing"
"""Code of the refusal of a client that has no such total in its journal."""


def kept_starts(program: AgreedProgram | None) -> tuple[Of, ...]:
    """Return the start totals of earlier fits from which an agreed algorithm begins."""
    inits = values_of(None if program is None else program.algorithm, "init")
    return tuple(one for one in inits if isinstance(one, Of) and one.name == KEPT_START)


def named_start(init: npt.ArrayLike) -> str:
    """Return how a policy lists an initialisation: its name, or "sha256:" and the hash of an array.

    Args:
        init: a name, or centers of shape (n_clusters, n_features).
    """
    return init if isinstance(init, str) else _hashed(Array.of(np.asarray(init, dtype=np.float64)))


def start_named(value: Value) -> str | None:
    """Return how a policy would list an agreed initialisation; None where it cannot be listed.

    A start total of an earlier fit is listed as "KeptStart", whichever it is.
    """
    if isinstance(value, Numbers):
        return _hashed(value.array)
    if isinstance(value, Of):
        return value.name
    return value if isinstance(value, str) else None


def _hashed(array: Array) -> str:
    return "sha256:" + hashlib.sha256(b"privfed start|" + encode(array)).hexdigest()
