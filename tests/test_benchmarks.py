"""Benchmarks and examples name what exists: one died at its first line, beside figures that said "ok"."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = {"privfed", "protocols", "attacks", "benchmarks", "examples", "tests"}


def wanted(path: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the modules of this project that a file imports, each with a name that it takes from there."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((one.name, None) for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((node.module, one.name) for one in node.names)


def exists(module: str, name: str | None) -> bool:
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Without an extra its modules cannot be looked at.
        return (error.name or "").partition(".")[0] not in OURS
    if name is None or hasattr(found, name):
        return True
    try:
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError as error:
        return (error.name or "").partition(".")[0] not in OURS
    return True


@pytest.mark.parametrize(
    "path",
    [
        one.relative_to(ROOT)
        for folder in ("benchmarks", "examples")
        for one in sorted((ROOT / folder).rglob("*.py"))
    ],
    ids=str,
)
def test_what_a_program_imports_is_there(path: Path) -> None:
    asked = {one for one in wanted(ROOT / path) if one[0].partition(".")[0] in OURS}
    assert not [one for one in sorted(asked, key=str) if not exists(*one)]


def test_a_missing_name_is_seen() -> None:
    assert exists("privfed.metrics", "stability") and not exists("privfed.metrics", "no_such_name")
    assert not exists("privfed.no_such_module", None)
