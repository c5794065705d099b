"""Shamir's secret sharing over GF(2^8), for many bytes and many holders at once.

Shamir: How to share a secret, CACM 1979. The field is that of AES, x^8 + x^4 + x^3 + x + 1. Any
`threshold` shares give the secret; fewer say nothing about it. Tables are indexed by public
constants only (abscissae, Lagrange coefficients), never by secrets.
"""

from __future__ import annotations

import secrets
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from privfed.errors import ArgumentError

Bytes = npt.NDArray[np.uint8]

MAX_HOLDERS = 255
_LOW7, _LOW1, _POLYNOMIAL = (np.uint64(word) for word in (0x7F7F7F7F7F7F7F7F, 0x0101010101010101, 0x1B))
_ONE, _SEVEN = np.uint64(1), np.uint64(7)
_Packed = npt.NDArray[np.uint64]


def _double(words: _Packed) -> _Packed:
    """Multiply eight field elements a word by x, without branches."""
    return ((words & _LOW7) << _ONE) ^ (((words >> _SEVEN) & _LOW1) * _POLYNOMIAL)


def _multiples(words: _Packed) -> list[_Packed]:
    """Return x^0 .. x^7 times the words."""
    planes = [words]
    for _ in range(7):
        planes.append(_double(planes[-1]))
    return planes


@lru_cache(maxsize=1)
def _product_table() -> Bytes:
    """Return all products of two public constants, uint8 of shape (256, 256)."""
    every = np.arange(256, dtype=np.uint64)
    planes = np.stack(_multiples(every))
    products = np.zeros((256, 256), dtype=np.uint64)
    for bit in range(8):
        chosen = ((every >> np.uint64(bit)) & _ONE).astype(bool)
        products[chosen] ^= planes[bit]
    return products.astype(np.uint8)


def multiply(a: Bytes, b: Bytes) -> Bytes:
    """Return the products of public field elements, elementwise."""
    return _product_table()[a, b]


def invert(a: Bytes) -> Bytes:
    """Return the inverses of public nonzero field elements: a^254."""
    result, power = np.ones_like(a), a
    for _ in range(7):
        power = multiply(power, power)
        result = multiply(result, power)
    return result


@lru_cache(maxsize=64)
def _powers(abscissae: tuple[int, ...], threshold: int) -> Bytes:
    points = np.array(abscissae, dtype=np.uint8)
    columns = [np.ones_like(points)]
    for _ in range(threshold - 1):
        columns.append(multiply(columns[-1], points))
    return np.stack(columns, axis=1)


def check_abscissae(abscissae: tuple[int, ...], threshold: int) -> None:
    """Check where shares are taken.

    Raises:
        ArgumentError: zero, above 255, repeated, or fewer than the threshold.
    """
    if len(set(abscissae)) != len(abscissae) or not all(1 <= point <= MAX_HOLDERS for point in abscissae):
        raise ArgumentError("abscissae of shares must differ and lie in [1, 255].")
    if not 1 <= threshold <= len(abscissae):
        raise ArgumentError(f"threshold must lie in [1, {len(abscissae)}], got threshold={threshold}.")


def share(secret: bytes, abscissae: tuple[int, ...], threshold: int) -> Bytes:
    """Share a secret, whose length is a multiple of eight, byte by byte with polynomials of their own.

    Args:
        secret: the bytes to share.
        abscissae: the holders' points, from 1 to 255.
        threshold: how many shares give the secret.

    Returns:
        One share a holder, uint8 of shape (n_holders, len(secret)).
    """
    check_abscissae(abscissae, threshold)
    coefficients = secret + secrets.token_bytes(len(secret) * (threshold - 1))
    words = np.frombuffer(coefficients, dtype=np.uint64).reshape(threshold, -1)
    planes, powers = _multiples(words), _powers(abscissae, threshold)
    shares = np.zeros((len(abscissae), words.shape[1]), dtype=np.uint64)
    table = np.zeros((256, words.shape[1]), dtype=np.uint64)
    for degree in range(threshold):
        for bit in range(8):
            np.bitwise_xor(table[: 1 << bit], planes[bit][degree], out=table[1 << bit : 2 << bit])
        shares ^= table[powers[:, degree]]
    return shares.view(np.uint8)


@lru_cache(maxsize=4096)
def lagrange(abscissae: tuple[int, ...]) -> Bytes:
    """Return the coefficients that give a polynomial's value at zero, uint8 of shape (n_points,)."""
    points = np.array(abscissae, dtype=np.uint8)
    differences = points[:, None] ^ points[None, :]
    np.fill_diagonal(differences, 1)
    numerator, denominator = np.ones_like(points), np.ones_like(points)
    for column in range(len(points)):
        others = np.arange(len(points)) != column
        numerator[others] = multiply(numerator[others], points[column])
        denominator = multiply(denominator, differences[:, column])
    return multiply(numerator, invert(denominator))


def combine(shares: Bytes, coefficients: Bytes) -> Bytes:
    """Open several secrets at once.

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
