"""A client's own run of the agreed program, where it gets the totals: it knows what comes next.

The program is the algorithm, and then those of the agreed metrics that the coordinator asks for, each once,
about what the algorithm found. The run keeps the totals that it was told, durable before the client's state:
after a crash a total may be told again, and none is missing. Without totals a client checks the form of a
question (`privfed.party.program`). The same run serves sums that clients open (`group-masked`, `ckks`) and
verified masked sums: only where its totals come from differs (`own_run`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from privfed.core.agreed.agreement import MOST_KEPT
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.program import from_agreed
from privfed.core.asking.declaration import TOO_LARGE
from privfed.core.asking.statistics import unwire, wire
from privfed.core.roles.conversation import (
    Algorithm,
    Ask,
    Conversation,
    Ledger,
    Setting,
    Total,
    known_ranges,
)
from privfed.core.roles.engine import StateStore
from privfed.core.roles.secure_sum import NextQuestion
from privfed.core.stored.encoding import Array, Codec
from privfed.core.values.domain import Domain
from privfed.core.values.numbers import Count, Items, Named, Number
from privfed.errors import ArgumentError, IntegrityError, MessageError, PolicyError
from privfed.party.program import Stated, agreed_program, setting_of, sized_algorithm
from privfed.privacy.ledger import BudgetLedger

if TYPE_CHECKING:
    from privfed.metrics.asked import AskedMetric

Outcome = TypeVar("Outcome")


class OpenedTotal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A total as clients know it.

    Args:
        statistics: the sum.
        contributors: positions of the clients in it, ascending.
        clipped: entries that they clipped.
        metric: place of the agreed metric that asked for it; None of the algorithm's.
    """

    statistics: Named[Array]
    contributors: Items[Number]
    clipped: Count
    metric: Number | None = None

    @classmethod
    def of(cls, total: Total, metric: int | None = None) -> OpenedTotal:
        """Return what is kept of a total."""
        return cls(wire(total.statistics), total.contributors, total.clipped, metric)

    def total(self) -> Total:
        """Return the total."""
        return Total(unwire(self.statistics), self.contributors, clipped=self.clipped)


TOTAL: Codec[OpenedTotal] = Codec(OpenedTotal, "total that clients opened", 2)
TOTALS: Codec[tuple[OpenedTotal, ...]] = Codec(Items[OpenedTotal], "totals that a client opened", 2)
"""What a replay stores."""


def _numbers(total: Total) -> int:
    return sum(array.size for array in total.statistics.values())


class ProgramReplay(Generic[Outcome]):
    """Runs the agreed program on the totals that a client is told.

    Args:
        algorithm: the agreed one; None where metrics are asked alone.
        setting: what it may know before it asks.
        store: keeps the totals told so far (`TOTALS`).
        metrics: the agreed ones, which may follow.
        ledger: under differential privacy prices what is asked, as the coordinator's does.
        tells: hears each total besides; for whoever drives the run and reads no total itself.
        placed: returns an ask whose question states its position in the agreed program.

    Attributes:
        outcome: the algorithm's result, once it has ended; None before, and where there is none.
    """

    def __init__(
        self,
        algorithm: Algorithm[Outcome] | None,
        setting: Setting,
        store: StateStore,
        *,
        metrics: Sequence[AskedMetric] = (),
        ledger: Ledger | None = None,
        tells: Callable[[int, OpenedTotal], None] = lambda index, total: None,
        placed: Callable[[Ask], Ask] = lambda ask: ask,
    ) -> None:
        self.outcome: Outcome | None = None
        self._setting, self._metrics = setting, tuple(metrics)
        self._store, self._ledger, self._tells, self._placed = store, ledger, tells, placed
        self._asks: list[tuple[Ask, int | None]] = []
        self._told: list[OpenedTotal] = []
        self._numbers = 0
        self._followed: tuple[int, ...] = ()
        self._begun = 0
        self._running: Conversation[Any] | None = None
        self._metric: int | None = None
        if algorithm is not None:
            self._begin(algorithm.run(setting))
        with store.transaction() as transaction:
            for kept in transaction.load() or ():
                if kept.metric is not None and kept.metric not in self._followed:
                    self.follow((*self._followed, kept.metric))
                self._send(kept)

    def follow(self, metrics: tuple[int, ...]) -> None:
        """Hear which agreed metrics were asked so far, in order; the next begins once all before has ended.

        Args:
            metrics: places in the agreement; those that were heard before come first.

        Raises:
            PolicyError: one is not agreed, or named twice, or others were heard before; the text is the code.
        """
        known = self._followed[: len(metrics)]
        agreed = len({*metrics}) == len(metrics) and all(i < len(self._metrics) for i in metrics)
        if not agreed or metrics[: len(known)] != known:
            raise PolicyError("program")
        self._followed = max(self._followed, metrics, key=len)
        self._go_on()

    @property
    def told(self) -> int:
        """How many totals it was told, of which the last has index told - 1."""
        return len(self._told)

    @property
    def ended(self) -> bool:
        """Whether it asks nothing more after the totals that it has, as long as no metric is asked for."""
        return self._running is None

    def asked(self, index: int) -> Ask:
        """Return the ask of a sum whose total was told."""
        return self._asks[index][0]

    def ask(self, index: int) -> NextQuestion:
        """Return what sum `index` asks.

        Raises:
            MessageError: this replay has not come to that sum, or asks no more.
        """
        if not 0 <= index < len(self._asks):
            raise MessageError("a sum that is not asked", sender="the coordinator", stage="collect")
        ask, metric = self._asks[index]
        return NextQuestion(ask.question.to_bytes(), ask.cohort, -1 if metric is None else metric)

    def tell(self, index: int, total: Total) -> None:
        """Take an opened total, and keep it. The same one may be told again.

        Raises:
            MessageError: an earlier one has not been told.
            PolicyError: all totals are more than is kept; the text is the code.
            IntegrityError: another one was told before.
        """
        if not 0 <= index < len(self._asks):
            raise MessageError("a total out of order", sender="the coordinator", stage="collect")
        opened = OpenedTotal.of(total, self._asks[index][1])
        heard_before = index < len(self._told)
        if not heard_before:
            if self._numbers + _numbers(total) > MOST_KEPT:
                raise PolicyError(TOO_LARGE)
            with self._store.transaction() as transaction:
                transaction.save((*self._told, opened))
            self._send(opened)
        if self._told[index] != opened:
            raise IntegrityError(f"another total of sum {index} was told before; begin a new fit.")
        if heard_before:
            with self._store.transaction() as transaction:
                # A failed transaction around an earlier one took it back from the store.
                if len(transaction.load() or ()) <= index:
                    transaction.save(tuple(self._told[: index + 1]))
        self._tells(index, opened)

    def _begin(self, conversation: Conversation[Any]) -> None:
        self._running = conversation
        self._pose(next(conversation))

    def _pose(self, ask: Ask) -> None:
        priced = ask if self._ledger is None else self._ledger.price(ask)
        self._asks.append((self._placed(priced), self._metric))

    def _go_on(self) -> None:
        """Begin the next metric that was heard of, once what was asked before has ended."""
        if self._running is not None or self._begun == len(self._followed):
            return
        self._metric = self._followed[self._begun]
        self._begun += 1
        ranges = known_ranges(self._asks[-1][0]) if self._asks else None
        centers = getattr(self.outcome, "centers", None)
        self._begin(self._metrics[self._metric].run(self._setting, ranges, centers))

    def _send(self, opened: OpenedTotal) -> None:
        total = opened.total()
        if self._ledger is not None:
            total = self._ledger.opened(self._asks[-1][0].question, total)
        self._told.append(opened)
        self._numbers += _numbers(total)
        try:
            assert self._running is not None
            self._pose(self._running.send(total))
        except StopIteration as finished:
            if self._metric is None:
                self.outcome = finished.value
            self._running = None
            self._go_on()


def reads_totals(recipient: str, configuration: Configuration) -> bool:
    """Say whether a client of a sum gets the totals, and so needs a run of its own.

    Args:
        recipient: who opens totals, as `SecureSum.recipient`.
        configuration: what was agreed.
    """
    return recipient == "clients" or configuration.terms.verified


def own_run(
    configuration: Configuration,
    store: StateStore,
    *,
    domain: Domain | None = None,
    tells: Callable[[int, OpenedTotal], None] = lambda index, total: None,
    start: Total | None = None,
) -> ProgramReplay[Any]:
    """Return a client's own run of what was agreed, after the totals that its store has.

    Args:
        configuration: what was agreed.
        store: keeps the totals told so far (`privfed.party.replay.TOTALS`).
        domain: the declared domain, where that is a ball; a box is in the agreement.
        tells: hears each total besides.
        start: total of an earlier fit's start, where the agreement names one.

    Raises:
        ArgumentError: the agreement declares nothing of what is asked, or this party runs other versions.
        PolicyError: something that is agreed on is too large to be built.
    """
    agreed = configuration.program
    if agreed is None:
        raise ArgumentError(
            "the agreement names neither algorithm nor metrics, so that this client cannot tell from totals "
            "what comes next. Agree on an estimator or a metric, or take sums that the server opens."
        )
    algorithm = sized_algorithm(configuration, domain, totals=True)
    ledger = None if configuration.noising_terms is None else BudgetLedger(configuration)
    setting = replace(setting_of(configuration, domain), start=start)
    program = agreed_program(configuration, domain)
    given: dict[str, Any] = {"ledger": ledger, "tells": tells}
    given |= {} if program is None else {"placed": Stated(program)}
    return ProgramReplay(algorithm, setting, store, metrics=tuple(map(from_agreed, agreed.metrics)), **given)
