"""A study and the lines of its file: every mistake in it is told with the line that it is about."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from privfed.errors import ArgumentError
from privfed.experiments.study.lines import Path as KeyPath
from privfed.experiments.study.lines import line_of, lines_of
from privfed.experiments.study.study import Study


class StudyError(ArgumentError):
    """A study has mistakes.

    Attributes:
        mistakes: one line each, in the order in which they were found.
    """

    def __init__(self, mistakes: Sequence[str]) -> None:
        self.mistakes = tuple(mistakes)
        more = len(self.mistakes) - 1
        rest = f" There are {more} more mistakes: 'privfed tradeoff --check' lists all." if more else ""
        super().__init__(self.mistakes[0] + rest)


class Where:
    """The file of a study, as messages name it.

    Args:
        name: of the file; empty for a study that was built in Python.
        text: of the file.
    """

    def __init__(self, name: str = "", text: str = "") -> None:
        self.name, self.text = name, text
        self.lines = lines_of(text)

    def told(self, problem: str, *tables: KeyPath) -> str:
        """Return a problem with the line of the key that it begins with, in one of some tables.

        Where no table has that key, it is the line of the first table.
        """
        word = re.match(r"\w*", problem)
        keys = [(*path, word.group()) for path in tables] if word else []
        # What a file leaves to its default has no line.
        return self.at(problem, next((one for one in [*keys, *tables] if one in self.lines), tables[0]))

    def at(self, problem: str, *keys: KeyPath) -> str:
        """Return a problem with the line of the first key, and those of the keys that it clashes with."""
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
    """A study, where its keys stand, and what is wrong with it as far as its file alone tells.

    Args:
        study: what could be read. In place of a table that could not there is one that fits everything, so
            that the other tables can be checked all the same.
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
    """Collects mistakes; each is kept once.

    Args:
        located: the study, whose own mistakes are the first.
    """

    def __init__(self, located: Located) -> None:
        self._where = located.where
        self._kept = dict.fromkeys(located.mistakes)
        self.broken: set[KeyPath] = set(located.broken)

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(self, problem: str, *tables: KeyPath) -> None:
        """Keep a problem of some tables, with the line of the key that it begins with."""
        self._kept[self._where.told(problem, *tables)] = None

    def add_at(self, problem: str, keys: Iterable[KeyPath]) -> None:
        """Keep a problem of some keys, unless one of their tables could not be read."""
        keys = list(keys)
        if not any(path[:2] in self.broken for path in keys):
            self._kept[self._where.at(problem, *keys)] = None

    def known(self, key: str, names: Iterable[str], known: Collection[str], path: KeyPath) -> None:
        """Keep each name that is not known."""
        for name in names:
            if name not in known:
                listed = ", ".join(sorted(known)) or "none"
                self.add(f"{key} must be one of {listed}; got {name!r}.", path)

    def check(self) -> None:
        """End here if there are any.

        Raises:
            StudyError: there are.
        """
        if self._kept:
            raise StudyError(list(self._kept))
