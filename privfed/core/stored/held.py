"""What a dataclass holds: its fields, by name. For code that writes or compares whole values."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def held(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, as name -> value, in their order; values are not copied."""
    return {one.name: getattr(value, one.name) for one in fields(value)}
