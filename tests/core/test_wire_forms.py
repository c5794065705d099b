"""Forms of messages, questions and agreements change together with the number that parties compare.

Run as a script (`python -m tests.core.test_wire_forms`) it writes `wire_forms.txt` anew. Where a form that a
released version sends has another digest then, or is gone, `EQUAL["wire"]` in privfed/version.py rises too.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
from collections.abc import Iterator
from inspect import get_annotations
from pathlib import Path
from typing import Any

import msgspec

from privfed.core.asking import question
from privfed.core.stored.encoding import Message
from privfed.version import EQUAL
from tests.modules import importable

FILE = Path(__file__).with_name("wire_forms.txt")


def below(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield all subclasses of a class."""
    for one in kind.__subclasses__():
        yield one
        yield from below(one)


def form_of(kind: Any) -> str:
    """Return a digest of a struct's or dataclass's fields, with their types as they are written."""
    written = {name: text for one in reversed(kind.__mro__) for name, text in get_annotations(one).items()}
    told = [(name, str(written[name])) for name in fields_of(kind)]
    if issubclass(kind, msgspec.Struct):
        config = kind.__struct_config__
        told.append((str(config.tag), f"{config.array_like} {config.forbid_unknown_fields}"))
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def fields_of(kind: Any) -> tuple[str, ...]:
    """Return names of fields, in the order in which they are sent."""
    if issubclass(kind, msgspec.Struct):
        return tuple(kind.__struct_fields__)
    return tuple(one.name for one in dataclasses.fields(kind))


def forms() -> list[str]:
    """Return a line for each form that parties exchange."""
    places = set(importable())
    for one in places:
        importlib.import_module(one)
    # Two messages may have one name, in two protocols.
    sent = [(one.__name__, one) for one in below(Message) if one.__module__ in places]
    agreed = [
        (f"agreed {one.__name__}", one)
        for one in below(msgspec.Struct)
        if one.__module__ in places and one.__module__.startswith("privfed.core.agreed.")
    ]
    asked = [
        (f"question {name}", kind)
        for name, kind in question._REGISTRY.items()
        if kind.__module__ in places and dataclasses.is_dataclass(kind)
    ]
    return sorted({f"{name} {form_of(kind)}" for name, kind in (*sent, *agreed, *asked)})


def test_forms_change_with_the_number_that_parties_compare() -> None:
    number, *known = FILE.read_text().splitlines()
    now = forms()
    assert set(now) ^ set(known) == set(), "write the file anew, and see whether the number must rise"
    assert number == f"wire {EQUAL['wire']}"


def test_another_name_type_order_or_tag_is_another_form() -> None:
    one = msgspec.defstruct("One", [("value", int), ("more", int)])
    others = [
        msgspec.defstruct("One", [("other", int), ("more", int)]),
        msgspec.defstruct("One", [("value", bytes), ("more", int)]),
        msgspec.defstruct("One", [("more", int), ("value", int)]),
        msgspec.defstruct("One", [("value", int)]),
        msgspec.defstruct("One", [("value", int), ("more", int)], tag=True),
    ]
    assert len({form_of(other) for other in (one, *others)}) == 1 + len(others)


if __name__ == "__main__":
    FILE.write_text("\n".join([f"wire {EQUAL['wire']}", *forms()]) + "\n")
