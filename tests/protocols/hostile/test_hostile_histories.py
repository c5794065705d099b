"""Over how many sets of clients a lying server opens totals, whatever it tells whom of who was lost."""

from __future__ import annotations

import random

import pytest

from privfed.protocols.setup.graph import sizes
from tests.protocols.hostile.loot import Loot
from tests.protocols.hostile.server import HostileServer
from tests.protocols.hostile.world import World, terms_of

SUMS = 7


def sets_opened(server: HostileServer) -> set[frozenset[int]]:
    """Return the sets of honest clients whose sums the server reads."""
    found = Loot(server).opened()
    assert all(one.is_true for one in found)
    return {frozenset(one.clients) - server.world.corrupted for one in found} - {frozenset()}


@pytest.mark.parametrize(
    ("n", "losses", "used"), [(4, 1, 0), (6, 1, 0), (8, 1, 0), (12, 2, 2), (30, 3, 0), (30, 3, 4)]
)
def test_each_loss_told_to_just_enough_clients_opens_no_more_sets_than_agreed(
    n: int, losses: int, used: int
) -> None:
    terms = terms_of(n, losses=losses)
    corrupted = frozenset(range(n - used, n))
    world = World(n, terms=terms, corrupted=corrupted)
    server = HostileServer(world)
    fit, honest = server.open([(1, 0)]), [i for i in range(n) if i not in corrupted]
    need, left, number = sizes(n, terms).threshold - used, dict.fromkeys(honest, losses), 0

    def one_sum(excluded: int | None, told: set[int]) -> list[str]:
        nonlocal number
        number += 1
        server.prepare(fit, number)
        codes = server.collect_all(fit, number, server.everyone, index=number - 1, question=7)
        stories = {i: (excluded,) if i in told else () for i in server.everyone}
        return codes + server.unmask_all(fit, number, stories)  # type: ignore[arg-type]

    assert one_sum(None, set()) == []
    for victim in honest[: 2 * losses + 1]:
        able = sorted((i for i in honest if i != victim and left[i]), key=lambda i: -left[i])[:need]
        one_sum(victim, set(able))
        left |= {i: left[i] - 1 for i in able}
        one_sum(None, set())
    assert 1 < len(sets_opened(server)) <= losses + 1
    # Each client counts what is in its own history.
    assert all(world.stores[i].load().keys.losses.count <= losses for i in honest)


def stories(seed: int, n: int, losses: int, used: int) -> tuple[int, int]:
    """Tell random stories over some sums and two set-ups; return how many sets opened, of how many sums."""
    rng = random.Random(seed)
    corrupted = frozenset(range(n - used, n))
    server = HostileServer(World(n, terms=terms_of(n, losses=losses), corrupted=corrupted))
    fit, opened = server.open([(1, 0)]), 0
    absences = [frozenset(rng.sample(range(n), rng.randint(0, 2))) for _ in range(4)]
    for number in range(1, SUMS + 1):
        if number == SUMS // 2 + 1 and rng.random() < 0.5:
            # A new set-up counts its numbers anew, and goes on with the same histories.
            fit = server.open([(1, 0)])
        at = number if fit is server.fits[0] else number - SUMS // 2
        server.prepare(fit, at)
        server.collect_all(fit, at, server.everyone, index=number - 1, question=7)
        common, odd = rng.choice(absences), rng.choice(absences)
        for i in server.everyone:
            told = odd if rng.random() < 0.3 else common
            if rng.random() > 0.1:
                server.unmask(fit, i, at, told - {i})
        opened += 1
    return len(sets_opened(server)), opened


@pytest.mark.parametrize(("n", "losses", "used"), [(4, 1, 0), (5, 1, 1), (6, 2, 0), (8, 2, 0)])
def test_random_stories_open_no_more_sets_than_agreed(n: int, losses: int, used: int) -> None:
    found = [stories(seed, n, losses, used)[0] for seed in range(25)]
    assert max(found) <= losses + 1 and max(found) > 1


@pytest.mark.slow
@pytest.mark.parametrize(("n", "losses", "used"), [(6, 1, 0), (7, 2, 1), (10, 3, 2)])
def test_many_random_stories(n: int, losses: int, used: int) -> None:
    assert max(stories(seed, n, losses, used)[0] for seed in range(300)) <= losses + 1
