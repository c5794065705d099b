"""Reads a study from TOML, and says of every mistake in which table, and at which key, it is."""

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
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(
            f"{path} cannot be read as UTF-8 text ({error}); name a study's file, or one of privfed's own."
        ) from None
    return parse_study(text, path.name)


def parse_study(text: str, name: str) -> StudyFile:
    """Read a study from the text of a TOML file called `name`; raises as `read_study`."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = str(error).replace("at end of document", f"at line {len(text.splitlines())}")
        raise StudyError([f"{name} is no TOML: {where}."]) from None
    mistakes = Mistakes(name)
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
    """Collects the mistakes of a study, each of them once and with its place.

    Args:
        name: name of the file; empty for a study that was built in Python.
    """

    def __init__(self, name: str) -> None:
        self._name = name or "study"
        self._found: dict[tuple[str, str], str] = {}

    def add(self, problem: str, *places: KeyPath, configuration: str = "") -> None:
        """Add a problem.

        Args:
            problem: what is wrong.
            places: paths of the tables or keys that it is about.
            configuration: names of the tables that do not fit together, if they are several.
        """
        where = " and ".join(filter(None, map(_written, places)))
        said = f"{problem} The configuration is {configuration}." if configuration else problem
        self._found.setdefault((problem, where), f"{self._name}{', ' * bool(where)}{where}: {said}")

    @contextmanager
    def of(self, *places: KeyPath, configuration: str = "") -> Iterator[None]:
        """Add what the block raises as a problem of some places; arguments as of `add`."""
        try:
            yield
        except PrivFedError as error:
            self.add(str(error), *places, configuration=configuration)

    def known(self, key: str, names: Iterable[str], known: Collection[str], table: KeyPath) -> None:
        """Add a problem for each name that is not known."""
        listed = ", ".join(sorted(known)) or "none"
        for name in (one for one in names if one not in known):
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
            key = field.group(1)
            belongs = [f"[[{name}]]" for name, own in TABLES.items() if key in own.__struct_fields__]
            if "unknown" in problem and belongs and not (*table, *inner):
                problem += f"; write it in {' or '.join(belongs)}"
            self.add(f"{problem}; {axis} takes {known}.", (*table, *inner, key))
            return None
        key = next((part for part in reversed(inner) if isinstance(part, str)), "")
        if problem.startswith("Expected"):
            value = "" if "[...]" in at else f"; it is {_value(raw, inner)}"
            problem = f"{problem}{value}{f'; write [[{key}]]' if key in TABLES else ''}."
        self.add(problem, (*table, *inner))
        return None

    def check(self) -> None:
        """Raise an error if there are any mistakes.

        Raises:
            StudyError: there are mistakes.
        """
        if self._found:
            raise StudyError(list(self._found.values()))


def _written(path: KeyPath) -> str:
    """Return a path as people read it: tables of an array are counted from 1."""
    parts = (f" {one + 1}" if isinstance(one, int) else f", {one}" for one in path)
    return "".join(parts).removeprefix(", ")


def _value(raw: Any, path: KeyPath) -> str:
    for part in path:
        raw = raw[part]
    return "a table" if isinstance(raw, dict) else repr(raw)
