"""A study with the lines of its file, so that every mistake in it is reported with its line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from privfed.errors import ArgumentError
from privfed.experiments.study.lines import Path as KeyPath
from privfed.experiments.study.lines import line_of, lines_of
from privfed.experiments.study.study import Study


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


class Where:
    """Names places in the file of a study, for messages.

    Args:
        name: name of the file; empty for a study that was built in Python.
        text: text of the file.
    """

    def __init__(self, name: str = "", text: str = "") -> None:
        self.name, self.text = name, text
        self.lines = lines_of(text)

    def told(self, problem: str, *tables: KeyPath) -> str:
        """Return a problem with the line of the key that its text begins with, in one of some tables.

        If no table has that key, the line is that of the first table.
        """
        word = re.match(r"\w*", problem)
        keys = [(*path, word.group()) for path in tables] if word else []
        # A key that the file leaves at its default has no line.
        return self.at(problem, next((one for one in [*keys, *tables] if one in self.lines), tables[0]))

    def at(self, problem: str, *keys: KeyPath) -> str:
        """Return a problem with the line of the first key, and the lines of keys that conflict with it."""
        if not self.name:
            places = [".".join(map(str, path)) or "top" for path in keys]
            return f"study, {_first_with_others(places, '')}: {problem}"
        lines = dict.fromkeys(str(line_of(self.lines, path)) for path in keys)
        return f"{self.name}, {_first_with_others(list(lines), 'line ')}: {problem}"


def _first_with_others(places: list[str], word: str) -> str:
    first, *others = [word + place for place in places]
    return f"{first} (with {' and '.join(others)})" if others else first


@dataclass(frozen=True)
class Located:
    """Holds a study, the lines of its keys, and the mistakes that its file alone shows.

    Args:
        study: what could be read. A table that could not be read is replaced by one that fits everything,
            so that the other tables can still be checked.
        where: the file.
        mistakes: one line each.
        broken: paths of the tables that could not be read.
    """

    study: Study
    where: Where = field(default_factory=Where)
    mistakes: tuple[str, ...] = ()
    broken: frozenset[KeyPath] = frozenset()

    @property
    def text(self) -> str:
        """Text of the file; empty for a study that was built in Python."""
        return self.where.text


class Mistakes:
    """Collects mistakes, each of them once.

    Args:
        located: the study, whose own mistakes come first.
    """

    def __init__(self, located: Located) -> None:
        self._where = located.where
        self._kept = dict.fromkeys(located.mistakes)
        self.broken: set[KeyPath] = set(located.broken)

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(self, problem: str, *tables: KeyPath) -> None:
        """Add a problem of some tables, with the line of the key that its text begins with."""
        self._kept[self._where.told(problem, *tables)] = None

    def add_at(self, problem: str, keys: Iterable[KeyPath]) -> None:
        """Add a problem of some keys, unless one of their tables could not be read."""
        keys = list(keys)
        if not any(path[:2] in self.broken for path in keys):
            self._kept[self._where.at(problem, *keys)] = None

    def known(self, key: str, names: Iterable[str], known: Collection[str], path: KeyPath) -> None:
        """Add a problem for each name that is not known."""
        for name in names:
            if name not in known:
                listed = ", ".join(sorted(known)) or "none"
                self.add(f"{key} must be one of {listed}; got {name!r}.", path)

    def check(self) -> None:
        """Raise an error if there are any mistakes.

        Raises:
            StudyError: there are mistakes.
        """
        if self._kept:
            raise StudyError(list(self._kept))
