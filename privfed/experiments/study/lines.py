"""Finds the line of each key in a TOML text, so that an error can name it.

`tomllib` gives lines only for syntax errors. Here a valid text is divided into statements: the shortest
runs of lines that are TOML by themselves.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]


def lines_of(text: str) -> dict[Path, int]:
    """Return the line, from 1, of each table and each key of a valid TOML text.

    A path consists of names of tables and keys, and of positions in arrays of tables, from 0. Keys inside a
    value (an inline table, an array) have the line on which the statement begins.
    """
    lines: dict[Path, int] = {}
    lengths: dict[Path, int] = {}
    table: Path = ()
    for number, statement in _statements(text):
        if statement.lstrip().startswith("["):
            table = _header(tomllib.loads(statement), lengths)
            lines[table] = number
            # The array itself gets the line of its first table.
            lines.setdefault(table[:-1] if isinstance(table[-1], int) else table, number)
        else:
            for path in _paths(tomllib.loads(statement)):
                lines[table + path] = number
    return lines


def line_of(lines: dict[Path, int], path: Path) -> int:
    """Return the line of a path, or of the innermost table that contains it; 1 if there is none."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    began, held = 1, ""
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if not held:
            began = number
        held += line
        try:
            found = tomllib.loads(held)
        except tomllib.TOMLDecodeError:
            continue
        if found:
            yield began, held
        held = ""


def _header(parsed: dict[str, Any], lengths: dict[Path, int]) -> Path:
    """Return the path of a table's header; `lengths` counts the tables of each array."""
    path: Path = ()
    while parsed:
        ((name, inner),) = parsed.items()
        path += (name,)
        if isinstance(inner, list):
            lengths[path] = lengths.get(path, 0) + 1
            inner = inner[0]
        if path in lengths:
            path += (lengths[path] - 1,)
        parsed = inner
    return path


def _paths(parsed: dict[str, Any]) -> Iterator[Path]:
    for name, value in parsed.items():
        yield (name,)
        if isinstance(value, dict):
            yield from ((name, *inner) for inner in _paths(value))
