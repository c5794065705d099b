"""Masks: words that were derived, or AES-256-CTR keystreams, added as they are generated.

Every key is derived for a single use, so the counter may always start at zero. Keystreams are generated
and added in blocks that fit the processor's cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from privfed.protocols.crypto.fixed_point import Layout, Words

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
    words = np.frombuffer(_stream(key).update(bytes(8 * size)), dtype="<u8")
    return words.astype(np.uint64)


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
        self._buffer = bytearray(8 * min(BLOCK_WORDS, grid.n_narrow))
        self._block = np.frombuffer(self._buffer, dtype="<u8")

    def add(self, total: Words, key: bytes) -> None:
        """Add the stream of `key` to `total` in place."""
        self._apply(total, key, negative=False)

    def subtract(self, total: Words, key: bytes) -> None:
        """Subtract the stream of `key` from `total` in place."""
        self._apply(total, key, negative=True)

    def apply(self, total: Words, masks: Sequence[bytes], adds: npt.NDArray[np.bool_]) -> None:
        """Add masks to `total` in place, or subtract them; short ones all at once.

        Args:
            total: the words.
            masks: `mask_bytes(size)` bytes each, for a single use.
            adds: whether each is added, bool of shape (n_masks,).
        """
        if self._grid.size > SHORT:
            for mask, one in zip(masks, adds.tolist(), strict=True):
                self._apply(total, mask, negative=not one)
            return
        rows = np.frombuffer(b"".join(masks), dtype="<u8").reshape(-1, self._grid.size)
        rows = rows.astype(np.uint64, copy=False)
        self._grid.add(total, self._grid.sum(rows[adds]))
        self._grid.subtract(total, self._grid.sum(rows[~adds]))

    def _apply(self, total: Words, key: bytes, negative: bool) -> None:
        grid = self._grid
        stream, buffer = _stream(key), memoryview(self._buffer)
        operation = np.subtract if negative else np.add
        for start in range(0, grid.n_narrow, BLOCK_WORDS):
            part = total[start : min(start + BLOCK_WORDS, grid.n_narrow)]
            stream.update_into(_ZEROS[: 8 * len(part)], buffer[: 8 * len(part)])
            operation(part, self._block[: len(part)], out=part)
        if grid.size > grid.n_narrow:
            generated = stream.update(bytes(8 * (grid.size - grid.n_narrow)))
            rest = np.frombuffer(generated, dtype="<u8").astype(np.uint64)
            (grid.subtract_rest if negative else grid.add_rest)(total, rest)
