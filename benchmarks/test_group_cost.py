"""Processor time of a sum that clients open, compared with that of the keystreams that it needs.

100 clients, 1e5 entries, no network, one thread. Run by `make bench`; it prints, and asserts nothing about
time. The limit is what the same masker needs for as many keystreams of fresh keys in the same run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from privfed.core.roles.engine import Client, Exchange, Replies
from privfed.engines.in_process import InProcessEngine
from privfed.protocols import GroupMasked
from privfed.protocols.crypto.fixed_point import Grid
from privfed.protocols.crypto.keys import new_secret
from privfed.protocols.crypto.keystream import Masker
from tests.protocols.federations import Sums, vectors

CLIENTS, ENTRIES, SUMS = 100, 100_000, 3
QUESTION = vectors(ENTRIES)


class Watch:
    """Runs clients as an engine, and counts their processor time.

    Attributes:
        spent: seconds of all clients in the last exchange.
        whole: seconds of all clients in all exchanges since it was set to 0.
    """

    def __init__(self, clients: Mapping[int, Client]) -> None:
        self._engine = InProcessEngine(clients)
        self.spent = self.whole = 0.0

    def exchange(self, exchange: Exchange, timeout: float | None = None) -> Replies:
        start = time.process_time()
        replies = self._engine.exchange(exchange, timeout)
        self.spent = time.process_time() - start
        self.whole += self.spent
        return replies


def limit(n: int) -> float:
    """Return the seconds that it takes to generate and add n keystreams."""
    grid = Grid(QUESTION.spec, CLIENTS)
    masker, words = Masker(grid), np.zeros(grid.size, dtype=np.uint64)
    keys = [new_secret() for _ in range(n)]
    start = time.process_time()
    for key in keys:
        masker.add(words, key)
    return time.process_time() - start


@pytest.mark.benchmark
def test_cost_of_a_group_masked_sum(capsys: pytest.CaptureFixture[str]) -> None:
    with threadpool_limits(1):
        run = Sums(GroupMasked(), CLIENTS)
        run.draw(QUESTION)
        run.draw = lambda question: None  # type: ignore[method-assign]
        run.federation._carrier = watch = Watch(run.clients)
        run.ask(QUESTION)
        clients, rest, limits = [], [], []
        for _ in range(SUMS):
            start = time.process_time()
            run.ask(QUESTION)
            whole = time.process_time() - start
            clients.append(watch.spent / CLIENTS)
            rest.append(whole - watch.spent)
            limits.append(limit(CLIENTS + 1))
    down = sum(run.federation.traffic.down.values()) / CLIENTS / (SUMS + 1)
    up = sum(run.federation.traffic.up.values()) / CLIENTS / (SUMS + 1)
    client, keystreams = statistics.median(clients), statistics.median(limits)
    with capsys.disabled():
        print(
            f"\nclient and sum: {client * 1e3:.1f} ms, {client / keystreams:.2f} of {CLIENTS + 1} keystreams"
        )
        print(f"coordinator and opening, a sum: {statistics.median(rest) * 1e3:.0f} ms")
        print(f"bytes a client and sum: {down:.0f} down, {up:.0f} up, {8 * ENTRIES} in clear")
