"""A client's own run of the algorithm, where clients open the totals: it knows what comes next.

It keeps the totals that it was told, durable before the client's state is: after a crash a total may be told
again, and none is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import Algorithm, Ask, Ledger, Setting, Total
from privfed.core.roles.engine import StateStore
from privfed.core.roles.secure_sum import Posed
from privfed.core.stored.codec import Codec
from privfed.core.stored.messages import Array
from privfed.errors import IntegrityError, MessageError

Outcome = TypeVar("Outcome")


class OpenedTotal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A total as clients know it.

    Args:
        statistics: the sum.
        contributors: positions of the clients in it, ascending.
        clipped: entries that they clipped.
    """

    statistics: dict[str, Array]
    contributors: tuple[int, ...]
    clipped: int

    @classmethod
    def of(cls, total: Total) -> OpenedTotal:
        """Return what is kept of a total."""
        statistics = {name: Array.of(array) for name, array in total.statistics.items()}
        return cls(statistics, total.contributors, total.clipped)

    def total(self) -> Total:
        """Return the total."""
        arrays = {name: array.to_numpy() for name, array in self.statistics.items()}
        return Total(Statistics(**arrays), self.contributors, clipped=self.clipped)


TOTAL: Codec[OpenedTotal] = Codec(OpenedTotal, "total that clients opened", 1)
TOTALS: Codec[tuple[OpenedTotal, ...]] = Codec(tuple[OpenedTotal, ...], "totals that a client opened", 1)
"""What a replica stores."""


def _ignored(index: int, total: OpenedTotal) -> None:
    """Tell nobody."""


class AlgorithmReplica(Generic[Outcome]):
    """Runs an algorithm on the totals that a client is told.

    Args:
        algorithm: the agreed one.
        setting: what it may know before it asks.
        store: keeps the totals told so far (`TOTALS`).
        ledger: under differential privacy prices what is asked, as the coordinator's does.
        tells: hears each total besides; for whoever drives the run and reads no total itself.

    Attributes:
        outcome: its result, once the run has ended; None before.
    """

    def __init__(
        self,
        algorithm: Algorithm[Outcome],
        setting: Setting,
        store: StateStore,
        *,
        ledger: Ledger | None = None,
        tells: Callable[[int, OpenedTotal], None] = _ignored,
    ) -> None:
        self.outcome: Outcome | None = None
        self._store, self._ledger, self._tells = store, ledger, tells
        self._conversation = algorithm.run(setting)
        self._asks: list[Ask] = [self._priced(next(self._conversation))]
        self._told: list[OpenedTotal] = []
        with store.transaction() as transaction:
            for kept in transaction.load() or ():
                self._send(kept)

    @property
    def told(self) -> int:
        """How many totals it was told, of which the last has index told - 1."""
        return len(self._told)

    def asked(self, index: int) -> Ask:
        """Return the ask of a sum whose total was told."""
        return self._asks[index]

    def ask(self, index: int) -> Posed:
        """Return what sum `index` asks.

        Raises:
            MessageError: this replica has not come to that sum, or its run has ended.
        """
        if not 0 <= index < len(self._asks):
            raise MessageError("a sum that is not asked", sender="the coordinator", stage="collect")
        return Posed(self._asks[index].question.to_bytes(), self._asks[index].cohort)

    def tell(self, index: int, total: Total) -> None:
        """Take an opened total, and keep it. The same one may be told again.

        Raises:
            MessageError: an earlier one has not been told.
            IntegrityError: another one was told before.
        """
        opened = OpenedTotal.of(total)
        if index > len(self._told):
            raise MessageError("a total out of order", sender="the coordinator", stage="collect")
        heard_before = index < len(self._told)
        if not heard_before:
            with self._store.transaction() as transaction:
                transaction.save((*self._told, opened))
            self._send(opened)
        if self._told[index] != opened:
            raise IntegrityError(f"another total of sum {index} was told before; begin a new fit.")
        if heard_before:
            self._keep_again(index)
        self._tells(index, opened)

    def _keep_again(self, index: int) -> None:
        """Keep a total once more that a failed transaction around this one took back from the store."""
        with self._store.transaction() as transaction:
            if len(transaction.load() or ()) <= index:
                transaction.save(tuple(self._told[: index + 1]))

    def _priced(self, ask: Ask) -> Ask:
        return ask if self._ledger is None else self._ledger.price(ask)

    def _send(self, opened: OpenedTotal) -> None:
        total = opened.total()
        if self._ledger is not None:
            total = self._ledger.opened(self._asks[-1].question, total)
        self._told.append(opened)
        try:
            self._asks.append(self._priced(self._conversation.send(total)))
        except StopIteration as finished:
            self.outcome = finished.value
