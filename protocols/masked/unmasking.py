"""Reconstruction of secrets from clients' shares, on the coordinator of a masked sum."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privfed.protocols.crypto.shamir import Bytes, combine, interpolation, lagrange

Accept = Callable[[int, bytes], bool]
Flags = npt.NDArray[np.bool_]
_TRIES = 200
_BLOCK = 256


@dataclass(frozen=True)
class Shares:
    """Holds shares of one kind of secret: a row for each owner of a secret, a column for each neighbour.

    Args:
        given: whether the neighbour gave its share, bool of shape (n, d).
        values: the shares, uint8 of shape (n, d, 32); column q holds the shares at abscissa q + 1.
        threshold: how many shares open a secret.
    """

    given: Flags
    values: Bytes
    threshold: int

    def open(self, targets: Iterable[int], accept: Accept) -> tuple[dict[int, bytes], list[int]]:
        """Open the secrets of some rows; return them, and the rows whose shares do not suffice.

        `accept` says whether an opened secret is the right one. If it is not, some neighbour gave a wrong
        share, and other subsets of neighbours are tried.
        """
        rows = np.array(list(targets), dtype=np.int64)
        enough = self.given[rows].sum(axis=1) >= self.threshold
        right: dict[int, bytes] = {}
        for start in range(0, len(rows[enough]), _BLOCK):
            block = rows[enough][start : start + _BLOCK]
            for row, secret in zip(block.tolist(), self._opened(block), strict=True):
                if accept(row, secret):
                    right[row] = secret
        failed: list[int] = []
        for row in rows.tolist():
            if row not in right:
                other = self._open_one(row, accept)
                if other is None:
                    failed.append(row)
                else:
                    right[row] = other
        return right, failed

    def _opened(self, rows: npt.NDArray[np.int64]) -> list[bytes]:
        """Open some rows, each from its first shares."""
        columns = np.argsort(~self.given[rows], axis=1, kind="stable")[:, : self.threshold]
        points = (columns + 1).astype(np.uint8)
        if (points == points[0]).all():
            # Nobody is lost: all rows use the same columns, and so the same coefficients.
            coefficients = np.broadcast_to(lagrange(tuple(points[0].tolist())), points.shape)
        else:
            coefficients = interpolation(points, np.zeros(len(rows), dtype=np.uint8))
        return [secret.tobytes() for secret in combine(self.values[rows[:, None], columns], coefficients)]

    def _open_one(self, row: int, accept: Accept) -> bytes | None:
        columns = np.flatnonzero(self.given[row]).tolist()
        if len(columns) < self.threshold:
            return None
        choices = secrets.SystemRandom()
        for _ in range(_TRIES):
            chosen = sorted(choices.sample(columns, self.threshold))
            coefficients = lagrange(tuple(column + 1 for column in chosen))
            secret: bytes = combine(self.values[row, chosen][None], coefficients[None])[0].tobytes()
            if accept(row, secret):
                return secret
        return None
