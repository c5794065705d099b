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
from dataclasses import dataclass, replace
from functools import cached_property, cmp_to_key, lru_cache

import numpy as np

from privfed.core.asking.declaration import Declaration, Effort
from privfed.core.asking.question import ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec, short
from privfed.core.values.domain import frozen
from privfed.core.values.numbers import check_whole
from privfed.errors import ArgumentError
from privfed.privacy.noised import Noised


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Slots(Question):
    """Asks for the answers to another question, each in its own slot.

    Statistics: those of the question, each with a first axis of length `slots`; empty slots are zero.

    Args:
        inner: the question; its ranges are those of this question.
        slots: number of slots, equal to the number of all clients.
        group: names the clients' secret that slots are drawn from, where a secure sum has one: it says so.
    """

    inner: Question
    slots: int
    group: str = ""

    def __post_init__(self) -> None:
        check_whole("slots", self.slots, 1, 1 << 16)
        mine, theirs = self.ranges, self.inner.ranges
        same = np.array_equal(mine.low, theirs.low) and np.array_equal(mine.high, theirs.high)
        if isinstance(self.inner, Slots) or not same or mine.rows != theirs.rows:
            raise ArgumentError("the inner question of slots must have the same ranges, and no slots itself.")

    @property
    def asks_all_clients(self) -> bool:
        """As `inner`."""
        return self.inner.asks_all_clients

    @property
    def declaration(self) -> Declaration | None:
        """The declaration of `inner`, which holds for each slot."""
        return self.inner.declaration

    def effort(self, n_features: int) -> Effort:
        """The answers to `inner` side by side."""
        return Effort(numbers=self.slots * self.inner.spec.size)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """The entries of `inner`, once a slot; their ranges include zero, for empty slots."""
        return StatisticsSpec(
            *(
                Entry(
                    entry.name,
                    (self.slots, *entry.shape),
                    low=np.minimum(0.0, short(entry.low)),
                    high=np.maximum(0.0, short(entry.high)),
                    resolution=short(entry.resolution),
                )
                for entry in self.inner.spec.entries
            )
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients, each in the first slot."""
        return [self._first(own) for own in self.inner.answer_all(clients, generators)]

    def _first(self, own: Statistics) -> Statistics:
        # Zeros that nobody writes to take no memory.
        spread = Statistics.of(self.spec.layout, np.zeros(self.spec.size))
        for name, array in own.items():
            spread[name][0] = array
        frozen(spread.vector)
        return spread

    def contributions(self, total: Statistics) -> list[Statistics]:
        """Return the contents of the slots that are not empty, sorted by value, not by slot."""
        rows = np.concatenate([total[name].reshape(self.slots, -1) for name in total], axis=1)

        def compared(i: int, j: int) -> int:
            first = int(np.argmax(rows[i] != rows[j]))
            return int(np.sign(rows[i, first] - rows[j, first]))

        order = sorted(np.flatnonzero(rows.any(axis=1)).tolist(), key=cmp_to_key(compared))
        return [Statistics(**{name: total[name][i] for name in total}) for i in order]


@lru_cache(maxsize=4)
def in_group(question: Question, group: str) -> Question:
    """Return a question whose slots are drawn from the secret of a group; without slots it stays as it is."""
    if isinstance(question, Noised):
        named: Question = replace(question, inner=in_group(question.inner, group))
    elif isinstance(question, Slots):
        named = replace(question, group=group)
    else:
        return question
    return named.at(question.position)
