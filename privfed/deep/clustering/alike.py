"""Whether clients differ by more than the few rows that they hold, by updates that start from one model.

Clients of one kind send different updates, since each knows its kind by few rows. One that trains on half of
them adds the variance of few rows once more, and as much the other way by the other half: in the mean of both
spreads what the halves have in common drops out (McCarthy 1969, balanced half-samples). So the spread of
updates doubles where clients are alike, and hardly grows where they are of different kinds. One half, the
other one and all rows take turns. Spreads are of all clients together: nobody has to know whose an update is.

A single client of another kind hardly widens the spread. It is found by its distance from the others. Were it
of their kind, the square of that would be about a chi-square variable of p degrees of freedom times the mean
square over p. It exceeds 1 + 2 sqrt(x / p) + 2 x / p mean squares with probability at most exp(-x) (Laurent
and Massart 2000, lemma 1). Taken as p is tr(S)^2 / tr(S^2), S being the covariance of the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privfed.core.values.domain import FloatArray

APART = 0.5
"""Variance between kinds over that of few rows, above which clients differ."""

STRAY = 0.01
"""Chance that one of all clients of a kind is taken for another kind's, in one look."""

FEWEST = 4
"""Clients among which a single one is told from the others."""


@dataclass(frozen=True, slots=True)
class Spreads:
    """Spreads of the updates of rounds that took turns.

    Args:
        halves: of rounds in which clients trained on half of their rows, two for each pair of halves.
        held: of the round after each pair, in which all rows were used.
    """

    halves: tuple[float, ...] = ()
    held: tuple[float, ...] = ()

    def followed(self, updates: FloatArray, half: int) -> Spreads:
        """Return spreads with those of one more round.

        Args:
            updates: float64 of shape (n, size).
            half: 1 or 2 where clients trained on that half of their rows, else 0.
        """
        found = spread(updates)
        if half:
            return Spreads((*self.halves[: 2 * len(self.held) + half - 1], found), self.held)
        return Spreads(self.halves, (*self.held, found)[: len(self.halves) // 2])

    @property
    def few_rows(self) -> float:
        """What few rows explain of the last held spread, all of it for alike clients; infinite if unknown."""
        n = len(self.held)
        if not n or len(self.halves) != 2 * n or min(self.held + self.halves) <= 0.0:
            return math.inf
        held = np.log(self.held)
        # Spreads change as models are trained: each pair is compared with those around it.
        between = (held + np.concatenate([held[:1], held[:-1]])) / 2.0
        pairs = np.reshape(self.halves, (n, 2)).mean(axis=1)
        more = math.exp(float(np.mean(np.log(pairs) - between))) - 1.0
        return max(0.0, more) * self.held[-1]


def spread(updates: FloatArray) -> float:
    """Return the variance of updates, of shape (n, size), over all numbers."""
    return float(np.square(updates - updates.mean(axis=0)).sum()) / max(1, len(updates) - 1)


def differ(updates: FloatArray, few_rows: float) -> bool:
    """Say whether clients of one cluster are of different kinds.

    Args:
        updates: from one model, float64 of shape (n, size).
        few_rows: variance of an update over all numbers that few rows explain (`Spreads.few_rows`).
    """
    if few_rows * (1.0 + APART) < spread(updates):
        return True
    return not math.isinf(few_rows) and len(updates) >= FEWEST and _one_strays(updates)


def _one_strays(updates: FloatArray) -> bool:
    """Say whether a row lies farther from the others than one of all would by chance.

    The squares of n - 1 rows around their mean are those of all, but for (n / (n - 1)) of the other's own.
    """
    n, apart = len(updates), updates - updates.mean(axis=0)
    products, free = apart @ apart.T, len(updates) - 2
    squares, own = np.diag(products) * n / (n - 1), np.square(products)
    variance = (np.trace(products) - squares) / free
    # The trace of the square of the others' covariance; in it each pair of rows counts twice.
    square = (own.sum() - 2.0 * own.sum(axis=1) * n / (n - 1) + np.square(squares)) / free**2
    # Of n rows the square of the covariance is too large by what is known of Gaussian ones.
    unbiased = (square - np.square(variance) / free) * free**2 / ((free - 1) * (free + 2))
    known = unbiased > 0.0
    p = np.where(known, np.maximum(1.0, np.square(variance) / np.where(known, unbiased, 1.0)), np.inf)
    far = math.log(n / STRAY) / p
    return bool((squares > variance * (1.0 + 2.0 * np.sqrt(far) + 2.0 * far)).any())
