"""What the coordinator of a masked sum opens: secrets from shares, and the total from the secrets."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from privfed.protocols.masking.shamir import Bytes, combine, invert, lagrange, multiply

Accept = Callable[[int, bytes], bool]
_TRIES = 200


@dataclass(frozen=True)
class Shares:
    """Shares of one kind of secret, as the answers brought them.

    Args:
        held: holder -> targets whose shares it gave, with the shares, uint8 of shape (n_targets, 32).
        abscissa: client -> its point.
        threshold: how many shares open a secret.
    """

    held: Mapping[int, tuple[tuple[int, ...], Bytes]]
    abscissa: Mapping[int, int]
    threshold: int

    def open(self, targets: tuple[int, ...], accept: Accept) -> tuple[dict[int, bytes], list[int]]:
        """Open the secrets of `targets`, ascending; return them, and the targets whose shares do not suffice.

        `accept` says whether an opened secret is the right one. Where it is not, a holder gave a
        wrong share, and other subsets of holders are tried.
        """
        opened = self._open_together(targets)
        right = {target: secret for target, secret in opened.items() if accept(target, secret)}
        failed: list[int] = []
        for target in targets:
            if target not in right:
                secret = self._open_one(target, accept)
                if secret is None:
                    failed.append(target)
                else:
                    right[target] = secret
        return right, failed

    def _open_together(self, targets: tuple[int, ...]) -> dict[int, bytes]:
        """Open all targets from the same threshold + 1 holders; none needs a share of its own."""
        base = tuple(sorted(self.held))[: self.threshold + 1]
        if len(base) <= self.threshold or not targets:
            return {}
        wanted, short = np.array(targets), set[int]()
        shares = np.zeros((len(targets), len(base), 32), dtype=np.uint8)
        for column, holder in enumerate(base):
            given, data = self.held[holder]
            kept = np.isin(given, wanted)
            shares[np.searchsorted(wanted, np.array(given)[kept]), column] = data[kept]
            short |= set(targets) - set(given) - {holder}
        opened = combine(shares, self._coefficients(base, targets))
        return {
            target: secret.tobytes()
            for target, secret in zip(targets, opened, strict=True)
            if target not in short
        }

    def _coefficients(self, base: tuple[int, ...], targets: tuple[int, ...]) -> Bytes:
        points = np.array([self.abscissa[holder] for holder in base], dtype=np.uint8)
        full = lagrange(tuple(points.tolist()))
        coefficients = np.repeat(full[None], len(targets), axis=0)
        for row, target in enumerate(targets):
            if target in base:
                # Leave the target out: drop its factor x_j / (x_j - x_i) from each other coefficient.
                own = np.uint8(self.abscissa[target])
                reduced = multiply(
                    multiply(full, points ^ own), np.full_like(points, invert(np.array([own]))[0])
                )
                coefficients[row] = np.where(points == own, 0, reduced)
        return coefficients

    def _open_one(self, target: int, accept: Accept) -> bytes | None:
        shares = {
            holder: data[given.index(target)]
            for holder, (given, data) in self.held.items()
            if target in given and holder != target
        }
        holders = sorted(shares)
        if len(holders) < self.threshold:
            return None
        choices = secrets.SystemRandom()
        for attempt in range(_TRIES):
            chosen = sorted(choices.sample(holders, self.threshold)) if attempt else holders[: self.threshold]
            row = lagrange(tuple(self.abscissa[holder] for holder in chosen))
            stacked = np.stack([shares[holder] for holder in chosen])[None]
            secret: bytes = combine(stacked, row[None])[0].tobytes()
            if accept(target, secret):
                return secret
        return None
