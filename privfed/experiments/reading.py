"""Reads a study from TOML, and names the line of every mistake in it.

`tomllib` gives lines only for syntax errors. Here a valid text is divided into statements: the shortest
runs of lines that are TOML by themselves.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from privfed.errors import ArgumentError, PrivFedError
from privfed.experiments.study import Algorithm, Attack, Data, Defence, Guarantee, Partition, Study, Sum, Want

KeyPath = tuple[str | int, ...]

TABLES: dict[str, type[msgspec.Struct]] = {
    "data": Data,
    "partition": Partition,
    "algorithm": Algorithm,
    "sum": Sum,
    "privacy": Guarantee,
    "defence": Defence,
    "attack": Attack,
}


class StudyError(ArgumentError):
    """Signals that a study has mistakes.

    Attributes:
        mistakes: one line each, in the order in which they were found.
    """

    def __init__(self, mistakes: Sequence[str]) -> None:
        self.mistakes = tuple(mistakes)
        more = len(self.mistakes) - 1
        rest = f" There are {more} more mistakes: 'privfed tradeoff --check' lists all." if more else ""
        super().__init__(self.mistakes[0] + rest)


@dataclass(frozen=True)
class StudyFile:
    """Holds a study and the file that it was read from.

    Args:
        study: the study.
        name: name of the file; empty for a study that was built in Python.
        text: text of the file.
    """

    study: Study
    name: str = ""
    text: str = ""


def read_study(path: Path) -> StudyFile:
    """Read a study from a TOML file.

    Raises:
        ArgumentError: the file cannot be read, or is not TOML; the message names the line.
        StudyError: a key is unknown or missing, or a value has another type or is out of its bounds.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ArgumentError(f"{path}, line {line}, is not UTF-8 text; save the study as UTF-8.") from None
    except OSError as error:
        raise ArgumentError(
            f"{path} cannot be read ({error.strerror}); name a study's file, or one of privfed's own."
        ) from None
    return parse_study(text, path.name)


def parse_study(text: str, name: str) -> StudyFile:
    """Read a study from the text of a TOML file called `name`; raises as `read_study`."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at (?:line (\d+)|end of document)", str(error))
        line = found.group(1) if found and found.group(1) else len(text.splitlines())
        reason = str(error).split(" (at ")[0]
        raise StudyError([f"{name}, line {line}: this is no TOML: {reason}."]) from None
    mistakes = Mistakes(name, text)
    for axis, kind in TABLES.items():
        tables = found if isinstance(found := raw.get(axis), list) else []
        for i, table in enumerate(tables):
            if isinstance(table, dict):
                tables[i] = _with_parameters_moved(table, kind)
                mistakes.convert(tables[i], kind, (axis, i))
    study = mistakes.convert(raw, Study)
    mistakes.check()
    return StudyFile(study, name, text)


def _with_parameters_moved(table: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Move all keys that are not a table's own into its `parameters`, if it has these."""
    own = set(kind.__struct_fields__) - {"parameters"}
    if len(own) == len(kind.__struct_fields__):
        return dict(table)
    parameters = {key: value for key, value in table.items() if key not in own}
    return {key: value for key, value in table.items() if key in own} | {"parameters": parameters}


class Mistakes:
    """Collects the mistakes of a study, each of them once and with its line.

    Args:
        name: name of the file; empty for a study that was built in Python.
        text: text of the file.
    """

    def __init__(self, name: str, text: str) -> None:
        self._name, self._lines = name, lines_of(text)
        self._found: dict[tuple[str, str], str] = {}

    def add(self, problem: str, *places: KeyPath, configuration: str = "") -> None:
        """Add a problem of some tables or keys.

        Its line is that of the key that its text begins with. Otherwise it has the lines of all keys that its
        text names ("clients" also names `clients_per_round`), or the line of the last place if it names none.

        Args:
            problem: what is wrong.
            places: paths of the tables or keys that it may be about.
            configuration: names of the tables that do not fit together, if they are several.
        """
        first, *rest = re.findall(r"\w+", problem)
        keys = [path for path in self._lines if any(_is_key(path, table) for table in places)]
        keys.sort(key=lambda path: [path[: len(table)] == table for table in places].index(True))
        # "Name" is a word that messages use of other things too.
        words = [first, *(word for word in rest if word != "name")]
        named = [path for word in words for path in keys if f"{path[-1]}_".startswith(f"{word}_")]
        if named and named[0][-1] == first:
            named, configuration = named[:1], ""
        self.add_at(problem, named or places[-1:], configuration)

    def add_at(self, problem: str, paths: Sequence[KeyPath], configuration: str = "") -> None:
        """Add a problem with the lines of all paths; the other arguments are as of `add`."""
        where = f"study, {'.'.join(map(str, paths[0])) or 'top'}"
        if self._name:
            first, *others = dict.fromkeys(f"line {line_of(self._lines, path)}" for path in paths)
            where = f"{self._name}, {first}" + (f" (with {' and '.join(others)})" if others else "")
        said = f"{problem} The configuration is {configuration}." if configuration else problem
        self._found.setdefault((problem, where), f"{where}: {said}")

    @contextmanager
    def of(self, *places: KeyPath, configuration: str = "") -> Iterator[None]:
        """Add what the block raises as a problem of some places; arguments as of `add`."""
        try:
            yield
        except PrivFedError as error:
            self.add(str(error), *places, configuration=configuration)

    def known(self, key: str, names: Iterable[str], known: Collection[str], table: KeyPath) -> None:
        """Add a problem for each name that is not known."""
        for name in names:
            if name not in known:
                listed = ", ".join(sorted(known)) or "none"
                self.add(f"{key} must be one of {listed}; got {name!r}.", table)

    def convert(self, raw: Any, kind: type[msgspec.Struct], table: KeyPath = ()) -> Any:
        """Return a table as a structure, or None after adding what is wrong with it."""
        try:
            return msgspec.convert(raw, kind)
        except msgspec.ValidationError as error:
            problem, _, at = str(error).partition(" - at `$")
        # A value in a table of parameters has no name in msgspec's path.
        parts = re.findall(r"\[(\d+)\]|\.(\w+)", at.replace(".parameters", "").partition("[...]")[0])
        inner = tuple(int(number) if number else word for number, word in parts)
        field = re.search(r"field `(\w+)`", problem)
        if field is not None:
            *_, axis = ("a study", *(part for part in (*table, *inner) if isinstance(part, str)))
            fields = (TABLES | {"want": Want}).get(axis, Study).__struct_fields__
            known = ", ".join(name for name in fields if name != "parameters")
            self.add(f"{problem}; {axis} takes {known}.", (*table, *inner, field.group(1)))
            return None
        key = next((part for part in reversed(inner) if isinstance(part, str)), "")
        key = "a parameter" if ".parameters" in at else key
        if problem.startswith("Expected") and key:
            value = "" if "[...]" in at else f"; it is {_value(raw, inner)}"
            problem = f"{key}: {problem}{value}{f'; write [[{key}]]' if key in TABLES else ''}."
        self.add(problem, (*table, *inner))
        return None

    def check(self) -> None:
        """Raise an error if there are any mistakes.

        Raises:
            StudyError: there are mistakes.
        """
        if self._found:
            raise StudyError(list(self._found.values()))


def _is_key(path: KeyPath, table: KeyPath) -> bool:
    """Return whether a path is a key of a table, or of the table's `grid`."""
    inside = path[: len(table)] == table and path[len(table) : -1] in ((), ("grid",))
    return inside and isinstance(path[-1], str)


def _value(raw: Any, path: KeyPath) -> str:
    for part in path:
        raw = raw[part]
    return "a table" if isinstance(raw, dict) else repr(raw)


def lines_of(text: str) -> dict[KeyPath, int]:
    """Return the line, from 1, of each table and each key of a valid TOML text.

    A path consists of names of tables and keys, and of positions in arrays of tables, from 0. Keys inside a
    value (an inline table, an array) have the line on which the statement begins.
    """
    lines: dict[KeyPath, int] = {}
    lengths: dict[KeyPath, int] = {}
    table: KeyPath = ()
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


def line_of(lines: dict[KeyPath, int], path: KeyPath) -> int:
    """Return the line of a path, or of the innermost table that contains it; 1 if there is none."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    began, statement = 1, ""
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if not statement:
            began = number
        statement += line
        try:
            found = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        if found:
            yield began, statement
        statement = ""


def _header(parsed: dict[str, Any], lengths: dict[KeyPath, int]) -> KeyPath:
    """Return the path of a table's header; `lengths` counts the tables of each array."""
    path: KeyPath = ()
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


def _paths(parsed: dict[str, Any]) -> Iterator[KeyPath]:
    for name, value in parsed.items():
        yield (name,)
        if isinstance(value, dict):
            yield from ((name, *inner) for inner in _paths(value))
