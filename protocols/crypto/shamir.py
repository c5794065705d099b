"""Shamir's secret sharing over GF(2^8), for many bytes and many holders at once.

Shamir: How to share a secret, CACM 1979. The field is that of AES, x^8 + x^4 + x^3 + x + 1. Any
`threshold` shares determine the secret; fewer are independent of it. Tables are indexed by public
constants only (abscissae, Lagrange coefficients), never by secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import shake_256
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

from privfed.core.stored.encoding import bound
from privfed.core.values.numbers import check_whole
from privfed.errors import ArgumentError

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Accept = Callable[[int, bytes], bool]

MAX_HOLDERS = 255
_TRIES = 1 << 10
"""Most choices of shares of which all are tried, where some neighbour gave a wrong one."""
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
        raise ArgumentError("abscissae of shares must differ and lie in [1, 255].", parameters=["abscissae"])
    check_whole("threshold", threshold, 1, len(abscissae))


def derived(secret: bytes, threshold: int) -> bytes:
    """Return the first threshold - 1 shares of secrets of 32 bytes, one share after the other."""
    parts, size = [secret[place : place + 32] for place in range(0, len(secret), 32)], threshold - 1
    streams = [shake_256(bound("shares", part)).digest(32 * size) for part in parts]
    return rows(b"".join(streams), 32).reshape(len(parts), size, 32).swapaxes(0, 1).tobytes()


def share(secret: bytes, abscissae: tuple[int, ...], threshold: int) -> Bytes:
    """Share secrets byte by byte, each byte with a polynomial of its own.

    The polynomials follow from the secret, so that whoever opened it knows which shares were dealt. Whoever
    does not has to guess all of its 32 uniform bytes to tell the shares from random ones.

    Args:
        secret: uniform secrets of 32 bytes, one after the other.
        abscissae: the holders' points, from 1 to 255.
        threshold: how many shares determine the secret.

    Returns:
        One share for each holder, uint8 of shape (n_holders, len(secret)).
    """
    check_abscissae(abscissae, threshold)
    # threshold - 1 shares are derived; with the secret, the value at zero, they fix the polynomials.
    known = np.frombuffer(derived(secret, threshold) + secret, dtype=np.uint64).reshape(threshold, -1)
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


def _product(one: Bytes, other: Bytes) -> Bytes:
    """Return products of field elements, from tables: for what the server opens, and so knows anyway."""
    powers = _POWERS[(_LOGARITHMS[one] + _LOGARITHMS[other]) % 255]
    return np.where((one == 0) | (other == 0), np.uint8(0), powers)


def _solved(matrix: Bytes) -> Bytes | None:
    """Solve linear equations, uint8 of shape (n, unknowns + 1), right side last; None if they contradict."""
    left, n_unknowns = matrix.copy(), matrix.shape[1] - 1
    solution, pivots = np.zeros(n_unknowns, dtype=np.uint8), list[int]()
    for column in range(n_unknowns):
        found = np.flatnonzero(left[len(pivots) :, column])
        if not len(found):
            continue
        row, other = len(pivots), len(pivots) + int(found[0])
        left[[row, other]] = left[[other, row]]
        left[row] = _product(left[row], _POWERS[-_LOGARITHMS[left[row, column]] % 255])
        factors = left[:, column].copy()
        factors[row] = 0
        left ^= _product(factors[:, None], left[row][None])
        pivots.append(column)
    if left[len(pivots) :, -1].any():
        return None
    solution[pivots] = left[: len(pivots), -1]
    return solution


def _wrong(points: Bytes, values: Bytes, threshold: int) -> Flags | None:
    """Return which values may be off the one polynomial that all but half of the spare ones are on.

    Berlekamp and Welch (US patent 4,633,470, 1986): N(x) = y E(x) at all points; E is zero where y is wrong.
    """
    most = (len(points) - threshold) // 2
    exponents = np.arange(threshold + most)
    powers = _POWERS[_LOGARITHMS[points][:, None] * exponents % 255]
    found = _solved(np.hstack([powers, _product(values[:, None], powers[:, : most + 1])]))
    if found is None:
        return None
    located = np.bitwise_xor.reduce(_product(powers[:, :most], found[None, len(exponents) :]), axis=1)
    wrong: Flags = (located ^ powers[:, most]) == 0
    return wrong


@dataclass(frozen=True)
class Shares:
    """Holds shares of one kind of secret: a row for each owner of a secret, a column for each neighbour.

    Args:
        given: whether the neighbour gave its share, bool of shape (n, d).
        values: the shares, uint8 of shape (n, d, 32); column q holds the shares at abscissa q + 1.
        threshold: how many shares open a secret.
        holders: who gave each, int64 of shape (n, d).
        doubted: whether a holder gave a wrong share, bool of shape (n,). Its others are used last. It grows
            as secrets open.
        wrong: owners of opened secrets, and holders that gave another share than was dealt, once one did.
    """

    given: Flags
    values: Bytes
    threshold: int
    holders: npt.NDArray[np.int64]
    doubted: Flags
    wrong: set[tuple[int, int]] = field(default_factory=set)

    def open(self, targets: Iterable[int], accept: Accept) -> tuple[dict[int, bytes], list[int]]:
        """Open the secrets of some rows; return them, and the rows whose shares do not suffice.

        `accept` says whether an opened secret is the right one. If it is not, some neighbour gave a wrong
        share. Whoever did is found from one such row, and the others open without it.
        """
        rows = np.array(list(targets), dtype=np.int64)
        enough = self.given[rows].sum(axis=1) >= self.threshold
        right, failed, left = dict[int, bytes](), rows[~enough].tolist(), rows[enough]
        while len(left):
            for start in range(0, len(left), _BLOCK):
                block = left[start : start + _BLOCK]
                opened = zip(block.tolist(), self._opened(block), strict=True)
                right |= {row: secret for row, secret in opened if accept(row, secret)}
            left = np.array([row for row in left.tolist() if row not in right], dtype=np.int64)
            if len(left):
                row, left = int(left[0]), left[1:]
                other = self._open_one(row, accept)
                if other is None:
                    failed.append(row)
                else:
                    right[row] = other
                    self._compare({row: other})
        if right and self.doubted.any():
            self._compare(right)
        return right, sorted(failed)

    def _compare(self, right: Mapping[int, bytes]) -> None:
        """Note who gave another share of opened secrets than was dealt, by what follows from these."""
        rows, d = np.array(list(right)), self.given.shape[1]
        dealt = share(b"".join(right.values()), tuple(range(1, d + 1)), self.threshold).reshape(d, -1, 32)
        off = self.given[rows] & (dealt.swapaxes(0, 1) != self.values[rows]).any(axis=2)
        holders = self.holders[rows][off]
        self.doubted[holders] = True
        self.wrong.update(zip(rows[off.nonzero()[0]].tolist(), holders.tolist(), strict=True))

    def _opened(self, rows: npt.NDArray[np.int64]) -> list[bytes]:
        """Open some rows, each from its first shares of holders that are not doubted."""
        last = 2 * ~self.given[rows] + self.doubted[self.holders[rows]]
        columns = np.argsort(last, axis=1, kind="stable")[:, : self.threshold]
        points = (columns + 1).astype(np.uint8)
        if (points == points[0]).all():
            # Nobody is lost: all rows use the same columns, and so the same coefficients.
            coefficients = np.broadcast_to(lagrange(tuple(points[0].tolist())), points.shape)
        else:
            coefficients = interpolation(points, np.zeros(len(rows), dtype=np.uint8))
        return [secret.tobytes() for secret in combine(self.values[rows[:, None], columns], coefficients)]

    def _open_one(self, row: int, accept: Accept) -> bytes | None:
        """Open a row some of whose shares are wrong."""
        chosen = np.array(list(self._choices(row)), dtype=np.int64).reshape(-1, self.threshold)
        coefficients = interpolation((chosen + 1).astype(np.uint8), np.zeros(len(chosen), dtype=np.uint8))
        opened = combine(self.values[row, chosen], coefficients)
        return next((secret.tobytes() for secret in opened if accept(row, secret.tobytes())), None)

    def _off(self, row: int, chosen: npt.NDArray[np.int64]) -> Flags:
        """Return which bytes are off the polynomials through some columns, bool of shape (d, 32)."""
        others, off = (
            np.setdiff1d(np.flatnonzero(self.given[row]), chosen),
            np.zeros((self.given.shape[1], 32), bool),
        )
        points = np.broadcast_to((chosen + 1).astype(np.uint8), (len(others), self.threshold))
        shares = np.broadcast_to(self.values[row, chosen], (len(others), self.threshold, 32))
        expected = combine(shares, interpolation(points, (others + 1).astype(np.uint8)))
        off[others] = expected != self.values[row, others]
        return off

    def _choices(self, row: int) -> Iterator[list[int]]:
        """Yield columns from which a row may open: all choices where they are few, else by decoding."""
        columns = np.flatnonzero(self.given[row])
        if comb(len(columns), self.threshold) <= _TRIES:
            yield from map(list, combinations(columns.tolist(), self.threshold))
            return
        while len(columns) >= self.threshold:
            off = self._off(row, columns[: self.threshold])[columns]
            if not off.any():
                yield columns[: self.threshold].tolist()
                return
            values = self.values[row, columns, off.any(axis=0).argmax()]
            wrong = _wrong((columns + 1).astype(np.uint8), values, self.threshold)
            if wrong is None or not wrong.any():
                return
            columns = columns[~wrong]
