"""Values that are stored or handed over as bytes: named, with the version of their form, strictly typed.

Nothing is ever pickled, and what is read back is checked as a message is.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

import msgspec

from privfed.errors import ArgumentError, FormatError

Value = TypeVar("Value")


class StateCodec(Protocol):
    """How a client's state becomes bytes for a store, and comes back."""

    def to_bytes(self, value: Any) -> bytes:
        """Return a state as bytes."""

    def from_bytes(self, data: bytes) -> Any:
        """Return the state that `to_bytes` wrote.

        Raises:
            ArgumentError: the bytes are damaged, or of another kind.
            FormatError: they are of another version.
        """


class Codec(Generic[Value]):
    """Writes and reads values of one type.

    Law (`tests/core/test_codec.py`): what is read gives the same bytes again, and bytes that no value gives
    are an error.

    Args:
        kind: type of the values, one that msgspec checks.
        name: what the values are, in words; it goes before them and into errors.
        version: of their form.
    """

    def __init__(self, kind: Any, name: str, version: int) -> None:
        self._name, self._version = name, version
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._head = msgspec.msgpack.Decoder(tuple[str, int, bytes]).decode
        self._encode = msgspec.msgpack.Encoder().encode

    def to_bytes(self, value: Value) -> bytes:
        """Return a value as bytes."""
        return self._encode((self._name, self._version, self._encode(value)))

    def from_bytes(self, data: bytes) -> Value:
        """Return the value that `to_bytes` wrote.

        Raises:
            ArgumentError: the bytes are damaged, or of another kind. What they hold is not quoted.
            FormatError: they are of another version.
        """
        try:
            name, version, body = self._head(data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise self._damaged() from None
        if name != self._name:
            raise self._damaged()
        if version != self._version:
            raise FormatError(
                f"{self._name} of format {version} is not read: this privfed reads format {self._version}; "
                "use the privfed that wrote it, or begin anew."
            )
        try:
            value: Value = self._decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise self._damaged() from None
        if self.to_bytes(value) != data:
            raise self._damaged()
        return value

    def _damaged(self) -> ArgumentError:
        return ArgumentError(f"these bytes are no {self._name}: they are damaged, or something else.")
