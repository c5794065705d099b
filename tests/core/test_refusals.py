"""Every code of a refusal says what to do about it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import privfed
import privfed.protocols
from privfed.errors import REMEDIES, RefusedError, remedied

ROOMS = [Path(one).parent for one in (privfed.__file__, privfed.protocols.__file__)]
SOURCE = sorted({path.resolve() for room in ROOMS for path in room.rglob("*.py")})


def constants(tree: ast.Module) -> Iterator[str]:
    """Yield the codes of a module: all texts in their form, and what is raised or sent as one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(
                "(policy|agreement|journal|request|start|totals|roster|setup):[a-z_]+", node.value
            ):
                yield node.value
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("PolicyError", "Refusal"):
            for one in node.args[:1]:
                if isinstance(one, ast.Constant):
                    yield str(one.value)
                elif isinstance(one, ast.JoinedStr):
                    # What follows is a client's position, or one of several words.
                    (first, *_) = one.values
                    yield f"{first.value}0" if isinstance(first, ast.Constant) else ast.unparse(one)


def codes() -> set[str]:
    return {code for path in SOURCE for code in constants(ast.parse(path.read_text(encoding="utf-8")))}


def test_every_refusal_has_a_remedy() -> None:
    found = codes()
    assert {"policy:noise", "policy:terms", "invitation", "box:0", "journal:0", "setup:again"} <= found
    assert not {code for code in found if remedied(code) not in REMEDIES}
    for code in found:
        assert REMEDIES[remedied(code)] in str(RefusedError({"a": code}, stage="collect"))
