"""What the named attacks have in common: six clients, one of whom is the victim."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from privfed.core.agreed.configuration import CohortRule
from tests.protocols.hostile import weaker
from tests.protocols.hostile.kept import Fit
from tests.protocols.hostile.loot import Loot
from tests.protocols.hostile.server import HostileServer
from tests.protocols.hostile.world import World

N, VICTIM = 6, 5
ALL = frozenset(range(N))
OTHERS = ALL - {VICTIM}
T = 3
"""What six clients share with when no colluder is assumed; an opened sum is of T + 1 at least."""


def opened(server: HostileServer, loot: type[Loot] = Loot) -> set[frozenset[int]]:
    """Return the clients of each set that opens, after checking that it opens to the true sum."""
    found = loot(server).opened()
    assert all(one.is_true for one in found)
    return {one.clients for one in found}


def patched(monkeypatch: pytest.MonkeyPatch, *patches: weaker.Patch) -> None:
    """Take guards out."""
    for patch in patches:
        patch(monkeypatch)


def collected(world: World, number: int = 1, **told: object) -> tuple[HostileServer, Fit]:
    """Set up, and have all upload."""
    server = HostileServer(world)
    fit = server.open([(number, 0)])
    assert server.collect_all(fit, number, server.everyone, **told) == []
    return server, fit


def calls(clients: Collection[int], dead: Collection[int]) -> dict[int, frozenset[int]]:
    """Tell the same deaths to all, but to nobody its own."""
    return {i: frozenset(dead) - {i} for i in clients}


OVERLAPPING = CohortRule(kind="schedule", rounds=(tuple(range(6)), (5, *range(6, 11))))
