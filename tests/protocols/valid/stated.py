"""Statements and answers that tests prove, and a client and a server that speak about one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from privfed.protocols.crypto.fixed_point import Words, to_integer, to_words
from privfed.protocols.valid.proof import (
    PAD_WORDS,
    Committed,
    commit,
    new_sigma,
    prove,
    sigma_hash_of,
    verify,
)
from privfed.protocols.valid.statement import UNBOUNDED, Forms, IntArray, Statement


def forms(*rows: tuple[dict[int, int], int | None, int | None]) -> Forms:
    """Return forms of (digit -> coefficient, low or None, high or None)."""
    terms = [(i, digit, factor) for i, (one, _, _) in enumerate(rows) for digit, factor in one.items()]
    form, digit, coefficient = np.array(terms, dtype=np.int64).reshape(-1, 3).T
    low = np.array([-UNBOUNDED if one is None else one for _, one, _ in rows], dtype=np.int64)
    high = np.array([UNBOUNDED if one is None else one for _, _, one in rows], dtype=np.int64)
    return Forms(form, digit, coefficient, low, high)


def clusters(k: int, d: int, rows: int, unit: int, clients: int = 20) -> Statement:
    """Return the statement of a k-means step: k counts of at most `rows`, k d sums within count units."""
    low, high = np.zeros(k + k * d, dtype=np.int64), np.full(k + k * d, rows, dtype=np.int64)
    low[k:], high[k:] = -rows * unit, rows * unit
    boxes = [
        ({i // d: unit, k + i: sign}, 0, None) for i in range(k * d) for sign in (1, -1)
    ]  # A sum is at least -count units and at most count units.
    return Statement(clients, low, high, forms(*boxes, (dict.fromkeys(range(k), 1), None, rows)))


def clustered(statement: Statement, k: int, d: int, rng: np.random.Generator) -> IntArray:
    """Return an answer that meets it."""
    rows = int(statement.high[0])
    unit = int(statement.high[k]) // rows
    counts = rng.multinomial(rng.integers(0, rows + 1), np.full(k, 1 / k))
    sums = [rng.integers(-c * unit, c * unit, d, endpoint=True) for c in counts.tolist()]
    return np.concatenate([counts, *sums]).astype(np.int64)


def plain(n: int, bits: int, clients: int = 20) -> Statement:
    """Return the statement that n digits have so many bits, with a sign."""
    half = 1 << bits - 1
    return Statement(clients, np.full(n, -half), np.full(n, half - 1))


def drawn(statement: Statement, rng: np.random.Generator) -> IntArray:
    """Return digits in their ranges, often at their ends."""
    inside = rng.integers(statement.low, statement.high, endpoint=True)
    where = rng.integers(0, 4, statement.size)
    return np.where(where == 0, statement.low, np.where(where == 1, statement.high, inside))


@dataclass
class Exchange:
    """One client that commits and proves, and the server that checks."""

    statement: Statement
    digits: IntArray
    context: bytes = b"client 3 of sum 7"
    sigma: bytes = field(default_factory=new_sigma)

    def __post_init__(self) -> None:
        self.committed: Committed = commit(
            self.statement, self.digits, self.context, sigma_hash_of(self.sigma)
        )

    def proof(self) -> bytes:
        return prove(self.statement, self.digits, self.committed.key, self.context, self.sigma)

    def checked(self, proof: bytes) -> Words:
        return verify(self.statement, self.committed.root, self.context, self.sigma, proof)


def added(pads: list[Words]) -> Words:
    """Return pads of several clients, added modulo 2^192 each."""
    parts = [one.reshape(-1, PAD_WORDS) for one in pads]
    return np.concatenate([to_words(sum(map(to_integer, own)), 3) for own in zip(*parts, strict=True)])
