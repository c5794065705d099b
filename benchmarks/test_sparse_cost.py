"""Cost of a masked sum for a client and the coordinator on the sparse graph, from 202 to 10,000 clients.

1e4 entries, no network, one thread; the sums of a block, so that what is prepared once in a block is in the
mean, and a tenth of the clients lost in the first of them. Run by `make bench`; it prints, and asserts
nothing about time. Each cost is compared with that of the keystreams that it cannot do without, measured in
the same run. `PRIVFED_BENCH_CLIENTS` names other sizes ("10000" takes minutes).
"""

from __future__ import annotations

import os
import resource
import time
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from benchmarks.test_masked_cost import QUESTION as WIDE
from benchmarks.test_masked_cost import Entries
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.engine import Exchange, Replies
from privfed.protocols import Masked
from privfed.protocols.crypto.fixed_point import Grid
from privfed.protocols.crypto.keys import new_secret
from privfed.protocols.crypto.keystream import Masker
from privfed.protocols.setup.graph import sizes
from privfed.protocols.setup.rules import BLOCK

ENTRIES = 10_000
SIZES = tuple(int(n) for n in os.environ.get("PRIVFED_BENCH_CLIENTS", "202,500,1000,2000").split(","))
QUESTION = Entries(ranges=WIDE.ranges, size=ENTRIES)
READY = Statistics(x=np.random.default_rng(0).uniform(-10, 10, ENTRIES))


class Fit:
    """Runs all clients and the coordinator, and measures the time of either side."""

    def __init__(self, n: int) -> None:
        protocol, self.n = Masked(), n
        configuration = Configuration(
            protocol="masked",
            algorithm="benchmark",
            clients=tuple(f"c{i}" for i in range(n)),
            n_features=1,
            terms=protocol.terms(n, n, 1 << 16),
        )
        self.sizes = sizes(n, configuration.terms)
        self.session, self.sides = protocol.parties(configuration, dict.fromkeys(range(n), ClientPolicy()))
        self.states: dict[int, Any] = {i: side.initial() for i, side in self.sides.items()}
        self.server, self.clients, self.bytes = 0.0, 0.0, 0
        self._drive(self.session.open(), 0)

    def sum(self, index: int, lost: int) -> None:
        """Open one sum, in which the first clients are lost."""
        total = self._drive(self.session.sum(QUESTION, index, 0, (0,)), lost)
        assert len(total.contributors) == self.n - lost
        error = total.statistics["x"] - len(total.contributors) * READY["x"]
        assert np.abs(error).max() < self.n * 2.0**-29

    def _drive(self, steps: Any, lost: int) -> Any:
        self.server, self.clients, self.bytes = 0.0, 0.0, 0
        replies: Replies | None = None
        while True:
            start = time.process_time()
            try:
                exchange = next(steps) if replies is None else steps.send(replies)
            except StopIteration as finished:
                self.server += time.process_time() - start
                return finished.value
            self.server += time.process_time() - start
            start = time.process_time()
            replies = self._answers(exchange, lost if exchange.stage == "collect" else 0)
            self.clients += time.process_time() - start
            self.bytes += sum(map(len, exchange.requests.values())) + sum(len(data) for _, data in replies)

    def _answers(self, exchange: Exchange, lost: int) -> Replies:
        replies: Replies = []
        for i, request in exchange.requests.items():
            if i >= lost:
                self.states[i], reply = self.sides[i].step(self.states[i], request, lambda *_: (READY, 0))
                replies.append((i, reply))
        return replies


def limit(n: int, d: int) -> float:
    """Return the seconds of one client's keystreams."""
    grid = Grid(QUESTION.spec, n)
    total, masker = np.zeros(grid.size, dtype=np.uint64), Masker(grid)
    keys = [new_secret() for _ in range(d + 1)]
    start = time.process_time()
    for key in keys:
        masker.add(total, key)
    return time.process_time() - start


@pytest.mark.benchmark
@pytest.mark.timeout(3600)
def test_sparse_cost() -> None:
    print(
        f"\nMasked sums of {ENTRIES} entries; processor ms of a client that answers, in the mean over a block"
    )
    print(
        "clients    d    c    t      m   set-up   client   limit  ratio   server/client tenth lost kB/client"
    )
    with threadpool_limits(1):
        for n in SIZES:
            start = time.process_time()
            fit = Fit(n)
            fit.sum(0, 0)
            first, floor = time.process_time() - start, limit(n, fit.sizes.neighbours)
            lost = n // 10
            clients, servers, sent = [], [], []
            for place in range(BLOCK):
                fit.sum(1 + place, 0 if place else lost)
                clients.append(fit.clients / (n if place else n - lost))
                servers.append(fit.server / n)
                sent.append(fit.bytes / n / 1000)
            floor = (floor + limit(n, fit.sizes.neighbours)) / 2
            client, server, size = (float(np.mean(one)) for one in (clients, servers, sent))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            one = fit.sizes
            print(
                f"{n:7} {one.neighbours:4} {one.colluders:4} {one.threshold:4} {one.honest:6} "
                f"{1000 * first / n:8.2f} {1000 * client:8.2f} {1000 * floor:7.2f} {client / floor:6.2f} "
                f"{1000 * server:15.2f} {1000 * servers[0]:9.2f} {size:9.1f} {peak:4.1f} GB",
                flush=True,
            )
