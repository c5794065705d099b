"""Sums of clients that count as one record each, so that the bound of one record holds for a whole client.

A client divides the sums over its rows by a common number of rows, or by its own number where that is larger.
So the length of its answer is at most that of one record's contribution. Clients up to the common number are
weighted by their rows, larger ones as if they held just that many. A fifth of the budget finds the common
number, which about four in five clients do not exceed.

Reveals to whoever opens the totals, with noise: how many clients hold about how many rows
(`privfed.questions.client_sizes`), and what the question about rows reveals.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privfed.core.asking.declaration import Declaration
from privfed.core.asking.question import ClientData, Question, register
from privfed.core.asking.statistics import Statistics, StatisticsSpec
from privfed.core.values.numbers import check_number
from privfed.privacy.bounds import (
    HAIR,
    RecordBounded,
    bounded_spec,
)

SIZES_SHARE = 0.2
"""Share of the budget for the histogram of the clients' sizes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SharesOfARecord(Question):
    """Questions about clients' sums, divided so that each client counts as at most one record.

    Args:
        inner: the question about the client's rows, with a bound on one record's contribution.
        rows: the common number of rows, in [1, 2^40].
    """

    inner: Question
    rows: float

    def __post_init__(self) -> None:
        check_number("rows", self.rows, f"[1, {2**40}]")

    @property
    def declaration(self) -> Declaration | None:
        """No row counts, since the sums are divided; None where `inner` declares nothing."""
        inner = self.inner.declaration
        return inner and Declaration(can_fail=inner.can_fail)

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients in one pass."""
        answers = self.inner.answer_all(clients, generators)
        return [self.divided(*pair) for pair in zip(answers, (one.n_rows for one in clients), strict=True)]

    @abstractmethod
    def divided(self, answer: Statistics, n_rows: int) -> Statistics:
        """Return what a client of so many rows answers, given its sums."""


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class AsOneRecord(SharesOfARecord):
    """Ask for another question's sums, scaled so that each client counts as at most one record.

    Statistics: those of `inner`, divided by max(`rows`, rows of the client).
    """

    inner: RecordBounded

    @property
    def limits(self) -> dict[str, float]:
        """Entry -> bound on its L2 norm for one client, which is the bound of one record."""
        return {name: bound.l2 for name, bound in self.inner.bounds.items()}

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Values of at most their entry's limit."""
        limits, entries = self.limits, self.inner.spec.entries
        signed = [entry.name for entry in entries if np.min(np.asarray(entry.low)) < 0]
        of_record = {entry.name: limits[entry.name] for entry in entries}
        return bounded_spec(of_record, {entry.name: entry.shape for entry in entries}, signed=signed)

    def divided(self, answer: Statistics, n_rows: int) -> Statistics:
        """Return one client's sums, divided."""
        return Statistics(**{name: answer[name] * HAIR / max(self.rows, n_rows) for name in answer})
