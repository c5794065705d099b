"""Float64 values as bytes that compress: what differs from earlier values, byte by byte of equal weight.

Between two rounds a sum of many rows keeps its sign, exponent and first digits, and a sum of whole numbers
also its last. So values are combined with the earlier ones by exclusive or, and written as eight planes: all
last bytes, then all second to last, and so on; a plane is compressed by zlib where that makes it smaller.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from privfed.core.values.domain import FloatArray

N_PLANES = 8

_SAMPLE = 1 << 14
"""Bytes from whose compression it is judged whether a whole plane would become smaller."""

_WORTH = 0.9
"""Share of a plane's bytes below which it is stored compressed."""


def planes_of(values: FloatArray, before: FloatArray) -> list[bytes]:
    """Return the planes of values that follow others, both float64 of shape (n,)."""
    bits = _little(values) ^ _little(before)
    return [_smaller(plane.tobytes()) for plane in bits.view(np.uint8).reshape(-1, N_PLANES).T]


def _little(values: FloatArray) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(values, dtype="<f8").view(np.uint64)


def _smaller(plane: bytes) -> bytes:
    sample = plane[:_SAMPLE]
    if len(zlib.compress(sample, 1)) > _WORTH * len(sample):
        return plane
    found = zlib.compress(plane, 1)
    return found if len(found) < len(plane) else plane


def values_of(planes: Sequence[bytes], before: FloatArray) -> FloatArray:
    """Return the values that `planes_of` wrote.

    Raises:
        ValueError: the planes are damaged, or of another number of values.
    """
    bits = np.empty((len(before), N_PLANES), dtype=np.uint8)
    for place, plane in enumerate(planes):
        whole = plane if len(plane) == len(before) else inflated(plane, len(before))
        bits[:, place] = np.frombuffer(whole, dtype=np.uint8)
    return (bits.view("<u8")[:, 0] ^ before.astype("<f8").view(np.uint64)).view(np.float64)


def inflated(data: bytes, size: int) -> bytes:
    """Return what zlib compressed, which must be `size` bytes; no more than that are ever made of it.

    Raises:
        ValueError: it is damaged, or of another size.
    """
    found = zlib.decompressobj()
    try:
        whole = found.decompress(data, size + 1)
    except zlib.error:
        raise ValueError("compressed bytes are damaged") from None
    if len(whole) != size or not found.eof or found.unused_data:
        raise ValueError(f"compressed bytes are not those of {size} bytes")
    return whole


def cut(data: bytes, lengths: Sequence[int]) -> Iterator[bytes]:
    """Yield consecutive parts of these lengths."""
    first = 0
    for length in lengths:
        yield data[first : (first := first + length)]
