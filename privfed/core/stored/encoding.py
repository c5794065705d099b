"""How values become bytes: typed messages, stored values with a version, and unambiguous strings to hash.

A message is a frozen struct with a tag. Its encoding is MessagePack, decoded strictly against the types that
the receiver expects. A stored value has a name and a version before it (`Codec`). Nothing is ever pickled.
Every count of traffic counts these bytes.

Property (`tests/protocols/test_bounds_of_messages.py`): in all that is read from others, each whole number
has bounds of eight bytes. Each list and mapping has a most length, and all bytes together have a most size.
"""

from __future__ import annotations

import hashlib
import sys
import typing
from collections.abc import Callable
from dataclasses import fields
from functools import cache, lru_cache, reduce
from math import prod
from operator import or_
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import numpy as np

from privfed.core.values.domain import FloatArray, frozen_array
from privfed.core.values.numbers import Count, Items
from privfed.errors import ArgumentError, FormatError, MessageError

MAX_MESSAGE_BYTES = 1 << 30


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True, array_like=True):
    """Base of all messages: a frozen struct whose tag is the class name."""


class Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A float64 array on the wire: shape, and little-endian C-order bytes."""

    shape: Items[Count]
    data: bytes

    @classmethod
    def from_numpy(cls, array: FloatArray) -> Array:
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


CODE = "^[a-z0-9_:.]{0,64}$"
"""Pattern of the codes of refusals."""


class Refusal(Message, frozen=True):
    """A client's coded refusal. The code depends on messages and policy, never on data."""

    code: Annotated[str, msgspec.Meta(pattern=CODE)]


encode: Callable[[msgspec.Struct], bytes] = msgspec.msgpack.Encoder().encode
"""Returns the bytes of a message."""


def ending_in(head: bytes, data: bytes | memoryview) -> bytes:
    """Return the message `head`, whose last field is an empty byte string, with `data` in that field.

    It is what `encode` returns, which holds up to half as much memory again behind a long message.
    """
    widths = ((1, b"\xc4"), (2, b"\xc5"), (4, b"\xc6"))
    width, kind = next(one for one in widths if len(data) < 1 << 8 * one[0])
    return b"".join((head[:-2], kind, len(data).to_bytes(width, "big"), data))


@lru_cache(maxsize=64)
def _decoder(expected: Any) -> Callable[[bytes | memoryview], Any]:
    return msgspec.msgpack.Decoder(expected).decode


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
        types = " or ".join(kind.__name__ for kind in get_args(expected) or (expected,))
        raise MessageError(f"not a well-formed {types}", sender=sender, stage=stage) from None


Value = TypeVar("Value")


class StateCodec(Protocol):
    """How a client's state becomes bytes for a store, and comes back."""

    def to_bytes(self, value: Any) -> bytes:
        """Return a state as bytes."""

    def from_bytes(self, data: bytes) -> Any:
        """Return the state that `to_bytes` wrote.

        Raises:
            ArgumentError: the bytes are damaged, or of another type.
            FormatError: they are of another version.
        """


def _from_numpy(value: object) -> Array:
    if isinstance(value, np.ndarray) and value.dtype == np.float64:
        return Array.from_numpy(value)
    raise TypeError(f"a {type(value).__name__} is not stored: only float64 arrays, and Python's own values.")


def _to_numpy(kind: object, read: object) -> FloatArray:
    return msgspec.convert(read, Array).to_numpy()


class Codec(Generic[Value]):
    """Writes and reads values of one type.

    Property (`tests/core/test_codec.py`): what is read gives the same bytes again. Bytes that no value gives
    are an error.

    Args:
        kind: type of the values, one that msgspec checks; float64 arrays in them are written as `Array`.
        name: name of the values; it goes before them and into errors.
        version: of their form.
        most: most bytes that are read.
    """

    def __init__(self, kind: Any, name: str, version: int, most: int = MAX_MESSAGE_BYTES) -> None:
        self.kind, self._name, self._version, self._most = kind, name, version, most
        self._decode = msgspec.msgpack.Decoder(kind, dec_hook=_to_numpy).decode
        self._head = msgspec.msgpack.Decoder(tuple[str, int, bytes]).decode
        self._encode = msgspec.msgpack.Encoder(enc_hook=_from_numpy).encode

    def to_bytes(self, value: Value) -> bytes:
        """Return a value as bytes."""
        return self._encode((self._name, self._version, self._encode(value)))

    def from_bytes(self, data: bytes) -> Value:
        """Return the value that `to_bytes` wrote.

        Raises:
            ArgumentError: the bytes are damaged, or of another type; the message quotes none of them.
            FormatError: they are of another version.
        """
        if len(data) > self._most:
            raise ArgumentError(f"{len(data)} bytes of a {self._name}; at most {self._most} are read.")
        try:
            name, version, body = self._head(data)
            if name == self._name and version != self._version:
                raise FormatError(
                    f"{name} of format {version} is not read: this privfed reads format {self._version}; "
                    "use the privfed that wrote it, or begin anew."
                )
            value: Value = self._decode(body)
            if self.to_bytes(value) == data:
                return value
        except FormatError:
            raise
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
        raise ArgumentError(f"these bytes are no {self._name}: they are damaged, or something else.")


def bound(tag: str, *parts: bytes | int) -> bytes:
    """Encode a tag and the values that it is bound to as one unambiguous byte string.

    Numbers take eight bytes; byte strings are prefixed with their length.
    """
    return b"".join(_pieces(tag, parts))


def _pieces(tag: str, parts: tuple[bytes | int, ...]) -> list[bytes]:
    pieces = [tag.encode().ljust(16, b"\0")]
    for part in parts:
        if isinstance(part, int):
            pieces.append(part.to_bytes(8, "big"))
        else:
            pieces += [len(part).to_bytes(8, "big"), part]
    return pieces


def digest(tag: str, *parts: bytes | int) -> bytes:
    """Return SHA-256 of `bound`, 32 bytes. Parts are not copied."""
    found = hashlib.sha256()
    for piece in _pieces(tag, parts):
        found.update(piece)
    return found.digest()


def asdict(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, as name -> value, in their order; values are not copied."""
    return {one.name: getattr(value, one.name) for one in fields(value)}


_ALIASES: tuple[Any, ...] = ()
if sys.version_info >= (3, 12):
    _ALIASES = (typing.TypeAliasType,)


@cache
def types_of(kind: Any) -> dict[str, Any]:
    """Return the declared types of a class, as name -> type: evaluated once, not for every message."""
    return {name: _without_aliases(hint) for name, hint in get_type_hints(kind).items()}


def _without_aliases(hint: Any) -> Any:
    """Return a type without aliases of PEP 695, which hide its class: numpy 2.5's `NDArray` is one."""
    origin, inner = get_origin(hint), tuple(map(_without_aliases, get_args(hint)))
    if isinstance(origin or hint, _ALIASES):
        meant = (origin or hint).__value__
        return _without_aliases(meant[inner] if inner else meant)
    if inner == get_args(hint):
        return hint
    return reduce(or_, inner) if origin in (Union, UnionType) else origin[inner]


def fits(value: object, hint: Any) -> bool:
    """Say whether a value is of a declared type, as strictly as a message's field."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        return isinstance(value, tuple) and all(fits(one, inner[0]) for one in value)
    if origin is tuple:
        return (
            isinstance(value, tuple)
            and len(value) == len(inner)
            and all(fits(one, kind) for one, kind in zip(value, inner, strict=True))
        )
    if hint is Any or hint is object or is_protocol(hint):
        # What is built here is of a registered class, and what is not built is plain.
        return True
    kind = NoneType if hint is None else origin or hint
    if kind is float:
        return type(value) in (int, float)
    if kind in (bool, int, str, NoneType):
        return type(value) is kind
    return callable(value) if not isinstance(kind, type) else isinstance(value, kind)


def is_protocol(hint: Any) -> bool:
    """Say whether a type is a protocol, which says what its values can do and not of which class they are."""
    return bool(vars(hint).get("_is_protocol", False)) if isinstance(hint, type) else False
