"""Contributions side by side: a question whose total shows every client's answer, but not whose it is.

Each client writes its answer into a slot of its own of a zero array, and the sum of the cohort is the
concatenation. The answer itself lies in the first slot; a secure sum that offers slots
(`privfed.protocols.Slotted`) moves it to one that only clients know. Every other sum adds the answers
up in the first slot, as it would without.

Reveals to whoever opens the total: every contribution, and how many slots are empty; over a sum that
offers slots not which client a contribution is of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privfed.core.coarseness import Coarseness
from privfed.core.declaration import Declaration
from privfed.core.question import AdditiveOver, ClientData, Question, register
from privfed.core.statistics import Entry, Statistics, StatisticsSpec
from privfed.errors import ArgumentError


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Slots(Question):
    """Asks for the answers to another question, each in a slot of its own.

    Statistics: those of the question, each with a first axis of `slots`; zero where nobody answered.

    Args:
        inner: what is asked; its ranges are those of this question.
        slots: number of slots: that of all clients.
    """

    additive_over = AdditiveOver.CLIENTS
    inner: Question
    slots: int

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= 1 << 16:
            raise ArgumentError(f"slots must lie in [1, 2**16], got slots={self.slots}.")
        mine, theirs = self.ranges, self.inner.ranges
        same = np.array_equal(mine.low, theirs.low) and np.array_equal(mine.high, theirs.high)
        if isinstance(self.inner, Slots) or not same or mine.rows != theirs.rows:
            raise ArgumentError("slots hold the answers to a question without slots, of the same ranges.")

    @property
    def declaration(self) -> Declaration | None:
        """That of the question, slot by slot."""
        return self.inner.declaration

    @cached_property
    def spec(self) -> StatisticsSpec:
        """The question's entries, so many times; a slot may be empty."""
        return StatisticsSpec(
            *(
                Entry(
                    entry.name,
                    (self.slots, *entry.shape),
                    low=np.minimum(0.0, entry.low),
                    high=np.maximum(0.0, entry.high),
                    resolution=entry.resolution,
                )
                for entry in self.inner.spec.entries
            )
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients, each in the first slot."""
        return [self._first(own) for own in self.inner.answer_all(clients, generators)]

    def answer_coarsely(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator], coarseness: Coarseness
    ) -> list[Statistics]:
        """Answer for several clients, each in the first slot, and show no small group."""
        return [self._first(own) for own in self.inner.answer_coarsely(clients, generators, coarseness)]

    def _first(self, own: Statistics) -> Statistics:
        spread = {name: np.zeros((self.slots, *array.shape)) for name, array in own.items()}
        for name, array in own.items():
            spread[name][0] = array
        return Statistics(**spread)

    def contributions(self, total: Statistics) -> list[Statistics]:
        """Return what is in the slots that are not empty, in an order that tells nothing of the slots."""
        rows = np.concatenate([total[name].reshape(self.slots, -1) for name in total], axis=1)
        order = [int(i) for i in np.lexsort(rows.T[::-1]) if rows[i].any()]
        return [Statistics(**{name: total[name][i] for name in total}) for i in order]
