"""Random schedules of losses: no wrong sum, nothing opened below the threshold, sessions that go on.

Ten thousand sums (`make test-slow`) take about four minutes of one core.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping

import pytest

from privfed.core.record.records import Summed
from privfed.engines.in_process import Fault
from privfed.errors import NotEnoughClientsError
from privfed.protocols import Masked
from privfed.protocols.setup.rules import needed_to_open
from tests.protocols.federations import Sums, names, vectors, wide_vectors

STAGES = ("advertise", "agree", "prepare", "collect", "unmask")
QUESTIONS = (vectors(), wide_vectors(), vectors(17, 0.0, 1e6, 1e-4))


class Schedule:
    """One session of several sums in which clients are lost and come back.

    It says what each sum must come to from who was lost when, and from the threshold alone: who is
    lost once in a sum is back in the next, unless it missed the first exchange of the fit.
    """

    def __init__(self, seed: int, largest: int, counts: Counter[str]) -> None:
        self.rng, self.counts = random.Random(seed), counts
        n = min(largest, 3 + int(self.rng.expovariate(1 / 7)))
        self.rounds = self._cohorts(n) if n >= 6 and self.rng.random() < 0.4 else ()
        smallest = min([n, *map(len, self.rounds)])
        colluders = self.rng.choice([None, 0]) if smallest > 3 else None
        self.run = Sums(Masked(colluders=colluders, losses=100_000), n, self.rounds, seed=seed)
        self.n, self.gone = n, frozenset[int]()
        self.rate = self.rng.choice([0.05, 0.15, 0.35])

    def _cohorts(self, n: int) -> tuple[tuple[int, ...], ...]:
        sizes = [self.rng.randint(max(4, n // 2), n) for _ in range(self.rng.randint(1, 4))]
        return tuple(tuple(sorted(self.rng.sample(range(n), size))) for size in sizes)

    def one(self) -> None:
        """Ask one sum, lose clients, and compare what came with what must come."""
        run, rng, labels = self.run, self.rng, range(len(self.rounds) + 1)
        question, label = rng.choice(QUESTIONS), rng.choice(labels)
        upcoming = tuple(rng.sample(labels, rng.randint(0, len(labels))))
        began = bool(run.session._channels)  # type: ignore[attr-defined]
        stages = STAGES[3:] if began and rng.random() < 0.8 else STAGES
        lost = {i: rng.choice(stages) for i in range(self.n) if rng.random() < self.rate}
        faults = [Fault(i, stage, rng.choice(["drop", "lost-reply"])) for i, stage in lost.items()]  # type: ignore[arg-type]
        seen, opened = len(run.engine.log), len(run.transcript.of(Summed))
        failure: NotEnoughClientsError | None = None
        try:
            total = run.ask(question, label, upcoming, *faults)
        except NotEnoughClientsError as error:
            failure = error
        happened = [exchange.stage for exchange, _ in run.engine.log[seen:]]
        assert sorted(happened, key=STAGES.index) == happened and len(set(happened)) == len(happened)
        dropped, failed = self._expect(label, lost, happened)
        assert len(run.transcript.of(Summed)) == opened + (failed is None)
        if failed is not None:
            assert failure is not None and failure.stage == failed
            assert failure.missing == tuple(names(self.n)[i] for i in sorted(dropped))
            self.counts["failed in " + failed] += 1
            return
        assert failure is None, str(failure)
        run.assert_exact(total, question, label)
        members = run.configuration.cohort(label)
        assert total.contributors == tuple(i for i in members if dropped.get(i, "unmask") == "unmask")
        assert total.dropped == dropped and not total.rejected
        self.counts["opened"] += 1
        self.counts["opened with losses"] += bool(dropped)

    def _expect(
        self, label: int, lost: Mapping[int, str], happened: list[str]
    ) -> tuple[dict[int, str], str | None]:
        """Return who is lost in which stage, and the stage in which too few are left."""
        members, terms = self.run.configuration.cohort(label), self.run.configuration.terms
        dropped: dict[int, str] = {}
        if "advertise" in happened:
            dropped = {i: stage for i, stage in lost.items() if stage == "advertise"}
            if self.n - len(dropped) < needed_to_open(self.n, terms):
                return dropped, "advertise"
            self.gone = frozenset(dropped)
        dropped = dict.fromkeys(self.gone & set(members), "advertise")
        for stage in STAGES[1:]:
            if stage not in ("agree", "prepare") or stage in happened:
                dropped |= {i: stage for i in members if lost.get(i) == stage and i not in dropped}
            if len(members) - len(dropped) < needed_to_open(len(members), terms):
                return dropped, stage
        return dropped, None


@pytest.mark.slow
def test_many_short_schedules() -> None:
    counts = Counter[str]()
    for seed in range(300):
        schedule = Schedule(seed, 50 if seed % 10 == 0 else 20, counts)
        for _ in range(4):
            schedule.one()
    assert counts["opened with losses"] > 100
    assert all(counts["failed in " + stage] > 3 for stage in STAGES)


def test_one_session_of_many_sums() -> None:
    counts = Counter[str]()
    schedule = Schedule(1, 7, counts)
    schedule.rate = 0.15
    for _ in range(80):
        schedule.one()
    assert counts["opened"] > 15 and counts.total() > 80


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_sums() -> None:
    counts, start, seed = Counter[str](), time.perf_counter(), 1000
    asked = 0
    while asked < 10_000:
        schedule, seed = Schedule(seed, 50, counts), seed + 1
        for _ in range(20):
            schedule.one()
            asked += 1
    seconds = time.perf_counter() - start
    print(f"\n{asked} sums in {seed - 1000} sessions of 3 to 50 clients: {seconds:.0f} s. {dict(counts)}")
    assert counts["opened with losses"] > 1000
