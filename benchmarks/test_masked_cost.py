"""Processor time of a masked sum, compared with that of the keystreams that it cannot do without.

100 clients, full graph, 1e5 entries, no network, one thread. Run by `make bench`; it prints, and asserts
nothing about time. The limit is what the same masker needs for as many keystreams of fresh keys, measured
between the steps that it is compared with.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking import question
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.engine import Exchange, Replies
from privfed.core.values.domain import Ranges
from privfed.protocols import Masked
from privfed.protocols.answering import admit, answer
from privfed.protocols.crypto.fixed_point import Grid, grid_of
from privfed.protocols.crypto.keys import new_secret
from privfed.protocols.crypto.keystream import Masker

CLIENTS, ENTRIES, REPEATS = 100, 100_000, 5
LOST = CLIENTS // 10
MEASURED = 50


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Entries(Question):
    """Asks for many numbers, which a client has ready."""

    additive_over = AdditiveOver.CLIENTS
    size: int

    @property
    def spec(self) -> StatisticsSpec:
        """Layout of the statistics: one array."""
        return self._spec

    @cached_property
    def _spec(self) -> StatisticsSpec:
        return StatisticsSpec(Entry("x", (self.size,), -10.0, 10.0, 2.0**-30))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Raise an error, as the clients have their answers ready and this is never called."""
        raise NotImplementedError


QUESTION = Entries(ranges=Ranges(np.zeros(1), np.ones(1), 1), size=ENTRIES)
READY = Statistics(x=np.random.default_rng(0).uniform(-10, 10, ENTRIES))


def answerer(question: Question, index: int) -> tuple[Statistics, int]:
    return READY, 0


def cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def forget() -> None:
    """Empty the caches that clients of one process share, as a real client decodes the question itself."""
    question._READ.clear()
    grid_of.cache_clear()


class Fit:
    """Drives the generators of clients and coordinator by hand, and measures the time of each side."""

    def __init__(self) -> None:
        protocol = Masked()
        self.configuration = Configuration(
            protocol="masked",
            algorithm="benchmark",
            clients=tuple(f"c{i}" for i in range(CLIENTS)),
            n_features=1,
            terms=protocol.terms(CLIENTS, CLIENTS, 1 << 16),
        )
        policies = dict.fromkeys(range(CLIENTS), ClientPolicy())
        self.session, self.sides = protocol.parties(self.configuration, policies)
        self.states: dict[int, Any] = {i: side.initial() for i, side in self.sides.items()}
        self.index, self.server, self.client = 0, 0.0, dict[str, float]()
        self.drive(self.session.open(), ())

    def drive(self, steps: Any, lost: Iterable[int]) -> Any:
        """Run one generator; add up the coordinator's time, and one client's time by stage."""
        self.server, self.client = 0.0, {}
        replies: Replies | None = None
        while True:
            start = time.process_time()
            try:
                exchange = next(steps) if replies is None else steps.send(replies)
            except StopIteration as finished:
                self.server += time.process_time() - start
                return finished.value
            self.server += time.process_time() - start
            replies = self.answers(exchange, lost if exchange.stage == "collect" else ())

    def answers(self, exchange: Exchange, lost: Iterable[int]) -> Replies:
        replies: Replies = []
        for i, request in exchange.requests.items():
            if i in lost:
                continue
            if i == MEASURED:
                forget()
            start = time.process_time()
            self.states[i], reply = self.sides[i].step(self.states[i], request, answerer)
            if i == MEASURED:
                self.client[exchange.stage] = time.process_time() - start
            replies.append((i, reply))
        return replies

    def sum(self, lost: Iterable[int] = ()) -> None:
        """Open one sum, in which the coordinator makes its own copies of question and grid."""
        question = Entries(ranges=QUESTION.ranges, size=ENTRIES)
        total = self.drive(self.session.sum(question, self.index, 0, (0,)), lost)
        self.index += 1
        assert len(total.contributors) == CLIENTS - len(set(lost))
        error = total.statistics["x"] - len(total.contributors) * READY["x"]
        assert np.abs(error).max() < CLIENTS * 2.0**-30


def limit(streams: int) -> float:
    """Return the time that the masker needs to generate and add keystreams of fresh keys."""
    grid = Grid(QUESTION.spec, CLIENTS)
    total, keys = np.zeros(grid.size, dtype=np.uint64), [new_secret() for _ in range(streams)]
    masker = Masker(grid)
    return cpu(lambda: [masker.add(total, key) for key in keys])


def answering(fit: Fit) -> float:
    """Return the time to decode and admit the question, and to clip its answer to the ranges."""
    data = QUESTION.to_bytes()
    forget()
    return cpu(lambda: answer(admit(data, ClientPolicy(), fit.configuration), 0, answerer))


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: 1000 * statistics.median(row[name] for row in rows) for name in rows[0]}


@pytest.mark.benchmark
@pytest.mark.timeout(900)
def test_masked_cost() -> None:
    with threadpool_limits(1):
        fit = Fit()
        fit.sum()  # Joins, and prepares.
        join, plain, losses = fit.client["agree"] + fit.client["prepare"], [], []
        for _ in range(REPEATS):
            keystreams, answered = limit(CLIENTS), answering(fit)
            fit.sum()
            client = fit.client["collect"] + fit.client["unmask"]
            plain.append(
                {
                    "keystreams": keystreams,
                    "answering": answered,
                    "collect": fit.client["collect"],
                    "unmask": fit.client["unmask"],
                    "client": client,
                    "rest": client - keystreams - answered,
                    "server": fit.server,
                    "server keystreams": limit(CLIENTS),
                }
            )
            fit.sum(range(LOST))
            rebuilt = CLIENTS - LOST + LOST * (CLIENTS - LOST)
            losses.append({"server": fit.server, "keystreams": limit(rebuilt)})
            # Clients that were lost are back in the next sum.
    report(medians(plain), medians(losses), rebuilt, 1000 * join)


def report(one: dict[str, float], lossy: dict[str, float], rebuilt: int, join: float) -> None:
    """Print the table; times in ms."""
    size = 8 * Grid(QUESTION.spec, CLIENTS).size / 1e6
    living = CLIENTS - LOST
    rows: list[tuple[str, float, str]] = [
        (
            "client, both exchanges",
            one["client"],
            f"collect {one['collect']:.1f}, unmask {one['unmask']:.1f}",
        ),
        (f"  (a) {CLIENTS} keystreams, added", one["keystreams"], "the limit"),
        ("  (b) the rest", one["rest"], f"joining {join:.1f} once"),
        ("  question and answer", one["answering"], ""),
        ("  (a + b) / a", (one["keystreams"] + one["rest"]) / one["keystreams"], ""),
        ("server, nobody lost", one["server"], ""),
        (f"  {CLIENTS} keystreams", one["server keystreams"], f"{CLIENTS} own"),
        ("  ratio", one["server"] / one["server keystreams"], ""),
        (f"server, {LOST} lost in collect", lossy["server"], ""),
        (f"  {rebuilt} keystreams", lossy["keystreams"], f"{living} own, {LOST} x {living} of pairs"),
        ("  ratio", lossy["server"] / lossy["keystreams"], ""),
    ]
    print(f"\nOne masked sum, {CLIENTS} clients, full graph, {ENTRIES} entries ({size:.1f} MB each);")
    print(f"processor time in ms, one thread, medians of {REPEATS}")
    for name, value, note in rows:
        print(f"{name:30}{value:9.2f}   {note}")
