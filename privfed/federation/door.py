"""How layers below the face open a federation: the face hangs its opener here when privfed is imported.

Metric functions take client arrays and must ask them through the door like everyone else, but they
may not import engines or protocols.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from privfed.core.federation import Federation
from privfed.errors import ArgumentError

Opener = Callable[..., Federation]
_openers: list[Opener] = []


def set_opener(opener: Opener) -> None:
    """Hang up the function that builds a federation from client arrays."""
    _openers[:] = [opener]


def open_federation(clients: Any, labels: Any = None, **options: Any) -> Federation:
    """Return a federation over `clients`, or `clients` itself where it is one already.

    Raises:
        ArgumentError: labels or options are passed beside a federation, which has its own.
    """
    if not isinstance(clients, Federation):
        return _openers[0](clients, labels, **options)
    if labels is not None or options:
        given = sorted([*options, *(["labels"] if labels is not None else [])])
        raise ArgumentError(
            f"a federation keeps its own {', '.join(given)}; pass them when its clients are given."
        )
    return clients
