"""Masks: words that were derived, or AES-256-CTR keystreams, added as they are generated.

Every key is derived for a single use, so the counter may always start at zero. Keystreams are generated
and added in blocks that fit the processor's cache.

The check words of a group-masked sum are a secret random combination of its entries.

A client appends c_i = sum_l r_l x_{i,l} mod 2^192 to its words, where each x is an integer and each r_l is
64 bits of a stream that only clients know. The relation is linear, so sums of honest answers keep it. Let
an opened total be wrong by integers d, not all zero, |d_l| < 2^128. It passes only if sum_l r_l d_l takes
one particular value mod 2^192. At most 2^127 divides a non-zero d_l, so at most one of the 2^64 values of
r_l gives that value. Working modulo 2^64 would not suffice: r_l 2^62 = 0 modulo 2^64 for every fourth r_l.
The ring is widened as in SPDZ2k (Cramer et al., CRYPTO 2018, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from privfed.core.values.domain import FloatArray
from privfed.protocols.crypto.fixed_point import Layout, Words, add_numbers

BLOCK_WORDS = 1 << 15

SHORT = 1 << 8
"""Most words of a mask that is derived as it is; a longer one is the keystream of a key."""

_KEY_BYTES = 32

_ZEROS = memoryview(bytes(8 * BLOCK_WORDS))
_FROM_ZERO = modes.CTR(bytes(16))


def _stream(key: bytes) -> CipherContext:
    return Cipher(algorithms.AES256(key), _FROM_ZERO).encryptor()


def keystream(key: bytes, size: int) -> Words:
    """Return the first `size` words of a key's stream, uint64 of shape (size,)."""
    return np.frombuffer(_stream(key).update(bytes(8 * size)), dtype="<u8").astype(np.uint64)


def mask_bytes(size: int) -> int:
    """Return how many bytes say what a mask of `size` words is: its words, or the key of its keystream."""
    return 8 * size if size <= SHORT else _KEY_BYTES


class Masker:
    """Adds and subtracts keystreams of one layout.

    Args:
        grid: the layout of the words.
    """

    def __init__(self, grid: Layout) -> None:
        self._grid = grid
        self._buffer = bytearray(8 * min(BLOCK_WORDS, grid.n_front))
        self._block = np.frombuffer(self._buffer, dtype="<u8")

    def apply(self, total: Words, masks: Sequence[bytes], adds: npt.NDArray[np.bool_]) -> None:
        """Add masks to `total` in place, or subtract them; short ones all at once.

        Args:
            total: the words.
            masks: `mask_bytes(size)` bytes each, for a single use.
            adds: whether each is added, bool of shape (n_masks,).
        """
        if self._grid.size > SHORT:
            self._apply(total, masks, [1 if one else -1 for one in adds.tolist()])
            return
        rows = np.frombuffer(b"".join(masks), dtype="<u8").reshape(-1, self._grid.size)
        rows = rows.astype(np.uint64, copy=False)
        self._grid.add(total, self._grid.sum(rows[adds]))
        self._grid.add(total, self._grid.sum(rows[~adds]), -1)

    def add(self, total: Words, key: bytes, sign: int = 1) -> None:
        """Add the stream of `key` to `total` in place; with sign -1, subtract it."""
        self._apply(total, [key], [sign])

    def _apply(self, total: Words, keys: Sequence[bytes], signs: Sequence[int]) -> None:
        """Add all streams to one block of the total after the other, which stays in the processor's cache."""
        grid, buffer = self._grid, memoryview(self._buffer)
        streams = [(_stream(key), sign) for key, sign in zip(keys, signs, strict=True)]
        for part, kind in grid.front(BLOCK_WORDS):
            own = total[part]
            zeros, made, block = _ZEROS[: 8 * len(own)], buffer[: 8 * len(own)], self._block[: len(own)]
            for stream, sign in streams:
                stream.update_into(zeros, made)
                add_numbers(own, block, kind, sign)
        for stream, sign in streams if grid.size > grid.n_front else ():
            generated = stream.update(bytes(8 * (grid.size - grid.n_front)))
            grid.add_rest(total, np.frombuffer(generated, "<u8").astype(np.uint64, copy=False), sign)


CHECK_BYTES = 24
_MODULUS = 1 << 8 * CHECK_BYTES
_BLOCK = 1 << 13
"""Words that are combined at a time; their digits fit the processor's cache."""


def check_of(words: Words, layout: Layout, key: bytes) -> int:
    """Return the check of words: their combination modulo 2^192, with coefficients from the stream of `key`.

    Args:
        words: uint64 of shape (layout.size,): one answer, or an opened total.
        layout: the layout of the words.
        key: 32 bytes that the server does not know, for this sum only.
    """
    narrow, wide = layout.n_narrow, layout.n_wide
    coefficients = keystream(key, narrow + wide)
    check = _combination(coefficients[:narrow], words[:narrow], signed=True)
    low, high = words[narrow : narrow + wide], words[narrow + wide :]
    check += _combination(coefficients[narrow:], low, signed=False)
    check += _combination(coefficients[narrow:], high, signed=True) << 64
    return check % _MODULUS


def added(check: int, other: int, sign: int = 1) -> int:
    """Return the sum, or with sign -1 the difference, of two checks or of a check and its mask."""
    return (check + sign * other) % _MODULUS


def to_bytes(check: int) -> bytes:
    """Encode a check in CHECK_BYTES bytes."""
    return check.to_bytes(CHECK_BYTES, "little")


def from_bytes(data: bytes) -> int:
    """Decode a check from CHECK_BYTES bytes."""
    return int.from_bytes(data, "little")


def _digits(words: Words) -> FloatArray:
    return words.astype("<u8").view("<u2").reshape(-1, 4).astype(np.float64)


def _combination(coefficients: Words, words: Words, *, signed: bool) -> int:
    """Return the exact sum of coefficient times word, with words read as signed or unsigned integers."""
    result = 0
    for start in range(0, len(words), _BLOCK):
        of_block = slice(start, start + _BLOCK)
        left, right = _digits(coefficients[of_block]), _digits(words[of_block])
        # Digits have 16 bits, their products 32, and sums of 2^13 products 45, which float64 holds exactly.
        for (i, j), product in np.ndenumerate(left.T @ right):
            result += int(product) << 16 * (i + j)
        if signed:
            negative = (words[of_block] >> np.uint64(63)).astype(np.float64)
            result -= sum(int(digit) << 64 + 16 * i for i, digit in enumerate(negative @ left))
    return result
