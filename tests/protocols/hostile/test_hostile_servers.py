"""Random hostile servers against real clients: whatever they tell, a sum is over t - c + 1 honest ones.

Each server has up to fifty clients, some of which it owns and some of whose states it restores at will
(together at most c). Over several numbers, two set-ups and overlapping cohorts it tells clients
different questions, lists, deaths and receipts; swaps preparations and mask keys; asks twice; asks
late; gives two lists to two halves; and replays old requests. Then it opens what all of it together
opens. Guards: all; the lock is taken out to show that these servers would find a hole. That receipts
are needed beside it, only built stories show (`test_hostile_named_attacks`).
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.default_run import slow
from tests.protocols.hostile import weaker
from tests.protocols.hostile.chaos import Chaos


def attack(n: int, seed: int, n_sums: int = 6) -> tuple[list[str], int]:
    """Return what broke the promise, and how many sums were opened at all."""
    chaos = Chaos(n, np.random.default_rng([n, seed]))
    found = chaos.run(n_sums)
    return chaos.violations(found), len(found)


def attacks(n: int, seeds: range, n_sums: int = 6) -> tuple[list[str], int]:
    """Return the same for several servers."""
    results = [attack(n, seed, n_sums) for seed in seeds]
    return [one for broken, _ in results for one in broken], sum(count for _, count in results)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "servers"), [(4, 12), (5, 12), (7, 12), (12, 8), (20, 3)])
def test_random_servers_open_nothing_beyond_the_promise(n: int, servers: int) -> None:
    broken, n_opened = attacks(n, range(servers))
    assert broken == []
    assert n_opened > 0


@pytest.mark.slow
def test_random_servers_of_fifty_clients_open_nothing_beyond_the_promise() -> None:
    broken, n_opened = attacks(50, range(10), n_sums=4)
    assert broken == []
    assert n_opened > 0


@pytest.mark.slow  # 70 s to 190 s in all
@pytest.mark.parametrize(("n", "servers"), [(5, 150), (6, 150), (7, 150), (12, 50), (20, 20), (50, 5)])
def test_many_random_servers_open_nothing_beyond_the_promise(n: int, servers: int) -> None:
    broken, n_opened = attacks(n, range(100, 100 + servers))
    assert broken == []
    assert n_opened >= servers / 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "guards", [(weaker.without_lock,), slow(((weaker.without_lock, weaker.without_receipts),))]
)
def test_random_servers_would_find_a_missing_lock(
    guards: tuple[weaker.Patch, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for guard in guards:
        guard(monkeypatch)
    assert any(attack(7, seed)[0] for seed in range(100))
