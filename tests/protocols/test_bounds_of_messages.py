"""All that is read from others has bounds: numbers of eight bytes, lists of a most length, a most size."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from privfed.core.asking.question import QuestionMessage
from privfed.core.stored.encoding import Codec, Message, decode
from privfed.core.values.numbers import MOST_ITEMS, Items, Number
from privfed.errors import ArgumentError, MessageError
from privfed.protocols.masked.masked_messages import PrepareRequest
from tests.modules import importable
from tests.some import some

OWN_DISK = (
    "agreement that a node joined",
    "groups of rows",
    "identity of a party",
    "kept value",
    "last reply of a node",
    "memor",
    "place in a program",
    "state of a client",
)
"""Beginnings of the names of what only its owner writes."""

OWN_PIPE = "privfed.nodes.flower.network"
"""Messages between two processes of the coordinator, over a socket that only its user can open."""


def roots() -> Iterator[Any]:
    for name in importable():
        importlib.import_module(name)
    pending = [Message]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if kind.__module__.startswith("privfed.") and kind.__module__ != OWN_PIPE:
            yield kind
    yield QuestionMessage
    codecs = [one for one in gc.get_objects() if type(one) is Codec]
    yield from (one.kind for one in codecs if not one._name.startswith(OWN_DISK))


def faults(kind: Any, where: str, seen: set[Any], meta: tuple[Any, ...] = ()) -> Iterator[str]:
    """Yield what of a type has no bound."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        yield from faults(inner[0], where, seen, (*meta, *inner[1:]))
    elif origin in (Union, UnionType):
        for one in inner:
            yield from faults(one, where, seen, meta)
    elif origin in (tuple, dict, list):
        fixed = origin is tuple and Ellipsis not in inner
        if not fixed and not any(0 <= (one.max_length or -1) <= MOST_ITEMS for one in meta):
            yield f"{where}: {kind} of any length"
        for one in inner:
            if one is not Ellipsis:
                yield from faults(one, where, seen)
    elif kind is int:
        lows = [one.ge for one in meta if one.ge is not None]
        highs = [one.le for one in meta if one.le is not None]
        if not (lows and highs and lows[0] >= -(2**63) and highs[0] < 2**63):
            yield f"{where}: a whole number without bounds"
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind not in seen:
            seen.add(kind)
            for name, hint in get_type_hints(kind, include_extras=True).items():
                yield from faults(hint, f"{kind.__module__}.{kind.__name__}.{name}", seen)
    elif kind in (object, Any) or kind is list or kind is dict or kind is tuple:
        yield f"{where}: anything"


def test_all_that_is_read_from_others_has_bounds() -> None:
    seen = set[Any]()
    found = [fault for root in some(list(roots())) for fault in faults(root, str(root), seen)]
    assert not found, "\n".join(found)
    assert {
        "Configuration",
        "Registry",
        "SampledSteps",
        "Listed",
        "SignedKey",
        "OpenedTotal",
        "Upload",
        "Of",
    } <= {one.__name__ for one in seen}


class _Free(msgspec.Struct):
    number: int
    items: tuple[Number, ...]
    fine: Items[Number] = ()


def test_the_walk_finds_what_has_none() -> None:
    number, items = faults(_Free, "", set())
    assert number.endswith("_Free.number: a whole number without bounds")
    assert "_Free.items: tuple" in items and items.endswith("of any length")


def test_longer_lists_and_larger_numbers_and_sizes_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    many = ("PrepareRequest", [("Slot", 0, 0)] * (MOST_ITEMS + 1))
    for wrong in (many, ("PrepareRequest", [("Slot", 2**63, 0)]), ("PrepareRequest", [("Slot", -1, 0)])):
        with pytest.raises(MessageError, match="well-formed"):
            decode(msgspec.msgpack.encode(wrong), PrepareRequest, sender="a", stage="prepare")
    with pytest.raises(ArgumentError, match="10 bytes of a card; at most 9 are read"):
        Codec(bytes, "card", 1, most=9).from_bytes(bytes(10))
    monkeypatch.setattr("privfed.core.stored.encoding.MAX_MESSAGE_BYTES", 9)
    with pytest.raises(MessageError, match="10 bytes, at most 9"):
        decode(bytes(10), PrepareRequest, sender="a", stage="prepare")
