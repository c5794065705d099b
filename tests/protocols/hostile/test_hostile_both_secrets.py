"""The named attacks that want both secrets of a client, in two halves each.

| attack | guard that is taken out in the second half |
|---|---|
| late upload | the own mask |
| alive and dead | `check_reports`: the living are the others |
| second story | `check_pending`: a client answers once |
| restored state | the store keeps the last state (an assumption: such a client counts among c) |
| reply before state | `Client.handle` stores first |
| threshold of the server's choice | clients compute it |
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from privfed.core.roles.engine import Client
from privfed.party.state import MemoryStore
from privfed.protocols.masked import checks
from privfed.protocols.masked.client_state import Pending
from tests.protocols.hostile import weaker
from tests.protocols.hostile.attack import (
    ALL,
    OTHERS,
    VICTIM,
    N,
    T,
    calls,
    collected,
    opened,
)
from tests.protocols.hostile.kept import Fit
from tests.protocols.hostile.loot import BothLoot
from tests.protocols.hostile.server import HostileServer
from tests.protocols.hostile.world import World

# --- both secrets of a client ---


def late_upload() -> HostileServer:
    server = HostileServer(World(N))
    fit = server.open([(1, 0)])
    assert server.collect_all(fit, 1, OTHERS) == []
    assert server.unmask_all(fit, 1, calls(OTHERS, {VICTIM})) == []
    assert server.collect(fit, VICTIM, 1) == ""
    return server


def test_late_upload_of_a_client_that_was_called_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(late_upload()) == {OTHERS}

    weaker.without_own_mask(monkeypatch)
    assert frozenset({VICTIM}) in opened(late_upload())


def alive_and_dead() -> tuple[HostileServer, list[str]]:
    server, fit = collected(World(N))
    stories = calls(OTHERS, {VICTIM}) | {VICTIM: frozenset()}
    return server, server.unmask_all(fit, 1, stories, receipts_of_dead=True)


def test_client_that_is_called_both_alive_and_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    server, refusals = alive_and_dead()
    assert refusals == ["receipts:length"] * (N - 1)
    assert opened(server) == set()

    weaker.with_overlap(monkeypatch)
    server, refusals = alive_and_dead()
    assert refusals == []
    assert frozenset({VICTIM}) in opened(server, BothLoot)


class Restorable(MemoryStore):
    """A store whose state can be copied, put back, and lost while it is written."""

    crashes = False

    def save(self, state: object) -> None:
        if self.crashes:
            raise OSError("the disk is gone")
        super().save(state)


class RepliesFirst(Client):
    """Lets the reply leave before the state is stored."""

    def handle(self, request: bytes) -> bytes:
        with self._store.transaction() as transaction:
            state, reply = self._side.step(
                transaction.load() or self._side.initial(), request, self._answerer
            )
            with suppress(OSError):
                transaction.save(state)
        return reply


def two_stories(server: HostileServer, fit: Fit, between: Callable[[], None] = lambda: None) -> list[str]:
    """Tell all that everyone is alive, then all but the victim that it is dead."""
    assert server.unmask_all(fit, 1, calls(OTHERS, ())) == []
    between()
    return server.unmask_all(fit, 1, calls(OTHERS, {VICTIM}))


def test_second_story(monkeypatch: pytest.MonkeyPatch) -> None:
    server, fit = collected(World(N))
    assert two_stories(server, fit) == ["message"] * (N - 1)
    assert opened(server) == {ALL}

    kept: dict[bytes, Pending] = {}

    def again(keys: object, number: int) -> Pending:
        return kept.setdefault(keys.channel, keys.pending)  # type: ignore[attr-defined]

    monkeypatch.setattr(checks, "check_pending", again)
    server, fit = collected(World(N))
    assert two_stories(server, fit) == []
    assert frozenset({VICTIM}) in opened(server)


@pytest.mark.parametrize("n_restored", [0, 1, 5])
def test_state_restored_from_a_copy_counts_among_the_colluders(n_restored: int) -> None:
    """Seven clients that assume one colluder: one restored copy gives nothing, five give the victim."""
    world = World(7, store=lambda i: Restorable())
    server, fit = collected(world)
    restored = [i for i in range(7) if i != VICTIM][:n_restored]
    copies = {i: world.stores[i].load() for i in restored}
    others = [i for i in range(7) if i != VICTIM]
    assert server.unmask_all(fit, 1, calls(others, ())) == []
    for i, copy in copies.items():
        world.stores[i].save(copy)
    assert len(server.unmask_all(fit, 1, calls(others, {VICTIM}))) == len(others) - n_restored
    assert (frozenset({VICTIM}) in opened(server)) == (n_restored == 5)


@pytest.mark.parametrize("client", [Client, RepliesFirst])
def test_reply_does_not_leave_before_the_state_is_stored(client: type[Client]) -> None:
    """All crash while they store; after the restart they are told another story."""
    world = World(N, store=lambda i: Restorable(), client=client)
    server, fit = collected(world)
    for i in OTHERS:
        world.stores[i].crashes = True
        if client is Client:
            with pytest.raises(OSError, match="disk"):
                server.unmask(fit, i, 1)
        else:
            assert server.unmask(fit, i, 1) == ""
        world.stores[i].crashes = False
    assert server.unmask_all(fit, 1, calls(OTHERS, {VICTIM})) == []
    recovered = frozenset({VICTIM}) in opened(server)
    assert recovered == (client is RepliesFirst)


def half_and_half() -> HostileServer:
    server, fit = collected(World(N))
    server.unmask_all(fit, 1, calls(ALL - {0, 1}, ()) | calls({0, 1}, {VICTIM}))
    return server


def test_threshold_of_the_servers_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert min(map(len, opened(half_and_half())), default=N) >= T + 1

    weaker.with_threshold(1)(monkeypatch)
    assert frozenset({VICTIM}) in opened(half_and_half())
