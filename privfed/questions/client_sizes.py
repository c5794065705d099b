"""The number of rows that clients typically hold, from one noised histogram.

Under differential privacy of whole clients, a client's sums are divided by this number, or by the client's
own number of rows where that is larger.

Reveals to whoever opens the total, with noise: how many clients hold about how many rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privfed.core.asking.declaration import Declaration
from privfed.core.asking.question import ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.conversation import Ask, Conversation
from privfed.core.values.domain import Ranges
from privfed.privacy.bounds import step_of

SIZE_SHARE = 0.01
"""Share of the budget for the histogram of the clients' sizes."""

PER_OCTAVE, N_SIZES = 2, 50


@dataclass(frozen=True, kw_only=True, eq=False)
class ClientHistogram(Question):
    """Questions for a histogram of clients: each adds 1 to one bin of the entry `clients`."""

    @property
    def declaration(self) -> Declaration:
        """Nothing: the entry counts clients, not rows."""
        return Declaration()

    @property
    def client_limits(self) -> dict[str, float]:
        """Each client adds 1 to one bin."""
        return {"clients": 1.0}


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClientSizes(ClientHistogram):
    """Ask for a histogram of clients by number of rows, with logarithmic bins, two an octave.

    Statistics: `clients` (N_SIZES,).
    """

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Values in [0, 1], since each client adds 1 to one bin."""
        return StatisticsSpec(Entry("clients", (N_SIZES,), 0.0, 1.0, step_of(1.0)))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        sizes = np.array([client.n_rows for client in clients], dtype=np.float64)
        bins = np.clip(np.ceil(PER_OCTAVE * np.log2(sizes)), 0, N_SIZES - 1).astype(np.intp)
        return [Statistics(clients=mark) for mark in np.eye(N_SIZES)[bins]]


def typical_size(ranges: Ranges, share: float = SIZE_SHARE) -> Conversation[float]:
    """Find a number of rows that about four in five clients do not exceed, by one noised histogram.

    Args:
        ranges: ranges of the data; their bound on a client's rows also bounds the result.
        share: share of the budget that the histogram costs.
    """
    ask = Ask(
        ClientSizes(ranges=ranges),
        purpose="client sizes",
        weights={"clients": share},
        limits={"clients": 1.0},
    )
    total = yield ask
    counts, noise = total.statistics["clients"], (total.noise_std or {})["clients"]
    # Bins that noise alone may fill are left out: there are many, and they would outweigh the full ones.
    sure = np.where(counts > 3.0 * noise, counts, 0.0)
    if not sure.any():
        sure = np.where(counts == counts.max(), 1.0, 0.0)
    return float(
        min(2.0 ** (int(np.flatnonzero(sure.cumsum() >= 0.8 * sure.sum())[0]) / PER_OCTAVE), ranges.rows)
    )
