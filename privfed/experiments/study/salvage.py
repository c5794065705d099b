"""Reads a study's file table by table, and reports what is wrong with tables that cannot be read."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from privfed.experiments.study.lines import Path as KeyPath
from privfed.experiments.study.located import Located, StudyError, Where
from privfed.experiments.study.study import (
    Algorithm,
    Attack,
    Data,
    Defence,
    Guarantee,
    Partition,
    Study,
    Sum,
    Want,
    Words,
)

_TABLES: dict[str, type[msgspec.Struct]] = {
    "data": Data,
    "partition": Partition,
    "algorithm": Algorithm,
    "sum": Sum,
    "privacy": Guarantee,
    "defence": Defence,
    "attack": Attack,
}
_OPEN = ("algorithm", "sum", "defence", "attack")
"""Tables that take parameters of something else beside their own keys."""

PLAIN_ALGORITHM: Words = {"local_iter": 1, "tol": 0.0, "max_iter": 4}
_FITTING: dict[str, dict[str, Any]] = {
    "data": {"source": "mixture", "low": -30.0, "high": 30.0, "public": 0.2},
    "partition": {"clients": 10},
    "algorithm": {"estimator": "DWFKMeans", "words": PLAIN_ALGORITHM},
    "sum": {"protocol": "plain"},
    "privacy": {},
    "defence": {"name": "none"},
    "attack": {"kind": "disaggregation"},
}


def fitting(axis: str) -> Any:
    """Return a table of an axis that is compatible with every other table of a study."""
    return msgspec.convert(_FITTING[axis], _TABLES[axis])


def salvaged(raw: dict[str, Any], where: Where) -> Located:
    """Return what can be read of a parsed file.

    Args:
        raw: the file, as `tomllib` parsed it.
        where: the file.
    """
    mistakes, broken = list[str](), set[KeyPath]()
    content = {name: _with_parameters_moved(name, value) for name, value in raw.items()}
    for axis, kind in _TABLES.items():
        for i, table in enumerate(_list_of_tables(content.get(axis))):
            problems = _problems(table, kind, (axis, i), where)
            if problems:
                content[axis][i] = _FITTING[axis]
                broken.add((axis, i))
            mistakes += problems
    if isinstance(content.get("want"), dict) and (
        wrong := _problems(content["want"], Want, ("want",), where)
    ):
        mistakes += wrong
        del content["want"]
    study = _top(content, where, mistakes, broken)
    return Located(study, where, tuple(mistakes), frozenset(broken))


def _list_of_tables(value: Any) -> list[dict[str, Any]]:
    tables = isinstance(value, list) and all(isinstance(table, dict) for table in value)
    return value if tables else []


def _with_parameters_moved(name: str, value: Any) -> Any:
    """Move the parameters of estimators, sums and attacks from beside a table's own keys into `words`."""
    if name not in _OPEN:
        return list(value) if isinstance(value, list) else value
    own = set(_TABLES[name].__struct_fields__) - {"words"}
    lifted = [
        {key: one for key, one in table.items() if key in own}
        | {"words": {key: one for key, one in table.items() if key not in own}}
        for table in _list_of_tables(value)
    ]
    return lifted or value


def _problems(table: dict[str, Any], kind: type[msgspec.Struct], path: KeyPath, where: Where) -> list[str]:
    """Return what is wrong with one table: first with every key by itself, then with keys together."""
    left, found = dict(table), list[str]()
    while (told := _first_problem(left, kind, path, where)) is not None:
        problem, key = told
        # A key that was removed because it was wrong is not reported as missing.
        found += [] if key in table and key not in left else [problem]
        if key not in left:
            break
        del left[key]
    return found


def _top(content: dict[str, Any], where: Where, mistakes: list[str], broken: set[KeyPath]) -> Study:
    """Return the study; top-level keys that are wrong or missing are replaced by ones that fit."""
    while (told := _first_problem(content, Study, (), where)) is not None:
        problem, key = told
        mistakes.append(problem)
        if key not in content and key not in Study.__struct_fields__:
            raise StudyError(mistakes)
        if key in _FITTING:
            content[key] = [_FITTING[key]]
            broken.add((key, 0))
        elif key in content:
            del content[key]
        else:
            content[key] = "study"
    return msgspec.convert(content, Study)


def _first_problem(
    content: dict[str, Any], kind: type[msgspec.Struct], path: KeyPath, where: Where
) -> tuple[str, str] | None:
    """Return the first problem with its line, and the key that it is about; None if there is none."""
    try:
        msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        problem, _, at = str(error).partition(" - at `$")
        inner = _path(at.rstrip("`"))
        problem, key = _reworded(problem, path, inner)
        return where.told(problem, (*path, *inner)), key
    return None


def _path(at: str) -> KeyPath:
    parts = re.findall(r"\[(\d+)\]|\[[^\]]*\]|\.?(\w+)", at)
    # A value in a table of free parameters has no name in msgspec's path.
    return tuple(
        int(number) if number else word for number, word in parts if number or word not in ("", "words")
    )


def _in_words(kind: str) -> str:
    known = {"array": "a list", "object": "a table", "int": "an integer", "float": "a number"}
    return {**known, "str": "text", "bool": "true or false"}.get(kind, kind)


def _reworded(problem: str, path: KeyPath, inner: KeyPath) -> tuple[str, str]:
    """Reword one of msgspec's messages for users; return it with the key that it is about."""
    field = re.search(r"(unknown|required) field `(\w+)`", problem)
    if field is not None:
        kind, name = field.groups()
        if kind == "unknown":
            return f"{name} is no key of {path[0] if path else 'a study'}.", name
        if path:
            return f"the key {name} is missing here.", name
        needed = "a name" if name == "name" else f"a table [[{name}]]"
        return f"a study needs {needed}.", name
    expected = re.fullmatch(r"Expected `(.*)`, got `(.*)`", problem)
    if expected and inner:
        wanted, got = (" or ".join(map(_in_words, kind.split(" | "))) for kind in expected.groups())
        problem = f"{inner[-1]} must be {wanted}, got {got}."
        if not path and len(inner) == 1 and expected.groups() == ("array", "object"):
            problem = f"{inner[0]} is a list of tables: write [[{inner[0]}]]."
    # A problem of several keys begins with one of them, but removing only that one would not solve it.
    first = re.match(r"\w*", problem)
    return problem, str(inner[0]) if inner else (first.group() if first and not path else "")
