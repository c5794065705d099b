"""Shamir's secret sharing over GF(2^8), for many bytes and many holders at once.

Shamir: How to share a secret, CACM 1979. The field is that of AES, x^8 + x^4 + x^3 + x + 1. Any
`threshold` shares determine the secret; fewer are independent of it. Tables are indexed by public
constants only (abscissae, Lagrange coefficients), never by secrets.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from privfed.errors import ArgumentError

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Accept = Callable[[int, bytes], bool]

MAX_HOLDERS = 255
_TRIES = 200
"""Subsets of shares that are tried where some neighbour gave a wrong one."""
_BLOCK = 256
"""Secrets that are opened at a time."""
_LOW7, _LOW1, _POLYNOMIAL = (np.uint64(word) for word in (0x7F7F7F7F7F7F7F7F, 0x0101010101010101, 0x1B))
_ONE, _SEVEN = np.uint64(1), np.uint64(7)
_Packed = npt.NDArray[np.uint64]


def rows(data: bytes, size: int) -> Bytes:
    """Return parts of `size` bytes each, one a row: uint8 of shape (n, size), read-only."""
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, size)


def _double(words: _Packed) -> _Packed:
    """Multiply field elements, eight in a word, by x, without branches."""
    return ((words & _LOW7) << _ONE) ^ (((words >> _SEVEN) & _LOW1) * _POLYNOMIAL)


def _multiples(words: _Packed) -> list[_Packed]:
    """Return the words times x^0, ..., x^7."""
    planes = [words]
    for _ in range(7):
        planes.append(_double(planes[-1]))
    return planes


def _logarithms() -> tuple[npt.NDArray[np.int32], Bytes]:
    """Return logarithms of the field's elements to the base x + 1, of shape (256,), and its powers."""
    logarithms, powers = np.zeros(256, dtype=np.int32), np.zeros(255, dtype=np.uint8)
    power = np.ones(1, dtype=np.uint64)
    for exponent in range(255):
        logarithms[power], powers[exponent] = exponent, power[0]
        power = power ^ _double(power)
    return logarithms, powers


_LOGARITHMS, _POWERS = _logarithms()


def check_abscissae(abscissae: tuple[int, ...], threshold: int) -> None:
    """Check the abscissae at which shares are taken.

    Raises:
        ArgumentError: one is zero, above 255 or repeated, or they are fewer than the threshold.
    """
    if len(set(abscissae)) != len(abscissae) or not all(1 <= point <= MAX_HOLDERS for point in abscissae):
        raise ArgumentError("abscissae of shares must differ and lie in [1, 255].")
    if not 1 <= threshold <= len(abscissae):
        raise ArgumentError(f"threshold must lie in [1, {len(abscissae)}], got threshold={threshold}.")


def share(secret: bytes, abscissae: tuple[int, ...], threshold: int) -> Bytes:
    """Share a secret byte by byte, each byte with a polynomial of its own.

    Args:
        secret: the bytes to share; their number is a multiple of eight.
        abscissae: the holders' points, from 1 to 255.
        threshold: how many shares determine the secret.

    Returns:
        One share for each holder, uint8 of shape (n_holders, len(secret)).
    """
    check_abscissae(abscissae, threshold)
    # threshold - 1 shares are drawn uniformly; with the secret, the value at zero, they fix the polynomials.
    drawn = secrets.token_bytes(len(secret) * (threshold - 1))
    known = np.frombuffer(drawn + secret, dtype=np.uint64).reshape(threshold, -1)
    shares = np.empty((len(abscissae), known.shape[1]), dtype=np.uint64)
    shares[: threshold - 1] = known[:-1]
    low, high = _nibble_products(known)
    factors, row = _share_coefficients(abscissae, threshold), np.arange(threshold)
    shares[threshold - 1 :] = np.bitwise_xor.reduce(low[factors & 15, row], axis=1)
    shares[threshold - 1 :] ^= np.bitwise_xor.reduce(high[factors >> 4, row], axis=1)
    return shares.view(np.uint8)


def _nibble_products(words: _Packed) -> tuple[_Packed, _Packed]:
    """Return the words times 0, 1, ..., 15 and times 0, 16, ..., 240, each of shape (16, *words.shape)."""
    planes, tables = _multiples(words), np.zeros((2, 16, *words.shape), dtype=np.uint64)
    for bit, plane in enumerate(planes):
        table, size = tables[bit // 4], 1 << bit % 4
        np.bitwise_xor(table[:size], plane, out=table[size : 2 * size])
    return tables[0], tables[1]


@lru_cache(maxsize=64)
def _share_coefficients(abscissae: tuple[int, ...], threshold: int) -> Bytes:
    """Return the coefficients of the other shares in the first ones and the secret: (n_others, threshold)."""
    points = np.array([*abscissae[: threshold - 1], 0], dtype=np.uint8)
    others = np.array(abscissae[threshold - 1 :], dtype=np.uint8)
    return interpolation(np.broadcast_to(points, (len(others), threshold)), others)


def interpolation(points: Bytes, at: Bytes) -> Bytes:
    """Return the Lagrange coefficients that give a polynomial's value at a point from its values at others.

    Args:
        points: abscissae of the known values, all different, uint8 of shape (n, threshold).
        at: abscissa of the wanted value, not among the points, uint8 of shape (n,).

    Returns:
        uint8 of shape (n, threshold): products of (at - x_k) / (x_j - x_k) over all k other than j.
    """
    to_wanted = _LOGARITHMS[points ^ at[:, None]]
    # The table holds zero for the logarithm of x_j - x_j = 0, so that factor drops out of the product.
    between = _LOGARITHMS[points[:, :, None] ^ points[:, None, :]].sum(axis=2, dtype=np.int32)
    factors: Bytes = _POWERS[(to_wanted.sum(axis=1, dtype=np.int32)[:, None] - to_wanted - between) % 255]
    return factors


@lru_cache(maxsize=256)
def lagrange(abscissae: tuple[int, ...]) -> Bytes:
    """Return the Lagrange coefficients of a polynomial's value at zero, uint8 of shape (n_points,)."""
    points = np.array([abscissae], dtype=np.uint8)
    coefficients: Bytes = interpolation(points, np.zeros(1, dtype=np.uint8))[0]
    return coefficients


def combine(shares: Bytes, coefficients: Bytes) -> Bytes:
    """Reconstruct several secrets at once.

    Args:
        shares: uint8 of shape (n_secrets, threshold, n_bytes), n_bytes a multiple of eight.
        coefficients: Lagrange coefficients of each secret's holders, uint8 of shape (n_secrets, threshold).

    Returns:
        The secrets, uint8 of shape (n_secrets, n_bytes).
    """
    words = np.ascontiguousarray(shares).view(np.uint64)
    opened = np.zeros((len(words), words.shape[2]), dtype=np.uint64)
    for bit, plane in enumerate(_multiples(words)):
        chosen = -((coefficients >> bit) & 1).astype(np.int64)
        opened ^= np.bitwise_xor.reduce(plane & chosen.view(np.uint64)[:, :, None], axis=1)
    return opened.view(np.uint8)


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
