"""Pairs of raw tables with one group table: whatever a client sends must be the same for both."""

from __future__ import annotations

from functools import cache

import numpy as np

from privfed.data import ClientTable, ClientTables
from privfed.party.groups import GROUPS, Groups, RawTable

M = 3
"""Fewest rows of a group."""


@cache
def twins(seed: int, n_features: int = 2, scale: float = 1.0) -> tuple[RawTable, RawTable]:
    """Return two labelled tables with the same groups, and other rows and numbers of rows.

    Values are whole numbers of 64ths, so that sums are exact; class 2 has too few rows for a group.
    """
    for attempt in range(10_000):
        rng = np.random.default_rng([seed, attempt])
        rows = rng.integers(-60, 61, (28, n_features)) / 64
        labels = np.repeat([0, 1], 14).astype(np.int64)
        other = rows.copy()
        for _ in range(3):
            first, second = rng.choice(14, 2, replace=False) + 14 * rng.integers(2)
            move = rng.integers(-1, 2, n_features) / 64
            other[first] += move
            other[second] -= move
        first, second = (
            RawTable(np.vstack([one, rests]) * scale, np.concatenate([labels, np.full(len(rests), 2)]))
            for one, rests in ((rows, np.zeros((0, n_features))), (other, rng.normal(size=(2, n_features))))
        )
        if (rows != other).any() and _groups(first) == _groups(second):
            return first, second
    raise AssertionError("no pair was found")


def _groups(table: RawTable) -> bytes:
    return GROUPS.to_bytes(Groups.begun(table, M))


def twin_clients(n_features: int = 2, scale: float = 1.0, labelled: bool = True) -> list[ClientTables]:
    """Return two sets of three clients each, of which every client's tables are twins."""
    pairs = [twins(seed, n_features, scale) for seed in range(3)]
    columns = tuple(f"x{i}" for i in range(n_features))
    return [
        ClientTables(
            tuple(
                ClientTable(str(i), pair[side].features, pair[side].classes if labelled else None)
                for i, pair in enumerate(pairs)
            ),
            columns,
        )
        for side in (0, 1)
    ]
