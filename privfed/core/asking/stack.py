"""Rows of several simulated clients in one table, so that a question answers for all of them in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from privfed.core.values.domain import FloatArray, Ranges, frozen, frozen_array

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Rows of several clients, one client after the other, and what is kept of them between sums.

    Args:
        rows: float64 of shape (n_rows, n_features), read-only.
        firsts: first row of each client, then the number of rows, int64 of shape (n_clients + 1,).
        cache: what questions keep between sums, such as bounds on distances. It never leaves this process,
            and may be dropped at any time: no answer depends on it.
    """

    rows: FloatArray
    firsts: Places
    cache: dict[object, object] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, clients: Sequence[FloatArray]) -> Stack:
        """Return the rows of some clients, each float64 of shape (n_i, n_features), as a stack."""
        firsts = np.cumsum([0, *map(len, clients)], dtype=np.int64)
        if len(clients) == 1:
            return cls(frozen_array(clients[0]), firsts)
        # In C order, whatever order the clients' own tables have: the compiled kernel reads it so.
        rows = np.empty((int(firsts[-1]), clients[0].shape[1]))
        return cls(frozen(np.concatenate(clients, out=rows)), firsts)

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return len(self.firsts) - 1

    def part(self, place: int) -> FloatArray:
        """Return the rows of one client, a view of shape (n_i, n_features)."""
        return self.rows[self.firsts[place] : self.firsts[place + 1]]

    def inside(self, ranges: Ranges) -> bool:
        """Say whether all rows lie in `ranges`."""
        low, high = self._extremes
        return bool((low >= ranges.low).all() and (high <= ranges.high).all())

    @property
    def _extremes(self) -> tuple[FloatArray, FloatArray]:
        """Smallest and largest value of each column, found once; rows stay as they are."""
        key = ("extremes",)
        if key not in self.cache:
            self.cache[key] = self.rows.min(axis=0, initial=np.inf), self.rows.max(axis=0, initial=-np.inf)
        kept: tuple[FloatArray, FloatArray] = self.cache[key]  # type: ignore[assignment]
        return kept

    def within(self, ranges: Ranges) -> Stack:
        """Return the stack with all rows clipped to `ranges`; it is kept, for all clients."""
        key = ("within", ranges.low.tobytes(), ranges.high.tobytes())
        if key not in self.cache:
            self.cache[key] = Stack(frozen(ranges.clip(self.rows)), self.firsts)
        kept: Stack = self.cache[key]  # type: ignore[assignment]
        return kept


class Stacked(NamedTuple):
    """Some of the clients of a stack, in the order in which they answer.

    Attributes:
        stack: the rows.
        places: positions of the clients in the stack, int64 of shape (n,).
    """

    stack: Stack
    places: Places

    @classmethod
    def of(cls, clients: Sequence[FloatArray]) -> Stacked:
        """Return a stack of some clients' rows, all of them."""
        return cls(Stack.of(clients), np.arange(len(clients), dtype=np.int64))

    @property
    def starts(self) -> Places:
        """First row of each client."""
        return self.stack.firsts[:-1][self.places]

    @property
    def stops(self) -> Places:
        """The row after each client's last."""
        return self.stack.firsts[1:][self.places]

    @property
    def parts(self) -> list[FloatArray]:
        """Each client's rows."""
        return [self.stack.part(place) for place in self.places.tolist()]

    def only(self, kept: Places | npt.NDArray[np.bool_] | slice) -> Stacked:
        """Return some of the clients."""
        return Stacked(self.stack, self.places[kept])
