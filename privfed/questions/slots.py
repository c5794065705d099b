"""A question whose total shows every client's answer, but not which client gave it.

Each client writes its answer into its own slot of a zero array, so that the cohort's sum is the concatenation
of the answers. The question puts the answer into the first slot; a secure sum that offers slots
(`privfed.protocols.Slotted`) moves it to a slot that only clients know. Any other secure sum adds up all
answers in the first slot, as for the question without slots.

Reveals to whoever opens the total: every contribution, and how many slots are empty. A secure sum that offers
slots does not reveal whose contribution it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privfed.core.asking.coarseness import Coarseness
from privfed.core.asking.declaration import Declaration
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.errors import ArgumentError


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Slots(Question):
    """Asks for the answers to another question, each in its own slot.

    Statistics: those of the question, each with a first axis of length `slots`; empty slots are zero.

    Args:
        inner: the question; its ranges are those of this question.
        slots: number of slots, equal to the number of all clients.
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
            raise ArgumentError("the inner question of slots must have the same ranges, and no slots itself.")

    @property
    def declaration(self) -> Declaration | None:
        """The declaration of `inner`, which holds for each slot."""
        return self.inner.declaration

    @cached_property
    def spec(self) -> StatisticsSpec:
        """The entries of `inner`, once a slot; their ranges include zero, for empty slots."""
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
        """Answer for several clients, each in the first slot, without showing small groups."""
        return [self._first(own) for own in self.inner.answer_coarsely(clients, generators, coarseness)]

    def _first(self, own: Statistics) -> Statistics:
        spread = {name: np.zeros((self.slots, *array.shape)) for name, array in own.items()}
        for name, array in own.items():
            spread[name][0] = array
        return Statistics(**spread)

    def contributions(self, total: Statistics) -> list[Statistics]:
        """Return the contents of the slots that are not empty, sorted by value, not by slot."""
        rows = np.concatenate([total[name].reshape(self.slots, -1) for name in total], axis=1)
        order = [int(i) for i in np.lexsort(rows.T[::-1]) if rows[i].any()]
        return [Statistics(**{name: total[name][i] for name in total}) for i in order]
