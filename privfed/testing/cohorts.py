"""Clients' rows that contracts are tried on: with ties, lone rows, constant columns, far columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from privfed.core.asking.question import ClientData
from privfed.core.values.domain import FloatArray, Ranges

N_LABELS = 3


class Cohort(NamedTuple):
    """Rows of each client, and centers.

    Attributes:
        clients: float64 of shape (n_rows of the client, n_features) each.
        centers: float64 of shape (n_clusters, n_features).
    """

    clients: list[FloatArray]
    centers: FloatArray

    @property
    def ranges(self) -> Ranges:
        """The narrowest ranges that hold all rows."""
        rows = np.concatenate(self.clients)
        return Ranges(rows.min(axis=0), rows.max(axis=0), max(map(len, self.clients)))


def cohorts(number: int, seed: int = 0) -> Iterator[Cohort]:
    """Yield cohorts, in turns of few columns with many ties and of many columns without."""
    for turn in range(number):
        rng = np.random.default_rng((seed, turn))
        yield _many_columns(rng) if turn % 2 else _few_columns(rng)


def _few_columns(rng: np.random.Generator) -> Cohort:
    n_features, scale = int(rng.integers(1, 4)), rng.choice([1.0, 1e-9, 1e9])
    clients = []
    for size in rng.integers(1, 7, size=rng.integers(1, 5)):
        values = rng.uniform(-1.0, 1.0, (size, n_features)).astype(np.float32).astype(np.float64)
        ties = rng.choice([-1.0, 0.0, 0.1, 1.0], (size, n_features))
        clients.append(scale * np.where(rng.random((size, n_features)) < 0.5, ties, values))
    if rng.random() < 0.5:
        for rows in clients:
            rows[:, 0] = 0.7 * scale
    return Cohort(clients, scale * rng.uniform(-3.0, 3.0, (rng.integers(1, 5), n_features)))


def _many_columns(rng: np.random.Generator) -> Cohort:
    offset = np.zeros(11)
    offset[0] = rng.choice([0.0, 1e3, 1.7e9])
    clients = [offset + rng.normal(size=(size, 11)) for size in rng.integers(1, 31, size=rng.integers(1, 5))]
    return Cohort(clients, offset + 2.0 * rng.normal(size=(rng.integers(1, 5), 11)))


def as_clients(clients: Sequence[FloatArray]) -> list[ClientData]:
    """Return the clients' data, with labels."""
    return [ClientData(rows, np.arange(len(rows)) % N_LABELS) for rows in clients]


def generators(number: int) -> list[np.random.Generator]:
    """Return as many generators, each its own."""
    return [np.random.default_rng(i) for i in range(number)]
