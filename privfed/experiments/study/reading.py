"""Reads a study from TOML; what is wrong is told in one line, with the line of the file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from privfed.errors import ArgumentError
from privfed.experiments.study.lines import Path as KeyPath
from privfed.experiments.study.lines import line_of, lines_of
from privfed.experiments.study.study import Algorithm, Attack, Defence, Study, Sum


class Located:
    """A study, and where each of its keys stands.

    Args:
        study: the study.
        where: name of its file; empty for one built in Python.
        text: of the file; empty for one built in Python.
    """

    def __init__(self, study: Study, where: str = "", text: str = "") -> None:
        self.study, self.where, self.text = study, where, text
        self._lines = lines_of(text)

    def error(self, problem: object, *paths: KeyPath) -> ArgumentError:
        """Return an error that points at the key that `problem` begins with, in one of the tables `paths`.

        Where no table has that key, it points at the first table.
        """
        return _pointed(str(problem), self.where, self._lines, paths)


def _pointed(
    problem: str, where: str, lines: Mapping[KeyPath, int], paths: Iterable[KeyPath]
) -> ArgumentError:
    tables = list(paths)
    word = re.match(r"\w*", problem)
    keys = [(*path, word.group()) for path in tables] if word else []
    # What a file leaves to its default has no line.
    path = next((one for one in [*keys, *tables] if one in lines), tables[0])
    if where:
        return ArgumentError(f"{where}, line {line_of(dict(lines), path)}: {problem}")
    return ArgumentError(f"study, {'.'.join(map(str, path)) or 'top'}: {problem}")


_OPEN = {"algorithm": Algorithm, "sum": Sum, "defence": Defence, "attack": Attack}
"""Tables that take words of something else beside their own."""


def read_study(path: Path) -> Located:
    """Read a study from a TOML file.

    Raises:
        ArgumentError: it is no TOML, or a key is missing, unknown or wrong; the message names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise ArgumentError(
            f"{path} is no readable text file; name a study, or one of privfed's own."
        ) from None
    return parse_study(text, path.name)


def parse_study(text: str, where: str) -> Located:
    """Read a study from the text of a TOML file called `where`; raises as `read_study`."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at (?:line (\d+)|end of document)", str(error))
        line = found.group(1) if found and found.group(1) else len(text.splitlines())
        reason = str(error).split(" (at ")[0]
        raise ArgumentError(f"{where}, line {line}: this is no TOML: {reason}.") from None
    lines = lines_of(text)
    try:
        study = msgspec.convert(_lifted(raw), Study)
    except msgspec.ValidationError as error:
        problem, _, at = str(error).partition(" - at `$")
        path = _path(at.rstrip("`"))
        raise _pointed(*_reworded(problem, path, where, lines)) from None
    return Located(study, where, text)


def _lifted(raw: dict[str, Any]) -> dict[str, Any]:
    """Move the words of estimators, sums and attacks from beside a table's own keys into `words`."""
    lifted = dict(raw)
    for name, kind in _OPEN.items():
        if isinstance(raw.get(name), list) and all(isinstance(table, dict) for table in raw[name]):
            own = set(kind.__struct_fields__) - {"words"}
            lifted[name] = [
                {key: value for key, value in table.items() if key in own}
                | {"words": {key: value for key, value in table.items() if key not in own}}
                for table in raw[name]
            ]
    return lifted


def _path(at: str) -> KeyPath:
    parts = re.findall(r"\[(\d+)\]|\[[^\]]*\]|\.?(\w+)", at)
    # A value of a table of any words has no name there.
    return tuple(
        int(number) if number else word for number, word in parts if number or word not in ("", "words")
    )


def _in_words(kind: str) -> str:
    known = {"array": "a list", "object": "a table", "int": "an integer", "float": "a number"}
    return {**known, "str": "text", "bool": "true or false"}.get(kind, kind)


def _reworded(
    problem: str, path: KeyPath, where: str, lines: dict[KeyPath, int]
) -> tuple[str, str, dict[KeyPath, int], list[KeyPath]]:
    """Put msgspec's messages into this project's words, and find what they are about."""
    key = re.search(r"(unknown|required) field `(\w+)`", problem)
    if key is None:
        expected = re.fullmatch(r"Expected `(.*)`, got `(.*)`", problem)
        if expected and path:
            wanted, got = (" or ".join(map(_in_words, kind.split(" | "))) for kind in expected.groups())
            problem = f"{path[-1]} must be {wanted}, got {got}."
            if len(path) == 1 and expected.groups() == ("array", "object"):
                problem = f"{path[-1]} is a list of tables: write [[{path[-1]}]]."
        return problem, where, lines, [path]
    kind, name = key.groups()
    if kind == "unknown":
        return f"{name} is no key of {path[0] if path else 'a study'}.", where, lines, [path]
    # A table that is missing has no line: the last line is where it could be written.
    if path:
        return f"the key {name} is missing here.", where, lines, [path]
    needed = "a name" if name == "name" else f"a table [[{name}]]"
    return f"a study needs {needed}.", where, lines, [path]
