"""The algorithm that a configuration's text describes: its name and its parameters, for a client's policy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Described:
    """What runs, as a configuration's text says.

    Args:
        name: of the algorithm; of a text that is no description, the whole text.
        parameters: their values; None where the text is no description, so that nothing is known of them.
    """

    name: str
    parameters: Mapping[str, Any] | None = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> Described:
        """Return what a configuration's text says: a JSON object whose `algorithm` is a name."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return cls(text, None)
        if not isinstance(found, dict) or not isinstance(found.get("algorithm"), str):
            return cls(text, None)
        return cls(found.pop("algorithm"), found)


def named_start(init: Any) -> str:
    """Return how a policy lists an initialisation: its name, or "sha256:" and the hash of an array's JSON.

    Args:
        init: as a configuration's text has it: a name, or an array as nested lists.
    """
    if isinstance(init, str):
        return init
    return "sha256:" + hashlib.sha256(json.dumps(init).encode()).hexdigest()
