"""Values as bytes: what is read gives the same bytes again, and what no value gives is an error."""

from __future__ import annotations

import sys
import typing
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.core.stored.encoding import Codec, Message, encode, ending_in, types_of
from privfed.errors import ArgumentError, FormatError


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    secret: bytes
    counts: dict[int, int] = {}


CODEC: Codec[Kept] = Codec(Kept, "kept value", 3)
VALUES = st.builds(
    Kept, st.binary(max_size=20), st.dictionaries(st.integers(0, 9), st.integers(0, 9), max_size=3)
)


class Sealed(Message, frozen=True):
    number: int
    box: bytes


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65535, 65536, 100_000])
def test_a_message_ending_in_bytes_is_what_encoding_it_whole_gives(size: int) -> None:
    box = bytes(range(256)) * (size // 256 + 1)
    made = ending_in(encode(Sealed(7, b"")), memoryview(box)[:size])
    assert made == encode(Sealed(7, box[:size]))
    # No room is left behind it.
    assert sys.getsizeof(made) == sys.getsizeof(b"") + len(made)


@given(VALUES)
def test_a_value_comes_back(value: Kept) -> None:
    assert CODEC.from_bytes(CODEC.to_bytes(value)) == value


@given(VALUES, st.data())
def test_altered_bytes_are_an_error_or_another_value(value: Kept, data: st.DataObject) -> None:
    good = CODEC.to_bytes(value)
    place = data.draw(st.integers(0, len(good) - 1))
    bad = good[:place] + bytes([good[place] ^ data.draw(st.integers(1, 255))]) + good[place + 1 :]
    try:
        read = CODEC.from_bytes(bad)
    except ArgumentError:
        return
    assert read != value and CODEC.to_bytes(read) == bad


@pytest.mark.parametrize("place", range(12))
def test_cut_bytes_are_an_error_that_quotes_nothing(place: int) -> None:
    data = CODEC.to_bytes(Kept(b"a secret of the client"))
    with pytest.raises(ArgumentError, match=r"^these bytes are no kept value: they are damaged, or"):
        CODEC.from_bytes(data[: place * len(data) // 12])


def test_another_kind_or_version_is_refused_by_name() -> None:
    data = CODEC.to_bytes(Kept(b""))
    with pytest.raises(ArgumentError, match="these bytes are no other value"):
        Codec(Kept, "other value", 3).from_bytes(data)
    with pytest.raises(FormatError, match="kept value of format 3 is not read: this privfed reads format 4"):
        Codec(Kept, "kept value", 4).from_bytes(data)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="aliases of PEP 695 are of Python 3.12")
def test_types_are_read_through_aliases() -> None:
    """numpy's NDArray is such an alias from 2.5 on, and any user's type may be."""
    alias, of = vars(typing)["TypeAliasType"], TypeVar("of")
    array = alias("array", np.ndarray[Any, np.dtype[of]], type_params=(of,))
    either = alias("either", tuple[array[np.float64], ...] | None)
    kind = type("Kind", (), {"__annotations__": {"one": array[np.float64], "more": either, "number": int}})
    plain = np.ndarray[Any, np.dtype[np.float64]]
    assert types_of(kind) == {"one": plain, "more": tuple[plain, ...] | None, "number": int}


@pytest.mark.parametrize(
    "value", [np.int64(3), np.float64(1.0), np.arange(3)], ids=lambda one: type(one).__name__
)
def test_a_codec_writes_nothing_that_it_would_read_as_another(value: Any) -> None:
    with pytest.raises(TypeError, match="is not stored"):
        Codec(Any, "values", 1).to_bytes(value)
