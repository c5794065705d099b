"""No test passes because the loop with its only assertions never ran."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
KEEP_LENGTH = ("enumerate", "list", "reversed", "sorted", "tuple")


def never_empty(things: ast.expr) -> bool:
    """Return whether an expression is seen to have elements: a literal, a fixed range, `some(...)`."""
    if isinstance(things, ast.Tuple | ast.List | ast.Set):
        return any(not isinstance(one, ast.Starred) or never_empty(one.value) for one in things.elts)
    if isinstance(things, ast.Dict):
        return any(key is not None for key in things.keys)
    if isinstance(things, ast.Constant):
        return bool(things.value)
    return isinstance(things, ast.Call) and _call_never_empty(things)


def _call_never_empty(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "range":
        numbers = [one.value for one in call.args if isinstance(one, ast.Constant)]
        return len(numbers) == len(call.args) and len(range(*numbers)) > 0
    if name in ("items", "keys", "values") and isinstance(call.func, ast.Attribute):
        return never_empty(call.func.value)
    seen = [never_empty(one) for one in call.args]
    if name == "zip":
        return any(seen) if any(one.arg == "strict" for one in call.keywords) else all(seen)
    return name == "some" or (name in (*KEEP_LENGTH, "product") and bool(seen) and all(seen))


def _asserts(node: ast.AST) -> bool:
    """Return whether a node is itself an assertion, or a call of what is named as one."""
    if isinstance(node, ast.With):
        texts = [ast.unparse(one.context_expr) for one in node.items]
        return any(text.startswith(("pytest.raises", "pytest.warns")) for text in texts)
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return "assert" in name or name.startswith(("check", "fail"))
    return isinstance(node, ast.Assert)


def assertions(node: ast.AST, loops: tuple[ast.For, ...] = ()) -> Iterator[tuple[ast.For, ...]]:
    """Yield, for each assertion below a node, the loops around it that may be empty."""
    for child in ast.iter_child_nodes(node):
        if _asserts(child):
            yield loops
        around = (*loops, child) if isinstance(child, ast.For) and not never_empty(child.iter) else loops
        yield from assertions(child, around)


def of_file(file: Path) -> Iterator[tuple[str, tuple[ast.For, ...]]]:
    """Yield each test of a file with the loops around the assertion that is the surest to be reached."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found = list(assertions(node))
            if found:
                yield f"{file.relative_to(FOLDER)}:{node.lineno} {node.name}", min(found, key=len)


@pytest.mark.parametrize(
    "room", sorted({file.relative_to(FOLDER).parts[0] for file in FOLDER.rglob("test_*.py")})
)
def test_no_test_asserts_only_in_a_loop_that_may_be_empty(room: str) -> None:
    files = list(chain(FOLDER.glob(room), FOLDER.glob(f"{room}/**/test_*.py")))
    read = {name: loops for file in files if file.is_file() for name, loops in of_file(file)}
    doubtful = {name: ast.unparse(loops[0].iter) for name, loops in read.items() if loops}
    assert read and not doubtful, "write `for one in some(...)` (tests/some.py), or assert that there is one."


@pytest.mark.parametrize(
    ("test", "may_be_empty"),
    [
        ("for one in found():\n  assert one", True),
        ("for one in [1, 2]:\n  assert one", False),
        ("for one in [*found()]:\n  assert one", True),
        ("for one in range(0):\n  assert one", True),
        ("for one in range(3):\n  assert one", False),
        ("for one in enumerate(some(found())):\n  assert one", False),
        ("for one in zip(found(), 'abc', strict=True):\n  assert one", False),
        ("for one in zip(found(), 'abc'):\n  assert one", True),
        ("for a in 'ab':\n  for b in found():\n    assert a == b", True),
        ("for one in found():\n  with pytest.raises(ValueError):\n    call(one)", True),
        ("for one in found():\n  assert one\nassert one", False),
    ],
)
def test_loops_that_may_be_empty_are_seen(test: str, may_be_empty: bool) -> None:
    assert all(assertions(ast.parse(test))) == may_be_empty
