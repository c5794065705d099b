"""How far apart clients lie: the spread of their own means, of each feature.

Where one site measures in another unit, nearly all of the variance of all rows lies between the clients'
means.

Reveals to whoever opens the total: for each feature the mean and the variance of the clients' own means,
every client alike. These are two equations for the means of all clients. Of three clients, one that knows its
own solves them for the other two: so estimators ask four clients or more. Of four, two that join do it. Who
stands out is not told; a client can compare its own rows with the mean and deviation of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.asking.declaration import Declaration
from privfed.core.asking.question import AdditiveOver, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.conversation import Ask, Conversation
from privfed.core.values.domain import FloatArray
from privfed.questions.inertia import SLACK
from privfed.questions.ranges import Centred, Moments

FEWEST_CLIENTS = 4
"""Of fewer a client that knows its own means could solve for those of the others."""


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClientMeans(Centred):
    """Ask for first and second moments of the clients' own means around a center, every client alike.

    Statistics: `clients` (1,), one for a client with rows; `offset` (n_features,), the mean of its rows minus
    the center; `square` (n_features,), the square of that.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS

    @property
    def declaration(self) -> Declaration:
        """No row counts: means over all rows of a client, and a count of clients."""
        return Declaration()

    @cached_property
    def spec(self) -> StatisticsSpec:
        """A mean lies inside the ranges; a client counts once."""
        low, high = SLACK * (self.ranges.low - self.center), SLACK * (self.ranges.high - self.center)
        farthest = self.farthest
        largest = farthest**2
        return StatisticsSpec(
            Entry("clients", (1,), 0.0, 1.0, 2.0**-10),
            Entry("offset", farthest.shape, low, high, farthest * 2.0**-40),
            Entry("square", farthest.shape, 0.0, SLACK * largest, largest * 2.0**-50),
        )

    def _one(self, offsets: FloatArray) -> Statistics:
        # A client without rows is none.
        n_rows = len(offsets)
        mean = offsets.sum(axis=0) / max(n_rows, 1)
        return Statistics(clients=[min(n_rows, 1)], offset=mean, square=np.square(mean))


def between_clients(moments: Moments) -> Conversation[FloatArray]:
    """Ask how much of each feature's variance lies between the clients' own means.

    Args:
        moments: of all rows.

    Returns:
        The variance of the clients' means as a share of the variance of all rows, at most 1; 0 for a constant
        feature. float64 of shape (n_features,).
    """
    question = ClientMeans(ranges=moments.ranges, center=moments.ranges.clip(moments.mean))
    total = (yield Ask(question, purpose="between clients")).statistics
    n_clients = max(float(total["clients"][0]), 1.0)
    between = np.maximum(total["square"] / n_clients - np.square(total["offset"] / n_clients), 0.0)
    shown = np.where(moments.constant, 0.0, between / np.where(moments.var > 0.0, moments.var, 1.0))
    return np.asarray(np.minimum(shown, 1.0))
