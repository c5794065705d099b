"""Typed messages and their byte encoding.

A message is a frozen struct with a tag; its encoding is MessagePack, decoded strictly against the
types that the receiver expects. Nothing is ever pickled. Every count of traffic counts these bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Annotated, Any, TypeVar, get_args

import msgspec
import numpy as np

from privfed.core.values.domain import FloatArray, frozen_array
from privfed.errors import MessageError

MAX_MESSAGE_BYTES = 1 << 30


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True, array_like=True):
    """Base of all messages: a frozen struct whose tag is the class name."""


class Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A float64 array on the wire: shape, and little-endian C-order bytes."""

    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, array: FloatArray) -> Array:
        """Return the wire form of a float64 array."""
        return cls(array.shape, np.ascontiguousarray(array, dtype="<f8").tobytes())

    def to_numpy(self) -> FloatArray:
        """Return the array, read-only.

        Raises:
            ValueError: the bytes do not fit the shape.
        """
        if min(self.shape, default=0) < 0 or len(self.data) != 8 * prod(self.shape):
            raise ValueError(f"{len(self.data)} bytes do not fit the shape {self.shape}")
        return frozen_array(np.frombuffer(self.data, dtype="<f8").reshape(self.shape))


CODE = "^[a-z0-9_:]{0,64}$"
"""Pattern of the codes of refusals."""


class Refusal(Message, frozen=True):
    """A client's coded refusal. The code depends on messages and policy, never on data."""

    code: Annotated[str, msgspec.Meta(pattern=CODE)]


_encode = msgspec.msgpack.Encoder().encode
Decoded = TypeVar("Decoded")


@lru_cache(maxsize=64)
def _decoder(expected: Any) -> Callable[[bytes | memoryview], Any]:
    return msgspec.msgpack.Decoder(expected).decode


def encode(message: msgspec.Struct) -> bytes:
    """Return the bytes of a message."""
    return _encode(message)


def decode(data: bytes | memoryview, expected: Any, *, sender: str, stage: str) -> Any:
    """Return the message that `data` encodes, checked strictly against the `expected` type or union.

    Raises:
        MessageError: too long, not MessagePack, truncated, of another type or with other fields.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise MessageError(
            f"{len(data)} bytes, at most {MAX_MESSAGE_BYTES} are read", sender=sender, stage=stage
        )
    try:
        return _decoder(expected)(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError):
        kinds = " or ".join(kind.__name__ for kind in get_args(expected) or (expected,))
        raise MessageError(f"not a well-formed {kinds}", sender=sender, stage=stage) from None
