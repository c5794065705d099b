"""What classes of estimators are called in files: a registered name, or `module:Class` for users' own.

A name that was read from a file is compared with classes that are here already: nothing is ever imported
because a file names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from privfed.errors import ArgumentError, RunFolderError

_NAMES: dict[str, type] = {}
_NAME = re.compile(r"[\w.<>]+(:[\w.<>]+)?")


def register(*kinds: type) -> None:
    """Let files call classes by their plain names.

    Raises:
        ArgumentError: another class has the name.
    """
    for kind in kinds:
        known = _NAMES.setdefault(kind.__name__, kind)
        if known is not kind:
            raise ArgumentError(f"{kind} and {known} are both called {kind.__name__!r}; rename one.")


def stored_name(kind: type) -> str:
    """Return what files call a class."""
    ours = _NAMES.get(kind.__name__) is kind
    return kind.__name__ if ours else f"{kind.__module__}:{kind.__qualname__}"


def find(name: object, passed: Iterable[type], where: object) -> type:
    """Return the class that a file names.

    Args:
        name: as it stands in the file.
        passed: the caller's classes. One that moved to another module is still found by its last name.
        where: the file, for messages.

    Raises:
        RunFolderError: no such class is here, or several are passed.
        ValueError: it is no name.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("no name of a class")
    last = _last(name)
    same = [kind for kind in passed if _last(kind.__qualname__) == last]
    exact = [kind for kind in same if stored_name(kind) == name]
    found = exact or ([_NAMES[name]] if name in _NAMES else same)
    if len(found) == 1:
        return found[0]
    if found:
        raise RunFolderError(f"{where} holds a model of {name!r}; of {found} pass the one that it is.")
    raise RunFolderError(
        f"{where} holds a model of the class {name!r}, which is not privfed's own: pass the class itself, as "
        f"in privfed.load(path, estimators=[{last}]). None is imported because a file names it."
    )


def _last(name: str) -> str:
    return re.split(r"[.:]", name)[-1]
