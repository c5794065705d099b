"""Data of several simulated clients: their rows lie in one table, and are clipped in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privfed.core.asking.question import ClientData
from privfed.core.asking.stack import Stack, Stacked
from privfed.core.values.domain import Ranges


def in_one_stack(clients: Sequence[ClientData]) -> tuple[ClientData, ...]:
    """Return the data of several simulated clients with their rows in one table."""
    if not clients or stacked_already(clients):
        return tuple(clients)
    stack = Stack.of([one.features for one in clients])
    return tuple(
        ClientData(stack.part(i), one.labels, one.cache, one.errors, stack=stack, place=i, memory=one.memory)
        for i, one in enumerate(clients)
    )


def stacked_already(clients: Sequence[ClientData]) -> bool:
    """Say whether the rows of several clients lie in one table."""
    stack = clients[0].stack
    return stack is not None and all(one.stack is stack for one in clients)


def all_within(clients: Sequence[ClientData], ranges: Ranges) -> tuple[Sequence[ClientData], list[int]]:
    """Return `ClientData.within` for several clients: their data, and how many rows were clipped."""
    stack = clients[0].stack if clients else None
    if stack is not None and stacked_already(clients) and stack.inside(ranges):
        return clients, [0] * len(clients)
    within = [own.within(ranges) for own in clients]
    return [data for data, _ in within], [moved for _, moved in within]


def stacked(clients: Sequence[ClientData]) -> Stacked:
    """Return the rows of several clients in one table: the one in which they lie, or a new one."""
    stack = clients[0].stack
    if stack is not None and stacked_already(clients):
        return Stacked(stack, np.array([one.place for one in clients], dtype=np.int64))
    if len(clients) == 1:
        # A client alone keeps its stack, and the bounds in it, with its data.
        kept = clients[0].cache.setdefault("stack", Stack.of([clients[0].features]))
        return Stacked(kept, np.zeros(1, dtype=np.int64))  # type: ignore[arg-type]
    return Stacked.of([one.features for one in clients])
