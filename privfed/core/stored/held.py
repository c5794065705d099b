"""What a dataclass holds: its fields, by name. For code that writes or compares whole values."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any, get_type_hints


def held(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, as name -> value, in their order; values are not copied."""
    return {one.name: getattr(value, one.name) for one in fields(value)}


@cache
def types_of(kind: Any) -> dict[str, Any]:
    """Return the declared types of a class, as name -> type: evaluated once, not for every message."""
    return get_type_hints(kind)
