"""Registries of what users may add, by name: estimators, secure sums, attacks, partitions and others.

An entry has a registered name: one of privfed's own, one that an installed package declares (as an entry
point of the registry's group), or one that was added in Python. `resolve` also imports "module:Name"; it is
only for text that a person wrote on this machine (a command line, a study file). Names from a run folder, a
saved model, a message or an agreement go through `find`, which never imports a module that they name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import FunctionType
from typing import Generic, TypeVar

from privfed.errors import ArgumentError

Thing = TypeVar("Thing")


def imported(where: str) -> object:
    """Return the object that "module:Name" names; the working directory is searched last for the module.

    Raises:
        ArgumentError: no such module, or nothing in it has this name.
    """
    module, _, name = where.partition(":")
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    try:
        found: object = import_module(module)
        for part in name.split("."):
            found = vars(found)[part]
    except (ImportError, KeyError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"{where!r} cannot be imported ({type(error).__name__}: {error}); write module:Name of a module "
            "in this directory or on PYTHONPATH, and a name that stands in it."
        ) from None
    return found


class Registry(Generic[Thing]):
    """Named objects of one kind. Those of privfed and of installed packages are imported when first used.

    Args:
        kind: what it holds, in a word for messages, such as "estimator".
        group: group of the entry points by which installed packages add to it, such as "privfed.estimators".
        own: name -> location of privfed's own object, as "module:Name".
        also: another word for a name -> the name; such a word is understood, but never listed.
    """

    def __init__(
        self, kind: str, group: str, own: Mapping[str, str], also: Mapping[str, str] | None = None
    ) -> None:
        self.kind, self.group = kind, group
        self._places, self._also = dict(own), dict(also or {})
        self._things: dict[str, Thing] = {}

    @cached_property
    def _declared(self) -> Mapping[str, EntryPoint]:
        """Entry points of installed packages, by name.

        Raises:
            ArgumentError: two packages declare the same name, or one declares a name of privfed's own.
        """
        found: dict[str, EntryPoint] = {}
        for one in entry_points(group=self.group):
            own = self._places.get(self.canonical(one.name))
            other = own or (found[one.name].value if one.name in found else None)
            if other is not None and other != one.value:
                raise self._collision(one.name, other, one.value)
            found[one.name] = one
        return found

    def _collision(self, name: str, one: object, other: object) -> ArgumentError:
        return ArgumentError(
            f"two things are registered as {self.kind} {name!r}: {one} and {other}; rename one of them."
        )

    def add(self, name: str, thing: Thing) -> None:
        """Register an object in this process; registering the same object again changes nothing.

        Raises:
            ArgumentError: another object has the name.
        """
        if name in self and self.find(name) is not thing:
            raise self._collision(name, self.find(name), thing)
        self._things[self.canonical(name)] = thing

    def canonical(self, word: str) -> str:
        """Return the name that a word stands for: what it is called in files and reports."""
        return self._also.get(word, word)

    def names(self) -> tuple[str, ...]:
        """Return all names: privfed's own first, then those of packages, then those added here."""
        return tuple(dict.fromkeys((*self._places, *sorted(self._declared), *self._things)))

    def added(self) -> tuple[str, ...]:
        """Return the names that are not privfed's own."""
        return tuple(name for name in self.names() if name not in self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        name = self.canonical(name) if isinstance(name, str) else name
        return name in self._things or name in self._places or name in self._declared

    def find(self, name: object) -> Thing:
        """Return the object with a registered name.

        Raises:
            ArgumentError: nothing has this name.
        """
        if not isinstance(name, str) or name not in self:
            raise ArgumentError(f"{self.kind} must be one of {', '.join(self.names())}; got {name!r}.")
        name = self.canonical(name)
        if name not in self._things:
            own = self._places.get(name)
            thing: Thing = imported(own) if own is not None else self._declared[name].load()  # type: ignore[assignment]
            self._things[name] = thing
        return self._things[name]

    def resolve(self, name: str) -> Thing:
        """Return the object of a name or "module:Name"; only for text that a person wrote on this machine.

        Raises:
            ArgumentError: neither is known.
        """
        if name in self or ":" not in name:
            return self.find(name)
        thing: Thing = imported(name)  # type: ignore[assignment]
        return thing

    def name_of(self, thing: Thing) -> str | None:
        """Return the first name of an object, or None where it has none."""
        return next((name for name in self.names() if self._is(name, thing)), None)

    def _is(self, name: str, thing: Thing) -> bool:
        if name in self._things:
            return self._things[name] is thing
        place = self._places[name] if name in self._places else self._declared[name].value
        return place == _place_of(thing) and self.find(name) is thing


def _place_of(thing: object) -> str | None:
    """Return where a class or function is defined, as "module:Name"; None for other values."""
    return f"{thing.__module__}:{thing.__qualname__}" if isinstance(thing, type | FunctionType) else None
