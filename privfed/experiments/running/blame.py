"""Finds the keys of a study that a mistake is about: those whose change removes it.

An error of an estimator or a secure sum does not know the study's file, and if two tables conflict, it names
at most one of them. So each key of a configuration that cannot run is changed separately to a value that
fits; the keys whose change removes the mistake are reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from privfed.core.values.guarantee import Mechanism, Neighbours, Noise, Unit
from privfed.experiments.study.cells import Setup
from privfed.experiments.study.lines import Path as KeyPath
from privfed.experiments.study.salvage import PLAIN_ALGORITHM
from privfed.experiments.study.study import Guarantee, Partition, Study
from privfed.protocols.registry import SECURE_SUMS

Fails = Callable[[Setup], str | None]
"""Tries a configuration up to a fit's first question; returns what is wrong with it, or None."""

_Tried = tuple[KeyPath, Setup, str | None]
"""A key, the configuration in which it is changed, and what is wrong with that configuration, or None."""

MOST = 20
"""Most mistakes that are looked for in one configuration."""

_FITTING_CLIENTS = 10


@dataclass(frozen=True)
class Fault:
    """Describes a mistake of a configuration.

    Args:
        problem: what is wrong.
        keys: the keys that it is about, most relevant first.
    """

    problem: str
    keys: tuple[KeyPath, ...]


def faults(study: Study, setup: Setup, tables: Sequence[KeyPath], fails: Fails) -> Iterator[Fault]:
    """Yield every mistake of a configuration; after each, the search goes on without it.

    Args:
        study: the study.
        setup: the configuration.
        tables: tables of the study that the configuration comes from.
        fails: tries a configuration.
    """
    problem = fails(setup)
    for _ in range(MOST):
        if problem is None:
            return
        changes = _changes(study, setup, tables)
        tried = [(_key(key, problem), changed, fails(changed)) for key, changed in changes]
        mended = _helpful(tried, problem)
        if not mended:
            # No change of another table helps, so the data is the cause.
            yield Fault(problem, tuple(path for path in tables if path[0] == "data"))
            return
        yield Fault(problem, _foremost([key for key, _, _ in mended], problem))
        # Go on with the smallest change that removes this mistake; another may appear only then.
        _, setup, problem = min(mended, key=lambda one: _is_main(one[0]))


def _helpful(tried: list[_Tried], problem: str) -> list[_Tried]:
    """Return the changes that remove a problem: no problem is left with them, or only another one."""
    well = [one for one in tried if one[2] is None]
    # If no single key removes all problems, another mistake may be hidden behind this one.
    return (
        well if any(not _is_main(key) for key, _, _ in well) else [one for one in tried if one[2] != problem]
    )


def _changes(study: Study, setup: Setup, tables: Sequence[KeyPath]) -> Iterator[tuple[KeyPath, Setup]]:
    """Yield a key, or a table, with the configuration in which it is changed to a value that fits."""
    where = {str(path[0]): path for path in tables}
    yield from _changed_parameters(study, setup, where)
    yield where["algorithm"], _with(setup, estimator="DWFKMeans", words=dict(PLAIN_ALGORITHM))
    privacy = setup.privacy
    if privacy is not None:
        usual = {
            "noise": Noise.DISTRIBUTED,
            "mechanism": Mechanism.GAUSSIAN,
            "unit": Unit.RECORD,
            "neighbours": Neighbours.ADD_REMOVE,
        }
        for key, value in usual.items():
            if getattr(privacy, key) != value:
                yield (*where["privacy"], key), _with(setup, privacy=_with(privacy, **{key: value}))
        yield where["privacy"], _with(setup, privacy=None)
    yield where["partition"], _with(setup, partition=Partition(clients=_FITTING_CLIENTS))
    for word in setup.protocol_words:
        rest = {name: value for name, value in setup.protocol_words.items() if name != word}
        yield (*where["sum"], word), _with(setup, protocol_words=rest)
    for name in SECURE_SUMS:
        if name != setup.protocol:
            yield where["sum"], _with(setup, protocol=name, protocol_words={})


def _changed_parameters(
    study: Study, setup: Setup, where: dict[str, KeyPath]
) -> Iterator[tuple[KeyPath, Setup]]:
    """Yield each parameter of the estimator, with the configuration in which it has a value that fits."""
    algorithm, defence = study.algorithm[int(where["algorithm"][1])], study.defence[int(where["defence"][1])]
    for word in setup.words:
        rest = {name: value for name, value in setup.words.items() if name != word}
        if word in PLAIN_ALGORITHM:
            rest[word] = PLAIN_ALGORITHM[word]
        table = where["defence"] if word in defence.words else where["algorithm"]
        grid = ("grid",) if word in algorithm.grid and word not in defence.words else ()
        yield (*table, *grid, word), _with(setup, words=rest)


def _with(one: Any, **changed: object) -> Any:
    return msgspec.structs.replace(one, **changed)


_MAIN_KEY = {"algorithm": "estimator", "privacy": "epsilon", "partition": "clients", "sum": "protocol"}
_FIELDS = {"privacy": Guarantee.__struct_fields__, "partition": Partition.__struct_fields__}
_ORDER = ("defence", "algorithm", "privacy", "partition", "sum")


def _key(path: KeyPath, problem: str) -> KeyPath:
    """Return the key of a table that a problem names, or the table's main key; a key is returned as it is."""
    axis, words = str(path[0]), re.findall(r"\w+", problem)
    # Problems of a guarantee also name keys as remedies, so only the first word is used.
    words = words if axis == "partition" else words[:1]
    named = [word for word in words if word in _FIELDS.get(axis, ())]
    return path if len(path) > 2 else (*path, next(iter(named), _MAIN_KEY[axis]))


def _foremost(keys: Sequence[KeyPath], problem: str) -> tuple[KeyPath, ...]:
    """Return the relevant keys, the one that a problem names first; main keys only if no others are left."""
    word = re.match(r"\w*", problem)
    own = {"algorithm" if path[0] == "defence" else path[0] for path in keys if not _is_main(path)}
    told = [path for path in keys if not (_is_main(path) and path[0] in own)]
    order = sorted(told, key=lambda path: (not word or path[-1] != word.group(), _ORDER.index(str(path[0]))))
    return tuple(dict.fromkeys(order))


def _is_main(path: KeyPath) -> bool:
    return _MAIN_KEY.get(str(path[0])) == path[-1]
