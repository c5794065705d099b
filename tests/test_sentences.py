"""No sentence of a docstring, a message, an option's help or a page has more than 30 words.

Quoted code is one word, and what stands in parentheses is none. A list's items, the cells of a table and the
parts around a colon or a semicolon are read by themselves, except in messages and help: these are read whole.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST = 30
LOGS = {"measurements", "decisions"}
"""Folders of pages that keep what was written when it was measured or decided."""

_WHOLE, _PARTS = re.compile(r"[.!?][\"')]*\s+"), re.compile(r"[.!?:;][\"')]*\s+")
_BEGINS = re.compile(r"[-*|#`]|\d+\.|[\w *,`]+:( |$)")


def too_long(text: str, ends: re.Pattern[str]) -> list[str]:
    """Return the sentences of a text with more words than a reader keeps in mind."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", text))
    found = ends.split(re.sub(r"\([^()]*\)", "", text))
    return [one for one in found if sum(any(c.isalpha() for c in word) for word in one.split()) > MOST]


def paragraphs(text: str) -> Iterator[str]:
    """Yield paragraphs, items of lists and cells of tables; lines in columns are none of these."""
    own: list[str] = []
    for line in [*map(str.strip, text.splitlines()), ""]:
        if not line or _BEGINS.match(line):
            yield " ".join(own)
            yield from line.split("|") if line.startswith("|") else ()
            own = [] if not line or line.startswith("|") else [re.sub(r"^([-*]|\d+\.) ", "", line)]
        elif not re.search(r"\S {3,}\S", line):
            own.append(line)


def words_in(node: ast.AST) -> str:
    """Return the text of a string in a syntax tree, with one word for each value in it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(words_in(one) if isinstance(one, ast.Constant) else "x" for one in node.values)
    if isinstance(node, ast.BinOp):
        return words_in(node.left) + words_in(node.right)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def said(tree: ast.AST) -> Iterator[str]:
    """Yield the sentences of a module that are too long."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            for one in paragraphs(words_in(node.value)):
                yield from too_long(one, _PARTS)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in node.exc.args:
                yield from too_long(words_in(argument), _WHOLE)
        elif isinstance(node, ast.keyword) and node.arg in ("help", "short_help", "text"):
            yield from too_long(words_in(node.value), _WHOLE)


@pytest.mark.parametrize("package", ["privfed", "protocols", "attacks"])
def test_docstrings_and_messages_are_short(package: str) -> None:
    modules = sorted((ROOT / package).rglob("*.py"))
    assert modules
    found = {path.name: long for path in modules if (long := list(said(ast.parse(path.read_text()))))}
    assert found == {}


def test_pages_are_short() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    read = [one for one in pages if LOGS.isdisjoint(one.parts) and one.name != "CHANGELOG.md"]
    assert len(read) > 20
    found = {path.name: long for path in read if (long := list(_long_on(path.read_text(encoding="utf-8"))))}
    assert found == {}


def _long_on(page: str) -> Iterator[str]:
    text = re.sub(r"```.*?```|<!--.*?-->", "", page, flags=re.DOTALL)
    for one in paragraphs("\n".join(line for line in text.splitlines() if not line.startswith("    "))):
        yield from too_long(one, _PARTS)


@pytest.mark.parametrize(
    ("text", "long"),
    [
        ("It says " + "a " * 29 + "b.", True),
        ("It says " + "a " * 14 + "b. It says " + "a " * 14 + "b.", False),
        ("It says `" + "a " * 40 + "` and (" + "b " * 40 + ") no more.", False),
    ],
)
def test_words_are_counted(text: str, long: bool) -> None:
    assert bool(too_long(text, _WHOLE)) == long
