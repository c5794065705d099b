"""Masks: AES-256-CTR keystreams under the full key, added to words as they are generated.

Every key is derived for a single use, so the counter may always start at zero. Keystreams are generated
and added in blocks that fit the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from privfed.protocols.crypto.fixed_point import Layout, Words

BLOCK_WORDS = 1 << 15

SHORT = 1 << 9
"""Most words of a keystream that is generated at once."""

_ZEROS = memoryview(bytes(8 * BLOCK_WORDS))
_FROM_ZERO = modes.CTR(bytes(16))


def _stream(key: bytes) -> CipherContext:
    return Cipher(algorithms.AES256(key), _FROM_ZERO).encryptor()


def keystream(key: bytes, size: int) -> Words:
    """Return the first `size` words of a key's stream, uint64 of shape (size,)."""
    words = np.frombuffer(_stream(key).update(bytes(8 * size)), dtype="<u8")
    return words.astype(np.uint64)


class Mask:
    """Holds the key of a mask and, once it was needed, its keystream if that is short.

    Args:
        key: the key, for a single use, 32 bytes.
    """

    __slots__ = ("_stream", "key")

    def __init__(self, key: bytes) -> None:
        self.key: Final = key
        self._stream = b""

    def __repr__(self) -> str:
        return "Mask(...)"

    def short(self, size: int) -> bytes:
        """Return the first `size` words of the keystream, little-endian."""
        if len(self._stream) != 8 * size:
            self._stream = _stream(self.key).update(bytes(8 * size))
        return self._stream


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

    def apply(self, total: Words, masks: Iterable[tuple[Mask, bool]]) -> None:
        """Add masks to `total` in place, or subtract those that come with False; short ones all at once."""
        masks = list(masks)
        if self._grid.size > SHORT:
            for mask, adds in masks:
                self._apply(total, mask.key, negative=not adds)
            return
        self._grid.add(total, self._net([mask for mask, adds in masks if adds]))
        self._grid.subtract(total, self._net([mask for mask, adds in masks if not adds]))

    def _net(self, masks: Sequence[Mask]) -> Words:
        size = self._grid.size
        streams = np.frombuffer(b"".join([mask.short(size) for mask in masks]), dtype="<u8")
        return self._grid.sum(streams.reshape(-1, size).astype(np.uint64, copy=False))

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
