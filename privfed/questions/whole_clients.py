"""Metrics under differential privacy of a whole client: each client counts as one record.

A client divides the sums of its rows by a number of rows that is the same for all, or by its own number
where it holds more. So its answer is no longer than one record's, whose bound holds for the client as a
whole; clients of so many rows or fewer count by their rows, larger ones as if they held no more. A
fifth of the budget finds that number, which about four in five clients do not exceed.

Reveals to whoever opens the totals, noised: how many clients hold about how many rows
(`privfed.questions.client_sizes`), and what the index's question reveals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.coarseness import Coarseness
from privfed.core.declaration import Declaration
from privfed.core.question import AdditiveOver, ClientData, Question, register
from privfed.core.statistics import Entry, Statistics, StatisticsSpec
from privfed.errors import ArgumentError
from privfed.privacy.bounds import RecordBounded, step_of

SIZES_SHARE = 0.2
"""Share of the budget for the histogram of the clients' sizes."""

_HAIR = 1.0 - 2.0**-36


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class AsOneRecord(Question):
    """Ask another question's sums of each client as if the client were one record.

    Statistics: those of `inner`, divided by max(`rows`, rows of the client).

    Args:
        inner: what is asked of the client's rows.
        rows: what sums are divided by, in [1, 2^40].
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    inner: RecordBounded
    rows: float

    def __post_init__(self) -> None:
        if not 1.0 <= self.rows <= 2.0**40:
            raise ArgumentError(f"rows must lie in [1, 2^40], got rows={self.rows}.")

    @property
    def declaration(self) -> Declaration | None:
        """Shares of a record, where the sums that they are shares of declare themselves."""
        inner = self.inner.declaration
        return inner and Declaration(can_fail=inner.can_fail)

    @property
    def limits(self) -> dict[str, float]:
        """Entry -> bound on its length for one client: that of one record."""
        return {name: bound.l2 for name, bound in self.inner.bounds.items()}

    @cached_property
    def spec(self) -> StatisticsSpec:
        """No value is larger than its entry may be long."""
        limits = self.limits
        return StatisticsSpec(
            *(
                Entry(
                    entry.name,
                    entry.shape,
                    -limits[entry.name] if np.min(np.asarray(entry.low)) < 0 else 0.0,
                    limits[entry.name],
                    step_of(limits[entry.name]),
                )
                for entry in self.inner.spec.entries
            )
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients in one pass."""
        return self._shared(clients, self.inner.answer_all(clients, generators))

    def answer_coarsely(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator], coarseness: Coarseness
    ) -> list[Statistics]:
        """Answer for several clients, from sums that show no small group."""
        return self._shared(clients, self.inner.answer_coarsely(clients, generators, coarseness))

    def _shared(self, clients: Sequence[ClientData], answers: Sequence[Statistics]) -> list[Statistics]:
        return [
            Statistics(**{name: answer[name] * _HAIR / max(self.rows, client.n_rows) for name in answer})
            for answer, client in zip(answers, clients, strict=True)
        ]
